//! Names of options, and the name that is nearest to an unknown one.

use std::fmt::Display;

use super::{OPTIONS, OptionSpec, constants};

/// Advice about all names.
const SEE_ALL: &str = "`lodestore config show` lists all options";

/// Returns the option of a name or of a name of Redis.
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|option| option.names().any(|known| known == name))
}

/// Returns the only value of a parameter of Redis.
pub(super) fn constant(name: &str) -> Option<&'static str> {
    constants().iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// Returns the error for an unknown name of an option.
pub(super) fn unknown(name: &str) -> String {
    advise(nearest(name, OPTIONS.iter().flat_map(OptionSpec::names)))
}

/// Returns the error for an unknown name, if `near` is the nearest one.
pub(super) fn advise(near: Option<impl Display>) -> String {
    match near {
        Some(near) => format!("there is no such option; did you mean {near}? {SEE_ALL}"),
        None => format!("there is no such option; {SEE_ALL}"),
    }
}

/// Returns the known name with the smallest distance, unless the distance exceeds half of its
/// length.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|known| (distance(name, known), known)).min();
    near.filter(|(distance, known)| 2 * distance <= known.len()).map(|(_, known)| known)
}

/// Returns the minimum number of inserted, removed and replaced characters between two names.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    // Distances from the first characters of `one` to each begin of `other`.
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, own) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, character) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(own != *character);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits() {
        for (one, other, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("port", "prot", 2),
            ("ab", "ab", 0),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn the_nearest_name_is_proposed_if_it_is_near() {
        assert!(unknown("maxclint").contains("did you mean maxclients?"));
        assert!(unknown("requirepas").contains("did you mean requirepass?"));
        assert!(!unknown("zzzzzzzz").contains("did you mean"));
    }
}

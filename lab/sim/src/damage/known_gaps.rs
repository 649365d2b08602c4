//! Known breaches of the rule by engine: docs/crash.md, "Known gaps". They are printed, and do not
//! fail a run while they are few.

use super::fault::Kind;
use super::model::Breach;
use super::{Report, Signature};

/// The ends of a history after which a breach is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// A power failure.
    Crash,
    /// A kill or a power failure.
    Unclean,
    /// Any end.
    All,
}

impl Ends {
    fn contain(self, end: &str) -> bool {
        match self {
            Self::Crash => end == "crash",
            Self::Unclean => end != "clean stop",
            Self::All => true,
        }
    }
}

/// A known breach of an engine after some kinds of damage to some structures.
#[derive(Debug, Clone, Copy)]
struct KnownBreach {
    breach: Breach,
    /// Names of the damaged structures, as in the tables of docs/crash.md, without the mark of a
    /// head.
    structures: &'static [&'static str],
    kinds: &'static [Kind],
    ends: Ends,
}

const fn known(breach: Breach, structures: &'static [&'static str], kinds: &'static [Kind], ends: Ends) -> KnownBreach {
    KnownBreach { breach, structures, kinds, ends }
}

/// Damage that gives a line earlier stored bytes.
const OLDER: &[Kind] = &[Kind::StaleLine, Kind::StalePage, Kind::Misplaced, Kind::Mixed];
/// Damage of several places.
const SEVERAL: &[Kind] = &[Kind::Flips, Kind::Mixed];
/// Damage of pages, and of several places.
const PAGES: &[Kind] = &[Kind::ZeroPage, Kind::Garbage, Kind::StalePage, Kind::Misplaced, Kind::Mixed];
/// Damage of lines and pages, and of several places.
const LARGE: &[Kind] =
    &[Kind::ZeroLine, Kind::StaleLine, Kind::ZeroPage, Kind::Garbage, Kind::StalePage, Kind::Misplaced, Kind::Mixed];
/// A file with older content.
const FILE: &[Kind] = &[Kind::StaleFile];
/// The structure of a file with older content.
const WHOLE: &[&str] = &["a whole file"];

/// The words of the extents, and several structures with one of these.
const EXTENT_WORDS: &[&str] = &["extent table", "several structures"];
/// Known: an extent word of an earlier moment; one region file of the same session. nvht has the
/// same.
const HIKV: &[KnownBreach] = &[
    known(Breach::Absent, EXTENT_WORDS, OLDER, Ends::Unclean),
    known(Breach::OldValue, EXTENT_WORDS, OLDER, Ends::Unclean),
    known(Breach::Operation, EXTENT_WORDS, OLDER, Ends::Unclean),
    known(Breach::OldValue, WHOLE, FILE, Ends::Unclean),
    known(Breach::Absent, WHOLE, FILE, Ends::Unclean),
];
/// The segments of the logs.
const LOG: &[&str] = &["log segment"];
/// A log together with another structure.
const LOG_AND_OTHERS: &[&str] = &["log segment", "several structures"];
/// Known: the last page of a log whose end mark and end hint a power failure lost; damage of the
/// last record, its mark and its hint at once; one region file of the same session. hashkv has the
/// same.
const FLUIDKV: &[KnownBreach] = &[
    known(Breach::OldValue, LOG, PAGES, Ends::Crash),
    known(Breach::Absent, LOG, PAGES, Ends::Crash),
    known(Breach::OldValue, LOG_AND_OTHERS, SEVERAL, Ends::Unclean),
    known(Breach::Absent, LOG_AND_OTHERS, SEVERAL, Ends::Unclean),
    known(Breach::OldValue, WHOLE, FILE, Ends::Unclean),
    known(Breach::Absent, WHOLE, FILE, Ends::Unclean),
];
/// The indexes of a matrix's stores, the words of their extents, and several structures with one of
/// these.
const MKVS_INDEX: &[&str] = &["extent table", "index segment or hash table", "several structures"];
/// Structures of a matrix that share a page with an index, in its small stores.
const MKVS_BESIDE_INDEX: &[&str] = &["records", "large records", "directory", "free space"];
/// The structures that a salvage of a matrix reads.
const MKVS_SALVAGED: &[&str] =
    &["a whole file", "extent table", "index segment or hash table", "records", "several structures"];
/// Known: a stale pool of a log of the same session; the older lines of its indexes, from moments
/// at which a device trailed.
const MKVS: &[KnownBreach] = &[
    known(Breach::OldValue, MKVS_INDEX, LARGE, Ends::Unclean),
    known(Breach::Absent, MKVS_INDEX, LARGE, Ends::Unclean),
    known(Breach::Operation, MKVS_INDEX, LARGE, Ends::Unclean),
    known(Breach::Count, MKVS_INDEX, LARGE, Ends::Unclean),
    known(Breach::OldValue, MKVS_BESIDE_INDEX, OLDER, Ends::Unclean),
    known(Breach::Absent, MKVS_BESIDE_INDEX, OLDER, Ends::Unclean),
    known(Breach::Operation, WHOLE, FILE, Ends::Unclean),
    known(Breach::Count, WHOLE, FILE, Ends::Unclean),
    known(Breach::OldValue, WHOLE, FILE, Ends::Unclean),
    known(Breach::Absent, WHOLE, FILE, Ends::Unclean),
    known(Breach::SalvageOld, MKVS_SALVAGED, &Kind::ALL, Ends::All),
];

/// Returns the known breaches of an engine.
fn known_breaches(engine: &str) -> &'static [KnownBreach] {
    match engine {
        "hikv" | "nvht" => HIKV,
        "fluidkv" | "hashkv" => FLUIDKV,
        "mkvs" => MKVS,
        _ => &[],
    }
}

/// Returns the maximum violations per 10,000 images that may be known breaches.
fn violations_per_10_000_max(engine: &str) -> u64 {
    match engine {
        "hikv" | "nvht" => 5,
        "fluidkv" | "hashkv" => 4,
        _ => 8,
    }
}

/// Whether an engine is known to break the rule in this way.
pub fn is_known(engine: &str, (breach, structure, kind, end): &Signature) -> bool {
    let structure = structure.strip_suffix(": head").unwrap_or(structure);
    let matches = |known: &KnownBreach| {
        known.breach == *breach
            && known.structures.contains(&structure)
            && known.kinds.contains(kind)
            && known.ends.contain(end)
    };
    known_breaches(engine).iter().any(matches)
}

/// Whether the known breaches explain the number of violations. Few images may have some by chance.
pub fn are_few(engine: &str, report: &Report) -> bool {
    report.violations() <= 3 + report.images * violations_per_10_000_max(engine) / 10_000
}

#[cfg(test)]
mod tests {
    use super::super::map::structure_names;
    use super::*;

    #[test]
    fn a_known_breach_is_one_of_its_structure() {
        let signature = |structure: &str| (Breach::OldValue, structure.to_owned(), Kind::StalePage, "crash");
        assert!(is_known("fluidkv", &signature("log segment")));
        assert!(is_known("fluidkv", &signature("log segment: head")));
        assert!(!is_known("fluidkv", &signature("sorted table")));
        assert!(is_known("hikv", &signature("extent table")));
        assert!(!is_known("hikv", &signature("index segment")));
        assert!(!is_known("nvht", &signature("hash table")));
        assert!(!is_known("nvht", &signature("records")));
    }

    #[test]
    fn each_structure_of_a_known_breach_is_one_that_a_map_has() {
        for engine in ["hikv", "nvht", "fluidkv", "hashkv", "mkvs"] {
            let names = structure_names(engine);
            for structure in known_breaches(engine).iter().flat_map(|known| known.structures) {
                assert!(names.contains(structure), "{engine}: {structure}");
            }
        }
    }
}

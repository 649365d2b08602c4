//! Translates the library calls in a text into the commands and flags of this program.

use std::borrow::Cow;

/// Each phrase of the library, and the phrase that this program prints. A phrase that contains
/// another one is before it.
const PHRASES: &[(&str, &str)] = &[
    // Salvage.
    ("`Builder::salvage(true)`, `Db::for_each`", "`lodestore export --salvage`"),
    ("opened with `Builder::salvage(true)`", "`lodestore verify --salvage`"),
    ("salvage it with `Builder::salvage(true)`", "salvage it with `lodestore verify --salvage`"),
    ("`Matrix::replace` opened with `OpenOptions::salvage(true)`", "`lodestore mkvs replace --salvage`"),
    ("`Builder::salvage(true)`", "`--salvage`"),
    // Calls of a store.
    ("`Db::open`", "`lodestore create`"),
    ("`Db::verify`", "`lodestore verify`"),
    ("`Db::for_each`", "`export`"),
    ("is open in this process already: clone that `Db`", "is open in this process already: use another store"),
    ("without `Builder::read_only(true)`", "for writing"),
    ("call `store::destroy_with_devices`", "use `lodestore destroy --devices`"),
    // Calls of a matrix.
    ("`Matrix::replace`", "`lodestore mkvs replace`"),
    ("`Matrix::status`", "`lodestore mkvs status`"),
    ("`Matrix::wait_moved`", "`lodestore mkvs rebalance`"),
    // Options.
    ("`Builder::capacity`", "--size SIZE"),
    ("`Builder::set(\"region\", ..)`", "--set region=SIZE"),
    ("`Builder::set(\"first-region\", ..)`", "--set first-region=SIZE"),
    ("`Builder::set(\"chunk\", ..)`", "--set chunk=SIZE"),
    ("`Builder::set(\"segment\", ..)`", "--set segment=BYTES"),
    ("`Builder::set(\"partitions\", ..)`", "--set partitions=N"),
    ("`Builder::set(\"hash-seed\", ..)`", "--set hash-seed=N"),
    ("`Builder::set(\"probe-length\", ..)`", "--set probe-length=N"),
];

/// The library's call that opens a damaged store of a given path.
const SALVAGE_OF: (&str, &str) = ("`Db::builder(\"", "\").salvage(true)`");

/// Returns the text with this program's commands and flags in place of the library's calls.
pub fn translate(text: &str) -> Cow<'_, str> {
    if !text.contains('`') {
        return Cow::Borrowed(text);
    }
    let mut translated = translate_salvage_of(text);
    for (call, command) in PHRASES {
        if translated.contains(call) {
            translated = translated.replace(call, command);
        }
    }
    Cow::Owned(translated)
}

/// Translates each call that opens a damaged store of a given path.
fn translate_salvage_of(text: &str) -> String {
    let (begin, end) = SALVAGE_OF;
    let mut translated = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(begin)
        && let Some((path, behind)) = after.split_once(end)
    {
        translated += &format!("{before}`lodestore export --salvage {path}`");
        rest = behind;
    }
    translated + rest
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lodestore::Error;

    use super::*;

    /// Beginnings of the calls that texts of the library name.
    const CALLS: [&str; 6] = ["`Builder::", "`Db", "`Matrix::", "`store::", "`OpenOptions::", "`Store::"];

    fn representatives() -> Vec<Error> {
        let unsupported = "use `Db::for_each`, which needs no order, or the engine hikv, which keeps an order";
        let given_up = "export what is left (`Db::builder(\"a b\").salvage(true)`), or go on with \
                        `Builder::salvage(true)`; `Matrix::replace` opened with `OpenOptions::salvage(true)`";
        let mut errors = vec![
            Error::NoRoom { path: "s".into(), needed: 3, free: 2 },
            Error::missing("s"),
            Error::Locked { path: "s".into(), holder: Error::OWN_PROCESS.into() },
            Error::MachineRestarted { path: "s".into() },
            Error::corrupt("pool.0000 at 4096", "open it with salvage (`Builder::salvage(true)`, `Db::for_each`)"),
            Error::corrupt("a, group 0", given_up),
            Error::too_few_devices(1, 1, 2),
            Error::ReadOnly,
            Error::DeviceElsewhere { path: "d".into() },
            Error::Unsupported { engine: "nvht", what: "ordered scan".into(), instead: unsupported },
            Error::InvalidOption { name: "size".into(), value: "1".into(), why: "few (`Builder::capacity`)".into() },
        ];
        for instead in ["see `Matrix::status`", "wait on (`Matrix::wait_moved`)"] {
            errors.push(Error::Unfinished { doing: "a wait", after: Duration::from_secs(1), instead });
        }
        let names = ["region", "first-region", "chunk", "segment", "partitions", "hash-seed", "probe-length"];
        errors.extend(names.map(|name| {
            let why = format!("a larger `Builder::set(\"{name}\", ..)`");
            Error::InvalidOption { name: name.into(), value: "1".into(), why }
        }));
        errors
    }

    #[test]
    fn no_call_of_the_library_is_left_in_a_text() {
        for error in representatives() {
            let text = error.to_string();
            assert!(CALLS.iter().any(|call| text.contains(call)), "names no call: {text}");
            let translated = translate(&text);
            assert!(CALLS.iter().all(|call| !translated.contains(call)), "{translated}");
        }
    }

    #[test]
    fn a_salvage_of_a_path_is_an_export_of_that_path() {
        let text = "of one (`Db::builder(\"a b/c\").salvage(true)`) or `Db::builder(\"d\").salvage(true)`.";
        let command = "of one (`lodestore export --salvage a b/c`) or `lodestore export --salvage d`.";
        assert_eq!(translate(text), command);
        assert_eq!(translate("`Db::builder(\"cut"), "`Db::builder(\"cut");
    }

    #[test]
    fn each_phrase_is_before_the_shorter_phrases_in_it() {
        for (at, (call, _)) in PHRASES.iter().enumerate() {
            let hidden = PHRASES[..at].iter().find(|(earlier, _)| call.contains(earlier));
            assert_eq!(hidden, None, "{call}");
        }
    }
}

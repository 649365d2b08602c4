//! Tests of the translation. One reads the sources of the library and of the engines, so a call
//! that a new text names is noticed.

use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

use super::*;

/// The crates whose texts this program prints.
const CRATES: [&str; 10] =
    ["contract", "media", "index", "inplace", "hikv", "nvht", "fluidkv", "hashkv", "mkvs", "lodestore"];
/// A text of a user that looks like two calls.
const LOOKS_LIKE_CALLS: &str = "`Db::open` `Builder::capacity`";

/// Returns the phrases between backquotes that are calls of Rust.
fn calls(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|phrase| phrase.contains("::") || phrase.contains('(') || *phrase == "Db").collect()
}

/// Reads a string literal after its opening quote. Placeholders of a format stay as they are.
fn read_literal(source: &mut Peekable<Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(next) = source.next() {
        match next {
            '"' => break,
            '\\' => match source.next() {
                Some('\n') => while source.next_if(|next| next.is_whitespace()).is_some() {},
                Some(escaped) => text.push(escaped),
                None => break,
            },
            other => text.push(other),
        }
    }
    text
}

/// Returns the string literals of Rust code, without comments and characters.
fn literals(source: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), source.chars().peekable());
    while let Some(next) = rest.next() {
        match next {
            '/' if rest.peek() == Some(&'/') => while rest.next_if(|next| *next != '\n').is_some() {},
            '"' => found.push(read_literal(&mut rest)),
            // A character. A lifetime has no second quote in the next two characters.
            '\'' => match rest.clone().take(3).collect::<Vec<_>>()[..] {
                ['\\', _, '\''] => {
                    rest.nth(2);
                }
                [_, '\'', ..] => {
                    rest.nth(1);
                }
                _ => {}
            },
            _ => {}
        }
    }
    found
}

/// Returns the code of a file before its tests.
fn code_of(path: &Path) -> String {
    let source = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    source.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned()
}

/// Returns the files below a directory that hold code of the library and no tests.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() && name != "conformance" {
            files.extend(sources(&entry));
        } else if name.ends_with(".rs") && !name.contains("test") {
            files.push(entry);
        }
    }
    files
}

#[test]
fn every_call_that_a_text_of_the_library_names_is_translated() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if !crates.join("contract/src").exists() {
        println!("left out: the sources of the library are not part of this package");
        return;
    }
    let mut texts_with_calls = 0;
    for path in CRATES.iter().flat_map(|name| sources(&crates.join(name).join("src"))) {
        for text in literals(&code_of(&path)) {
            texts_with_calls += usize::from(!calls(&text).is_empty());
            let translated = translate(&text, &[]);
            assert_eq!(calls(&translated), Vec::<&str>::new(), "{}: {text:?}", path.display());
        }
    }
    assert!(texts_with_calls > 20, "only {texts_with_calls} texts with calls were found");
}

#[test]
fn literals_are_read_from_code_with_comments_characters_and_continued_lines() {
    let code = "a(\"one `A::b(\\\"c\\\")` \\\n      two\"); // \"three\"\nb('\"', '\\'', \"four\"); c::<'a>(\"five\")";
    assert_eq!(literals(code), ["one `A::b(\"c\")` two", "four", "five"]);
    assert_eq!(calls("`a` `B::c` `d(..)` `Db` `--salvage`"), ["B::c", "d(..)", "Db"]);
}

/// Returns errors that show a text of the user, and how often each shows the text.
fn errors_with(user: &str) -> Vec<(usize, Error)> {
    let path = || PathBuf::from(user);
    let text = || user.to_owned();
    vec![
        (1, Error::NoRoom { path: path(), needed: 3, free: 2 }),
        (1, Error::io("opening", path(), std::io::Error::other("odd"))),
        (2, Error::Locked { path: path(), holder: text() }),
        (1, Error::Locked { path: path(), holder: Error::OWN_PROCESS.into() }),
        (1, Error::missing(path())),
        (1, Error::exists(path())),
        (2, Error::Missing { path: path(), obstacle: Some(text()) }),
        (2, Error::Exists { path: path(), obstacle: Some(text()) }),
        (1, Error::TargetExists { path: path() }),
        (1, Error::TargetIsMount { path: path() }),
        (2, Error::Foreign { path: path(), what: text() }),
        (3, Error::WrongEngine { found: text(), asked: text() }),
        (1, Error::EngineNotBuilt { engine: text(), feature: "hikv" }),
        (1, Error::WeakerMedium { path: path(), found: "shm".into(), needed: "file".into() }),
        (1, Error::MachineRestarted { path: path() }),
        (1, Error::corrupt(user, "open it with salvage (`Builder::salvage(true)`, `Db::for_each`)")),
        (2, Error::InvalidOption { name: text(), value: text(), why: "few (`Builder::capacity`)".into() }),
        (1, Error::KeyspaceMissing { name: text() }),
        (1, Error::KeyspaceDropped { name: text() }),
        (1, Error::OtherStore { keyspace: text() }),
        (1, Error::Aborted { reason: text() }),
        (1, Error::DeviceElsewhere { path: path() }),
        (1, Error::BackupNoRoom { path: path(), needed: 1 }),
        (1, Error::Backup { path: path(), what: "use another backup".into() }),
    ]
}

#[test]
fn texts_of_the_user_are_unchanged_and_the_calls_around_them_are_translated() {
    for ((shown, error), (_, plain)) in errors_with(LOOKS_LIKE_CALLS).iter().zip(errors_with("x")) {
        let text = error_text(error);
        assert_eq!(text.matches(LOOKS_LIKE_CALLS).count(), *shown, "{text}");
        let others = text.replace(LOOKS_LIKE_CALLS, "x");
        assert_eq!(others, error_text(&plain), "{error}");
        assert_eq!(calls(&others), Vec::<&str>::new(), "{text}");
    }
}

#[test]
fn a_text_of_the_user_that_is_the_call_itself_is_left_and_the_call_is_translated() {
    let text = error_text(&Error::missing("`Db::open`"));
    assert_eq!(text, "no store at `Db::open`: create one with `lodestore create`");
    let text = error_text(&Error::missing("`"));
    assert_eq!(text, "no store at `: create one with `lodestore create`");
}

#[test]
fn a_salvage_of_a_path_is_an_export_of_that_path() {
    let text = "of one (`Db::builder(\"a b/`Db::open`\").salvage(true)`) or `Db::builder(\"d\").salvage(true)`.";
    let command = "of one (`lodestore export --salvage a b/`Db::open``) or `lodestore export --salvage d`.";
    assert_eq!(translate(text, &[]), command);
    assert_eq!(translate("`Db::builder(\"cut", &[]), "`Db::builder(\"cut");
}

#[test]
fn an_option_is_set_by_a_flag() {
    let text = "a larger `Builder::set(\"region\", ..)` or `Builder::set(\"new\", ..)`";
    assert_eq!(translate(text, &[]), "a larger --set region=SIZE or --set new=VALUE");
}

#[test]
fn each_phrase_is_before_the_shorter_phrases_in_it() {
    for (at, (call, _)) in PHRASES.iter().enumerate() {
        let hidden = PHRASES[..at].iter().find(|(earlier, _)| call.contains(earlier));
        assert_eq!(hidden, None, "{call}");
    }
}

//! Tests of the error texts.

use std::error::Error as _;

use super::*;

fn one_of_each() -> Vec<Error> {
    let path = || PathBuf::from("a/store");
    vec![
        Error::KeyLength { len: 0, max: 65_536 },
        Error::ValueLength { len: usize::MAX },
        Error::BatchLength { ops: 70_000 },
        Error::Full { needed: 1, capacity: 2 },
        Error::DramBudget { used: 2, budget: 1 },
        Error::corrupt("pool.0000 at 4096", "checksum differs"),
        Error::io("opening", path(), io::Error::from(io::ErrorKind::PermissionDenied)),
        Error::ThreadRefused { name: "lodestore-sweep".into(), source: io::Error::from_raw_os_error(11) },
        Error::Locked { path: path(), holder: "process 1".into() },
        Error::Locked { path: path(), holder: format!("{}, pid 1 (server)", Error::OWN_PROCESS) },
        Error::missing(path()),
        Error::exists(path()),
        Error::Missing { path: path(), obstacle: Some("the directory is not empty: it has a letter".into()) },
        Error::Exists { path: path(), obstacle: Some("the directory is not empty: it has a letter".into()) },
        Error::Foreign { path: path(), what: "its first bytes are another's".into() },
        Error::WrongEngine { found: "hikv".into(), asked: "nvht".into() },
        Error::EngineNotBuilt { engine: "fluidkv".into(), feature: "fluidkv" },
        Error::ModeNotBuilt { engine: "hikv", mode: "wal=on".into(), feature: "lab" },
        Error::NewerFormat { part: "pool".into(), found: 2, known: 1 },
        Error::OlderFormat { part: "fluidkv".into(), found: 1, oldest: 2 },
        Error::DurabilityRefused { asked: Durability::Power, medium: "shm".into(), instead: "use process".into() },
        Error::WeakerMedium { path: path(), found: "shm (tmpfs)".into(), needed: "file".into() },
        Error::ForeignProcess,
        Error::MachineRestarted { path: path() },
        Error::Unsupported { engine: "nvht", what: "scan".into(), instead: "use hikv" },
        Error::InvalidOption { name: "size".into(), value: "x".into(), why: "the value must be a number".into() },
        Error::Poisoned { cause: "sync failed".into() },
        Error::too_few_devices(1, 1, 2),
        Error::TooFewDevices { group: 1, live: 1, needed: 2, may_stand: true },
        Error::NoRoom { path: path(), needed: 3, free: 2 },
        Error::IndexFull { depth: 24, instead: "create a store with longer probes" },
        Error::Unfinished { doing: "flushing the store", after: Duration::from_secs(77), instead: "let writers rest" },
        Error::KeyspaceName { len: 256 },
        Error::KeyspaceMissing { name: "users".into() },
        Error::KeyspaceDropped { name: "users".into() },
        Error::Conflict { tries: 100 },
        Error::Aborted { reason: "taken".into() },
        Error::KeyspacesExhausted,
        Error::OtherStore { keyspace: "users".into() },
        Error::OtherStore { keyspace: String::new() },
        Error::ReadOnly,
        Error::DeviceElsewhere { path: "d".into() },
        Error::TargetExists { path: "b".into() },
        Error::TargetIsMount { path: "b".into() },
        Error::BackupNoRoom { path: "b".into(), needed: 3 },
        Error::Backup { path: "b".into(), what: "the file BACKUP is damaged: use another backup".into() },
        Error::Closed,
    ]
}

#[test]
fn every_system_error_has_a_remedy() {
    for (refusal, says) in [
        (io::Error::from_raw_os_error(13), "chmod"),
        (io::Error::from_raw_os_error(28), "free space"),
        (io::Error::from_raw_os_error(122), "free space"),
        (io::Error::from_raw_os_error(30), "mount the file system for writing"),
        (io::Error::from_raw_os_error(24), "ulimit -n"),
        (io::Error::from_raw_os_error(23), "ulimit -n"),
        (io::Error::from_raw_os_error(12), "free memory"),
        (io::Error::from_raw_os_error(2), "check the path"),
        (io::Error::from_raw_os_error(5), "the system log"),
        (io::Error::other("odd"), "try again"),
    ] {
        let text = Error::io("opening", "a/store", refusal).to_string();
        assert!(text.starts_with("opening a/store: ") && text.contains(says), "{text}");
    }
}

#[test]
fn every_text_is_one_line_without_an_end() {
    for error in one_of_each() {
        let text = error.to_string();
        assert!(!text.contains('\n') && !text.ends_with('.') && !text.contains("  "), "{text:?}");
        assert!(text.contains(':') || text.contains(';'), "says what is wrong, and what to do: {text:?}");
    }
}

#[test]
fn no_text_names_a_command_or_a_flag_of_the_program() {
    for error in one_of_each() {
        let text = error.to_string();
        assert!(!text.contains("--") && !text.contains("`lodestore "), "{text}");
    }
}

#[test]
fn open_and_create_have_the_same_text_for_an_unusable_directory() {
    let (path, obstacle) = (PathBuf::from("a/store"), Some("the directory is not empty: it has a letter".to_string()));
    let missing = Error::Missing { path: path.clone(), obstacle: obstacle.clone() }.to_string();
    assert_eq!(missing, Error::Exists { path, obstacle }.to_string());
    assert!(!missing.contains("open it") && !missing.contains("create one"), "{missing}");
}

#[test]
fn texts_contain_the_given_numbers_and_names() {
    let texts: Vec<String> = one_of_each().iter().map(ToString::to_string).collect();
    for part in [
        "0 bytes",
        "1 more bytes",
        "pool.0000 at 4096",
        "a/store",
        "process 1",
        "hikv",
        "version 2",
        "power",
        "size=x",
        "77 s",
    ] {
        assert!(texts.iter().any(|text| text.contains(part)), "{part} is in no text");
    }
}

#[test]
fn the_text_of_a_key_length_names_the_limit_of_the_keyspace() {
    let text = |len, max| Error::KeyLength { len, max }.to_string();
    assert_eq!(text(65_530, 65_529), "the key has 65530 bytes: use 1 to 65529 bytes");
    assert_eq!(text(0, 65_536), "the key has 0 bytes: use 1 to 65536 bytes");
}

#[test]
fn a_handle_of_another_store_is_named_with_and_without_a_keyspace() {
    let text = |keyspace: &str| Error::OtherStore { keyspace: keyspace.into() }.to_string();
    assert!(text("users").starts_with("keyspace \"users\" belongs to another store: "), "{}", text("users"));
    assert!(text("").starts_with("this handle of a default keyspace belongs to another store: "), "{}", text(""));
}

#[test]
fn only_errors_of_the_operating_system_have_a_source() {
    for error in one_of_each() {
        let is_of_system = matches!(error, Error::Io { .. } | Error::ThreadRefused { .. });
        assert_eq!(error.source().is_some(), is_of_system, "{error}");
    }
}

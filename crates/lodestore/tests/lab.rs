//! Modes and options that only a build with the feature `lab` has. Other builds refuse them by
//! name, and change nothing in a store that was created with such a mode.

use std::fs::OpenOptions as FileOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lodestore::options::{CreateOptions, OpenOptions};
use lodestore::{Db, Error, engines, store};
use lodestore_contract::testing::Scratch;
use lodestore_media::crc32c;

/// Each option of the feature, with its default and another value.
const LAB_OPTIONS: [(&str, &str, &str, &str); 7] = [
    ("hikv", "update", "queued", "sync"),
    ("hikv", "tree", "global", "partitioned"),
    ("hikv", "wal", "off", "on"),
    ("hashkv", "mode", "hash", "vlog"),
    ("nvht", "persist-ns", "0", "600"),
    ("fluidkv", "persist-per", "fence", "block"),
    ("mkvs", "read-ns", "0", "60"),
];
/// The first bytes of the superblock of `hikv`.
const MAGIC: &[u8] = b"LSHIKV\0\x01";
/// Offset of the modes in the superblock.
const MODES_AT: usize = 20;
/// Offset of the superblock's checksum, which covers all bytes before it.
const CRC_AT: usize = 32;

fn small(engine: &str) -> CreateOptions {
    CreateOptions::new().engine(engine).size(32 << 20)
}

/// Returns whether this build has the option of this engine. `None`: it lacks the engine.
fn is_built(engine: &str, option: &str) -> Option<bool> {
    let engine = engines().iter().find(|known| known.name == engine)?;
    engine.options().iter().find(|spec| spec.name == option).map(|spec| spec.is_built)
}

#[test]
fn a_build_without_the_feature_accepts_only_the_defaults() {
    for (engine, option, default, other) in LAB_OPTIONS {
        let Some(is_built) = is_built(engine, option) else { continue };
        let dir = Scratch::new();
        drop(store::create(dir.path().join("default"), &small(engine).set(option, default)).expect("the default"));
        let path = dir.store();
        match store::create(&path, &small(engine).set(option, other)) {
            Ok(_) => assert!(is_built, "{option}={other}"),
            Err(refused @ Error::InvalidOption { .. }) => {
                assert!(!is_built && !path.exists(), "{refused}");
                assert!(refused.to_string().starts_with(&format!("option {option}={other}: ")), "{refused}");
                assert!(refused.to_string().contains("feature `lab`"), "{refused}");
            }
            Err(refused) => panic!("{option}={other}: {refused}"),
        }
    }
}

#[test]
fn an_unknown_option_is_answered_with_the_options_of_the_build() {
    let Some(is_built) = is_built("hikv", "wal") else { return };
    let dir = Scratch::new();
    let refused = store::create(dir.store(), &small("hikv").set("frob", "1")).expect_err("unknown").to_string();
    assert_eq!(refused.contains(", wal, "), is_built, "{refused}");
}

/// Sets the modes in the superblock of a closed `hikv` store.
fn write_modes(store: &Path, modes: u32) {
    let path = store.join("pool.0000");
    let bytes = std::fs::read(&path).expect("the first region");
    let at = bytes.windows(MAGIC.len()).position(|window| window == MAGIC).expect("the superblock");
    let mut superblock = bytes[at..at + CRC_AT].to_vec();
    superblock[MODES_AT..MODES_AT + 4].copy_from_slice(&modes.to_le_bytes());
    let crc = crc32c(&[&superblock]);
    superblock.extend_from_slice(&crc.to_le_bytes());
    let file = FileOptions::new().write(true).open(&path).expect("the file opens");
    file.write_all_at(&superblock, at as u64).expect("the superblock is written");
}

#[test]
fn a_store_with_a_mode_that_is_not_built_is_refused_by_name_and_loses_nothing() {
    if is_built("hikv", "wal") != Some(false) {
        return;
    }
    let dir = Scratch::new();
    let path = dir.store();
    let created = store::create(&path, &small("hikv")).expect("creates");
    created.put(b"key", b"value").expect("put");
    created.close().expect("a clean stop");
    drop(created);
    for (modes, named) in [(1, "update=sync"), (2, "tree=partitioned"), (4, "wal=on"), (5, "update=sync and wal=on")] {
        write_modes(&path, modes);
        for salvage in [false, true] {
            let refused = store::open(&path, &OpenOptions::new().salvage(salvage)).expect_err(named);
            let text = refused.to_string();
            match refused {
                Error::ModeNotBuilt { engine, mode, feature } => {
                    assert_eq!((engine, mode.as_str(), feature), ("hikv", named, "lab"));
                }
                other => panic!("{named}: {other}"),
            }
            assert!(text.contains(named) && text.contains("feature `lab`"), "{text}");
        }
        assert!(matches!(Db::open(&path), Err(Error::ModeNotBuilt { .. })), "{named}");
    }
    write_modes(&path, 0);
    let db = Db::open(&path).expect("the refusals changed nothing");
    assert_eq!(db.get("key").expect("get").expect("there"), "value");
    assert!(db.verify(|_| ()).expect("a report").findings.is_empty());
}

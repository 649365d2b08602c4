//! The settings of peers, and how they settle. These tests need the libraries, and so the feature
//! `installed`.
#![cfg(feature = "installed")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{get, kind_and_dir, with_each, with_each_asked};
use lodestore_peers::{About, Asked, Kind, Survives, kinds};

/// Returns the bytes of a peer's buffers and caches together, from its settings.
fn held(settings: &BTreeMap<String, String>) -> u64 {
    let of = |name: &str| settings.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    of("cache") + of("write-buffer") * of("write-buffers").max(2) + of("memtable") * of("memtables")
}

#[test]
fn a_budget_sets_buffers_and_caches_of_those_that_take_one() {
    let small = Asked { budget: Some(16 << 20), ..Asked::default() };
    with_each_asked(&small, |kind, peer| {
        let (asked, own) = (held(&peer.about().settings), held(&by_itself(kind).settings));
        if kind.budget {
            assert!(((8 << 20)..=(16 << 20)).contains(&asked), "{}: {asked}", kind.name);
        } else {
            assert_eq!(asked, own, "{}", kind.name);
        }
    });
}

#[test]
fn those_that_take_the_size_of_their_write_buffers_have_equal_ones_and_equal_caches() {
    let asked = Asked { budget: Some(40 << 20), write_buffer: Some(16 << 20), ..Asked::default() };
    with_each_asked(&asked, |kind, peer| {
        let (settings, budget_alone) = (peer.about().settings, Asked { write_buffer: None, ..asked });
        if kind.write_buffer {
            assert_eq!((&*settings["write-buffer"], &*settings["cache"]), ("16777216", "8388608"), "{}", kind.name);
            assert_eq!(settings.get("write-buffers").map_or("2", |text| text), "2", "{}", kind.name);
        } else {
            let dir = lodestore_contract::testing::Scratch::on_disk();
            let other = kind.open(dir.path(), &budget_alone).expect("it opens");
            assert_eq!(settings, other.about().settings, "{}", kind.name);
        }
    });
    let taken = kinds().iter().filter(|kind| kind.write_buffer).count();
    assert_eq!(taken, 6, "RocksDB, BlobDB and LevelDB, each with and without a sync");
}

fn by_itself(kind: &Kind) -> About {
    let dir = lodestore_contract::testing::Scratch::on_disk();
    kind.open(dir.path(), &Asked::default()).expect("it opens").about()
}

#[test]
fn all_peers_have_the_same_budget_where_none_is_asked_for_and_say_it() {
    with_each(|kind, peer| {
        let settings = peer.about().settings;
        if kind.budget {
            assert_eq!(settings.get("budget").map(String::as_str), Some("1073741824"), "{}", kind.name);
            assert!(((7 << 27)..=(1 << 30)).contains(&held(&settings)), "{}: {settings:?}", kind.name);
        } else {
            assert!(!settings.contains_key("budget") && held(&settings) < 32 << 20, "{}: {settings:?}", kind.name);
        }
    });
}

#[test]
fn each_peer_says_how_it_settles() {
    with_each(|kind, peer| {
        let settings = peer.about().settings;
        assert!(settings.get("settles").is_some_and(|text| !text.is_empty()), "{}: {settings:?}", kind.name);
    });
}

#[test]
fn keys_of_one_call_are_read_in_one_transaction() {
    let mut seen = 0;
    with_each(|kind, peer| {
        if !peer.about().settings.contains_key("transactions") {
            return;
        }
        seen += 1;
        peer.put(b"one", b"old").expect("put");
        peer.put(b"two", b"old").expect("put");
        let mut found = Vec::new();
        peer.multi_get(&[b"one", b"two"], &mut |at, value| {
            // A put of another thread, committed before the next key is read.
            std::thread::scope(|scope| {
                scope.spawn(|| peer.put(b"two", b"new").expect("put")).join().expect("no panic")
            });
            found.push((at, value.map(<[u8]>::to_vec)));
        })
        .expect("an answer");
        assert_eq!(found, [(0, Some(b"old".to_vec())), (1, Some(b"old".to_vec()))], "{}", kind.name);
        assert_eq!(get(peer, b"two").as_deref(), Some(&b"new"[..]), "{}", kind.name);
    });
    assert_eq!(seen, 4, "redb and LMDB, each with and without a sync");
}

/// Returns the files with this extension in `dir` and their lengths, sorted.
fn files_of(dir: &Path, ending: &str) -> Vec<(PathBuf, u64)> {
    let files = std::fs::read_dir(dir).expect("the directory is there").flatten().map(|file| file.path());
    let those = files.filter(|path| path.extension().is_some_and(|it| it == ending));
    let mut those: Vec<_> =
        those.filter_map(|path| std::fs::metadata(&path).ok().map(|found| (path, found.len()))).collect();
    those.sort();
    those
}

/// Returns the total length of the files.
fn bytes(dir: &Path, ending: &str) -> u64 {
    files_of(dir, ending).iter().map(|(_, length)| length).sum()
}

#[test]
fn leveldb_settles_by_a_flush_of_its_buffer_and_the_compactions_that_are_due_alone() {
    for name in ["leveldb", "leveldb-paper"] {
        let (kind, dir) = kind_and_dir(name);
        let peer = kind.open(dir.path(), &Asked { budget: Some(2 << 20), ..Asked::default() }).expect("it opens");
        let count: u32 = if kind.survives == Survives::Medium { 4000 } else { 60_000 };
        for round in 1..=3_u32 {
            for number in 0..count {
                let key = (number * 7919 % count).to_le_bytes();
                peer.put(&key, &[&[round as u8; 500][..], &key].concat()).expect("put");
            }
            assert!(bytes(dir.path(), "log") > 0, "{name}: the last puts are in the log");
            peer.settle().expect("settled");
            assert_eq!(bytes(dir.path(), "log"), 0, "{name}: all is in tables");
            let tables = files_of(dir.path(), "ldb");
            std::thread::sleep(std::time::Duration::from_millis(200));
            assert_eq!(files_of(dir.path(), "ldb"), tables, "{name}: it did more after round {round}");
            peer.settle().expect("settled");
            assert_eq!(files_of(dir.path(), "ldb"), tables, "{name}: nothing was left to do");
        }
        assert!((0..count).all(|number| get(&*peer, &number.to_le_bytes()).is_some_and(|it| it[0] == 3)), "{name}");
    }
}

#[test]
fn settling_writes_out_what_is_in_buffers_of_the_process() {
    for name in ["bdb-hash", "bdb-btree", "redb", "sled"] {
        let (kind, dir) = kind_and_dir(name);
        let peer = kind.open(dir.path(), &Asked::default()).expect("it opens");
        for number in 0..5000_u32 {
            peer.put(&number.to_le_bytes(), &[number as u8; 200]).expect("put");
        }
        peer.settle().expect("settled");
        // A copy of the files, as a kill would leave them.
        let (_, copy) = kind_and_dir(name);
        let copied = std::process::Command::new("cp").arg("-r").arg(dir.path().join(".")).arg(copy.path()).status();
        assert!(copied.expect("cp runs").success());
        let copy = kind.open(copy.path(), &Asked { there: true, ..Asked::default() }).expect("it opens");
        assert!((0..5000_u32).all(|number| get(&*copy, &number.to_le_bytes()).is_some()), "{name}");
    }
}

#[test]
fn rocksdb_reads_from_a_mapping_where_its_files_are_memory() {
    for name in ["rocksdb", "rocksdb-sync", "blobdb"] {
        let (kind, dir) = kind_and_dir(name);
        let peer = kind.open(dir.path(), &Asked::default()).expect("it opens");
        let mapped = if dir.path().starts_with("/dev/shm") { "true" } else { "false" };
        assert_eq!(peer.about().settings.get("mmap-reads").map(String::as_str), Some(mapped), "{name}");
    }
}

#[test]
fn a_log_that_is_being_rewritten_is_waited_for_by_redis() {
    let (kind, dir) = kind_and_dir("redis-aof");
    let peer = kind.open(dir.path(), &Asked::default()).expect("it opens");
    // Twice 64 MiB: Redis then rewrites its log automatically. The log consists of several files
    // for a while.
    let value = vec![7; 1 << 20];
    for number in 0..150_u32 {
        peer.put(&(number % 8).to_le_bytes(), &value).expect("put");
    }
    peer.settle().expect("settled");
    let manifest = std::fs::read_to_string(dir.path().join("appendonlydir/appendonly.aof.manifest"));
    let manifest = manifest.expect("it has one");
    assert!(
        !dir.path()
            .read_dir()
            .expect("it is there")
            .flatten()
            .any(|it| it.file_name().to_string_lossy().starts_with("temp-rewrite"))
    );
    assert!(manifest.lines().filter(|line| line.ends_with("type h")).count() == 0, "{manifest}");
}

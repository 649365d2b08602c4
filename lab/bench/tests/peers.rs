//! The program `bench` with stores of other projects.
#![cfg(feature = "peers")]

mod common;
#[path = "common/fields.rs"]
mod fields;

use common::{Scratch, bench, rows};
use fields::{ALL, FIELDS};

const PEERS: [&str; 23] = [
    "leveldb",
    "leveldb-sync",
    "leveldb-paper",
    "bdb-hash",
    "bdb-hash-paper",
    "bdb-btree",
    "bdb-btree-paper",
    "redb",
    "redb-sync",
    "rocksdb",
    "rocksdb-sync",
    "blobdb",
    "blobdb-sync",
    "fjall",
    "fjall-sync",
    "sled",
    "sled-sync",
    "lmdb",
    "lmdb-sync",
    "redis",
    "redis-aof",
    "redis-sync",
    "memcached",
];

#[test]
fn every_workload_runs_on_every_peer_and_leaves_nothing() {
    let dir = Scratch::new();
    let words = format!(
        "--workloads {ALL} --records 2000 --ops 1500 --rounds 1 --threads 2 --check full --size 256M --json --peers {}",
        PEERS.join(",")
    );
    let rows = rows(&bench(&words, Some(&dir)));
    for peer in PEERS {
        let names: Vec<_> = rows.iter().filter(|row| row["store"] == peer).map(|row| &row["workload"]).collect();
        // A hash has no order: it has neither `scan` nor `e`.
        let is_hash = ["bdb-hash", "redis", "memcached"].iter().any(|hash| peer.starts_with(hash));
        assert_eq!(names.len(), if is_hash { 13 } else { 15 }, "{peer}: {names:?}");
    }
    for row in &rows {
        FIELDS.iter().for_each(|field| assert!(!row[field].is_null(), "{field} is missing in {row}"));
        let own = row["ratio_to"].as_object().expect("ratios");
        assert!(own.len() >= 4 && !own.contains_key(row["store"].as_str().expect("a name")), "{row}");
    }
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn a_peer_says_what_its_writes_survive() {
    let dir = Scratch::new();
    let words = format!("--workloads load --records 500 --rounds 1 --size 256M --json --peers {}", PEERS.join(","));
    for row in rows(&bench(&words, Some(&dir))) {
        let medium = row["medium"].as_str().expect("a medium").to_string();
        let durable = if medium.starts_with("shm") { "process" } else { "power" };
        let should = match row["store"].as_str().expect("a name") {
            "bdb-hash" | "bdb-btree" | "redb" | "sled" | "redis" | "memcached" => "none",
            "hikv" | "leveldb" | "rocksdb" | "blobdb" | "fjall" | "lmdb" | "redis-aof" => "process",
            _ => durable,
        };
        assert_eq!(row["durability"], should, "{row}");
        let keeps_files = !["redis", "memcached"].contains(&row["store"].as_str().expect("a name"));
        assert!(!keeps_files || row["medium_bytes_per_key"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn the_table_sets_the_engine_beside_each_peer() {
    let dir = Scratch::new();
    let words = "--workloads load,scan --records 500 --rounds 1 --size 256M --peers leveldb,bdb-hash";
    let output = bench(words, Some(&dir));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("x leveldb") && text.contains("x bdb-hash"), "{text}");
    assert!(text.contains("not run on bdb-hash, which keeps no order: scan"), "{text}");
}

#[test]
fn peers_run_every_workload_with_sixteen_threads_a_budget_and_a_settled_load() {
    let dir = Scratch::new();
    let peers = ["rocksdb", "fjall", "leveldb", "sled"];
    let words = format!(
        "--engine fluidkv --workloads {ALL} --records 20000 --ops 3000 --rounds 1 --threads 16 --budget 8M --settle load --check full --json --peers {}",
        peers.join(",")
    );
    let rows = rows(&bench(&words, Some(&dir)));
    assert_eq!(rows.len(), 75);
    for row in rows.iter().filter(|row| row["workload"] == "load") {
        assert_eq!(row["settings"]["budget"], "8388608", "{row}");
        let write = row["write_amplification"].as_f64().expect("every store counts what it writes");
        assert!((0.9..20.0).contains(&write), "{row}");
        assert!(row["space_amplification"].as_f64() > Some(0.9), "{row}");
    }
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn a_durability_chooses_the_setting_of_each_peer_or_refuses_it() {
    let dir = Scratch::new();
    let words = "--engine rocksdb --peers fjall,leveldb,leveldb-paper --workloads load --records 200 --rounds 1 --json --durability power";
    let stores: Vec<_> = rows(&bench(words, Some(&dir))).iter().map(|row| row["store"].clone()).collect();
    assert_eq!(stores, ["rocksdb-sync", "fjall-sync", "leveldb-sync", "leveldb-paper"]);
    let output = bench("--engine rocksdb --peers bdb-hash --records 200 --durability process", Some(&dir));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("bdb-hash-paper") && text.lines().count() == 1, "{text}");
}

#[test]
fn peers_are_loaded_without_a_sync_and_opened_again_with_one() {
    let dir = Scratch::new();
    let peers = "rocksdb,fjall,leveldb,leveldb-paper,redb,sled";
    let words = format!(
        "--engine btreemap --workloads load,get,update,scan --records 3000 --ops 200 --rounds 1 --check full --json --settle load \
         --durability power --load-durability process --peers {peers}"
    );
    let rows = rows(&bench(&words, Some(&dir)));
    // The last three have no setting between a synced write and a write that a crash of the process
    // loses.
    let stores = [
        ("rocksdb-sync", "false", "true"),
        ("fjall-sync", "false", "true"),
        ("leveldb-sync", "false", "true"),
        ("leveldb-paper", "true", "true"),
        ("redb-sync", "each commit", "each commit"),
        ("sled-sync", "each write", "each write"),
    ];
    for (store, of_the_load, behind_it) in stores {
        let own: Vec<_> = rows.iter().filter(|row| row["store"] == store).collect();
        let told: Vec<_> = own.iter().map(|row| row["settings"]["sync"].as_str().expect("each tells it")).collect();
        assert_eq!(told, [of_the_load, behind_it, behind_it, behind_it], "{store}");
        assert!(own.iter().all(|row| row["load_durability"] == "process"), "{store}");
    }
    assert!(common::is_empty(&dir), "the bench left something behind");
}

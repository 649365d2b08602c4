//! The program `bench` reopens stores, peers too, and handles a store that fails.

#[cfg(feature = "peers")]
use std::fs;
#[cfg(feature = "peers")]
use std::os::unix::fs::PermissionsExt;
#[cfg(feature = "peers")]
use std::process::{Command, Output, Stdio};

use crate::common;
use crate::common::{Scratch, bench, rows};
use serde_json::Value;

/// Returns the reopened stores and how they had been left, in the order of the rows.
fn reopened(rows: &[Value]) -> Vec<(&str, &str)> {
    let those = rows.iter().filter(|row| row["reopen"].is_object());
    those.map(|row| (row["store"].as_str().expect("a name"), row["workload"].as_str().expect("a name"))).collect()
}

/// Asserts that a row has the required results of a reopening.
fn assert_told(row: &Value, records: u64, rounds: u64) {
    let found = &row["reopen"];
    assert_eq!((&found["checked"], &found["keys"]), (&records.into(), &records.into()), "{row}");
    assert!(found["open_s"].as_f64() > Some(0.0) && found["first_get_ns"].as_u64() > Some(0), "{row}");
    assert!(found["recovered_s"].as_f64() >= found["open_s"].as_f64(), "{row}");
    assert!(found["first_scan_s"].as_f64() >= found["open_s"].as_f64(), "{row}");
    // The first get is included in the latencies. With several rounds, each number is a separate
    // median.
    assert!(rounds > 1 || row["max_ns"].as_u64() >= found["first_get_ns"].as_u64(), "{row}");
    assert_eq!(row["rounds"], rounds, "{row}");
}

#[test]
fn each_engine_of_a_run_is_opened_again_in_each_setting() {
    let dir = Scratch::new();
    let words = "--engine hikv --peers nvht,hikv:wal=on,btreemap --workloads load --records 3000 --rounds 2 --reopen --size 64M";
    let rows = rows(&bench(&format!("{words} --json"), Some(&dir)));
    let both = |store| [(store, "reopen-clean"), (store, "reopen-kill")];
    assert_eq!(reopened(&rows), [both("hikv"), both("nvht"), both("hikv:wal=on")].concat());
    rows.iter().filter(|row| row["reopen"].is_object()).for_each(|row| assert_told(row, 3000, 2));
    let text = bench(words, Some(&dir));
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("btreemap was not opened again: it keeps nothing that could be"), "{text}");
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn a_run_in_which_nothing_could_be_opened_again_is_refused() {
    for words in ["--engine btreemap --reopen", "--engine hashmap --peers btreemap --reopen"] {
        let output = bench(words, None);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("reopen") && text.lines().count() == 1, "{words}: {text}");
    }
}

#[cfg(feature = "peers")]
#[test]
fn each_peer_is_opened_again_after_what_it_survives_and_has_every_record() {
    let dir = Scratch::new();
    let (both, stop): (&[&str], &[&str]) = (&["reopen-clean", "reopen-kill"], &["reopen-clean"]);
    let peers = [
        ("leveldb", both),
        ("leveldb-sync", both),
        ("rocksdb", both),
        ("rocksdb-sync", both),
        ("blobdb", both),
        ("lmdb", both),
        ("lmdb-sync", both),
        ("fjall", both),
        ("fjall-sync", both),
        ("redb-sync", both),
        ("sled-sync", both),
        ("redis-aof", both),
        ("redis-sync", both),
        ("redb", stop),
        ("sled", stop),
        ("bdb-hash", stop),
        ("bdb-btree", stop),
        ("redis", &[]),
        ("memcached", &[]),
    ];
    let names = peers.map(|(name, _)| name).join(",");
    let words = format!(
        "--engine hikv --peers {names} --workloads load --records 2000 --value-size 64..512 --rounds 1 --threads 2 --reopen --size 64M"
    );
    let all = rows(&bench(&format!("{words} --json"), Some(&dir)));
    let should = |(store, kinds): &(&'static str, &'static [&'static str])| {
        kinds.iter().map(|kind| (*store, *kind)).collect::<Vec<_>>()
    };
    let should: Vec<_> = [("hikv", both)].iter().chain(&peers).flat_map(should).collect();
    assert_eq!(reopened(&all), should);
    all.iter().filter(|row| row["reopen"].is_object()).for_each(|row| assert_told(row, 2000, 1));
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[cfg(feature = "peers")]
#[test]
fn a_peer_is_opened_again_alone_and_what_is_not_is_said() {
    let dir = Scratch::new();
    let words = "--engine leveldb --peers redb,redis --workloads load --records 500 --rounds 1 --reopen";
    let output = bench(words, Some(&dir));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("leveldb reopen-kill: open") && text.contains("redb reopen-clean: open"), "{text}");
    assert!(text.contains("redb was not opened again after a kill"), "{text}");
    assert!(text.contains("redis was not opened again: it keeps nothing"), "{text}");
}

/// A directory of programs, in which `redis-server` is this script. Its arguments are in `$@`, and
/// the real program is `$real`.
#[cfg(feature = "peers")]
fn with_redis(script: &str, words: &str, dir: &Scratch) -> Output {
    let programs = Scratch::new();
    let real = std::env::split_paths(&std::env::var_os("PATH").expect("there is a path"))
        .map(|path| path.join("redis-server"))
        .find(|path| path.exists())
        .expect("redis-server is here");
    let file = programs.path().join("redis-server");
    let text = format!(
        "#!/bin/sh\nreal={}\nhere={}\n[ \"$1\" = --version ] && exec \"$real\" --version\n{script}\nexec \"$real\" \"$@\"\n",
        real.display(),
        programs.path().display()
    );
    fs::write(&file, text).expect("a script");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it can be run");
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").expect("there is a path"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_lodestore-bench"));
    command.arg("run");
    command.args(words.split_whitespace()).arg("--dir").arg(dir.path()).env("PATH", path).stdin(Stdio::null());
    command.output().expect("the bench starts")
}

/// A server that restarts without its log.
#[cfg(feature = "peers")]
const FORGETS: &str = "rm -rf \"$2/appendonlydir\"";

#[cfg(feature = "peers")]
#[test]
fn a_store_that_comes_back_without_a_record_ends_the_run_or_is_told_of() {
    let dir = Scratch::new();
    let words = "--engine redis-aof --peers leveldb --workloads load --records 500 --rounds 2 --reopen --json";
    let output = with_redis(FORGETS, words, &dir);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("redis-aof") && text.contains("reopen-clean"), "{text}");
    let told = String::from_utf8(output.stdout).expect("text");
    let found: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<_> = found.iter().map(|row| (row["store"].as_str(), row["workload"].as_str())).collect();
    let (redis, leveldb) = (Some("redis-aof"), Some("leveldb"));
    assert_eq!(names, [(redis, Some("load")), (leveldb, Some("load")), (redis, Some("failed"))], "what was measured");
    let all = rows(&with_redis(FORGETS, &format!("{words} --go-on"), &dir));
    let failed: Vec<_> = all.iter().filter(|row| row["workload"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{all:?}");
    assert_eq!(failed[0]["store"], "redis-aof");
    let told = |name: &str| failed[0][name].as_str().expect("a text").to_string();
    assert!(told("failed").starts_with("reopen-clean: ") && told("failed").contains("missing"), "{}", told("failed"));
    assert!(told("repeat").contains("--reopen"), "{}", told("repeat"));
    assert_eq!(reopened(&all), [("leveldb", "reopen-clean"), ("leveldb", "reopen-kill")]);
    let load = |store: &str| all.iter().find(|row| row["store"] == store && row["workload"] == "load").expect("it ran");
    assert_eq!((&load("redis-aof")["rounds"], &load("leveldb")["rounds"]), (&1.into(), &2.into()));
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[cfg(feature = "peers")]
#[test]
fn a_store_that_failed_once_is_left_out_of_later_rounds() {
    let dir = Scratch::new();
    // The server fails only at its first start.
    let script = "mkdir \"$here/begun\" 2>/dev/null && exit 1";
    let words = "--engine leveldb --peers redis --workloads load --records 500 --rounds 3 --go-on --json";
    let output = with_redis(script, words, &dir);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let all = rows(&output);
    let of = |store: &str| -> Vec<&str> {
        all.iter().filter(|row| row["store"] == store).map(|row| row["workload"].as_str().expect("a name")).collect()
    };
    assert_eq!((of("leveldb"), of("redis")), (vec!["load"], vec!["failed"]), "{text}");
    assert_eq!(text.matches("redis failed in round 1").count(), 1, "{text}");
    assert!(text.contains("redis is left out of later rounds"), "{text}");
    let load = all.iter().find(|row| row["workload"] == "load").expect("it ran");
    assert!(load["rounds"] == 3 && load["ratio_to"].is_null(), "{load}");
}

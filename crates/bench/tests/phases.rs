//! The program `bench` as the HashKV paper's experiment needs it: equal stores, phases of updates, what was written and what is taken.

mod common;

use common::{Dir, bench, rows};
use serde_json::Value;

#[test]
fn a_write_buffer_is_given_to_stores_that_take_its_size() {
    let dir = Dir::new();
    let settings = |words: &str| -> Vec<Value> {
        let words = format!("--workloads load --records 500 --rounds 1 --size 256M --json --write-buffer 4M {words}");
        let rows = rows(&bench(&words, Some(&dir)));
        assert!(rows.iter().all(|row| row["command"].as_str().is_some_and(|it| it.contains("--write-buffer 4194304"))));
        rows.iter().map(|row| row["settings"].clone()).collect()
    };
    let fluid = settings("--engine fluidkv --budget 64M");
    assert_eq!((&fluid[0]["memtable-bytes"], &fluid[0]["write-buffer"]), (&"4194304".into(), &"4194304".into()));
    assert_eq!(fluid[1]["write-buffer"], "not taken");
    assert_eq!(settings("--engine hikv --peers none")[0]["write-buffer"], "not taken");
    let set = settings("--engine fluidkv --peers none --set memtable-bytes=8M");
    assert_eq!(set[0]["memtable-bytes"], "8M", "what is set by name counts more");
    if cfg!(feature = "peers") {
        let peers = settings("--engine rocksdb --peers blobdb,leveldb,leveldb-paper --budget 12M");
        let of = |name: &str| peers.iter().map(|it| it[name].as_str().expect("a text").to_string()).collect::<Vec<_>>();
        assert_eq!(of("write-buffer"), ["4194304", "4194304", "4194304", "4194304"], "that of the paper is its own");
        assert_eq!(of("cache")[..3], ["4194304", "4194304", "4194304"]);
        assert_eq!(of("budget")[3], "not taken");
    }
}

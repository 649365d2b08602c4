//! Each row of the program `bench` can be repeated separately, by the command in it.

use std::collections::BTreeMap;

use crate::common;
use serde_json::Value;

use crate::common::{Scratch, bench, rows};

/// Returns the parameters of a row, without its measurements.
fn of(row: &Value) -> BTreeMap<&str, &Value> {
    let told = ["store", "workload", "records", "ops", "threads", "rounds", "latency_every", "key_size", "value_size"];
    let set = ["seed", "settings", "medium", "durability"];
    told.into_iter().chain(set).map(|name| (name, &row[name])).collect()
}

/// Returns the rows of this command, which itself names a directory.
fn again(command: &str) -> Vec<Value> {
    let words = command.strip_prefix("lodestore-bench run ").expect("it names the program");
    rows(&bench(&format!("{words} --json"), None))
}

#[test]
fn each_row_tells_a_line_that_gives_it_again_alone() {
    let dir = Scratch::new();
    for words in [
        "--engine hikv --peers nvht,btreemap --workloads load,get,update,get,scan --records 600 --ops 300 --rounds 1 --size 64M --emulate-dax --seed 7",
        "--engine hikv --peers hikv:wal=on --workloads load,update --records 500 --rounds 1 --size 64M --emulate-dax --sweep persist-ns=0,50 --threads 2",
        "--engine hikv --peers btreemap --workloads load,zipfput,zipfput --load-bytes 200K --rounds 1 --size 64M --sweep value-size=64,256 --steps 100",
        "--preset hikv-fig12 --records 400 --rounds 1",
    ] {
        for row in rows(&bench(&format!("{words} --at-least 0 --json"), Some(&dir))) {
            let found = again(row["repeat"].as_str().expect("a line"));
            assert!(found.iter().all(|other| other["store"] == row["store"]), "{row}");
            let same: Vec<_> = found.iter().filter(|other| other["workload"] == row["workload"]).collect();
            let same = same.iter().find(|other| other["records"] == row["records"]).unwrap_or_else(|| panic!("{row}"));
            assert_eq!(of(same), of(&row));
        }
    }
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn the_lines_under_a_table_give_each_row_again_alone() {
    let dir = Scratch::new();
    for (words, store, value, takes) in [
        ("--engine hikv --peers nvht --workloads load,get,update,scan", "nvht", "", "scan takes update,scan"),
        ("--engine hikv --peers nvht --workloads load,get --sweep threads=1,2", "nvht", "2", "get"),
        ("--engine hikv --peers btreemap --workloads load,get --rate 9000", "hikv", "", "load takes load,get; get"),
    ] {
        let words = format!("{words} --records 400 --rounds 1 --size 64M");
        let text = String::from_utf8_lossy(&bench(&words, Some(&dir)).stdout).into_owned();
        let line = text.lines().find(|line| line.contains("--engine STORE")).unwrap_or_else(|| panic!("{text}"));
        let known = text.lines().find(|line| line.contains("  WORKLOADS: ")).unwrap_or_else(|| panic!("{text}"));
        assert!(known.contains(takes), "{text}");
        let line = line.replace("STORE", store).replace("VALUE", value).replace("WORKLOADS", "get");
        let found = again(line.trim());
        assert_eq!((&found[0]["store"], &found[0]["workload"]), (&store.into(), &"get".into()), "{line}");
        assert_eq!(found.len(), 1, "{line}");
        if !value.is_empty() {
            assert_eq!(found[0]["sweep"]["value"], value);
        }
        let whole = text.lines().last().expect("the command of all").trim();
        assert!(again(whole).len() > 1, "{whole}");
    }
}

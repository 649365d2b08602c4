//! Refusals of the program `bench` before anything runs, and the report of a run that fails.

use std::fs;
use std::process::Output;

use crate::common;
use crate::common::{Scratch, bench, rows};
use serde_json::Value;

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the objects that a run printed, regardless of its end.
fn told(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn names(rows: &[Value]) -> Vec<(&str, &str)> {
    rows.iter().map(|row| (row["store"].as_str().unwrap_or(""), row["workload"].as_str().unwrap_or(""))).collect()
}

#[test]
fn what_cannot_be_run_is_refused_in_one_line_before_any_store_ran() {
    let dir = Scratch::new();
    let here = dir.path().display();
    for (words, says) in [
        ("--peers nvht:region=banana --workloads overload --seconds 1".to_string(), "region=banana"),
        ("--peers none --sweep region=64M,banana".into(), "region=banana"),
        ("--peers none --set region=banana --go-on".into(), "region=banana"),
        ("--peers none --persist-ns 600".into(), "--emulate-dax"),
        ("--engine nvht --peers none --workloads scan --json".into(), "keeps no order"),
        ("--engine btreemap --seconds 5".into(), "seconds=5"),
        (format!("--timeline {here}/x.txt"), "ends in .csv"),
        (format!("--timeline {here}/no/such.csv"), "cannot be written"),
    ] {
        let output = bench(&format!("{words} --records 100 --rounds 1 --size 64M"), Some(&dir));
        let text = errors(&output);
        assert!(!output.status.success() && output.stdout.is_empty(), "{words}: {text}");
        assert!(text.lines().count() == 1 && text.contains(says), "{words}: {text}");
    }
    fs::create_dir(dir.path().join("x.csv")).expect("a directory");
    let output = bench(&format!("--engine btreemap --records 9 --timeline {here}/x.csv"), Some(&dir));
    assert!(!output.status.success() && output.stdout.is_empty() && errors(&output).contains("x.csv"));
    fs::remove_dir(dir.path().join("x.csv")).expect("removed");
    assert!(common::is_empty(&dir), "the bench left something behind");
}

/// A run whose first store is measured and whose second store has not enough space.
const SECOND_FAILS: &str = "--engine btreemap --peers nvht --workloads load,get --records 50000 --size 2M --rounds 2";

#[test]
fn what_was_measured_before_a_failure_is_told_and_then_the_failure() {
    let dir = Scratch::new();
    let output = bench(&format!("{SECOND_FAILS} --json"), Some(&dir));
    let (rows, text) = (told(&output), errors(&output));
    assert!(!output.status.success() && text.lines().count() == 1 && text.contains("full"), "{text}");
    assert_eq!(names(&rows), [("btreemap", "load"), ("btreemap", "get"), ("nvht", "failed")]);
    assert_eq!(rows[0]["rounds"], 1);
    let table = bench(SECOND_FAILS, Some(&dir));
    let text = String::from_utf8_lossy(&table.stdout);
    assert!(!table.status.success() && text.contains("nvht failed, and what is told of it"), "{text}");
    assert!(!text.contains("keeps no order"), "it had no time to run anything: {text}");
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn a_run_that_goes_on_fails_where_every_store_did() {
    let dir = Scratch::new();
    let some = bench(&format!("{SECOND_FAILS} --go-on --json"), Some(&dir));
    assert!(some.status.success() && names(&told(&some)).contains(&("btreemap", "get")), "{}", errors(&some));
    let words = "--engine nvht --peers none --workloads load --records 50000 --size 2M --rounds 1 --go-on --json";
    let all = bench(words, Some(&dir));
    assert!(!all.status.success(), "{}", errors(&all));
    assert_eq!(names(&told(&all)), [("nvht", "failed")]);
    assert!(errors(&all).lines().last().is_some_and(|line| line.contains("full")), "{}", errors(&all));
}

#[test]
fn workloads_that_a_store_has_not_are_named_beside_json_too() {
    let dir = Scratch::new();
    let words = "--engine nvht --peers btreemap --workloads load,scan --records 500 --size 64M --rounds 1";
    let output = bench(&format!("{words} --json"), Some(&dir));
    let line = "not run on nvht, which keeps no order: scan";
    assert_eq!(names(&rows(&output)), [("nvht", "load"), ("btreemap", "load"), ("btreemap", "scan")]);
    assert_eq!(errors(&output).trim(), line);
    let table = bench(words, Some(&dir));
    assert!(String::from_utf8_lossy(&table.stdout).contains(line) && table.stderr.is_empty());
}

#[cfg(feature = "peers")]
#[test]
fn a_path_too_long_for_a_servers_socket_is_refused_before_other_stores_run() {
    let dir = Scratch::new();
    let long = dir.path().join("d".repeat(80));
    fs::create_dir(&long).expect("a directory");
    let words = format!("--engine btreemap --peers redis --records 100 --rounds 1 --json --dir {}", long.display());
    let output = bench(&words, None);
    let text = errors(&output);
    assert!(!output.status.success() && output.stdout.is_empty() && text.lines().count() == 1, "{text}");
    assert!(text.contains("shorter directory") && text.contains("redis"), "{text}");
    assert!(fs::read_dir(&long).is_ok_and(|mut left| left.next().is_none()), "the bench left something behind");
}

//! `evaluate` through the program: that an experiment runs, and that its page, its rows and the index are there.

mod common;

use std::fs;

use common::Place;
use serde_json::Value;

/// An evaluation of one experiment at the tiny scale, with the pages in `out`.
fn evaluate<'a>(only: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let own = ["evaluate", "--scale", "tiny", "--dir", "memory", "--out", "out/pages", "--only", only];
    own.into_iter().chain(more.iter().copied()).collect()
}

fn place() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("memory")).expect("a directory");
    place
}

#[test]
fn an_experiment_leaves_its_page_its_rows_and_the_index_and_no_store() {
    let place = place();
    let told = place.ok(&evaluate("servers", &[]));
    assert!(told.starts_with("servers: ") && told.lines().count() == 1, "{told}");
    let read = |name: &str| fs::read_to_string(place.path("out/pages").join(name)).unwrap_or_else(|_| panic!("{name}"));
    let page = read("servers.md");
    for part in [
        "* Scale: tiny",
        "* Program: lodestore ",
        "hardware threads, Linux ",
        "lodestore bench --dir \"$MEMORY\" --engine hikv",
        "| workload | `hikv` | `mkvs` |",
        "## Where we lose",
        "| multiget | `mkvs` | `lodestore bench --engine mkvs --dir \"$MEMORY\" --workloads multiget ",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let rows = read("servers.jsonl");
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ran = |store: &str, workload: &str| rows.iter().any(|row| row["store"] == store && row["workload"] == workload);
    assert!(ran("hikv", "get") && ran("mkvs", "a"), "{rows:?}");
    assert!(!page.contains(&place.path("").display().to_string()), "no directory of this machine is named: {page}");
    assert!(read("servers.svg").starts_with("<svg"));
    let index = read("README.md");
    assert!(
        index.contains("| [servers](servers.md) |") && index.contains("* has not run, or not to its end: micro, "),
        "{index}"
    );
    if cfg!(not(feature = "peers")) {
        assert!(page.contains("* `memcached`: it is in builds with --features peers alone"), "{page}");
        assert!(index.contains("* servers: `redis`: it is in builds"), "{index}");
    }
    assert_eq!(fs::read_dir(place.path("memory")).expect("the directory").count(), 0, "the stores are removed");
    // What is there of this scale and program does not run again.
    assert_eq!(place.ok(&evaluate("servers", &["--resume"])), "");
    assert!(place.ok(&evaluate("servers", &[])).starts_with("servers: "));
}

#[test]
fn an_experiment_that_cannot_run_is_told_of_and_ends_nothing() {
    let place = place();
    let told = place.ok(&evaluate("reopen,power", &[]));
    let lines: Vec<_> = told.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("power: ") && lines[0].ends_with("failed in part"), "{told}");
    let page = fs::read_to_string(place.path("out/pages/power.md")).expect("its page");
    assert!(page.contains("* A run failed: no directory on a disk was given (--disk)"), "{page}");
    let page = fs::read_to_string(place.path("out/pages/reopen.md")).expect("its page");
    assert!(page.contains("reopen-kill") && page.contains("No peer was measured."), "{page}");
    // What failed runs again.
    assert!(place.ok(&evaluate("reopen,power", &["--resume"])).starts_with("power: "));
}

#[test]
fn the_list_is_printed_without_directories_and_bad_arguments_are_code_2() {
    let place = place();
    let list = place.ok(&["evaluate", "--list", "--scale", "full"]);
    assert!(list.contains("mkvs-tables") && list.contains("expected at scale full: "), "{list}");
    place.fails(&["evaluate", "--dir", "memory"], 2, "--out");
    place.fails(&evaluate("frob", &[]), 2, "micro, ycsb");
    assert!(!place.path("out").exists(), "nothing was made");
}

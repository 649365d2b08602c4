//! `convert`.

use std::process::{Child, Stdio};

use crate::common::{Sandbox, failed};

fn source(engine: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "src", "--engine", engine, "--size", "64M"]);
    let lines: String = (0..2000).map(|n| format!("key{n:05}\tvalue of {n}\n")).collect();
    sandbox.write("in.tsv", lines);
    sandbox.ok(&["import", "src", "in.tsv"]);
    sandbox.ok(&["import", "src", "in.tsv", "--keyspace", "users"]);
    sandbox.ok(&["put", "src", "session", "s", "--ttl", "100000", "--keyspace", "sessions"]);
    sandbox.ok(&["put", "src", "short", "s", "--ttl", "0.001"]);
    sandbox
}

/// The names in the directory of a sandbox, sorted.
fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = std::fs::read_dir(sandbox.path(".")).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn all_keyspaces_and_expiries_are_converted_to_any_engine() {
    for (from, to) in [("hikv", "fluidkv"), ("fluidkv", "nvht"), ("nvht", "hashkv"), ("hashkv", "hikv")] {
        let sandbox = source(from);
        std::thread::sleep(std::time::Duration::from_millis(5));
        let mut all: Vec<String> =
            sandbox.ok(&["export", "src", "--all-keyspaces"]).lines().map(str::to_owned).collect();
        all.sort();
        let printed = sandbox.ok(&["convert", "src", "dst", "--engine", to]);
        assert_eq!(printed, format!("converted 4,001 records and 2 named keyspaces to dst: engine {to}, verified\n"));
        let mut copied: Vec<String> =
            sandbox.ok(&["export", "dst", "--all-keyspaces"]).lines().map(str::to_owned).collect();
        copied.sort();
        assert_eq!(copied, all, "{from} to {to}");
        assert!(sandbox.ok(&["info", "dst"]).contains("67,108,864 (64M)"));
        assert_eq!(names(&sandbox), ["dst", "in.tsv", "src"]);
    }
}

#[test]
fn a_failed_conversion_leaves_no_store() {
    let sandbox = source("hikv");
    sandbox.ok(&["create", "taken", "--size", "64M"]);
    sandbox.fails(&["convert", "src", "taken", "--engine", "nvht"], 11, "taken");
    sandbox.fails(&["convert", "absent", "dst", "--engine", "nvht"], 3, "no store");
    sandbox.fails(&["convert", "src", "dst", "--engine", "frob"], 2, "engines of this build are");
    sandbox.fails(&["convert", "src", "dst", "--engine", "nvht", "--set", "frob=1"], 2, "frob");
    // No engine can compress these bytes.
    let bytes: Vec<u8> = (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    sandbox.write("big", bytes);
    for number in 0..30 {
        sandbox.ok(&["put", "src", &format!("big{number}"), "--value-file", "big"]);
    }
    sandbox.fails(&["convert", "src", "dst", "--engine", "fluidkv", "--size", "32M"], 6, "full");
    assert_eq!(names(&sandbox), ["big", "in.tsv", "src", "taken"]);
    assert_eq!(sandbox.ok(&["count", "src", "--keyspace", "users"]), "2000\n");
}

#[test]
fn a_damaged_source_is_not_converted() {
    let sandbox = source("hikv");
    sandbox.damage("src/pool.0000", b"value of 1234");
    sandbox.fails(&["convert", "src", "dst", "--engine", "nvht"], 7, "corrupt data");
    assert_eq!(names(&sandbox), ["in.tsv", "src"]);
}

#[test]
fn a_conversion_to_an_empty_directory_succeeds_and_to_another_directory_is_refused() {
    let sandbox = source("hikv");
    std::fs::create_dir(sandbox.path("dst")).expect("a directory");
    sandbox.ok(&["convert", "src", "dst", "--engine", "nvht"]);
    assert_eq!(sandbox.ok(&["count", "dst", "--keyspace", "users"]), "2000\n");
    let refused = "dst already exists: choose a path that does not exist, or an empty directory";
    sandbox.fails(&["convert", "src", "dst", "--engine", "nvht"], 11, refused);
    sandbox.fails(&["convert", "src", "in.tsv", "--engine", "nvht"], 11, "in.tsv already exists");
    sandbox.ok(&["convert", "src", "new/below/dst", "--engine", "nvht"]);
    sandbox.fails(&["convert", "src", "other/below/dst", "--engine", "nvht", "--set", "frob=1"], 2, "frob");
    assert_eq!(names(&sandbox), ["dst", "in.tsv", "new", "src"], "directories of the refused one are removed");
}

#[test]
fn a_change_of_size_alone_keeps_the_engine_and_its_fixed_options() {
    let sandbox = Sandbox::new();
    let fixed = ["--set", "region=8M", "--set", "chunk=32K"];
    sandbox.ok(&[&["create", "src", "--engine", "nvht", "--size", "64M"], &fixed[..]].concat());
    sandbox.ok(&["put", "src", "a", "1"]);
    let printed = sandbox.ok(&["convert", "src", "dst", "--size", "96M"]);
    assert_eq!(printed, "converted 1 records and 0 named keyspaces to dst: engine nvht, verified\n");
    let summary: serde_json::Value =
        serde_json::from_str(&sandbox.ok(&["doctor", "dst", "--json"])).expect("an object");
    let store = &summary["store"];
    let shape = ["capacity", "region_bytes", "chunk_bytes"].map(|name| store[name].as_u64().expect("a number"));
    assert_eq!(shape, [96 << 20, 8 << 20, 32 << 10], "{summary}");
    sandbox.ok(&["convert", "src", "other", "--set", "region=16M"]);
    let summary: serde_json::Value =
        serde_json::from_str(&sandbox.ok(&["doctor", "other", "--json"])).expect("an object");
    assert_eq!(summary["store"]["region_bytes"], 16 << 20, "a given option counts");
}

/// A sandbox with a store whose conversion lasts.
fn with_many() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "src", "--size", "256M"]);
    let lines: String = (0..200_000).map(|n| format!("key{n:06}\t{n:0100}\n")).collect();
    sandbox.write("in.tsv", lines);
    sandbox.ok(&["import", "src", "in.tsv"]);
    sandbox
}

/// Whether an unfinished conversion is in the directory of a sandbox.
fn has_unfinished(sandbox: &Sandbox) -> bool {
    names(sandbox).iter().any(|name| name.starts_with(".dst.unfinished-"))
}

/// Starts a conversion to `dst`, and waits until its unfinished directory exists or it ends.
fn begin(sandbox: &Sandbox, args: &[&str]) -> Child {
    let mut command = sandbox.command(args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    while !has_unfinished(sandbox) && child.try_wait().expect("its state").is_none() {
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_killed_conversion_leaves_no_target_and_the_next_conversion_removes_its_files() {
    let sandbox = with_many();
    let args = ["convert", "src", "dst", "--engine", "nvht"];
    let mut child = begin(&sandbox, &args);
    child.kill().and_then(|()| child.wait()).expect("it is killed");
    assert!(has_unfinished(&sandbox), "the conversion ended before its kill");
    assert!(!sandbox.path("dst").exists());
    sandbox.ok(&args);
    assert_eq!(names(&sandbox), ["dst", "in.tsv", "src"]);
    assert_eq!(sandbox.ok(&["count", "dst"]), "200000\n");
}

#[test]
fn a_signal_ends_a_conversion_without_a_store() {
    let sandbox = with_many();
    let args = ["convert", "src", "dst", "--engine", "fluidkv"];
    let child = begin(&sandbox, &args);
    let sent = std::process::Command::new("kill").arg("-TERM").arg(child.id().to_string()).status();
    assert!(sent.expect("kill starts").success());
    failed(&child.wait_with_output().expect("it ends"), 143, "convert stopped by signal 15", &args);
    assert_eq!(names(&sandbox), ["in.tsv", "src"]);
}

//! A short run of the `kill9` program; long runs are started by hand.

use std::path::Path;
use std::process::Command;

use lodestore_contract::testing::Scratch;

fn run(arguments: &[&str]) -> String {
    run_in(Scratch::new(), arguments)
}

/// Runs the program with a directory in `scratch` and returns its output.
fn run_in(scratch: Scratch, arguments: &[&str]) -> String {
    let dir = scratch.store();
    let output = Command::new(env!("CARGO_BIN_EXE_kill9"))
        .arg("--dir")
        .arg(&dir)
        .args(arguments)
        .output()
        .expect("the program runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}{err}");
    assert!(output.status.success(), "{err}");
    assert!(!dir.exists(), "the directory is removed");
    out.into_owned()
}

const TWO_WRITERS: [&str; 10] =
    ["--rounds", "12", "--threads", "2", "--keys", "500", "--life-ms", "150", "--seed", "1"];
const ONE_WRITER_FLUSHED: [&str; 13] = [
    "--rounds",
    "6",
    "--threads",
    "1",
    "--keys",
    "200",
    "--life-ms",
    "100",
    "--seed",
    "2",
    "--durability",
    "power",
    "--emulate-dax",
];
/// Few slots, so that tables grow when the child is killed.
const NVHT: [&str; 6] = ["--engine", "nvht", "--shape", "initial-capacity=1", "--shape", "partitions=2"];

#[test]
fn two_writers_of_hikv_lose_nothing() {
    run(&TWO_WRITERS);
}

#[test]
fn one_writer_of_hikv_loses_nothing_where_every_flush_is_executed() {
    run(&ONE_WRITER_FLUSHED);
}

#[test]
fn two_writers_of_nvht_lose_nothing() {
    run(&[&TWO_WRITERS[..], &NVHT].concat());
}

#[test]
fn one_writer_of_nvht_loses_nothing_where_every_flush_is_executed() {
    run(&[&ONE_WRITER_FLUSHED[..], &NVHT].concat());
}

/// On an ordinary file with tiny memtables: four writers share a log, which is switched
/// concurrently.
#[test]
fn writers_of_fluidkv_on_a_file_lose_nothing_when_they_are_killed() {
    for level in ["power", "interval:20"] {
        let tiny = ["--set", "memtable-bytes=65536", "--set", "segment-bytes=16384", "--set", "table-bytes=16384"];
        let rest = ["--engine", "fluidkv", "--rounds", "5", "--threads", "4", "--keys", "200", "--seed", "3"];
        run_in(
            Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR"))),
            &[&rest[..], &["--durability", level], &tiny].concat(),
        );
    }
}

/// The program removed its directory at the end although it had other contents.
#[test]
fn a_directory_with_something_in_it_is_refused_and_left_as_it_is() {
    let scratch = Scratch::on_disk();
    let dir = scratch.path();
    std::fs::write(dir.join("others"), "kept").expect("file");
    let output = Command::new(env!("CARGO_BIN_EXE_kill9"))
        .arg("--dir")
        .arg(dir)
        .args(["--rounds", "1", "--life-ms", "10"])
        .output()
        .expect("the program runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("is not empty"), "{told}");
    assert_eq!(std::fs::read_to_string(dir.join("others")).expect("it is there"), "kept");
}

/// Tiny memtables and space for some hundred segments, so that the child is killed during
/// separation and collection.
const HASHKV: [&str; 16] = [
    "--engine",
    "hashkv",
    "--size",
    "2097152",
    "--shape",
    "value-segment=16384",
    "--set",
    "separate-from=64",
    "--set",
    "group-bytes=65536",
    "--set",
    "memtable-bytes=65536",
    "--set",
    "segment-bytes=16384",
    "--set",
    "table-bytes=16384",
];

#[test]
fn two_writers_of_hashkv_lose_nothing() {
    run(&[&TWO_WRITERS[..], &HASHKV].concat());
}

#[test]
fn one_writer_of_hashkv_loses_nothing_where_every_flush_is_executed() {
    run(&[&ONE_WRITER_FLUSHED[..], &HASHKV].concat());
}

#[test]
fn writers_of_hashkv_on_a_file_lose_nothing_when_they_are_killed() {
    let rest = ["--rounds", "5", "--threads", "4", "--keys", "200", "--seed", "4", "--durability", "power"];
    run_in(Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR"))), &[&rest[..], &HASHKV].concat());
}

/// Logs that keep few operations, so that devices are copied.
const MKVS: [&str; 12] = [
    "--engine",
    "mkvs",
    "--size",
    "33554432",
    "--shape",
    "log-ops=1024",
    "--shape",
    "log-bytes=1M",
    "--set",
    "soft-lag=64",
    "--set",
    "hard-lag=512",
];

#[test]
fn two_writers_of_mkvs_lose_nothing() {
    run(&[&TWO_WRITERS[..], &MKVS].concat());
}

/// The devices' own threads work, so their progress differs.
#[test]
fn two_writers_of_mkvs_lose_nothing_where_devices_are_lost_too() {
    for acks in ["acks=majority", "acks=all"] {
        let rest = ["--lose", "--shape", acks, "--set", "inline=off"];
        run(&[&TWO_WRITERS[..], &MKVS, &rest].concat());
    }
}

/// The child is killed while it replaces devices and adds groups, while they are copied, and while
/// keys move.
#[test]
fn two_writers_of_mkvs_lose_nothing_where_the_matrix_is_changed_meanwhile() {
    for acks in ["acks=majority", "acks=all"] {
        let rest = ["--change", "--rounds", "20", "--life-ms", "250", "--shape", acks, "--set", "inline=off"];
        let told = run(&[&TWO_WRITERS[..], &MKVS, &rest].concat());
        let changed = told.lines().find(|line| line.starts_with("devices: ")).expect("what was changed is told");
        assert!(!changed.contains(": 0 replaced"), "{changed}");
    }
}

#[test]
fn devices_are_lost_of_a_matrix_alone_whose_writes_survive_it() {
    let cases =
        [(&["--engine", "hikv"][..], "take"), (&["--engine", "mkvs", "--shape", "acks=one"], "no write survives")];
    for (arguments, why) in cases {
        let scratch = Scratch::on_disk();
        let output = Command::new(env!("CARGO_BIN_EXE_kill9"))
            .arg("--dir")
            .arg(scratch.store())
            .args(["--rounds", "1", "--lose"])
            .args(arguments)
            .output()
            .expect("the program runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{told}");
    }
}

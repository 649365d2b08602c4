//! The program `bench` as a user runs it, at small size.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A directory that is gone at the end of its test, and which the bench must leave empty.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let name = format!("lodestore-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let shm = Path::new("/dev/shm");
        let parent = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let path = parent.join(name);
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).expect("the directory is there").next().is_none()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bench(words: &str, dir: Option<&Dir>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    if let Some(dir) = dir {
        command.arg("--dir").arg(&dir.0);
    }
    command.output().expect("the bench starts")
}

fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

const ALL: &str = "load,get,multiget,update,delete,scan,a,b,c,d,e,f";
const FIELDS: [&str; 20] = [
    "store",
    "workload",
    "threads",
    "records",
    "ops",
    "ops_per_s",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "dram_bytes_per_key",
    "medium_bytes_per_key",
    "flushes_per_op",
    "fences_per_op",
    "medium",
    "durability",
    "settings",
    "seed",
    "spread",
    "command",
];

#[test]
fn every_workload_runs_on_the_peer_alone() {
    let output = bench(
        &format!(
            "--engine btreemap --workloads {ALL} --records 3000 --ops 2000 --rounds 2 --check full --latency-every 1 --json"
        ),
        None,
    );
    let rows = rows(&output);
    let names: Vec<_> = rows.iter().map(|row| row["workload"].as_str().expect("a name")).collect();
    assert_eq!(names.join(","), ALL);
    for row in &rows {
        FIELDS.iter().for_each(|field| assert!(!row[field].is_null(), "{field} is missing in {row}"));
        let ops = if row["workload"] == "load" { 3000 } else { 2000 };
        assert_eq!(row["ops"], ops);
        assert!(row["ops_per_s"].as_f64() > Some(0.0) && row["p50_ns"].is_u64(), "{row}");
        assert!(row["p50_ns"].as_u64() <= row["max_ns"].as_u64());
        assert_eq!(row["ratio_to_btreemap"], 1.0);
    }
}

#[test]
fn every_workload_runs_on_the_engine_beside_the_peer_and_leaves_nothing() {
    let dir = Dir::new();
    let words =
        format!("--workloads {ALL} --records 5000 --ops 3000 --rounds 1 --threads 2 --check full --size 256M --json");
    let rows = rows(&bench(&words, Some(&dir)));
    assert_eq!(rows.len(), 24);
    for row in &rows {
        FIELDS.iter().for_each(|field| assert!(!row[field].is_null(), "{field} is missing in {row}"));
        assert!(row["ratio_to_btreemap"].is_f64());
    }
    assert!(dir.is_empty(), "the bench left something behind");
}

#[test]
fn odd_sizes_run() {
    let dir = Dir::new();
    for sizes in ["--key-size 8 --value-size 8", "--key-size 9 --value-size 1", "--key-size 100 --value-size 5000"] {
        let words = format!("--workloads {ALL} --records 1000 --rounds 1 --check full --size 256M --json {sizes}");
        assert_eq!(rows(&bench(&words, Some(&dir))).len(), 24);
    }
}

#[test]
fn a_table_tells_how_to_run_it_again() {
    let output = bench("--engine btreemap --workloads get --records 1000 --rounds 1", None);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("x btreemap") && text.contains("lodestore bench --engine btreemap --workloads get"),
        "{text}"
    );
}

#[test]
fn bad_arguments_are_refused_in_one_line() {
    for words in [
        "--engine nosuch",
        "--engine btreemap --peers nosuch",
        "--engine btreemap --records 0",
        "--engine btreemap --key-size 7",
        "--engine btreemap --reopen",
        "--engine hikv",
        "--engine btreemap --set x",
    ] {
        let output = bench(words, None);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.lines().count() == 1, "{words}: {text}");
    }
}

#[test]
fn a_store_is_measured_reopening_after_a_stop_and_after_a_kill() {
    let dir = Dir::new();
    let words = "--workloads load --records 20000 --rounds 1 --peers none --reopen --size 256M --json";
    let rows = rows(&bench(words, Some(&dir)));
    let kinds: Vec<_> = rows.iter().filter(|row| row["reopen"].is_object()).collect();
    assert_eq!(kinds.len(), 2);
    for row in kinds {
        assert_eq!(row["reopen"]["checked"], 20_000, "{row}");
        assert_eq!(row["reopen"]["keys"], 20_000, "{row}");
    }
    assert!(dir.is_empty(), "the bench left something behind");
}

#[test]
fn a_signal_ends_the_run_and_its_directory() {
    let dir = Dir::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(
            "--workloads get --records 1000000 --ops 100000000 --rounds 9 --peers none --size 1G --dir"
                .split_whitespace(),
        )
        .arg(&dir.0)
        .stdin(Stdio::null())
        .spawn()
        .expect("the bench starts");
    while dir.is_empty() {
        assert!(child.try_wait().expect("it can be asked").is_none(), "it ended before the signal");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let kill = Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
    assert!(kill.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    assert!(dir.is_empty(), "the bench left something behind");
}

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

#[test]
fn a_sweep_has_a_row_for_each_value_and_a_picture_with_a_line_for_each_workload() {
    let dir = Dir::new();
    let picture = dir.0.join("sweep.svg");
    let words = format!(
        "--workloads load,get --records 2000 --rounds 2 --size 256M --sweep region=64M,128M --json --plot {}",
        picture.display()
    );
    let rows = rows(&bench(&words, Some(&dir)));
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            let command = row["command"].as_str().expect("a command");
            let value = row["sweep"]["value"].as_str().expect("a value");
            assert!(command.contains(&format!("--set region={value}")) && !command.contains("--sweep"), "{command}");
            assert_eq!(row["settings"]["region"], value);
            format!("{} {value}", row["workload"].as_str().expect("a name"))
        })
        .collect();
    assert_eq!(seen, ["load 64M", "load 128M", "get 64M", "get 128M"]);
    let svg = fs::read_to_string(&picture).expect("the picture is there");
    assert!(svg.starts_with("<svg") && svg.contains("128M") && svg.matches("<polyline").count() >= 2, "{svg}");
    fs::remove_file(picture).expect("removed");
    assert!(dir.is_empty(), "the bench left something behind");
}

#[test]
fn a_sweep_of_threads_runs_with_as_many() {
    let dir = Dir::new();
    let words = "--workloads get --records 2000 --rounds 1 --size 256M --sweep threads=1,2 --json";
    let rows = rows(&bench(words, Some(&dir)));
    assert_eq!(rows.iter().map(|row| row["threads"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
}

#[test]
fn the_load_stops_at_steps_and_takes_account() {
    let dir = Dir::new();
    let words = "--workloads load,get --records 6000 --threads 2 --rounds 1 --peers none --size 256M \
                 --steps 1000,2001 --emulate-dax --set persist-ns=100 --latency-every 1 --json";
    let rows = rows(&bench(words, Some(&dir)));
    let steps: Vec<_> = rows.iter().filter(|row| row["workload"] == "load-step").collect();
    let counts = |name: &str| steps.iter().map(|row| row[name].as_u64().expect("a number")).collect::<Vec<_>>();
    assert_eq!((counts("records"), counts("ops")), (vec![1000, 2001, 6000], vec![1000, 1001, 3999]));
    let load = rows.iter().find(|row| row["workload"] == "load").expect("the load has its row");
    assert_eq!(load["ops"], 6000);
    assert_eq!(load["longest_ns"].as_u64(), counts("longest_ns").into_iter().max());
    assert_eq!(load["settings"]["persist-ns"], "100");
    for row in &steps {
        assert!(row["dram_bytes_per_key"].is_number() && row["rss_anon_bytes_per_key"].is_number(), "{row}");
        assert!(row["p999_ns"].as_u64() <= row["p9999_ns"].as_u64());
        assert!(row["p9999_ns"].as_u64() <= row["longest_ns"].as_u64());
    }
}

#[test]
fn what_cannot_be_swept_or_stepped_is_refused_before_anything_runs() {
    let dir = Dir::new();
    for words in [
        "--sweep nosuch=1,2",
        "--sweep region",
        "--sweep threads=0",
        "--sweep threads=1 --reopen",
        "--steps 2,1",
        "--steps 9 --records 8",
    ] {
        let output = bench(words, Some(&dir));
        assert!(!output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[cfg(not(feature = "peers"))]
#[test]
fn a_peer_of_another_build_is_refused_with_the_feature_that_has_it() {
    eprintln!("skipped: the peers' own runs, which need --features peers and what scripts/peers.sh installs");
    let dir = Dir::new();
    let output = bench("--peers leveldb --records 10", Some(&dir));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("--features peers"), "{text}");
}

#[cfg(feature = "peers")]
const PEERS: [&str; 8] =
    ["leveldb", "leveldb-paper", "bdb-hash", "bdb-hash-paper", "bdb-btree", "bdb-btree-paper", "redb", "redb-sync"];

#[cfg(feature = "peers")]
#[test]
fn every_workload_runs_on_every_peer_and_leaves_nothing() {
    let dir = Dir::new();
    let words = format!(
        "--workloads {ALL} --records 2000 --ops 1500 --rounds 1 --threads 2 --check full --size 256M --json --peers {}",
        PEERS.join(",")
    );
    let rows = rows(&bench(&words, Some(&dir)));
    for peer in PEERS {
        let names: Vec<_> = rows.iter().filter(|row| row["store"] == peer).map(|row| &row["workload"]).collect();
        // A hash keeps no order: it has neither `scan` nor `e`.
        assert_eq!(names.len(), if peer.starts_with("bdb-hash") { 10 } else { 12 }, "{peer}: {names:?}");
    }
    for row in &rows {
        FIELDS.iter().for_each(|field| assert!(!row[field].is_null(), "{field} is missing in {row}"));
        let own = row["ratio_to"].as_object().expect("ratios");
        assert!(own.len() >= 4 && !own.contains_key(row["store"].as_str().expect("a name")), "{row}");
    }
    assert!(dir.is_empty(), "the bench left something behind");
}

#[cfg(feature = "peers")]
#[test]
fn a_peer_says_what_its_writes_survive() {
    let dir = Dir::new();
    let words = format!("--workloads load --records 500 --rounds 1 --size 256M --json --peers {}", PEERS.join(","));
    for row in rows(&bench(&words, Some(&dir))) {
        let medium = row["medium"].as_str().expect("a medium").to_string();
        let durable = if medium.starts_with("shm") { "process" } else { "power" };
        let should = match row["store"].as_str().expect("a name") {
            "bdb-hash" | "bdb-btree" | "redb" => "none",
            "hikv" | "leveldb" => "process",
            _ => durable,
        };
        assert_eq!(row["durability"], should, "{row}");
        assert!(row["medium_bytes_per_key"].as_f64() > Some(0.0), "{row}");
    }
}

#[cfg(feature = "peers")]
#[test]
fn the_table_sets_the_engine_beside_each_peer() {
    let dir = Dir::new();
    let words = "--workloads load,scan --records 500 --rounds 1 --size 256M --peers leveldb,bdb-hash";
    let output = bench(words, Some(&dir));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("x leveldb") && text.contains("x bdb-hash"), "{text}");
    assert!(text.contains("not run on bdb-hash, which keeps no order: scan"), "{text}");
}

//! The program `bench` as a user runs it, at small size.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use serde_json::Value;

use crate::common::{Scratch, bench, rows};
use crate::fields::{ALL, FIELDS};

#[test]
fn every_workload_runs_on_the_peer_alone() {
    let output = bench(
        &format!(
            "--engine btreemap --workloads {ALL} --records 3000 --ops 2000 --rounds 2 --check full --latency-every 1 --at-least 0 \
             --json"
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
    }
}

#[test]
fn every_workload_runs_on_the_engine_beside_the_peer_and_leaves_nothing() {
    let dir = Scratch::new();
    let words =
        format!("--workloads {ALL} --records 5000 --ops 3000 --rounds 1 --threads 2 --check full --size 256M --json");
    let rows = rows(&bench(&words, Some(&dir)));
    assert_eq!(rows.len(), 30);
    for row in &rows {
        FIELDS.iter().for_each(|field| assert!(!row[field].is_null(), "{field} is missing in {row}"));
        assert!(row["store"] == "btreemap" || row["ratio_to"]["btreemap"].is_f64(), "{row}");
    }
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn a_workload_that_can_go_on_is_warmed_up_and_goes_on_for_a_while_and_another_does_neither() {
    let words = format!("--engine btreemap --workloads {ALL} --records 300 --rounds 1 --json");
    let ops = |words: &str| -> Vec<(String, u64)> {
        let told = |row: &Value| (row["workload"].as_str().unwrap_or("").into(), row["ops"].as_u64().unwrap_or(0));
        rows(&bench(words, None)).iter().map(told).collect()
    };
    for (name, ops) in ops(&format!("{words} --at-least 20 --warm-up 5")) {
        // A map does 300 operations in a thousandth of that time.
        let went_on = !["load", "delete", "d", "e", "overwrite", "zipfput"].contains(&name.as_str());
        assert!(if went_on { ops > 300 } else { ops == 300 }, "{name}: {ops}");
    }
    let began = Instant::now();
    let exact = ops(&format!("{words} --at-least 0 --warm-up 40"));
    assert!(exact.iter().all(|(_, ops)| *ops == 300), "{exact:?}: what warms up does not count");
    assert!(began.elapsed() >= Duration::from_millis(8 * 40));
    let swept = ops("--engine btreemap --workloads get --records 300 --rounds 1 --sweep ops=5,7 --json");
    assert_eq!(swept.iter().map(|(_, ops)| *ops).collect::<Vec<_>>(), [5, 7]);
}

#[test]
fn odd_sizes_run() {
    let dir = Scratch::new();
    for sizes in [
        "--key-size 8 --value-size 8",
        "--key-size 9 --value-size 1",
        "--key-size 100 --value-size 5000",
        "--key-size 8..100 --value-size 1..5000",
        "--key-size facebook --value-size facebook",
    ] {
        let words = format!("--workloads {ALL} --records 1000 --rounds 1 --check full --size 256M --json {sizes}");
        assert_eq!(rows(&bench(&words, Some(&dir))).len(), 30);
    }
}

#[test]
fn a_table_tells_how_to_run_it_again() {
    let output = bench("--engine btreemap --workloads get --records 1000 --rounds 1", None);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        !text.contains("x btreemap") && text.contains("lodestore-bench run --engine btreemap --workloads get"),
        "{text}"
    );
}

/// A map that keeps nothing used to be in one table with peers of the engine's durability.
#[test]
fn ratios_to_stores_of_another_durability_stand_in_a_table_of_their_own() {
    let dir = Scratch::new();
    let words = "--engine hikv --peers nvht,btreemap --workloads get --records 1000 --rounds 1 --size 64M";
    let output = bench(words, Some(&dir));
    let text = String::from_utf8_lossy(&output.stdout);
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing in {text}"));
    let (same, other) = (place("writes survive the same (process)"), place("writes survive something else (nothing"));
    assert!(same < place("x nvht") && place("x nvht") < other && other < place("x btreemap"), "{text}");
}

#[test]
fn bad_arguments_are_refused_in_one_line() {
    for words in [
        "--engine nosuch",
        "--engine btreemap --peers nosuch",
        "--engine btreemap --records 0",
        "--engine btreemap --key-size 7",
        "--engine btreemap --key-size 7..16",
        "--engine btreemap --value-size 0..16",
        "--engine btreemap --reopen",
        "--engine btreemap --workloads get --warm-up 0",
        "--engine hikv",
        "--engine btreemap --set x",
        "--engine btreemap --timeline picture.png",
        "--engine btreemap --budget 1000",
        "--engine btreemap --write-buffer 1000",
        "--engine btreemap --write-buffer 8M --budget 16M",
        "--engine btreemap --workloads overload --seconds 0",
        "--engine btreemap --workloads multiget --rate 1000",
    ] {
        let output = bench(words, None);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.lines().count() == 1, "{words}: {text}");
    }
}

#[test]
fn a_signal_ends_the_run_and_its_directory() {
    // A signal that this process ignores, as under nohup, is also ignored by its child processes.
    let status = fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a line of it");
    let ignored = u64::from_str_radix(mask.trim(), 16).expect("a mask");
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("QUIT", 131)] {
        if (ignored >> (code - 128 - 1)) & 1 == 1 {
            eprintln!("SIG{signal} is ignored here");
            continue;
        }
        let dir = Scratch::new();
        let mut child = Command::new(env!("CARGO_BIN_EXE_lodestore-bench"))
            .arg("run")
            .args(
                "--workloads get --records 1000000 --ops 100000000 --rounds 9 --peers none --size 1G --dir"
                    .split_whitespace(),
            )
            .arg(dir.path())
            .stdin(Stdio::null())
            .spawn()
            .expect("the bench starts");
        while common::is_empty(&dir) {
            assert!(child.try_wait().expect("it can be asked").is_none(), "it ended before the signal");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().expect("kill runs");
        assert!(kill.success());
        assert_eq!(child.wait().expect("it ends").code(), Some(code));
        assert!(common::is_empty(&dir), "the bench left something behind");
    }
}

#[test]
fn a_sweep_has_a_row_for_each_value() {
    let dir = Scratch::new();
    let words = "--workloads load,get --records 2000 --rounds 2 --size 256M --sweep region=64M,128M --json";
    let rows = rows(&bench(words, Some(&dir)));
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
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn a_sweep_of_threads_runs_with_as_many() {
    let dir = Scratch::new();
    let words = "--workloads get --records 2000 --rounds 1 --size 256M --sweep threads=1,2 --json";
    let rows = rows(&bench(words, Some(&dir)));
    assert_eq!(rows.iter().map(|row| row["threads"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
}

#[test]
fn what_cannot_be_swept_or_stepped_is_refused_before_anything_runs() {
    let dir = Scratch::new();
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

#[test]
fn a_budget_is_given_to_stores_that_take_one_and_what_is_set_by_name_counts_more() {
    let dir = Scratch::new();
    let budget = |words: &str| -> Vec<(Value, Value)> {
        let words = format!(
            "--engine fluidkv --workloads load --records 2000 --rounds 1 --size 256M --json --budget 32M {words}"
        );
        let rows = rows(&bench(&words, Some(&dir)));
        rows.iter().map(|row| (row["settings"]["dram-budget"].clone(), row["settings"]["budget"].clone())).collect()
    };
    let (given, none) = ("33554432", Value::Null);
    assert_eq!(budget(""), [(given.into(), given.into()), (none.clone(), "not taken".into())]);
    assert_eq!(budget("--peers none --set dram-budget=9000000"), [("9000000".into(), given.into())]);
}

#[test]
fn a_load_runs_at_a_durability_of_its_own_and_the_rest_at_that_of_the_run() {
    let dir = Scratch::new();
    for engine in ["fluidkv", "hikv", "nvht"] {
        let words = format!(
            "--engine {engine} --workloads load,get,update,delete --records 4000 --rounds 1 --size 256M --check full --emulate-dax --durability power --load-durability process"
        );
        let all = rows(&bench(&format!("{words} --steps 1000 --json"), Some(&dir)));
        let ours: Vec<_> = all.iter().filter(|row| row["store"] == engine).collect();
        assert_eq!(ours.len(), 6, "{engine}");
        for row in ours {
            let load = row["workload"].as_str().is_some_and(|name| name.starts_with("load"));
            assert_eq!(row["durability"], if load { "process" } else { "power" }, "{row}");
            assert_eq!(row["load_durability"], "process", "{row}");
            let command = row["command"].as_str().expect("a command");
            assert!(command.contains("--durability power --load-durability process"), "{command}");
        }
        let map = all.iter().find(|row| row["store"] == "btreemap").expect("the peer");
        assert!(map["load_durability"].is_null(), "a map in DRAM is never closed: {map}");
        let output = bench(&words, Some(&dir));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("the load ran at durability process") && text.contains("(the load: process)"), "{text}");
    }
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn a_durability_of_the_load_that_cannot_be_left_behind_is_refused_before_anything_runs() {
    let dir = Scratch::new();
    for (words, why) in [
        ("--load-durability power", "never lowered"),
        ("--durability interval:20 --load-durability interval:10", "never lowered"),
        ("--load-durability process --reopen --peers none", "load-durability"),
        ("--load-durability some", "process, power"),
    ] {
        let output = bench(&format!("--records 100 --size 64M {words}"), Some(&dir));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(why), "{words}: {text}");
    }
    if dir.path().starts_with("/dev/shm") {
        let output = bench("--records 100 --durability power --load-durability process", Some(&dir));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("power") && text.lines().count() == 1, "{text}");
    }
}

/// Returns the last line of the load in a timeline of a run with these words.
fn end_of_load(words: &str) -> Vec<String> {
    let dir = Scratch::new();
    let table = dir.path().join("timeline.csv");
    let words = format!(
        "--engine fluidkv --workloads load,get --records 20000 --rounds 1 --size 256M --peers none --json --timeline {} {words}",
        table.display()
    );
    rows(&bench(&words, Some(&dir)));
    let text = fs::read_to_string(&table).expect("the table is there");
    assert!(text.starts_with("store,round,workload,seconds,ops,"), "{text}");
    let of = |workload: &str| text.lines().filter(|line| line.starts_with(&format!("fluidkv,1,{workload},"))).count();
    // At least a beginning and an end.
    assert!(of("load") >= 2 && of("get") >= 2, "{text}");
    fs::remove_file(table).expect("removed");
    assert!(common::is_empty(&dir), "the bench left something behind");
    let ops: u64 = text.lines().filter(|line| line.contains(",load,")).map(|line| field(line, 4)).sum();
    assert_eq!(ops, 20_000, "{text}");
    let last = text.lines().rfind(|line| line.contains(",load,")).expect("the load is there");
    last.split(',').map(String::from).collect()
}

fn field(line: &str, at: usize) -> u64 {
    line.split(',').nth(at).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{at} of {line}"))
}

#[test]
fn a_timeline_has_every_operation_and_a_store_that_is_to_settle_flushes() {
    let flushes = |words: &str| end_of_load(words)[10].parse::<u64>().expect("it counts its flushes");
    // Without a settle, it may flush by itself or not.
    flushes("--settle never");
    for words in ["", "--settle load", "--settle each --steps 7000"] {
        assert!(flushes(words) > 0, "{words}");
    }
}

#[test]
fn a_timeline_shows_what_a_store_adapts_over_workloads_that_change_and_stop() {
    let dir = Scratch::new();
    let table = dir.path().join("timeline.csv");
    let words = format!(
        "--engine fluidkv --workloads load,overwrite,c,idle,overwrite --seconds 2 --records 20000 --ops 30000 --rounds 2 --size 256M --budget 8M \
         --settle never --json --timeline {}",
        table.display()
    );
    let rows = rows(&bench(&words, Some(&dir)));
    let ran: Vec<_> = rows.iter().filter(|row| row["store"] == "fluidkv").collect();
    let names: Vec<_> = ran.iter().map(|row| row["workload"].as_str().expect("a name")).collect();
    assert_eq!(names, ["load", "overwrite", "c", "idle", "overwrite-2"]);
    assert!(
        ran[3]["ops"] == 0 && ran[3]["ops_per_s"] == 0.0 && ran[3]["settled_s"].as_f64() >= Some(2.0),
        "{}",
        ran[3]
    );
    assert!(ran.iter().all(|row| row["rounds"] == 2), "a second turn is no second round");
    assert!(ran[4]["command"].as_str().is_some_and(|it| it.contains("load,overwrite,c,idle,overwrite")), "{}", ran[4]);
    let text = fs::read_to_string(&table).expect("the table is there");
    let head: Vec<_> = text.lines().next().expect("a head").split(',').collect();
    let at = |name: &str| head.iter().position(|it| *it == name).unwrap_or_else(|| panic!("{name} in {head:?}"));
    let idle: Vec<_> = text.lines().filter(|line| line.starts_with("fluidkv,1,idle,")).collect();
    assert!(idle.len() >= 10, "{text}");
    for line in &idle {
        assert!(field(line, at("workers_allowed")) >= 1 && field(line, at("memtables")) >= 1, "{line}");
        assert!([25, 100, 200].contains(&field(line, at("compaction_trigger_percent"))), "{line}");
    }
    assert!(text.lines().any(|line| line.starts_with("fluidkv,2,overwrite-2,")), "{text}");
    assert!(
        text.lines().filter(|line| line.starts_with("btreemap,")).all(|line| line.ends_with(",,,,,,,,,,,")),
        "{text}"
    );
    fs::remove_file(table).expect("removed");
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn sixteen_threads_run_every_workload() {
    let dir = Scratch::new();
    for engine in ["hikv", "fluidkv"] {
        let words = format!(
            "--engine {engine} --workloads {ALL} --records 4000 --ops 3000 --rounds 1 --threads 16 --check full --size 256M --json"
        );
        assert_eq!(rows(&bench(&words, Some(&dir))).len(), 30, "{engine}");
    }
}

#[cfg(not(feature = "peers"))]
#[test]
fn a_peer_of_another_build_is_refused_with_the_feature_that_has_it() {
    eprintln!("skipped: the peers' own runs, which need --features peers and what scripts/peers.sh installs");
    let dir = Scratch::new();
    let output = bench("--peers leveldb --records 10", Some(&dir));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("--features peers"), "{text}");
}

//! The program `bench` for the HashKV paper's experiment: equal stores, phases of updates, bytes
//! written and bytes in use.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common;
use crate::common::{Scratch, bench, rows};
use serde_json::Value;

#[test]
fn a_write_buffer_is_given_to_stores_that_take_its_size() {
    let dir = Scratch::new();
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

#[test]
fn each_phase_tells_what_was_written_by_three_counts_and_what_its_files_take() {
    // Not in memory, because the kernel counts no writes there.
    let dir = Scratch::on_disk();
    let peers = if cfg!(feature = "peers") { "rocksdb,blobdb,leveldb" } else { "none" };
    let words = format!(
        "--engine fluidkv --peers {peers} --workloads load,zipfput,get,zipfput --key-size 24 --value-size 992 --records 8000 --rounds 1 \
         --size 256M --latency-every 1 --json"
    );
    let all = rows(&bench(&words, Some(&dir)));
    assert_eq!(all.len(), if cfg!(feature = "peers") { 16 } else { 4 });
    for row in &all {
        let told = |name: &str| row[name].as_f64();
        let store = row["store"].as_str().expect("a name");
        let on_disk = row["medium"] == "file";
        if row["workload"] == "get" {
            assert_eq!(told("write_amplification_of_calls"), None, "a get puts nothing: {row}");
        } else {
            // A write through a mapping is not a call.
            let calls = told("write_amplification_of_calls");
            assert!(store == "fluidkv" || calls.is_some_and(|calls| (0.99..50.0).contains(&calls)), "{row}");
            let device = told("write_amplification_of_device");
            assert!(!on_disk || device.is_some_and(|device| (0.3..100.0).contains(&device)), "{row}");
            assert!(told("write_amplification").is_some_and(|own| own >= 0.99), "{row}");
            assert!(told("longest_ns") >= told("p9999_ns") && told("longest_ns") > told("p50_ns"), "{row}");
        }
        let blocks = told("space_amplification_of_blocks").expect("it has files");
        assert!((0.5..100.0).contains(&blocks), "{row}");
    }
    let names: Vec<_> = all.iter().filter(|row| row["store"] == "fluidkv").map(|row| &row["workload"]).collect();
    assert_eq!(names, ["load", "zipfput", "get", "zipfput-2"]);
    assert!(common::is_empty(&dir), "the bench left something behind");
}

/// Runs the program with a memory limit on a disk. Returns its output, and whether it left a
/// control group. Returns `None` if the program reports that there are no groups.
fn limited(words: &str, dir: &Scratch) -> Option<(Output, bool)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lodestore-bench"));
    command.arg("run");
    command.args(words.split_whitespace()).arg("--dir").arg(dir.path());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the bench starts");
    let name = format!("lodestore-bench-{}-", child.id());
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("leave --memory away") {
        eprintln!("skipped: {text}");
        return None;
    }
    let left = left_below(Path::new("/sys/fs/cgroup"), &name);
    Some((output, left))
}

/// Returns whether a directory with this prefix is anywhere under `dir`.
fn left_below(dir: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut dirs = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    dirs.any(|entry| entry.file_name().to_string_lossy().starts_with(name) || left_below(&entry.path(), name))
}

#[test]
fn each_process_has_no_more_memory_than_it_is_given_and_says_so() {
    let dir = Scratch::on_disk();
    let words = "--engine fluidkv --workloads load,get --records 2000 --rounds 1 --size 256M --memory 96M --json";
    let Some((output, left)) = limited(words, &dir) else { return };
    let all = rows(&output);
    assert_eq!(all.len(), 4);
    for row in all {
        let memory = row["settings"]["memory"].as_str().expect("it is told");
        assert!(memory.starts_with("100663296, page cache included (cgroup v"), "{memory}");
        assert!(row["command"].as_str().is_some_and(|it| it.contains("--memory 100663296")), "{row}");
    }
    assert!(!left && common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn a_control_group_goes_with_a_process_that_fails_and_tells_of_one_that_the_kernel_ended() {
    let dir = Scratch::on_disk();
    let full = "--engine fluidkv --peers none --workloads load --records 90000 --rounds 1 --size 8M --memory 96M";
    let Some((output, left)) = limited(full, &dir) else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !text.contains("memory"), "{text}");
    assert!(!left && common::is_empty(&dir), "the bench left something behind");
    let large = "--engine btreemap --workloads load --records 50000 --value-size 4000 --rounds 1 --memory 32M";
    let (output, left) = limited(large, &dir).expect("there was a group");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("memory") && text.contains("needed more"), "{text}");
    assert!(!left, "the bench left a control group behind");
}

#[test]
fn a_limit_on_memory_is_refused_where_it_would_limit_the_medium_or_nothing() {
    let dir = Scratch::new();
    let refused = |words: &str, why: &str| {
        let output = bench(words, Some(&dir));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(why) && text.lines().count() == 1, "{words}: {text}");
    };
    refused("--records 10 --memory 1M", "memory");
    refused("--engine btreemap --records 10 --memory 64M --in-process", "processes of their own");
    if dir.path().starts_with("/dev/shm") {
        refused("--records 10 --memory 64M", "tmpfs");
    }
}

#[test]
fn an_engine_in_several_settings_is_several_stores_of_one_run() {
    let dir = Scratch::new();
    let words = "--engine hashkv --set separate-from=512 --peers hashkv:separate-from=0,hashkv:separate-from=64:group-bytes=65536,btreemap \
                 --workloads load,zipfput --value-size 100 --records 3000 --rounds 2 --size 64M --check full --json";
    let all = rows(&bench(words, Some(&dir)));
    let stores = ["hashkv", "hashkv:separate-from=0", "hashkv:separate-from=64:group-bytes=65536", "btreemap"];
    let seen: Vec<_> = all.iter().map(|row| row["store"].as_str().expect("a name")).collect();
    assert_eq!(seen, [stores, stores].concat());
    let set = |at: usize, name: &str| all[at]["settings"][name].as_str().map(String::from);
    let settings: Vec<_> = (0..3).map(|at| (set(at, "separate-from"), set(at, "group-bytes"))).collect();
    let text = |text: &str| Some(text.to_string());
    let default = text("1048576");
    assert_eq!(settings, [(text("512"), default.clone()), (text("0"), default), (text("64"), text("65536"))]);
    assert!(all[0]["ratio_to"]["hashkv:separate-from=0"].is_number(), "{}", all[0]);
    assert!(all[0]["command"].as_str().is_some_and(|it| it.contains(&stores[1..].join(","))), "{}", all[0]);
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn a_setting_of_an_engine_reaches_it() {
    let dir = Scratch::new();
    // Separated values are in a file that the engine writes by calls.
    let words = "--engine hashkv:separate-from=0 --peers hashkv:separate-from=64 --workloads load --value-size 400 --records 5000 --rounds 1 --size 64M --json";
    let all = rows(&bench(words, Some(&dir)));
    let calls: Vec<_> = all.iter().map(|row| row["write_amplification_of_calls"].as_f64().unwrap_or(0.0)).collect();
    assert!(calls[0] < 0.5 && calls[1] > 0.9, "{calls:?}");
    for (words, why) in [
        ("--peers hikv:no-such=1", "no-such=1"),
        ("--peers hikv:region", "give name=value of"),
        ("--peers btreemap:region=1M", "takes none"),
        ("--peers nosuch:region=1M", "nosuch"),
        ("--engine hikv:no-such=1", "no-such=1"),
    ] {
        let output = bench(words, Some(&dir));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(why) && text.lines().count() == 1, "{words}: {text}");
    }
}

#[test]
fn a_preset_runs_its_phases_and_says_what_it_stands_for() {
    let dir = Scratch::new();
    let peers = if cfg!(feature = "peers") { "rocksdb,blobdb,leveldb" } else { "none" };
    let words = format!(
        "--preset hashkv-p123 --records 4000 --ops 6000 --peers {peers} --memory 0 --reserve 900 --check full --json"
    );
    let output = bench(&words, Some(&dir));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("preset hashkv-p123") && said.contains("--value-size 992 --records 1048576"), "{said}");
    let all = rows(&output);
    let ours: Vec<_> = all.iter().filter(|row| row["store"] == "hashkv").collect();
    let names: Vec<_> = ours.iter().map(|row| row["workload"].as_str().expect("a name")).collect();
    assert_eq!(names, ["load", "zipfput", "zipfput-2", "zipfput-3"]);
    assert_eq!(all.len(), if cfg!(feature = "peers") { 16 } else { 4 });
    for row in &all {
        assert_eq!((&row["durability"], &row["latency_every"]), (&"process".into(), &1.into()), "{row}");
        assert_eq!((&row["key_size"], &row["value_size"], &row["records"]), (&24.into(), &992.into(), &4000.into()));
        assert_eq!(row["ops"], if row["workload"] == "load" { 4000 } else { 6000 }, "{row}");
        assert_eq!((&row["rounds"], &row["threads"]), (&1.into(), &1.into()), "{row}");
        assert_eq!(
            (&row["settings"]["write-buffer"], &row["settings"]["budget"]),
            (&"16777216".into(), &"67108864".into())
        );
        let command = row["command"].as_str().expect("a command");
        assert!(command.contains("--reserve 900") && !command.contains("--size"), "{command}");
        if row["store"] == "hashkv" {
            assert_eq!(row["settings"]["size"], (4000 * 1016 * 10).to_string());
        }
    }
}

#[test]
fn a_reserve_is_of_what_is_loaded_which_may_be_given_in_bytes() {
    let dir = Scratch::new();
    let words = "--engine fluidkv --peers none --workloads load --key-size 16 --value-size 1008 --load-bytes 16M --reserve 150 --rounds 1 --json";
    let row = &rows(&bench(words, Some(&dir)))[0];
    assert_eq!((&row["records"], &row["settings"]["size"]), (&16_384.into(), &(40 << 20).to_string().into()));
    for (words, why) in [
        ("--engine btreemap --reserve 30", "no capacity"),
        ("--reserve 30 --workloads load,d", "insert more"),
        ("--reserve 30 --size 1G", "cannot be used with"),
        ("--reserve 0", "reserve"),
        ("--records 5 --load-bytes 1M", "cannot be used with"),
        ("--load-bytes 1M --sweep records=1,2", "load-bytes"),
        ("--size 1G --sweep reserve=10,20", "--size is given"),
    ] {
        let output = bench(words, Some(&dir));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(why), "{words}: {text}");
    }
}

#[test]
fn a_sweep_with_peers_has_a_row_for_each_workload_value_and_store() {
    let dir = Scratch::new();
    let words = "--engine fluidkv --peers hikv,fluidkv:value-threshold=0 --workloads load,zipfput,zipfput --load-bytes 1M --key-size 24 \
         --sweep value-size=100,1000 --rounds 1 --size 256M --json";
    let all = rows(&bench(words, Some(&dir)));
    let stores = ["fluidkv", "hikv", "fluidkv:value-threshold=0"];
    let seen: Vec<_> = all
        .iter()
        .map(|row| (row["workload"].as_str(), row["sweep"]["value"].as_str(), row["store"].as_str()))
        .collect();
    let should: Vec<_> = ["load", "zipfput", "zipfput-2"]
        .into_iter()
        .flat_map(|workload| ["100", "1000"].map(|value| (workload, value)))
        .flat_map(|(workload, value)| stores.map(|store| (Some(workload), Some(value), Some(store))))
        .collect();
    assert_eq!(seen, should);
    for row in &all {
        let (value, records) =
            (row["value_size"].as_u64().expect("a size"), row["records"].as_u64().expect("a number"));
        assert_eq!((records, &row["ops"]), ((1 << 20) / (24 + value), &row["records"]), "{row}");
        // Each store is compared with the others at the same value.
        assert_eq!(row["ratio_to"].as_object().map(serde_json::Map::len), Some(2), "{row}");
        let command = row["command"].as_str().expect("a command");
        let store = row["store"].as_str().expect("a name");
        assert!(command.contains(&format!("--engine {store} ")) && command.contains("--peers none"), "{command}");
    }
    assert!(common::is_empty(&dir), "the bench left something behind");
    let table = bench(&words.replace("--json", ""), Some(&dir));
    let text = String::from_utf8_lossy(&table.stdout);
    assert!(text.contains("hikv value-size=1000") && text.contains("--load-bytes 1048576"), "{text}");
    assert!(!text.contains("--records 1000000") && text.contains("--sweep value-size=100,1000"), "{text}");
}

#[test]
fn a_sweep_of_the_reserve_gives_each_engine_that_capacity() {
    let dir = Scratch::new();
    let words = "--engine hashkv --peers hashkv:separate-from=0,btreemap --workloads load,zipfput --key-size 24 --value-size 1000 --records 4000 \
                 --sweep reserve=300,900 --rounds 1 --json";
    let all = rows(&bench(words, Some(&dir)));
    let seen: Vec<_> = all.iter().map(|row| (row["store"].as_str(), row["settings"]["size"].as_str())).collect();
    let (less, more) = (Some("16384000"), Some("40960000"));
    let both = [Some("hashkv"), Some("hashkv:separate-from=0")];
    let should = [(both[0], less), (both[1], less), (both[0], more), (both[1], more)];
    assert_eq!(seen, [should, should].concat());
}

#[test]
fn a_store_that_fails_is_told_of_and_the_others_go_on_where_that_is_asked_for() {
    let dir = Scratch::new();
    let words = "--engine btreemap --peers fluidkv:value-threshold=0,nvht --workloads load,zipfput --key-size 24 --value-size 1000 --records 20000 \
                 --rounds 2 --size 16M";
    let one = bench(words, Some(&dir));
    let text = String::from_utf8_lossy(&one.stdout);
    assert!(!one.status.success() && text.contains("| zipfput  | btreemap "), "what ran before is told: {text}");
    assert!(
        text.contains("fluidkv:value-threshold=0 failed") && text.contains("not run on nvht: the run ended"),
        "{text}"
    );
    let all = rows(&bench(&format!("{words} --go-on --json"), Some(&dir)));
    let seen: Vec<_> = all.iter().map(|row| (row["store"].as_str(), row["workload"].as_str())).collect();
    let failed: Vec<_> = all.iter().filter(|row| row["workload"] == "failed").collect();
    assert!(seen.contains(&(Some("btreemap"), Some("zipfput"))) && !failed.is_empty(), "{seen:?}");
    assert!(failed.iter().all(|row| row["failed"].as_str().is_some_and(|why| why.contains("full"))), "{failed:?}");
    assert!(failed.iter().all(|row| row["store"] != "btreemap"), "{failed:?}");
    let text = bench(&format!("{words} --go-on"), Some(&dir));
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains(" failed, and what is told") && text.contains("--go-on"), "{text}");
    assert!(common::is_empty(&dir), "the bench left something behind");
}

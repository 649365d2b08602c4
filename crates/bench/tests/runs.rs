//! The program `bench` as a user runs it, at small size.

mod common;

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use common::{Dir, bench, rows};

const ALL: &str = "load,get,absent,multiget,update,overwrite,zipfput,delete,scan,a,b,c,d,e,f";
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
    assert_eq!(rows.len(), 30);
    for row in &rows {
        FIELDS.iter().for_each(|field| assert!(!row[field].is_null(), "{field} is missing in {row}"));
        assert!(row["ratio_to_btreemap"].is_f64());
    }
    assert!(dir.is_empty(), "the bench left something behind");
}

#[test]
fn an_open_loop_says_what_was_asked_and_reached_and_the_load_runs_at_full_speed() {
    let words = "--engine hashmap --peers btreemap --workloads load,get,a,d,delete --records 2000 --ops 200 --rate 5000 --arrivals poisson --threads 2 \
                 --rounds 1 --check full --json";
    let rows = rows(&bench(words, None));
    assert_eq!(rows.len(), 10);
    for row in &rows {
        if row["workload"] == "load" {
            assert!(row["open_loop"].is_null() && row["ratio_to"].is_object(), "{row}");
            continue;
        }
        let found = &row["open_loop"];
        assert_eq!((&found["asked_per_s"], &found["arrivals"]), (&5000.into(), &"poisson".into()), "{row}");
        assert_eq!((&found["reached_per_s"], &row["latency_every"]), (&row["ops_per_s"], &1.into()), "{row}");
        assert!(found["kept_up"].is_boolean() && found["behind_s"].is_f64(), "{row}");
        assert!(row["ratio_to"].is_null(), "what was asked is no ratio: {row}");
        assert!(row["machine_pauses"]["beside"]["longest_ns"].as_u64() > Some(0), "{row}");
    }
}

#[test]
fn odd_sizes_run() {
    let dir = Dir::new();
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
        "--engine btreemap --key-size 7..16",
        "--engine btreemap --latency-every 0 --plot-latency none.svg",
        "--engine btreemap --value-size 0..16",
        "--engine btreemap --reopen",
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

/// Checks that a row tells every percentile, and that none is less than the one before it.
fn assert_percentiles(row: &Value) {
    let told = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"].map(|name| row[name].as_u64());
    assert!(told[0] > Some(0) && told.windows(2).all(|two| two[0] <= two[1]), "{row}");
}

#[test]
fn latencies_are_told_as_percentiles_and_drawn_as_a_line_for_each_store() {
    let dir = Dir::new();
    let file = dir.0.join("latency.svg");
    let words = format!(
        "--engine hashmap --peers btreemap --workloads load,get,idle,f --seconds 1 --records 3000 --rounds 2 --latency-every 1 --json --plot-latency {}",
        file.display()
    );
    let rows = rows(&bench(&words, None));
    for row in rows.iter().filter(|row| row["workload"] != "idle") {
        assert_percentiles(row);
    }
    let text = fs::read_to_string(&file).expect("a picture");
    for name in ["hashmap", "btreemap", "99.9 %", "share of calls"] {
        // A panel for the load, one for get and one for f.
        assert_eq!(text.matches(&format!("\n{name}\n")).count(), 3, "{name}");
    }
}

#[test]
fn live_bytes_are_those_of_records_of_mixed_sizes() {
    let dir = Dir::new();
    let words = "--workloads load,delete,d --records 5000 --ops 1000 --rounds 1 --peers none --value-size facebook --size 256M --json";
    let rows = rows(&bench(words, Some(&dir)));
    for row in &rows {
        assert_eq!((&row["key_size"], &row["value_size"]), (&16.into(), &"facebook".into()));
        // All that is live is on the medium, and not many times as much: a mean of 16 + 330 bytes in blocks of some.
        let times = row["space_amplification"].as_f64().expect("some is live");
        assert!((1.0..4.0).contains(&times), "{row}");
    }
}

#[test]
fn a_store_is_measured_reopening_after_a_stop_and_after_a_kill() {
    let dir = Dir::new();
    let words =
        "--workloads load --records 20000 --value-size 64..512 --rounds 1 --peers none --reopen --size 256M --json";
    let rows = rows(&bench(words, Some(&dir)));
    let kinds: Vec<_> = rows.iter().filter(|row| row["reopen"].is_object()).collect();
    assert_eq!(kinds.len(), 2);
    for row in kinds {
        assert_eq!(row["reopen"]["checked"], 20_000, "{row}");
        assert_eq!(row["reopen"]["keys"], 20_000, "{row}");
        assert_percentiles(row);
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

#[test]
fn an_overload_lasts_its_seconds_times_every_put_and_tells_the_machine_apart() {
    let dir = Dir::new();
    let words = "--engine fluidkv --workloads overload --seconds 2 --threads 2 --records 3000 --ops 100 --rounds 1 --size 1G --check full --json";
    let rows = rows(&bench(words, Some(&dir)));
    assert_eq!(rows.iter().map(|row| &row["store"]).collect::<Vec<_>>(), ["fluidkv", "btreemap"]);
    for row in rows {
        let (ops, rate) = (row["ops"].as_f64().expect("a number"), row["ops_per_s"].as_f64().expect("a number"));
        let seconds = ops / rate;
        assert!(ops > 200.0 && seconds >= 2.0, "{row}");
        assert_eq!(row["latency_every"], 1);
        assert!(row["p9999_ns"].as_u64() <= row["longest_ns"].as_u64(), "{row}");
        assert_eq!(row["pauses"]["longest_ns"], row["longest_ns"]);
        assert_eq!(row["pauses"]["longer"].as_array().map(Vec::len), Some(3));
        assert!(row["machine_pauses"]["beside"]["longest_ns"].as_u64() > Some(0), "{row}");
        assert!(row["settled_s"].as_f64() >= Some(seconds * 0.99), "{row}");
        assert!(row["command"].as_str().expect("a command").contains("--seconds 2"));
    }
}

#[test]
fn a_budget_is_given_to_stores_that_take_one_and_what_is_set_by_name_counts_more() {
    let dir = Dir::new();
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
    let dir = Dir::new();
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
    assert!(dir.is_empty(), "the bench left something behind");
}

#[test]
fn a_durability_of_the_load_that_cannot_be_left_behind_is_refused_before_anything_runs() {
    let dir = Dir::new();
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
    if dir.0.starts_with("/dev/shm") {
        let output = bench("--records 100 --durability power --load-durability process", Some(&dir));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("power") && text.lines().count() == 1, "{text}");
    }
}

/// The last line of the load in a timeline of a run with these words.
fn end_of_load(words: &str) -> Vec<String> {
    let dir = Dir::new();
    let (table, picture) = (dir.0.join("timeline.csv"), dir.0.join("timeline.svg"));
    let words = format!(
        "--engine fluidkv --workloads load,get --records 20000 --rounds 1 --size 256M --peers none --json --timeline {} --timeline {} {words}",
        table.display(),
        picture.display()
    );
    rows(&bench(&words, Some(&dir)));
    let text = fs::read_to_string(&table).expect("the table is there");
    assert!(text.starts_with("store,round,workload,seconds,ops,"), "{text}");
    let of = |workload: &str| text.lines().filter(|line| line.starts_with(&format!("fluidkv,1,{workload},"))).count();
    // A beginning and an end at the least.
    assert!(of("load") >= 2 && of("get") >= 2, "{text}");
    let svg = fs::read_to_string(&picture).expect("the picture is there");
    assert!(
        svg.starts_with("<svg") && svg.contains("growth of RssAnon") && svg.contains("million operations a second")
    );
    [table, picture].iter().for_each(|file| fs::remove_file(file).expect("removed"));
    assert!(dir.is_empty(), "the bench left something behind");
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
    // Without, it may flush by itself or not.
    flushes("--settle never");
    for words in ["", "--settle load", "--settle each --steps 7000"] {
        assert!(flushes(words) > 0, "{words}");
    }
}

#[test]
fn a_timeline_shows_what_a_store_adapts_over_workloads_that_change_and_stop() {
    let dir = Dir::new();
    let (table, picture) = (dir.0.join("timeline.csv"), dir.0.join("timeline.svg"));
    let words = format!(
        "--engine fluidkv --workloads load,overwrite,c,idle,overwrite --seconds 2 --records 20000 --ops 30000 --rounds 2 --size 256M --budget 8M \
         --settle never --json --timeline {} --timeline {}",
        table.display(),
        picture.display()
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
    let svg = fs::read_to_string(&picture).expect("the picture is there");
    for label in ["fluidkv: workers allowed", "fluidkv: trigger of compactions", "fluidkv: buffered runs"] {
        assert!(svg.contains(label), "{label}");
    }
    [table, picture].iter().for_each(|file| fs::remove_file(file).expect("removed"));
    assert!(dir.is_empty(), "the bench left something behind");
}

#[test]
fn what_was_written_and_what_is_taken_is_told_for_each_byte() {
    let dir = Dir::new();
    let words = "--engine fluidkv --workloads load,get,update --records 20000 --rounds 1 --size 256M --peers none --settle each --json";
    let rows = rows(&bench(words, Some(&dir)));
    let told = |at: usize, name: &str| rows[at][name].as_f64();
    for at in [0, 2] {
        let write = told(at, "write_amplification").expect("something was put");
        // Each byte goes into a log at least, and into a table as the store settles.
        assert!((1.9..20.0).contains(&write), "{}", rows[at]);
    }
    assert_eq!(told(1, "write_amplification"), None, "a get puts nothing");
    for row in &rows {
        let space = row["space_amplification"].as_f64().expect("there are records");
        assert!((1.0..200.0).contains(&space), "{row}");
        assert!(row["peak_rss_anon_bytes"].as_f64() >= Some(0.0), "{row}");
    }
}

#[test]
fn sixteen_threads_run_every_workload() {
    let dir = Dir::new();
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
    let dir = Dir::new();
    let output = bench("--peers leveldb --records 10", Some(&dir));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("--features peers"), "{text}");
}

#[cfg(feature = "peers")]
const PEERS: [&str; 21] = [
    "leveldb",
    "leveldb-sync",
    "leveldb-paper",
    "bdb-hash",
    "bdb-hash-paper",
    "bdb-btree",
    "bdb-btree-paper",
    "redb",
    "redb-sync",
    "rocksdb",
    "rocksdb-sync",
    "blobdb",
    "blobdb-sync",
    "fjall",
    "fjall-sync",
    "lmdb",
    "lmdb-sync",
    "redis",
    "redis-aof",
    "redis-sync",
    "memcached",
];

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
        let is_hash = ["bdb-hash", "redis", "memcached"].iter().any(|hash| peer.starts_with(hash));
        assert_eq!(names.len(), if is_hash { 13 } else { 15 }, "{peer}: {names:?}");
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
            "bdb-hash" | "bdb-btree" | "redb" | "redis" | "memcached" => "none",
            "hikv" | "leveldb" | "rocksdb" | "blobdb" | "fjall" | "lmdb" | "redis-aof" => "process",
            _ => durable,
        };
        assert_eq!(row["durability"], should, "{row}");
        let keeps_files = !["redis", "memcached"].contains(&row["store"].as_str().expect("a name"));
        assert!(!keeps_files || row["medium_bytes_per_key"].as_f64() > Some(0.0), "{row}");
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

#[cfg(feature = "peers")]
#[test]
fn peers_run_every_workload_with_sixteen_threads_a_budget_and_a_settled_load() {
    let dir = Dir::new();
    let peers = ["rocksdb", "fjall", "leveldb"];
    let words = format!(
        "--engine fluidkv --workloads {ALL} --records 20000 --ops 3000 --rounds 1 --threads 16 --budget 8M --settle load --check full --json --peers {}",
        peers.join(",")
    );
    let rows = rows(&bench(&words, Some(&dir)));
    assert_eq!(rows.len(), 60);
    for row in rows.iter().filter(|row| row["workload"] == "load") {
        assert_eq!(row["settings"]["budget"], "8388608", "{row}");
        let write = row["write_amplification"].as_f64().expect("every store counts what it writes");
        assert!((0.9..20.0).contains(&write), "{row}");
        assert!(row["space_amplification"].as_f64() > Some(0.9), "{row}");
    }
    assert!(dir.is_empty(), "the bench left something behind");
}

#[cfg(feature = "peers")]
#[test]
fn a_durability_chooses_the_setting_of_each_peer_or_refuses_it() {
    let dir = Dir::new();
    let words = "--engine rocksdb --peers fjall,leveldb,leveldb-paper --workloads load --records 200 --rounds 1 --json --durability power";
    let stores: Vec<_> = rows(&bench(words, Some(&dir))).iter().map(|row| row["store"].clone()).collect();
    assert_eq!(stores, ["rocksdb-sync", "fjall-sync", "leveldb-sync", "leveldb-paper"]);
    let output = bench("--engine rocksdb --peers bdb-hash --records 200 --durability process", Some(&dir));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("bdb-hash-paper") && text.lines().count() == 1, "{text}");
}

#[cfg(feature = "peers")]
#[test]
fn peers_are_loaded_without_a_sync_and_opened_again_with_one() {
    let dir = Dir::new();
    let peers = "rocksdb,fjall,leveldb,leveldb-paper,redb";
    let words = format!(
        "--engine btreemap --workloads load,get,update,scan --records 3000 --ops 200 --rounds 1 --check full --json --settle load \
         --durability power --load-durability process --peers {peers}"
    );
    let rows = rows(&bench(&words, Some(&dir)));
    let stores = ["rocksdb-sync", "fjall-sync", "leveldb-sync", "leveldb-paper", "redb-sync"];
    for store in stores {
        let own: Vec<_> = rows.iter().filter(|row| row["store"] == store).collect();
        assert_eq!(own.len(), 4, "{store}");
        for row in own {
            assert!(row["settings"]["sync"] == "true" || row["settings"]["sync"] == "each commit", "{row}");
            assert!(row["load_durability"].is_string(), "{row}");
        }
    }
    assert!(dir.is_empty(), "the bench left something behind");
}

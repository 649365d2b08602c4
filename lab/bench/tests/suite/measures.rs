//! The measurements of the program `bench`: requested and reached rates, latencies, bytes, and
//! reopenings, at small size.

use crate::common;
use serde_json::Value;

use crate::common::{Scratch, bench, rows};

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

/// Asserts that a row has every percentile, and that they ascend.
fn assert_percentiles(row: &Value) {
    let told = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"].map(|name| row[name].as_u64());
    assert!(told[0] > Some(0) && told.windows(2).all(|two| two[0] <= two[1]), "{row}");
}

#[test]
fn latencies_are_told_as_percentiles() {
    let words = "--engine hashmap --peers btreemap --workloads load,get,idle,f --seconds 1 --records 3000 --rounds 2 --latency-every 1 --json";
    let rows = rows(&bench(words, None));
    for row in rows.iter().filter(|row| row["workload"] != "idle") {
        assert_percentiles(row);
    }
}

#[test]
fn live_bytes_are_those_of_records_of_mixed_sizes() {
    let dir = Scratch::new();
    let words = "--workloads load,delete,d --records 5000 --ops 1000 --rounds 1 --peers none --value-size facebook --size 256M --json";
    let rows = rows(&bench(words, Some(&dir)));
    for row in &rows {
        assert_eq!((&row["key_size"], &row["value_size"]), (&16.into(), &"facebook".into()));
        // All live data is on the medium, without a large factor: a mean of 16 + 330 bytes in
        // blocks of some size.
        let times = row["space_amplification"].as_f64().expect("some is live");
        assert!((1.0..4.0).contains(&times), "{row}");
    }
}

#[test]
fn a_store_is_measured_reopening_after_a_stop_and_after_a_kill() {
    let dir = Scratch::new();
    let words =
        "--workloads load --records 20000 --value-size 64..512 --rounds 1 --peers none --reopen --size 256M --json";
    let rows = rows(&bench(words, Some(&dir)));
    let kinds: Vec<_> = rows.iter().filter(|row| row["reopen"].is_object()).collect();
    assert_eq!(kinds.len(), 2);
    for row in kinds {
        assert_eq!(row["reopen"]["checked"], 20_000, "{row}");
        assert_eq!(row["reopen"]["keys"], 20_000, "{row}");
        assert_eq!(row["samples"], 10_000, "{row}");
        assert_percentiles(row);
    }
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn what_was_written_and_what_is_taken_is_told_for_each_byte() {
    let dir = Scratch::new();
    let words = "--engine fluidkv --workloads load,get,update --records 20000 --rounds 1 --size 256M --peers none --settle each --json";
    let rows = rows(&bench(words, Some(&dir)));
    let told = |at: usize, name: &str| rows[at][name].as_f64();
    for at in [0, 2] {
        let write = told(at, "write_amplification").expect("something was put");
        // Each byte is written at least to a log, and to a table as the store settles.
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
fn an_overload_lasts_its_seconds_times_every_put_and_tells_the_machine_apart() {
    let dir = Scratch::new();
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
fn the_load_stops_at_steps_and_takes_account() {
    let dir = Scratch::new();
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
fn percentiles_that_too_few_calls_tell_apart_are_left_out_of_the_table() {
    let words = "--engine btreemap --peers hashmap --workloads load,get --records 300 --rounds 1 --at-least 0 --warm-up 0 --latency-every 1";
    for row in rows(&bench(&format!("{words} --json"), None)) {
        assert_eq!(row["samples"], 300);
        assert!(row["cpu_ns_per_op"].as_f64() >= row["serving_cpu_ns_per_op"].as_f64(), "{row}");
    }
    let text = String::from_utf8_lossy(&bench(words, None).stdout).into_owned();
    let line = text.lines().find(|line| line.contains("get") && line.contains("hashmap")).expect("a line");
    let fields: Vec<_> = line.split('|').map(str::trim).collect();
    assert!(fields[7] != "-" && fields[8..10] == ["-", "-"], "p99, and p99.9 and p99.99: {line}");
}

#[test]
fn what_the_bench_itself_needs_does_not_count_as_memory_of_a_store() {
    let dir = Scratch::new();
    let words = "--engine nvht --peers none --workloads load,get --records 3000 --ops 3000 --rounds 1 --threads 4 --size 64M --json";
    for row in rows(&bench(words, Some(&dir))) {
        let grown = row["rss_anon_bytes_per_key"].as_f64().expect("a number") * 3000.0;
        // Histograms of four threads and of all need more than a MiB.
        assert!(grown < f64::from(1 << 20), "{grown}: {row}");
    }
}

//! The program `bench` for the MKVS paper's experiments: absent keys, latencies of reads and of
//! writes, the paper's tables, and servers.

use crate::common;
use crate::common::{Scratch, bench, rows};

#[test]
fn absent_keys_are_asked_for_and_reads_are_timed_apart_from_writes() {
    let dir = Scratch::new();
    let words = "--engine mkvs --set filter=on --peers mkvs:filter=off,btreemap --workloads load,absent,a,get --records 3000 --rounds 1 --size 256M \
                 --check full --latency-every 1 --json";
    let all = rows(&bench(words, Some(&dir)));
    assert_eq!(all.len(), 12);
    for row in &all {
        let told = |name: &str| row[name].as_f64();
        assert!(told("mean_ns") > Some(0.0), "{row}");
        let (reads, writes) = (told("read_mean_ns"), told("write_mean_ns"));
        match row["workload"].as_str().expect("a name") {
            "load" => assert!(reads.is_none() && writes.is_some(), "{row}"),
            "a" => {
                let (reads, writes) = (reads.expect("it has reads"), writes.expect("it has writes"));
                // The histogram's own mean has a precision of a thousandth.
                let within = reads.min(writes) * 0.99 - 1.0..=reads.max(writes) * 1.01 + 1.0;
                assert!(told("mean_ns").is_some_and(|mean| within.contains(&mean)), "{row}");
            }
            _ => assert!(reads.is_some() && writes.is_none(), "{row}"),
        }
    }
    let filters: Vec<_> = all[..2].iter().map(|row| row["settings"]["filter"].clone()).collect();
    assert_eq!(filters, ["on", "off"]);
    assert!(common::is_empty(&dir), "the bench left something behind");
}

#[test]
fn an_engine_in_a_setting_may_have_options_of_its_devices() {
    let dir = Scratch::new();
    let devices = "mkvs:groups=2:device-engine=fluidkv:device.memtable-bytes=1M";
    let words =
        format!("--engine {devices} --peers none --workloads load,get --records 500 --rounds 1 --size 256M --json");
    assert_eq!(rows(&bench(&words, Some(&dir)))[0]["settings"]["device.memtable-bytes"], "1M");
    let refusal = |engine: &str| {
        let words =
            format!("--engine {engine} --peers none --workloads load --records 500 --rounds 1 --size 256M --json");
        let refused = bench(&words, Some(&dir));
        assert!(!refused.status.success(), "{engine}");
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    assert!(refusal("mkvs:device.no-such-option=1").contains("no-such-option"));
    let text = refusal("hikv:device.region=64M");
    assert!(text.contains("give name=value of"), "it has no devices: {text}");
}

#[test]
fn the_tables_of_the_paper_are_printed_with_its_names_and_again_by_the_command_that_is_told() {
    let dir = Scratch::new();
    let own = "mkvs:groups=2:devices=2:acks=one:reads=race-all:filter=on:inline=off,mkvs:groups=1:devices=1:filter=off";
    let words = format!("--preset mkvs-tables --peers {own} --records 200 --rounds 1 --sweep threads=1,2 --size 64M");
    let output = bench(&words, Some(&dir));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for number in 1..=6 {
        assert!(text.contains(&format!("\nTable {number}: ")), "{number}: {text}");
    }
    let head = text.lines().skip_while(|line| !line.starts_with("Table 1")).nth(1).expect("a head");
    let names: Vec<_> = head.split('|').map(str::trim).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["MKVS", "MKVS-EKV", "mkvs 2x2 as it comes"]);
    let again = text.lines().last().expect("the command").trim();
    let again = bench(again.strip_prefix("lodestore-bench run ").expect("a command"), None);
    assert!(String::from_utf8_lossy(&again.stdout).contains("\nTable 6: a, ops/s by threads"), "{again:?}");
    let one = bench("--preset mkvs-tables --peers none --records 200 --rounds 1 --threads 1 --size 64M", Some(&dir));
    let one = String::from_utf8_lossy(&one.stdout);
    assert!(one.contains("\nTable 5: ") && !one.contains("\nTable 6"), "{one}");
}

#[cfg(feature = "peers")]
mod servers {
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_server_counts_with_its_store() {
        let dir = Scratch::new();
        let words = "--engine redis --peers memcached --workloads load,get --records 5000 --value-size 1000 --rounds 1 --threads 3 --check full --json";
        for row in rows(&bench(words, Some(&dir))) {
            // The data is in the memory of another process.
            assert!(row["rss_anon_bytes_per_key"].as_f64() > Some(800.0), "{row}");
            assert!(row["write_amplification"].is_null() && row["write_amplification_of_calls"].is_null(), "{row}");
            assert_eq!(row["durability"], "none", "{row}");
            let survives = row["settings"]["an-acknowledged-write-survives"].as_str().expect("it says what");
            assert!(survives.contains("not the server's"), "{row}");
        }
        assert!(common::is_empty(&dir), "the bench left something behind");
    }

    #[test]
    fn a_durability_gives_redis_a_log_and_refuses_memcached() {
        let dir = Scratch::new();
        let words =
            "--engine redis --peers lmdb --workloads load,get --records 200 --rounds 1 --json --durability power";
        let stores: Vec<_> = rows(&bench(words, Some(&dir))).iter().map(|row| row["store"].clone()).collect();
        assert_eq!(stores, ["redis-sync", "lmdb-sync", "redis-sync", "lmdb-sync"]);
        let refusal = |words: &str| {
            let output = bench(words, Some(&dir));
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && text.lines().count() == 1, "{words}: {text}");
            text
        };
        let text = refusal("--engine memcached --peers none --records 200 --durability process");
        assert!(text.contains("leave --durability away"), "{text}");
        let text = refusal("--engine redis --peers none --records 200 --load-durability process");
        assert!(text.contains("redis-aof"), "{text}");
    }

    #[test]
    fn a_log_that_was_loaded_without_a_sync_is_opened_again_with_one() {
        let dir = Scratch::new();
        let words = "--engine redis --peers lmdb --workloads load,get,update --records 2000 --ops 200 --rounds 1 --check full --json \
                     --durability power --load-durability process";
        let all = rows(&bench(words, Some(&dir)));
        assert_eq!(all.len(), 6);
        for row in &all {
            let synced = if row["workload"] == "load" { "false" } else { "true" };
            assert!(row["settings"]["sync"] == synced && row["load_durability"].is_string(), "{row}");
        }
    }

    /// Returns the number of processes with this directory on their command line.
    fn at_work_in(dir: &Path) -> usize {
        let entries = std::fs::read_dir("/proc").expect("it is there").flatten();
        let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line).contains(&*dir.to_string_lossy())).count()
    }

    #[test]
    fn a_server_ends_with_a_bench_that_is_killed() {
        for (engine, signal) in [("redis", "-KILL"), ("memcached", "-KILL"), ("redis", "-TERM")] {
            let dir = Scratch::new();
            let mut child = Command::new(env!("CARGO_BIN_EXE_lodestore-bench"))
                .arg("run")
                .args(["--engine", engine, "--peers", "none", "--workloads", "overload", "--seconds", "600"])
                .args(["--records", "1000", "--dir"])
                .arg(dir.path())
                .stdin(Stdio::null())
                .spawn()
                .expect("the bench starts");
            // The bench, its process for the store, the server and the shell in between.
            let wait = |count: &dyn Fn(usize) -> bool| {
                let begun = Instant::now();
                while !count(at_work_in(dir.path())) {
                    assert!(begun.elapsed() < Duration::from_secs(60), "{engine}: {}", at_work_in(dir.path()));
                    std::thread::sleep(Duration::from_millis(10));
                }
            };
            wait(&|count| count >= 4);
            let kill = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs");
            assert!(kill.success());
            child.wait().expect("it ends");
            wait(&|count| count == 0);
            assert!(signal == "-KILL" || common::is_empty(&dir), "the bench left something behind");
        }
    }
}

//! Each preset runs at the smallest size, and produces rows of its engine for each of its
//! workloads.

use crate::common;
use serde_json::Value;

use crate::common::{Scratch, bench, rows};

/// Each preset except those of other tests, the words that make it short, and the workloads of its
/// engine's rows.
const PRESETS: [(&str, &str, &str); 22] = [
    ("ycsb", "", "load,a,b,c,d,e,f"),
    ("hikv-micro", "", "load,get,update,delete,scan"),
    ("hikv-fig5", "", "load,get,update,delete,scan"),
    ("hikv-fig6", "--threads 2", "load,get,update,delete,scan"),
    ("hikv-fig7", "--threads 2", "load,a,b,c,d,e,f"),
    ("hikv-fig8", "--persist-ns 50", "load,update,delete"),
    ("hikv-fig9", "--sweep records=200,300", "load,load,update,update,delete,delete"),
    ("hikv-fig10", "--persist-ns 50", "load"),
    ("hikv-fig11", "", "load,a,b,c,d,e,f"),
    ("hikv-fig12", "--sweep read-ns=60", "load,get,update,delete,scan"),
    ("hikv-fig13", "--sweep value-size=64,512", "load,load"),
    ("nvht-insert-search", "", "load,get"),
    ("nvht-threads", "--threads 2", "load,get,a"),
    ("nvht-redis", "", "load,update"),
    ("nvht-probe-length", "--sweep probe-length=28", "load,get,update,delete"),
    ("nvht-load-factor", "--set load-factor=0.5", "load,get,update,delete"),
    ("nvht-initial-capacity", "--sweep initial-capacity=8192", "load,get,update,delete"),
    ("fluidkv-threads", "--threads 2", "load,get,overwrite,scan"),
    ("fluidkv-value-size", "--value-size 64", "load,get,overwrite"),
    ("hashkv-reserve", "--reserve 900", "load,zipfput,zipfput-2"),
    ("hashkv-value-size", "--value-size 1000 --reserve 900", "load,zipfput,zipfput-2"),
    ("hashkv-threshold", "--value-size 192 --reserve 900", "load,zipfput,zipfput-2,get,scan"),
];

/// Runs the presets at the selected indexes and checks the output of each.
fn run(which: impl Fn(usize) -> bool) {
    let dir = Scratch::new();
    for (_, (preset, words, workloads)) in PRESETS.iter().enumerate().filter(|(at, _)| which(*at)) {
        let records = if preset.starts_with("hashkv") { 4000 } else { 400 };
        let records = if words.contains("records") { String::new() } else { format!("--records {records}") };
        let words = format!("--preset {preset} {records} {words} --rounds 1 --memory 0 --check full --json");
        let output = bench(&words, Some(&dir));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&format!("preset {preset}, but for what is given")), "{said}");
        let all = rows(&output);
        let engine = all[0]["store"].as_str().expect("a name").to_string();
        let ours: Vec<_> = all.iter().filter(|row| row["store"] == *engine).collect();
        let named: Vec<_> = ours.iter().map(|row| row["workload"].as_str().expect("a name")).collect();
        assert_eq!(named.join(","), *workloads, "{preset}: {said}");
        check(preset, &all);
    }
    assert!(common::is_empty(&dir), "the bench left something behind");
}

/// Checks the common properties of all rows of a paper's preset.
fn check(preset: &str, all: &[Value]) {
    let stores: std::collections::BTreeSet<_> = all.iter().map(|row| row["store"].as_str().expect("a name")).collect();
    let alone = ["nvht-probe-length", "nvht-load-factor", "nvht-initial-capacity"].contains(&preset);
    assert_eq!(stores.len() > 1, !alone, "{preset}: {stores:?}");
    for row in all {
        assert!(row["failed"].is_null() && row["ops_per_s"].as_f64() > Some(0.0), "{preset}: {row}");
        if preset.starts_with("hikv-fig") {
            assert_eq!(&row["key_size"], 16, "{preset}: {row}");
            let ours = row["settings"]["persist-ns"].as_str();
            let waits = if ["hikv-fig8", "hikv-fig10"].contains(&preset) { "50" } else { "600" };
            assert!(ours.is_none_or(|ns| ns == waits), "{preset}: {row}");
            let writes = row["workload"] == "load" && row["settings"]["emulate-dax"] == "true";
            assert!(!writes || row["fences_per_op"].as_f64() > Some(0.0), "{preset}: {row}");
        }
    }
}

#[test]
fn the_first_presets_run() {
    run(|at| at < 7);
}

#[test]
fn the_next_presets_run() {
    run(|at| (7..14).contains(&at));
}

#[test]
fn the_last_presets_run() {
    run(|at| at >= 14);
}

#[test]
fn a_figure_of_the_paper_is_printed_with_its_number_and_again_by_the_command_that_is_told() {
    let dir = Scratch::new();
    for (words, texts) in [
        ("hikv-fig10 --sweep persist-ns=0,50", ["Figure 10: mean latency, us: load", "| persist-ns | "]),
        (
            "hikv-fig13 --value-size 64 --peers nvht",
            [
                "Figure 13: DRAM by the stores' own accounts, bytes a key",
                "Figure 13: medium by the stores' own accounts, bytes a key",
            ],
        ),
    ] {
        let output = bench(&format!("--preset {words} --records 300 --rounds 1"), Some(&dir));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(texts.iter().all(|it| text.contains(it)), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let again =
            text.lines().last().and_then(|line| line.trim().strip_prefix("lodestore-bench run ")).expect("a command");
        let again = String::from_utf8_lossy(&bench(again, None).stdout).into_owned();
        assert!(texts.iter().all(|it| again.contains(it)), "{again}");
    }
}

#[cfg(not(feature = "peers"))]
#[test]
fn a_preset_leaves_out_what_this_build_has_not_and_says_so_but_refuses_what_is_given() {
    let dir = Scratch::new();
    let words = "--preset nvht-redis --records 300 --rounds 1";
    let output = bench(words, Some(&dir));
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let line = "left out of the preset: redis, redis-aof, redis-sync: not in this build";
    assert!(text.contains(line) && said.contains(line), "{text}{said}");
    let output = bench(&format!("{words} --peers redis"), Some(&dir));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("--features peers"), "{said}");
}

//! `bench` through the program: that it runs, and that its lines have the fields that scripts read.

mod common;

use common::Place;

#[test]
fn a_small_bench_writes_one_object_a_line_with_the_named_fields() {
    let place = Place::new();
    let args = ["bench", "--engine", "hikv", "--dir", ".", "--workloads", "load,get,scan,a", "--records", "2000"];
    let more = ["--ops", "1000", "--rounds", "1", "--size", "64M", "--peers", "btreemap", "--json"];
    let args: Vec<_> = args.into_iter().chain(more).collect();
    let lines = place.ok(&args);
    for store in ["hikv", "btreemap"] {
        for workload in ["load", "get", "scan", "a"] {
            let line = lines.lines().find(|line| {
                line.contains(&format!("\"store\":\"{store}\""))
                    && line.contains(&format!("\"workload\":\"{workload}\""))
            });
            let line = line.unwrap_or_else(|| panic!("{store} {workload}: {lines}"));
            let fields: serde_json::Value = serde_json::from_str(line).expect("JSON");
            for field in [
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
            ] {
                assert!(fields.get(field).is_some(), "{field} in {line}");
            }
        }
    }
    assert_eq!(std::fs::read_dir(place.path(".")).expect("the directory").count(), 0, "the stores are removed");
}

#[test]
fn bad_arguments_of_bench_are_code_2() {
    let place = Place::new();
    place.fails(&["bench", "--dir", ".", "--workloads", "frob"], 2, "frob");
    place.fails(&["bench", "--dir", ".", "--engine", "frob"], 2, "frob");
    place.fails(&["bench", "--dir", ".", "--records", "0"], 2, "records");
    place.fails(&["bench"], 2, "dir");
}

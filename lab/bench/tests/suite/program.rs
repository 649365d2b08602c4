//! `bench` through the program: it runs, and its lines have the fields that scripts read.

use crate::place;
use crate::place::Place;

#[test]
fn a_small_bench_writes_one_object_a_line_with_the_named_fields() {
    let place = Place::new();
    let args = ["run", "--engine", "hikv", "--dir", ".", "--workloads", "load,get,scan,a", "--records", "2000"];
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
    place.fails(&["run", "--dir", ".", "--workloads", "frob"], 2, "frob");
    place.fails(&["run", "--dir", ".", "--engine", "frob"], 2, "frob");
    place.fails(&["run", "--dir", ".", "--records", "0"], 2, "records");
    place.fails(&["run"], 2, "dir");
}

#[test]
fn a_bench_whose_store_gets_full_is_code_6_where_it_goes_on_and_no_other_is_left_too() {
    let place = Place::new();
    let sizes = "--size 4M --records 50000 --ops 10 --rounds 1 --peers none --workloads load";
    let args: Vec<_> = ["run", "--dir", "."].into_iter().chain(sizes.split_whitespace()).collect();
    place.fails(&args, 6, "is full");
    let all_failed = place.run(&[&args[..], &["--go-on"]].concat());
    assert_eq!(all_failed.status.code(), Some(6), "{}", place::text(&all_failed.stderr));
    place.fails(&[&args[..3], &["--records", "10", "--peers", "none", "--size", "100K"]].concat(), 2, "--size SIZE");
}

//! Texts of the user in messages: shown unchanged, even if they look like calls of the library.

use crate::common::Sandbox;

#[test]
fn keys_keyspaces_paths_files_and_options_that_look_like_calls_are_shown_unchanged() {
    let sandbox = Sandbox::with_store();
    let has_no = |what: &str| format!("no {what} in store");
    sandbox.fails(&["get", "store", "`Db::open`"], 1, &has_no("key `Db::open`"));
    sandbox.fails(&["delete", "store", "`Builder::capacity`"], 1, &has_no("key `Builder::capacity`"));
    sandbox.fails(&["count", "store", "--keyspace", "`Db::verify`"], 1, &has_no("keyspace `Db::verify`"));
    let missing = "no store at `Db::verify`/`Db::open`: create one with `lodestore create`";
    sandbox.fails(&["get", "`Db::verify`/`Db::open`", "k"], 3, missing);
    sandbox.fails(&["import", "store", "`Matrix::status`.tsv"], 8, "opening `Matrix::status`.tsv: ");
    let option = "option `Db::open`=`Builder::salvage(true)`: ";
    sandbox.fails(&["get", "store", "k", "--set", "`Db::open`=`Builder::salvage(true)`"], 2, option);
    let size = "option region=`Builder::capacity`: ";
    sandbox.fails(&["create", "new", "--engine", "hikv", "--set", "region=`Builder::capacity`"], 2, size);
}

#[test]
fn damage_of_a_store_whose_path_looks_like_a_call_is_reported_with_that_path() {
    let sandbox = Sandbox::new();
    let store = "`Db::for_each`";
    sandbox.ok(&["create", store, "--engine", "hikv", "--size", "64M"]);
    let path = sandbox.path(store).join("pool.0000");
    let mut region = std::fs::read(&path).expect("the first region");
    [100, 4196].iter().for_each(|at| region[*at] ^= 1);
    std::fs::write(&path, region).expect("the first region is written");
    sandbox.fails(&["count", store], 7, "corrupt data at `Db::for_each`/pool.0000");
    assert!(sandbox.ok(&["doctor", store]).contains("corrupt data at `Db::for_each`/pool.0000"));
}

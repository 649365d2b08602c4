//! Texts of the user in messages: shown unchanged, even if they look like calls of the library.

use crate::common::Place;

#[test]
fn keys_keyspaces_paths_files_and_options_that_look_like_calls_are_shown_unchanged() {
    let place = Place::with_store();
    let has_no = |what: &str| format!("no {what} in store");
    place.fails(&["get", "store", "`Db::open`"], 1, &has_no("key `Db::open`"));
    place.fails(&["delete", "store", "`Builder::capacity`"], 1, &has_no("key `Builder::capacity`"));
    place.fails(&["count", "store", "--keyspace", "`Db::verify`"], 1, &has_no("keyspace `Db::verify`"));
    let missing = "no store at `Db::verify`/`Db::open`: make one with `lodestore create`";
    place.fails(&["get", "`Db::verify`/`Db::open`", "k"], 3, missing);
    place.fails(&["import", "store", "`Matrix::status`.tsv"], 8, "opening `Matrix::status`.tsv: ");
    let option = "option `Db::open`=`Builder::salvage(true)`: ";
    place.fails(&["get", "store", "k", "--set", "`Db::open`=`Builder::salvage(true)`"], 2, option);
    let size = "option region=`Builder::capacity`: ";
    place.fails(&["create", "new", "--engine", "hikv", "--set", "region=`Builder::capacity`"], 2, size);
}

#[test]
fn damage_of_a_store_whose_path_looks_like_a_call_is_reported_with_that_path() {
    let place = Place::new();
    let store = "`Db::for_each`";
    place.ok(&["create", store, "--engine", "hikv", "--size", "64M"]);
    let path = place.path(store).join("pool.0000");
    let mut region = std::fs::read(&path).expect("the first region");
    [100, 4196].iter().for_each(|at| region[*at] ^= 1);
    std::fs::write(&path, region).expect("the first region is written");
    place.fails(&["count", store], 7, "corrupt data at `Db::for_each`/pool.0000");
    assert!(place.ok(&["doctor", store]).contains("corrupt data at `Db::for_each`/pool.0000"));
}

//! `--keyspace`, `keyspaces` and `drop-keyspace`.

use crate::common::Place;

/// A store with `k` in the default keyspace and in `users`.
fn with_users(engine: &str) -> Place {
    let place = Place::new();
    place.ok(&["create", "store", "--engine", engine, "--size", "64M"]);
    place.ok(&["put", "store", "k", "of the default"]);
    place.ok(&["put", "store", "k", "of users", "--keyspace", "users"]);
    place
}

#[test]
fn each_command_on_keys_uses_the_keyspace_that_is_named() {
    for engine in ["hikv", "nvht", "fluidkv", "hashkv"] {
        let place = with_users(engine);
        assert_eq!(place.ok(&["get", "store", "k"]), "of the default");
        assert_eq!(place.ok(&["get", "store", "k", "--keyspace", "users"]), "of users");
        place.ok(&["insert", "store", "l", "2", "--keyspace", "users", "--ttl", "1000"]);
        place.fails(&["insert", "store", "l", "2", "--keyspace", "users"], 1, "there already");
        place.ok(&["update", "store", "l", "3", "--keyspace", "users", "--keep-ttl"]);
        place.fails(&["get", "store", "l"], 1, "no key l");
        assert_eq!(place.ok(&["count", "store"]), "1\n");
        assert_eq!(place.ok(&["count", "store", "--keyspace", "users"]), "2\n");
        assert_eq!(place.ok(&["keyspaces", "store"]), "users\t2\n");
        place.ok(&["delete", "store", "l", "--keyspace", "users"]);
        assert_eq!(place.ok(&["export", "store", "--format", "tsv"]), "k\tof the default\n");
        assert_eq!(place.ok(&["export", "store", "--format", "tsv", "--keyspace", "users"]), "k\tof users\n");
    }
}

#[test]
fn a_scan_shows_one_keyspace_from_both_ends() {
    let place = with_users("hikv");
    for key in ["a", "z"] {
        place.ok(&["put", "store", key, "1"]);
        place.ok(&["put", "store", key, "2", "--keyspace", "users"]);
    }
    place.ok(&["put", "store", "--hex", "ffff41", "00"]);
    assert_eq!(place.ok(&["scan", "store"]), "a\t1\nk\tof the default\nz\t1\n\\xff\\xffA\t\\x00\n");
    assert_eq!(place.ok(&["scan", "store", "--reverse", "--limit", "2", "--keys-only"]), "\\xff\\xffA\nz\n");
    assert_eq!(place.ok(&["scan", "store", "--limit", "1"]), "a\t1\n");
    assert_eq!(place.ok(&["scan", "store", "--keyspace", "users", "--from", "b"]), "k\tof users\nz\t2\n");
    let last = ["scan", "store", "--keyspace", "users", "--reverse", "--limit", "1"];
    assert_eq!(place.ok(&last), "z\t2\n");
    assert_eq!(place.ok(&["scan", "store", "--keyspace", "users", "--prefix", "k"]), "k\tof users\n");
}

#[test]
fn reads_make_no_keyspace() {
    let place = with_users("hikv");
    for command in ["get", "delete", "update"] {
        let args = ["--keyspace", "typo", command, "store", "k", "v"];
        let args = if command == "update" { &args[2..] } else { &args[2..5] };
        place.fails(&[args, &["--keyspace", "typo"]].concat(), 1, "no keyspace typo in store");
    }
    for command in ["count", "scan", "export"] {
        place.fails(&[command, "store", "--keyspace", "typo"], 1, "lodestore keyspaces store");
    }
    assert_eq!(place.ok(&["keyspaces", "store"]), "users\t1\n");
    place.fails(&["put", "store", "k", "v", "--keyspace", ""], 2, "1 to 255 bytes");
}

#[test]
fn a_dropped_keyspace_is_removed_with_its_keys() {
    let place = with_users("fluidkv");
    place.ok(&["drop-keyspace", "store", "users"]);
    assert_eq!(place.ok(&["keyspaces", "store"]), "");
    place.fails(&["drop-keyspace", "store", "users"], 1, "no keyspace users");
    place.ok(&["put", "store", "l", "new", "--keyspace", "users"]);
    assert_eq!(place.ok(&["scan", "store", "--keyspace", "users"]), "l\tnew\n");
    assert_eq!(place.ok(&["get", "store", "k"]), "of the default");
    assert_eq!(place.ok(&["keyspaces", "store", "--json"]), "{\"keyspace\":\"users\",\"count\":1}\n");
}

#[test]
fn an_export_of_all_keyspaces_is_imported_again() {
    let place = with_users("hikv");
    place.ok(&["put", "store", "s", "v", "--keyspace", "sessions", "--ttl", "1000"]);
    let all = place.ok(&["export", "store", "--all-keyspaces"]);
    let lines: Vec<_> = all.lines().collect();
    assert_eq!(lines[0], "{\"key\":\"k\",\"value\":\"of the default\"}");
    assert!(
        lines[1].starts_with("{\"keyspace\":\"sessions\",\"key\":\"s\",\"value\":\"v\",\"expires_at_ms\":"),
        "{all}"
    );
    assert_eq!(lines[2..], ["{\"keyspace\":\"users\",\"key\":\"k\",\"value\":\"of users\"}"]);
    place.write("all.jsonl", &all);
    for engine in ["nvht", "hashkv"] {
        place.ok(&["create", engine, "--engine", engine, "--size", "64M"]);
        place.ok(&["import", engine, "all.jsonl"]);
        assert_eq!(place.ok(&["export", engine, "--all-keyspaces"]), all);
    }
    place.ok(&["create", "other", "--size", "64M"]);
    place.ok(&["import", "other", "all.jsonl", "--keyspace", "old"]);
    assert_eq!(place.ok(&["keyspaces", "other"]), "old\t1\nsessions\t1\nusers\t1\n");
    place.fails(&["export", "store", "--all-keyspaces", "--format", "tsv"], 2, "only jsonl");
    place.fails(&["export", "store", "--all-keyspaces", "--keyspace", "users"], 2, "cannot be used with");
}

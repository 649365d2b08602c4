//! `--keyspace`, `keyspaces` and `drop-keyspace`.

use crate::common::Sandbox;

/// A store with `k` in the default keyspace and in `users`.
fn with_users(engine: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--engine", engine, "--size", "64M"]);
    sandbox.ok(&["put", "store", "k", "of the default"]);
    sandbox.ok(&["put", "store", "k", "of users", "--keyspace", "users"]);
    sandbox
}

#[test]
fn each_command_on_keys_uses_the_keyspace_that_is_named() {
    for engine in ["hikv", "nvht", "fluidkv", "hashkv"] {
        let sandbox = with_users(engine);
        assert_eq!(sandbox.ok(&["get", "store", "k"]), "of the default");
        assert_eq!(sandbox.ok(&["get", "store", "k", "--keyspace", "users"]), "of users");
        sandbox.ok(&["insert", "store", "l", "2", "--keyspace", "users", "--ttl", "1000"]);
        sandbox.fails(&["insert", "store", "l", "2", "--keyspace", "users"], 1, "already exists");
        sandbox.ok(&["update", "store", "l", "3", "--keyspace", "users", "--keep-ttl"]);
        sandbox.fails(&["get", "store", "l"], 1, "no key l");
        assert_eq!(sandbox.ok(&["count", "store"]), "1\n");
        assert_eq!(sandbox.ok(&["count", "store", "--keyspace", "users"]), "2\n");
        assert_eq!(sandbox.ok(&["keyspaces", "store"]), "users\t2\n");
        sandbox.ok(&["delete", "store", "l", "--keyspace", "users"]);
        assert_eq!(sandbox.ok(&["export", "store", "--format", "tsv"]), "k\tof the default\n");
        assert_eq!(sandbox.ok(&["export", "store", "--format", "tsv", "--keyspace", "users"]), "k\tof users\n");
    }
}

#[test]
fn a_scan_shows_one_keyspace_from_both_ends() {
    let sandbox = with_users("hikv");
    for key in ["a", "z"] {
        sandbox.ok(&["put", "store", key, "1"]);
        sandbox.ok(&["put", "store", key, "2", "--keyspace", "users"]);
    }
    sandbox.ok(&["put", "store", "--hex", "ffff41", "00"]);
    assert_eq!(sandbox.ok(&["scan", "store"]), "a\t1\nk\tof the default\nz\t1\n\\xff\\xffA\t\\x00\n");
    assert_eq!(sandbox.ok(&["scan", "store", "--reverse", "--limit", "2", "--keys-only"]), "\\xff\\xffA\nz\n");
    assert_eq!(sandbox.ok(&["scan", "store", "--limit", "1"]), "a\t1\n");
    assert_eq!(sandbox.ok(&["scan", "store", "--keyspace", "users", "--from", "b"]), "k\tof users\nz\t2\n");
    let last = ["scan", "store", "--keyspace", "users", "--reverse", "--limit", "1"];
    assert_eq!(sandbox.ok(&last), "z\t2\n");
    assert_eq!(sandbox.ok(&["scan", "store", "--keyspace", "users", "--prefix", "k"]), "k\tof users\n");
}

#[test]
fn reads_make_no_keyspace() {
    let sandbox = with_users("hikv");
    for command in ["get", "delete", "update"] {
        let args = ["--keyspace", "typo", command, "store", "k", "v"];
        let args = if command == "update" { &args[2..] } else { &args[2..5] };
        sandbox.fails(&[args, &["--keyspace", "typo"]].concat(), 1, "no keyspace typo in store");
    }
    for command in ["count", "scan", "export"] {
        sandbox.fails(&[command, "store", "--keyspace", "typo"], 1, "lodestore keyspaces store");
    }
    assert_eq!(sandbox.ok(&["keyspaces", "store"]), "users\t1\n");
    sandbox.fails(&["put", "store", "k", "v", "--keyspace", ""], 2, "1 to 255 bytes");
}

#[test]
fn a_dropped_keyspace_is_removed_with_its_keys() {
    let sandbox = with_users("fluidkv");
    sandbox.ok(&["drop-keyspace", "store", "users"]);
    assert_eq!(sandbox.ok(&["keyspaces", "store"]), "");
    sandbox.fails(&["drop-keyspace", "store", "users"], 1, "no keyspace users");
    sandbox.ok(&["put", "store", "l", "new", "--keyspace", "users"]);
    assert_eq!(sandbox.ok(&["scan", "store", "--keyspace", "users"]), "l\tnew\n");
    assert_eq!(sandbox.ok(&["get", "store", "k"]), "of the default");
    assert_eq!(sandbox.ok(&["keyspaces", "store", "--json"]), "{\"keyspace\":\"users\",\"count\":1}\n");
}

#[test]
fn an_export_of_all_keyspaces_is_imported_again() {
    let sandbox = with_users("hikv");
    sandbox.ok(&["put", "store", "s", "v", "--keyspace", "sessions", "--ttl", "1000"]);
    let all = sandbox.ok(&["export", "store", "--all-keyspaces"]);
    let lines: Vec<_> = all.lines().collect();
    assert_eq!(lines[0], "{\"key\":\"k\",\"value\":\"of the default\"}");
    assert!(
        lines[1].starts_with("{\"keyspace\":\"sessions\",\"key\":\"s\",\"value\":\"v\",\"expires_at_ms\":"),
        "{all}"
    );
    assert_eq!(lines[2..], ["{\"keyspace\":\"users\",\"key\":\"k\",\"value\":\"of users\"}"]);
    sandbox.write("all.jsonl", &all);
    for engine in ["nvht", "hashkv"] {
        sandbox.ok(&["create", engine, "--engine", engine, "--size", "64M"]);
        sandbox.ok(&["import", engine, "all.jsonl"]);
        assert_eq!(sandbox.ok(&["export", engine, "--all-keyspaces"]), all);
    }
    sandbox.ok(&["create", "other", "--size", "64M"]);
    sandbox.ok(&["import", "other", "all.jsonl", "--keyspace", "old"]);
    assert_eq!(sandbox.ok(&["keyspaces", "other"]), "old\t1\nsessions\t1\nusers\t1\n");
    sandbox.fails(&["export", "store", "--all-keyspaces", "--format", "tsv"], 2, "only the format jsonl");
    sandbox.fails(&["export", "store", "--all-keyspaces", "--keyspace", "users"], 2, "cannot be used with");
}

//! Types, internals of keys, and commands that the server does not have.

use std::sync::Arc;

use super::common::{Client, TestServer, enable_debug};
use super::hashes::fill;
use lodestore::Db;
use lodestore::db::Engine;
use lodestore_server::{Config, Server, StoreEvents};

#[test]
fn types_and_internals_of_keys() {
    let server = TestServer::start_with(Engine::fluidkv(), enable_debug);
    let mut client = server.client();
    fill(&mut client, "large", 300);
    client.check(&[
        ("SET s text", "+OK"),
        ("SET n 12", "+OK"),
        ("HSET h a 1", ":1"),
        ("SCAN 0 TYPE hash", "[0, [h, large]]"),
        ("SCAN 0 TYPE string", "[0, [n, s]]"),
        ("SCAN 0 TYPE list", "[0, []]"),
        ("OBJECT ENCODING s", "embstr"),
        ("OBJECT ENCODING n", "int"),
        ("OBJECT ENCODING h", "listpack"),
        ("OBJECT ENCODING large", "hashtable"),
        ("OBJECT IDLETIME h", ":0"),
        ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"),
        ("OBJECT NONE h", "-ERR unknown subcommand 'NONE'. Try OBJECT HELP."),
        ("MEMORY USAGE none", "(nil)"),
        ("MEMORY USAGE h SAMPLES x", "-ERR value is not an integer or out of range"),
        ("MEMORY USAGE h SAMPLES -1", "-ERR syntax error"),
        ("MEMORY USAGE", "-ERR wrong number of arguments for 'memory|usage' command"),
        ("DEBUG OBJECT none", "-ERR no such key"),
        ("DEBUG JMAP", "-ERR unknown subcommand or wrong number of arguments for 'JMAP'. Try DEBUG HELP."),
        ("MEMORY PURGE", "+OK"),
        ("MEMORY FOO", "-ERR unknown subcommand 'FOO'. Try MEMORY HELP."),
        ("HSCAN h 5", "[0, [a, 1]]"),
        ("HSCAN none 5", "[0, []]"),
        ("LODESTORE.RANGE - + WITHVALUES", "[h, (nil), large, (nil), n, 12, s, text]"),
    ]);
    let usage = |text: String| text[1..].parse::<u64>().unwrap();
    let small = usage(client.run("MEMORY USAGE h"));
    let large = usage(client.run("MEMORY USAGE large SAMPLES 0"));
    assert!(small < 200 && large > 300 * 40, "{small} {large}");
    assert!(client.run("MEMORY STATS").contains("dataset.bytes"));
    assert!(client.run("OBJECT HELP").contains("ENCODING <key>"));
    assert!(client.run("DEBUG OBJECT h").contains("encoding:listpack"));
}

#[test]
fn absent_commands_are_unknown_commands_with_a_reason() {
    let server = TestServer::start();
    server.client().check(&[
        ("LPUSH a b", "-ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' (this server has no lists yet)"),
        ("nope a", "-ERR unknown command 'nope', with args beginning with: 'a' "),
        ("CLUSTER INFO", "-ERR This instance has cluster support disabled"),
        ("READONLY", "-ERR This instance has cluster support disabled"),
    ]);
}

/// `SET` with `IFEQ` and `DELIFEQ` as Valkey 9.
#[test]
fn conditions_on_the_present_value() {
    let server = TestServer::start();
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    server.client().check(&[
        ("SET a 1 IFEQ 1", "(nil)"),
        ("EXISTS a", ":0"),
        ("SET a 1 IFEQ 1 GET", "(nil)"),
        ("SET a 1", "+OK"),
        ("SET a 2 IFEQ 0", "(nil)"),
        ("SET a 2 IFEQ 1", "+OK"),
        ("SET a 3 IFEQ 2 GET", "2"),
        ("SET a 4 IFEQ 2 GET", "3"),
        ("GET a", "3"),
        ("SET a 4 IFEQ 3 NX", "-ERR syntax error"),
        ("SET a 4 XX IFEQ 3", "-ERR syntax error"),
        ("SET a 4 IFEQ", "-ERR syntax error"),
        ("SET a 4 IFEQ 3 IFEQ 3", "-ERR syntax error"),
        ("SET a 4 IFEQ 3 PX 100000", "+OK"),
        ("SET a 5 IFEQ 4 KEEPTTL", "+OK"),
        ("HSET h f v", ":1"),
        ("SET h 1 IFEQ v", wrong_type),
        ("DELIFEQ h v", wrong_type),
        ("DELIFEQ a 4", ":0"),
        ("DELIFEQ a 5", ":1"),
        ("DELIFEQ a 5", ":0"),
        ("DELIFEQ a", "-ERR wrong number of arguments for 'delifeq' command"),
    ]);
}

/// Starts a server over a store of an engine that reports its events.
fn start_reporting(dir: &std::path::Path, engine: Engine, options: &[(&str, &str)]) -> (Server, lodestore::Db) {
    let events = StoreEvents::default();
    let observer = events.clone();
    let mut builder = Db::builder(dir.join("store")).engine(engine).capacity(64 << 20);
    for (name, value) in options {
        builder = builder.set(*name, *value);
    }
    let db = builder.events(Arc::new(move |event| observer.observe(event))).open().unwrap();
    let config = Config { listen: vec![([127, 0, 0, 1], 0).into()], threads: 1, ..Config::default() };
    let server = Server::start(db.clone(), config).unwrap();
    server.report_store_events(&events);
    (server, db)
}

/// Waits until `INFO` counts two expired keys.
fn wait_for_two_expired(client: &mut Client, mut step: impl FnMut()) {
    let is_counted = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        step();
        client.run("INFO stats").contains("expired_keys:2\r\n")
    });
    assert!(is_counted, "{}", client.run("INFO stats"));
}

#[test]
fn info_has_the_fields_that_monitors_read() {
    let server = TestServer::start();
    let info = server.client().run("INFO everything");
    for name in [
        "redis_version",
        "connected_clients",
        "used_memory",
        "used_memory_rss",
        "maxmemory",
        "instantaneous_ops_per_sec",
        "total_commands_processed",
        "keyspace_hits",
        "evicted_keys",
        "role",
        "used_cpu_sys",
        "used_cpu_user",
        "cluster_enabled",
        "loading",
    ] {
        assert!(info.contains(&format!("\r\n{name}:")), "{name}: {info}");
    }
}

#[test]
fn info_counts_the_expired_keys_that_a_sweep_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _db) = start_reporting(dir.path(), Engine::hikv(), &[("sweep-ms", "10")]);
    let mut client = Client::connect(server.addresses()[0]);
    client.check(&[("SET a 1 PX 1", "+OK"), ("SET b 1 PX 1", "+OK"), ("SET c 1 PX 100000", "+OK")]);
    wait_for_two_expired(&mut client, || {});
    client.check(&[("CONFIG RESETSTAT", "+OK")]);
    assert!(client.run("INFO stats").contains("expired_keys:0\r\n"));
}

#[test]
fn info_counts_the_expired_keys_that_a_compaction_dropped() {
    for engine in [Engine::fluidkv(), Engine::hashkv()] {
        let dir = tempfile::tempdir().unwrap();
        let (server, db) = start_reporting(dir.path(), engine, &[]);
        let mut client = Client::connect(server.addresses()[0]);
        client.check(&[("SET a 1 PX 1", "+OK"), ("SET b 1 PX 1", "+OK"), ("SET c 1 PX 100000", "+OK")]);
        client.check(&[("SET d 1", "+OK"), ("DEL d", ":1")]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        wait_for_two_expired(&mut client, || db.settle().unwrap());
    }
}

/// Expired keys leave the store without reads, and `INFO` counts the keys that are left.
#[test]
fn expired_keys_are_removed_in_the_background() {
    for engine in [Engine::hikv(), Engine::nvht(), Engine::fluidkv()] {
        let server = TestServer::start_with(engine, |_| {});
        let mut client = server.client();
        client.check(&[("SET forever 1", "+OK"), ("SET long 1 PX 100000", "+OK")]);
        (0..100).for_each(|number| client.check(&[(&format!("SET k{number} 1 PX 1"), "+OK")]));
        let mut text = String::new();
        for _ in 0..1000 {
            text = client.run("INFO keyspace");
            if text.contains("db0:keys=2,") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(text.contains("db0:keys=2,expires=1,avg_ttl="), "{text}");
        let ttl: u64 = text.trim_end().rsplit_once('=').unwrap().1.parse().unwrap();
        assert!((1..=100_000).contains(&ttl), "{text}");
    }
}

//! Damaged records: the failing commands, and their errors.

use std::path::Path;

use lodestore::db::Engine;

use super::common::{Client, TestServer};

const KEYS: usize = 200;

/// Changes one byte of a text wherever it is in the files of a store.
fn damage(store: &Path, text: &str) {
    let mut places = 0;
    for entry in std::fs::read_dir(store).expect("a directory") {
        let path = entry.expect("an entry").path();
        let mut bytes = std::fs::read(&path).expect("a file");
        let found = bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text.as_bytes());
        let found: Vec<usize> = found.map(|(at, _)| at).collect();
        places += found.len();
        found.iter().for_each(|at| bytes[*at] ^= 0x40);
        std::fs::write(&path, bytes).expect("a file");
    }
    assert!(places > 0, "no file has {text}");
}

fn value(number: usize) -> String {
    format!("value-{number:03} ").repeat(20)
}

/// Starts a server over a store in which the record of `key050` is damaged.
fn start_damaged(engine: Engine) -> TestServer {
    let mut server = TestServer::start_with(engine, |_| {});
    let mut client = server.client();
    for number in 0..KEYS {
        assert_eq!(client.run_arguments(&["SET", &format!("key{number:03}"), &value(number)]), "+OK");
    }
    server.stop();
    damage(&server.store_dir(), &value(50));
    server.restart();
    server
}

/// Scans the database. Returns the keys, and the error that ended the scan.
fn scan(client: &mut Client) -> (usize, Option<String>) {
    let (mut cursor, mut count) = ("0".to_string(), 0);
    loop {
        client.send(&["SCAN", &cursor]);
        match client.receive() {
            lodestore_wire::Reply::Array(parts) => {
                let [lodestore_wire::Reply::Bulk(next), lodestore_wire::Reply::Array(keys)] = &parts[..] else {
                    panic!("{parts:?}")
                };
                cursor = String::from_utf8_lossy(next).into_owned();
                count += keys.len();
            }
            lodestore_wire::Reply::Error(text) => return (count, Some(String::from_utf8_lossy(&text).into_owned())),
            other => panic!("{other:?}"),
        }
        if cursor == "0" {
            return (count, None);
        }
    }
}

#[test]
fn an_error_names_the_key_of_a_damaged_record() {
    for engine in [Engine::hikv(), Engine::nvht(), Engine::fluidkv(), Engine::hashkv()] {
        let server = start_damaged(engine.clone());
        let mut client = server.client();
        for command in ["GET key050", "STRLEN key050", "APPEND key050 x", "INCR key050"] {
            let reply = client.run(command);
            assert!(
                reply.starts_with("-ERR the record of key 'key050' is damaged ("),
                "{engine:?}: {command}: {reply}"
            );
        }
        let reply = client.run("MGET none1 key050 none2");
        assert!(reply.starts_with("-ERR the record of key 'key050' is damaged ("), "{engine:?}: {reply}");
        client.check(&[("MULTI", "+OK"), ("GET key050", "+QUEUED"), ("SET other 1", "+QUEUED")]);
        let reply = client.run("EXEC");
        assert!(reply.starts_with("[-ERR the record of key 'key050' is damaged ("), "{engine:?}: {reply}");
        client.check(&[("GET other", "1")]);
    }
}

#[test]
fn a_damaged_record_can_be_deleted_or_replaced() {
    for engine in [Engine::hikv(), Engine::nvht(), Engine::fluidkv(), Engine::hashkv()] {
        for repair in ["DEL key050", "UNLINK key050 none", "SET key050 new"] {
            let server = start_damaged(engine.clone());
            let mut client = server.client();
            let reply = client.run(repair);
            assert!([":1", "+OK"].contains(&reply.as_str()), "{engine:?}: {repair}: {reply}");
            let expected = if repair.starts_with("SET") { "new" } else { "(nil)" };
            client.check(&[("GET key050", expected)]);
        }
    }
}

#[test]
fn a_scan_stops_at_a_damaged_record_until_the_record_is_repaired() {
    let server = start_damaged(Engine::hikv());
    let mut client = server.client();
    let (count, error) = scan(&mut client);
    assert_eq!(count, 50, "keys before the damage");
    assert!(error.is_some_and(|text| text.starts_with("ERR damaged data (")));
    client.check(&[("DEL key050", ":1"), ("DBSIZE", ":199")]);
    assert_eq!(scan(&mut client), (KEYS - 1, None));
}

#[test]
fn an_engine_without_batches_runs_commands_of_one_write() {
    let server = TestServer::start_with(Engine::mkvs(), |_| {});
    server.client().check(&[
        ("SET a 1", "+OK"),
        ("DEL a", ":1"),
        ("MSET b 1", "+OK"),
        ("MULTI", "+OK"),
        ("GET b", "+QUEUED"),
        ("INCR b", "+QUEUED"),
        ("EXEC", "[1, :2]"),
        ("GET b", "2"),
    ]);
}

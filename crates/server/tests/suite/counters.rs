//! The counters of commands and lookups: each command of a client counts once.

use lodestore::db::Engine;

use super::common::{Client, TestServer, encode, show};

/// Returns the number after the first `name` in a section of `INFO`.
fn number_in(client: &mut Client, section: &str, name: &str) -> u64 {
    let info = client.run(&format!("INFO {section}"));
    let after = info.split_once(name).map(|(_, after)| after).unwrap_or_default();
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{name} in {info}"))
}

/// Returns the calls of a command.
fn calls(client: &mut Client, command: &str) -> u64 {
    number_in(client, "commandstats", &format!("cmdstat_{command}:calls="))
}

/// Returns the lookups of keys.
fn lookups(client: &mut Client) -> u64 {
    number_in(client, "stats", "keyspace_hits:") + number_in(client, "stats", "keyspace_misses:")
}

/// Runs `commands` with one client in each round, while another client runs `other` in a loop.
fn run_against(server: &TestServer, rounds: usize, commands: &[u8], replies: usize, other: &str) {
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let (mut first, mut second) = (server.client(), server.client());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::SeqCst) {
                second.run(other);
            }
        });
        for _ in 0..rounds {
            first.send_raw(commands);
            (0..replies).for_each(|_| drop(first.receive()));
        }
        is_done.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

#[test]
fn a_get_that_is_read_again_counts_once() {
    const ROUNDS: usize = 2000;
    const GETS: usize = 50;
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[("SET a 1", "+OK")]);
    run_against(&server, ROUNDS, &encode(&["GET", "a"]).repeat(GETS), GETS, "SWAPDB 0 1");
    assert_eq!(calls(&mut client, "get"), (ROUNDS * GETS) as u64);
    assert_eq!(lookups(&mut client), (ROUNDS * GETS) as u64);
}

#[test]
fn a_read_of_several_keys_that_is_repeated_counts_once() {
    const ROUNDS: usize = 2000;
    let server = TestServer::start();
    let mut client = server.client();
    run_against(&server, ROUNDS, &encode(&["MGET", "a", "b", "c", "d"]), 1, "MSET a 1 b 1 c 1 d 1");
    assert_eq!(calls(&mut client, "mget"), ROUNDS as u64);
    assert_eq!(lookups(&mut client), 4 * ROUNDS as u64);
}

#[test]
fn a_write_of_a_refused_commit_counts_once() {
    const WRITES: usize = 20;
    let server = TestServer::start_at_power(Engine::fluidkv());
    let mut client = server.client();
    client.check(&[("SET a 1", "+OK")]);
    let long_key = vec![b'k'; 70_000];
    let mut bytes = Vec::new();
    for _ in 0..WRITES {
        bytes.extend(encode(&["GETEX", "a", "PERSIST"]));
        bytes.extend(encode(&["INCRBY", "a", "x"]));
        bytes.extend(encode(&["MSET", "a", "1", "b", "1"]));
    }
    bytes.extend(encode(&[&b"SET"[..], &long_key, b"1"]));
    let before = number_in(&mut client, "stats", "total_commands_processed:");
    client.send_raw(&bytes);
    for _ in 0..WRITES {
        assert_eq!(show(&client.receive()), "1");
        assert!(show(&client.receive()).starts_with("-ERR value"));
        assert_eq!(show(&client.receive()), "+OK");
    }
    assert!(show(&client.receive()).starts_with("-ERR"));
    let after = number_in(&mut client, "stats", "total_commands_processed:");
    // `INFO` itself is one more.
    assert_eq!(after - before, 3 * WRITES as u64 + 2);
    assert_eq!((calls(&mut client, "getex"), calls(&mut client, "set")), (WRITES as u64, 2));
    assert_eq!(calls(&mut client, "mset"), WRITES as u64);
    assert_eq!(lookups(&mut client), WRITES as u64);
    assert_eq!(number_in(&mut client, "errorstats", "errorstat_ERR:count="), WRITES as u64 + 1);
    let info = client.run("INFO commandstats");
    assert!(info.contains(&format!("rejected_calls=0,failed_calls={WRITES}")), "{info}");
}

#[test]
fn a_get_of_another_type_counts_as_failed() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[("HSET h f 1", ":1")]);
    assert!(client.run("GET h").starts_with("-WRONGTYPE"));
    let info = client.run("INFO commandstats");
    let line = info.lines().find(|line| line.starts_with("cmdstat_get:")).unwrap_or_default();
    assert!(line.ends_with("rejected_calls=0,failed_calls=1"), "{info}");
    assert_eq!(number_in(&mut client, "errorstats", "errorstat_WRONGTYPE:count="), 1);
}

//! Writes of several clients in one commit, at the durability `power`.

use lodestore::db::Engine;

use super::common::{Client, TestServer, encode, show};

/// Sends commands in one write, and returns the texts of their replies.
fn run_pipeline(client: &mut Client, commands: &[&[&[u8]]]) -> Vec<String> {
    let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
    client.send_raw(&bytes);
    commands.iter().map(|_| show(&client.receive())).collect()
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = TestServer::start_at_power(Engine::fluidkv());
    let commands: [&[&[u8]]; 12] = [
        &[b"SET", b"a", b"1"],
        &[b"INCR", b"a"],
        &[b"GET", b"a"],
        &[b"APPEND", b"a", b"x"],
        &[b"INCR", b"a"],
        &[b"MULTI"],
        &[b"SET", b"b", b"1"],
        &[b"EXEC"],
        &[b"MGET", b"a", b"b"],
        &[b"SET", b"a", b"y", b"XX", b"GET"],
        &[b"SET", b"a"],
        &[b"STRLEN", b"a"],
    ];
    let not_an_integer = "-ERR value is not an integer or out of range";
    let expected = [
        "+OK",
        ":2",
        "2",
        ":2",
        not_an_integer,
        "+OK",
        "+QUEUED",
        "[+OK]",
        "[2x, 1]",
        "2x",
        "-ERR wrong number of arguments for 'set' command",
        ":1",
    ];
    assert_eq!(run_pipeline(&mut server.client(), &commands), expected);
}

#[test]
fn no_write_is_lost_between_clients_that_share_commits() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 20;
    let mut server = TestServer::start_at_power(Engine::hikv());
    let address = server.address();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let own = format!("own-{number}");
                for round in 1..=ROUNDS {
                    let commands: [&[&[u8]]; 4] = [
                        &[b"INCR", b"shared"],
                        &[b"INCR", own.as_bytes()],
                        &[b"GET", own.as_bytes()],
                        &[b"MSET", b"x", b"1", b"y", b"1"],
                    ];
                    let replies = run_pipeline(&mut client, &commands);
                    assert!(replies[0].starts_with(':'), "{replies:?}");
                    assert_eq!(replies[1..], [format!(":{round}"), round.to_string(), "+OK".into()]);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.restart();
    server.client().check(&[("GET shared", "160"), ("GET own-0", "20"), ("GET own-7", "20"), ("DBSIZE", ":11")]);
}

#[test]
fn a_command_that_the_store_refuses_fails_alone() {
    let server = TestServer::start_at_power(Engine::fluidkv());
    let long_key = vec![b'k'; 70_000];
    let commands: [&[&[u8]]; 5] =
        [&[b"SET", b"a", b"1"], &[b"INCR", b"a"], &[b"SET", &long_key, b"1"], &[b"INCR", b"a"], &[b"GET", b"a"]];
    let replies = run_pipeline(&mut server.client(), &commands);
    assert!(replies[2].starts_with("-ERR"), "{replies:?}");
    assert_eq!((&replies[..2], &replies[3..]), (&["+OK".into(), ":2".into()][..], &[":3".into(), "3".into()][..]));
}

#[test]
fn a_full_store_refuses_writes_and_takes_deletes() {
    const FULL: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
    let server = TestServer::start_at_power(Engine::hikv());
    let mut client = server.client();
    let value = vec![b'v'; 1 << 20];
    let mut stored = 0;
    loop {
        let key = format!("key-{stored}");
        let reply = client.run_arguments(&[b"SET", key.as_bytes(), &value]);
        if reply == FULL {
            break;
        }
        assert_eq!(reply, "+OK");
        stored += 1;
        assert!(stored < 1000, "the store is never full");
    }
    assert!(stored > 10, "{stored}");
    let commands: [&[&[u8]]; 3] = [&[b"SET", b"new", &value], &[b"DEL", b"key-0"], &[b"STRLEN", b"key-1"]];
    assert_eq!(run_pipeline(&mut client, &commands), [FULL, ":1", ":1048576"]);
}

#[test]
fn a_full_store_can_be_flushed() {
    for engine in [Engine::hikv(), Engine::fluidkv(), Engine::hashkv(), Engine::nvht()] {
        let mut server = TestServer::start_with(engine, |_| {});
        let mut client = server.client();
        client.check(&[("SELECT 3", "+OK"), ("SET other 1", "+OK"), ("SELECT 0", "+OK")]);
        // Values that become smaller leave no room for any record.
        for value_bytes in [256 << 10, 16 << 10, 1 << 10, 64] {
            let value = vec![b'v'; value_bytes];
            let is_full = (0..10_000).any(|number| {
                let key = format!("key-{value_bytes}-{number}");
                client.run_arguments(&[b"SET", key.as_bytes(), &value]).starts_with("-OOM")
            });
            assert!(is_full, "the store is never full");
        }
        client.check(&[("FLUSHALL", "+OK"), ("DBSIZE", ":0"), ("SELECT 3", "+OK"), ("DBSIZE", ":0")]);
        server.restart();
        server.client().check(&[("DBSIZE", ":0"), ("SELECT 3", "+OK"), ("DBSIZE", ":0"), ("SET a 1", "+OK")]);
    }
}

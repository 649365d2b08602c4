//! Writes of several clients in one commit, at the durability `power`.

use lodestore::db::Engine;

use super::common::{Client, TestServer, enable_debug, encode, show};

/// Sends commands in one write, and returns the texts of their replies.
fn run_pipeline(client: &mut Client, commands: &[&[&[u8]]]) -> Vec<String> {
    let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
    client.send_raw(&bytes);
    commands.iter().map(|_| show(&client.receive())).collect()
}

/// Returns the syncs of the store since its open.
fn syncs(server: &TestServer) -> u64 {
    server.db().stats().fences
}

/// Asserts that the writes of a pipeline share their commits.
fn check_commits_are_shared(server: &TestServer) {
    const WRITES: u64 = 512;
    let mut client = server.client();
    let commands: Vec<&[&[u8]]> = vec![&[b"SET", b"shared", b"1"]; WRITES as usize];
    let before = syncs(server);
    assert!(run_pipeline(&mut client, &commands).iter().all(|reply| reply == "+OK"));
    let used = syncs(server) - before;
    assert!(used < WRITES / 4, "{WRITES} writes took {used} syncs");
}

#[test]
fn writes_of_a_pipeline_share_a_commit() {
    for engine in [Engine::fluidkv(), Engine::hikv()] {
        check_commits_are_shared(&TestServer::start_at_power(engine));
    }
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
fn a_full_store_refuses_writes_and_accepts_deletes() {
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
        // Values that become smaller fill the store until no record fits.
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

/// More fields than a batch of the store may have, in commands of several clients.
#[test]
fn field_updates_of_a_large_hash_share_commits() {
    const CLIENTS: usize = 24;
    const COMMANDS: usize = 170;
    const FIELDS: usize = 20;
    let server = TestServer::start_at_power_with(Engine::fluidkv(), |config| {
        config.threads = 1;
        enable_debug(config);
    });
    let commands_of = |client: usize| -> Vec<Vec<String>> {
        let command = |number: usize| {
            let mut words = vec!["HSET".to_string(), "h".into()];
            (0..FIELDS).for_each(|field| words.extend([format!("{client}-{number}-{field}"), "1".into()]));
            words
        };
        (0..COMMANDS).map(command).collect()
    };
    let mut first = server.client();
    for client in 0..CLIENTS {
        for command in commands_of(client) {
            first.send(&command);
        }
        (0..COMMANDS).for_each(|_| assert_eq!(show(&first.receive()), format!(":{FIELDS}")));
    }
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.check(&[("PING", "+PONG")]));
    let before = syncs(&server);
    // The loop sleeps while the commands of all clients arrive.
    first.send(&["DEBUG", "SLEEP", "1"]);
    for (number, client) in clients.iter_mut().enumerate() {
        let bytes: Vec<u8> = commands_of(number).iter().flat_map(|command| encode(command)).collect();
        client.send_raw(&bytes);
    }
    for client in &mut clients {
        (0..COMMANDS).for_each(|_| assert_eq!(show(&client.receive()), ":0"));
    }
    let (used, writes) = (syncs(&server) - before, (CLIENTS * COMMANDS) as u64);
    assert!(used < writes / 8, "{writes} commands took {used} syncs");
    first.check(&[("DEBUG SLEEP 0", "+OK")]);
}

#[test]
fn a_refused_command_removes_few_writes_from_their_commit() {
    const WRITES: usize = 1000;
    let server = TestServer::start_at_power(Engine::fluidkv());
    let long_key = vec![b'k'; 70_000];
    let (good, bad): ([&[u8]; 2], [&[u8]; 3]) = ([b"INCR", b"a"], [b"SET", &long_key, b"1"]);
    let commands: Vec<&[&[u8]]> =
        (0..WRITES).map(|number| if number == WRITES / 2 { &bad[..] } else { &good[..] }).collect();
    let before = syncs(&server);
    let replies = run_pipeline(&mut server.client(), &commands);
    assert!(replies[WRITES / 2].starts_with("-ERR"), "{}", replies[WRITES / 2]);
    assert_eq!(replies[WRITES - 1], format!(":{}", WRITES - 1));
    let used = syncs(&server) - before;
    assert!(used < WRITES as u64 / 4, "{WRITES} writes took {used} syncs");
}

#[test]
fn a_command_that_exceeds_a_batch_fails_alone() {
    const FIELDS: usize = 66_000;
    let server = TestServer::start_at_power(Engine::fluidkv());
    let mut client = server.client();
    let names: Vec<String> = (0..FIELDS).map(|field| format!("f{field}")).collect();
    let pairs = names.iter().flat_map(|name| [name.as_bytes(), b"1"]);
    let command: Vec<&[u8]> = [&b"HSET"[..], b"h"].into_iter().chain(pairs).collect();
    assert_eq!(client.run_arguments(&command), format!(":{FIELDS}"));
    let replies = run_pipeline(&mut client, &[&[b"INCR", b"a"], &command, &[b"INCR", b"a"], &[b"HLEN", b"h"]]);
    assert!(replies[1].starts_with("-ERR"), "{}", replies[1]);
    assert_eq!((&*replies[0], &*replies[2], &*replies[3]), (":1", ":2", &*format!(":{FIELDS}")));
}

#[test]
fn commits_are_shared_after_the_last_listener_has_disconnected() {
    let server = TestServer::start_at_power(Engine::fluidkv());
    let mut client = server.client();
    client.check(&[("SET a 1 EX 1000000", "+OK"), ("CONFIG SET notify-keyspace-events Ex", "+OK")]);
    client.check(&[("SET b 1 EX 1000000", "+OK"), ("CONFIG SET notify-keyspace-events ", "+OK")]);
    check_commits_are_shared(&server);
    for ends_by_command in [true, false] {
        let mut reader = server.client();
        assert!(reader.run("HELLO 3").starts_with('{'));
        reader.check(&[("CLIENT TRACKING ON", "+OK"), ("GET a", "1")]);
        if ends_by_command {
            reader.check(&[("CLIENT TRACKING OFF", "+OK")]);
        } else {
            reader.check(&[("QUIT", "+OK")]);
            assert!(reader.try_receive().is_none());
        }
        check_commits_are_shared(&server);
    }
}

/// Each command needs the stripes of several keys, and the clients name the keys in different
/// orders.
#[test]
fn groups_that_need_the_same_stripes_end() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 30;
    const KEYS: usize = 16;
    let server = TestServer::start_at_power_with(Engine::fluidkv(), |config| config.threads = 4);
    let address = server.address();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let mut names: Vec<String> = (0..KEYS).map(|key| format!("k{}", (key + number) % KEYS)).collect();
                for _ in 0..ROUNDS {
                    names.reverse();
                    let set: Vec<&str> =
                        ["MSET"].into_iter().chain(names.iter().flat_map(|name| [name.as_str(), "1"])).collect();
                    let bytes = encode(&set);
                    client.send_raw(&bytes.repeat(4));
                    client.send_raw(&encode(&["MULTI"]));
                    client.send_raw(&bytes);
                    client.send_raw(&encode(&["EXEC"]));
                    let replies = [["+OK"; 4].as_slice(), &["+OK", "+QUEUED", "[+OK]"]].concat();
                    replies.iter().for_each(|reply| assert_eq!(show(&client.receive()), *reply));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}

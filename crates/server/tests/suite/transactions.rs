//! `MULTI`, `EXEC` and `WATCH`, alone and next to other clients.

use lodestore::db::Engine;

use super::common::{TestServer, encode};

#[test]
fn commands_of_exec_see_each_other() {
    let server = TestServer::start();
    server.client().check(&[
        ("SET a 1", "+OK"),
        ("MULTI", "+OK"),
        ("INCR a", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("DEL a", "+QUEUED"),
        ("EXISTS a", "+QUEUED"),
        ("SET b 2 EX 100", "+QUEUED"),
        ("TTL b", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("EXEC", "[:2, 2, :1, :0, +OK, :100, [b], :1]"),
        ("KEYS *", "[b]"),
        ("TTL b", ":100"),
    ]);
}

#[test]
fn a_range_within_exec_sees_the_earlier_writes() {
    let server = TestServer::start();
    server.client().check(&[
        ("MSET a 1 b 2 d 4", "+OK"),
        ("MULTI", "+OK"),
        ("SET c 3", "+QUEUED"),
        ("DEL b", "+QUEUED"),
        ("LODESTORE.RANGE - + WITHVALUES", "+QUEUED"),
        ("LODESTORE.RANGE b + LIMIT 1", "+QUEUED"),
        ("LODESTORE.RANGE - d REV LIMIT 2", "+QUEUED"),
        ("EXEC", "[+OK, :1, [a, 1, c, 3, d, 4], [c], [c, a]]"),
    ]);
}

/// A flush exchanges the keyspaces under readers that hold no lock.
#[test]
fn reads_next_to_flushes_answer_a_value_or_none() {
    const ROUNDS: usize = 60;
    let server = TestServer::start();
    let address = server.address();
    let writer = std::thread::spawn(move || {
        let mut client = super::common::Client::connect(address);
        for _ in 0..ROUNDS {
            client.check(&[("SET a 1", "+OK"), ("FLUSHDB", "+OK"), ("SWAPDB 0 1", "+OK")]);
        }
    });
    let mut client = server.client();
    while !writer.is_finished() {
        for command in ["GET a", "MGET a b", "STRLEN a", "GET a", "EXISTS a b"] {
            client.send(&command.split(' ').collect::<Vec<_>>());
        }
        for _ in 0..5 {
            let reply = super::common::show(&client.receive());
            let is_answer = ["1", "(nil)", ":1", ":0", "[1, (nil)]", "[(nil), (nil)]"].contains(&reply.as_str());
            assert!(is_answer, "{reply}");
        }
    }
    writer.join().unwrap();
}

/// Large values are sent while the others of a round wait in the output.
#[test]
fn large_values_next_to_flushes_arrive_whole_and_in_order() {
    const ROUNDS: usize = 40;
    let server = TestServer::start_with(Engine::hikv(), |config| config.threads = 2);
    let address = server.address();
    let sizes = [("a", 10), ("b", 40_000), ("c", 300_000), ("d", 10)];
    let writer = std::thread::spawn(move || {
        let mut client = super::common::Client::connect(address);
        for _ in 0..ROUNDS {
            for (key, bytes) in sizes {
                assert_eq!(client.run_arguments(&["SET", key, &key.repeat(bytes)]), "+OK");
            }
            client.check(&[("FLUSHDB", "+OK")]);
        }
    });
    let mut client = server.client();
    let request: Vec<u8> = (0..30).flat_map(|number| encode(&["GET", sizes[number % 4].0])).collect();
    let (mut values, mut absences) = (0, 0);
    while !writer.is_finished() {
        client.send_raw(&request);
        for number in 0..30 {
            let (key, bytes) = sizes[number % 4];
            match client.receive() {
                lodestore_wire::Reply::Null => absences += 1,
                lodestore_wire::Reply::Bulk(value) => {
                    assert!(value == key.repeat(bytes).as_bytes(), "{key}: a value of {} bytes", value.len());
                    values += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    writer.join().unwrap();
    assert!(values > 0 && absences > 0, "{values} values, {absences} absences");
}

#[test]
fn an_error_of_a_command_does_not_affect_the_others() {
    let server = TestServer::start();
    server.client().check(&[
        ("SET a x", "+OK"),
        ("MULTI", "+OK"),
        ("INCR a", "+QUEUED"),
        ("SET b 1", "+QUEUED"),
        ("EXEC", "[-ERR value is not an integer or out of range, +OK]"),
        ("GET b", "1"),
    ]);
}

#[test]
fn a_command_that_cannot_be_queued_discards_the_transaction() {
    let server = TestServer::start();
    server.client().check(&[
        ("MULTI", "+OK"),
        ("SET b 1", "+QUEUED"),
        ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: "),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("GET b", "(nil)"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("SET b 1", "+QUEUED"),
        ("EXEC", "[+OK]"),
        ("MULTI", "+OK"),
        ("SET b 2", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("GET b", "1"),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
    ]);
}

#[test]
fn a_watched_key_that_changes_stops_exec() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.client(), server.client());
    first.check(&[("SET a 1", "+OK"), ("WATCH a", "+OK")]);
    // The same value again is a change too.
    second.check(&[("SET a 1", "+OK")]);
    first.check(&[("MULTI", "+OK"), ("SET a 2", "+QUEUED"), ("EXEC", "(nil)"), ("GET a", "1")]);
    first.check(&[("WATCH a", "+OK")]);
    second.check(&[("SET b 1", "+OK")]);
    first.check(&[("MULTI", "+OK"), ("SET a 2", "+QUEUED"), ("EXEC", "[+OK]")]);
    first.check(&[("WATCH a", "+OK")]);
    second.check(&[("FLUSHALL", "+OK")]);
    first.check(&[("MULTI", "+OK"), ("SET a 2", "+QUEUED"), ("EXEC", "(nil)")]);
    first.check(&[("WATCH a", "+OK"), ("UNWATCH", "+OK")]);
    second.check(&[("SET a 7", "+OK")]);
    first.check(&[("MULTI", "+OK"), ("GET a", "+QUEUED"), ("EXEC", "[7]")]);
}

#[test]
fn a_watched_key_that_expires_stops_exec() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    // The key must exist after WATCH, however long the machine pauses in between.
    let is_watched = (5..16).any(|power| {
        let milliseconds = 1 << power;
        client.check(&[(&format!("SET a 1 PX {milliseconds}"), "+OK"), ("WATCH a", "+OK")]);
        other.run("EXISTS a") == ":1" || client.run("UNWATCH") != "+OK"
    });
    assert!(is_watched, "the key expires before it is watched");
    while other.run("EXISTS a") == ":1" {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    client.check(&[("MULTI", "+OK"), ("SET a 2", "+QUEUED"), ("EXEC", "(nil)")]);
}

/// Clients move units between two keys by `MULTI`. Readers of both keys always see the sum.
#[test]
fn readers_of_several_keys_see_no_half_of_a_transaction() {
    const ROUNDS: usize = 300;
    let server = TestServer::start();
    server.client().check(&[("MSET a 1000 b 1000", "+OK")]);
    let address = server.address();
    let writers: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = super::common::Client::connect(address);
                for _ in 0..ROUNDS {
                    client.check(&[("MULTI", "+OK"), ("DECR a", "+QUEUED"), ("INCR b", "+QUEUED")]);
                    assert!(client.run("EXEC").starts_with("[:"));
                }
            })
        })
        .collect();
    let mut client = server.client();
    for _ in 0..ROUNDS {
        let sum = client.run("MGET a b");
        let numbers: Vec<i64> = sum.trim_matches(['[', ']']).split(", ").map(|text| text.parse().unwrap()).collect();
        assert_eq!(numbers.iter().sum::<i64>(), 2000, "{sum}");
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    client.check(&[("MGET a b", "[400, 1600]")]);
}

#[test]
fn an_exchange_of_databases_breaks_the_watch_of_a_key_that_it_brings_or_removes() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    other.check(&[("SELECT 1", "+OK"), ("SET brought v", "+OK"), ("SELECT 0", "+OK"), ("SET removed v", "+OK")]);
    for (key, reply) in [("brought", "(nil)"), ("removed", "(nil)"), ("absent", "[+OK]")] {
        client.check(&[(&format!("WATCH {key}"), "+OK")]);
        other.check(&[("SWAPDB 0 1", "+OK")]);
        client.check(&[("MULTI", "+OK"), ("SET done 1", "+QUEUED"), ("EXEC", reply)]);
        other.check(&[("SWAPDB 1 0", "+OK")]);
    }
    client.check(&[("WATCH brought", "+OK")]);
    other.check(&[("SWAPDB 2 3", "+OK")]);
    client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "[+PONG]")]);
}

#[test]
fn unwatch_within_exec_does_nothing() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[("WATCH a", "+OK"), ("MULTI", "+OK"), ("UNWATCH", "+QUEUED"), ("SET a 1", "+QUEUED")]);
    client.check(&[("EXEC", "[+OK, +OK]"), ("GET a", "1")]);
    server.client().check(&[("SET a 2", "+OK")]);
}

/// A reader of single keys never sees the later key of an `MSET` older than the earlier one.
#[test]
fn commands_that_change_several_keys_are_one_step() {
    const ROUNDS: i64 = 500;
    let server = TestServer::start_with(lodestore::db::Engine::hikv(), |_| {});
    server.client().check(&[("MSET a 0 b 0", "+OK")]);
    let address = server.address();
    let writer = std::thread::spawn(move || {
        let mut client = super::common::Client::connect(address);
        (1..=ROUNDS).for_each(|round| client.check(&[(&format!("MSET a {round} b {round}"), "+OK")]));
    });
    let mut client = server.client();
    let mut last = 0;
    while last < ROUNDS {
        let first: i64 = client.run("GET a").parse().unwrap();
        last = client.run("GET b").parse().unwrap();
        assert!(last >= first, "a has {first}, then b has {last}");
    }
    writer.join().unwrap();
}

//! Hashes: the replies of their commands, and the change between small and large.

use super::common::{Client, TestServer, memory_dir};
use lodestore::db::Engine;

/// Fields of a hash that is large in an engine with an order.
const LARGE_FIELDS: usize = 300;

/// Writes a hash of `fields` fields.
pub fn fill(client: &mut Client, key: &str, fields: usize) {
    let mut arguments = vec!["HSET".to_string(), key.into()];
    for number in 0..fields {
        arguments.extend([format!("f{number:05}"), format!("v{number}")]);
    }
    assert_eq!(client.run_arguments(&arguments), format!(":{fields}"));
}

/// Returns the reply of `HGETALL` for a hash of [`fill`].
pub fn filled(fields: usize) -> String {
    let pairs: Vec<String> = (0..fields).map(|number| format!("f{number:05}, v{number}")).collect();
    format!("[{}]", pairs.join(", "))
}

/// The default store of a server is in memory where it can be, which refuses a sync.
#[test]
fn a_large_hash_is_written_to_a_store_in_memory() {
    let memory = std::path::Path::new("/dev/shm");
    if tempfile::tempdir_in(memory).is_err() {
        println!("skipped: /dev/shm cannot be written");
        return;
    }
    let mut server = TestServer::start_in(memory);
    fill(&mut server.client(), "large", LARGE_FIELDS);
    server.client().check(&[("HSET large more 1", ":1"), ("HLEN large", ":301")]);
    server.restart();
    server.client().check(&[("HLEN large", ":301"), ("HGET large f00299", "v299"), ("DEL large", ":1")]);
}

pub const CASES: &[(&str, &str)] = &[
    ("HSET h a 1 b 2", ":2"),
    ("HSET h a 3 c 4", ":1"),
    ("HSET h a", "-ERR wrong number of arguments for 'hset' command"),
    ("HSET h a 1 b", "-ERR wrong number of arguments for 'hset' command"),
    ("HMSET h a 1 b", "-ERR wrong number of arguments for 'hmset' command"),
    ("HMSET h a 5 d 6", "+OK"),
    ("HGET h a", "5"),
    ("HGET h x", "(nil)"),
    ("HGET none x", "(nil)"),
    ("HMGET h a x d", "[5, (nil), 6]"),
    ("HMGET none a b", "[(nil), (nil)]"),
    ("HGETALL h", "[a, 5, b, 2, c, 4, d, 6]"),
    ("HGETALL none", "[]"),
    ("HKEYS h", "[a, b, c, d]"),
    ("HVALS h", "[5, 2, 4, 6]"),
    ("HKEYS none", "[]"),
    ("HLEN h", ":4"),
    ("HLEN none", ":0"),
    ("HEXISTS h a", ":1"),
    ("HEXISTS h x", ":0"),
    ("HEXISTS none x", ":0"),
    ("HSTRLEN h d", ":1"),
    ("HSTRLEN h x", ":0"),
    ("HSETNX h a 9", ":0"),
    ("HSETNX h e 9", ":1"),
    ("HSETNX h2 e 9", ":1"),
    ("HDEL h a x b a", ":2"),
    ("HDEL none a", ":0"),
    ("HDEL h2 e", ":1"),
    ("EXISTS h2", ":0"),
    ("TYPE h2", "+none"),
    ("HGETALL h", "[c, 4, d, 6, e, 9]"),
    ("TYPE h", "+hash"),
    ("OBJECT ENCODING h", "listpack"),
    ("OBJECT REFCOUNT h", ":1"),
    ("OBJECT ENCODING none", "(nil)"),
    ("OBJECT", "-ERR wrong number of arguments for 'object' command"),
    ("HINCRBY h n 5", ":5"),
    ("HINCRBY h n -7", ":-2"),
    ("HINCRBY h n 9223372036854775807", ":9223372036854775805"),
    ("HINCRBY h n 9223372036854775807", "-ERR increment or decrement would overflow"),
    ("HINCRBY h n x", "-ERR value is not an integer or out of range"),
    ("HSET h t text", ":1"),
    ("HINCRBY h t 1", "-ERR hash value is not an integer"),
    ("HINCRBYFLOAT h t 1", "-ERR hash value is not a float"),
    ("HINCRBYFLOAT h u 1.5", "1.5"),
    ("HINCRBYFLOAT h u 2", "3.5"),
    ("HINCRBYFLOAT h u x", "-ERR value is not a valid float"),
    ("HINCRBYFLOAT h u inf", "-ERR value is NaN or Infinity"),
    ("HRANDFIELD none", "(nil)"),
    ("HRANDFIELD none 3", "[]"),
    ("HRANDFIELD none -3", "[]"),
    ("HRANDFIELD h x", "-ERR value is not an integer or out of range"),
    ("HRANDFIELD h 1 x", "-ERR syntax error"),
    ("HRANDFIELD h 1 WITHVALUES x", "-ERR syntax error"),
    ("HRANDFIELD h 0", "[]"),
    ("HSET one f v", ":1"),
    ("HRANDFIELD one", "f"),
    ("HRANDFIELD one 5", "[f]"),
    ("HRANDFIELD one -3", "[f, f, f]"),
    ("HRANDFIELD one -2 WITHVALUES", "[f, v, f, v]"),
    ("HSCAN one 0", "[0, [f, v]]"),
    ("HSCAN one 0 MATCH x*", "[0, []]"),
    ("HSCAN one 0 MATCH f* COUNT 10", "[0, [f, v]]"),
    ("HSCAN none 0", "[0, []]"),
    ("HSCAN one x", "-ERR invalid cursor"),
    ("HSCAN one 0 COUNT 0", "-ERR syntax error"),
    ("HSCAN one 0 COUNT x", "-ERR value is not an integer or out of range"),
    ("HSCAN one 0 TYPE x", "-ERR syntax error"),
    ("SET s text", "+OK"),
    ("HSET s a 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("HGET s a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("HGETALL s", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("HSCAN s 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("HRANDFIELD s", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("HINCRBY s a 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("GET h", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("APPEND h x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("MGET s h", "[text, (nil)]"),
    ("SET h 1", "+OK"),
    ("GET h", "1"),
    ("HSET e  v", ":1"),
    ("HGETALL e", "[, v]"),
    ("DEL h s e one", ":4"),
    ("DBSIZE", ":0"),
];

#[test]
fn commands_on_hashes() {
    for engine in [Engine::fluidkv(), Engine::nvht()] {
        let server = TestServer::start_with(engine, |_| {});
        server.client().check(CASES);
    }
}

#[test]
fn a_map_is_the_reply_of_hgetall_in_the_newer_protocol() {
    let server = TestServer::start();
    let mut client = server.client();
    assert!(client.run("HELLO 3").starts_with("{server"));
    client.check(&[
        ("HSET h a 1 b 2", ":2"),
        ("HGETALL h", "{a=1, b=2}"),
        ("HSCAN h 0", "[0, [a, 1, b, 2]]"),
        ("HSET one f v", ":1"),
        ("HRANDFIELD one 1 WITHVALUES", "[[f, v]]"),
        ("HGETALL none", "{}"),
        ("HGET none f", "(nil)"),
    ]);
    fill(&mut client, "large", LARGE_FIELDS);
    assert!(client.run("HGETALL large").starts_with("{f00000=v0, f00001=v1"));
}

/// Checks a large hash with all commands.
#[test]
fn a_large_hash_answers_as_a_small_one() {
    for engine in [Engine::fluidkv(), Engine::hikv(), Engine::hashkv(), Engine::nvht()] {
        let mut server = TestServer::start_with(engine, |_| {});
        let mut client = server.client();
        fill(&mut client, "h", LARGE_FIELDS);
        let all = filled(LARGE_FIELDS);
        for _ in 0..2 {
            client.check(&[
                ("TYPE h", "+hash"),
                ("OBJECT ENCODING h", "hashtable"),
                ("HLEN h", ":300"),
                ("DBSIZE", ":1"),
                ("HGET h f00007", "v7"),
                ("HGET h f00300", "(nil)"),
                ("HMGET h f00000 x f00299", "[v0, (nil), v299]"),
                ("HSTRLEN h f00010", ":3"),
                ("HEXISTS h f00299", ":1"),
                ("HEXISTS h f00300", ":0"),
                ("HGETALL h", &all),
                ("HSET h f00007 other", ":0"),
                ("HGET h f00007", "other"),
                ("HSET h f00007 v7 new 1", ":1"),
                ("HLEN h", ":301"),
                ("HINCRBY h new 4", ":5"),
                ("HDEL h new new", ":1"),
                ("HSETNX h f00001 x", ":0"),
                ("HSETNX h g x", ":1"),
                ("HDEL h g", ":1"),
                ("HLEN h", ":300"),
            ]);
            server.restart();
            client = server.client();
        }
    }
}

#[test]
fn hscan_returns_each_field_of_a_large_hash_once() {
    let server = TestServer::start();
    let mut client = server.client();
    fill(&mut client, "h", LARGE_FIELDS);
    let (mut cursor, mut found) = ("0".to_string(), Vec::new());
    loop {
        let reply = client.run(&format!("HSCAN h {cursor} COUNT 7"));
        let (next, pairs) = reply.trim_matches(['[', ']']).split_once(", [").unwrap();
        let pairs: Vec<&str> = pairs.split(", ").collect();
        assert!(pairs.len() <= 14, "{reply}");
        found.extend(pairs.chunks(2).map(|pair| format!("{}, {}", pair[0], pair[1])));
        cursor = next.into();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(format!("[{}]", found.join(", ")), filled(LARGE_FIELDS));
}

#[test]
fn random_fields_of_a_large_hash_differ_and_exist() {
    let server = TestServer::start();
    let mut client = server.client();
    fill(&mut client, "h", LARGE_FIELDS);
    let text = client.run("HRANDFIELD h 50 WITHVALUES");
    let words: Vec<&str> = text.trim_matches(['[', ']']).split(", ").collect();
    let mut fields: Vec<&str> = words.chunks(2).map(|pair| pair[0]).collect();
    for pair in words.chunks(2) {
        let number: usize = pair[0][1..].parse().unwrap();
        assert_eq!(pair[1], format!("v{number}"));
    }
    fields.sort_unstable();
    fields.dedup();
    assert_eq!(fields.len(), 50);
    assert_eq!(client.run("HRANDFIELD h 9999").matches(", ").count(), LARGE_FIELDS - 1);
    assert_eq!(client.run("HRANDFIELD h -999").matches(", ").count(), 998);
    assert_eq!(client.run("HRANDFIELD h -9999999"), "-ERR value is out of range");
    // A short command must not cause an unbounded reply.
    client.run_arguments(&["HSET", "long", "f", &"x".repeat(1 << 20)]);
    assert_eq!(client.run("HRANDFIELD long -1000000 WITHVALUES"), "-ERR value is out of range");
    client.run_arguments(&["HSET", "listed", &"f".repeat(8000), "v"]);
    assert_eq!(client.run("HRANDFIELD listed -1000000"), "-ERR value is out of range");
}

#[test]
fn large_hashes_are_renamed_copied_and_moved() {
    let mut server = TestServer::start();
    let mut client = server.client();
    fill(&mut client, "h", LARGE_FIELDS);
    let all = filled(LARGE_FIELDS);
    client.check(&[
        ("RENAME h i", "+OK"),
        ("HGETALL h", "[]"),
        ("HGETALL i", &all),
        ("COPY i j", ":1"),
        ("HSET j f00000 changed", ":0"),
        ("HGETALL i", &all),
        ("COPY i k DB 3", ":1"),
        ("MOVE i 2", ":1"),
        ("EXISTS i", ":0"),
        ("SELECT 2", "+OK"),
        ("HGETALL i", &all),
        ("SELECT 3", "+OK"),
        ("HGETALL k", &all),
        ("SWAPDB 2 3", "+OK"),
        ("HGETALL i", &all),
        ("SELECT 0", "+OK"),
        ("HGET j f00000", "changed"),
        ("PEXPIRE j 100000", ":1"),
        ("HSET j x y", ":1"),
        ("RENAME j l", "+OK"),
    ]);
    assert_ne!(client.run("PTTL l"), ":-1");
    server.restart();
    server.client().check(&[
        ("HLEN l", ":301"),
        ("SELECT 3", "+OK"),
        ("HGETALL i", &all),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn transactions_change_large_hashes_as_one_step() {
    let mut server = TestServer::start();
    let mut client = server.client();
    fill(&mut client, "h", LARGE_FIELDS);
    client.check(&[
        ("MULTI", "+OK"),
        ("HSET h f00000 new extra 1", "+QUEUED"),
        ("HGET h f00000", "+QUEUED"),
        ("HDEL h f00001 f00002", "+QUEUED"),
        ("HMGET h f00001 extra", "+QUEUED"),
        ("HLEN h", "+QUEUED"),
        ("HSET h toolong", "-ERR wrong number of arguments for 'hset' command"),
        ("DISCARD", "+OK"),
        ("HGET h extra", "(nil)"),
        ("MULTI", "+OK"),
        ("HSET h f00000 new extra 1", "+QUEUED"),
        ("HGET h f00000", "+QUEUED"),
        ("HDEL h f00001 f00002", "+QUEUED"),
        ("HMGET h f00001 extra", "+QUEUED"),
        ("HLEN h", "+QUEUED"),
        ("RENAME h i", "+QUEUED"),
        ("COPY i j", "+QUEUED"),
        ("HSET j only j", "+QUEUED"),
        ("HLEN i", "+QUEUED"),
        ("HLEN j", "+QUEUED"),
        ("EXEC", "[:1, new, :2, [(nil), 1], :299, +OK, :1, :1, :299, :300]"),
    ]);
    server.restart();
    let mut client = server.client();
    client.check(&[("HLEN i", ":299"), ("HLEN j", ":300"), ("HGET j extra", "1"), ("HGET i only", "(nil)")]);
    let mut other = server.client();
    client.check(&[("WATCH i", "+OK"), ("MULTI", "+OK"), ("HGET i extra", "+QUEUED")]);
    other.check(&[("HSET i f00009 x", ":0")]);
    client.check(&[("EXEC", "(nil)")]);
}

/// A command that fails within `EXEC` leaves nothing of itself.
#[test]
fn a_failed_command_of_a_transaction_changes_no_hash() {
    let server = TestServer::start();
    let mut client = server.client();
    fill(&mut client, "h", LARGE_FIELDS);
    let long = "x".repeat(65_501);
    client.check(&[("MULTI", "+OK")]);
    client.send(&["HSET", "h", "added", "1", &long, "2"]);
    assert_eq!(super::common::show(&client.receive()), "+QUEUED");
    client.check(&[
        ("HLEN h", "+QUEUED"),
        ("EXEC", "[-ERR a field of a hash has at most 65500 bytes, :300]"),
        ("HEXISTS h added", ":0"),
        ("HLEN h", ":300"),
    ]);
    assert_eq!(client.run("HGETALL h"), filled(LARGE_FIELDS));
}

/// A hash that is too long for one batch is written by one command, and deleted field by field.
#[test]
fn a_hash_longer_than_a_batch_is_written_by_one_command() {
    let server = TestServer::start();
    let mut client = server.client();
    fill(&mut client, "h", 20_000);
    client.check(&[("HLEN h", ":20000"), ("HGET h f19999", "v19999")]);
    assert_eq!(client.run("HGETALL h"), filled(20_000));
    for first in (0..20_000).step_by(1000) {
        let mut arguments = vec!["HDEL".to_string(), "h".into()];
        arguments.extend((first..first + 1000).map(|number| format!("f{number:05}")));
        assert_eq!(client.run_arguments(&arguments), ":1000");
    }
    client.check(&[("EXISTS h", ":0"), ("HSET h a 1", ":1"), ("HGETALL h", "[a, 1]")]);
}

/// Readers see each change of a large hash as one step, while other clients change all of its
/// fields or replace it.
#[test]
fn readers_never_see_a_part_of_a_large_hash() {
    const ROUNDS: usize = 60;
    // More than a step of a walk.
    const FIELDS: usize = 2500;
    for engine in [Engine::fluidkv(), Engine::hikv()] {
        let server = TestServer::start_with(engine, |_| {});
        let address = server.address();
        fill(&mut server.client(), "h", FIELDS);
        let writer = std::thread::spawn(move || {
            let mut client = Client::connect(address);
            for round in 0..ROUNDS {
                let is_replaced = round % 4 == 3;
                let mut arguments = vec!["HSET".to_string(), if is_replaced { "new" } else { "h" }.into()];
                for number in 0..FIELDS {
                    arguments.extend([format!("f{number:05}"), round.to_string()]);
                }
                client.run_arguments(&arguments);
                if is_replaced {
                    // The elements of the old hash become orphans.
                    client.check(&[("RENAME new h", "+OK")]);
                }
            }
        });
        let mut client = server.client();
        while !writer.is_finished() {
            let text = client.run("HVALS h");
            let values: Vec<&str> = text.trim_matches(['[', ']']).split(", ").collect();
            assert_eq!(values.len(), FIELDS);
            assert!(values[0] == "v0" || values.iter().all(|value| *value == values[0]), "a part of {}", values[0]);
        }
        writer.join().unwrap();
    }
}

#[test]
fn elements_of_deleted_and_expired_hashes_are_removed() {
    let mut server = TestServer::start();
    let mut client = server.client();
    for key in ["kept", "deleted", "overwritten", "expired", "renamed"] {
        fill(&mut client, key, LARGE_FIELDS);
    }
    client.check(&[
        ("DEL deleted", ":1"),
        ("SET overwritten 1", "+OK"),
        ("PEXPIRE expired 1", ":1"),
        ("RENAME renamed other", "+OK"),
        ("COPY kept copy", ":1"),
        ("DEL copy", ":1"),
    ]);
    // The restart shows that the sweep needs no memory of the deletes.
    server.restart();
    let elements = |server: &TestServer| server.db().keyspace("lodestore-server/elements-0").unwrap().count().unwrap();
    let expected = 2 * (LARGE_FIELDS as u64 + 1);
    let mut is_swept = false;
    for _ in 0..1000 {
        is_swept = elements(&server) == expected;
        if is_swept {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(is_swept, "{} elements are left, not {expected}", elements(&server));
    let all = filled(LARGE_FIELDS);
    server.client().check(&[("HGETALL kept", &all), ("HGETALL other", &all), ("EXISTS expired", ":0")]);
}

#[test]
fn a_damaged_record_is_named_and_stops_nothing_else() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[("HSET good a 1", ":1")]);
    fill(&mut client, "large", LARGE_FIELDS);
    let keys = server.db().keyspace("lodestore-server/database-0").unwrap();
    keys.put("bad", [1, 2, 1, b'a']).unwrap();
    let lost = [&[2][..], &u64::MAX.to_le_bytes(), &5_u64.to_le_bytes()].concat();
    keys.put("lost", lost).unwrap();
    let error = "-ERR the hash at key 'bad' is damaged: its record is unreadable; delete the key";
    client.check(&[
        ("HGET bad a", error),
        ("HGETALL bad", error),
        ("HSET bad a 1", error),
        ("TYPE bad", "+hash"),
        (
            "HGETALL lost",
            "-ERR the hash at key 'lost' is damaged: the record of the hash names 5 fields, and the \
             store has other fields",
        ),
        ("COPY lost x", "-ERR the hash at key 'lost' is damaged: the hash lacks fields"),
        ("HGET good a", "1"),
        ("HLEN large", ":300"),
        ("DEL bad lost", ":2"),
    ]);
}

/// A full store refuses changes of hashes, and the delete of a large hash frees its space.
#[test]
fn a_deleted_large_hash_frees_space_in_a_full_store() {
    let value = "x".repeat(64 << 10);
    for engine in [Engine::fluidkv(), Engine::hikv()] {
        let server = TestServer::start_with(engine, |_| {});
        let mut client = server.client();
        let full = "-OOM command not allowed when used memory > 'maxmemory'.";
        let mut fields = 0;
        loop {
            let reply = client.run_arguments(&["HSET", "h", &format!("f{fields}"), &value]);
            if reply == full {
                break;
            }
            assert_eq!(reply, ":1");
            fields += 1;
        }
        // The refused command changed nothing.
        client.check(&[("HLEN h", &format!(":{fields}")), ("HSTRLEN h f0", ":65536"), ("DEL h", ":1")]);
        let has_room = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let mut arguments = vec!["HSET", "new"];
            let names: Vec<String> = (0..fields / 2).map(|number| number.to_string()).collect();
            names.iter().for_each(|name| arguments.extend([name.as_str(), value.as_str()]));
            let reply = client.run_arguments(&arguments);
            assert!(reply == full || reply == format!(":{}", fields / 2), "{reply}");
            reply != full
        });
        assert!(has_room);
        client.check(&[("HSTRLEN new 1", ":65536"), ("EXISTS h", ":0")]);
    }
}

#[test]
fn deleted_hashes_free_space_in_a_full_store() {
    for engine in [Engine::hikv(), Engine::fluidkv()] {
        let dir = memory_dir();
        let db = lodestore::Db::builder(dir.path().join("store")).engine(engine.clone()).capacity(24 << 20).open();
        db.expect("a store").close().expect("a clean stop");
        let server = TestServer::start_over(dir, engine.clone());
        let mut client = server.client();
        let fields = (0..900).flat_map(|field| [format!("field{field}"), "x".repeat(100)]);
        let write: Vec<String> = ["HSET".into(), "hash".into()].into_iter().chain(fields).collect();
        for round in 0..200 {
            assert_eq!(client.run_arguments(&write), ":900", "{engine:?}, round {round}");
            assert_eq!(client.run("DEL hash"), ":1", "{engine:?}, round {round}");
        }
    }
}

//! The replies of commands, and their effects.

use super::common::TestServer;
use lodestore::db::Engine;

#[test]
fn strings() {
    let server = TestServer::start();
    server.client().check(&[
        ("GET a", "(nil)"),
        ("SET a 1", "+OK"),
        ("GET a", "1"),
        ("SET a 2 NX", "(nil)"),
        ("SET a 2 XX", "+OK"),
        ("SET b 2 XX", "(nil)"),
        ("SET a 3 GET", "2"),
        ("SET c 3 GET", "(nil)"),
        ("SET a 4 IFEQ 9", "(nil)"),
        ("SET a 4 IFEQ 3", "+OK"),
        ("SET a 5 NX XX", "-ERR syntax error"),
        ("SET a 5 EX", "-ERR syntax error"),
        ("SET a 5 EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET a 5 EX x", "-ERR value is not an integer or out of range"),
        ("SET a 5 EX 1 PX 1", "-ERR syntax error"),
        ("SET a 5 EX 1 KEEPTTL", "-ERR syntax error"),
        ("SETNX a 9", ":0"),
        ("SETNX d 9", ":1"),
        ("GETSET d 8", "9"),
        ("GETDEL d", "8"),
        ("GETDEL d", "(nil)"),
        ("APPEND e ab", ":2"),
        ("APPEND e cd", ":4"),
        ("STRLEN e", ":4"),
        ("GETRANGE e 1 2", "bc"),
        ("GETRANGE e -2 -1", "cd"),
        ("GETRANGE e 3 1", ""),
        ("SUBSTR e 0 0", "a"),
        ("SETRANGE e 6 x", ":7"),
        ("GET e", "abcd\0\0x"),
        ("SETRANGE e -1 x", "-ERR offset is out of range"),
        ("SETRANGE e 536870912 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("MSET f 1 g 2", "+OK"),
        ("MSET f 1 g", "-ERR wrong number of arguments for 'mset' command"),
        ("MGET f g h", "[1, 2, (nil)]"),
        ("MSETNX h 1 f 2", ":0"),
        ("MSETNX h 1 i 2", ":1"),
        ("EXISTS f g h f x", ":4"),
        ("DEL f g x", ":2"),
        ("TYPE h", "+string"),
        ("TYPE x", "+none"),
        ("DELIFEQ h 7", ":0"),
        ("DELIFEQ h 1", ":1"),
    ]);
}

#[test]
fn numbers() {
    let server = TestServer::start();
    server.client().check(&[
        ("INCR a", ":1"),
        ("INCRBY a 41", ":42"),
        ("DECR a", ":41"),
        ("DECRBY a 1", ":40"),
        ("INCRBYFLOAT a 0.5", "40.5"),
        ("INCR a", "-ERR value is not an integer or out of range"),
        ("SET b 9223372036854775807", "+OK"),
        ("INCR b", "-ERR increment or decrement would overflow"),
        ("DECRBY b -9223372036854775808", "-ERR decrement would overflow"),
        ("INCRBYFLOAT c x", "-ERR value is not a valid float"),
        ("INCRBYFLOAT c 3.0e3", "3000"),
    ]);
}

#[test]
fn expiry() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("EXPIRE a 10", ":0"),
        ("TTL a", ":-2"),
        ("SET a 1", "+OK"),
        ("TTL a", ":-1"),
        ("EXPIRE a 100", ":1"),
        ("TTL a", ":100"),
        ("EXPIRE a 50 GT", ":0"),
        ("EXPIRE a 50 LT", ":1"),
        ("EXPIRE a 50 NX", ":0"),
        ("EXPIRE a 50 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("INCR a", ":2"),
        ("TTL a", ":50"),
        ("SET a 1 KEEPTTL", "+OK"),
        ("TTL a", ":50"),
        ("PERSIST a", ":1"),
        ("PERSIST a", ":0"),
        ("TTL a", ":-1"),
        ("EXPIREAT a 1", ":1"),
        ("EXISTS a", ":0"),
        ("SETEX b 100 x", "+OK"),
        ("GETEX b PERSIST", "x"),
        ("TTL b", ":-1"),
        ("PEXPIREAT b 99999999999999", ":1"),
        ("PEXPIRETIME b", ":99999999999999"),
        ("EXPIRETIME b", ":100000000000"),
        ("RENAME b c", "+OK"),
        ("PEXPIRETIME c", ":99999999999999"),
        ("SETEX b 0 x", "-ERR invalid expire time in 'setex' command"),
        ("PSETEX b 1 x", "+OK"),
    ]);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(client.run("GET b"), "(nil)");
}

#[test]
fn keys_and_databases() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("MSET a 1 b 2 c 3", "+OK"),
        ("DBSIZE", ":3"),
        ("KEYS *", "[a, b, c]"),
        ("KEYS [ab]", "[a, b]"),
        ("SCAN 0 COUNT 10", "[0, [a, b, c]]"),
        ("RENAME a b", "+OK"),
        ("GET b", "1"),
        ("RENAME a b", "-ERR no such key"),
        ("RENAMENX b c", ":0"),
        ("RENAMENX b d", ":1"),
        ("COPY d e", ":1"),
        ("COPY d c", ":0"),
        ("COPY d c REPLACE", ":1"),
        ("COPY d f DB 3", ":1"),
        ("MOVE d 3", ":1"),
        ("EXISTS d", ":0"),
        ("SELECT 3", "+OK"),
        ("MGET d f", "[1, 1]"),
        ("SWAPDB 0 3", "+OK"),
        ("KEYS *", "[c, e]"),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":2"),
        ("FLUSHALL", "+OK"),
        ("DBSIZE", ":0"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("LODESTORE.RANGE - +", "[]"),
        ("MSET a 1 b 2 c 3", "+OK"),
        ("LODESTORE.RANGE a c", "[a, b]"),
        ("LODESTORE.RANGE - + REV LIMIT 2 WITHVALUES", "[c, 3, b, 2]"),
        ("RANDOMKEY x", "-ERR wrong number of arguments for 'randomkey' command"),
    ]);
}

#[test]
fn a_scan_shows_each_key_once() {
    let server = TestServer::start();
    let mut client = server.client();
    for number in 0..500 {
        client.run(&format!("SET key:{number} x"));
    }
    let mut keys = std::collections::BTreeSet::new();
    let mut cursor = "0".to_string();
    loop {
        client.send(&["SCAN", &cursor, "COUNT", "7"]);
        let lodestore_wire::Reply::Array(reply) = client.receive() else { panic!("no array") };
        let lodestore_wire::Reply::Array(page) = &reply[1] else { panic!("no array") };
        for key in page {
            assert!(keys.insert(super::common::show(key)), "a key came twice");
        }
        cursor = super::common::show(&reply[0]);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(keys.len(), 500);
    assert!(client.run("SCAN 12345").starts_with("-ERR invalid cursor"));
}

#[test]
fn unknown_commands_and_numbers_of_arguments_have_the_texts_of_redis() {
    let server = TestServer::start();
    server.client().check(&[
        ("NOSUCH a b", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("CLIENT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP."),
        ("NOPE a b", "-ERR unknown command 'NOPE', with args beginning with: 'a' 'b' "),
    ]);
}

#[test]
fn each_engine_with_batches_serves() {
    for engine in [Engine::hikv(), Engine::fluidkv(), Engine::hashkv()] {
        let server = TestServer::start_with(engine, |_| {});
        server.client().check(&[
            ("SET a 1", "+OK"),
            ("INCR a", ":2"),
            ("MULTI", "+OK"),
            ("INCR a", "+QUEUED"),
            ("SET b 5", "+QUEUED"),
            ("EXEC", "[:3, +OK]"),
            ("MGET a b", "[3, 5]"),
            ("KEYS *", "[a, b]"),
            ("FLUSHALL", "+OK"),
            ("DBSIZE", ":0"),
        ]);
    }
}

#[test]
fn data_survives_a_restart() {
    let mut server = TestServer::start();
    server.client().check(&[
        ("SET a 1", "+OK"),
        ("SELECT 2", "+OK"),
        ("SET b 2", "+OK"),
        ("SWAPDB 2 5", "+OK"),
        ("SELECT 3", "+OK"),
        ("SET c 3", "+OK"),
        ("FLUSHDB", "+OK"),
    ]);
    server.restart();
    server.client().check(&[
        ("GET a", "1"),
        ("SELECT 5", "+OK"),
        ("GET b", "2"),
        ("SELECT 2", "+OK"),
        ("DBSIZE", ":0"),
        ("SELECT 3", "+OK"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn a_store_that_lost_the_record_of_its_databases_is_refused_and_keeps_its_keys() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = lodestore::Db::builder(dir.path().join("store")).engine(Engine::hikv()).capacity(64 << 20).open();
    let db = db.expect("a store");
    let config = || lodestore_server::Config { listen: vec![([127, 0, 0, 1], 0).into()], ..Default::default() };
    let start = || lodestore_server::Server::start(db.clone(), config());
    let server = start().expect("a server");
    super::common::Client::connect(server.addresses()[0]).check(&[("SET a 1", "+OK")]);
    server.stop();
    server.wait().expect("a stop");
    let record = db.get("lodestore-server/databases").expect("a read").expect("the record");
    db.delete("lodestore-server/databases").expect("a delete");
    let error = start().expect_err("the record is missing");
    assert!(error.to_string().contains("record of the databases is missing"), "{error}");
    db.put("lodestore-server/databases", &record[..]).expect("a put");
    let server = start().expect("a server");
    super::common::Client::connect(server.addresses()[0]).check(&[("GET a", "1")]);
}

#[test]
fn command_docs_have_the_arguments_of_a_command() {
    let server = TestServer::start();
    let mut client = server.client();
    let key = "[name, key, type, key, key_spec_index, :0]";
    let arguments = [
        ("GETDEL", format!("[{key}]")),
        ("DEL", "[[name, key, type, key, key_spec_index, :0, flags, [+multiple]]]".into()),
        ("COPY", "[[name, source, type, key, key_spec_index, :0], [name, destination, type, key, key_spec_index, :1], [name, db, type, integer, token, DB, flags, [+optional]], [name, replace, type, pure-token, token, REPLACE, flags, [+optional]]]".into()),
        ("FLUSHDB", "[[name, option, type, oneof, flags, [+optional], arguments, [[name, async, type, pure-token, token, ASYNC], [name, sync, type, pure-token, token, SYNC]]]]".into()),
    ];
    for (command, expected) in arguments {
        let docs = client.run(&format!("COMMAND DOCS {command}"));
        assert!(docs.ends_with(&format!(", arguments, {expected}]]")), "{docs}");
    }
    assert!(client.run("COMMAND DOCS MULTI").ends_with(", group, transactions]]"));
}

//! The connection: versions of the protocol, pipelines, bad input, limits and the stop.

use super::common::{TestServer, encode};
use lodestore::db::Engine;
use lodestore_wire::Reply;

#[test]
fn replies_of_a_pipeline_keep_its_order() {
    let server = TestServer::start();
    let mut client = server.client();
    let mut bytes = Vec::new();
    for number in 0..2000 {
        bytes.extend(encode(&["SET", &format!("k{number}"), &number.to_string()]));
        bytes.extend(encode(&["GET", &format!("k{number}")]));
        bytes.extend(encode(&["GET", "absent"]));
        bytes.extend(encode(&["INCR", "count"]));
    }
    client.send_raw(&bytes);
    for number in 0..2000 {
        assert_eq!(client.receive(), Reply::Simple(b"OK".to_vec()));
        assert_eq!(client.receive(), Reply::Bulk(number.to_string().into_bytes()));
        assert_eq!(client.receive(), Reply::Null);
        assert_eq!(client.receive(), Reply::Integer(number + 1));
    }
}

#[test]
fn a_command_may_arrive_byte_by_byte() {
    let server = TestServer::start();
    let mut client = server.client();
    for byte in encode(&["SET", "a", "value"]) {
        client.send_raw(&[byte]);
        std::thread::yield_now();
    }
    assert_eq!(super::common::show(&client.receive()), "+OK");
    client.send_raw(b"get a\r\n");
    assert_eq!(super::common::show(&client.receive()), "value");
}

#[test]
fn hello_chooses_the_version() {
    let server = TestServer::start();
    let mut client = server.client();
    assert!(client.run("HELLO").starts_with("[server, redis, version, 7.4.0, proto, :2"));
    assert!(client.run("HELLO 3").starts_with("{server=redis"));
    client.check(&[
        ("GET a", "(nil)"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
        ("RESET", "+RESET"),
        ("PING", "+PONG"),
        ("PING hi", "hi"),
        ("ECHO hi", "hi"),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "me"),
        ("CLIENT SETINFO LIB-NAME lib", "+OK"),
    ]);
    assert!(client.run("CLIENT LIST").contains("name=me"));
    client.send(&["CLIENT", "REPLY", "SKIP"]);
    client.send(&["PING"]);
    client.check(&[("ECHO next", "next"), ("QUIT", "+OK")]);
    assert_eq!(client.try_receive(), None);
}

#[test]
fn a_protocol_error_is_answered_and_ends_the_connection() {
    let server = TestServer::start();
    for (bytes, text) in [
        (&b"*x\r\n"[..], "-ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'"),
        (b"SET \"a\r\n", "-ERR Protocol error: unbalanced quotes in request"),
    ] {
        let mut client = server.client();
        client.send_raw(bytes);
        assert_eq!(super::common::show(&client.receive()), text);
        assert_eq!(client.try_receive(), None);
    }
    assert_eq!(server.client().run("PING"), "+PONG");
}

#[test]
fn a_command_needs_the_password() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.password = Some("secret".into()));
    let mut client = server.client();
    client.check(&[
        ("GET a", "-NOAUTH Authentication required."),
        ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH default secre", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH secret", "+OK"),
        ("GET a", "(nil)"),
    ]);
    let mut client = server.client();
    assert!(client.run("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(client.run("HELLO 3 AUTH default secret").starts_with('{'));
}

#[test]
fn a_client_above_maxclients_is_refused() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.clients_max = 2);
    let (mut first, mut second) = (server.client(), server.client());
    first.check(&[("PING", "+PONG")]);
    second.check(&[("PING", "+PONG")]);
    let mut third = server.client();
    assert_eq!(
        third.try_receive().map(|reply| super::common::show(&reply)),
        Some("-ERR max number of clients reached".into())
    );
    drop(first);
    // The server notices the end of the first client soon.
    let mut is_served = false;
    for _ in 0..1000 {
        let mut next = server.client();
        next.send(&["PING"]);
        if next.try_receive() == Some(Reply::Simple(b"PONG".to_vec())) {
            is_served = true;
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(is_served);
}

#[test]
fn an_address_that_other_machines_reach_needs_a_password() {
    let config = lodestore_server::Config { listen: vec![([0, 0, 0, 0], 0).into()], ..Default::default() };
    let error = config.check().unwrap_err();
    assert!(error.to_string().contains("set a password"), "{error}");
}

#[test]
fn a_full_store_refuses_writes_and_keeps_running() {
    let server = TestServer::start();
    let mut client = server.client();
    let value = "x".repeat(1 << 20);
    let mut last = String::new();
    for number in 0..200 {
        last = client.run_arguments(&["SET", &format!("k{number}"), &value]);
        if last != "+OK" {
            break;
        }
    }
    assert_eq!(last, "-OOM command not allowed when used memory > 'maxmemory'.");
    client.check(&[("STRLEN k0", ":1048576"), ("DEL k0 k1 k2 k3", ":4")]);
}

#[test]
fn clients_that_send_and_close_at_once_are_removed() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.clients_max = 4);
    for _ in 0..40 {
        let mut client = server.client();
        client.send_raw(b"*1\r\n$4\r\n");
    }
    let is_served = (0..1000).any(|_| {
        let mut next = server.client();
        next.send(&["PING"]);
        std::thread::sleep(std::time::Duration::from_millis(5));
        next.try_receive() == Some(Reply::Simple(b"PONG".to_vec()))
    });
    assert!(is_served, "the places of closed clients stay taken");
}

#[test]
fn a_client_that_closes_its_end_gets_all_replies() {
    let server = TestServer::start();
    let mut client = server.client();
    let bytes: Vec<u8> = (0..40_000).flat_map(|number| encode(&["ECHO", &number.to_string()])).collect();
    client.send_raw(&bytes);
    client.close_writing();
    for number in 0..40_000 {
        assert_eq!(super::common::show(&client.receive()), number.to_string());
    }
    assert_eq!(client.try_receive(), None);
}

#[test]
fn a_client_that_does_not_read_is_served_when_it_reads_again() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.output_bytes_pause = 10_000);
    let mut client = server.client();
    let value = "x".repeat(3000);
    client.run_arguments(&["SET", "a", &value]);
    let commands = [encode(&["ECHO", &value]), encode(&["GET", "a"])].concat();
    client.send_raw(&commands.repeat(500));
    for _ in 0..1000 {
        assert_eq!(client.receive(), Reply::Bulk(value.clone().into_bytes()));
    }
}

#[test]
fn an_http_request_ends_the_connection() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send_raw(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET stolen 1\r\n");
    assert_eq!(super::common::show(&client.receive()), "-ERR this is not an HTTP server");
    assert_eq!(client.try_receive(), None);
    assert_eq!(server.client().run("EXISTS stolen"), ":0");
}

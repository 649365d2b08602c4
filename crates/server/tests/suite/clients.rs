//! The clients in `CLIENT LIST`, and idle clients.

use super::common::{Client, TestServer, show};
use lodestore::db::Engine;

/// Pause between two checks of a client.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// Maximum checks of a client.
const LOOKS_MAX: usize = 6000;

/// Returns a field of a client in `CLIENT LIST`.
fn field(observer: &mut Client, id: &str, name: &str) -> String {
    let line = observer.run(&format!("CLIENT LIST ID {id}"));
    let found = line.split_whitespace().find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("{name} of {id}: {line}")).to_string()
}

/// Waits until a field of a client has a value.
fn await_field(observer: &mut Client, id: &str, name: &str, is_right: impl Fn(&str) -> bool) -> bool {
    (0..LOOKS_MAX).any(|look| {
        if look > 0 {
            std::thread::sleep(PAUSE);
        }
        is_right(&field(observer, id, name))
    })
}

fn id_of(client: &mut Client) -> String {
    client.run("CLIENT ID").trim_start_matches(':').to_string()
}

#[test]
fn client_list_shows_the_last_command() {
    let server = TestServer::start();
    let (mut client, mut observer) = (server.client(), server.client());
    let id = id_of(&mut client);
    assert_eq!(field(&mut observer, &id, "cmd"), "client|id");
    for (command, shown) in [("SET a 1", "set"), ("GET a", "get"), ("config get port", "config|get"), ("GET", "get")] {
        client.run(command);
        assert_eq!(field(&mut observer, &id, "cmd"), shown, "{command}");
    }
    client.run("NOSUCH");
    assert_eq!(field(&mut observer, &id, "cmd"), "NULL");
    assert!(client.run("CLIENT INFO").contains(" cmd=client|info "));
}

#[test]
fn client_list_shows_a_last_command_that_shared_its_commit() {
    let server = TestServer::start_at_power(Engine::fluidkv());
    let (mut client, mut observer) = (server.client(), server.client());
    let id = id_of(&mut client);
    client.check(&[("HSET h a 1", ":1")]);
    assert_eq!(field(&mut observer, &id, "cmd"), "hset");
}

#[test]
fn client_list_shows_the_queue_of_a_transaction() {
    let server = TestServer::start();
    let (mut client, mut observer) = (server.client(), server.client());
    let id = id_of(&mut client);
    client.check(&[("MULTI", "+OK")]);
    assert_eq!(field(&mut observer, &id, "multi"), "0");
    client.check(&[("SET a 1", "+QUEUED"), ("GET a", "+QUEUED")]);
    assert_eq!(field(&mut observer, &id, "multi"), "2");
    assert!(field(&mut observer, &id, "multi-mem").parse::<usize>().unwrap() > "SET a 1".len());
    assert_eq!(field(&mut observer, &id, "cmd"), "get");
    client.run("EXEC");
    assert_eq!([field(&mut observer, &id, "multi"), field(&mut observer, &id, "multi-mem")], ["-1", "0"]);
}

#[test]
fn client_list_shows_the_bytes_of_a_client() {
    let server = TestServer::start();
    let (mut client, mut observer) = (server.client(), server.client());
    let id = id_of(&mut client);
    client.send_raw(b"*2\r\n$4\r\nECHO\r\n$5\r\nab");
    assert!(await_field(&mut observer, &id, "qbuf", |bytes| bytes == "20"));
    let free: usize = field(&mut observer, &id, "qbuf-free").parse().unwrap();
    let total: usize = field(&mut observer, &id, "tot-mem").parse().unwrap();
    assert!(free > 0 && total >= free + 20, "{free} free, {total} in total");
    client.send_raw(b"cde\r\n");
    assert_eq!(show(&client.receive()), "abcde");
    assert!(await_field(&mut observer, &id, "qbuf", |bytes| bytes == "0"));
}

#[test]
fn a_timeout_closes_silent_clients_but_no_monitors() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.threads = 1;
        config.idle_timeout = std::time::Duration::from_secs(1);
    });
    let (mut monitor, mut silent) = (server.client(), server.client());
    monitor.check(&[("MONITOR", "+OK")]);
    // The loop checks the monitor, which has been silent for longer, before it closes the client.
    assert_eq!(silent.try_receive(), None);
    assert_eq!(monitor.run("RESET"), "+RESET");
}

#[test]
fn a_client_that_reads_a_long_reply_slowly_is_not_idle() {
    /// Attempts, because the machine may pause between a read and the check of the client.
    const ROUNDS: usize = 5;
    const VALUE_BYTES: usize = 12 << 20;
    let server = TestServer::start();
    let (mut client, mut observer) = (server.client(), server.client());
    let id = id_of(&mut client);
    client.run_arguments(&["SET", "a", &"x".repeat(VALUE_BYTES)]);
    (0..ROUNDS).for_each(|_| client.send(&["GET", "a"]));
    let is_seen_active = (0..ROUNDS - 1).any(|_| {
        assert!(await_field(&mut observer, &id, "idle", |seconds| seconds != "0"));
        // The server sends a part of the next reply.
        client.receive();
        (0..100).any(|_| field(&mut observer, &id, "idle") == "0")
    });
    assert!(is_seen_active, "a client that receives bytes is idle");
}

#[test]
fn info_has_the_medium_and_the_time_of_the_recovery() {
    let server = TestServer::start();
    let info = server.client().run("INFO persistence");
    let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect(name);
    assert_eq!(value("lodestore_medium"), server.db().stats().medium);
    for name in ["lodestore_recovery_ready_seconds", "lodestore_recovery_seconds"] {
        assert!(value(name).parse::<f64>().is_ok_and(|seconds| seconds >= 0.0), "{info}");
    }
    assert!(value("lodestore_recovery_ready_seconds") != "0.000000");
}

//! `CLIENT KILL`: a killed client runs no further command.

use lodestore::db::Engine;

use super::common::{Client, TestServer, encode};

/// Commands that a victim has in flight.
const PIPELINED: usize = 200;

/// Rounds of each case.
const ROUNDS: usize = 10;

/// Sends `pipeline` again and again, until the server closes the connection. Each pipeline has
/// `replies` replies.
fn send_until_closed(mut client: Client, pipeline: &[u8], replies: usize) {
    while client.try_send_raw(pipeline).is_ok() {
        if (0..replies).any(|_| client.try_receive().is_none()) {
            return;
        }
    }
}

/// Kills clients that run `commands`, which change the key `k`. Checks that `k` keeps the value
/// that it has after the reply of `CLIENT KILL`.
fn check_kills(server: &TestServer, commands: &[&[&str]]) {
    let pipeline: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
    let pipeline = pipeline.repeat(PIPELINED);
    let replies = commands.len() * PIPELINED;
    let mut admin = server.client();
    for _ in 0..ROUNDS {
        let mut victim = server.client();
        let id = victim.run("CLIENT ID").trim_start_matches(':').to_string();
        admin.check(&[("SET k 0", "+OK")]);
        let bytes = pipeline.clone();
        let victim = std::thread::spawn(move || send_until_closed(victim, &bytes, replies));
        while admin.run("GET k") == "0" {}
        admin.check(&[(&format!("CLIENT KILL ID {id}"), ":1")]);
        let value = admin.run("GET k");
        victim.join().expect("a victim");
        assert_eq!(admin.run("GET k"), value, "{commands:?} ran after the reply of CLIENT KILL");
    }
}

#[test]
fn a_killed_client_changes_nothing_after_the_reply() {
    for threads in [1, 2] {
        let server = TestServer::start_with(Engine::fluidkv(), |config| config.threads = threads);
        check_kills(&server, &[&["INCR", "k"]]);
        check_kills(&server, &[&["INCR", "k"], &["GET", "k"]]);
        check_kills(&server, &[&["MULTI"], &["INCR", "k"], &["EXEC"]]);
    }
}

#[test]
fn a_killed_client_changes_nothing_after_the_reply_at_power() {
    let server = TestServer::start_at_power(Engine::fluidkv());
    check_kills(&server, &[&["INCR", "k"]]);
    check_kills(&server, &[&["MULTI"], &["INCR", "k"], &["EXEC"]]);
}

#[test]
fn a_transaction_may_kill_other_clients_and_its_own() {
    let server = TestServer::start();
    let (mut admin, mut victim) = (server.client(), server.client());
    let id = victim.run("CLIENT ID").trim_start_matches(':').to_string();
    admin.check(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
    admin.check(&[(&format!("CLIENT KILL ID {id}"), "+QUEUED"), ("EXEC", "[+OK, :1]")]);
    assert_eq!(victim.try_receive(), None);
    admin.check(&[("CLIENT KILL SKIPME no", ":1")]);
    assert_eq!(admin.try_receive(), None);
    server.client().check(&[("GET a", "1")]);
}

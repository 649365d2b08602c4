//! The stop of a server.

use lodestore::db::Engine;

use crate::common::{TestServer, enable_debug, encode, show};

#[test]
fn commands_that_were_read_are_run_and_answered_before_a_stop() {
    // Each tick runs one command, so most commands wait when the stop comes.
    let mut server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.output_bytes_pause = 0;
        enable_debug(config);
    });
    let mut client = server.client();
    const COMMANDS: usize = 1000;
    let mut bytes = encode(&["PING"]);
    bytes.extend(encode(&["DEBUG", "SLEEP", "0.3"]));
    (0..COMMANDS).for_each(|_| bytes.extend_from_slice(b"INCR a\r\n"));
    client.send_raw(&bytes);
    assert_eq!(show(&client.receive()), "+PONG");
    server.stop();
    assert_eq!(show(&client.receive()), "+OK");
    for count in 1..=COMMANDS {
        assert_eq!(show(&client.receive()), format!(":{count}"));
    }
    assert!(client.try_receive().is_none());
    server.restart();
    assert_eq!(server.client().run("GET a"), COMMANDS.to_string());
}

/// The commands would run for three seconds.
#[test]
fn a_stop_does_not_wait_for_all_commands_of_a_long_pipeline() {
    let mut server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.threads = 1;
        enable_debug(config);
    });
    let mut client = server.client();
    let mut bytes = encode(&["PING"]);
    (0..300).for_each(|_| bytes.extend(encode(&["DEBUG", "SLEEP", "0.01"])));
    bytes.extend(encode(&["SET", "done", "1"]));
    client.check(&[("PING", "+PONG")]);
    client.send_raw(&bytes);
    server.restart();
    server.client().check(&[("GET done", "(nil)")]);
}

#[test]
fn shutdown_accepts_the_arguments_of_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("SHUTDOWN LATER", "-ERR syntax error"),
        ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
        ("SHUTDOWN ABORT NOW", "-ERR syntax error"),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ("PING", "+PONG"),
    ]);
    client.send(&["SHUTDOWN", "NOSAVE", "NOW", "FORCE"]);
    assert!(client.try_receive().is_none());
}

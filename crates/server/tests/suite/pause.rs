//! `CLIENT PAUSE`: the waiting commands, and the ends of a pause.

use super::common::{Client, TestServer, encode, show};
use lodestore::db::Engine;

/// Pause between two checks of the clients.
const LOOK_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// Maximum checks of the clients.
const LOOKS_MAX: usize = 6000;

/// A pause of writes that only `CLIENT UNPAUSE` ends within a test.
const LONG_WRITE_PAUSE: &str = "CLIENT PAUSE 10000000 WRITE";

/// Waits until a pause holds commands of `count` clients.
fn await_held(observer: &mut Client, count: usize) {
    let field = format!("blocked_clients:{count}\r");
    let is_found = (0..LOOKS_MAX).any(|look| {
        if look > 0 {
            std::thread::sleep(LOOK_PAUSE);
        }
        observer.run("INFO clients").contains(&field)
    });
    assert!(is_found, "{field}");
}

#[test]
fn a_write_waits_for_the_end_of_a_pause_and_a_read_does_not() {
    for is_power in [false, true] {
        let server = if is_power { TestServer::start_at_power(Engine::fluidkv()) } else { TestServer::start() };
        let (mut admin, mut writer) = (server.client(), server.client());
        let id = writer.run("CLIENT ID");
        admin.check(&[(LONG_WRITE_PAUSE, "+OK")]);
        writer.check(&[
            ("GET a", "(nil)"),
            ("PING", "+PONG"),
            ("SET", "-ERR wrong number of arguments for 'set' command"),
        ]);
        writer.send(&["SET", "a", "1"]);
        await_held(&mut admin, 1);
        let line = admin.run(&format!("CLIENT LIST ID {}", &id[1..]));
        assert!(line.contains("flags=b ") && line.contains("cmd=set "), "{line}");
        admin.check(&[("GET a", "(nil)"), ("CLIENT UNPAUSE", "+OK")]);
        assert_eq!(show(&writer.receive()), "+OK");
        await_held(&mut admin, 0);
        admin.check(&[("GET a", "1")]);
    }
}

#[test]
fn a_pause_of_all_commands_ends_by_its_time() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("CLIENT PAUSE 30", "+OK"), ("PING", "+PONG")]);
    client.check(&[("CLIENT PAUSE 30 ALL", "+OK")]);
    other.send_raw(&[encode(&["GET", "a"]), encode(&["SET", "a", "1"]), encode(&["GET", "a"])].concat());
    assert_eq!([(); 3].map(|()| show(&other.receive())), ["(nil)", "+OK", "1"]);
}

#[test]
fn the_commands_of_a_held_client_keep_their_order() {
    let server = TestServer::start();
    let (mut admin, mut writer) = (server.client(), server.client());
    admin.check(&[(LONG_WRITE_PAUSE, "+OK")]);
    let commands = ["GET a", "INCR a", "GET a", "INCR a", "GET a"];
    writer.send_raw(&commands.map(|command| format!("{command}\r\n")).concat().into_bytes());
    assert_eq!(show(&writer.receive()), "(nil)");
    await_held(&mut admin, 1);
    writer.send_raw(b"INCR a\r\n");
    admin.check(&[("CLIENT UNPAUSE", "+OK")]);
    assert_eq!([(); 5].map(|()| show(&writer.receive())), [":1", "1", ":2", "2", ":3"]);
}

#[test]
fn a_held_client_that_disconnects_is_closed_and_its_command_does_not_run() {
    let server = TestServer::start();
    let (mut admin, mut writer, mut killed) = (server.client(), server.client(), server.client());
    let id = killed.run("CLIENT ID");
    admin.check(&[(LONG_WRITE_PAUSE, "+OK")]);
    writer.send(&["SET", "a", "1"]);
    killed.send(&["SET", "b", "1"]);
    await_held(&mut admin, 2);
    drop(writer);
    await_held(&mut admin, 1);
    admin.check(&[(&format!("CLIENT KILL ID {}", &id[1..]), ":1")]);
    assert!(killed.try_receive().is_none());
    await_held(&mut admin, 0);
    admin.check(&[("CLIENT UNPAUSE", "+OK"), ("EXISTS a b", ":0")]);
}

#[test]
fn a_stop_neither_runs_nor_answers_held_commands() {
    for is_power in [false, true] {
        let mut server = if is_power { TestServer::start_at_power(Engine::fluidkv()) } else { TestServer::start() };
        let (mut admin, mut writer) = (server.client(), server.client());
        admin.check(&[(LONG_WRITE_PAUSE, "+OK")]);
        writer.send_raw(b"GET a\r\nSET a 1\r\nGET a\r\n");
        await_held(&mut admin, 1);
        server.stop();
        assert_eq!(show(&writer.receive()), "(nil)");
        assert!(writer.try_receive().is_none());
        server.restart();
        server.client().check(&[("GET a", "(nil)")]);
    }
}

#[test]
fn an_exec_of_writes_waits_as_one_unit() {
    let server = TestServer::start();
    let (mut admin, mut writer) = (server.client(), server.client());
    writer.check(&[("MULTI", "+OK"), ("INCR a", "+QUEUED"), ("INCR a", "+QUEUED")]);
    admin.check(&[(LONG_WRITE_PAUSE, "+OK"), ("MULTI", "+OK"), ("GET a", "+QUEUED"), ("EXEC", "[(nil)]")]);
    writer.send(&["EXEC"]);
    await_held(&mut admin, 1);
    admin.check(&[("GET a", "(nil)"), ("CLIENT UNPAUSE", "+OK")]);
    assert_eq!(show(&writer.receive()), "[:1, :2]");
}

#[test]
fn the_timeout_of_idle_clients_leaves_out_held_ones() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.idle_timeout = std::time::Duration::from_secs(1);
    });
    let (mut admin, mut writer) = (server.client(), server.client());
    admin.check(&[(LONG_WRITE_PAUSE, "+OK")]);
    writer.send(&["SET", "a", "1"]);
    // The loops check clients ten times a second.
    let end = std::time::Instant::now() + std::time::Duration::from_millis(1500);
    while std::time::Instant::now() < end {
        await_held(&mut admin, 1);
        std::thread::sleep(LOOK_PAUSE);
    }
    admin.check(&[("CLIENT UNPAUSE", "+OK")]);
    assert_eq!(show(&writer.receive()), "+OK");
}

/// Rounds in which writers must rest.
const ROUNDS: usize = 300;

#[test]
fn no_write_is_made_between_the_reply_to_a_pause_and_its_end() {
    for is_power in [false, true] {
        let server = if is_power {
            TestServer::start_at_power_with(Engine::fluidkv(), |config| config.threads = 3)
        } else {
            TestServer::start_with(Engine::fluidkv(), |config| config.threads = 3)
        };
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let mut admin = server.client();
        std::thread::scope(|scope| {
            for words in [&["INCR", "a"][..], &["INCR", "a"], &["HINCRBY", "h", "f", "1"], &["EXEC"]] {
                let (mut writer, is_done) = (server.client(), &is_done);
                scope.spawn(move || {
                    let command = match words {
                        ["EXEC"] => [encode(&["MULTI"]), encode(&["INCR", "a"]), encode(words)].concat(),
                        words => encode(words),
                    };
                    let replies = if words[0] == "EXEC" { 3 } else { 1 };
                    while !is_done.load(std::sync::atomic::Ordering::SeqCst) {
                        writer.send_raw(&command);
                        (0..replies).for_each(|_| drop(writer.receive()));
                    }
                });
            }
            for _ in 0..ROUNDS {
                admin.check(&[(LONG_WRITE_PAUSE, "+OK")]);
                let mut read = || (admin.run("GET a"), admin.run("HGET h f"));
                let before = read();
                let after = [(); 5].map(|()| read());
                assert!(after.iter().all(|pair| *pair == before), "{before:?} {after:?}");
                admin.check(&[("CLIENT UNPAUSE", "+OK"), ("INCR own", ":1"), ("DEL own", ":1")]);
            }
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
    }
}

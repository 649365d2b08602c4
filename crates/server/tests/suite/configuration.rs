//! Options: refusals at a start, and `CONFIG`.

use lodestore::Db;
use lodestore::db::Engine;
use lodestore_server::{Config, MetricsConfig, Server};

use crate::common::{Client, TestServer, show};

/// Returns the error of a start with a changed configuration.
fn refusal(change: impl FnOnce(&mut Config)) -> String {
    let mut config = Config { listen: vec![([127, 0, 0, 1], 0).into()], ..Config::default() };
    change(&mut config);
    let dir = tempfile::tempdir().expect("a directory");
    let builder = Db::builder(dir.path().join("store")).engine(Engine::fluidkv()).capacity(64 << 20);
    let db = builder.open().expect("a store");
    Server::start(db, config).expect_err("a refusal").to_string()
}

#[test]
fn a_server_that_other_machines_reach_needs_a_password() {
    let open = |config: &mut Config| config.listen = vec![([0, 0, 0, 0], 0).into()];
    assert!(refusal(open).contains("set a password (option password, or"));
    let metrics = |allows_remote| MetricsConfig { address: Some(([0, 0, 0, 0], 0).into()), allows_remote };
    assert!(refusal(|config| config.metrics = metrics(false)).contains("set metrics-remote to yes"));
    TestServer::start_with(Engine::fluidkv(), |config| {
        config.password = Some("secret".into());
        open(config);
        config.metrics = metrics(true);
    });
}

#[test]
fn config_get_takes_globs_and_several_patterns() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("CONFIG GET maxclients", "[maxclients, 10000]"),
        ("CONFIG GET MAXCLIENTS timeout", "[maxclients, 10000, timeout, 0]"),
        ("CONFIG GET maxm*", "[maxmemory, 0, maxmemory-clients, 0, maxmemory-policy, noeviction]"),
        ("CONFIG GET appendonly save", "[appendonly, no, save, ]"),
        ("CONFIG GET tcp-keepalive", "[tcp-keepalive, 300]"),
        ("CONFIG GET nothing", "[]"),
        ("CONFIG GET threads", "[threads, 2]"),
        ("CONFIG GET io-threads", "[io-threads, 2]"),
        ("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command"),
    ]);
}

#[test]
fn config_set_makes_all_changes_or_none() {
    let server = TestServer::start();
    let mut client = server.client();
    let failed =
        |name: &str, what: &str| format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {what}");
    client.check(&[
        ("CONFIG SET timeout 100 maxclients 50", "+OK"),
        ("CONFIG GET timeout maxclients", "[maxclients, 50, timeout, 100]"),
        ("CONFIG SET timeout 7 port 1", &failed("port", "can't set immutable config")),
        (
            "CONFIG SET timeout 7 maxclients 0",
            &failed("maxclients", "argument must be between 1 and 1048576 inclusive"),
        ),
        ("CONFIG SET timeout 7 maxclients x", &failed("maxclients", "argument couldn't be parsed into an integer")),
        ("CONFIG SET timeout 7 TIMEOUT 8", &failed("timeout", "duplicate parameter")),
        ("CONFIG SET maxmemory much", &failed("maxmemory", "argument must be a memory value")),
        ("CONFIG SET timeout 7 nothing 8", "-ERR Unknown option or number of arguments for CONFIG SET - 'nothing'"),
        ("CONFIG SET timeout 7 maxclients", "-ERR syntax error"),
        ("CONFIG SET timeout", "-ERR wrong number of arguments for 'config|set' command"),
        ("CONFIG GET timeout", "[timeout, 100]"),
        ("CONFIG SET appendonly no timeout 0", "+OK"),
        ("CONFIG SET appendonly yes", &failed("appendonly", "can't set immutable config")),
        ("CONFIG SET maxmemory 100mb", "+OK"),
        ("CONFIG GET maxmemory timeout", "[maxmemory, 104857600, timeout, 0]"),
        ("CONFIG REWRITE", "-ERR The server is running without a config file"),
        ("CONFIG NOTHING", "-ERR unknown subcommand 'NOTHING'. Try CONFIG HELP."),
    ]);
}

#[test]
fn a_changed_password_applies_to_new_clients_only() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.client(), server.client());
    // The server has accepted it before the change.
    second.check(&[("PING", "+PONG")]);
    first.check(&[("CONFIG GET requirepass", "[requirepass, ]"), ("CONFIG SET requirepass secret", "+OK")]);
    first.check(&[("PING", "+PONG"), ("CONFIG GET requirepass", "[requirepass, secret]")]);
    second.check(&[("PING", "+PONG"), ("RESET", "+RESET"), ("PING", "-NOAUTH Authentication required.")]);
    let mut third = server.client();
    third.check(&[
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH other", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH secret", "+OK"),
        ("CONFIG SET password other", "+OK"),
        ("AUTH secret", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH other", "+OK"),
    ]);
    assert_eq!(first.run_arguments(&[&b"CONFIG"[..], b"SET", b"requirepass", b""]), "+OK");
    server.client().check(&[("PING", "+PONG"), ("CONFIG GET requirepass", "[requirepass, ]")]);
}

#[test]
fn a_refused_change_keeps_the_password() {
    let server = TestServer::start();
    let failed =
        |name: &str, what: &str| format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {what}");
    let mut client = server.client();
    client.check(&[
        ("CONFIG SET requirepass x port 1", &failed("port", "can't set immutable config")),
        ("CONFIG GET requirepass", "[requirepass, ]"),
    ]);
    let text = client.run_arguments(&[&b"CONFIG"[..], b"SET", b"requirepass", b"\xff"]);
    assert_eq!(text, failed("requirepass", "argument must be valid UTF-8"));
    server.client().check(&[("PING", "+PONG")]);
    let exposed = TestServer::start_with(Engine::fluidkv(), |config| {
        config.password = Some("secret".into());
        config.listen = vec![([0, 0, 0, 0], 0).into()];
    });
    let mut client = exposed.client();
    client.check(&[("AUTH secret", "+OK"), ("CONFIG SET timeout 7", "+OK")]);
    let text = client.run_arguments(&[&b"CONFIG"[..], b"SET", b"timeout", b"8", b"requirepass", b""]);
    assert!(text.starts_with(&failed("requirepass", "other machines reach this server")), "{text}");
    client.check(&[("CONFIG GET requirepass timeout", "[requirepass, secret, timeout, 7]")]);
    exposed.client().check(&[("PING", "-NOAUTH Authentication required.")]);
}

#[test]
fn a_changed_maxclients_applies_to_the_next_client() {
    let server = TestServer::start();
    let mut first = server.client();
    first.check(&[("CONFIG SET maxclients 1", "+OK")]);
    let mut second = server.client();
    assert_eq!(show(&second.receive()), "-ERR max number of clients reached");
    first.check(&[("CONFIG SET maxclients 2", "+OK")]);
    // The refused connection may count until it is closed.
    let mut third = server.client();
    third.check(&[("PING", "+PONG")]);
}

#[test]
fn a_changed_length_of_arguments_and_a_changed_timeout_apply_at_once() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[("CONFIG SET proto-max-bulk-len 1mb", "+OK")]);
    client.send_raw(b"*2\r\n$4\r\nECHO\r\n$1048577\r\n");
    assert_eq!(show(&client.receive()), "-ERR Protocol error: invalid bulk length");
    let mut idle = server.client();
    idle.check(&[("CONFIG SET timeout 1", "+OK")]);
    assert!(idle.try_receive().is_none(), "an idle client is disconnected");
}

fn is_out_of_memory(text: &str) -> bool {
    text == "-OOM command not allowed when used memory > 'maxmemory'."
}

/// Runs a write until the server accepts it.
fn write_at_last(client: &mut Client, command: &str) {
    while is_out_of_memory(&client.run(command)) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn writes_that_need_space_are_refused_above_maxmemory() {
    let server = TestServer::start_with(Engine::hikv(), |_| {});
    let mut client = server.client();
    client.check(&[("SET a 1", "+OK"), ("SET counter 1", "+OK"), ("CONFIG SET maxmemory 1", "+OK")]);
    for command in ["SET b 1", "INCR counter", "APPEND a 1", "MSET a 2 b 2"] {
        assert!(is_out_of_memory(&client.run(command)), "{command}");
    }
    client.check(&[
        ("GET a", "1"),
        ("EXISTS b", ":0"),
        ("EXPIRE a 100", ":1"),
        ("MULTI", "+OK"),
        ("SET b 1", "-OOM command not allowed when used memory > 'maxmemory'."),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("DEL a", ":1"),
        ("CONFIG SET maxmemory 0", "+OK"),
        ("SET b 1", "+OK"),
    ]);
    let mut other = server.client();
    other.check(&[("MULTI", "+OK"), ("SET c 1", "+QUEUED")]);
    client.check(&[("CONFIG SET maxmemory 1", "+OK")]);
    let refused =
        "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.";
    other.check(&[("EXEC", refused), ("EXISTS c", ":0")]);
}

#[test]
fn a_delete_makes_space_for_the_next_write() {
    let server = TestServer::start_with(Engine::hikv(), |_| {});
    let mut client = server.client();
    let value = vec![b'x'; 4 << 20];
    assert_eq!(client.run_arguments(&[&b"SET"[..], b"big", &value]), "+OK");
    client.check(&[("CONFIG SET maxmemory 3mb", "+OK")]);
    assert!(is_out_of_memory(&client.run("SET a 1")));
    client.check(&[("DEL big", ":1")]);
    write_at_last(&mut client, "SET a 1");
}

#[test]
fn debug_needs_an_option_and_local_means_this_machine() {
    const REFUSED: &str = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you \
                           can run it from a local connection, otherwise you need to set this option in the \
                           configuration file, and then restart the server.";
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("DEBUG", "-ERR wrong number of arguments for 'debug' command"),
        ("DEBUG SLEEP 0", REFUSED),
        ("DEBUG OBJECT a", REFUSED),
        ("DEBUG JMAP", REFUSED),
        ("CONFIG GET enable-debug-command", "[enable-debug-command, no]"),
    ]);
    assert!(client.run("CONFIG SET enable-debug-command yes").contains("can't set immutable config"));
    for word in ["local", "yes"] {
        let option = lodestore_server::options::find("enable-debug-command").expect("an option");
        let server =
            TestServer::start_with(Engine::fluidkv(), |config| option.set(config, &[word.into()]).expect("a value"));
        server.client().check(&[
            ("DEBUG SLEEP 0", "+OK"),
            ("CONFIG GET enable-debug-command", &format!("[enable-debug-command, {word}]")),
        ]);
    }
}

//! Users and permissions: files, changes at runtime, and the batched reads of a tick.

use super::common::{Client, TestServer, encode, show};
use lodestore::db::Engine;
use lodestore_server::{Config, Server};

/// Starts a server whose users are in a file.
fn start_with_file(text: &str) -> (TestServer, tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("users.acl");
    std::fs::write(&path, text).expect("a file");
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.acl_file = Some(path.clone()));
    (server, dir, path)
}

#[test]
fn batched_gets_of_a_restricted_user_are_checked() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.check(&[("MSET a1 1 b1 2", "+OK"), ("ACL SETUSER u on nopass +get +mget ~a*", "+OK")]);
    let mut client = server.client();
    client.check(&[("AUTH u x", "+OK")]);
    let pipeline: Vec<u8> = (0..100).flat_map(|_| [encode(&["GET", "a1"]), encode(&["GET", "b1"])].concat()).collect();
    client.send_raw(&pipeline);
    for _ in 0..100 {
        assert_eq!(show(&client.receive()), "1");
        assert_eq!(
            show(&client.receive()),
            "-NOPERM this user has no permissions to access one of the keys used as arguments"
        );
    }
}

#[test]
fn a_change_of_the_default_user_applies_to_batched_gets_of_connected_clients() {
    let server = TestServer::start();
    let (mut admin, mut client) = (server.client(), server.client());
    admin.check(&[("SET a 1", "+OK"), ("ACL SETUSER boss on >pw +@all ~* &*", "+OK"), ("AUTH boss pw", "+OK")]);
    client.check(&[("GET a", "1")]);
    admin.check(&[("ACL SETUSER default -get", "+OK")]);
    client.send_raw(&encode(&["GET", "a"]).repeat(3));
    for _ in 0..3 {
        assert_eq!(show(&client.receive()), "-NOPERM this user has no permissions to run the 'get' command");
    }
    admin.check(&[("ACL SETUSER default +get", "+OK")]);
    client.check(&[("GET a", "1")]);
}

#[test]
fn a_deleted_user_is_disconnected_and_a_new_one_of_the_name_is_another() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.check(&[("ACL SETUSER u on >pw +@all ~*", "+OK")]);
    let (mut idle, mut busy) = (server.client(), server.client());
    idle.check(&[("AUTH u pw", "+OK")]);
    busy.check(&[("AUTH u pw", "+OK")]);
    admin.check(&[("ACL DELUSER u", ":1"), ("ACL SETUSER u on >new +@all ~*", "+OK")]);
    busy.send(&["PING"]);
    assert_eq!(busy.try_receive(), None);
    assert_eq!(idle.try_receive(), None);
    admin.check(&[("PING", "+PONG")]);
}

/// Receives until the server closes the connection. Returns all texts.
fn receive_all(client: &mut Client) -> Vec<String> {
    std::iter::from_fn(|| client.try_receive()).map(|reply| show(&reply)).collect()
}

#[test]
fn a_user_that_loses_a_channel_loses_the_clients_that_subscribe_to_it() {
    let server = TestServer::start();
    let mut admin = server.client();
    for (commands, channel) in [
        (["SUBSCRIBE a1", "SUBSCRIBE b1"], "a1"),
        (["PSUBSCRIBE a*", "PSUBSCRIBE b*"], "a1"),
        (["SSUBSCRIBE a1", "SSUBSCRIBE b1"], "s"),
    ] {
        admin.check(&[("ACL SETUSER u on >pw +@all ~* resetchannels &a* &b*", "+OK")]);
        let mut clients = commands.map(|command| {
            let mut client = server.client();
            client.check(&[("AUTH u pw", "+OK")]);
            assert!(client.run(command).contains("subscribe"));
            client
        });
        admin.check(&[("ACL SETUSER u >other", "+OK"), ("ACL SETUSER u &c*", "+OK")]);
        let words = if channel == "s" { ["SPUBLISH a1 x", "SPUBLISH b1 x"] } else { ["PUBLISH a1 x", "PUBLISH b1 x"] };
        admin.check(&words.map(|word| (word, ":1")));
        clients.iter_mut().for_each(|client| assert!(show(&client.receive()).contains("message")));
        // A selector may permit what the user itself may not.
        admin.check(&[("ACL SETUSER u resetchannels (+@all &b*)", "+OK")]);
        admin.check(&[(words[0], ":0"), (words[1], ":1")]);
        assert_eq!(receive_all(&mut clients[0]), [""; 0], "{}", commands[0]);
        assert!(show(&clients[1].receive()).contains("message"), "{}", commands[1]);
        admin.check(&[("ACL DELUSER u", ":1")]);
    }
}

#[test]
fn a_user_keeps_its_subscriptions_until_its_own_channels_shrink() {
    let server = TestServer::start();
    let (mut admin, mut client) = (server.client(), server.client());
    assert!(client.run("HELLO 3").starts_with('{'));
    assert!(client.run("SUBSCRIBE a1").contains("subscribe"));
    admin.check(&[("ACL SETUSER u on >pw +@all ~* resetchannels &b*", "+OK")]);
    client.check(&[("AUTH u pw", "+OK")]);
    // The client subscribed as another user, and the rules on channels of `u` only grow.
    admin.check(&[("ACL SETUSER u &c* -get", "+OK"), ("PUBLISH a1 x", ":1")]);
    assert!(show(&client.receive()).contains("message"));
    admin.check(&[("ACL SETUSER u resetchannels &b*", "+OK"), ("PUBLISH a1 x", ":0")]);
    assert_eq!(receive_all(&mut client), [""; 0]);
}

#[test]
fn a_load_closes_the_subscribers_of_lost_channels() {
    let (server, _dir, path) = start_with_file("user default on nopass ~* &* +@all\n");
    let (mut admin, mut lost, mut kept) = (server.client(), server.client(), server.client());
    assert!(lost.run("SUBSCRIBE a1").contains("subscribe"));
    assert!(kept.run("SUBSCRIBE b1").contains("subscribe"));
    std::fs::write(&path, "user default on nopass ~* resetchannels &b* +@all\n").expect("a file");
    admin.check(&[("ACL LOAD", "+OK"), ("PUBLISH b1 x", ":1")]);
    assert_eq!(receive_all(&mut lost), [""; 0]);
    assert_eq!(show(&kept.receive()), "[message, b1, x]");
}

#[test]
fn a_deleted_user_receives_nothing_more() {
    let server = TestServer::start();
    let mut admin = server.client();
    admin.check(&[("ACL SETUSER u on >pw +@all ~* &*", "+OK")]);
    let (mut subscriber, mut monitor) = (server.client(), server.client());
    for (client, command) in [(&mut subscriber, "SUBSCRIBE a"), (&mut monitor, "MONITOR")] {
        client.check(&[("AUTH u pw", "+OK")]);
        assert!(!client.run(command).starts_with('-'));
    }
    admin.check(&[("ACL DELUSER u", ":1"), ("PUBLISH a late", ":0"), ("SET late 1", "+OK"), ("GET late", "1")]);
    assert_eq!(receive_all(&mut subscriber), [""; 0]);
    let lines = receive_all(&mut monitor);
    assert!(!lines.iter().any(|line| line.contains("late")), "{lines:?}");
}

#[test]
fn users_are_saved_and_loaded_again() {
    let (mut server, _dir, path) =
        start_with_file("user default on nopass ~* &* +@all\n\n# a comment\nuser a on nopass +get ~a*\n");
    let mut client = server.client();
    client.check(&[
        ("ACL USERS", "[a, default]"),
        ("ACL SETUSER b on >pw %R~x* &c -@all +@read -ttl (+set ~y)", "+OK"),
        ("ACL SAVE", "+OK"),
    ]);
    let listed = client.run("ACL LIST");
    let saved = std::fs::read_to_string(&path).expect("a file");
    assert_eq!(format!("[{}]", saved.trim_end().replace('\n', ", ")), listed);
    let names: Vec<_> = std::fs::read_dir(path.parent().expect("a parent")).expect("a directory").collect();
    assert_eq!(names.len(), 1, "a temporary file is left");
    client.check(&[("ACL DELUSER a b", ":2"), ("ACL LOAD", "+OK")]);
    assert_eq!(client.run("ACL LIST"), listed);
    server.restart();
    assert_eq!(server.client().run("ACL LIST"), listed);
}

#[test]
fn a_load_is_all_or_nothing_and_names_the_line() {
    let (server, _dir, path) = start_with_file("user a on nopass +@all ~*\n");
    let mut client = server.client();
    let before = client.run("ACL LIST");
    for (text, error) in [
        ("user c on\nuser b +nosuch\n", ":2: Error in applying operation '+nosuch': Unknown command"),
        ("user c on\n\nuser b (+get\n", ":3: Unmatched parenthesis"),
        ("alias c on\n", ":1: the line must begin with 'user'"),
        ("user c on\nuser c off\n", ":2: the user 'c' is named twice"),
    ] {
        std::fs::write(&path, text).expect("a file");
        let reply = client.run("ACL LOAD");
        assert!(reply.starts_with("-ERR ") && reply.contains(error), "{reply}");
        assert!(reply.contains("no change to the previously active ACL rules"), "{reply}");
        assert_eq!(client.run("ACL LIST"), before);
    }
    std::fs::remove_file(&path).expect("a removed file");
    assert!(client.run("ACL LOAD").starts_with("-ERR cannot read"));
}

#[test]
fn a_load_keeps_clients_of_unchanged_users_and_closes_the_others() {
    let (server, _dir, path) =
        start_with_file("user a on nopass +@all\nuser b on nopass +@all\nuser c on nopass +@all\n");
    let mut clients: Vec<Client> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let mut client = server.client();
            client.check(&[(&format!("AUTH {name} x"), "+OK")]);
            client
        })
        .collect();
    std::fs::write(&path, "user a on nopass +@all\nuser b on nopass +ping\n").expect("a file");
    server.client().check(&[("ACL LOAD", "+OK")]);
    assert_eq!(clients[0].run("ACL WHOAMI"), "a");
    assert_eq!(clients[1].try_receive(), None);
    assert_eq!(clients[2].try_receive(), None);
}

#[test]
fn users_of_the_configuration_exist_from_the_start() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.users = vec!["user default off".into(), "reader on >pw +@read ~*".into()];
    });
    let mut client = server.client();
    client.check(&[
        ("GET a", "-NOAUTH Authentication required."),
        ("AUTH default x", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH reader pw", "+OK"),
        ("GET a", "(nil)"),
        ("SET a 1", "-NOPERM this user has no permissions to run the 'set' command"),
        ("RESET", "+RESET"),
        ("GET a", "-NOAUTH Authentication required."),
    ]);
}

#[test]
fn a_configuration_with_refused_users_names_the_line() {
    let check = |change: &dyn Fn(&mut Config)| {
        let mut config = Config { listen: vec![([127, 0, 0, 1], 0).into()], ..Config::default() };
        change(&mut config);
        config.check().expect_err("a refused configuration").to_string()
    };
    let error = check(&|config| config.users = vec!["user a +nosuch".into()]);
    assert!(error.contains("'+nosuch': Unknown command") && error.contains("user a +nosuch"), "{error}");
    let error = check(&|config| config.acl_file = Some("/nonexistent/users.acl".into()));
    assert!(error.contains("/nonexistent/users.acl"), "{error}");
    let error = check(&|config| {
        config.acl_file = Some("/nonexistent/users.acl".into());
        config.users = vec!["user a on".into()];
    });
    assert!(error.contains("either in the configuration"), "{error}");
}

#[test]
fn a_server_that_other_machines_reach_keeps_a_password_on_the_default_user() {
    let open = Config { listen: vec![([0, 0, 0, 0], 0).into()], ..Config::default() };
    assert!(open.check().is_err());
    for users in ["user default on >pw +@all ~*", "user default off nopass"] {
        assert_eq!(Config { users: vec![users.into()], ..open.clone() }.check(), Ok(()), "{users}");
    }
    assert!(Config { users: vec!["user other on >pw +@all".into()], ..open.clone() }.check().is_err());
    let dir = tempfile::tempdir().expect("a directory");
    let db = lodestore::Db::builder(dir.path().join("store")).engine(Engine::fluidkv()).capacity(64 << 20).open();
    let server = Server::start(db.expect("a store"), Config { password: Some("pw".into()), ..open }).expect("a server");
    let address = (std::net::Ipv4Addr::LOCALHOST, server.addresses()[0].port());
    let mut client = Client::connect(address.into());
    client.check(&[("AUTH pw", "+OK")]);
    assert!(client.run("ACL SETUSER default nopass").starts_with("-ERR other machines reach this server"));
    client.check(&[("ACL SETUSER default off nopass", "+OK")]);
}

#[test]
fn the_log_shows_denials_with_their_reason() {
    let server = TestServer::start();
    let mut admin = server.client();
    let mut client = server.client();
    admin.check(&[("ACL SETUSER u on >pw +get +multi +exec ~a", "+OK")]);
    client.run("AUTH u wrong");
    client.check(&[("AUTH u pw", "+OK")]);
    client.run("GET b");
    client.run("GET b");
    client.run("SET a 1");
    client.check(&[("MULTI", "+OK"), ("GET a", "+QUEUED")]);
    admin.check(&[("ACL SETUSER u -get", "+OK")]);
    client.run("EXEC");
    let log = admin.run("ACL LOG");
    for entry in [
        "[count, :1, reason, command, context, multi, object, get, username, u, age-seconds, ",
        "[count, :1, reason, command, context, toplevel, object, set, username, u, age-seconds, ",
        "[count, :2, reason, key, context, toplevel, object, b, username, u, age-seconds, ",
        "[count, :1, reason, auth, context, toplevel, object, AUTH, username, u, age-seconds, ",
    ] {
        assert!(log.contains(entry), "{entry} in {log}");
    }
    assert!(admin.run("ACL LOG 1").starts_with("[[count, :1, reason, command, context, multi,"));
    admin.check(&[("ACL LOG RESET", "+OK"), ("ACL LOG", "[]")]);
}

#[test]
fn rules_on_commands_are_listed_in_the_order_in_which_they_hold() {
    let server = TestServer::start();
    let mut client = server.client();
    for (rules, listed) in [
        ("+get +set", "-@all +get +set"),
        ("+@read -get +get", "-@all +@read"),
        ("-@read", "-@all"),
        ("+@all -@dangerous +keys", "+@all -@dangerous +keys"),
        ("+config|get +config", "-@all +config"),
        ("+config -config|set", "-@all +config -config|set"),
        ("+select|0 +select|1", "-@all +select|0 +select|1"),
        ("+select|0 +select", "-@all +select"),
    ] {
        client.check(&[("ACL DELUSER u", ":0")]);
        client.check(&[(&format!("ACL SETUSER u {rules}"), "+OK")]);
        let user = client.run("ACL GETUSER u");
        assert!(user.contains(&format!("commands, {listed}, keys")), "{rules}: {user}");
        client.check(&[("ACL DELUSER u", ":1")]);
    }
}

#[test]
fn a_description_of_a_key_needs_a_permission_for_it() {
    let server = TestServer::start_with(Engine::fluidkv(), super::common::enable_debug);
    let (mut admin, mut client) = (server.client(), server.client());
    admin.check(&[("MSET secret 1 k1 1", "+OK"), ("ACL SETUSER u on >pw +@all ~k*", "+OK")]);
    client.check(&[("AUTH u pw", "+OK")]);
    for key in ["secret", "none"] {
        client.check(&[(
            &format!("DEBUG OBJECT {key}"),
            "-NOPERM this user has no permissions to access one of the keys used as arguments",
        )]);
    }
    assert!(client.run("debug object k1").contains("encoding:"));
    client.check(&[("DEBUG SLEEP 0", "+OK")]);
}

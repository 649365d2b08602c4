//! Published messages and keyspace events.

use super::common::{Client, TestServer, enable_debug, encode, show};
use lodestore::db::Engine;

/// Starts a server with four event loops.
fn server() -> TestServer {
    TestServer::start_with(Engine::fluidkv(), |config| {
        config.threads = 4;
        enable_debug(config);
    })
}

/// Receives messages and compares their texts.
fn expect(client: &mut Client, messages: &[&str]) {
    for message in messages {
        assert_eq!(show(&client.receive()), *message);
    }
}

#[test]
fn subscribers_of_all_loops_receive_messages() {
    let server = server();
    let mut subscribers: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for (index, subscriber) in subscribers.iter_mut().enumerate() {
        if index % 2 == 0 {
            assert!(subscriber.run("HELLO 3").starts_with('{'));
            subscriber.check(&[("SUBSCRIBE a", ">[subscribe, a, :1]"), ("PSUBSCRIBE b*", ">[psubscribe, b*, :2]")]);
        } else {
            subscriber.check(&[("SUBSCRIBE a", "[subscribe, a, :1]"), ("PSUBSCRIBE b*", "[psubscribe, b*, :2]")]);
        }
    }
    let mut publisher = server.client();
    publisher.check(&[
        ("PUBLISH a one", ":8"),
        ("PUBLISH bee two", ":8"),
        ("PUBLISH c three", ":0"),
        ("PUBSUB CHANNELS", "[a]"),
        ("PUBSUB CHANNELS x*", "[]"),
        ("PUBSUB NUMSUB a b", "[a, :8, b, :0]"),
        ("PUBSUB NUMPAT", ":1"),
    ]);
    for (index, subscriber) in subscribers.iter_mut().enumerate() {
        let push = if index % 2 == 0 { ">" } else { "" };
        expect(subscriber, &[&format!("{push}[message, a, one]"), &format!("{push}[pmessage, b*, bee, two]")]);
    }
}

#[test]
fn messages_of_a_publisher_keep_their_order() {
    const MESSAGES: usize = 5000;
    let server = server();
    let mut subscribers: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for subscriber in &mut subscribers {
        subscriber.check(&[("SUBSCRIBE a", "[subscribe, a, :1]")]);
    }
    let address = server.address();
    let publishers: Vec<_> = (0..2)
        .map(|publisher| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let commands: Vec<u8> = (0..MESSAGES)
                    .flat_map(|number| encode(&["PUBLISH", "a", &format!("{publisher} {number}")]))
                    .collect();
                client.send_raw(&commands);
                (0..MESSAGES).for_each(|_| assert_eq!(show(&client.receive()), ":4"));
            })
        })
        .collect();
    let mut orders: Vec<Vec<String>> = Vec::new();
    for subscriber in &mut subscribers {
        orders.push((0..MESSAGES * 2).map(|_| show(&subscriber.receive())).collect());
    }
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    for publisher in 0..2 {
        let wanted: Vec<String> = (0..MESSAGES).map(|number| format!("[message, a, {publisher} {number}]")).collect();
        let start = format!("[message, a, {publisher} ");
        let seen: Vec<&String> = orders[0].iter().filter(|text| text.starts_with(&start)).collect();
        assert!(seen.into_iter().eq(wanted.iter()));
    }
    // All subscribers see the messages of both publishers in one order.
    assert!(orders.iter().all(|order| *order == orders[0]));
}

#[test]
fn a_subscriber_of_resp2_runs_only_commands_of_subscribers() {
    let server = TestServer::start();
    let restricted = |name: &str| {
        format!(
            "-ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context"
        )
    };
    let mut client = server.client();
    client.check(&[
        ("SUBSCRIBE a", "[subscribe, a, :1]"),
        ("GET x", &restricted("get")),
        ("SET x 1", &restricted("set")),
        ("CLIENT LIST", &restricted("client|list")),
        ("HELLO 3", &restricted("hello")),
        ("PING", "[pong, ]"),
        ("PING hi", "[pong, hi]"),
        ("SSUBSCRIBE q", "[ssubscribe, q, :1]"),
        ("UNSUBSCRIBE", "[unsubscribe, a, :0]"),
        ("GET x", &restricted("get")),
        ("SUNSUBSCRIBE q", "[sunsubscribe, q, :0]"),
        ("GET x", "(nil)"),
        ("UNSUBSCRIBE", "[unsubscribe, (nil), :0]"),
        ("PUNSUBSCRIBE zz", "[punsubscribe, zz, :0]"),
        ("SUBSCRIBE", "-ERR wrong number of arguments for 'subscribe' command"),
        ("PSUBSCRIBE a*", "[psubscribe, a*, :1]"),
        ("RESET", "+RESET"),
        ("GET x", "(nil)"),
    ]);
    let mut other = server.client();
    other.check(&[
        ("PUBLISH a x", ":0"),
        ("PUBSUB NUMPAT", ":0"),
        ("PUBSUB FOO", "-ERR unknown subcommand 'FOO'. Try PUBSUB HELP."),
    ]);
    assert!(client.run("HELLO 3").starts_with('{'));
    client.check(&[("SUBSCRIBE a", ">[subscribe, a, :1]"), ("GET x", "(nil)"), ("PING", "+PONG")]);
    client.check(&[("PUBLISH a own", ":1")]);
    expect(&mut client, &[">[message, a, own]"]);
}

#[test]
fn shard_channels_are_a_space_of_their_own() {
    let server = server();
    let (mut first, mut second) = (server.client(), server.client());
    first.check(&[("SSUBSCRIBE a", "[ssubscribe, a, :1]")]);
    second.check(&[
        ("PUBLISH a x", ":0"),
        ("SPUBLISH a y", ":1"),
        ("PUBSUB SHARDCHANNELS", "[a]"),
        ("PUBSUB SHARDNUMSUB a", "[a, :1]"),
        ("PUBSUB CHANNELS", "[]"),
    ]);
    expect(&mut first, &["[smessage, a, y]"]);
}

/// A message between `SUBSCRIBE` and `UNSUBSCRIBE` of one pipeline comes too late.
#[test]
fn a_subscription_that_ended_receives_nothing_more() {
    let server = server();
    let (mut subscriber, mut publisher) = (server.client(), server.client());
    const KEYS: usize = 10_000;
    const COUNTS: usize = 50;
    let pairs: Vec<String> = (0..KEYS).flat_map(|number| [format!("k{number}"), "1".into()]).collect();
    let command: Vec<&str> = std::iter::once("MSET").chain(pairs.iter().map(String::as_str)).collect();
    assert_eq!(publisher.run_arguments(&command), "+OK");
    // A transaction runs without a pause, and counts keys for some time.
    let counts = "DBSIZE\r\n".repeat(COUNTS);
    let commands = format!("MULTI\r\nSUBSCRIBE a\r\n{counts}UNSUBSCRIBE a\r\nEXEC\r\n");
    let shown = format!("[[subscribe, a, :1], {}[unsubscribe, a, :0]]", format!(":{KEYS}, ").repeat(COUNTS));
    let mut was_published = false;
    for _ in 0..100 {
        subscriber.send_raw(commands.as_bytes());
        was_published |= (0..100).any(|_| publisher.run("PUBLISH a x") == ":1");
        expect(&mut subscriber, &["+OK"]);
        (0..COUNTS + 2).for_each(|_| expect(&mut subscriber, &["+QUEUED"]));
        expect(&mut subscriber, &[&shown]);
        assert_eq!(subscriber.run("ECHO end"), "end");
        if was_published {
            break;
        }
    }
    assert!(was_published, "no message came between the two commands");
}

#[test]
fn clients_are_listed_and_closed_by_type() {
    let server = server();
    let mut subscriber = server.client();
    subscriber.check(&[("CLIENT SETNAME sub", "+OK"), ("SUBSCRIBE a b", "[subscribe, a, :1]")]);
    expect(&mut subscriber, &["[subscribe, b, :2]"]);
    let mut client = server.client();
    let list = client.run("CLIENT LIST TYPE pubsub");
    assert!(list.contains("name=sub") && list.contains("flags=P") && list.contains("sub=2 psub=0"), "{list}");
    assert!(!client.run("CLIENT LIST TYPE normal").contains("name=sub"));
    client.check(&[("CLIENT KILL TYPE pubsub", ":1")]);
    assert_eq!(subscriber.try_receive(), None);
}

#[test]
fn a_subscriber_that_closes_is_forgotten() {
    let server = server();
    let mut publisher = server.client();
    let mut subscriber = server.client();
    subscriber.check(&[("SUBSCRIBE a", "[subscribe, a, :1]"), ("QUIT", "+OK")]);
    assert_eq!(subscriber.try_receive(), None);
    publisher.check(&[("PUBLISH a x", ":0"), ("PUBSUB CHANNELS", "[]")]);
}

/// Most bytes of messages that wait for the event loop of a client, as in `messaging/delivery.rs`.
const QUEUED_BYTES_MAX: usize = 32 << 20;

/// Returns the bytes that wait for the client with a name, or `None` if there is no such client.
fn pending_bytes(client: &mut Client, name: &str) -> Option<usize> {
    let list = client.run("CLIENT LIST");
    let line = list.lines().find(|line| line.contains(&format!(" name={name} ")))?.to_string();
    line.split(" omem=").nth(1)?.split(' ').next()?.parse().ok()
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_at_its_bound() {
    const HARD_BYTES: usize = 1 << 20;
    const MESSAGE_BYTES: usize = 64 << 10;
    let server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.threads = 3;
        config.output_limits.pubsub.hard_bytes = HARD_BYTES;
    });
    let mut publisher = server.client();
    let mut slow = server.client();
    slow.check(&[("CLIENT SETNAME slow", "+OK"), ("SUBSCRIBE a", "[subscribe, a, :1]")]);
    let message = "x".repeat(MESSAGE_BYTES);
    let mut count = 0;
    while publisher.run_arguments(&["PUBLISH", "a", &message]) == ":1" {
        count += 1;
        // The loop of the client may run late. Messages that wait for it have a separate bound.
        let pending = pending_bytes(&mut publisher, "slow").unwrap_or(0);
        assert!(pending <= HARD_BYTES + QUEUED_BYTES_MAX + MESSAGE_BYTES, "{pending} bytes wait, {count} messages");
        assert!(count < 10_000, "the subscriber is never closed");
    }
    publisher.check(&[("PING", "+PONG"), ("PUBSUB NUMSUB a", "[a, :0]")]);
}

#[test]
fn a_client_that_does_not_read_its_invalidations_is_closed_too() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.output_limits.pubsub.hard_bytes = 1 << 20;
    });
    let mut slow = server.client();
    assert!(slow.run("HELLO 3 SETNAME slow").starts_with('{'));
    slow.check(&[("CLIENT TRACKING ON BCAST", "+OK")]);
    let mut writer = server.client();
    let key = "k".repeat(32 << 10);
    let is_closed = (0..10_000).any(|_| {
        assert_eq!(writer.run_arguments(&["SET", &key, "1"]), "+OK");
        let pending = pending_bytes(&mut writer, "slow");
        assert!(pending.unwrap_or(0) < (2 << 20) + QUEUED_BYTES_MAX, "{pending:?} bytes wait");
        pending.is_none()
    });
    assert!(is_closed, "the client is never closed");
}

#[test]
fn write_commands_publish_their_events() {
    let server = server();
    let mut subscriber = server.client();
    subscriber.check(&[("PSUBSCRIBE __keyevent@*", "[psubscribe, __keyevent@*, :1]")]);
    let mut client = server.client();
    client.check(&[("SET a 0", "+OK"), ("CONFIG SET notify-keyspace-events EA", "+OK")]);
    client.check(&[("CONFIG GET notify-keyspace-events", "[notify-keyspace-events, AE]")]);
    let event = |database: usize, name: &str, key: &str| {
        format!("[pmessage, __keyevent@*, __keyevent@{database}__:{name}, {key}]")
    };
    let cases: [(&str, &[(&str, &str)]); 24] = [
        ("SET a 1", &[("set", "a")]),
        ("SET a 1 EX 100", &[("set", "a"), ("expire", "a")]),
        ("SETNX a 1", &[]),
        ("SETEX b 10 1", &[("set", "b"), ("expire", "b")]),
        ("MSET c 1 d 2", &[("set", "c"), ("set", "d")]),
        ("GETSET c 5", &[("set", "c")]),
        ("INCR c", &[("incrby", "c")]),
        ("INCRBYFLOAT c 0.5", &[("incrbyfloat", "c")]),
        ("APPEND c x", &[("append", "c")]),
        ("INCR c", &[]),
        ("SETRANGE c 1 y", &[("setrange", "c")]),
        ("PERSIST a", &[("persist", "a")]),
        ("EXPIRE a 100", &[("expire", "a")]),
        ("GETEX a PERSIST", &[("persist", "a")]),
        ("GETEX a EX 10", &[("expire", "a")]),
        ("GETDEL b", &[("del", "b")]),
        ("RENAME c e", &[("rename_from", "c"), ("rename_to", "e")]),
        ("COPY e f", &[("copy_to", "f")]),
        ("EXPIRE f -1", &[("del", "f")]),
        ("DEL d zz", &[("del", "d")]),
        ("SET e 1 IFEQ no", &[]),
        ("SET e 1 XX GET", &[("set", "e")]),
        ("DELIFEQ e 1", &[("del", "e")]),
        ("GET zz", &[]),
    ];
    for (command, events) in cases {
        client.run(command);
        for (name, key) in events {
            assert_eq!(show(&subscriber.receive()), event(0, name, key), "{command}");
        }
    }
    client.check(&[("MOVE a 1", ":1")]);
    expect(&mut subscriber, &[&event(0, "move_from", "a"), &event(1, "move_to", "a")]);
    client.check(&[("CONFIG SET notify-keyspace-events Emn", "+OK"), ("GET zz", "(nil)"), ("SET new 1", "+OK")]);
    client.check(&[("SET new 2", "+OK"), ("INCR count", ":1")]);
    expect(&mut subscriber, &[&event(0, "keymiss", "zz"), &event(0, "new", "new"), &event(0, "new", "count")]);
    assert!(client.run("CONFIG SET notify-keyspace-events Ey").contains("Invalid event class character"));
}

#[test]
fn events_of_a_transaction_follow_its_commit() {
    let server = server();
    let mut subscriber = server.client();
    subscriber.check(&[("PSUBSCRIBE __key*", "[psubscribe, __key*, :1]")]);
    let mut client = server.client();
    client.check(&[("CONFIG SET notify-keyspace-events K$g", "+OK")]);
    client.check(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("DEL a", "+QUEUED"), ("INCR b", "+QUEUED")]);
    client.check(&[("PUBLISH __key x", "+QUEUED"), ("EXEC", "[+OK, :1, :1, :1]")]);
    let event = |key: &str, name: &str| format!("[pmessage, __key*, __keyspace@0__:{key}, {name}]");
    expect(&mut subscriber, &["[pmessage, __key*, __key, x]"]);
    expect(&mut subscriber, &[&event("a", "set"), &event("a", "del"), &event("b", "incrby")]);
    client.check(&[("WATCH a", "+OK"), ("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
    server.client().check(&[("SET a 2", "+OK")]);
    client.check(&[("EXEC", "(nil)"), ("SET c 1", "+OK")]);
    expect(&mut subscriber, &[&event("a", "set"), &event("c", "set")]);
}

#[test]
fn an_expired_key_is_an_event() {
    let server = server();
    let mut subscriber = server.client();
    subscriber.check(&[("PSUBSCRIBE __key*", "[psubscribe, __key*, :1]")]);
    let mut client = server.client();
    client.check(&[("CONFIG SET notify-keyspace-events Ex", "+OK")]);
    client.check(&[("SET a 1 PX 20", "+OK"), ("SET b 1", "+OK"), ("SET c 1 EX 100", "+OK")]);
    client.check(&[("DEL c", ":1"), ("SET d 1 PX 60", "+OK")]);
    let event = |key: &str| format!("[pmessage, __key*, __keyevent@0__:expired, {key}]");
    expect(&mut subscriber, &[&event("a"), &event("d")]);
    client.check(&[("EXISTS a b c d", ":1")]);
}

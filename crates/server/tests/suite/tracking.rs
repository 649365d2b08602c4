//! Client-side caching: `CLIENT TRACKING`.

use super::common::{Client, TestServer, encode, show};
use lodestore::db::Engine;

fn server() -> TestServer {
    TestServer::start_with(Engine::fluidkv(), |config| config.threads = 4)
}

/// Connects a client of RESP3.
fn modern(server: &TestServer) -> Client {
    let mut client = server.client();
    assert!(client.run("HELLO 3").starts_with('{'));
    client
}

#[test]
fn a_key_that_was_read_is_invalidated_once() {
    let server = server();
    let (mut reader, mut writer) = (modern(&server), server.client());
    reader.check(&[
        ("CLIENT TRACKINGINFO", "{flags=~[off], redirect=:-1, prefixes=[]}"),
        ("CLIENT GETREDIR", ":-1"),
        ("CLIENT TRACKING ON", "+OK"),
        ("CLIENT TRACKINGINFO", "{flags=~[on], redirect=:0, prefixes=[]}"),
        ("GET a", "(nil)"),
        ("MGET b c", "[(nil), (nil)]"),
    ]);
    writer.check(&[("SET z 1", "+OK"), ("SET a 1", "+OK"), ("SET a 2", "+OK"), ("MSET b 1 c 2", "+OK")]);
    for key in ["a", "b", "c"] {
        assert_eq!(show(&reader.receive()), format!(">[invalidate, [{key}]]"));
    }
    reader.check(&[("GET a", "2"), ("MULTI", "+OK"), ("GET b", "+QUEUED"), ("EXEC", "[1]")]);
    writer.check(&[("DEL b", ":1"), ("FLUSHDB", "+OK")]);
    assert_eq!(show(&reader.receive()), ">[invalidate, [b]]");
    assert_eq!(show(&reader.receive()), ">[invalidate, (nil)]");
    reader.check(&[("CLIENT TRACKING OFF", "+OK"), ("GET a", "(nil)")]);
    writer.check(&[("SET a 1", "+OK")]);
    reader.check(&[("PING", "+PONG")]);
}

/// A reader caches a counter and drops it at each invalidation. Its cache never stays stale.
#[test]
fn a_cache_ends_with_the_last_value() {
    const ROUNDS: usize = 2000;
    let server = server();
    server.client().check(&[("SET n 0", "+OK")]);
    let address = server.address();
    let mut reader = modern(&server);
    reader.check(&[("CLIENT TRACKING ON", "+OK")]);
    let writer = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        (1..=ROUNDS).for_each(|number| client.check(&[("INCR n", &format!(":{number}"))]));
    });
    let mut last = 0;
    while last < ROUNDS {
        reader.send(&["GET", "n"]);
        // A stale value without an invalidation would make the second wait endless.
        let value = loop {
            match show(&reader.receive()) {
                text if text.starts_with('>') => {}
                text => break text,
            }
        };
        last = value.parse().unwrap();
        if last < ROUNDS {
            assert_eq!(show(&reader.receive()), ">[invalidate, [n]]");
        }
    }
    writer.join().unwrap();
}

#[test]
fn broadcasts_name_changed_keys_by_prefix() {
    let server = server();
    let (mut reader, mut writer) = (modern(&server), server.client());
    reader.check(&[
        ("CLIENT TRACKING ON BCAST PREFIX a PREFIX b NOLOOP", "+OK"),
        ("CLIENT TRACKINGINFO", "{flags=~[on, bcast, noloop], redirect=:0, prefixes=[a, b]}"),
        ("SET a0 1", "+OK"),
    ]);
    writer.check(&[("MULTI", "+OK"), ("SET a1 1", "+QUEUED"), ("SET b1 1", "+QUEUED"), ("SET c1 1", "+QUEUED")]);
    writer.check(&[("SET a2 1", "+QUEUED"), ("EXEC", "[+OK, +OK, +OK, +OK]"), ("DEL a2", ":1")]);
    for keys in ["a1, a2", "b1", "a2"] {
        assert_eq!(show(&reader.receive()), format!(">[invalidate, [{keys}]]"));
    }
    reader.check(&[("PING", "+PONG")]);
}

#[test]
fn opt_in_and_opt_out_choose_reads() {
    let server = server();
    let (mut reader, mut writer) = (modern(&server), server.client());
    reader.check(&[
        ("CLIENT TRACKING ON OPTIN", "+OK"),
        ("GET a", "(nil)"),
        ("CLIENT CACHING NO", "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
        ("CLIENT CACHING YES", "+OK"),
        ("GET b", "(nil)"),
        ("GET c", "(nil)"),
    ]);
    writer.check(&[("SET a 1", "+OK"), ("SET b 1", "+OK"), ("SET c 1", "+OK")]);
    assert_eq!(show(&reader.receive()), ">[invalidate, [b]]");
    reader.check(&[
        ("CLIENT TRACKING OFF", "+OK"),
        ("CLIENT TRACKING ON OPTOUT", "+OK"),
        ("CLIENT CACHING NO", "+OK"),
        ("GET a", "1"),
        ("GET b", "1"),
    ]);
    writer.check(&[("SET a 1", "+OK"), ("SET b 1", "+OK")]);
    assert_eq!(show(&reader.receive()), ">[invalidate, [b]]");
    reader.check(&[("PING", "+PONG")]);
}

#[test]
fn invalidations_go_to_another_client() {
    let server = server();
    let (mut target, mut reader, mut writer) = (server.client(), server.client(), server.client());
    let id = target.run("CLIENT ID").trim_start_matches(':').to_string();
    target.check(&[("SUBSCRIBE __redis__:invalidate", "[subscribe, __redis__:invalidate, :1]")]);
    reader.check(&[
        (&format!("CLIENT TRACKING ON REDIRECT {id}"), "+OK"),
        ("CLIENT GETREDIR", &format!(":{id}")),
        ("GET a", "(nil)"),
    ]);
    writer.check(&[("SET a 1", "+OK"), ("FLUSHALL", "+OK")]);
    assert_eq!(show(&target.receive()), "[message, __redis__:invalidate, [a]]");
    assert_eq!(show(&target.receive()), "[message, __redis__:invalidate, (nil)]");
    target.check(&[("QUIT", "+OK")]);
    assert_eq!(target.try_receive(), None);
    assert!(reader.run("HELLO 3").starts_with('{'));
    reader.check(&[("GET a", "(nil)")]);
    writer.check(&[("SET a 1", "+OK")]);
    assert_eq!(show(&reader.receive()), format!(">[tracking-redir-broken, :{id}]"));
    let info = format!("{{flags=~[on, broken_redirect], redirect=:{id}, prefixes=[]}}");
    reader.check(&[("CLIENT TRACKINGINFO", &info)]);
}

#[test]
fn tracking_may_begin_within_a_transaction() {
    let server = server();
    let (mut reader, mut writer) = (modern(&server), server.client());
    reader.check(&[("MULTI", "+OK"), ("CLIENT TRACKING ON", "+QUEUED"), ("GET a", "+QUEUED"), ("SET b 1", "+QUEUED")]);
    reader.check(&[("EXEC", "[+OK, (nil), +OK]"), ("GET b", "1")]);
    writer.check(&[("SET a 1", "+OK"), ("DEL b", ":1")]);
    assert_eq!(show(&reader.receive()), ">[invalidate, [a]]");
    assert_eq!(show(&reader.receive()), ">[invalidate, [b]]");
}

#[test]
fn the_table_of_keys_is_bounded() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.tracking_keys_max = 2);
    let mut reader = modern(&server);
    reader.check(&[("CLIENT TRACKING ON", "+OK"), ("GET a", "(nil)"), ("GET b", "(nil)"), ("GET c", "(nil)")]);
    assert_eq!(show(&reader.receive()), ">[invalidate, [a]]");
    assert!(server.client().run("INFO stats").contains("tracking_total_keys:2"));
}

#[test]
fn an_expiry_invalidates_a_key() {
    let server = server();
    let (mut reader, mut writer) = (modern(&server), server.client());
    writer.check(&[("SET a 1 PX 1500", "+OK")]);
    reader.check(&[("CLIENT TRACKING ON", "+OK"), ("MGET a b", "[1, (nil)]")]);
    assert_eq!(show(&reader.receive()), ">[invalidate, [a]]");
    reader.check(&[("GET a", "(nil)")]);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let server = TestServer::start();
    server.client().check(&[
        ("CLIENT TRACKING", "-ERR wrong number of arguments for 'client|tracking' command"),
        ("CLIENT TRACKING foo", "-ERR syntax error"),
        ("CLIENT TRACKING ON FOO", "-ERR syntax error"),
        ("CLIENT TRACKING ON PREFIX a", "-ERR PREFIX option requires BCAST mode to be enabled"),
        ("CLIENT TRACKING ON OPTIN OPTOUT", "-ERR You can't specify both OPTIN mode and OPTOUT mode"),
        ("CLIENT TRACKING ON OPTIN BCAST", "-ERR OPTIN and OPTOUT are not compatible with BCAST"),
        ("CLIENT TRACKING ON REDIRECT 9999", "-ERR The client ID you want redirect to does not exist"),
        (
            "CLIENT TRACKING ON BCAST PREFIX a PREFIX ab",
            "-ERR Prefix 'a' overlaps with another provided prefix 'ab'. Prefixes for a single client must not overlap.",
        ),
        (
            "CLIENT CACHING YES",
            "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ),
        ("CLIENT TRACKING ON BCAST", "+OK"),
        (
            "CLIENT TRACKING ON",
            "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        ),
        (
            "CLIENT TRACKING ON BCAST PREFIX x",
            "-ERR Prefix 'x' overlaps with an existing prefix ''. Prefixes for a single client must not overlap.",
        ),
    ]);
}

/// Sends an `EXEC` that sets `a` to 2, reports its begin on the channel `begun`, and runs for long.
fn send_slow_transaction(writer: &mut Client) {
    let mut bytes = encode(&["MULTI"]);
    bytes.extend(encode(&["SET", "a", "2"]));
    bytes.extend(encode(&["PUBLISH", "begun", ""]));
    (0..200).for_each(|_| bytes.extend(encode(&["DBSIZE"])));
    bytes.extend(encode(&["EXEC"]));
    writer.send_raw(&bytes);
}

/// Receives a reply. Returns it with the invalidations before it.
fn receive_reply(reader: &mut Client) -> (String, Vec<String>) {
    let mut pushed = Vec::new();
    loop {
        match show(&reader.receive()) {
            text if text.starts_with('>') => pushed.push(text),
            text => return (text, pushed),
        }
    }
}

/// A client begins to track while a writer holds the stripe of a key. The writer does not know of
/// the client, so the client's first read waits for the writer.
#[test]
fn a_client_that_begins_to_track_misses_no_change_that_runs() {
    const INVALIDATION: &str = ">[invalidate, [a]]";
    for options in ["", " BCAST"] {
        let server = server();
        let (mut writer, mut reader) = (server.client(), modern(&server));
        let pairs: Vec<String> = (0..20_000).flat_map(|number| [format!("k{number}"), "1".into()]).collect();
        let command: Vec<&str> = ["MSET", "a", "1"].into_iter().chain(pairs.iter().map(String::as_str)).collect();
        assert_eq!(writer.run_arguments(&command), "+OK");
        reader.check(&[("SUBSCRIBE begun", ">[subscribe, begun, :1]")]);
        send_slow_transaction(&mut writer);
        assert_eq!(show(&reader.receive()), ">[message, begun, ]");
        reader.send(&["UNSUBSCRIBE"]);
        assert_eq!(show(&reader.receive()), ">[unsubscribe, begun, :0]");
        reader.send_raw(format!("CLIENT TRACKING ON{options}\r\nGET a\r\n").as_bytes());
        assert_eq!(show(&reader.receive()), "+OK");
        let (value, pushed) = receive_reply(&mut reader);
        if value != "2" && !pushed.iter().any(|text| text == INVALIDATION) {
            assert_eq!(show(&reader.receive()), INVALIDATION);
        }
    }
}

/// As above, for writes that share commits.
#[test]
fn a_client_that_begins_to_track_misses_no_change_of_a_group() {
    const ROUNDS: usize = 400;
    let server = TestServer::start_at_power_with(Engine::fluidkv(), |config| config.threads = 4);
    let (mut writer, mut reader) = (server.client(), modern(&server));
    for round in 1..=ROUNDS {
        let value = round.to_string();
        writer.send(&["SET", "n", &value]);
        reader.send_raw(b"CLIENT TRACKING ON\r\nGET n\r\n");
        assert_eq!(receive_reply(&mut reader).0, "+OK");
        let (read, pushed) = receive_reply(&mut reader);
        assert_eq!(show(&writer.receive()), "+OK");
        if read != value && pushed.is_empty() {
            // A stale value without an invalidation would make this wait endless.
            assert_eq!(show(&reader.receive()), ">[invalidate, [n]]", "round {round}");
        }
        reader.send(&["CLIENT", "TRACKING", "OFF"]);
        assert_eq!(receive_reply(&mut reader).0, "+OK");
    }
}

//! Metrics, health and the status page over HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use lodestore::db::Engine;
use lodestore::events::{Event, FoundBy};
use lodestore_server::StoreEvents;
use serde_json::Value;

use crate::common::TestServer;

/// A header by which Prometheus requests OpenMetrics.
const OPENMETRICS: &str = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2\r\n";

/// A key that would run a script if a page did not escape it.
const HOSTILE_KEY: &str = "<img/src=x/onerror=alert(1)></script>";

fn start() -> TestServer {
    TestServer::start_with(Engine::fluidkv(), |config| {
        config.metrics.address = Some(([127, 0, 0, 1], 0).into());
        super::common::enable_debug(config);
    })
}

/// Sends bytes and returns the whole answer.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    // A refused request may end with a reset after the answer.
    drop(stream.read_to_string(&mut answer));
    answer
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
}

fn get_with(address: SocketAddr, path: &str, headers: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\n{headers}\r\n"))
}

/// Returns the numbers of the status page for a request with these headers.
fn status_with(address: SocketAddr, headers: &str) -> Value {
    let answer = get_with(address, "/status.json", headers);
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

fn status(address: SocketAddr) -> Value {
    status_with(address, "Host: 127.0.0.1:1\r\n")
}

#[test]
fn metrics_have_numbers_of_the_server_and_of_its_store() {
    let server = start();
    let mut client = server.client();
    client.check(&[("SET a 1", "+OK"), ("GET a", "1"), ("GET b", "(nil)"), ("GET b", "(nil)")]);
    let text = get_with(server.metrics_address(), "/metrics", OPENMETRICS);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"), "{text}");
    for line in [
        "# TYPE lodestore_server_commands counter",
        "lodestore_server_commands_total 4",
        "lodestore_server_hits_total 1",
        "lodestore_server_misses_total 2",
        "lodestore_server_connected_clients 1",
        "# UNIT lodestore_server_received_bytes bytes",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
    assert!(text.contains("lodestore_recovery_ready_seconds{engine=\"fluidkv\""), "{text}");
    assert!(text.contains("durability=\""), "{text}");
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
}

#[test]
fn clients_without_openmetrics_read_the_same_samples() {
    let server = start();
    server.client().check(&[("SET a 1", "+OK")]);
    let samples = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("lodestore") && line.contains("commands"));
        lines.map(ToOwned::to_owned).collect()
    };
    let openmetrics = get_with(server.metrics_address(), "/metrics", OPENMETRICS);
    let text = get_with(server.metrics_address(), "/metrics", "Accept: */*\r\n");
    assert!(text.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{text}");
    assert!(text.contains("# TYPE lodestore_server_commands_total counter\n"), "{text}");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    assert_eq!(samples(&text), ["lodestore_server_commands_total 1"]);
    assert_eq!(samples(&text), samples(&openmetrics));
}

#[test]
fn each_command_has_a_histogram_and_counts_of_failures() {
    let server = start();
    let mut client = server.client();
    client.check(&[("SET a x", "+OK"), ("DEBUG SLEEP 0.02", "+OK"), ("GET a", "x"), ("GET a", "x")]);
    client.check(&[("INCR a", "-ERR value is not an integer or out of range")]);
    client.check(&[("INCR", "-ERR wrong number of arguments for 'incr' command")]);
    let text = get(server.metrics_address(), "/metrics");
    let number = |sample: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{sample}\n{text}")).parse().expect("a number")
    };
    let times = "lodestore_server_command_duration_seconds";
    assert_eq!(number(&format!("{times}_count{{command=\"get\"}}")), 2.0);
    assert_eq!(number(&format!("{times}_bucket{{le=\"+Inf\",command=\"get\"}}")), 2.0);
    assert!(number(&format!("{times}_sum{{command=\"debug\"}}")) >= 0.02);
    // The sleep lasted longer than 2^24 ns, and shorter than the last bound.
    assert_eq!(number(&format!("{times}_bucket{{le=\"0.016777216\",command=\"debug\"}}")), 0.0);
    assert_eq!(number("lodestore_server_command_failures_total{command=\"incr\"}"), 1.0);
    assert_eq!(number("lodestore_server_command_rejections_total{command=\"incr\"}"), 1.0);
    assert_eq!(number("lodestore_server_error_replies_total{code=\"ERR\"}"), 2.0);
    assert!(!text.contains("command=\"del\""), "commands that nobody called are left out");
}

#[test]
fn the_status_has_times_of_commands_and_slow_commands() {
    let server = start();
    let mut client = server.client();
    client.check(&[("CLIENT SETNAME me", "+OK"), ("CONFIG SET slowlog-log-slower-than 0", "+OK")]);
    client.check(&[(&format!("SET {HOSTILE_KEY} 1"), "+OK"), ("GET a", "(nil)"), ("AUTH secret", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")]);
    let status = status(server.metrics_address());
    let commands = status["commands_used"].as_array().expect("commands");
    let get = commands.iter().find(|command| command["name"] == "get").expect("GET");
    assert_eq!(get["calls"], 1);
    assert_eq!(
        get["buckets"].as_array().expect("buckets").iter().map(|bucket| bucket[1].as_u64().unwrap()).sum::<u64>(),
        1
    );
    let log = &status["slow_log"];
    assert_eq!((&log["threshold_us"], &log["shows_arguments"]), (&0.into(), &1.into()));
    let arguments: Vec<&Value> =
        log["entries"].as_array().expect("entries").iter().map(|entry| &entry["arguments"]).collect();
    assert!(arguments.contains(&&serde_json::json!(["SET", HOSTILE_KEY, "1"])), "{log}");
    assert!(arguments.contains(&&serde_json::json!(["AUTH", "(redacted)"])), "{log}");
    assert_eq!(log["entries"][0]["client"], "me");
}

#[test]
fn arguments_are_hidden_from_readers_who_could_not_run_slowlog() {
    let start = |password: Option<&str>| {
        TestServer::start_with(Engine::fluidkv(), |config| {
            config.metrics.address = Some(([127, 0, 0, 1], 0).into());
            config.password = password.map(ToOwned::to_owned);
        })
    };
    let closed = start(Some("secret"));
    let mut client = closed.client();
    client.check(&[("AUTH secret", "+OK"), ("CONFIG SET slowlog-log-slower-than 0", "+OK"), ("SET my-key 1", "+OK")]);
    let open = start(None);
    let mut client = open.client();
    client.check(&[("CONFIG SET slowlog-log-slower-than 0", "+OK"), ("SET my-key 1", "+OK")]);
    let has_key = |server: &TestServer, headers: &str| {
        let status = status_with(server.metrics_address(), headers);
        assert!(status["slow_log"].to_string().contains("SET"), "{status}");
        status.to_string().contains("my-key")
    };
    assert!(!has_key(&closed, "Host: localhost:1\r\n"), "a password");
    assert!(has_key(&open, "Host: localhost:1\r\n"));
    // The name of another origin may have been made to resolve to this machine.
    assert!(!has_key(&open, "Host: attacker.example:1\r\n"), "a name");
    open.client().check(&[("ACL SETUSER default -slowlog", "+OK")]);
    assert!(!has_key(&open, "Host: localhost:1\r\n"), "no permission");
}

#[test]
fn damage_is_shown() {
    let server = start();
    let events = StoreEvents::default();
    server.report_store_events(&events);
    assert_eq!(status(server.metrics_address())["damage_reports"], 0);
    let event = Event::Corruption { found_by: FoundBy::Scrub, place: "pool.0000".into(), what: "a \"record\"".into() };
    events.observe(&event);
    let status = status(server.metrics_address());
    assert_eq!(status["damage_reports"], 1);
    assert_eq!(status["damage"], event.to_string());
    assert!(get(server.metrics_address(), "/metrics").contains("lodestore_server_damage_reports_total 1\n"));
}

#[test]
fn health_readiness_and_the_page_are_answered() {
    let server = start();
    let address = server.metrics_address();
    assert!(get(address, "/healthz").ends_with("\r\n\r\nok\n"));
    assert!(get(address, "/readyz?x=1").ends_with("\r\n\r\nready\n"));
    let page = get(address, "/");
    assert!(page.contains("<title>Lodestore</title>"));
    assert!(!page.contains("http://") && !page.contains("https://"), "no external resources");
    assert!(page.contains("require-trusted-types-for 'script'") && !page.contains("innerHTML"), "texts stay texts");
    let status = status(address);
    assert_eq!(
        (&status["engine"], &status["clients"], &status["recovery_done"]),
        (&"fluidkv".into(), &0.into(), &1.into())
    );
    let head = ask(address, "HEAD /healthz HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn a_slow_client_delays_no_other() {
    let server = start();
    let address = server.metrics_address();
    let is_answered_later = |_| {
        let mut slow = TcpStream::connect(address).expect("a connection");
        slow.write_all(b"GET /healthz HTTP/1.1\r\n").expect("half a request");
        assert!(get(address, "/healthz").contains("200 OK"));
        // The server has not given up the slow client, if this machine is not very slow.
        drop(slow.write_all(b"\r\n"));
        let mut answer = String::new();
        slow.read_to_string(&mut answer).is_ok() && answer.contains("200 OK")
    };
    assert!((0..5).any(is_answered_later));
}

#[test]
fn other_requests_are_refused() {
    let server = start();
    let address = server.metrics_address();
    for (request, status) in [
        ("GET /nothing HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST / HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        ("GET /\r\n\r\n", "400 Bad Request"),
        ("*1\r\n$4\r\nPING\r\n\r\n", "400 Bad Request"),
    ] {
        assert!(ask(address, request).starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}");
    }
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(20_000));
    assert!(!ask(address, &long).contains("200 OK"));
    assert!(get(address, "/healthz").contains("200 OK"), "the next request is answered");
}

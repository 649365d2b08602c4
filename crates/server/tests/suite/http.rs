//! Metrics, health and the status page over HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use lodestore::db::Engine;

use crate::common::TestServer;

fn start() -> TestServer {
    TestServer::start_with(Engine::fluidkv(), |config| config.metrics.address = Some(([127, 0, 0, 1], 0).into()))
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

#[test]
fn metrics_have_numbers_of_the_server_and_of_its_store() {
    let server = start();
    let mut client = server.client();
    client.check(&[("SET a 1", "+OK"), ("GET a", "1"), ("GET b", "(nil)"), ("GET b", "(nil)")]);
    let text = get(server.metrics_address(), "/metrics");
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
fn health_readiness_and_the_page_are_answered() {
    let server = start();
    let address = server.metrics_address();
    assert!(get(address, "/healthz").ends_with("\r\n\r\nok\n"));
    assert!(get(address, "/readyz?x=1").ends_with("\r\n\r\nready\n"));
    let page = get(address, "/");
    assert!(page.contains("<title>Lodestore</title>"));
    assert!(!page.contains("http://") && !page.contains("https://"), "no external resources");
    let status = get(address, "/status.json");
    assert!(status.contains("\"engine\":\"fluidkv\"") && status.contains("\"clients\":0"), "{status}");
    let head = ask(address, "HEAD /healthz HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
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

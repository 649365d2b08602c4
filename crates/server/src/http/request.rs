//! A request and its answer.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use super::PLAIN;

/// Longest head of a request in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Longest time for a request and its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    /// The path without the query.
    pub(super) path: &'a str,
    head: &'a str,
}

impl Request<'_> {
    /// Returns the value of a header, or an empty text.
    pub(super) fn header(&self, name: &str) -> &str {
        let headers = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut values = headers.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        values.next().map_or("", |(_, value)| value.trim())
    }

    /// Whether the client addressed the server by an IP address or as `localhost`. A web page of
    /// another origin whose name resolves to this machine has another name.
    pub(super) fn names_address(&self) -> bool {
        let host = self.header("host");
        let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        host.is_empty() || name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    status: &'static str,
    media_type: &'static str,
    body: String,
}

impl Answer {
    pub(super) fn ok(media_type: &'static str, body: String) -> Self {
        Self { status: "200 OK", media_type, body }
    }

    pub(super) fn unavailable(body: &str) -> Self {
        Self { status: "503 Service Unavailable", media_type: PLAIN, body: body.into() }
    }

    pub(super) fn failed(body: &str) -> Self {
        Self { status: "500 Internal Server Error", media_type: PLAIN, body: format!("{body}\n") }
    }

    fn refused(status: &'static str) -> Self {
        Self { status, media_type: PLAIN, body: format!("{status}\n") }
    }
}

/// Returns the answer to a request, if there is one.
pub(super) type Responder<'a> = &'a dyn Fn(Request<'_>) -> Option<Answer>;

/// A connection with one request and its answer.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) stream: TcpStream,
    head: Vec<u8>,
    /// The answer, once the head is whole.
    answer: Vec<u8>,
    sent: usize,
    deadline: Instant,
}

/// Whether an exchange continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The exchange waits for its socket.
    Open,
    /// The answer is sent, or the connection failed.
    Done,
}

impl Exchange {
    pub(super) fn new(stream: TcpStream) -> Self {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        Self { stream, head: Vec::new(), answer: Vec::new(), sent: 0, deadline }
    }

    /// Whether the time of the request is over.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Reads the available part of the head, and sends the part of the answer that the socket
    /// accepts.
    pub(super) fn advance(&mut self, responder: Responder<'_>) -> State {
        match self.read_head(responder).and_then(|()| self.send()) {
            Ok(state) => state,
            Err(error) if is_transient(&error) => State::Open,
            Err(_) => State::Done,
        }
    }

    fn read_head(&mut self, responder: Responder<'_>) -> io::Result<()> {
        let mut chunk = [0; 1024];
        while self.answer.is_empty() {
            let bytes = self.stream.read(&mut chunk)?;
            self.head.extend_from_slice(&chunk[..bytes]);
            let is_too_long = self.head.len() > HEAD_BYTES_MAX;
            if is_too_long {
                self.head.clear();
            }
            if bytes == 0 || is_too_long || self.head.windows(4).any(|end| end == b"\r\n\r\n") {
                self.answer = answer(&String::from_utf8_lossy(&self.head), responder);
            }
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<State> {
        while self.sent < self.answer.len() {
            match self.stream.write(&self.answer[self.sent..])? {
                0 => return Ok(State::Done),
                bytes => self.sent += bytes,
            }
        }
        Ok(State::Done)
    }
}

/// Returns the bytes of the answer to a request with this head.
fn answer(head: &str, responder: Responder<'_>) -> Vec<u8> {
    let line = head.lines().next().unwrap_or_default();
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let path = target.split('?').next().unwrap_or_default();
    let answer = match method {
        _ if !is_http => Answer::refused("400 Bad Request"),
        "GET" | "HEAD" => responder(Request { path, head }).unwrap_or_else(|| Answer::refused("404 Not Found")),
        _ => Answer::refused("405 Method Not Allowed"),
    };
    let body = if method == "HEAD" { "" } else { &answer.body };
    // The page has its own style and script, and nothing else is loaded or embedded. No text
    // becomes markup: the browser refuses it (trusted types).
    let text = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'\r\nReferrer-Policy: no-referrer\r\n\r\n{body}",
        answer.status,
        answer.media_type,
        answer.body.len()
    );
    text.into_bytes()
}

/// Whether a read or a write may be tried again.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_name() {
        let names_address = |host: &str| {
            let head = format!("GET / HTTP/1.1\r\nAccept: x\r\nhOst: {host}\r\n\r\n");
            Request { path: "/", head: &head }.names_address()
        };
        for host in ["127.0.0.1", "127.0.0.1:9121", "localhost", "LOCALHOST:80", "[::1]:9121", "[::1]", ""] {
            assert!(names_address(host), "{host}");
        }
        for host in ["attacker.example", "attacker.example:9121", "localhost.attacker.example", "127.0.0.1.example:1"] {
            assert!(!names_address(host), "{host}");
        }
        assert!(Request { path: "/", head: "GET / HTTP/1.0\r\n\r\n" }.names_address());
    }
}

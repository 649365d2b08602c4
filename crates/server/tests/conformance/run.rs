//! Runs a case on a server.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lodestore_wire::{Limits, decode_reply};

use super::cases::{Case, CaseFile};
use super::servers::Running;

/// The recorded reply for the end of the connection.
const CLOSED: &str = "closed";

/// The recorded reply for none within the timeout.
const SILENT: &str = "no reply";

/// Databases that cases use.
const DATABASES: [&str; 4] = ["0", "1", "2", "3"];

/// Connections of each case.
const CONNECTIONS: usize = 3;

/// Users that cases create.
const USERS: [&str; 3] = ["u", "u1", "u2"];

/// A connection to a server.
struct Connection {
    socket: UnixStream,
    buffer: Vec<u8>,
    is_closed: bool,
}

impl Connection {
    fn open(server: &Running) -> Self {
        Self { socket: server.connect(), buffer: Vec::new(), is_closed: false }
    }

    fn send(&mut self, bytes: &[u8]) {
        // The server may have closed the connection. Then no reply comes.
        self.is_closed |= self.socket.write_all(bytes).is_err() && self.buffer.is_empty();
    }

    /// Waits for a reply. Returns its bytes without the last line end, as characters.
    fn receive(&mut self) -> String {
        loop {
            let decoded = decode_reply(&self.buffer, &Limits::default()).expect("a valid reply");
            if let Some((_, length)) = decoded {
                let reply: Vec<u8> = self.buffer.drain(..length).collect();
                let text: String = reply.iter().map(|byte| char::from(*byte)).collect();
                return text.strip_suffix("\r\n").unwrap_or(&text).to_string();
            }
            let mut chunk = [0; 4096];
            match self.socket.read(&mut chunk) {
                Ok(0) => return CLOSED.into(),
                Ok(bytes) => self.buffer.extend_from_slice(&chunk[..bytes]),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    return CLOSED.into();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return SILENT.into(),
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    fn run(&mut self, arguments: &[Vec<u8>]) -> String {
        self.send(&encode(arguments));
        self.receive()
    }

    fn run_words(&mut self, words: &[&str]) -> String {
        let arguments: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.run(&arguments)
    }
}

/// Pause between two checks of a server's clients.
const CLIENTS_PAUSE: Duration = Duration::from_millis(1);

/// Maximum checks of a server's clients.
const CLIENTS_LOOKS_MAX: usize = 60_000;

/// Waits until the server has closed the connections of the case before, which may subscribe.
fn await_only_client(control: &mut Connection) {
    let is_alone = (0..CLIENTS_LOOKS_MAX).any(|look| {
        if look > 0 {
            std::thread::sleep(CLIENTS_PAUSE);
        }
        control.run_words(&["CLIENT", "LIST"]).matches("id=").count() == 1
    });
    assert!(is_alone, "connections of the case before are open");
}

/// Removes the data, the users and the clients of the case before.
fn clean(server: &Running) {
    let mut control = Connection::open(server);
    if let Some(password) = &server.password {
        assert_eq!(control.run_words(&["AUTH", password]), "+OK");
    }
    await_only_client(&mut control);
    // A flush of all databases is slower than a check of those that cases use.
    for database in DATABASES {
        assert_eq!(control.run_words(&["SELECT", database]), "+OK");
        if control.run_words(&["DBSIZE"]) != ":0" {
            assert_eq!(control.run_words(&["FLUSHDB"]), "+OK");
        }
    }
    control.run_words(&[&["ACL", "DELUSER"][..], &USERS].concat());
    control.run_words(&["ACL", "LOG", "RESET"]);
}

/// Runs a case. Returns the replies in order.
pub fn run_case(file: &CaseFile, case: &Case, server: &Running) -> Vec<String> {
    clean(server);
    let mut connections: Vec<Connection> = (0..CONNECTIONS).map(|_| Connection::open(server)).collect();
    if file.protocol == 3 {
        connections.iter_mut().for_each(|connection| drop(connection.run_words(&["HELLO", "3"])));
    }
    let mut replies = Vec::new();
    for command in &case.commands {
        let (number, command) = split_connection(command);
        let connection = &mut connections[number - 1];
        if let Some(raw) = command.strip_prefix("raw:") {
            let (count, bytes) = raw.split_once(':').expect("a number of replies");
            // Each character is a byte.
            let bytes: Vec<u8> = bytes.chars().map(|character| character as u8).collect();
            connection.send(&bytes);
            (0..count.parse().expect("a number")).for_each(|_: usize| replies.push(connection.receive()));
        } else if let Some(count) = command.strip_prefix("read:") {
            (0..count.parse().expect("a number")).for_each(|_: usize| replies.push(connection.receive()));
        } else {
            replies.push(connection.run(&split_words(command)));
        }
    }
    // The path of a server's socket is the address of its clients.
    replies.iter().map(|reply| reply.replace(&server.socket_path(), "SOCKET")).collect()
}

/// Splits the number of the connection from a command: `@2 ` names the second one.
pub fn split_connection(command: &str) -> (usize, &str) {
    let named = command.strip_prefix('@').and_then(|rest| rest.split_once(' '));
    named.map_or((1, command), |(number, command)| (number.parse().expect("a connection"), command))
}

fn encode(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns the words of a pattern: `{1..3:f#:v#}` is `f1 v1 f2 v2 f3 v3`, and `{x*3}` is `xxx`.
fn expand(word: &str) -> Option<Vec<Vec<u8>>> {
    let pattern = word.strip_prefix('{')?.strip_suffix('}')?;
    if let Some((text, count)) = pattern.split_once('*') {
        return Some(vec![text.repeat(count.parse().ok()?).into_bytes()]);
    }
    let (range, templates) = pattern.split_once(':')?;
    let (first, last) = range.split_once("..")?;
    let numbers = first.parse::<usize>().ok()?..=last.parse().ok()?;
    let words = numbers.flat_map(|number| {
        templates.split(':').map(move |template| template.replace('#', &number.to_string()).into_bytes())
    });
    Some(words.collect())
}

/// Splits a command into words. A word in double quotes may have `\r`, `\n` and `\xNN`. A word in
/// braces may be a pattern of [`expand`].
pub fn split_words(command: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = command.as_bytes();
    loop {
        rest = rest.trim_ascii_start();
        let Some(first) = rest.first() else { return words };
        let mut word = Vec::new();
        if *first != b'"' {
            let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
            let text = std::str::from_utf8(&rest[..end]).expect("words of text");
            words.extend(expand(text).unwrap_or_else(|| vec![unescape(text.as_bytes())]));
            rest = &rest[end..];
            continue;
        }
        rest = &rest[1..];
        while !rest.starts_with(b"\"") {
            let length = if rest.starts_with(b"\\") { 2 } else { 1 };
            word.extend_from_slice(&rest[..length]);
            rest = &rest[length..];
        }
        rest = &rest[1..];
        words.push(unescape(&word));
    }
}

fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word;
    loop {
        rest = match rest {
            [] => return bytes,
            [b'\\', b'x', high, low, after @ ..] => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("hexadecimal digits"));
                after
            }
            [b'\\', escaped, after @ ..] => {
                bytes.push(match escaped {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                after
            }
        };
    }
}

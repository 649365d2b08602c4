//! The lines of `MONITOR`.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::Post;
use super::delivery::Payload;
use crate::client::{ClientId, PublicState};
use crate::options;
use crate::words::is_word;

/// Most bytes of an argument in a line. Redis shows all bytes.
const ARGUMENT_BYTES_MAX: usize = 4096;

/// Bytes of a line after which further arguments are only counted. Redis shows all arguments.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Shown instead of a secret.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// The clients that read the commands of all clients.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    clients: Mutex<Vec<Arc<PublicState>>>,
    count: AtomicUsize,
}

impl Monitors {
    fn clients(&self) -> MutexGuard<'_, Vec<Arc<PublicState>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any client reads commands.
    pub(crate) fn is_active(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn add(&self, client: &Arc<PublicState>) {
        let mut clients = self.clients();
        clients.push(Arc::clone(client));
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, client: ClientId) {
        let mut clients = self.clients();
        clients.retain(|other| other.id != client);
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    /// Sends a command of a client to all monitors.
    pub(crate) fn feed(&self, post: &Post, database: usize, client: &PublicState, arguments: &[&[u8]]) {
        let line = Arc::new(line_of(database, &client.address, arguments));
        for monitor in self.clients().iter() {
            post.send(monitor, Payload::Line(Arc::clone(&line)), None);
        }
    }
}

fn line_of(database: usize, address: &str, arguments: &[&[u8]]) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let address = match address.strip_suffix(":0") {
        Some(path) => format!("unix:{path}"),
        None => address.to_string(),
    };
    let mut line = format!("+{}.{:06} [{database} {address}]", now.as_secs(), now.subsec_micros());
    for (index, argument) in arguments.iter().enumerate() {
        if line.len() > LINE_BYTES_MAX {
            // Writing to a string does not fail.
            let _ = write!(line, " ... ({} more arguments)", arguments.len() - index);
            break;
        }
        let shown = if is_secret(arguments, index) { REDACTED } else { argument };
        line.push(' ');
        quote(&mut line, shown);
    }
    line.push_str("\r\n");
    line.into_bytes()
}

/// Appends an argument in quotes, with escapes for bytes that are not printable.
fn quote(line: &mut String, argument: &[u8]) {
    line.push('"');
    for byte in &argument[..argument.len().min(ARGUMENT_BYTES_MAX)] {
        match byte {
            b'\\' | b'"' => line.extend(['\\', char::from(*byte)]),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            7 => line.push_str("\\a"),
            8 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(*byte)),
            // Writing to a string does not fail.
            other => {
                let _ = write!(line, "\\x{other:02x}");
            }
        }
    }
    if argument.len() > ARGUMENT_BYTES_MAX {
        let _ = write!(line, "... ({} more bytes)", argument.len() - ARGUMENT_BYTES_MAX);
    }
    line.push('"');
}

/// Parameters of Redis with secrets that the server does not have.
const SECRET_PARAMETERS: [&str; 3] = ["masterauth", "tls-key-file-pass", "tls-client-key-file-pass"];

/// Whether a parameter of `CONFIG SET` is a secret, under any of its names.
fn is_secret_parameter(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    SECRET_PARAMETERS.contains(&name.as_str()) || options::find(&name).is_some_and(|option| option.is_secret)
}

/// Whether an argument is a secret, which `MONITOR` and `SLOWLOG` do not show.
pub(crate) fn is_secret(arguments: &[&[u8]], index: usize) -> bool {
    let name = arguments[0];
    if index == 0 {
        return false;
    }
    if is_word(name, "auth") {
        return true;
    }
    if is_word(name, "hello") {
        let follows = |distance: usize| index > distance && is_word(arguments[index - distance], "auth");
        return follows(1) || follows(2);
    }
    let subcommand = arguments.get(1).copied().unwrap_or_default();
    if is_word(name, "acl") && is_word(subcommand, "setuser") {
        return index >= 2;
    }
    let is_value = index >= 3 && index % 2 == 1;
    is_word(name, "config") && is_word(subcommand, "set") && is_value && is_secret_parameter(arguments[index - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(arguments: &[&[u8]]) -> String {
        let line = String::from_utf8(line_of(2, "127.0.0.1:5", arguments)).unwrap();
        line.split_once(' ').unwrap().1.trim_end().to_string()
    }

    #[test]
    fn lines_show_arguments_and_no_secrets() {
        assert_eq!(shown(&[b"SET", b"a", b"x\0\n\""]), r#"[2 127.0.0.1:5] "SET" "a" "x\x00\n\"""#);
        assert_eq!(shown(&[b"auth", b"u", b"p"]), r#"[2 127.0.0.1:5] "auth" "(redacted)" "(redacted)""#);
        assert_eq!(
            shown(&[b"HELLO", b"3", b"AUTH", b"u", b"p", b"SETNAME", b"n"]),
            r#"[2 127.0.0.1:5] "HELLO" "3" "AUTH" "(redacted)" "(redacted)" "SETNAME" "n""#
        );
        assert_eq!(
            shown(&[b"CONFIG", b"SET", b"port", b"1", b"requirepass", b"p"]),
            r#"[2 127.0.0.1:5] "CONFIG" "SET" "port" "1" "requirepass" "(redacted)""#
        );
    }

    #[test]
    fn a_line_with_many_arguments_is_cut() {
        let line = line_of(0, "a:1", &vec![&[b'x'; 4000][..]; 1000]);
        assert!(line.len() < LINE_BYTES_MAX + ARGUMENT_BYTES_MAX + 200);
        assert!(
            line.ends_with(b" ... (738 more arguments)\r\n"),
            "{}",
            String::from_utf8_lossy(&line[line.len() - 50..])
        );
    }

    #[test]
    fn a_long_argument_is_cut() {
        let line = line_of(0, "a:1", &[b"SET", &[b'x'; 10_000]]);
        assert!(line.len() < ARGUMENT_BYTES_MAX + 200);
        assert!(line.ends_with(b"... (5904 more bytes)\"\r\n"));
    }
}

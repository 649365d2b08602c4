//! Connections whose next command waits for the end of a pause.
//!
//! Invariants:
//!
//! 1. No command of a held connection runs, and none is looked at, until the connection is
//!    released. An event of its socket sends waiting replies, or closes the connection.
//! 2. A release comes after the pause that held the command: when there is no pause, or when a
//!    later pause has begun, which may hold fewer commands. A tick then decides about the command
//!    again.
//! 3. A stop releases no connection.
//!
//! `CLIENT UNPAUSE` wakes all loops, and a loop with held connections polls at most until the pause
//! ends by time. A held client that closes its end is closed, and its command does not run, as in
//! Redis.

use std::time::{Duration, Instant};

use super::event_loop::{Connection, EventLoop};

/// Longest wait for events while no command is held.
const UNBOUNDED_TIMEOUT: Duration = Duration::MAX;

/// The held connections of a loop.
#[derive(Debug, Default)]
pub(super) struct HeldClients {
    /// Whether a connection may be held.
    has_any: bool,
    /// Number of the last pause at the last check for a release.
    pause_number: u64,
}

impl Connection {
    /// Whether a pause holds the next command.
    pub(super) fn is_held(&self) -> bool {
        self.session.public.figures.is_held()
    }

    /// Whether the client waits for its loop, and not the loop for its client. `is_paused` says
    /// whether the client has too many unsent replies.
    pub(super) fn awaits_loop(&self, is_paused: bool) -> bool {
        self.is_held() || (self.has_commands && !is_paused)
    }
}

impl EventLoop {
    /// Removes the held connections from the ready ones, and sends their waiting replies.
    pub(super) fn serve_held(&mut self, ready: &mut Vec<usize>) {
        if !self.held.has_any {
            return;
        }
        let is_held = |index: &mut usize| self.connections[*index].as_ref().is_some_and(Connection::is_held);
        let held: Vec<usize> = ready.extract_if(.., is_held).collect();
        for index in held {
            self.connections[index].iter_mut().for_each(|connection| connection.is_listed = false);
            self.write(index);
            self.keep_held(index);
        }
    }

    /// Keeps a connection with a held command, or closes the connection if the client has
    /// disconnected.
    pub(super) fn keep_held(&mut self, index: usize) {
        let is_disconnected = self.connections[index].as_ref().is_some_and(|connection| connection.is_closing);
        if is_disconnected {
            self.close(index);
        } else {
            self.held.has_any = true;
        }
    }

    /// Returns the time after which held commands may run.
    pub(super) fn time_to_release(&self) -> Duration {
        if self.held.has_any { self.shared.pause.remaining() } else { UNBOUNDED_TIMEOUT }
    }

    /// Lists all held connections as ready, if the pause that held them is over.
    pub(super) fn release_held(&mut self) {
        // The number comes before the tick, so a pause that begins in the tick is seen next time.
        let number = self.shared.pause.number();
        let is_later = std::mem::replace(&mut self.held.pause_number, number) != number;
        if !self.held.has_any || (!is_later && self.shared.pause_mode().is_some()) {
            return;
        }
        self.held.has_any = false;
        let now = Instant::now();
        for (index, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection.as_mut().filter(|connection| connection.is_held()) else { continue };
            let public = &connection.session.public;
            public.figures.set_held(&self.shared.pause, false);
            // The client was not idle: it waited for the server.
            public.note_activity(now);
            if !connection.is_listed {
                connection.is_listed = true;
                self.ready.push(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::config::Config;
    use crate::loop_server::{LoopServer, receive};
    use crate::pause::PauseMode;

    /// Length of a pause that does not end within a test.
    const PAUSE_TIME: Duration = Duration::from_secs(3600);

    /// Idle time after which the server closes a client, and a longer time.
    const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
    const SLEEP_TIME: Duration = Duration::from_millis(1100);

    /// Bytes of a reply that no socket accepts at once.
    const REPLY_BYTES: usize = 1_000_000;

    /// Creates a server. The caller keeps the directory of its store.
    fn create_server() -> (LoopServer, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let server = LoopServer::create(&dir.path().join("store")).unwrap();
        (server, dir)
    }

    /// Sends a command, and lets the server run it if no pause holds the command.
    fn send(server: &mut LoopServer, client: &mut UnixStream, command: &str) {
        client.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        server.step().unwrap();
    }

    fn begin(server: &LoopServer, mode: PauseMode) {
        server.shared().pause.begin(mode, Instant::now(), PAUSE_TIME);
    }

    fn set_idle_timeout(server: &LoopServer) {
        let set = |config: &mut Config| {
            config.idle_timeout = IDLE_TIMEOUT;
            Ok::<(), ()>(())
        };
        server.shared().runtime.change(set).unwrap();
    }

    fn run_until_idle(server: &mut LoopServer) {
        server.step().unwrap();
        while server.is_busy() {
            server.step().unwrap();
        }
    }

    #[test]
    fn a_read_that_a_pause_of_all_commands_held_runs_in_the_next_pause_of_writes() {
        let (mut server, _dir) = create_server();
        let (mut reader, mut writer) = (server.connect().unwrap(), server.connect().unwrap());
        begin(&server, PauseMode::All);
        send(&mut server, &mut reader, "GET a");
        send(&mut server, &mut writer, "SET a 1");
        assert_eq!(server.shared().pause.held_clients(), 2);
        // The loop does not run between the two pauses.
        server.shared().pause.end();
        begin(&server, PauseMode::Write);
        run_until_idle(&mut server);
        assert_eq!((receive(&mut reader), receive(&mut writer)), ("$-1\r\n".into(), String::new()));
        assert_eq!(server.shared().pause.held_clients(), 1);
    }

    #[test]
    fn further_bytes_of_a_held_client_do_not_run_its_command_again() {
        let (mut server, _dir) = create_server();
        let (mut admin, mut client) = (server.connect().unwrap(), server.connect().unwrap());
        send(&mut server, &mut admin, "ACL SETUSER u on nopass ~* +@all");
        send(&mut server, &mut client, "AUTH u p");
        assert_eq!(receive(&mut client), "+OK\r\n");
        begin(&server, PauseMode::Write);
        send(&mut server, &mut client, "SET a 1");
        // The server would refuse the command now.
        send(&mut server, &mut admin, "ACL SETUSER u -set");
        send(&mut server, &mut client, "PING");
        run_until_idle(&mut server);
        assert_eq!((receive(&mut client), server.shared().pause.held_clients()), (String::new(), 1));
        server.shared().pause.end();
        run_until_idle(&mut server);
        let replies = receive(&mut client);
        assert!(replies.starts_with("-NOPERM ") && replies.ends_with("\r\n+PONG\r\n"), "{replies}");
        assert_eq!(server.shared().pause.held_clients(), 0);
    }

    #[test]
    fn a_held_client_receives_its_earlier_replies() {
        let (mut server, _dir) = create_server();
        let mut client = server.connect().unwrap();
        send(&mut server, &mut client, &format!("SETRANGE b {} x", REPLY_BYTES - 1));
        begin(&server, PauseMode::Write);
        send(&mut server, &mut client, "GETRANGE b 0 -1\r\nSET a 1");
        // The loop may serve other clients first after a long command.
        run_until_idle(&mut server);
        let mut received = receive(&mut client);
        assert!(received.len() < REPLY_BYTES, "{} bytes", received.len());
        assert_eq!(server.shared().pause.held_clients(), 1);
        for _ in 0..REPLY_BYTES {
            server.step().unwrap();
            received += &receive(&mut client);
            if received.len() > REPLY_BYTES {
                break;
            }
        }
        assert_eq!(received.len(), ":1000000\r\n$1000000\r\n\r\n".len() + REPLY_BYTES);
        assert_eq!(server.shared().pause.held_clients(), 1);
    }

    #[test]
    fn a_client_that_a_pause_held_is_not_closed_as_idle_before_its_command_runs() {
        let (mut server, _dir) = create_server();
        set_idle_timeout(&server);
        let (mut slow, mut other) = (server.connect().unwrap(), server.connect().unwrap());
        begin(&server, PauseMode::All);
        send(&mut server, &mut slow, &format!("DEBUG SLEEP {}", SLEEP_TIME.as_secs_f64()));
        send(&mut server, &mut other, "PING");
        std::thread::sleep(SLEEP_TIME);
        server.shared().pause.end();
        run_until_idle(&mut server);
        assert_eq!((receive(&mut slow), receive(&mut other)), ("+OK\r\n".into(), "+PONG\r\n".into()));
    }

    #[test]
    fn a_held_client_without_replies_is_not_idle_once_its_command_ran() {
        let (mut server, _dir) = create_server();
        set_idle_timeout(&server);
        let mut client = server.connect().unwrap();
        send(&mut server, &mut client, "CLIENT REPLY OFF");
        begin(&server, PauseMode::All);
        send(&mut server, &mut client, "SET a 1");
        std::thread::sleep(SLEEP_TIME);
        server.shared().pause.end();
        run_until_idle(&mut server);
        send(&mut server, &mut client, "CLIENT REPLY ON");
        assert_eq!(receive(&mut client), "+OK\r\n");
    }
}

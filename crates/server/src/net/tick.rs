//! The commands of one tick.
//!
//! A tick has rounds. In the first half of a round, each connection gives the `GET`s at the begin
//! of its input. One `multi_get` reads all of their keys, so that the look-ups of all connections
//! wait for memory together. In the second half, each connection runs the other commands up to its
//! next `GET`. Therefore the commands of one connection keep their order.
//!
//! If each commit waits for a device, the second half leaves out the writes, and a group of writes
//! ends the round (`group`).
//!
//! A tick ends after [`TICK_TIME_MAX`], so that new clients, other loops and a stop are seen. A
//! connection that such a tick did not serve is one of the first ones in the next tick.

use std::time::{Duration, Instant};

use lodestore_wire::{Limits, ReplyWriter};
use smallvec::SmallVec;

use super::buffers::{Input, Output};
use super::event_loop::Connection;
use super::gets::PendingGet;
use super::group::GroupSize;
use crate::command::dispatch::{self, Progress, ViewCache};
use crate::command::grouped;
use crate::session::Session;
use crate::shared::Shared;

/// Maximum arguments that need no allocation.
pub(super) const INLINE_ARGUMENTS_MAX: usize = 8;

/// Most commands of one connection in a tick, so that all connections get their turn.
const TICK_COMMANDS_MAX: usize = 16_384;

/// Time after which a tick begins no further command, but for one group of writes.
const TICK_TIME_MAX: Duration = Duration::from_millis(20);

/// A tick appends at most `maxmemory-clients` divided by this, and one reply more. Then the largest
/// clients are closed if necessary, and the next tick continues.
const TICK_MEMORY_DIVISOR: usize = 8;

/// A connection whose commands run in a tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct ActiveConnection {
    /// Index of the connection.
    pub(super) index: usize,
    /// Commands that ran in this tick.
    pub(super) count: usize,
    /// Whether the connection had its turn in this half of the round.
    pub(super) is_served: bool,
}

/// The end of the second half of a round for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunOutcome {
    /// This many commands ran, and more may follow.
    Ran(usize),
    /// Too many bytes of replies are not sent, or the tick has appended too many.
    Paused,
    /// A pause holds the next command.
    Held,
    /// There is no further complete command.
    Done,
}

/// The state that a tick works on. All three lists have the same indexes.
pub(crate) struct Tick<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) view: &'a mut ViewCache,
    pub(crate) connections: &'a mut [Option<Connection>],
    pub(crate) inputs: &'a mut [Input],
    pub(crate) outputs: &'a mut [Output],
    /// Whether each commit waits for a device.
    pub(crate) groups_writes: bool,
    /// The maximum size of the next group.
    pub(crate) group_size: &'a mut GroupSize,
    /// When the tick ends.
    pub(crate) deadline: Instant,
    /// Bytes of replies that the tick has appended, without those of groups.
    pub(crate) appended_bytes: usize,
}

/// Returns when a tick ends that begins now.
pub(crate) fn tick_deadline() -> Instant {
    Instant::now() + TICK_TIME_MAX
}

impl Tick<'_> {
    /// Runs the complete commands of the connections. Returns the connections whose input may have
    /// further complete commands, because their turn ended, their replies are not sent, or a pause
    /// holds the next command. Connections that were not served are first.
    pub(crate) fn run(mut self, ready: &[usize]) -> Vec<usize> {
        let start = |index: &usize| ActiveConnection { index: *index, count: 0, is_served: false };
        let mut active: SmallVec<[ActiveConnection; 64]> = ready.iter().map(start).collect();
        let mut unfinished = Vec::new();
        let mut gets: Vec<PendingGet> = Vec::new();
        while !active.is_empty() {
            gets.clear();
            for connection in &mut active {
                connection.count += self.collect_gets(connection.index, &mut gets);
            }
            self.answer_gets(&mut gets);
            self.run_other_commands(&mut active, &mut unfinished);
            if self.groups_writes {
                self.run_group(&mut active);
            }
            if self.is_late() {
                break;
            }
        }
        let mut all: Vec<usize> = active.into_iter().map(|connection| connection.index).collect();
        all.append(&mut unfinished);
        all
    }

    /// Whether the time of the tick has passed.
    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Runs the second half of a round, at least for one connection. Connections that have no
    /// further turn in this tick are removed. If the time passes, the others come last.
    fn run_other_commands(&mut self, active: &mut SmallVec<[ActiveConnection; 64]>, unfinished: &mut Vec<usize>) {
        let mut is_late = false;
        active.retain(|connection| {
            connection.is_served = !is_late;
            if is_late {
                return true;
            }
            if connection.count >= TICK_COMMANDS_MAX {
                unfinished.push(connection.index);
                return false;
            }
            let ran = self.run_other_commands_of(*connection);
            match ran {
                RunOutcome::Ran(commands) => {
                    connection.count += commands;
                    is_late = commands > 0 && self.is_late();
                }
                RunOutcome::Paused | RunOutcome::Held => unfinished.push(connection.index),
                RunOutcome::Done => {}
            }
            matches!(ran, RunOutcome::Ran(_))
        });
        if is_late {
            active.sort_by_key(|connection| connection.is_served);
        }
    }

    pub(super) fn limits(shared: &Shared, session: &Session) -> Limits {
        let bulk_bytes_max = shared.runtime.bulk_bytes_max();
        Limits { bulk_bytes_max, is_stranger: !session.is_authenticated, ..Limits::default() }
    }

    /// Returns the maximum bytes of replies that the tick appends before its end.
    pub(super) fn appended_max(&self) -> usize {
        self.shared.runtime.clients_memory_max() / TICK_MEMORY_DIVISOR
    }

    /// Runs the commands of a connection up to its next `GET`, or up to its next write if groups
    /// run the writes.
    fn run_other_commands_of(&mut self, active: ActiveConnection) -> RunOutcome {
        let index = active.index;
        let appended_max = self.appended_max();
        let Some(connection) = self.connections[index].as_mut() else { return RunOutcome::Done };
        let session = &mut connection.session;
        let (input, output) = (&mut self.inputs[index], &mut self.outputs[index]);
        let mut count = 0;
        loop {
            if session.has_ended() {
                return RunOutcome::Done;
            }
            if output.pending_bytes() > self.shared.runtime.output_bytes_pause() || self.appended_bytes > appended_max {
                return RunOutcome::Paused;
            }
            let limits = Self::limits(self.shared, session);
            match input.parse(&limits) {
                Ok(true) => {}
                Ok(false) => return RunOutcome::Done,
                Err(error) => {
                    ReplyWriter::new(&mut output.bytes, session.protocol).write_error(&format!("ERR {error}"));
                    session.closes = true;
                    return RunOutcome::Done;
                }
            }
            let is_get = input.argument(0).is_some_and(|name| name.eq_ignore_ascii_case(b"get"));
            if is_get && count > 0 && session.transaction.is_none() {
                return RunOutcome::Ran(count);
            }
            let (arguments, bytes) = input.command();
            let arguments: SmallVec<[&[u8]; INLINE_ARGUMENTS_MAX]> = arguments.iter(bytes).collect();
            if self.groups_writes && grouped::is_groupable(self.shared, session, &arguments) {
                return RunOutcome::Ran(count);
            }
            let before = output.bytes.len();
            let progress = dispatch::run(self.shared, session, self.view, &arguments, &mut output.bytes);
            if progress == Progress::Held {
                session.public.figures.set_held(&self.shared.pause, true);
                return RunOutcome::Held;
            }
            self.appended_bytes += output.bytes.len().saturating_sub(before);
            drop(arguments);
            input.consume();
            count += 1;
            if count >= TICK_COMMANDS_MAX || session.last_command_end >= self.deadline {
                return RunOutcome::Ran(count);
            }
        }
    }

    /// Runs the next command of a connection alone, although groups run such commands.
    pub(super) fn run_next(&mut self, active: &mut ActiveConnection) {
        let index = active.index;
        let Some(connection) = self.connections[index].as_mut() else { return };
        let session = &mut connection.session;
        let (input, output) = (&mut self.inputs[index], &mut self.outputs[index]);
        if input.parse(&Self::limits(self.shared, session)) != Ok(true) {
            return;
        }
        let (arguments, bytes) = input.command();
        let arguments: SmallVec<[&[u8]; INLINE_ARGUMENTS_MAX]> = arguments.iter(bytes).collect();
        let progress = dispatch::run(self.shared, session, self.view, &arguments, &mut output.bytes);
        drop(arguments);
        if progress == Progress::Done {
            input.consume();
            active.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use crate::loop_server::{LoopServer, receive};

    #[test]
    fn a_pipeline_of_slow_commands_does_not_block_other_clients() {
        const COMMAND_COUNT: usize = 100;
        let dir = tempfile::tempdir().unwrap();
        let mut server = LoopServer::create(&dir.path().join("store")).unwrap();
        let mut slow: Vec<UnixStream> = (0..2).map(|_| server.connect().unwrap()).collect();
        let mut other = server.connect().unwrap();
        let slow_commands = "DEBUG SLEEP 0.005\r\n".repeat(COMMAND_COUNT);
        slow.iter_mut().for_each(|client| client.write_all(slow_commands.as_bytes()).unwrap());
        other.write_all(b"PING\r\n").unwrap();
        // Each connection that is served in a tick comes last in the next one.
        (0..3).for_each(|_| server.step().unwrap());
        assert_eq!(receive(&mut other), "+PONG\r\n");
        let mut replies = slow.iter_mut().map(|client| receive(client).matches("+OK").count()).collect::<Vec<_>>();
        assert!(replies.iter().all(|count| (1..COMMAND_COUNT).contains(count)), "{replies:?}");
        while server.is_busy() {
            server.step().unwrap();
            slow.iter_mut().zip(&mut replies).for_each(|(client, count)| {
                *count += receive(client).matches("+OK").count();
            });
        }
        assert_eq!(replies, [COMMAND_COUNT; 2]);
    }
}

//! The commands of one tick.
//!
//! A tick has rounds. In the first half of a round, each connection gives the `GET`s at the begin
//! of its input. One `multi_get` reads all of their keys, so that the look-ups of all connections
//! wait for memory together. In the second half, each connection runs the other commands up to
//! its next `GET`. So the commands of one connection keep their order.
//!
//! If each commit waits for a device, the second half leaves out the writes, and a group of writes
//! ends the round (`group`).

use lodestore_wire::{Limits, ReplyWriter};
use smallvec::SmallVec;

use super::buffers::{Input, Output};
use super::event_loop::Connection;
use super::gets::PendingGet;
use crate::command::dispatch::{self, ViewCache};
use crate::command::grouped;
use crate::session::Session;
use crate::shared::Shared;

/// Most arguments that need no allocation.
pub(super) const INLINE_ARGUMENTS: usize = 8;

/// Most commands of one connection in a tick, so that all connections get their turn.
const TICK_COMMANDS_MAX: usize = 16_384;

/// A tick appends at most `maxmemory-clients` divided by this, and one reply more. Then the largest
/// clients are closed if necessary, and the next tick goes on.
const TICK_MEMORY_DIVISOR: usize = 8;

/// A connection whose commands run in a tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct ActiveConnection {
    /// Index of the connection.
    pub(super) index: usize,
    /// Commands that ran in this tick.
    pub(super) count: usize,
    /// Whether the writes of the connection join no group in this tick.
    pub(super) runs_alone: bool,
}

/// How the second half of a round ended for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    /// So many commands ran, and more may follow.
    Ran(usize),
    /// Too many bytes of replies are not sent, or the tick has appended too many.
    Paused,
    /// There is no further complete command.
    Done,
}

/// What a tick works on. All three lists have the same indexes.
pub(crate) struct Tick<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) view: &'a mut ViewCache,
    pub(crate) connections: &'a mut [Option<Connection>],
    pub(crate) inputs: &'a mut [Input],
    pub(crate) outputs: &'a mut [Output],
    /// Whether each commit waits for a device.
    pub(crate) groups_writes: bool,
    /// Bytes of replies that the tick has appended, without those of groups.
    pub(crate) appended_bytes: usize,
}

impl Tick<'_> {
    /// Runs the complete commands of the connections. Returns the connections whose input has
    /// further complete commands, because their turn ended or their replies are not sent.
    pub(crate) fn run(mut self, ready: &[usize]) -> Vec<usize> {
        let start = |index: &usize| ActiveConnection { index: *index, count: 0, runs_alone: !self.groups_writes };
        let mut active: SmallVec<[ActiveConnection; 64]> = ready.iter().map(start).collect();
        let mut unfinished = Vec::new();
        let mut gets: Vec<PendingGet> = Vec::new();
        while !active.is_empty() {
            gets.clear();
            for connection in &mut active {
                connection.count += self.collect_gets(connection.index, &mut gets);
            }
            self.answer_gets(&mut gets);
            active.retain(|connection| {
                if connection.count >= TICK_COMMANDS_MAX {
                    unfinished.push(connection.index);
                    return false;
                }
                let ran = self.run_others(*connection);
                match ran {
                    Others::Ran(commands) => connection.count += commands,
                    Others::Paused => unfinished.push(connection.index),
                    Others::Done => {}
                }
                matches!(ran, Others::Ran(_))
            });
            if self.groups_writes {
                self.run_group(&mut active);
            }
        }
        unfinished
    }

    pub(super) fn limits(shared: &Shared, session: &Session) -> Limits {
        let bulk_bytes_max = shared.runtime.bulk_bytes_max();
        Limits { bulk_bytes_max, is_stranger: !session.is_authenticated, ..Limits::default() }
    }

    /// Returns the most bytes of replies that the tick appends before its end.
    pub(super) fn appended_max(&self) -> usize {
        self.shared.runtime.clients_memory_max() / TICK_MEMORY_DIVISOR
    }

    /// Runs the commands of a connection up to its next `GET`, or up to its next write if groups
    /// run the writes.
    fn run_others(&mut self, active: ActiveConnection) -> Others {
        let index = active.index;
        let appended_max = self.appended_max();
        let Some(connection) = self.connections[index].as_mut() else { return Others::Done };
        let session = &mut connection.session;
        let (input, output) = (&mut self.inputs[index], &mut self.outputs[index]);
        let mut count = 0;
        loop {
            if session.is_over() {
                return Others::Done;
            }
            if output.pending_bytes() > self.shared.runtime.output_bytes_pause() || self.appended_bytes > appended_max {
                return Others::Paused;
            }
            let limits = Self::limits(self.shared, session);
            match input.parse(&limits) {
                Ok(true) => {}
                Ok(false) => return Others::Done,
                Err(error) => {
                    ReplyWriter::new(&mut output.bytes, session.protocol).write_error(&format!("ERR {error}"));
                    session.closes = true;
                    return Others::Done;
                }
            }
            let is_get = input.argument(0).is_some_and(|name| name.eq_ignore_ascii_case(b"get"));
            if is_get && count > 0 && session.transaction.is_none() {
                return Others::Ran(count);
            }
            let (arguments, bytes) = input.command();
            let arguments: SmallVec<[&[u8]; INLINE_ARGUMENTS]> = arguments.iter(bytes).collect();
            if !active.runs_alone && grouped::is_groupable(self.shared, session, &arguments) {
                return Others::Ran(count);
            }
            let before = output.bytes.len();
            dispatch::run(self.shared, session, self.view, &arguments, &mut output.bytes);
            self.appended_bytes += output.bytes.len().saturating_sub(before);
            drop(arguments);
            input.consume();
            count += 1;
            if count >= TICK_COMMANDS_MAX {
                return Others::Ran(count);
            }
        }
    }
}

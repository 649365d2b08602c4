//! The commands of one tick.
//!
//! A tick has rounds. In the first half of a round, each connection gives the `GET`s at the begin
//! of its input. One `multi_get` reads all of their keys, so that the look-ups of all connections
//! wait for memory together. In the second half, each connection runs the other commands up to
//! its next `GET`. So the commands of one connection keep their order.
//!
//! If each commit waits for a device, the second half leaves out the writes, and a group of writes
//! ends the round (`group`).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_wire::{Limits, ReplyWriter};
use smallvec::SmallVec;

use super::buffers::{Input, Output};
use super::event_loop::Connection;
use crate::command::context::string_of;
use crate::command::dispatch::{self, ViewCache};
use crate::error::REPLY_TOO_LONG;
use crate::session::{ReplyMode, Session};
use crate::shared::Shared;

/// Most arguments that need no allocation.
pub(super) const INLINE_ARGUMENTS: usize = 8;

/// Most commands of one connection in a tick, so that all connections get their turn.
const TICK_COMMANDS_MAX: usize = 16_384;

/// A tick appends at most `maxmemory-clients` divided by this, and one reply more. Then the largest
/// clients are closed if necessary, and the next tick goes on.
const TICK_MEMORY_DIVISOR: usize = 8;

/// Most `GET`s of one connection in a round. The bound on unsent replies is checked between rounds.
const ROUND_GETS_MAX: usize = 64;

/// Longest key of a batched `GET`. A longer key is read alone, because the store refuses the whole
/// batch for a key that is too long for it.
const BATCHED_KEY_BYTES_MAX: usize = 32 << 10;

/// A `GET` that waits for its round.
#[derive(Debug, Clone, Copy)]
struct PendingGet {
    connection: usize,
    start: usize,
    end: usize,
    database: usize,
    /// Offset of the command in the connection's input.
    position: usize,
    /// Bytes of the connection's output before the reply.
    output_bytes: usize,
    /// Whether the client has too many unsent replies, so that the command runs later.
    is_postponed: bool,
}

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
    fn appended_max(&self) -> usize {
        self.shared.runtime.clients_memory_max() / TICK_MEMORY_DIVISOR
    }

    /// Collects the `GET`s at the begin of a connection's input. Returns their number.
    fn collect_gets(&mut self, index: usize, gets: &mut Vec<PendingGet>) -> usize {
        let before = gets.len();
        let Some(connection) = &self.connections[index] else { return 0 };
        let session = &connection.session;
        let is_plain = session.is_authenticated
            && session.is_free_of_checks(&self.shared.acl)
            && session.transaction.is_none()
            && session.reply_mode == ReplyMode::On
            && !session.is_restricted_subscriber()
            && !session.messaging.reads_alone()
            && !self.shared.reads_are_observed()
            && !session.closes;
        let limits = Self::limits(self.shared, session);
        let is_paused = self.outputs[index].pending_bytes() > self.shared.runtime.output_bytes_pause();
        let input = &mut self.inputs[index];
        while is_plain && !is_paused && gets.len() - before < ROUND_GETS_MAX && input.parse(&limits) == Ok(true) {
            let is_get =
                input.command().0.len() == 2 && input.argument(0).is_some_and(|name| name.eq_ignore_ascii_case(b"get"));
            let Some((start, end)) = input.range_of(1).filter(|_| is_get) else { break };
            if !(1..=BATCHED_KEY_BYTES_MAX).contains(&(end - start)) {
                break;
            }
            gets.push(PendingGet {
                connection: index,
                start,
                end,
                database: session.database,
                position: input.position(),
                output_bytes: 0,
                is_postponed: false,
            });
            input.consume();
        }
        gets.len() - before
    }

    /// Reads the keys of all collected `GET`s, and appends the replies.
    fn answer_gets(&mut self, gets: &mut [PendingGet]) {
        let shared = self.shared;
        let mut rest = gets;
        while let Some(database) = rest.first().map(|first| first.database) {
            let length = rest.iter().take_while(|get| get.database == database).count();
            let (run, after) = rest.split_at_mut(length);
            let generation = shared.databases.generation();
            self.answer_run(run);
            if shared.databases.generation() != generation {
                // A flush or an exchange of databases came in between.
                run.iter().rev().for_each(|get| self.outputs[get.connection].bytes.truncate(get.output_bytes));
                run.iter_mut().for_each(|get| self.answer_alone(get));
            }
            // The first postponed command of a connection comes last.
            for get in run.iter().rev().filter(|get| get.is_postponed) {
                self.inputs[get.connection].rewind(get.position);
            }
            rest = after;
        }
    }

    /// Answers `GET`s of one database.
    fn answer_run(&mut self, gets: &mut [PendingGet]) {
        let (mut answered, mut hits, mut batched) = (0, 0, 0);
        let pause = self.shared.runtime.output_bytes_pause();
        let reply_max = self.shared.runtime.reply_bytes_max();
        let appended_max = self.appended_max();
        let begun = Instant::now();
        while answered < gets.len() {
            let run = &mut gets[answered..];
            let view = self.view.refresh(self.shared);
            let keyspace = view.keyspace(run[0].database);
            let keys: SmallVec<[&[u8]; 64]> =
                run.iter().map(|get| self.inputs[get.connection].slice(get.start, get.end)).collect();
            let (outputs, connections) = (&mut *self.outputs, &*self.connections);
            let appended_bytes = &mut self.appended_bytes;
            let mut count = 0;
            let read = keyspace.multi_get_with(&keys, |index, stored| {
                let get = &mut run[index];
                let Some(connection) = &connections[get.connection] else { return };
                get.output_bytes = outputs[get.connection].bytes.len();
                count = index + 1;
                get.is_postponed = outputs[get.connection].pending_bytes() > pause || *appended_bytes > appended_max;
                if get.is_postponed {
                    return;
                }
                batched += 1;
                let mut reply = ReplyWriter::new(&mut outputs[get.connection].bytes, connection.session.protocol);
                match string_of(stored) {
                    Ok(Some(string)) if string.len() > reply_max => reply.write_error(&REPLY_TOO_LONG.reply()),
                    Ok(Some(string)) => {
                        hits += 1;
                        reply.write_bulk(string);
                    }
                    Ok(None) => reply.write_null(),
                    Err(error) => reply.write_error(&error.reply()),
                }
                *appended_bytes += reply.output_bytes() - get.output_bytes;
            });
            drop(keys);
            answered += count;
            if read.is_err() && answered < gets.len() {
                let get = &mut gets[answered];
                get.output_bytes = self.outputs[get.connection].bytes.len();
                self.answer_alone(get);
                answered += 1;
            }
        }
        self.note_times(gets, begun.elapsed());
        let counters = &self.shared.counters;
        counters.commands.fetch_add(batched, Ordering::Relaxed);
        counters.hits.fetch_add(hits, Ordering::Relaxed);
        counters.misses.fetch_add(batched - hits, Ordering::Relaxed);
    }

    /// Counts the `GET`s of a batch. Each gets the mean time, because they ran together.
    fn note_times(&self, gets: &[PendingGet], elapsed: Duration) {
        let Some(first) = gets.first() else { return };
        let Some(connection) = &self.connections[first.connection] else { return };
        let Some((command, spec)) = *dispatch::GET else { return };
        let count = gets.iter().filter(|get| !get.is_postponed).count();
        connection.session.counters.count_calls(command, count as u64, elapsed);
        // A round has at most `ROUND_GETS_MAX` commands of each connection.
        let mean = elapsed / u32::try_from(gets.len()).unwrap_or(u32::MAX);
        let key = self.inputs[first.connection].slice(first.start, first.end);
        let Shared { settings, statistics, .. } = self.shared;
        statistics.note_time(settings, spec, mean, &connection.session.public, &[b"GET", key]);
    }

    /// Answers one `GET`: a key of its batch could not be read, or the databases changed.
    fn answer_alone(&mut self, get: &mut PendingGet) {
        get.is_postponed = self.outputs[get.connection].pending_bytes() > self.shared.runtime.output_bytes_pause()
            || self.appended_bytes > self.appended_max();
        if get.is_postponed {
            return;
        }
        let before = self.outputs[get.connection].bytes.len();
        let Some(connection) = &mut self.connections[get.connection] else { return };
        let key = self.inputs[get.connection].slice(get.start, get.end);
        let output = &mut self.outputs[get.connection].bytes;
        dispatch::run(self.shared, &mut connection.session, self.view, &[b"get", key], output);
        self.appended_bytes += output.len().saturating_sub(before);
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
            if session.closes {
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
            if !active.runs_alone && dispatch::is_groupable(self.shared, session, &arguments) {
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

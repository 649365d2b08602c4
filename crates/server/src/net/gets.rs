//! The `GET`s of a round.
//!
//! One `multi_get` reads the keys of all connections. A large value is sent from where the store
//! has it, without a copy. What the socket does not accept is copied to the output.
//!
//! A flush or an exchange of databases in between makes the replies stale, and the keys are read
//! again. Before a large value is sent, its read is checked instead: as long as the generation of
//! the databases is that of the begin, all values up to this one are valid.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_wire::ReplyWriter;
use smallvec::SmallVec;

use super::buffers::Output;
use super::event_loop::Connection;
use super::tick::Tick;
use crate::command::context::string_of;
use crate::command::dispatch;
use crate::error::REPLY_TOO_LONG;
use crate::session::ReplyMode;
use crate::shared::Shared;

/// Most `GET`s of one connection in a round. The bound on unsent replies is checked between rounds.
const ROUND_GETS_MAX: usize = 64;

/// Longest key of a batched `GET`. A longer key is read alone, because the store refuses the whole
/// batch for a key that is too long for it.
const BATCHED_KEY_BYTES_MAX: usize = 32 << 10;

/// Least bytes of a value that is sent without a copy. Sending costs a system call more than a copy
/// into the output, which is sent with the other replies of the tick.
const DIRECT_VALUE_BYTES_MIN: usize = 32 << 10;

/// A `GET` that waits for its round.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingGet {
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

/// Sends a value from where the store has it. Returns how many bytes of it wait in the output.
fn send_value(shared: &Shared, connection: &mut Connection, output: &mut Output, value: &[u8]) -> usize {
    let before = output.pending_bytes();
    let sent = output.send_bulk(&mut connection.stream, value);
    shared.counters.bytes_written.fetch_add(sent as u64, Ordering::Relaxed);
    output.pending_bytes().saturating_sub(before)
}

impl Tick<'_> {
    /// Collects the `GET`s at the begin of a connection's input. Returns their number.
    pub(super) fn collect_gets(&mut self, index: usize, gets: &mut Vec<PendingGet>) -> usize {
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
            && !session.is_over();
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
    pub(super) fn answer_gets(&mut self, gets: &mut [PendingGet]) {
        let shared = self.shared;
        let mut rest = gets;
        while let Some(database) = rest.first().map(|first| first.database) {
            let length = rest.iter().take_while(|get| get.database == database).count();
            let (run, after) = rest.split_at_mut(length);
            let generation = shared.databases.generation();
            let valid = self.answer_run(run, generation);
            if shared.databases.generation() != generation {
                // A flush or an exchange of databases came in between.
                let run = &mut run[valid..];
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

    /// Answers `GET`s of one database. Returns how many of them, from the first on, are valid
    /// although the databases may have changed since they had this generation.
    fn answer_run(&mut self, gets: &mut [PendingGet], generation: u64) -> usize {
        let (mut answered, mut hits, mut batched, mut valid) = (0, 0, 0, 0);
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
            let (shared, outputs, connections) = (self.shared, &mut *self.outputs, &mut *self.connections);
            let appended_bytes = &mut self.appended_bytes;
            let mut count = 0;
            let read = keyspace.multi_get_with(&keys, |index, stored| {
                let get = &mut run[index];
                let Some(connection) = &mut connections[get.connection] else { return };
                let output = &mut outputs[get.connection];
                get.output_bytes = output.bytes.len();
                count = index + 1;
                get.is_postponed = output.pending_bytes() > pause || *appended_bytes > appended_max;
                if get.is_postponed {
                    return;
                }
                batched += 1;
                let mut reply = ReplyWriter::new(&mut output.bytes, connection.session.protocol);
                match string_of(stored) {
                    Ok(Some(string)) if string.len() > reply_max => reply.write_error(&REPLY_TOO_LONG.reply()),
                    Ok(Some(string)) => {
                        hits += 1;
                        let is_large = string.len() >= DIRECT_VALUE_BYTES_MIN
                            && connection.stream.gathers_writes()
                            && !connection.session.public.is_killed();
                        if is_large && shared.databases.generation() == generation {
                            valid = answered + index + 1;
                            *appended_bytes += send_value(shared, connection, output, string);
                            return;
                        }
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
        valid
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
}

//! The commands of one tick.
//!
//! A tick has rounds. In the first half of a round, each connection gives the `GET`s at the begin
//! of its input. One `multi_get` reads all of their keys, so that the look-ups of all connections
//! wait for memory together. In the second half, each connection runs the other commands up to
//! its next `GET`. So the commands of one connection keep their order.

use std::sync::atomic::Ordering;

use lodestore_wire::{Limits, ReplyWriter};
use smallvec::SmallVec;

use super::buffers::{Input, Output};
use super::event_loop::Connection;
use crate::command::context::string_of;
use crate::command::dispatch::{self, ViewCache};
use crate::error::CommandError;
use crate::session::{ReplyMode, Session};
use crate::shared::Shared;

/// Most arguments that need no allocation.
const INLINE_ARGUMENTS: usize = 8;

/// Most commands of one connection in a tick, so that all connections get their turn.
const TICK_COMMANDS_MAX: usize = 16_384;

/// Most `GET`s of one connection in a round. The bound on unsent replies is checked between rounds.
const ROUND_GETS_MAX: usize = 64;

/// A `GET` that waits for its round.
#[derive(Debug, Clone, Copy)]
struct PendingGet {
    connection: usize,
    start: usize,
    end: usize,
    database: usize,
}

/// How the second half of a round ended for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    /// So many commands ran, and more may follow.
    Ran(usize),
    /// Too many bytes of replies are not sent.
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
}

impl Tick<'_> {
    /// Runs the complete commands of the connections. Returns the connections whose input has
    /// further complete commands, because their turn ended or their replies are not sent.
    pub(crate) fn run(mut self, ready: &[usize]) -> Vec<usize> {
        let mut active: SmallVec<[(usize, usize); 64]> = ready.iter().map(|index| (*index, 0)).collect();
        let mut unfinished = Vec::new();
        let mut gets: Vec<PendingGet> = Vec::new();
        while !active.is_empty() {
            gets.clear();
            for (index, count) in &mut active {
                *count += self.collect_gets(*index, &mut gets);
            }
            self.answer_gets(&gets);
            active.retain(|(index, count)| {
                if *count >= TICK_COMMANDS_MAX {
                    unfinished.push(*index);
                    return false;
                }
                let ran = self.run_others(*index);
                match ran {
                    Others::Ran(commands) => *count += commands,
                    Others::Paused => unfinished.push(*index),
                    Others::Done => {}
                }
                matches!(ran, Others::Ran(_))
            });
        }
        unfinished
    }

    fn limits(&self, session: &Session) -> Limits {
        let bulk_bytes_max = self.shared.config.bulk_bytes_max;
        Limits { bulk_bytes_max, is_stranger: !session.is_authenticated, ..Limits::default() }
    }

    /// Collects the `GET`s at the begin of a connection's input. Returns their number.
    fn collect_gets(&mut self, index: usize, gets: &mut Vec<PendingGet>) -> usize {
        let before = gets.len();
        let Some(connection) = &self.connections[index] else { return 0 };
        let session = &connection.session;
        let is_plain = session.is_authenticated
            && session.transaction.is_none()
            && session.reply_mode == ReplyMode::On
            && !session.closes;
        let limits = self.limits(session);
        let is_paused = self.outputs[index].pending_bytes() > self.shared.config.output_bytes_pause;
        let input = &mut self.inputs[index];
        while is_plain && !is_paused && gets.len() - before < ROUND_GETS_MAX && input.parse(&limits) == Ok(true) {
            let is_get =
                input.command().0.len() == 2 && input.argument(0).is_some_and(|name| name.eq_ignore_ascii_case(b"get"));
            let Some((start, end)) = input.range_of(1).filter(|_| is_get) else { break };
            gets.push(PendingGet { connection: index, start, end, database: session.database });
            input.consume();
        }
        gets.len() - before
    }

    /// Reads the keys of all collected `GET`s, and appends the replies.
    fn answer_gets(&mut self, gets: &[PendingGet]) {
        let shared = self.shared;
        shared.counters.commands.fetch_add(gets.len() as u64, Ordering::Relaxed);
        let mut rest = gets;
        while let Some(first) = rest.first() {
            let length = rest.iter().take_while(|get| get.database == first.database).count();
            let (run, after) = rest.split_at(length);
            self.answer_run(run);
            rest = after;
        }
    }

    /// Answers `GET`s of one database.
    fn answer_run(&mut self, gets: &[PendingGet]) {
        let mut answered = 0;
        let mut hits = 0;
        while answered < gets.len() {
            let run = &gets[answered..];
            let view = self.view.refresh(self.shared);
            let keys: SmallVec<[&[u8]; 64]> =
                run.iter().map(|get| self.inputs[get.connection].slice(get.start, get.end)).collect();
            let (outputs, connections) = (&mut *self.outputs, &*self.connections);
            let mut count = 0;
            let read = view.keyspace(run[0].database).multi_get_with(&keys, |index, stored| {
                let get = run[index];
                let Some(connection) = &connections[get.connection] else { return };
                let protocol = connection.session.protocol;
                let mut reply = ReplyWriter::new(&mut outputs[get.connection].bytes, protocol);
                match string_of(stored) {
                    Ok(Some(string)) => {
                        hits += 1;
                        reply.write_bulk(string);
                    }
                    Ok(None) => reply.write_null(),
                    Err(error) => reply.write_error(&error.reply()),
                }
                count = index + 1;
            });
            drop(keys);
            answered += count;
            if read.is_err() && answered < gets.len() {
                self.answer_alone(gets[answered]);
                answered += 1;
            }
        }
        let counters = &self.shared.counters;
        counters.hits.fetch_add(hits, Ordering::Relaxed);
        counters.misses.fetch_add(gets.len() as u64 - hits, Ordering::Relaxed);
    }

    /// Answers a `GET` whose read failed in a batch. Another key of the batch may be the cause, so
    /// the key is read again.
    fn answer_alone(&mut self, get: PendingGet) {
        let key = self.inputs[get.connection].slice(get.start, get.end);
        let Some(connection) = &self.connections[get.connection] else { return };
        let mut reply = ReplyWriter::new(&mut self.outputs[get.connection].bytes, connection.session.protocol);
        let view = self.view.refresh(self.shared);
        let start = reply.output_bytes();
        let read = view
            .keyspace(get.database)
            .get_with(key, |stored| string_of(Some(stored)).map(|string| reply.write_bulk(string.unwrap_or_default())));
        match read {
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(error))) => reply.write_error(&error.reply()),
            Ok(None) => reply.write_null(),
            Err(error) => {
                reply.truncate(start);
                reply.write_error(&CommandError::from(error).reply());
            }
        }
    }

    /// Runs the commands of a connection up to its next `GET`.
    fn run_others(&mut self, index: usize) -> Others {
        let Some(connection) = self.connections[index].as_mut() else { return Others::Done };
        let session = &mut connection.session;
        let (input, output) = (&mut self.inputs[index], &mut self.outputs[index]);
        let mut count = 0;
        loop {
            if session.closes {
                return Others::Done;
            }
            if output.pending_bytes() > self.shared.config.output_bytes_pause {
                return Others::Paused;
            }
            let bulk_bytes_max = self.shared.config.bulk_bytes_max;
            let limits = Limits { bulk_bytes_max, is_stranger: !session.is_authenticated, ..Limits::default() };
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
            dispatch::run(self.shared, session, self.view, &arguments, &mut output.bytes);
            drop(arguments);
            input.consume();
            count += 1;
            if count >= TICK_COMMANDS_MAX {
                return Others::Ran(count);
            }
        }
    }
}

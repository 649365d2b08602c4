//! The `GET`s of a round.
//!
//! One `multi_get` reads the keys of all connections. A large value is sent from the store's
//! memory, without a copy. The part that the socket does not accept is copied to the output.
//!
//! A flush or an exchange of databases in between makes the replies stale, and the keys are read
//! again. Before a large value is sent, its read is checked instead: as long as the generation of
//! the databases is unchanged since the begin, all values up to this one are valid.
//!
//! Invariant: after a postponed `GET`, no later `GET` of its connection is answered in the round.
//! The connection therefore returns to its first postponed `GET`, and each `GET` has one reply in
//! order.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_wire::ReplyWriter;
use smallvec::SmallVec;

use super::buffers::Output;
use super::event_loop::Connection;
use super::tick::Tick;
use crate::command::context::string_of;
use crate::command::dispatch::{self, Progress};
use crate::error::{REPLY_TOO_LONG, WRONG_TYPE};
use crate::pause::PauseMode;
use crate::session::ReplyMode;
use crate::shared::Shared;
use crate::statistics::counters::Lookups;

/// Most `GET`s of one connection in a round. The bound on unsent replies is checked between rounds.
const ROUND_GETS_MAX: usize = 64;

/// Longest key of a batched `GET`. A longer key is read alone, because the store refuses the whole
/// batch for a key that is too long for it.
const BATCHED_KEY_BYTES_MAX: usize = 32 << 10;

/// Least bytes of a value that is sent without a copy. Sending costs a system call more than a copy
/// into the output, which is sent with the other replies of the tick.
const DIRECT_VALUE_BYTES_MIN: usize = 32 << 10;

/// The result of a `GET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GetOutcome {
    /// The command has no reply.
    Waiting,
    /// The client has too many unsent replies, or a pause began, so the command runs later.
    Postponed,
    Hit,
    Miss,
    /// The key is no string.
    WrongType,
    /// The reply would be too long.
    TooLong,
    /// The command ran alone, and counted itself.
    Alone,
}

/// The `GET`s that one `multi_get` answered, as indexes among the collected ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Batch {
    /// End of the commands that it answered or postponed.
    answered: usize,
    /// End of the commands whose replies are valid although the databases changed.
    valid: usize,
}

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
    outcome: GetOutcome,
}

/// Whether a `GET` follows a postponed one of its connection. The `GET`s of a connection are next
/// to each other, and are answered in order.
fn follows_postponed(gets: &[PendingGet], index: usize) -> bool {
    let previous = index.checked_sub(1).map(|previous| gets[previous]);
    previous.is_some_and(|get| get.connection == gets[index].connection && get.outcome == GetOutcome::Postponed)
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
            && !session.messaging.needs_separate_reads()
            && !self.shared.reads_are_observed()
            && self.shared.pause_mode() != Some(PauseMode::All)
            && !session.has_ended();
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
                outcome: GetOutcome::Waiting,
            });
            input.consume();
        }
        if gets.len() > before {
            session.public.figures.note_command(*dispatch::GET_ID);
        }
        gets.len() - before
    }

    /// Reads the keys of all collected `GET`s, and appends the replies.
    pub(super) fn answer_gets(&mut self, gets: &mut [PendingGet]) {
        let shared = self.shared;
        let mut begin = 0;
        while let Some(database) = gets.get(begin).map(|first| first.database) {
            let length = gets[begin..].iter().take_while(|get| get.database == database).count();
            let end = begin + length;
            let generation = shared.databases.generation();
            let begun = Instant::now();
            let Batch { mut answered, valid } = self.answer_batch(gets, begin..end, generation);
            let elapsed = begun.elapsed();
            if shared.databases.generation() != generation {
                // A flush or an exchange of databases came in between.
                let stale = gets[valid..answered].iter().rev();
                stale.for_each(|get| self.outputs[get.connection].bytes.truncate(get.output_bytes));
                (valid..answered).for_each(|index| self.answer_single(gets, index));
            }
            self.count_batch(&gets[begin..answered], elapsed);
            if answered < end {
                // The store could not read this key.
                self.answer_single(gets, answered);
                answered += 1;
            }
            begin = answered;
        }
        // The first postponed command of a connection comes last.
        for get in gets.iter().rev().filter(|get| get.outcome == GetOutcome::Postponed) {
            self.inputs[get.connection].rewind(get.position);
        }
    }

    /// Answers the `GET`s of a range, which read one database, up to the first one that the store
    /// cannot read. Values may be sent while the databases have this generation.
    fn answer_batch(&mut self, gets: &mut [PendingGet], range: Range<usize>, generation: u64) -> Batch {
        let pause = self.shared.runtime.output_bytes_pause();
        let reply_max = self.shared.runtime.reply_bytes_max();
        let appended_max = self.appended_max();
        let keyspace = self.view.refresh(self.shared).keyspace(gets[range.start].database);
        let keys: SmallVec<[&[u8]; 64]> =
            gets[range.clone()].iter().map(|get| self.inputs[get.connection].slice(get.start, get.end)).collect();
        let (shared, outputs, connections) = (self.shared, &mut *self.outputs, &mut *self.connections);
        let appended_bytes = &mut self.appended_bytes;
        let mut batch = Batch { answered: range.start, valid: range.start };
        let read = keyspace.multi_get_with(&keys, |number, stored| {
            let index = range.start + number;
            batch.answered = index + 1;
            let follows_postponed = follows_postponed(gets, index);
            let get = &mut gets[index];
            let Some(connection) = &mut connections[get.connection] else { return };
            let output = &mut outputs[get.connection];
            get.output_bytes = output.bytes.len();
            if follows_postponed || output.pending_bytes() > pause || *appended_bytes > appended_max {
                get.outcome = GetOutcome::Postponed;
                return;
            }
            let mut reply = ReplyWriter::new(&mut output.bytes, connection.session.protocol);
            get.outcome = match string_of(stored) {
                Ok(Some(string)) if string.len() > reply_max => {
                    reply.write_error(&REPLY_TOO_LONG.reply());
                    GetOutcome::TooLong
                }
                Ok(Some(string)) => {
                    let is_large = string.len() >= DIRECT_VALUE_BYTES_MIN
                        && connection.stream.gathers_writes()
                        && !connection.session.public.is_killed();
                    if is_large && shared.databases.generation() == generation {
                        batch.valid = index + 1;
                        *appended_bytes += send_value(shared, connection, output, string);
                        get.outcome = GetOutcome::Hit;
                        return;
                    }
                    reply.write_bulk(string);
                    GetOutcome::Hit
                }
                Ok(None) => {
                    reply.write_null();
                    GetOutcome::Miss
                }
                Err(error) => {
                    reply.write_error(&error.reply());
                    GetOutcome::WrongType
                }
            };
            *appended_bytes += reply.output_bytes() - get.output_bytes;
        });
        if read.is_ok() {
            batch.answered = range.end;
        }
        batch
    }

    /// Counts the `GET`s that a batch answered. Each gets the mean time, because they ran together.
    fn count_batch(&self, gets: &[PendingGet], elapsed: Duration) {
        let count_of = |outcome: GetOutcome| gets.iter().filter(|get| get.outcome == outcome).count() as u64;
        let (hits, misses) = (count_of(GetOutcome::Hit), count_of(GetOutcome::Miss));
        let (wrong_types, too_long) = (count_of(GetOutcome::WrongType), count_of(GetOutcome::TooLong));
        let count = hits + misses + wrong_types + too_long;
        let Some(first) = gets.first().filter(|_| count > 0) else { return };
        let Some(connection) = &self.connections[first.connection] else { return };
        let Some((command, spec)) = *dispatch::GET else { return };
        let Shared { runtime, statistics, counters, .. } = self.shared;
        counters.commands.fetch_add(count, Ordering::Relaxed);
        counters.count_lookups(Lookups { hits: hits + too_long, misses });
        let loop_counters = &connection.session.counters;
        loop_counters.count_calls(command, count, elapsed);
        for (error, number) in [(&WRONG_TYPE, wrong_types), (&REPLY_TOO_LONG, too_long)] {
            for _ in 0..number {
                loop_counters.count_failed(command);
                dispatch::count_error(self.shared, error);
            }
        }
        // A round has at most `ROUND_GETS_MAX` commands of each connection.
        let mean = elapsed / u32::try_from(count).unwrap_or(u32::MAX);
        let key = self.inputs[first.connection].slice(first.start, first.end);
        statistics.note_time(runtime, spec, mean, &connection.session.public, &[b"GET", key]);
    }

    /// Answers one `GET`: its key could not be read in a batch, or the databases changed.
    fn answer_single(&mut self, gets: &mut [PendingGet], index: usize) {
        let follows_postponed = follows_postponed(gets, index);
        let get = &mut gets[index];
        let before = self.outputs[get.connection].bytes.len();
        get.output_bytes = before;
        let is_postponed = follows_postponed
            || self.outputs[get.connection].pending_bytes() > self.shared.runtime.output_bytes_pause()
            || self.appended_bytes > self.appended_max();
        get.outcome = if is_postponed { GetOutcome::Postponed } else { GetOutcome::Alone };
        if is_postponed {
            return;
        }
        let Some(connection) = &mut self.connections[get.connection] else { return };
        let key = self.inputs[get.connection].slice(get.start, get.end);
        let output = &mut self.outputs[get.connection].bytes;
        let progress = dispatch::run(self.shared, &mut connection.session, self.view, &[b"get", key], output);
        if progress == Progress::Held {
            get.outcome = GetOutcome::Postponed;
        }
        self.appended_bytes += output.len().saturating_sub(before);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use lodestore::Db;
    use lodestore::db::Engine;

    use super::*;
    use crate::acl::Acl;
    use crate::command::dispatch::ViewCache;
    use crate::config::Config;
    use crate::data::databases::Databases;
    use crate::net::buffers::Input;
    use crate::net::group::GroupSize;
    use crate::net::stream::Stream;
    use crate::net::tick::tick_deadline;
    use crate::session::Session;
    use crate::statistics::commands::LoopCounters;

    /// A client whose `GET`s were read.
    struct Reader {
        client: UnixStream,
        connection: Connection,
        input: Input,
    }

    impl Reader {
        fn new(shared: &Shared, keys: &[&str]) -> Self {
            let (own, mut client) = UnixStream::pair().unwrap();
            own.set_nonblocking(true).unwrap();
            client.set_nonblocking(true).unwrap();
            for key in keys {
                let command = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
                client.write_all(command.as_bytes()).unwrap();
            }
            let public = shared.add_client(String::new(), String::new()).unwrap();
            let session = Session::new(public, &shared.acl, LoopCounters::new().into());
            let mut connection = Connection::new(Stream::Unix(mio::net::UnixStream::from_std(own)), session);
            let mut input = Input::default();
            input.read_from(&mut connection.stream);
            Self { client, connection, input }
        }

        /// Answers one `GET` for databases that had a generation. Returns the batch, and the
        /// numbers of bytes that the client received and that wait in the output.
        fn answer(self, shared: &Shared, generation: u64) -> (Batch, usize, usize) {
            let (batch, received, output) = self.run(shared, |tick| {
                let mut gets = Vec::new();
                assert_eq!(tick.collect_gets(0, &mut gets), 1);
                tick.answer_batch(&mut gets, 0..1, generation)
            });
            (batch, received.len(), output.pending_bytes())
        }

        /// Does some work in a tick. Returns its result, the bytes that the client received, and
        /// the output.
        fn run<T>(self, shared: &Shared, work: impl FnOnce(&mut Tick<'_>) -> T) -> (T, Vec<u8>, Output) {
            let Self { mut client, connection, input } = self;
            let (mut view, mut outputs) = (ViewCache::new(shared), [Output::default()]);
            let mut tick = Tick {
                shared,
                view: &mut view,
                connections: &mut [Some(connection)],
                inputs: &mut [input],
                outputs: &mut outputs,
                groups_writes: false,
                group_size: &mut GroupSize::default(),
                deadline: tick_deadline(),
                appended_bytes: 0,
            };
            let result = work(&mut tick);
            let mut received = Vec::new();
            // The socket does not block, so the read ends with an error.
            drop(client.read_to_end(&mut received));
            let [output] = outputs;
            (result, received, output)
        }
    }

    /// Opens a store, and returns the shared state of its server.
    fn open(store: &Path) -> Shared {
        let db = Db::builder(store).engine(Engine::fluidkv()).capacity(64 << 20).open().unwrap();
        let databases = Databases::open(db, 4).unwrap();
        Shared::new(databases, Config::default(), Acl::new(&Config::default()).unwrap(), 0)
    }

    /// Runs a command that answers `OK`.
    fn run(shared: &Shared, arguments: &[&[u8]]) {
        let mut session = Reader::new(shared, &[]).connection.session;
        let (mut view, mut output) = (ViewCache::new(shared), Vec::new());
        let progress = dispatch::run(shared, &mut session, &mut view, arguments, &mut output);
        assert_eq!((progress, &*output), (Progress::Done, &b"+OK\r\n"[..]));
    }

    /// Changes one byte of a text wherever it is in the files of a store.
    fn damage(store: &Path, text: &str) {
        for entry in std::fs::read_dir(store).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            while let Some(at) = bytes.windows(text.len()).position(|window| window == text.as_bytes()) {
                bytes[at] ^= 0x40;
            }
            std::fs::write(&path, bytes).unwrap();
        }
    }

    /// Begins a pause of all commands that does not end by its time.
    fn begin_pause(shared: &Shared) {
        shared.pause.begin(PauseMode::All, Instant::now(), Duration::from_secs(3600));
    }

    #[test]
    fn no_get_is_answered_after_a_postponed_one_of_its_connection() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let shared = open(&store);
        let damaged = "damaged value ".repeat(20);
        for (key, value) in [("a", "1"), ("b", &damaged), ("c", "3")] {
            run(&shared, &[b"SET", key.as_bytes(), value.as_bytes()]);
        }
        drop(shared);
        damage(&store, &damaged);
        let shared = open(&store);
        let ((first, second), _, output) = Reader::new(&shared, &["a", "b", "c"]).run(&shared, |tick| {
            let mut gets = Vec::new();
            assert_eq!(tick.collect_gets(0, &mut gets), 3);
            begin_pause(&shared);
            tick.answer_gets(&mut gets);
            let first = gets.iter().map(|get| get.outcome).collect::<Vec<_>>();
            shared.pause.end();
            let mut gets = Vec::new();
            tick.collect_gets(0, &mut gets);
            tick.answer_gets(&mut gets);
            (first, gets.iter().map(|get| get.outcome).collect::<Vec<_>>())
        });
        // A batch reads no damaged record, so the pause holds its `GET`.
        assert_eq!(first, [GetOutcome::Hit, GetOutcome::Postponed, GetOutcome::Postponed]);
        assert_eq!(second, [GetOutcome::Alone, GetOutcome::Hit]);
        let replies = String::from_utf8(output.bytes).unwrap();
        assert!(replies.starts_with("$1\r\n1\r\n-ERR the record of key 'b' is damaged"), "{replies}");
        assert!(replies.ends_with("\r\n$1\r\n3\r\n") && replies.matches('$').count() == 2, "{replies}");
    }

    #[test]
    fn a_short_pause_does_not_reorder_gets_that_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let shared = open(&dir.path().join("store"));
        let (answers, _, _) = Reader::new(&shared, &["a", "b", "c"]).run(&shared, |tick| {
            let mut gets = Vec::new();
            assert_eq!(tick.collect_gets(0, &mut gets), 3);
            begin_pause(&shared);
            tick.answer_single(&mut gets, 0);
            shared.pause.end();
            tick.answer_single(&mut gets, 1);
            tick.answer_batch(&mut gets, 2..3, shared.databases.generation());
            gets.iter().map(|get| get.outcome).collect::<Vec<_>>()
        });
        assert_eq!(answers, [GetOutcome::Postponed; 3]);
    }

    #[test]
    fn a_large_value_is_not_sent_at_once_if_the_databases_have_changed() {
        let dir = tempfile::tempdir().unwrap();
        let shared = open(&dir.path().join("store"));
        run(&shared, &[b"SET", b"k", &vec![b'x'; DIRECT_VALUE_BYTES_MIN]]);
        let generation = shared.databases.generation();
        let (batch, received, _) = Reader::new(&shared, &["k"]).answer(&shared, generation);
        assert_eq!(batch, Batch { answered: 1, valid: 1 });
        assert!(received > 0, "an unchanged value is sent at once");
        run(&shared, &[b"SWAPDB", b"2", b"3"]);
        let (batch, received, pending) = Reader::new(&shared, &["k"]).answer(&shared, generation);
        assert_eq!(batch, Batch { answered: 1, valid: 0 });
        assert_eq!(received, 0, "a value that may be stale is sent");
        assert!(pending > DIRECT_VALUE_BYTES_MIN);
    }
}

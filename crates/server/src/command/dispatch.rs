//! The way of a command from its arguments to its reply.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestore::{Error as StoreError, Keyspace};
use lodestore_wire::ReplyWriter;

use super::admission::{admit, check_queued, reject, unknown_command};
use super::arguments::is_word;
use super::context::Context;
use super::handlers::handler_of;
use super::{pause, transaction};
use crate::acl::check::Call;
pub(crate) use crate::command_specs::lookup::find;
use crate::command_specs::lookup::{Entry, PermissionId, find_entry};
use crate::command_specs::spec::{CommandKind, CommandSpec, Keys, flag};
use crate::data::access::Access;
use crate::data::databases::View;
use crate::data::stripes::{Held, StripeIndex};
use crate::error::{CLIENT_KILLED, CommandError, CommandResult, REPLY_TOO_LONG};
use crate::messaging::effects;
use crate::session::{QueuedCommand, ReplyMode, Session};
use crate::shared::Shared;
use crate::statistics::counters::Lookups;

/// Attempts of a read while other commands change its keys or the databases. A command that reads
/// several keys locks them afterwards.
const READ_ATTEMPTS_MAX: usize = 8;

/// A command with its index in the table.
pub(crate) type Indexed = (usize, &'static CommandSpec);

/// `GET`, whose calls the event loop counts by itself.
pub(crate) static GET: LazyLock<Option<Indexed>> = LazyLock::new(|| find_indexed(b"get"));

/// The number of `GET`, for [`ClientFigures`](crate::client::ClientFigures).
pub(crate) static GET_ID: LazyLock<Option<PermissionId>> = LazyLock::new(|| find_entry(b"get").map(|entry| entry.id));

/// Returns a command with its index in the table.
fn find_indexed(name: &[u8]) -> Option<Indexed> {
    find_entry(name).map(|entry| (entry.index, entry.spec))
}

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Progress {
    /// The command ran, or was refused.
    Done,
    /// A pause holds the command, which did nothing. The caller runs the command again later.
    Held,
}

/// Runs one command of a client and appends its reply to `output`.
pub(crate) fn run(
    shared: &Shared,
    session: &mut Session,
    view: &mut ViewCache,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> Progress {
    let start = output.len();
    session.refresh_user(&shared.acl);
    if session.has_ended() {
        return Progress::Done;
    }
    let admitted = admit(shared, session, arguments);
    if let Ok((_, call)) = &admitted
        && pause::is_held(shared, session, call.spec)
    {
        return Progress::Held;
    }
    let reply_mode = session.reply_mode;
    if reply_mode == ReplyMode::SkipNext {
        session.reply_mode = ReplyMode::Skip;
    }
    let result = match admitted {
        Ok((entry, call)) if session.transaction.is_some() && !call.spec.has(flag::CONTROLS_TRANSACTION) => {
            queue(session, call.spec, arguments, output)
                .inspect_err(|_| session.counters.count_rejected(entry.index))
                .map_err(|error| reject(shared, session, arguments, error))
        }
        Ok((entry, _)) => run_admitted(shared, session, view, entry, arguments, output),
        Err(error) => Err(reject(shared, session, arguments, error)),
    };
    if matches!(result, Err(CommandError::Held)) {
        // The pause began after the first check.
        output.truncate(start);
        session.reply_mode = reply_mode;
        return Progress::Held;
    }
    shared.counters.commands.fetch_add(1, Ordering::Relaxed);
    if let Err(error) = result {
        output.truncate(start);
        let keyspace = view.refresh(shared).keyspace(session.database);
        let keys = find(arguments[0]).map_or(Keys::None, |spec| spec.keys).of(arguments);
        let error = error.name_key(keys, |key| is_damaged(keyspace, key));
        write_error(shared, &mut ReplyWriter::new(output, session.protocol), &error);
    }
    if std::mem::take(&mut session.messaging.needs_barrier) {
        shared.stripes.wait_for_holders();
    }
    if session.transaction.is_none() && !is_word(arguments[0], "client") {
        session.messaging.is_caching_named = false;
    }
    let confirmations = std::mem::take(&mut session.messaging.confirmations);
    if session.reply_mode.is_silent() {
        output.truncate(start);
        // Confirmations of subscriptions are messages, as in Redis.
        output.extend_from_slice(&confirmations);
    }
    if session.reply_mode == ReplyMode::Skip {
        session.reply_mode = ReplyMode::On;
    }
    Progress::Done
}

/// Whether a full store refused a write, and nothing of the command was written.
fn is_full(spec: &CommandSpec, result: &CommandResult) -> bool {
    spec.kind == CommandKind::Write && matches!(result, Err(error) if error.is_of_full_store())
}

/// Whether a flush or an exchange of databases happened between the read of the list of databases
/// and a read of a key. The caller then reads again. A command that holds stripes is never stale.
fn is_stale(shared: &Shared, generation: u64, spec: &CommandSpec, result: &CommandResult) -> bool {
    match result {
        Err(CommandError::Store(StoreError::KeyspaceDropped { .. })) => true,
        Err(_) => false,
        Ok(()) => spec.kind == CommandKind::Read && shared.databases.generation() != generation,
    }
}

/// Whether the record of a key cannot be read.
fn is_damaged(keyspace: &Keyspace, key: &[u8]) -> bool {
    matches!(keyspace.get_with(key, |_| ()), Err(StoreError::Corrupt { .. }))
}

/// Writes and counts an error reply.
pub(super) fn write_error(shared: &Shared, reply: &mut ReplyWriter<'_>, error: &CommandError) {
    count_error(shared, error);
    reply.write_error(&error.reply());
}

/// Counts an error reply.
pub(crate) fn count_error(shared: &Shared, error: &CommandError) {
    shared.counters.errors.fetch_add(1, Ordering::Relaxed);
    shared.statistics.count_error(&error.reply());
}

/// The databases as an event loop last saw them.
#[derive(Debug)]
pub(crate) struct ViewCache {
    view: std::sync::Arc<View>,
    generation: u64,
}

impl ViewCache {
    pub(crate) fn new(shared: &Shared) -> Self {
        let generation = shared.databases.generation();
        Self { view: shared.databases.view(), generation }
    }

    /// Returns the databases. A flush or an exchange that has ended is seen.
    pub(crate) fn refresh(&mut self, shared: &Shared) -> &View {
        let generation = shared.databases.generation();
        if generation != self.generation {
            self.view = shared.databases.view();
            self.generation = generation;
        }
        &self.view
    }
}

/// Counts a call, and records it if it was slow.
fn note_call(
    shared: &Shared,
    session: &mut Session,
    (command, spec): Indexed,
    arguments: &[&[u8]],
    begun: Instant,
    is_failed: bool,
) {
    let elapsed = begun.elapsed();
    session.last_command_end = begun + elapsed;
    session.counters.count_calls(command, 1, elapsed);
    if is_failed {
        session.counters.count_failed(command);
    }
    shared.statistics.note_time(&shared.runtime, spec, elapsed, &session.public, arguments);
}

/// Shows a command to the clients of `MONITOR`. Commands and subcommands of administrators are not
/// shown, as in Redis.
fn feed_monitors(shared: &Shared, session: &Session, entry: Entry, arguments: &[&[u8]]) {
    let hub = &shared.hub;
    if hub.monitors.is_active() && !Call::new(entry, arguments).is_for_administrators() {
        hub.monitors.feed(hub.post(), session.database, &session.public, arguments);
    }
}

/// Whether `MONITOR` shows a command after it ran: `EXEC` after its commands, and `RESET` to the
/// other clients only.
fn is_shown_late(spec: &CommandSpec) -> bool {
    matches!(spec.name, "exec" | "reset")
}

/// Runs a command, and counts it. A read whose databases were flushed or exchanged meanwhile runs
/// again.
fn run_admitted(
    shared: &Shared,
    session: &mut Session,
    view: &mut ViewCache,
    entry: Entry,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> CommandResult {
    let spec = entry.spec;
    let start = output.len();
    let begun = Instant::now();
    let mut result = Ok(());
    for attempt in 0..READ_ATTEMPTS_MAX {
        let generation = shared.databases.generation();
        session.lookups = Lookups::default();
        let is_shown = attempt == 0 && !is_shown_late(spec);
        let attempted = try_run(shared, session, view, Attempt { entry, is_shown }, arguments, output);
        if matches!(attempted, Err(CommandError::Held)) {
            if attempt == 0 {
                return attempted;
            }
            // The pause began after the first attempt, whose refusal stays the reply.
            break;
        }
        result = attempted;
        // A full store refused the whole command. Removing the elements of deleted collections
        // frees space.
        let is_space_freed = is_full(spec, &result) && shared.orphan_sweeps.sweep_full(&shared.orphan_sweep());
        if !is_space_freed && !is_stale(shared, generation, spec, &result) {
            break;
        }
        output.truncate(start);
    }
    shared.counters.count_lookups(std::mem::take(&mut session.lookups));
    note_call(shared, session, (entry.index, spec), arguments, begun, result.is_err());
    if is_shown_late(spec) {
        feed_monitors(shared, session, entry, arguments);
    }
    result
}

/// An attempt to run a command.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    entry: Entry,
    /// Whether `MONITOR` shows the command.
    is_shown: bool,
}

/// Runs a command that is admitted, up to the commit of its changes.
fn try_run(
    shared: &Shared,
    session: &mut Session,
    view: &mut ViewCache,
    attempt: Attempt,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> CommandResult {
    let Attempt { entry, is_shown } = attempt;
    let spec = entry.spec;
    if spec.kind == CommandKind::Read && session.messaging.tracks_reads() {
        // The registration precedes the read of the list of databases, so a flush that the read
        // misses finds the keys registered.
        let (id, database) = (session.public.id, session.database);
        let keys_max = shared.runtime.tracking_keys_max();
        effects::register_reads(&shared.hub, keys_max, id, database, spec.keys.of(arguments), |key| {
            shared.databases.view().keyspace(database).expiry(key).ok().flatten().flatten()
        });
    }
    let held = lock(shared, spec, arguments);
    if held.is_some() {
        check_once_locked(shared, session, spec)?;
    }
    if is_shown {
        feed_monitors(shared, session, entry, arguments);
    }
    let is_consistent_read = spec.kind == CommandKind::Read && spec.keys.of(arguments).nth(1).is_some();
    if is_consistent_read {
        return read_several(shared, session, view, entry, arguments, output);
    }
    let view = view.refresh(shared);
    let mut access = match held {
        Some(held) if spec.has(flag::SEVERAL_WRITES) => Access::buffered(view, held),
        held => Access::direct(view, held),
    };
    let result = run_with(shared, session, &mut access, entry, arguments, output);
    // The stripes are still held, so the events of a key have the order of its changes.
    effects::publish(&shared.hub, &shared.runtime, &mut access.effects, session.public.id);
    result
}

/// Refuses a command that holds the stripes of its keys, if its client was killed or a pause began
/// while the command waited for them.
fn check_once_locked(shared: &Shared, session: &Session, spec: &CommandSpec) -> CommandResult {
    if session.public.is_killed() {
        return Err(CLIENT_KILLED);
    }
    if pause::is_held(shared, session, spec) { Err(CommandError::Held) } else { Ok(()) }
}

/// Runs a command over its access, and commits its changes. The caller publishes the effects.
fn run_with<'a>(
    shared: &'a Shared,
    session: &mut Session,
    access: &mut Access<'a>,
    entry: Entry,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> Result<(), CommandError> {
    access.effects.wanted = effects::wanted_effects(&shared.hub, &shared.runtime);
    let mut reply = ReplyWriter::new(output, session.protocol);
    let before = reply.output_bytes();
    bound_reply(shared, entry.spec, &mut reply, before);
    let mut context = Context { shared, session, access: &mut *access, reply };
    let mut result = handler_of(entry.index)(&mut context, arguments).and_then(|()| check_reply(&context.reply));
    // A handler may begin to buffer its writes.
    let is_buffered = access.is_buffered();
    if result.is_ok() {
        result = access.commit(shared.db()).map_err(CommandError::from);
    }
    if result.is_err() && is_buffered {
        access.effects.drop_events();
    }
    result
}

/// Bounds the reply of a command that reads keys. The reply of a change is never omitted, because
/// the change is done. All other replies are about as long as the command.
fn bound_reply(shared: &Shared, spec: &CommandSpec, reply: &mut ReplyWriter<'_>, before: usize) {
    reply.set_output_max(match spec.kind {
        CommandKind::Read => before.saturating_add(shared.runtime.reply_bytes_max()),
        CommandKind::Write | CommandKind::Other => usize::MAX,
    });
}

/// Refuses a reply that exceeded its bound.
fn check_reply(reply: &ReplyWriter<'_>) -> CommandResult {
    if reply.is_cut() {
        return Err(REPLY_TOO_LONG);
    }
    Ok(())
}

/// Reads several keys as they are at one moment.
fn read_several(
    shared: &Shared,
    session: &mut Session,
    view: &mut ViewCache,
    entry: Entry,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> Result<(), CommandError> {
    let start = output.len();
    let indexes: Vec<StripeIndex> = entry.spec.keys.of(arguments).map(|key| shared.stripes.index_of(key)).collect();
    for _ in 0..READ_ATTEMPTS_MAX {
        let Some(sequences) = shared.stripes.sequences(&indexes) else {
            std::thread::yield_now();
            continue;
        };
        session.lookups = Lookups::default();
        // After the sequences: a flush or an exchange that ends later changes them.
        let mut access = Access::direct(view.refresh(shared), None);
        run_with(shared, session, &mut access, entry, arguments, output)?;
        if shared.stripes.sequences(&indexes) == Some(sequences) {
            effects::publish(&shared.hub, &shared.runtime, &mut access.effects, session.public.id);
            return Ok(());
        }
        output.truncate(start);
    }
    session.lookups = Lookups::default();
    let held = shared.stripes.lock_several(indexes);
    let mut access = Access::direct(view.refresh(shared), Some(held));
    let result = run_with(shared, session, &mut access, entry, arguments, output);
    effects::publish(&shared.hub, &shared.runtime, &mut access.effects, session.public.id);
    result
}

/// Locks the stripes of the keys that a command changes.
fn lock<'a>(shared: &'a Shared, spec: &CommandSpec, arguments: &[&[u8]]) -> Option<Held<'a>> {
    if spec.kind != CommandKind::Write {
        return None;
    }
    let stripes = &shared.stripes;
    if spec.keys == Keys::Everything {
        return Some(stripes.lock_all());
    }
    let mut keys = spec.keys.of(arguments);
    match (keys.next(), keys.next()) {
        (None, _) => None,
        (Some(key), None) => Some(stripes.lock_one(key)),
        (Some(_), Some(_)) => {
            Some(stripes.lock_several(spec.keys.of(arguments).map(|key| stripes.index_of(key)).collect()))
        }
    }
}

/// Runs a command of `EXEC`. An error becomes its reply.
pub(crate) fn run_handler(context: &mut Context<'_, '_>, arguments: &[&[u8]]) {
    let start = context.reply.output_bytes();
    let begun = Instant::now();
    let found = find_entry(arguments[0]);
    let result = match found {
        Some(entry) => check_queued(context, &Call::new(entry, arguments), arguments).and_then(|()| {
            feed_monitors(context.shared, context.session, entry, arguments);
            register_reads(context, entry.spec, arguments);
            // The bound counts for all replies of `EXEC` together.
            bound_reply(context.shared, entry.spec, &mut context.reply, 0);
            handler_of(entry.index)(context, arguments)?;
            check_reply(&context.reply)
        }),
        None => Err(unknown_command(arguments)),
    };
    if let Some(entry) = found {
        let command = (entry.index, entry.spec);
        note_call(context.shared, context.session, command, arguments, begun, result.is_err());
    }
    if let Err(error) = result {
        context.reply.truncate(start);
        let keys = found.map_or(Keys::None, |entry| entry.spec.keys).of(arguments);
        let keyspace = context.access.keyspace(context.database());
        let error = error.name_key(keys, |key| is_damaged(keyspace, key));
        write_error(context.shared, &mut context.reply, &error);
    }
}

/// Registers the keys that a command of `EXEC` reads, if its client caches.
fn register_reads(context: &Context<'_, '_>, spec: &CommandSpec, arguments: &[&[u8]]) {
    if spec.kind == CommandKind::Read && context.session.messaging.tracks_reads() {
        let (id, database) = (context.session.public.id, context.database());
        let (hub, keys_max) = (&context.shared.hub, context.shared.runtime.tracking_keys_max());
        effects::register_reads(hub, keys_max, id, database, spec.keys.of(arguments), |key| {
            context.access.expiry(database, key).ok().flatten().flatten()
        });
    }
}

fn queue(
    session: &mut Session,
    spec: &CommandSpec,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> Result<(), CommandError> {
    if spec.has(flag::NO_MULTI) {
        return Err(CommandError::new("ERR Command not allowed inside a transaction"));
    }
    if transaction::refuses(spec) {
        let name = spec.name.to_ascii_uppercase();
        return Err(CommandError::new(format!("ERR {name} cannot be part of a transaction: run it outside of MULTI")));
    }
    if let Some(transaction) = &mut session.transaction {
        let arguments = arguments.iter().map(|argument| argument.to_vec()).collect();
        let queued = QueuedCommand { arguments };
        transaction.bytes += queued.bytes();
        transaction.queue.push(queued);
    }
    session.show_transaction();
    ReplyWriter::new(output, session.protocol).write_simple("QUEUED");
    Ok(())
}

//! The way of a command from its arguments to its reply.

use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestore::Error as StoreError;
use lodestore_wire::ReplyWriter;

use super::context::Context;
pub(crate) use super::lookup::find;
use super::lookup::find_entry;
use super::spec::{CommandSpec, Effect, Keys, flag};
use super::{client, transaction};
use crate::acl::check::{Call, Denial, check_call};
use crate::acl::log::LogEntry;
use crate::data::access::Access;
use crate::data::databases::View;
use crate::data::stripes::{Held, StripeIndex};
use crate::error::{CommandError, CommandResult};
use crate::session::{QueuedCommand, ReplyMode, Session};
use crate::shared::Shared;

/// Attempts of a read while other commands change its keys or the databases. A command that reads
/// several keys locks them afterwards.
const READ_ATTEMPTS_MAX: usize = 8;

/// Runs one command of a client and appends its reply to `output`.
pub(crate) fn run(
    shared: &Shared,
    session: &mut Session,
    view: &mut ViewCache,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) {
    let start = output.len();
    shared.counters.commands.fetch_add(1, Ordering::Relaxed);
    if session.reply_mode == ReplyMode::SkipNext {
        session.reply_mode = ReplyMode::Skip;
    }
    session.refresh_user(&shared.acl);
    if session.closes {
        return;
    }
    let result = match admit(shared, session, arguments) {
        Ok(call) if session.transaction.is_some() && !call.spec.has(flag::CONTROLS_TRANSACTION) => {
            queue(session, call.spec, arguments, output).map_err(|error| reject(shared, session, arguments, error))
        }
        Ok(call) => run_admitted(shared, session, view, call.spec, arguments, output),
        Err(error) => Err(reject(shared, session, arguments, error)),
    };
    if let Err(error) = result {
        shared.counters.errors.fetch_add(1, Ordering::Relaxed);
        output.truncate(start);
        ReplyWriter::new(output, session.protocol).write_error(&error.reply());
    }
    match session.reply_mode {
        ReplyMode::On | ReplyMode::SkipNext => {}
        ReplyMode::Off => output.truncate(start),
        ReplyMode::Skip => {
            output.truncate(start);
            session.reply_mode = ReplyMode::On;
        }
    }
}

/// Whether a flush or an exchange of databases came between the look at the databases and a read.
/// The caller then reads again. A command that holds stripes is never stale.
fn is_stale(shared: &Shared, generation: u64, spec: &CommandSpec, result: &CommandResult) -> bool {
    match result {
        Err(CommandError::Store(StoreError::KeyspaceDropped { .. })) => true,
        Err(_) => false,
        Ok(()) => spec.effect == Effect::Read && shared.databases.generation() != generation,
    }
}

/// Whether a command of a client may share its commit with writes of other clients: it changes
/// keys that it names, and nothing else.
pub(crate) fn is_groupable(shared: &Shared, session: &Session, arguments: &[&[u8]]) -> bool {
    let is_plain = session.is_authenticated
        && session.is_free_of_checks(&shared.acl)
        && session.transaction.is_none()
        && session.reply_mode == ReplyMode::On
        && !session.closes;
    is_plain
        && find(arguments[0]).is_some_and(|spec| {
            spec.effect == Effect::Write && spec.accepts(arguments.len()) && spec.keys.of(arguments).next().is_some()
        })
}

/// Runs a command whose writes wait for the commit of `access`, which holds the stripes of its
/// keys. Returns whether the reply is valid once the commit succeeds.
pub(crate) fn run_grouped<'a>(
    shared: &'a Shared,
    session: &mut Session,
    access: &mut Access<'a>,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> bool {
    let start = output.len();
    let Some(spec) = find(arguments[0]) else { return false };
    let reply = ReplyWriter::new(output, session.protocol);
    let mut context = Context { shared, session, access, reply };
    match (spec.handler)(&mut context, arguments) {
        Ok(()) => {}
        Err(CommandError::Store(_)) => return false,
        Err(error @ CommandError::Text(_)) => {
            shared.counters.errors.fetch_add(1, Ordering::Relaxed);
            output.truncate(start);
            ReplyWriter::new(output, session.protocol).write_error(&error.reply());
        }
    }
    shared.counters.commands.fetch_add(1, Ordering::Relaxed);
    true
}

/// Iterates over the stripes of the keys of a command.
pub(crate) fn stripes_of<'a>(
    shared: &'a Shared,
    arguments: &'a [&'a [u8]],
) -> impl Iterator<Item = StripeIndex> + use<'a> {
    let keys = find(arguments[0]).map_or(Keys::None, |spec| spec.keys);
    keys.of(arguments).map(|key| shared.stripes.index_of(key))
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

/// Checks whether a client may run a command now.
fn admit(shared: &Shared, session: &mut Session, arguments: &[&[u8]]) -> Result<Call, CommandError> {
    if is_http(arguments[0]) {
        session.closes = true;
        return Err(CommandError::new("ERR this is not an HTTP server"));
    }
    let entry = find_entry(arguments[0]).ok_or_else(|| unknown_command(arguments))?;
    let call = Call::new(entry, arguments);
    if let (None, false, Some(name)) = (call.subcommand, entry.subcommands.is_empty(), arguments.get(1)) {
        return Err(CommandError::unknown_subcommand(entry.spec.name, name));
    }
    if !call.accepts(arguments.len()) {
        return Err(CommandError::wrong_arity(call.name()));
    }
    if !session.is_authenticated && !call.spec.has(flag::NO_AUTH) {
        return Err(CommandError::new("NOAUTH Authentication required."));
    }
    if !session.is_unrestricted() {
        let context = if session.transaction.is_some() { "multi" } else { "toplevel" };
        check_permission(shared, session, &call, arguments, context)
            .map_err(|denial| CommandError::new(format!("NOPERM {}", denial.text())))?;
    }
    shared.memory.admit(shared, call.spec)?;
    Ok(call)
}

/// Checks the permissions of a restricted user, and logs a denial.
fn check_permission(
    shared: &Shared,
    session: &Session,
    call: &Call,
    arguments: &[&[u8]],
    context: &'static str,
) -> Result<(), Denial> {
    check_call(&session.user, call, arguments).inspect_err(|denial| {
        let (reason, object) = match denial {
            Denial::Command(name) => ("command", name.as_bytes()),
            Denial::Key(key) => ("key", key.as_slice()),
            Denial::Channel(channel) => ("channel", channel.as_slice()),
        };
        log_denial(shared, session, &Denied { reason, object, user: session.user.name.as_bytes(), context });
    })
}

/// A denial for `ACL LOG`.
pub(crate) struct Denied<'a> {
    pub(crate) reason: &'static str,
    pub(crate) object: &'a [u8],
    pub(crate) user: &'a [u8],
    /// `toplevel` or `multi`.
    pub(crate) context: &'static str,
}

/// Adds a denial to `ACL LOG`.
pub(crate) fn log_denial(shared: &Shared, session: &Session, denied: &Denied<'_>) {
    shared.acl.log.add(LogEntry {
        count: 1,
        reason: denied.reason,
        context: denied.context,
        object: denied.object.to_vec(),
        user: denied.user.to_vec(),
        created: Instant::now(),
        client: client::describe(&session.public).trim_end().into(),
    });
}

/// Makes `EXEC` fail, because a command was refused before it ran. A refused `EXEC` ends the
/// transaction. Returns the error to send.
fn reject(shared: &Shared, session: &mut Session, arguments: &[&[u8]], error: CommandError) -> CommandError {
    if let Some(transaction) = &mut session.transaction {
        transaction.is_failed = true;
    }
    if !arguments[0].eq_ignore_ascii_case(b"exec") {
        return error;
    }
    transaction::abort(shared, session);
    let text = error.reply();
    let text = text.strip_prefix("ERR ").unwrap_or(&text);
    CommandError::new(format!("EXECABORT Transaction discarded because of: {text}"))
}

/// Runs a command. A read whose databases were flushed or exchanged meanwhile runs again.
fn run_admitted(
    shared: &Shared,
    session: &mut Session,
    view: &mut ViewCache,
    spec: &CommandSpec,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> CommandResult {
    let start = output.len();
    let mut result = Ok(());
    for _ in 0..READ_ATTEMPTS_MAX {
        let generation = shared.databases.generation();
        result = try_run(shared, session, view, spec, arguments, output);
        if !is_stale(shared, generation, spec, &result) {
            break;
        }
        output.truncate(start);
    }
    result
}

fn try_run(
    shared: &Shared,
    session: &mut Session,
    view: &mut ViewCache,
    spec: &CommandSpec,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> Result<(), CommandError> {
    let held = lock(shared, spec, arguments);
    let is_consistent_read = spec.effect == Effect::Read && spec.keys.of(arguments).nth(1).is_some();
    if is_consistent_read {
        return read_several(shared, session, view, spec, arguments, output);
    }
    let view = view.refresh(shared);
    let mut access = match held {
        Some(held) if spec.has(flag::SEVERAL_WRITES) => Access::buffered(view, held),
        held => Access::direct(view, held),
    };
    let reply = ReplyWriter::new(output, session.protocol);
    let mut context = Context { shared, session, access: &mut access, reply };
    (spec.handler)(&mut context, arguments)?;
    Ok(access.commit(shared.db())?)
}

/// Reads several keys as they are at one moment.
fn read_several(
    shared: &Shared,
    session: &mut Session,
    view: &mut ViewCache,
    spec: &CommandSpec,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> Result<(), CommandError> {
    let start = output.len();
    let indexes: Vec<StripeIndex> = spec.keys.of(arguments).map(|key| shared.stripes.index_of(key)).collect();
    for _ in 0..READ_ATTEMPTS_MAX {
        let Some(sequences) = shared.stripes.sequences(&indexes) else {
            std::thread::yield_now();
            continue;
        };
        // After the sequences: a flush or an exchange that ends later changes them.
        let mut access = Access::direct(view.refresh(shared), None);
        let reply = ReplyWriter::new(output, session.protocol);
        let mut context = Context { shared, session, access: &mut access, reply };
        (spec.handler)(&mut context, arguments)?;
        if shared.stripes.sequences(&indexes) == Some(sequences) {
            return Ok(());
        }
        output.truncate(start);
    }
    let held = shared.stripes.lock_several(indexes);
    let mut access = Access::direct(view.refresh(shared), Some(held));
    let reply = ReplyWriter::new(output, session.protocol);
    let mut context = Context { shared, session, access: &mut access, reply };
    (spec.handler)(&mut context, arguments)
}

/// Locks the stripes of the keys that a command changes.
fn lock<'a>(shared: &'a Shared, spec: &CommandSpec, arguments: &[&[u8]]) -> Option<Held<'a>> {
    if spec.effect != Effect::Write {
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
    let result = match find_entry(arguments[0]) {
        Some(entry) => check_again(context, &Call::new(entry, arguments), arguments)
            .and_then(|()| (entry.spec.handler)(context, arguments)),
        None => Err(unknown_command(arguments)),
    };
    if let Err(error) = result {
        context.reply.truncate(start);
        context.reply.write_error(&error.reply());
    }
}

/// Checks the permissions of a queued command again: they may have changed since `MULTI`.
fn check_again(context: &Context<'_, '_>, call: &Call, arguments: &[&[u8]]) -> Result<(), CommandError> {
    if context.session.is_unrestricted() {
        return Ok(());
    }
    check_permission(context.shared, context.session, call, arguments, "multi").map_err(|denial| {
        CommandError::new(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {}",
            denial.reason()
        ))
    })
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
        transaction.queue.push(QueuedCommand { arguments });
    }
    ReplyWriter::new(output, session.protocol).write_simple("QUEUED");
    Ok(())
}

/// Whether a command is the begin of an HTTP request. A web page may send commands in the body of
/// a request to a server of this machine, so the connection ends.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Returns the error for a command that does not exist. The text is that of Redis.
fn unknown_command(arguments: &[&[u8]]) -> CommandError {
    if super::absent::needs_cluster(arguments[0]) {
        return CommandError::new("ERR This instance has cluster support disabled");
    }
    /// Most bytes of the name and of the arguments in the text.
    const SHOWN_BYTES_MAX: usize = 128;
    // Redis shows a text up to its first zero byte.
    let shown = |text: &[u8], bytes_max: usize| {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(&text[..text.len().min(bytes_max)]).into_owned()
    };
    let mut text =
        format!("ERR unknown command '{}', with args beginning with: ", shown(arguments[0], SHOWN_BYTES_MAX));
    let bound = text.len() + SHOWN_BYTES_MAX;
    for argument in &arguments[1..] {
        if text.len() >= bound {
            break;
        }
        let left = bound - text.len();
        text.push('\'');
        text.push_str(&shown(argument, left));
        text.push_str("' ");
    }
    if let Some(reason) = super::absent::reason(arguments[0]) {
        text.push_str(reason);
    }
    CommandError::new(text)
}

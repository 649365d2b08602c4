//! `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`.
//!
//! `EXEC` holds the stripes of all keys of its commands, runs them over a buffer of writes, and
//! commits the buffer as one batch. Therefore the commands are one step to all other commands, and
//! a crash leaves all of their writes or none. The replies are sent after the commit.

use lodestore_wire::ReplyWriter;

use super::context::Context;
use super::dispatch;
use super::kill::may_kill;
use super::pause;
use crate::command_specs::spec::{CommandKind, CommandSpec, Keys};
use crate::data::access::Access;
use crate::data::stripes::{DatabaseKey, Held, StripeIndex};
use crate::error::{CLIENT_KILLED, CommandError, CommandResult};
use crate::messaging::effects;
use crate::session::{QueuedCommand, Session, Transaction};
use crate::shared::Shared;

/// `MULTI`
pub(crate) fn multi(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    if context.session.transaction.is_some() {
        return Err(CommandError::new("ERR MULTI calls can not be nested"));
    }
    context.session.transaction = Some(Transaction::default());
    context.session.public.with_details(|details| details.is_in_transaction = true);
    context.reply.write_ok();
    Ok(())
}

/// Ends the transaction of a client, and its watch.
pub(crate) fn end(shared: &Shared, session: &mut Session) {
    session.unwatch(&shared.stripes);
    session.public.with_details(|details| {
        details.is_in_transaction = false;
        details.watched_count = 0;
    });
    session.transaction = None;
    session.show_transaction();
}

/// `DISCARD`
pub(crate) fn discard(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    if context.session.transaction.is_none() {
        return Err(CommandError::new("ERR DISCARD without MULTI"));
    }
    end(context.shared, context.session);
    context.reply.write_ok();
    Ok(())
}

/// `WATCH key [key ...]`
pub(crate) fn watch(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    if context.session.transaction.is_some() {
        return Err(CommandError::new("ERR WATCH inside MULTI is not allowed"));
    }
    let database = context.database();
    for key in &arguments[1..] {
        let key = DatabaseKey { database, key: key.to_vec() };
        if context.session.watched.contains_key(&key) {
            continue;
        }
        let mut held = context.shared.stripes.lock_one(&key.key);
        // An exchange of databases may have ended since the command began. None ends while the
        // stripe is held.
        let expiry = context.shared.databases.view().keyspace(database).expiry(&key.key)?.flatten();
        context.shared.stripes.watch(&mut held, key.clone(), &context.session.watch_flag);
        drop(held);
        context.session.watched_name_bytes += key.key.len();
        context.session.watched.insert(key, expiry);
    }
    let count = context.session.watched.len();
    context.session.public.with_details(|details| details.watched_count = count);
    context.reply.write_ok();
    Ok(())
}

/// `UNWATCH`
///
/// Within `EXEC` the command does nothing: `EXEC` holds the stripes, and ends the watch itself.
pub(crate) fn unwatch(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    if context.access.is_buffered() {
        context.reply.write_ok();
        return Ok(());
    }
    context.session.unwatch(&context.shared.stripes);
    context.session.public.with_details(|details| details.watched_count = 0);
    context.reply.write_ok();
    Ok(())
}

/// `EXEC`
pub(crate) fn exec(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    let Some(transaction) = &context.session.transaction else {
        return Err(CommandError::new("ERR EXEC without MULTI"));
    };
    if transaction.is_failed {
        end(context.shared, context.session);
        return Err(CommandError::new("EXECABORT Transaction discarded because of previous errors."));
    }
    let specs = transaction.queue.iter().filter_map(|queued| dispatch::find(&queued.arguments[0]));
    let shared = context.shared;
    let admit = |spec| shared.memory.admit(&shared.runtime, shared.db(), spec);
    if let Err(error) = specs.into_iter().try_for_each(admit) {
        end(context.shared, context.session);
        return Err(CommandError::new(format!("EXECABORT Transaction discarded because of: {}", error.reply())));
    }
    let transaction = context.session.transaction.take().unwrap_or_default();
    let result = run(context, &transaction.queue);
    if matches!(result, Err(CommandError::Held)) {
        context.session.transaction = Some(transaction);
    } else {
        end(context.shared, context.session);
    }
    result
}

fn run(context: &mut Context<'_, '_>, queue: &[QueuedCommand]) -> CommandResult {
    let shared = context.shared;
    let held = lock(shared, context.session.watched.keys(), queue);
    if context.session.public.is_killed() {
        return Err(CLIENT_KILLED);
    }
    if pause::holds_queue(shared, queue) {
        return Err(CommandError::Held);
    }
    if context.session.is_watch_broken() {
        context.reply.write_null_array();
        return Ok(());
    }
    let view = shared.databases.view();
    let mut access = Access::buffered(&view, held);
    access.effects.wanted = effects::wanted_effects(&shared.hub, &shared.runtime);
    // The replies have a separate buffer: the client gets them only if the commit succeeds.
    let mut replies = Vec::new();
    for command in queue {
        let arguments: Vec<&[u8]> = command.arguments.iter().map(Vec::as_slice).collect();
        let mut inner = Context {
            shared,
            session: &mut *context.session,
            access: &mut access,
            reply: ReplyWriter::new(&mut replies, context.reply.protocol()),
        };
        dispatch::run_handler(&mut inner, &arguments);
        let protocol = inner.reply.protocol();
        context.reply.set_protocol(protocol);
    }
    let committed = access.commit(shared.db());
    if committed.is_err() {
        access.effects.drop_events();
    }
    effects::publish(&shared.hub, &shared.runtime, &mut access.effects, context.session.public.id);
    committed?;
    drop(access);
    context.reply.write_array(queue.len());
    context.reply.write_raw(&replies);
    Ok(())
}

/// Locks the stripes of all keys of the commands and of all watched keys.
fn lock<'a, 'b>(
    shared: &'a Shared,
    watched: impl Iterator<Item = &'b DatabaseKey>,
    queue: &[QueuedCommand],
) -> Held<'a> {
    let stripes = &shared.stripes;
    let mut indexes: Vec<StripeIndex> = Vec::new();
    for command in queue {
        let arguments: Vec<&[u8]> = command.arguments.iter().map(Vec::as_slice).collect();
        let Some(spec) = dispatch::find(arguments[0]) else { continue };
        if spec.keys == Keys::Everything || may_kill(&arguments) {
            return stripes.lock_all();
        }
        indexes.extend(spec.keys.of(&arguments).map(|key| stripes.index_of(key)));
    }
    indexes.extend(watched.map(|watched| stripes.index_of(&watched.key)));
    stripes.lock_several(indexes)
}

/// Whether `MULTI` refuses a command: it changes the set of databases, which no batch can.
pub(crate) fn refuses(spec: &CommandSpec) -> bool {
    spec.kind == CommandKind::Write && spec.keys == Keys::Everything
}

//! Writes of several clients that share one commit.

use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestore_wire::ReplyWriter;

use super::context::Context;
use super::dispatch::{note_call, write_error};
use super::lookup::{find, find_entry};
use super::spec::{Effect, Keys};
use crate::data::access::Access;
use crate::data::stripes::StripeIndex;
use crate::error::CommandError;
use crate::messaging::effects::Wanted;
use crate::session::{ReplyMode, Session};
use crate::shared::Shared;

/// Whether a command of a client may share its commit with writes of other clients: it changes
/// keys that it names, and nothing else. While a client listens to changes, no commands share a
/// commit, because each change has its own message.
pub(crate) fn is_groupable(shared: &Shared, session: &Session, arguments: &[&[u8]]) -> bool {
    let is_plain = session.is_authenticated
        && session.is_free_of_checks(&shared.acl)
        && session.transaction.is_none()
        && session.reply_mode == ReplyMode::On
        && !session.is_restricted_subscriber()
        && !session.messaging.is_monitor
        && !shared.hub.monitors.is_active()
        && !Wanted::of(shared).is_any()
        && !session.is_over();
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
    let begun = Instant::now();
    let Some(entry) = find_entry(arguments[0]) else { return false };
    let reply = ReplyWriter::new(output, session.protocol);
    let mut context = Context { shared, session, access, reply };
    let admitted = shared.memory.admit(shared, entry.spec);
    let result = admitted.and_then(|()| (entry.spec.handler)(&mut context, arguments));
    if let Err(CommandError::Store(_)) = result {
        return false;
    }
    shared.counters.commands.fetch_add(1, Ordering::Relaxed);
    note_call(shared, session, (entry.index, entry.spec), arguments, begun, result.is_err());
    if let Err(error) = result {
        output.truncate(start);
        write_error(shared, &mut ReplyWriter::new(output, session.protocol), &error);
    }
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

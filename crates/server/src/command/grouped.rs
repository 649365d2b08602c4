//! Writes of several clients that share one commit.

use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestore_wire::ReplyWriter;

use super::context::Context;
use super::dispatch::{note_call, write_error};
use super::lookup::{find, find_entry};
use super::spec::{Effect, Keys};
use crate::data::access::Access;
use crate::data::stripes::{Held, StripeIndex};
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
        && !session.closes;
    is_plain
        && find(arguments[0]).is_some_and(|spec| {
            spec.effect == Effect::Write && spec.accepts(arguments.len()) && spec.keys.of(arguments).next().is_some()
        })
}

/// Locks the stripes of the first command of a group. Returns `None` if the command may not share
/// its commit, because a client began to listen while the stripes were awaited.
pub(crate) fn lock_first<'a>(shared: &'a Shared, session: &Session, arguments: &[&[u8]]) -> Option<Held<'a>> {
    let held = shared.stripes.lock_several(stripes_of(shared, arguments).collect());
    is_groupable(shared, session, arguments).then_some(held)
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

/// Returns the most writes of a command: of keys, or of fields of a large hash and of its record.
/// The elements of a hash that becomes large are not included.
pub(crate) fn writes_max(arguments: &[&[u8]]) -> usize {
    arguments.len()
}

/// Iterates over the stripes of the keys of a command.
pub(crate) fn stripes_of<'a>(
    shared: &'a Shared,
    arguments: &'a [&'a [u8]],
) -> impl Iterator<Item = StripeIndex> + use<'a> {
    let keys = find(arguments[0]).map_or(Keys::None, |spec| spec.keys);
    keys.of(arguments).map(|key| shared.stripes.index_of(key))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::acl::Acl;
    use crate::config::Config;
    use crate::data::databases::Databases;
    use crate::messaging::tracking::TrackedClient;

    #[test]
    fn a_group_does_not_begin_once_a_client_tracks() {
        let dir = tempfile::tempdir().unwrap();
        let builder = lodestore::Db::builder(dir.path().join("store")).engine(lodestore::db::Engine::fluidkv());
        let databases = Databases::open(builder.capacity(64 << 20).open().unwrap(), 1).unwrap();
        let acl = Acl::new(&Config::default()).unwrap();
        let shared = Shared::new(databases, Config::default(), acl, 0);
        let client = shared.add_client(String::new(), String::new()).unwrap();
        let session = Session::new(Arc::clone(&client), &shared.acl, Arc::new(crate::statistics::commands::LoopCounters::new()));
        let arguments: [&[u8]; 3] = [b"SET", b"a", b"1"];
        assert!(is_groupable(&shared, &session, &arguments));
        // The client begins after the check, and before the stripe is acquired.
        shared.hub.tracking.enable(TrackedClient {
            client,
            redirect: None,
            is_broadcast: true,
            prefixes: vec![Vec::new()],
            skips_own: false,
            is_broken: false,
        });
        assert!(lock_first(&shared, &session, &arguments).is_none());
        assert!(shared.stripes.sequences(&[shared.stripes.index_of(b"a")]).is_some(), "the stripe is held");
    }
}

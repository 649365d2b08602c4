//! The commands whose writes may share one commit with other clients (`net/group.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_wire::ReplyWriter;

use super::context::Context;
use super::dispatch::count_error;
use super::handlers::handler_of;
use crate::client::PublicState;
use crate::command_specs::lookup::{Entry, find, find_entry};
use crate::command_specs::spec::{CommandKind, Keys};
use crate::data::access::Access;
use crate::data::stripes::{Held, StripeIndex};
use crate::error::CommandError;
use crate::messaging::effects;
use crate::session::{ReplyMode, Session};
use crate::shared::Shared;
use crate::statistics::commands::LoopCounters;
use crate::statistics::counters::Lookups;

/// The end of a command of a group.
#[derive(Debug)]
enum CallOutcome {
    Done,
    /// The command was refused before it ran.
    Rejected(CommandError),
    Failed(CommandError),
}

/// A command of a group, which counts once the group is committed.
#[derive(Debug)]
pub(crate) struct GroupedCall {
    entry: Entry,
    elapsed: Duration,
    outcome: CallOutcome,
    lookups: Lookups,
    /// The client and the arguments of a command that was slow.
    slow: Option<(Arc<PublicState>, Vec<Vec<u8>>)>,
}

/// Whether a command of a client may share its commit with writes of other clients: it changes
/// keys that it names, and nothing else. While a client listens to changes, no commands share a
/// commit, because each change has its own message. Commands that a pause holds share none either.
pub(crate) fn is_groupable(shared: &Shared, session: &Session, arguments: &[&[u8]]) -> bool {
    let is_plain = session.is_authenticated
        && session.is_free_of_checks(&shared.acl)
        && session.transaction.is_none()
        && session.reply_mode == ReplyMode::On
        && !session.is_restricted_subscriber()
        && !session.messaging.is_monitor
        && !shared.hub.monitors.is_active()
        && !effects::wanted_effects(&shared.hub, &shared.runtime).is_any()
        && shared.pause_mode().is_none()
        && !session.has_ended();
    is_plain
        && find(arguments[0]).is_some_and(|spec| {
            spec.kind == CommandKind::Write && spec.accepts(arguments.len()) && spec.keys.of(arguments).next().is_some()
        })
}

/// Locks the stripes of the first command of a group. Returns `None` if the command may not share
/// its commit, because a client began to listen, or a pause began, while the stripes were awaited.
pub(crate) fn lock_first<'a>(shared: &'a Shared, session: &Session, arguments: &[&[u8]]) -> Option<Held<'a>> {
    let held = shared.stripes.lock_several(stripes_of(shared, arguments).collect());
    is_groupable(shared, session, arguments).then_some(held)
}

/// Runs a command whose writes wait for the commit of `access`, which holds the stripes of its
/// keys. The reply is valid once the commit succeeds. Returns `None` if the store failed.
pub(crate) fn run_grouped<'a>(
    shared: &'a Shared,
    session: &mut Session,
    access: &mut Access<'a>,
    arguments: &[&[u8]],
    output: &mut Vec<u8>,
) -> Option<GroupedCall> {
    let entry = find_entry(arguments[0])?;
    let start = output.len();
    let begun = Instant::now();
    session.public.figures.note_command(Some(entry.id));
    let reply = ReplyWriter::new(output, session.protocol);
    session.lookups = Lookups::default();
    let mut context = Context { shared, session: &mut *session, access, reply };
    let outcome = match shared.memory.admit(&shared.runtime, shared.db(), entry.spec) {
        Err(error) => CallOutcome::Rejected(error),
        Ok(()) => match handler_of(entry.index)(&mut context, arguments) {
            Err(CommandError::Store(_)) => return None,
            Err(error) => CallOutcome::Failed(error),
            Ok(()) => CallOutcome::Done,
        },
    };
    if let CallOutcome::Rejected(error) | CallOutcome::Failed(error) = &outcome {
        output.truncate(start);
        ReplyWriter::new(output, session.protocol).write_error(&error.reply());
    }
    let elapsed = begun.elapsed();
    let is_slow = shared.statistics.is_slow(&shared.runtime, elapsed);
    let slow = is_slow.then(|| {
        let arguments = arguments.iter().map(|argument| argument.to_vec()).collect();
        (Arc::clone(&session.public), arguments)
    });
    Some(GroupedCall { entry, elapsed, outcome, lookups: std::mem::take(&mut session.lookups), slow })
}

/// Counts the commands of a group that was committed. `counters` are those of the event loop.
pub(crate) fn count_calls(shared: &Shared, counters: &LoopCounters, calls: &[GroupedCall]) {
    shared.counters.commands.fetch_add(calls.len() as u64, Ordering::Relaxed);
    let mut lookups = Lookups::default();
    for call in calls {
        let command = call.entry.index;
        lookups.hits += call.lookups.hits;
        lookups.misses += call.lookups.misses;
        match &call.outcome {
            CallOutcome::Rejected(_) => counters.count_rejected(command),
            CallOutcome::Done | CallOutcome::Failed(_) => counters.count_calls(command, 1, call.elapsed),
        }
        match &call.outcome {
            CallOutcome::Done => {}
            CallOutcome::Rejected(error) => count_error(shared, error),
            CallOutcome::Failed(error) => {
                counters.count_failed(command);
                count_error(shared, error);
            }
        }
        if let Some((client, arguments)) = &call.slow {
            let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
            shared.statistics.note_time(&shared.runtime, call.entry.spec, call.elapsed, client, &arguments);
        }
    }
    shared.counters.count_lookups(lookups);
}

/// Returns the maximum writes of a command: of keys, or of fields of a large hash and of its
/// record. The elements of a hash that becomes large are not included.
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
        let session = Session::new(Arc::clone(&client), &shared.acl, Arc::new(LoopCounters::new()));
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

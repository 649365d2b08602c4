//! Admission: the checks before a command runs, and the errors of those that are refused.

use std::net::SocketAddr;
use std::time::Instant;

use super::client;
use super::context::Context;
use super::{pubsub, transaction};
use crate::acl::check::{Call, Denial, check_call};
use crate::acl::log::LogEntry;
use crate::command_specs::lookup::{Entry, find_entry};
use crate::command_specs::spec::{CommandKind, flag};
use crate::config::DebugClients;
use crate::error::{CommandError, CommandResult, DEBUG_REFUSED};
use crate::session::Session;
use crate::shared::Shared;

/// Checks whether a client may run a command now.
pub(super) fn admit(
    shared: &Shared,
    session: &mut Session,
    arguments: &[&[u8]],
) -> Result<(Entry, Call), CommandError> {
    if is_http(arguments[0]) {
        session.closes = true;
        return Err(CommandError::new("ERR this is not an HTTP server"));
    }
    let found = find_entry(arguments[0]).map(|entry| (entry, Call::new(entry, arguments)));
    session.public.figures.note_command(found.map(|(_, call)| call.id));
    let (entry, call) = found.ok_or_else(|| unknown_command(arguments))?;
    check_admission(shared, session, entry, &call, arguments)
        .inspect_err(|_| session.counters.count_rejected(entry.index))?;
    Ok((entry, call))
}

/// Refuses a command that a client may not run now.
fn check_admission(
    shared: &Shared,
    session: &Session,
    entry: Entry,
    call: &Call,
    arguments: &[&[u8]],
) -> CommandResult {
    if let (None, false, Some(name)) = (call.subcommand, entry.subcommands.is_empty(), arguments.get(1)) {
        return Err(CommandError::unknown_subcommand(entry.spec.name, name));
    }
    if !call.accepts(arguments.len()) {
        return Err(CommandError::wrong_arity(call.name()));
    }
    if call.spec.name == "debug" && !may_debug(shared, &session.public.address) {
        return Err(DEBUG_REFUSED);
    }
    if !session.is_authenticated && !call.spec.has(flag::NO_AUTH) {
        return Err(CommandError::new("NOAUTH Authentication required."));
    }
    if session.is_restricted_subscriber() && !pubsub::is_allowed(call.spec) {
        return Err(pubsub::restricted(call.spec, arguments));
    }
    if session.messaging.is_monitor && call.spec.kind != CommandKind::Other {
        return Err(CommandError::new("ERR Replica can't interact with the keyspace"));
    }
    if !session.is_unrestricted() {
        let context = if session.transaction.is_some() { "multi" } else { "toplevel" };
        check_permission(shared, session, call, arguments, context)
            .map_err(|denial| CommandError::new(format!("NOPERM {}", denial.text())))?;
    }
    shared.memory.admit(&shared.runtime, shared.db(), call.spec)
}

/// Whether the client of an address may run `DEBUG`.
fn may_debug(shared: &Shared, address: &str) -> bool {
    match shared.config.debug_clients {
        DebugClients::Nobody => false,
        DebugClients::Local => is_local(address),
        DebugClients::Everybody => true,
    }
}

/// Whether an address is that of a unix socket or a loopback address.
fn is_local(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_canonical().is_loopback(),
        // A unix socket has a path, or no name, and no port. `?` is an unknown address of TCP.
        Err(_) => address.ends_with(":0") && !address.starts_with('?'),
    }
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
pub(super) fn reject(shared: &Shared, session: &mut Session, arguments: &[&[u8]], error: CommandError) -> CommandError {
    if let Some(transaction) = &mut session.transaction {
        transaction.is_failed = true;
    }
    if !arguments[0].eq_ignore_ascii_case(b"exec") {
        return error;
    }
    transaction::end(shared, session);
    let text = error.reply();
    let text = text.strip_prefix("ERR ").unwrap_or(&text);
    CommandError::new(format!("EXECABORT Transaction discarded because of: {text}"))
}

/// Checks the permissions of a queued command again: they may have changed since `MULTI`.
pub(super) fn check_queued(context: &Context<'_, '_>, call: &Call, arguments: &[&[u8]]) -> Result<(), CommandError> {
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

/// Whether a command is the begin of an HTTP request. A web page may send commands in the body of
/// a request to a server of this machine, so the connection ends.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Returns the error for a command that does not exist. The text is that of Redis.
pub(super) fn unknown_command(arguments: &[&[u8]]) -> CommandError {
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

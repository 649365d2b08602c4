//! `SUBSCRIBE`, `PUBLISH` and the commands around them.

use lodestore_wire::{Protocol, ReplyWriter};

use super::context::Context;
use crate::acl::check::permits_subscription;
use crate::command_specs::spec::CommandSpec;
use crate::error::{CommandError, CommandResult};
use crate::messaging::channels::Kind;

/// Most bytes of the names of one client's subscriptions. Redis has no bound.
const NAME_BYTES_MAX: usize = 64 << 20;

/// Commands that a subscriber of RESP2 may run.
const ALLOWED: [&str; 9] =
    ["subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "ping", "quit", "reset"];

/// Commands whose first argument names a subcommand.
const CONTAINERS: [&str; 8] = ["acl", "client", "cluster", "command", "config", "latency", "pubsub", "slowlog"];

/// Whether a subscriber of RESP2 may run a command.
pub(crate) fn is_allowed(spec: &CommandSpec) -> bool {
    ALLOWED.contains(&spec.name)
}

/// Returns the error for a command that a subscriber of RESP2 may not run.
pub(crate) fn restricted(spec: &CommandSpec, arguments: &[&[u8]]) -> CommandError {
    let mut name = spec.name.to_string();
    if let (true, Some(subcommand)) = (CONTAINERS.contains(&spec.name), arguments.get(1)) {
        name = format!("{name}|{}", String::from_utf8_lossy(subcommand).to_ascii_lowercase());
    }
    CommandError::new(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context"
    ))
}

/// `SUBSCRIBE channel [channel ...]`
pub(crate) fn subscribe(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    add_all(context, Kind::Channel, "subscribe", &arguments[1..])
}

/// `PSUBSCRIBE pattern [pattern ...]`
pub(crate) fn psubscribe(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    add_all(context, Kind::Pattern, "psubscribe", &arguments[1..])
}

/// `SSUBSCRIBE shardchannel [shardchannel ...]`
pub(crate) fn ssubscribe(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    add_all(context, Kind::Shard, "ssubscribe", &arguments[1..])
}

fn add_all(context: &mut Context<'_, '_>, kind: Kind, word: &str, names: &[&[u8]]) -> CommandResult {
    let wanted: usize = names.iter().map(|name| name.len()).sum();
    if context.session.messaging.name_bytes + wanted > NAME_BYTES_MAX {
        return Err(CommandError::new("ERR too many subscriptions: unsubscribe first, or use patterns"));
    }
    for name in names {
        let session = &mut *context.session;
        context.shared.hub.channels.subscribe(&mut session.messaging, &session.public, kind, name);
        confirm(context, kind, word, Some(name));
    }
    show_counts(context);
    close_if_forbidden(context, kind, names);
    Ok(())
}

/// Closes the client if its user lost the channels after the command was checked. The command that
/// changed the user may have looked for subscribers before these subscriptions existed.
fn close_if_forbidden(context: &mut Context<'_, '_>, kind: Kind, names: &[&[u8]]) {
    let acl = &context.shared.acl;
    let session = &mut *context.session;
    if !session.has_current_rules(acl) {
        session.refresh_user(acl);
        session.closes |= !names.iter().all(|name| permits_subscription(&session.user, kind, name));
    }
}

/// `UNSUBSCRIBE [channel ...]`
pub(crate) fn unsubscribe(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    remove_all(context, Kind::Channel, "unsubscribe", &arguments[1..])
}

/// `PUNSUBSCRIBE [pattern ...]`
pub(crate) fn punsubscribe(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    remove_all(context, Kind::Pattern, "punsubscribe", &arguments[1..])
}

/// `SUNSUBSCRIBE [shardchannel ...]`
pub(crate) fn sunsubscribe(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    remove_all(context, Kind::Shard, "sunsubscribe", &arguments[1..])
}

fn remove_all(context: &mut Context<'_, '_>, kind: Kind, word: &str, names: &[&[u8]]) -> CommandResult {
    let own = context.session.messaging.list(kind);
    let names: Vec<&[u8]> = if names.is_empty() { own.iter().map(Vec::as_slice).collect() } else { names.to_vec() };
    if names.is_empty() {
        confirm(context, kind, word, None);
    }
    for name in names {
        let session = &mut *context.session;
        context.shared.hub.channels.unsubscribe(&mut session.messaging, session.public.id, kind, name);
        confirm(context, kind, word, Some(name));
    }
    show_counts(context);
    Ok(())
}

/// Writes the confirmation of a change: its word, the name, and the number of subscriptions.
fn confirm(context: &mut Context<'_, '_>, kind: Kind, word: &str, name: Option<&[u8]>) {
    let count = context.session.messaging.shown_count(kind);
    write_confirmation(&mut context.reply, word, name, count);
    if context.session.reply_mode.is_silent() {
        let protocol = context.reply.protocol();
        let confirmations = &mut context.session.messaging.confirmations;
        write_confirmation(&mut ReplyWriter::new(confirmations, protocol), word, name, count);
    }
}

fn write_confirmation(reply: &mut ReplyWriter<'_>, word: &str, name: Option<&[u8]>, count: usize) {
    reply.write_push(3);
    reply.write_bulk(word.as_bytes());
    match name {
        Some(name) => reply.write_bulk(name),
        None => reply.write_null(),
    }
    reply.write_integer(i64::try_from(count).unwrap_or(i64::MAX));
}

/// Shows the numbers of subscriptions to `CLIENT LIST`.
fn show_counts(context: &mut Context<'_, '_>) {
    let own = &context.session.messaging;
    let counts = (own.count(Kind::Channel), own.count(Kind::Pattern), own.count(Kind::Shard));
    context.session.public.with_details(|details| {
        (details.channel_count, details.pattern_count, details.shard_channel_count) = counts;
    });
}

fn write_count(context: &mut Context<'_, '_>, count: usize) {
    context.reply.write_integer(i64::try_from(count).unwrap_or(i64::MAX));
}

/// `PUBLISH channel message`
pub(crate) fn publish(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let count = context.shared.hub.publish(arguments[1], arguments[2]);
    write_count(context, count);
    Ok(())
}

/// `SPUBLISH shardchannel message`
pub(crate) fn spublish(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let count = context.shared.hub.publish_shard(arguments[1], arguments[2]);
    write_count(context, count);
    Ok(())
}

const HELP: [&str; 14] = [
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
    "HELP",
    "    Prints this help.",
];

/// `PUBSUB CHANNELS | NUMSUB | NUMPAT | SHARDCHANNELS | SHARDNUMSUB | HELP`
pub(crate) fn pubsub(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let subcommand = arguments[1].to_ascii_lowercase();
    match (subcommand.as_slice(), &arguments[2..]) {
        (b"channels", [] | [_]) => write_names(context, Kind::Channel, arguments.get(2).copied()),
        (b"shardchannels", [] | [_]) => write_names(context, Kind::Shard, arguments.get(2).copied()),
        (b"numsub", names) => write_subscriber_counts(context, Kind::Channel, names),
        (b"shardnumsub", names) => write_subscriber_counts(context, Kind::Shard, names),
        (b"numpat", []) => {
            let count = context.shared.hub.channels.pattern_count();
            write_count(context, count);
        }
        (b"help", []) => return super::keys::write_help(context, &HELP),
        (b"channels" | b"shardchannels", _) => {
            return Err(CommandError::unknown_subcommand_or_arity("pubsub", arguments[1]));
        }
        (b"numpat" | b"help", _) => {
            let name = String::from_utf8_lossy(&subcommand);
            return Err(CommandError::wrong_arity(&format!("pubsub|{name}")));
        }
        _ => return Err(CommandError::unknown_subcommand("pubsub", arguments[1])),
    }
    Ok(())
}

fn write_names(context: &mut Context<'_, '_>, kind: Kind, pattern: Option<&[u8]>) {
    let names = context.shared.hub.channels.names(kind, pattern);
    context.reply.write_array(names.len());
    names.iter().for_each(|name| context.reply.write_bulk(name));
}

fn write_subscriber_counts(context: &mut Context<'_, '_>, kind: Kind, names: &[&[u8]]) {
    context.reply.write_array(names.len() * 2);
    for name in names {
        let count = context.shared.hub.channels.subscriber_count(kind, name);
        context.reply.write_bulk(name);
        write_count(context, count);
    }
}

/// Writes the answer to `PING` of a subscriber of RESP2. Returns whether the client is one.
pub(crate) fn write_pong(context: &mut Context<'_, '_>, message: &[u8]) -> bool {
    let is_subscriber = context.session.is_restricted_subscriber() && context.reply.protocol() == Protocol::Resp2;
    if is_subscriber {
        context.reply.write_array(2);
        context.reply.write_bulk(b"pong");
        context.reply.write_bulk(message);
    }
    is_subscriber
}

//! Commands on the connection itself.

use lodestore_wire::{Protocol, parse_integer};

use super::admission::{Denied, log_denial};
use super::arguments::is_word;
use super::context::Context;
use super::keys::database_number;
use crate::error::{CommandError, CommandResult, DATABASE_OUT_OF_RANGE, SYNTAX};
use crate::session::ReplyMode;

/// Version of Redis that the server reports. Its commands and replies are those of Redis 7.0, and
/// some clients use their caches only from 7.4 on.
pub(crate) const REDIS_VERSION: &str = "7.4.0";

/// `PING [message]`
pub(crate) fn ping(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let message = arguments.get(1).copied().unwrap_or_default();
    if arguments.len() <= 2 && super::pubsub::write_pong(context, message) {
        return Ok(());
    }
    match arguments {
        [_] => context.reply.write_simple("PONG"),
        [_, message] => context.reply.write_bulk(message),
        _ => return Err(CommandError::wrong_arity("ping")),
    }
    Ok(())
}

/// `ECHO message`
pub(crate) fn echo(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    context.reply.write_bulk(arguments[1]);
    Ok(())
}

/// `QUIT`
pub(crate) fn quit(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    // A later message to the client is not counted as received.
    context.session.leave_hub(&context.shared.hub, &context.shared.runtime);
    context.reply.write_ok();
    context.session.closes = true;
    Ok(())
}

/// `SELECT index`
pub(crate) fn select(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    if parse_integer(arguments[1]).is_none_or(|number| number < 0) {
        return Err(match parse_integer(arguments[1]) {
            Some(_) => DATABASE_OUT_OF_RANGE,
            None => CommandError::new("ERR value is not an integer or out of range"),
        });
    }
    let database = database_number(context, arguments[1])?;
    context.session.database = database;
    context.session.public.with_details(|details| details.database = database);
    context.reply.write_ok();
    Ok(())
}

/// `AUTH [username] password`
pub(crate) fn auth(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let (user, password) = match arguments {
        [_, password] => {
            if context.shared.acl.default_user().is_nopass {
                return Err(CommandError::new(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                     your configuration is correct?",
                ));
            }
            (&b"default"[..], *password)
        }
        [_, user, password] => (*user, *password),
        _ => return Err(SYNTAX),
    };
    authenticate(context, user, password, arguments[0])?;
    context.reply.write_ok();
    Ok(())
}

/// Makes the client a user, if the password is right.
fn authenticate(context: &mut Context<'_, '_>, user: &[u8], password: &[u8], command: &[u8]) -> CommandResult {
    let shared = context.shared;
    let found = shared.acl.user(user);
    // An unknown user costs the same time as a known one.
    let is_right = found.clone().unwrap_or_else(|| shared.acl.default_user()).accepts(password);
    let Some(found) = found.filter(|_| is_right) else {
        let context_name = if context.session.transaction.is_some() { "multi" } else { "toplevel" };
        let denied = Denied { reason: "auth", object: command, user, context: context_name };
        log_denial(shared, context.session, &denied);
        return Err(CommandError::new("WRONGPASS invalid username-password pair or user is disabled."));
    };
    context.session.set_authenticated(true);
    context.session.set_user(found);
    Ok(())
}

/// `HELLO [protover [AUTH username password] [SETNAME clientname]]`
pub(crate) fn hello(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let mut protocol = context.session.protocol;
    let mut rest = arguments.get(2..).unwrap_or_default();
    if let Some(version) = arguments.get(1) {
        let version = parse_integer(version)
            .ok_or(CommandError::new("ERR Protocol version is not an integer or out of range"))?;
        protocol = match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(CommandError::new("NOPROTO unsupported protocol version")),
        };
    }
    let mut name = None;
    while let [word, after @ ..] = rest {
        rest = match after {
            [user, password, after @ ..] if is_word(word, "auth") => {
                authenticate(context, user, password, arguments[0])?;
                after
            }
            [text, after @ ..] if is_word(word, "setname") => {
                name = Some(super::client::checked_name(text)?);
                after
            }
            _ => {
                let word = String::from_utf8_lossy(word);
                return Err(CommandError::new(format!("ERR Syntax error in HELLO option '{word}'")));
            }
        };
    }
    if !context.session.is_authenticated {
        return Err(CommandError::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    context.session.protocol = protocol;
    let id = context.session.public.id;
    context.session.public.with_details(|details| {
        details.protocol = protocol;
        if let Some(name) = name {
            details.name = name;
        }
    });
    context.reply.set_protocol(protocol);
    write_hello(context, protocol, id);
    Ok(())
}

fn write_hello(context: &mut Context<'_, '_>, protocol: Protocol, id: u64) {
    let reply = &mut context.reply;
    reply.write_map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.write_bulk(name.as_bytes());
        reply.write_bulk(value.as_bytes());
    }
    reply.write_bulk(b"proto");
    reply.write_integer(match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    });
    reply.write_bulk(b"id");
    reply.write_integer(i64::try_from(id).unwrap_or(i64::MAX));
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.write_bulk(name.as_bytes());
        reply.write_bulk(value.as_bytes());
    }
    reply.write_bulk(b"modules");
    reply.write_array(0);
}

/// `RESET`
pub(crate) fn reset(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    let session = &mut *context.session;
    session.unwatch(&context.shared.stripes);
    session.leave_hub(&context.shared.hub, &context.shared.runtime);
    session.transaction = None;
    session.show_transaction();
    session.database = 0;
    session.protocol = Protocol::Resp2;
    // `CLIENT REPLY SKIP` also omits the reply to `RESET`, as in Redis.
    if session.reply_mode != ReplyMode::Skip {
        session.reply_mode = ReplyMode::On;
    }
    session.is_kept = false;
    let user = context.shared.acl.default_user();
    session.set_authenticated(user.is_open());
    session.set_user(user);
    session.public.with_details(|details| {
        details.name.clear();
        details.database = 0;
        details.protocol = Protocol::Resp2;
        details.is_in_transaction = false;
    });
    context.reply.set_protocol(Protocol::Resp2);
    context.reply.write_simple("RESET");
    Ok(())
}

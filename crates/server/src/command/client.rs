//! `CLIENT`: information about clients.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use super::arguments::{integer, is_word};
use super::context::Context;
use super::keys::write_help;
use super::kill::kill_clients;
use super::{pause, tracking};
use crate::client::{Details, PublicState};
use crate::command_specs::lookup;
use crate::error::{CommandError, CommandResult, SYNTAX};
use crate::session::ReplyMode;

/// `CLIENT subcommand [arguments]`
pub(crate) fn client(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let subcommand = arguments[1].to_ascii_lowercase();
    let rest = &arguments[2..];
    match (subcommand.as_slice(), rest) {
        (b"id", []) => context.reply.write_integer(i64::try_from(context.session.public.id).unwrap_or(i64::MAX)),
        (b"getname", []) => write_name(context),
        (b"setname", [name]) => {
            let name = checked_name(name)?;
            context.session.public.with_details(|details| details.name = name);
            context.reply.write_ok();
        }
        (b"setinfo", [attribute, value]) => set_info(context, attribute, value)?,
        (b"info", []) => {
            let line = describe(&context.session.public);
            context.reply.write_verbatim(line.as_bytes());
        }
        (b"list", _) => write_list(context, rest)?,
        (b"kill", [address]) => kill_by_address(context, address)?,
        (b"kill", [_, ..]) => kill_by_filters(context, rest)?,
        (b"reply", [mode]) => set_reply_mode(context, mode)?,
        (b"tracking", [_, ..]) => tracking::tracking(context, rest)?,
        (b"caching", [word]) => tracking::caching(context, word)?,
        (b"trackinginfo", []) => tracking::trackinginfo(context),
        (b"getredir", []) => tracking::getredir(context),
        (b"no-evict", [mode]) if is_word(mode, "on") || is_word(mode, "off") => {
            context.session.is_kept = is_word(mode, "on");
            context.reply.write_ok();
        }
        (b"pause", [timeout]) => pause::pause(context, timeout, None)?,
        (b"pause", [timeout, mode]) => pause::pause(context, timeout, Some(mode))?,
        (b"unpause", []) => pause::unpause(context),
        // Reads leave no trace that the mode could suppress: `OBJECT IDLETIME` is 0.
        (b"no-touch", [mode]) if is_word(mode, "on") || is_word(mode, "off") => context.reply.write_ok(),
        (b"no-evict" | b"no-touch", [_]) => return Err(SYNTAX),
        (b"unblock", [id]) => unblock(context, id)?,
        (b"unblock", [id, reason]) if is_word(reason, "timeout") || is_word(reason, "error") => unblock(context, id)?,
        (b"unblock", [_, _]) => {
            return Err(CommandError::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
        (b"pause" | b"unblock", [_, _, ..]) => {
            return Err(CommandError::unknown_subcommand_or_arity("client", arguments[1]));
        }
        (b"help", []) => write_help(context, &HELP)?,
        (known, _) if is_known(known) => {
            let known = String::from_utf8_lossy(known).into_owned();
            return Err(CommandError::wrong_arity(&format!("client|{known}")));
        }
        _ => return Err(CommandError::unknown_subcommand("client", arguments[1])),
    }
    Ok(())
}

/// `CLIENT UNBLOCK id [TIMEOUT | ERROR]`: no command blocks its client, and none ends a pause.
fn unblock(context: &mut Context<'_, '_>, id: &[u8]) -> CommandResult {
    integer(id)?;
    context.reply.write_integer(0);
    Ok(())
}

const HELP: [&str; 17] = [
    "CLIENT CACHING YES|NO",
    "CLIENT GETNAME",
    "CLIENT GETREDIR",
    "CLIENT ID",
    "CLIENT INFO",
    "CLIENT KILL <ip:port> | <option> <value> [...]: options are ADDR, LADDR, ID, USER, SKIPME",
    "CLIENT LIST [TYPE type] [ID id [id ...]]",
    "CLIENT NO-EVICT ON|OFF",
    "CLIENT NO-TOUCH ON|OFF",
    "CLIENT PAUSE timeout [WRITE|ALL]",
    "CLIENT REPLY ON|OFF|SKIP",
    "CLIENT SETINFO LIB-NAME|LIB-VER value",
    "CLIENT SETNAME name",
    "CLIENT TRACKING ON|OFF [REDIRECT id] [BCAST] [PREFIX prefix [...]] [OPTIN] [OPTOUT] [NOLOOP]",
    "CLIENT TRACKINGINFO",
    "CLIENT UNBLOCK id [TIMEOUT|ERROR]",
    "CLIENT UNPAUSE",
];

fn is_known(subcommand: &[u8]) -> bool {
    let known = [
        "id",
        "getname",
        "setname",
        "setinfo",
        "info",
        "kill",
        "reply",
        "no-evict",
        "help",
        "tracking",
        "caching",
        "trackinginfo",
        "getredir",
        "no-touch",
        "pause",
        "unblock",
        "unpause",
    ];
    known.iter().any(|name| name.as_bytes() == subcommand)
}

/// Returns the name of a client, if it has no spaces and no special characters.
pub(crate) fn checked_name(name: &[u8]) -> CommandResult<String> {
    check_length(name)?;
    if name.iter().all(u8::is_ascii_graphic) {
        return Ok(String::from_utf8_lossy(name).into_owned());
    }
    Err(CommandError::new("ERR Client names cannot contain spaces, newlines or special characters."))
}

/// Most bytes of a client's name and of its library's name and version. `CLIENT LIST` and the logs
/// copy them. Redis has no bound.
const NAME_BYTES_MAX: usize = 4096;

fn check_length(text: &[u8]) -> CommandResult {
    if text.len() > NAME_BYTES_MAX {
        return Err(CommandError::new(format!("ERR the text is too long: use at most {NAME_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn write_name(context: &mut Context<'_, '_>) {
    let name = context.session.public.with_details(|details| details.name.clone());
    if name.is_empty() {
        context.reply.write_null();
    } else {
        context.reply.write_bulk(name.as_bytes());
    }
}

fn set_info(context: &mut Context<'_, '_>, attribute: &[u8], value: &[u8]) -> CommandResult {
    check_length(value)?;
    let checked = |field: &str| {
        if value.iter().all(u8::is_ascii_graphic) {
            return Ok(String::from_utf8_lossy(value).into_owned());
        }
        Err(CommandError::new(format!("ERR {field} cannot contain spaces, newlines or special characters.")))
    };
    if is_word(attribute, "lib-name") {
        let name = checked("lib-name")?;
        context.session.public.with_details(|details| details.library_name = name);
    } else if is_word(attribute, "lib-ver") {
        let version = checked("lib-ver")?;
        context.session.public.with_details(|details| details.library_version = version);
    } else {
        let attribute = String::from_utf8_lossy(attribute);
        return Err(CommandError::new(format!("ERR Unrecognized option '{attribute}'")));
    }
    context.reply.write_ok();
    Ok(())
}

/// Returns the letters that describe a client.
fn flags_of(details: &Details, is_held: bool) -> String {
    let is_subscriber = details.channel_count + details.pattern_count + details.shard_channel_count > 0;
    let letters = [
        ('O', details.is_monitor),
        ('P', is_subscriber),
        ('x', details.is_in_transaction),
        ('b', is_held),
        ('t', details.is_tracking),
    ];
    let flags: String = letters.into_iter().filter(|(_, is_set)| *is_set).map(|(letter, _)| letter).collect();
    if flags.is_empty() { "N".into() } else { flags }
}

/// Returns the line of `CLIENT LIST` for a client.
pub(crate) fn describe(client: &PublicState) -> String {
    let details = client.with_details(|details| details.clone());
    let mut line = String::new();
    let user = if details.user.is_empty() { "default" } else { &details.user };
    let flags = flags_of(&details, client.figures.is_held());
    let (sub, psub, ssub) = (details.channel_count, details.pattern_count, details.shard_channel_count);
    let redirect = match (details.is_tracking, i64::try_from(details.redirect)) {
        (true, Ok(id)) => id,
        _ => -1,
    };
    let pending = client.route.pending_bytes();
    let figures = &client.figures;
    let [input_bytes, input_free_bytes, queued_commands, queue_bytes, total_bytes] = [
        &figures.input_bytes,
        &figures.input_free_bytes,
        &figures.queued_commands,
        &figures.queue_bytes,
        &figures.total_bytes,
    ]
    .map(|figure| figure.load(Ordering::Relaxed));
    let command = figures.last_command().map_or("NULL", lookup::name_of);
    let multi = if details.is_in_transaction { i64::try_from(queued_commands).unwrap_or(i64::MAX) } else { -1 };
    let protocol = match details.protocol {
        lodestore_wire::Protocol::Resp2 => 2,
        lodestore_wire::Protocol::Resp3 => 3,
    };
    // Writing to a string does not fail.
    let _ = writeln!(
        line,
        "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub={sub} psub={psub} ssub={ssub} multi={multi} \
         watch={} qbuf={input_bytes} qbuf-free={input_free_bytes} argv-mem=0 multi-mem={queue_bytes} rbs=0 rbp=0 obl=0 oll=0 \
         omem={pending} tot-mem={total_bytes} events=r \
         cmd={command} user={user} redir={redirect} resp={protocol} lib-name={} lib-ver={}",
        client.id,
        client.address,
        client.local_address,
        details.name,
        client.connected.elapsed().as_secs(),
        client.idle().as_secs(),
        details.database,
        details.watched_count,
        details.library_name,
        details.library_version,
    );
    line
}

/// Checks the name of a type of clients.
fn check_type(name: &[u8]) -> CommandResult {
    let kinds = ["normal", "master", "replica", "slave", "pubsub"];
    if kinds.iter().any(|kind| is_word(name, kind)) {
        return Ok(());
    }
    let name = String::from_utf8_lossy(name);
    Err(CommandError::new(format!("ERR Unknown client type '{name}'")))
}

/// Returns the type of a client, as `CLIENT LIST TYPE` and `CLIENT KILL TYPE` name it.
fn type_of(client: &PublicState) -> &'static str {
    let is_subscriber = client.with_details(|details| flags_of(details, false).contains('P'));
    if is_subscriber { "pubsub" } else { "normal" }
}

fn write_list(context: &mut Context<'_, '_>, options: &[&[u8]]) -> CommandResult {
    let mut clients = context.shared.all_clients();
    match options {
        [] => {}
        [word, name] if is_word(word, "type") => {
            check_type(name)?;
            clients.retain(|client| is_word(name, type_of(client)));
        }
        [word, ids @ ..] if is_word(word, "id") && !ids.is_empty() => {
            let ids = ids.iter().map(|id| integer(id)).collect::<CommandResult<Vec<i64>>>();
            let ids = ids.map_err(|_| CommandError::new("ERR Invalid client ID"))?;
            clients.retain(|client| ids.iter().any(|id| u64::try_from(*id) == Ok(client.id)));
        }
        _ => return Err(SYNTAX),
    }
    let text: String = clients.iter().map(|client| describe(client)).collect();
    context.reply.write_verbatim(text.as_bytes());
    Ok(())
}

fn kill_by_address(context: &mut Context<'_, '_>, address: &[u8]) -> CommandResult {
    let found = context.shared.all_clients().into_iter().find(|client| client.address.as_bytes() == address);
    let client = found.ok_or(CommandError::new("ERR No such client"))?;
    kill_clients(context, &[client]);
    context.reply.write_ok();
    Ok(())
}

fn kill_by_filters(context: &mut Context<'_, '_>, filters: &[&[u8]]) -> CommandResult {
    let mut clients = context.shared.all_clients();
    let mut skips_me = true;
    for pair in filters.chunks(2) {
        let [word, value] = pair else { return Err(SYNTAX) };
        match () {
            () if is_word(word, "id") => {
                let id = integer(value).ok().and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                let id = id.ok_or(CommandError::new("ERR client-id should be greater than 0"))?;
                clients.retain(|client| client.id == id);
            }
            () if is_word(word, "addr") => clients.retain(|client| client.address.as_bytes() == *value),
            () if is_word(word, "laddr") => clients.retain(|client| client.local_address.as_bytes() == *value),
            () if is_word(word, "user") => {
                if context.shared.acl.user(value).is_none() {
                    let user = String::from_utf8_lossy(value);
                    return Err(CommandError::new(format!("ERR No such user '{user}'")));
                }
                clients.retain(|client| {
                    let user = client.with_details(|details| details.user.clone());
                    let user = if user.is_empty() { "default".into() } else { user };
                    user.as_bytes() == *value
                });
            }
            () if is_word(word, "type") => {
                check_type(value)?;
                clients.retain(|client| is_word(value, type_of(client)));
            }
            () if is_word(word, "skipme") && is_word(value, "yes") => skips_me = true,
            () if is_word(word, "skipme") && is_word(value, "no") => skips_me = false,
            () => return Err(SYNTAX),
        }
    }
    let me = context.session.public.id;
    clients.retain(|client| !(skips_me && client.id == me));
    kill_clients(context, &clients);
    // At most `maxclients` clients.
    context.reply.write_integer(clients.len() as i64);
    Ok(())
}

fn set_reply_mode(context: &mut Context<'_, '_>, mode: &[u8]) -> CommandResult {
    let mode = match () {
        () if is_word(mode, "on") => ReplyMode::On,
        () if is_word(mode, "off") => ReplyMode::Off,
        () if is_word(mode, "skip") => ReplyMode::SkipNext,
        () => return Err(SYNTAX),
    };
    if mode == ReplyMode::On {
        context.reply.write_ok();
    }
    // A client that gets no replies gets none by a skip either.
    if !(mode == ReplyMode::SkipNext && context.session.reply_mode == ReplyMode::Off) {
        context.session.reply_mode = mode;
    }
    Ok(())
}

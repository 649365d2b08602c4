//! `COMMAND`: the server's table of commands, for clients.

use lodestore_wire::ReplyWriter;

use super::arguments::is_word;
use super::context::Context;
use super::key_specs::{KeyFlags, flags_of_key, spec_of_subcommand, specs_of, write_flags, write_specs};
use super::keys::write_help;
use super::published;
use super::syntax::{self, Argument, Form};
use crate::acl::check::Call;
use crate::acl::key_access::{self, KeyUse};
use crate::command_specs::categories;
use crate::command_specs::lookup::{self, Entry, PermissionId, find, find_entry, find_subcommand};
use crate::command_specs::spec::{CommandKind, CommandSpec, Keys, flag};
use crate::command_specs::subcommands::SubcommandSpec;
use crate::command_specs::table::COMMANDS;
use crate::error::{CommandError, CommandResult, SYNTAX};
use crate::glob;

/// `COMMAND [COUNT | LIST [FILTERBY ...] | INFO [name ...] | DOCS [name ...] | GETKEYS command]`
pub(crate) fn command(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let Some(subcommand) = arguments.get(1) else {
        write_all_infos(context);
        return Ok(());
    };
    let rest = &arguments[2..];
    match (subcommand.to_ascii_lowercase().as_slice(), rest) {
        (b"count", []) => context.reply.write_integer(COMMANDS.len() as i64),
        (b"list", filter) => write_list(context, filter)?,
        (b"info", []) => write_all_infos(context),
        (b"info", names) => {
            context.reply.write_array(names.len());
            names.iter().for_each(|name| match (find_entry(name), find_subcommand(name)) {
                (Some(entry), _) => write_info(&mut context.reply, entry),
                (None, Some(subcommand)) => write_subcommand(&mut context.reply, subcommand),
                (None, None) => context.reply.write_null(),
            });
        }
        (b"docs", names) => {
            let all: Vec<&CommandSpec> = match names {
                [] => COMMANDS.clone(),
                names => names.iter().filter_map(|name| find(name)).collect(),
            };
            context.reply.write_map(all.len());
            all.iter().for_each(|spec| write_docs(&mut context.reply, spec));
        }
        (b"getkeys", command) if !command.is_empty() => {
            let (_, keys) = keys_of_command(command)?;
            context.reply.write_array(keys.len());
            keys.iter().for_each(|used| context.reply.write_bulk(used.key));
        }
        (b"getkeysandflags", command) if !command.is_empty() => {
            let (call, keys) = keys_of_command(command)?;
            context.reply.write_array(keys.len());
            keys.iter().enumerate().for_each(|(index, used)| {
                context.reply.write_array(2);
                context.reply.write_bulk(used.key);
                write_flags(&mut context.reply, flags_of_call(&call, command, index));
            });
        }
        (b"help", []) => write_help(context, &["COMMAND COUNT|LIST|INFO|DOCS|GETKEYS|GETKEYSANDFLAGS"])?,
        _ => return Err(CommandError::unknown_subcommand("command", subcommand)),
    }
    Ok(())
}

fn write_all_infos(context: &mut Context<'_, '_>) {
    context.reply.write_array(COMMANDS.len());
    let entries = COMMANDS.iter().filter_map(|spec| find_entry(spec.name.as_bytes()));
    entries.for_each(|entry| write_info(&mut context.reply, entry));
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`
fn write_list(context: &mut Context<'_, '_>, filter: &[&[u8]]) -> CommandResult {
    let is_wanted: Box<dyn Fn(PermissionId) -> bool> = match filter {
        [] => Box::new(|id| !lookup::name_of(id).contains('|')),
        // The server has no modules.
        [word, kind, _] if is_word(word, "filterby") && is_word(kind, "module") => Box::new(|_| false),
        [word, kind, category] if is_word(word, "filterby") && is_word(kind, "aclcat") => {
            let category = categories::find(&String::from_utf8_lossy(category)).unwrap_or(0);
            let ids: Vec<PermissionId> = lookup::ids_in_category(category).collect();
            Box::new(move |id| ids.binary_search(&id).is_ok())
        }
        [word, kind, pattern] if is_word(word, "filterby") && is_word(kind, "pattern") => {
            let pattern = pattern.to_ascii_lowercase();
            Box::new(move |id| glob::matches(&pattern, lookup::name_of(id).as_bytes()))
        }
        _ => return Err(SYNTAX),
    };
    let ids: Vec<PermissionId> = (0..lookup::permission_count()).filter(|id| is_wanted(*id)).collect();
    context.reply.write_array(ids.len());
    ids.iter().for_each(|id| context.reply.write_bulk(lookup::name_of(*id).as_bytes()));
    Ok(())
}

/// A command of the server, for documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandDescription {
    /// Name in lower case.
    pub name: &'static str,
    /// Arguments.
    pub syntax: &'static str,
    /// A summary of one sentence.
    pub summary: &'static str,
    /// Group of the command.
    pub group: &'static str,
    /// First version of Redis with the command, or the program that has it.
    pub since: &'static str,
    /// Number of arguments with the name. A negative number is a minimum.
    pub arity: i32,
}

/// Iterates over the commands of the server, in the order of their names.
pub fn command_table() -> impl Iterator<Item = CommandDescription> {
    COMMANDS.iter().map(|spec| CommandDescription {
        name: spec.name,
        syntax: spec.syntax,
        summary: spec.summary,
        group: spec.group,
        since: spec.since,
        arity: spec.arity,
    })
}

fn flags_of(spec: &CommandSpec) -> Vec<&'static str> {
    let effect = match spec.kind {
        CommandKind::Read => Some("readonly"),
        CommandKind::Write => Some("write"),
        CommandKind::Other => None,
    };
    let flags = [
        (flag::DENY_OOM, "denyoom"),
        (flag::ADMIN, "admin"),
        (flag::NO_MULTI, "no_multi"),
        (flag::NO_AUTH, "no_auth"),
        (flag::FAST, "fast"),
    ];
    let own = flags.into_iter().filter(|(bit, _)| spec.has(*bit)).map(|(_, name)| name);
    effect.into_iter().chain(own).chain(published::flags_of(spec.name).iter().copied()).collect()
}

/// Returns the flags of a subcommand.
fn flags_of_subcommand(subcommand: &SubcommandSpec) -> Vec<&'static str> {
    let is_admin = subcommand.categories & categories::bit::ADMIN != 0;
    let own = [(is_admin, "admin"), (subcommand.has_key, "readonly")];
    let own = own.into_iter().filter_map(|(is_set, name)| is_set.then_some(name));
    own.chain(published::flags_of(subcommand.full_name).iter().copied()).collect()
}

/// Writes the ten elements of a command in `COMMAND INFO`.
fn write_info(reply: &mut ReplyWriter<'_>, entry: Entry) {
    let spec = entry.spec;
    reply.write_array(10);
    reply.write_bulk(spec.name.as_bytes());
    reply.write_integer(i64::from(spec.arity));
    let flags = flags_of(spec);
    // The subcommands have the flags of a command that does nothing without them, as in Redis.
    let is_container = !entry.subcommands.is_empty();
    write_flags(reply, if is_container { published::flags_of(spec.name) } else { &flags });
    let (first, last, step) = published::channel_positions(spec.name).unwrap_or_else(|| spec.keys.positions());
    [first, last, step].iter().for_each(|number| reply.write_integer(*number));
    write_categories(reply, categories::of_command(spec));
    write_tips(reply, published::tips_of(spec.name));
    write_specs(reply, &specs_of(spec));
    // Redis sends an empty set for a command without subcommands.
    match entry.subcommands.len() {
        0 => reply.write_set(0),
        count => reply.write_array(count),
    }
    entry.subcommands.iter().for_each(|subcommand| write_subcommand(reply, subcommand));
}

/// Writes the ten elements of a subcommand.
fn write_subcommand(reply: &mut ReplyWriter<'_>, subcommand: &SubcommandSpec) {
    reply.write_array(10);
    reply.write_bulk(subcommand.full_name.as_bytes());
    reply.write_integer(i64::from(subcommand.arity));
    write_flags(reply, &flags_of_subcommand(subcommand));
    let positions = if subcommand.has_key { [2, 2, 1] } else { [0; 3] };
    positions.iter().for_each(|number| reply.write_integer(*number));
    write_categories(reply, subcommand.categories);
    write_tips(reply, published::tips_of(subcommand.full_name));
    let specs = subcommand.has_key.then(spec_of_subcommand);
    write_specs(reply, specs.as_slice());
    reply.write_set(0);
}

fn write_tips(reply: &mut ReplyWriter<'_>, tips: &[&str]) {
    reply.write_set(tips.len());
    tips.iter().for_each(|tip| reply.write_bulk(tip.as_bytes()));
}

fn write_categories(reply: &mut ReplyWriter<'_>, categories: u32) {
    reply.write_set(categories.count_ones() as usize);
    categories::names_of(categories).for_each(|name| reply.write_simple(&format!("@{name}")));
}

fn write_docs(reply: &mut ReplyWriter<'_>, spec: &CommandSpec) {
    let fields = [("summary", spec.summary), ("since", spec.since), ("group", spec.group)];
    let arguments = syntax::parse(spec.syntax);
    reply.write_bulk(spec.name.as_bytes());
    reply.write_map(fields.len() + usize::from(!arguments.is_empty()));
    fields.iter().for_each(|(name, value)| write_field(reply, name, value));
    if !arguments.is_empty() {
        reply.write_bulk(b"arguments");
        write_arguments(reply, spec, &arguments);
    }
}

fn write_field(reply: &mut ReplyWriter<'_>, name: &str, value: &str) {
    reply.write_bulk(name.as_bytes());
    reply.write_bulk(value.as_bytes());
}

fn write_arguments(reply: &mut ReplyWriter<'_>, spec: &CommandSpec, arguments: &[Argument]) {
    reply.write_array(arguments.len());
    for argument in arguments {
        let flags: Vec<&str> = [("optional", argument.is_optional), ("multiple", argument.is_multiple)]
            .into_iter()
            .filter_map(|(name, is_set)| is_set.then_some(name))
            .collect();
        let (type_name, parts) = match &argument.form {
            Form::Value => (type_of(spec, &argument.name), None),
            Form::Token => ("pure-token", None),
            Form::OneOf(choices) => ("oneof", Some(choices)),
            Form::Block(parts) => ("block", Some(parts)),
        };
        let has_token = argument.token.is_some();
        let key_spec = key_spec_of(&argument.name, type_name);
        let options = [has_token, key_spec.is_some(), !flags.is_empty(), parts.is_some()];
        reply.write_map(2 + options.into_iter().filter(|is_set| *is_set).count());
        write_field(reply, "name", &argument.name);
        write_field(reply, "type", type_name);
        if let Some(index) = key_spec {
            reply.write_bulk(b"key_spec_index");
            reply.write_integer(index);
        }
        if let Some(token) = &argument.token {
            write_field(reply, "token", token);
        }
        if !flags.is_empty() {
            reply.write_bulk(b"flags");
            reply.write_set(flags.len());
            flags.iter().for_each(|flag| reply.write_simple(flag));
        }
        if let Some(parts) = parts {
            reply.write_bulk(b"arguments");
            write_arguments(reply, spec, parts);
        }
    }
}

/// Returns the index of the key specification that an argument belongs to, if the argument is a
/// key.
fn key_spec_of(name: &str, type_name: &str) -> Option<i64> {
    match (type_name, name) {
        ("key", "newkey" | "destination") => Some(1),
        ("key", _) => Some(0),
        _ => None,
    }
}

/// Arguments that are whole numbers.
const INTEGERS: [&str; 14] = [
    "count",
    "cursor",
    "db",
    "decrement",
    "index",
    "index1",
    "index2",
    "milliseconds",
    "numreplicas",
    "offset",
    "protover",
    "seconds",
    "timeout",
    "version",
];

/// Returns the type of an argument, as Redis names it.
fn type_of(spec: &CommandSpec, name: &str) -> &'static str {
    match name {
        "key" | "newkey" | "source" | "destination" => "key",
        "pattern" => "pattern",
        "increment" if spec.name.ends_with("float") => "double",
        "increment" => "integer",
        "start" | "end" if spec.group == "string" => "integer",
        _ if name.starts_with("unix-time") => "unix-time",
        _ if INTEGERS.contains(&name) => "integer",
        _ => "string",
    }
}

/// Returns a command that a client describes, and its keys.
fn keys_of_command<'a>(command: &'a [&'a [u8]]) -> CommandResult<(Call, Vec<KeyUse<'a>>)> {
    let invalid = || CommandError::new("ERR Invalid command specified");
    let entry = find_entry(command[0]).ok_or_else(invalid)?;
    let call = Call::new(entry, command);
    if call.subcommand.is_none() && !entry.subcommands.is_empty() {
        return Err(invalid());
    }
    if entry.spec.keys == Keys::None && !call.subcommand.is_some_and(|subcommand| subcommand.has_key) {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    if !call.accepts(command.len()) {
        return Err(CommandError::new("ERR Invalid number of arguments specified for command"));
    }
    let keys: Vec<KeyUse<'a>> = key_access::keys_of(&call, command).collect();
    if keys.is_empty() {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    Ok((call, keys))
}

/// Returns the flags of key `index` of a call.
fn flags_of_call(call: &Call, command: &[&[u8]], index: usize) -> KeyFlags {
    match call.subcommand {
        Some(_) => spec_of_subcommand().flags,
        None => flags_of_key(call.spec, command, index),
    }
}

//! `COMMAND`: the server's table of commands, for clients.

use lodestore_wire::ReplyWriter;

use super::context::Context;
use super::dispatch::find;
use super::keys::write_help;
use super::spec::{CommandSpec, Effect, Keys, flag};
use super::table::COMMANDS;
use crate::error::{CommandError, CommandResult};

/// `COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...] | GETKEYS command [arguments]]`
pub(crate) fn command(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let Some(subcommand) = arguments.get(1) else {
        context.reply.write_array(COMMANDS.len());
        COMMANDS.iter().for_each(|spec| write_info(&mut context.reply, spec));
        return Ok(());
    };
    let names = &arguments[2..];
    match (subcommand.to_ascii_lowercase().as_slice(), names) {
        (b"count", []) => context.reply.write_integer(COMMANDS.len() as i64),
        (b"list", []) => {
            context.reply.write_array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| context.reply.write_bulk(spec.name.as_bytes()));
        }
        (b"info", []) => {
            context.reply.write_array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| write_info(&mut context.reply, spec));
        }
        (b"info", names) => {
            context.reply.write_array(names.len());
            for name in names {
                match find(name) {
                    Some(spec) => write_info(&mut context.reply, spec),
                    None => context.reply.write_null_array(),
                }
            }
        }
        (b"docs", names) => {
            let all: Vec<&CommandSpec> = match names {
                [] => COMMANDS.clone(),
                names => names.iter().filter_map(|name| find(name)).collect(),
            };
            context.reply.write_map(all.len());
            all.iter().for_each(|spec| write_docs(&mut context.reply, spec));
        }
        (b"getkeys", [name, ..]) => write_keys(context, name, names)?,
        (b"help", []) => write_help(context, &["COMMAND COUNT|LIST|INFO|DOCS|GETKEYS"])?,
        _ => return Err(CommandError::unknown_subcommand("command", subcommand)),
    }
    Ok(())
}

/// A command of the server, for documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandDescription {
    /// Name in lower case.
    pub name: &'static str,
    /// Arguments.
    pub syntax: &'static str,
    /// What the command does, in one sentence.
    pub summary: &'static str,
    /// Group of the command.
    pub group: &'static str,
    /// First version of Redis with the command, or the program that has it.
    pub since: &'static str,
}

/// Iterates over the commands of the server, in the order of their names.
pub fn command_table() -> impl Iterator<Item = CommandDescription> {
    COMMANDS.iter().map(|spec| CommandDescription {
        name: spec.name,
        syntax: spec.syntax,
        summary: spec.summary,
        group: spec.group,
        since: spec.since,
    })
}

fn flags_of(spec: &CommandSpec) -> Vec<&'static str> {
    let effect = match spec.effect {
        Effect::Read => Some("readonly"),
        Effect::Write => Some("write"),
        Effect::Other => None,
    };
    let flags = [
        (flag::DENY_OOM, "denyoom"),
        (flag::ADMIN, "admin"),
        (flag::NO_MULTI, "no_multi"),
        (flag::NO_AUTH, "no_auth"),
        (flag::FAST, "fast"),
    ];
    effect.into_iter().chain(flags.into_iter().filter(|(bit, _)| spec.has(*bit)).map(|(_, name)| name)).collect()
}

fn categories_of(spec: &CommandSpec) -> Vec<String> {
    let effect = match spec.effect {
        Effect::Read => Some("@read"),
        Effect::Write => Some("@write"),
        Effect::Other => None,
    };
    let speed = if spec.has(flag::FAST) { "@fast" } else { "@slow" };
    let admin = spec.has(flag::ADMIN).then_some("@admin");
    let group = match spec.group {
        "generic" => "@keyspace".to_string(),
        group => format!("@{group}"),
    };
    let names = effect.into_iter().chain([speed]).chain(admin).map(str::to_string);
    names.chain([group]).collect()
}

/// Writes the ten elements of a command in `COMMAND INFO`.
fn write_info(reply: &mut ReplyWriter<'_>, spec: &CommandSpec) {
    let (first, last, step) = spec.keys.positions();
    reply.write_array(10);
    reply.write_bulk(spec.name.as_bytes());
    reply.write_integer(i64::from(spec.arity));
    let flags = flags_of(spec);
    reply.write_set(flags.len());
    flags.iter().for_each(|flag| reply.write_simple(flag));
    [first, last, step].iter().for_each(|number| reply.write_integer(*number));
    let categories = categories_of(spec);
    reply.write_set(categories.len());
    categories.iter().for_each(|category| reply.write_simple(category));
    reply.write_array(0);
    reply.write_array(0);
    reply.write_array(0);
}

fn write_docs(reply: &mut ReplyWriter<'_>, spec: &CommandSpec) {
    let fields = [("summary", spec.summary), ("since", spec.since), ("group", spec.group)];
    reply.write_bulk(spec.name.as_bytes());
    reply.write_map(fields.len());
    for (name, value) in fields {
        reply.write_bulk(name.as_bytes());
        reply.write_bulk(value.as_bytes());
    }
}

fn write_keys(context: &mut Context<'_, '_>, name: &[u8], arguments: &[&[u8]]) -> CommandResult {
    let spec = find(name).ok_or(CommandError::new("ERR Invalid command specified"))?;
    if !spec.accepts(arguments.len()) {
        return Err(CommandError::new("ERR Invalid number of arguments specified for command"));
    }
    let keys: Vec<&[u8]> = spec.keys.of(arguments).collect();
    if keys.is_empty() || spec.keys == Keys::Everything {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    context.reply.write_array(keys.len());
    keys.iter().for_each(|key| context.reply.write_bulk(key));
    Ok(())
}

//! `CONFIG`.

use super::context::Context;
use super::keys::write_help;
use crate::error::{CommandError, CommandResult, SYNTAX};
use crate::glob;
use crate::messaging::effects;
use crate::options::{self, Change, OPTIONS, OptionSpec};

/// The text of `CONFIG HELP`.
const HELP: [&str; 11] = [
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern> [<pattern> ...]",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value> [<directive> <value> ...]",
    "    Set the configuration <directive> to <value>, all or none.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "REWRITE",
    "    Not available: change the configuration file by hand.",
    "HELP",
    "    Print this help.",
];

/// `CONFIG GET pattern [pattern ...]`, `CONFIG SET name value [name value ...]`,
/// `CONFIG RESETSTAT`, `CONFIG REWRITE`
pub(crate) fn config(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let subcommand = arguments[1].to_ascii_lowercase();
    match (subcommand.as_slice(), &arguments[2..]) {
        (b"get", patterns) if !patterns.is_empty() => get(context, patterns),
        (b"set", pairs) if pairs.len() > 1 => {
            set(context, pairs)?;
            context.reply.write_ok();
        }
        (b"resetstat", []) => {
            context.shared.counters.reset();
            context.shared.statistics.reset();
            context.shared.store_events.get().into_iter().for_each(crate::StoreEvents::reset);
            context.reply.write_ok();
        }
        (b"rewrite", []) => return Err(rewrite(context)),
        (b"help", []) => write_help(context, &HELP)?,
        (b"get" | b"set" | b"resetstat" | b"rewrite" | b"help", _) => {
            let name = String::from_utf8_lossy(&subcommand).into_owned();
            return Err(CommandError::wrong_arity(&format!("config|{name}")));
        }
        _ => return Err(CommandError::unknown_subcommand("config", arguments[1])),
    }
    Ok(())
}

fn get(context: &mut Context<'_, '_>, patterns: &[&[u8]]) {
    let patterns: Vec<Vec<u8>> = patterns.iter().map(|pattern| pattern.to_ascii_lowercase()).collect();
    let is_wanted = |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
    let config = context.shared.runtime.config();
    let mut found: Vec<(&str, String)> = Vec::new();
    for option in OPTIONS {
        if is_wanted(option.shown_name()) {
            found.push((option.shown_name(), option.value(&config)));
        } else if is_wanted(option.name) {
            found.push((option.name, option.value(&config)));
        }
    }
    let constants = options::constants().iter().filter(|(name, _)| is_wanted(name));
    found.extend(constants.map(|(name, value)| (*name, (*value).to_owned())));
    found.sort_unstable();
    context.reply.write_map(found.len());
    for (name, value) in found {
        context.reply.write_bulk(name.as_bytes());
        context.reply.write_bulk(value.as_bytes());
    }
}

/// A parameter that `CONFIG SET` names.
enum Parameter {
    Option(&'static OptionSpec),
    /// A parameter with one value.
    Constant(&'static str),
}

fn set(context: &mut Context<'_, '_>, pairs: &[&[u8]]) -> CommandResult {
    if !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    let mut changes: Vec<(Parameter, String, String)> = Vec::new();
    for pair in pairs.chunks_exact(2) {
        let name = String::from_utf8_lossy(pair[0]).to_ascii_lowercase();
        let value = String::from_utf8_lossy(pair[1]).into_owned();
        if value.as_bytes() != pair[1] {
            return Err(failed(&name, "argument must be valid UTF-8"));
        }
        let constant = options::constants().iter().find(|(known, _)| *known == name);
        let parameter = match (options::find(&name), constant) {
            (Some(option), _) => Parameter::Option(option),
            (None, Some((_, value))) => Parameter::Constant(value),
            (None, None) => {
                let text = format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
                return Err(CommandError::new(text));
            }
        };
        if changes.iter().any(|(other, known, _)| *known == name || other.is_same(&parameter)) {
            return Err(failed(&name, "duplicate parameter"));
        }
        changes.push((parameter, name, value));
    }
    context.shared.runtime.change(|config| {
        let password = config.password.clone();
        for (parameter, name, value) in &changes {
            match parameter {
                Parameter::Option(option) if option.change == Change::Runtime => {
                    option
                        .set(config, std::slice::from_ref(value))
                        .map_err(|error| failed(name, error.redis_text()))?;
                }
                Parameter::Constant(only) if value == only => {}
                Parameter::Option(_) | Parameter::Constant(_) => {
                    return Err(failed(name, "can't set immutable config"));
                }
            }
        }
        // The change of the user comes last, because it cannot be reverted. The same password
        // changes nothing, as in Redis.
        if config.password == password { Ok(()) } else { set_password(context, config.password.as_deref()) }
    })?;
    effects::remove_unwanted_expiries(&context.shared.hub, &context.shared.runtime);
    context.shared.memory.refresh(&context.shared.runtime, context.shared.db());
    Ok(())
}

/// Changes the password of the default user.
fn set_password(context: &Context<'_, '_>, password: Option<&str>) -> CommandResult {
    let changed = context.shared.acl.set_default_password(password);
    changed.map_err(|text| failed("requirepass", text.strip_prefix("ERR ").unwrap_or(&text)))
}

impl Parameter {
    fn is_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Option(own), Self::Option(other)) if std::ptr::eq(*own, *other))
    }
}

fn failed(name: &str, reason: &str) -> CommandError {
    CommandError::new(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"))
}

/// Returns why the file is not written: a rewrite would lose its comments and its order.
fn rewrite(context: &Context<'_, '_>) -> CommandError {
    match &context.shared.config.file {
        None => CommandError::new("ERR The server is running without a config file"),
        Some(path) => {
            CommandError::new(format!("ERR CONFIG REWRITE is not available: edit {} by hand", path.display()))
        }
    }
}

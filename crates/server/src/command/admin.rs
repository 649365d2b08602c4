//! Commands for operators.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::context::Context;
use super::glob;
use super::keys::write_help;
use super::options::{integer, is_word};
use crate::error::{CommandError, CommandResult, SYNTAX};

/// `TIME`
pub(crate) fn time(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    context.reply.write_array(2);
    context.reply.write_bulk(now.as_secs().to_string().as_bytes());
    context.reply.write_bulk(now.subsec_micros().to_string().as_bytes());
    Ok(())
}

/// `CONFIG GET pattern [pattern ...]`, `CONFIG SET`, `CONFIG RESETSTAT`, `CONFIG REWRITE`
pub(crate) fn config(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let subcommand = arguments[1].to_ascii_lowercase();
    match (subcommand.as_slice(), &arguments[2..]) {
        (b"get", patterns) if !patterns.is_empty() => {
            let mut found = context.shared.config.parameters();
            found.retain(|(name, _)| {
                patterns.iter().any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
            });
            context.reply.write_map(found.len());
            for (name, value) in found {
                context.reply.write_bulk(name.as_bytes());
                context.reply.write_bulk(value.as_bytes());
            }
        }
        (b"set", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
            let name = String::from_utf8_lossy(pairs[0]).to_ascii_lowercase();
            let is_known = context.shared.config.parameters().iter().any(|(known, _)| *known == name);
            return Err(CommandError::new(if is_known {
                format!("ERR CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config")
            } else {
                format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'")
            }));
        }
        (b"resetstat", []) => {
            context.shared.counters.reset();
            context.reply.write_ok();
        }
        (b"rewrite", []) => {
            return Err(CommandError::new("ERR The server is running without a config file"));
        }
        (b"help", []) => write_help(context, &["CONFIG GET pattern [pattern ...]", "CONFIG RESETSTAT"])?,
        (b"get" | b"set", _) => {
            let name = String::from_utf8_lossy(&subcommand).into_owned();
            return Err(CommandError::wrong_arity(&format!("config|{name}")));
        }
        _ => return Err(CommandError::unknown_subcommand("config", arguments[1])),
    }
    Ok(())
}

/// `SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE]`: each option means the same clean stop.
pub(crate) fn shutdown(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let known = ["nosave", "save", "now", "force"];
    let has = |name: &str| arguments[1..].iter().any(|word| is_word(word, name));
    let are_known = arguments[1..].iter().all(|word| known.iter().any(|known| is_word(word, known)));
    if !are_known || (has("save") && has("nosave")) {
        return Err(SYNTAX);
    }
    context.shared.stop();
    context.session.closes = true;
    Ok(())
}

/// Longest pause of `DEBUG SLEEP`.
const SLEEP_MAX: Duration = Duration::from_secs(10);

/// `DEBUG SLEEP seconds`: stops the event loop of this connection, as in Redis. `DEBUG OBJECT key`
/// describes a key.
pub(crate) fn debug(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    match &arguments[1..] {
        [word, seconds] if is_word(word, "sleep") => {
            let seconds = super::decimal::parse_float(seconds).ok_or(crate::error::NOT_A_FLOAT)?;
            let pause = Duration::try_from_secs_f64(seconds).unwrap_or_default().min(SLEEP_MAX);
            std::thread::sleep(pause);
            context.reply.write_ok();
            Ok(())
        }
        [word, key] if is_word(word, "object") => super::object::describe_key(context, key),
        _ => {
            let shown = String::from_utf8_lossy(arguments[1]);
            Err(CommandError::new(format!(
                "ERR unknown subcommand or wrong number of arguments for '{shown}'. Try DEBUG HELP."
            )))
        }
    }
}

/// `WAIT numreplicas timeout`: the server has no replicas, and says so at once.
pub(crate) fn wait(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    integer(arguments[1])?;
    let timeout =
        integer(arguments[2]).map_err(|_| CommandError::new("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(CommandError::new("ERR timeout is negative"));
    }
    context.reply.write_integer(0);
    Ok(())
}

/// `INFO [section ...]`
pub(crate) fn info(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let text = super::info::render(context.shared, &arguments[1..]);
    context.reply.write_verbatim(text.as_bytes());
    Ok(())
}

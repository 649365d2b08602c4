//! Commands for operators.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::arguments::{integer, is_word};
use super::context::Context;
use crate::error::{CommandError, CommandResult, SYNTAX};

/// `TIME`
pub(crate) fn time(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    context.reply.write_array(2);
    context.reply.write_bulk(now.as_secs().to_string().as_bytes());
    context.reply.write_bulk(now.subsec_micros().to_string().as_bytes());
    Ok(())
}

/// `SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] | ABORT`
///
/// All stops are clean, since no write waits to be saved. A stop begins at once, so there is none
/// that `ABORT` could end.
pub(crate) fn shutdown(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let has = |word: &str| arguments[1..].iter().any(|argument| is_word(argument, word));
    let is_known = |argument: &&[u8]| ["nosave", "save", "now", "force", "abort"].iter().any(|w| is_word(argument, w));
    let is_mixed = has("abort") && !arguments[1..].iter().all(|argument| is_word(argument, "abort"));
    if !arguments[1..].iter().all(is_known) || is_mixed || (has("nosave") && has("save")) {
        return Err(SYNTAX);
    }
    if has("abort") {
        return Err(CommandError::new("ERR No shutdown in progress."));
    }
    tracing::info!(client = context.session.public.id, "a client stops the server");
    context.shared.stop();
    context.session.closes = true;
    Ok(())
}

/// `MODULE LIST`: the server has no modules.
pub(crate) fn module(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    if is_word(arguments[1], "help") {
        return super::keys::write_help(context, &["MODULE LIST"]);
    }
    context.reply.write_array(0);
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

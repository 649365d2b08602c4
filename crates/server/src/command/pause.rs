//! `CLIENT PAUSE`, `CLIENT UNPAUSE`, and which commands a pause holds.

use std::time::{Duration, Instant};

use lodestore_wire::parse_integer;

use super::arguments::is_word;
use super::context::Context;
use crate::command_specs::lookup::find;
use crate::command_specs::spec::{CommandKind, CommandSpec};
use crate::error::{CommandError, CommandResult};
use crate::pause::PauseMode;
use crate::session::{QueuedCommand, Session};
use crate::shared::Shared;

/// Whether a pause holds a command of a client.
pub(super) fn is_held(shared: &Shared, session: &Session, spec: &CommandSpec) -> bool {
    match shared.pause_mode() {
        None => false,
        Some(PauseMode::All) => true,
        Some(PauseMode::Write) if spec.name == "exec" => {
            session.transaction.as_ref().is_some_and(|transaction| has_change(&transaction.queue))
        }
        Some(PauseMode::Write) => is_change(spec),
    }
}

/// Whether a pause holds an `EXEC` of these commands.
pub(super) fn holds_queue(shared: &Shared, queue: &[QueuedCommand]) -> bool {
    match shared.pause_mode() {
        None => false,
        Some(PauseMode::All) => true,
        Some(PauseMode::Write) => has_change(queue),
    }
}

fn has_change(queue: &[QueuedCommand]) -> bool {
    queue.iter().filter_map(|queued| find(&queued.arguments[0])).any(is_change)
}

/// Whether a pause of writes holds a command. Redis holds messages too, because replicas of Redis
/// get them.
fn is_change(spec: &CommandSpec) -> bool {
    spec.kind == CommandKind::Write || matches!(spec.name, "publish" | "spublish")
}

/// `CLIENT PAUSE timeout [WRITE | ALL]`
pub(super) fn pause(context: &mut Context<'_, '_>, timeout: &[u8], mode: Option<&[u8]>) -> CommandResult {
    let mode = match mode {
        None => PauseMode::All,
        Some(word) if is_word(word, "all") => PauseMode::All,
        Some(word) if is_word(word, "write") => PauseMode::Write,
        Some(_) => return Err(CommandError::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let invalid = || CommandError::new("ERR timeout is not an integer or out of range");
    let milliseconds = parse_integer(timeout).ok_or_else(invalid)?;
    let milliseconds = u64::try_from(milliseconds).map_err(|_| CommandError::new("ERR timeout is negative"))?;
    context.shared.pause.begin(mode, Instant::now(), Duration::from_millis(milliseconds));
    // The wait comes after the command, when the client holds no stripe.
    context.session.messaging.needs_barrier = true;
    context.reply.write_ok();
    Ok(())
}

/// `CLIENT UNPAUSE`
pub(super) fn unpause(context: &mut Context<'_, '_>) {
    context.shared.pause.end();
    context.shared.hub.post().wake_all();
    context.reply.write_ok();
}

//! Saves, and the commands of replication, which the server does not have.

use super::arguments::{integer, is_word};
use super::context::Context;
use crate::error::{CommandError, CommandResult, SYNTAX};

/// `SAVE`
pub(crate) fn save(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    let shared = context.shared;
    shared.saves.save(shared.db(), shared.config.backup_dir.as_deref())?;
    context.reply.write_ok();
    Ok(())
}

/// `BGSAVE [SCHEDULE]`
pub(crate) fn bgsave(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    match arguments {
        [_] => {}
        [_, word] if is_word(word, "schedule") => {}
        _ => return Err(SYNTAX),
    }
    let shared = context.shared;
    shared.saves.save_in_background(shared.db(), shared.config.backup_dir.as_deref())?;
    context.reply.write_simple("Background saving started");
    Ok(())
}

/// `LASTSAVE`
pub(crate) fn lastsave(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    let seconds = context.shared.saves.last_seconds();
    context.reply.write_integer(i64::try_from(seconds).unwrap_or(i64::MAX));
    Ok(())
}

/// `BGREWRITEAOF`: the server has no append-only file.
pub(crate) fn bgrewriteaof(_: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    Err(CommandError::new(
        "ERR there is no append-only file to rewrite: acknowledged writes are in the store. BGSAVE makes a backup",
    ))
}

/// `ROLE`
pub(crate) fn role(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    context.reply.write_array(3);
    context.reply.write_bulk(b"master");
    context.reply.write_integer(0);
    context.reply.write_array(0);
    Ok(())
}

/// `FAILOVER`
pub(crate) fn failover(_: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    if arguments.len() == 2 && is_word(arguments[1], "abort") {
        return Err(CommandError::new("ERR No failover in progress."));
    }
    Err(CommandError::new("ERR FAILOVER requires connected replicas."))
}

/// `REPLICAOF host port`, and its older name `SLAVEOF`. Only `NO ONE` is accepted.
pub(crate) fn replicaof(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    if is_word(arguments[1], "no") && is_word(arguments[2], "one") {
        context.reply.write_ok();
        return Ok(());
    }
    Err(no_replication())
}

/// `PSYNC`, `SYNC` and `REPLCONF`
pub(crate) fn refuse_replica(_: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    Err(no_replication())
}

fn no_replication() -> CommandError {
    CommandError::new("ERR this server does not replicate: BGSAVE makes a backup, which another server can serve")
}

/// `LOLWUT [VERSION version]`
pub(crate) fn lolwut(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    if let [_, word, version, ..] = arguments
        && is_word(word, "version")
    {
        integer(version)?;
    }
    let text = format!(
        "   ___\n  /   \\    a lodestone\n | N S |   finds north\n  \\___/    after kill -9\nLodestore ver. {}\n",
        env!("CARGO_PKG_VERSION")
    );
    context.reply.write_verbatim(text.as_bytes());
    Ok(())
}

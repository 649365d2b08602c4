//! Commands that change hashes.

use std::borrow::Cow;

use lodestore_wire::{DECIMAL_BYTES_MAX, format_integer, parse_integer};

use super::arguments::integer;
use super::context::Context;
use super::decimal::{SumError, add, parse_float};
use crate::data::hash_editor::{HashEditor, KeyLocation};
use crate::error::{CommandError, CommandResult, NAN_OR_INFINITY, NOT_A_FLOAT, OVERFLOW};
use crate::keyspace_events::class;

/// `HSET key field value [field value ...]`
pub(crate) fn hset(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let added = set_pairs(context, arguments, "hset")?;
    context.reply.write_integer(added);
    Ok(())
}

/// `HMSET key field value [field value ...]`
pub(crate) fn hmset(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    set_pairs(context, arguments, "hmset")?;
    context.reply.write_ok();
    Ok(())
}

/// Sets the fields of the arguments. Returns the number of new fields.
fn set_pairs(context: &mut Context<'_, '_>, arguments: &[&[u8]], command: &str) -> CommandResult<i64> {
    if !arguments.len().is_multiple_of(2) {
        return Err(CommandError::wrong_arity(command));
    }
    let (database, key) = (context.database(), arguments[1]);
    let record = context.access.read_record(database, key)?;
    let mut editor = HashEditor::begin(KeyLocation { database, key }, record.as_ref())?;
    let mut added = 0;
    for pair in arguments[2..].chunks_exact(2) {
        added += i64::from(editor.set(context.access, pair[0], Cow::Borrowed(pair[1]))?);
    }
    editor.finish(context.access)?;
    context.notify(class::HASH, "hset", key);
    Ok(added)
}

/// `HSETNX key field value`
pub(crate) fn hsetnx(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let (database, key, field) = (context.database(), arguments[1], arguments[2]);
    let record = context.access.read_record(database, key)?;
    let mut editor = HashEditor::begin(KeyLocation { database, key }, record.as_ref())?;
    let is_set = editor.read(context.access, field, |value| value.is_none())?;
    if is_set {
        editor.set(context.access, field, Cow::Borrowed(arguments[3]))?;
        editor.finish(context.access)?;
        context.notify(class::HASH, "hset", key);
    }
    context.reply.write_integer(i64::from(is_set));
    Ok(())
}

/// `HDEL key field [field ...]`
pub(crate) fn hdel(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let (database, key) = (context.database(), arguments[1]);
    let record = context.access.read_record(database, key)?;
    let mut editor = HashEditor::begin(KeyLocation { database, key }, record.as_ref())?;
    let mut removed = 0;
    for field in &arguments[2..] {
        removed += i64::from(editor.remove(context.access, field)?);
    }
    let is_emptied = editor.is_emptied();
    editor.finish(context.access)?;
    if removed > 0 {
        context.notify(class::HASH, "hdel", key);
    }
    if is_emptied {
        context.notify(class::GENERIC, "del", key);
    }
    context.reply.write_integer(removed);
    Ok(())
}

/// `HINCRBY key field increment`
pub(crate) fn hincrby(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let increment = integer(arguments[3])?;
    let (database, key, field) = (context.database(), arguments[1], arguments[2]);
    let record = context.access.read_record(database, key)?;
    let mut editor = HashEditor::begin(KeyLocation { database, key }, record.as_ref())?;
    let old = editor.read(context.access, field, |value| value.map_or(Some(0), parse_integer))?;
    let old = old.ok_or(CommandError::new("ERR hash value is not an integer"))?;
    let sum = old.checked_add(increment).ok_or(OVERFLOW)?;
    let mut buffer = [0; DECIMAL_BYTES_MAX];
    editor.set(context.access, field, Cow::Owned(format_integer(sum, &mut buffer).to_vec()))?;
    editor.finish(context.access)?;
    context.notify(class::HASH, "hincrby", key);
    context.reply.write_integer(sum);
    Ok(())
}

/// `HINCRBYFLOAT key field increment`
pub(crate) fn hincrbyfloat(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let increment = parse_float(arguments[3]).ok_or(NOT_A_FLOAT)?;
    if !increment.is_finite() {
        return Err(CommandError::new("ERR value is NaN or Infinity"));
    }
    let (database, key, field) = (context.database(), arguments[1], arguments[2]);
    let record = context.access.read_record(database, key)?;
    let mut editor = HashEditor::begin(KeyLocation { database, key }, record.as_ref())?;
    let sum = editor.read(context.access, field, |value| add(value.unwrap_or(b"0"), arguments[3]))?;
    let sum = sum.map_err(|error| match error {
        SumError::NotANumber => CommandError::new("ERR hash value is not a float"),
        SumError::Infinite => NAN_OR_INFINITY,
    })?;
    editor.set(context.access, field, Cow::Owned(sum.clone().into_bytes()))?;
    editor.finish(context.access)?;
    context.notify(class::HASH, "hincrbyfloat", key);
    context.reply.write_bulk(sum.as_bytes());
    Ok(())
}

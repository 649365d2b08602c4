//! Commands that compute with the numbers that strings hold.

use lodestore::Expiry;
use lodestore::store::Change;
use lodestore_wire::{DECIMAL_BYTES_MAX, format_integer, parse_integer};

use super::arguments::integer;
use super::context::{Context, string_of};
use super::decimal::{SumError, add};
use crate::data::access::lifetime_of;
use crate::data::value::encode_string;
use crate::error::{CommandError, CommandResult, NAN_OR_INFINITY, NOT_A_FLOAT, NOT_AN_INTEGER, OVERFLOW};
use crate::keyspace_events::class;

/// `INCR key`
pub(crate) fn incr(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    add_integer(context, arguments[1], 1)
}

/// `DECR key`
pub(crate) fn decr(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    add_integer(context, arguments[1], -1)
}

/// `INCRBY key increment`
pub(crate) fn incrby(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    add_integer(context, arguments[1], integer(arguments[2])?)
}

/// `DECRBY key decrement`
pub(crate) fn decrby(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let decrement = integer(arguments[2])?;
    let increment = decrement.checked_neg().ok_or(CommandError::new("ERR decrement would overflow"))?;
    add_integer(context, arguments[1], increment)
}

/// `INCRBYFLOAT key increment`
pub(crate) fn incrbyfloat(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let increment = arguments[2];
    let sum = compute(context, arguments[1], |old, expiry| {
        let sum = add(old.unwrap_or(b"0"), increment).map_err(|error| match error {
            SumError::NotANumber => NOT_A_FLOAT,
            SumError::Infinite => NAN_OR_INFINITY,
        })?;
        Ok((Change::Put(encode_string(sum.as_bytes()), lifetime_of(expiry)), sum))
    })?;
    context.notify(class::STRING, "incrbyfloat", arguments[1]);
    context.reply.write_bulk(sum.as_bytes());
    Ok(())
}

fn add_integer(context: &mut Context<'_, '_>, key: &[u8], increment: i64) -> CommandResult {
    let sum = compute(context, key, |old, expiry| {
        let old = old.map_or(Some(0), parse_integer).ok_or(NOT_AN_INTEGER)?;
        let sum = old.checked_add(increment).ok_or(OVERFLOW)?;
        let mut buffer = [0; DECIMAL_BYTES_MAX];
        let stored = encode_string(format_integer(sum, &mut buffer));
        Ok((Change::Put(stored, lifetime_of(expiry)), sum))
    })?;
    context.notify(class::STRING, "incrby", key);
    context.reply.write_integer(sum);
    Ok(())
}

/// Changes a string by a computation on its text and expiry. Returns the computed value.
fn compute<T>(
    context: &mut Context<'_, '_>,
    key: &[u8],
    mut compute: impl FnMut(Option<&[u8]>, Option<Expiry>) -> CommandResult<(Change, T)>,
) -> CommandResult<T> {
    let mut result = None;
    let database = context.database();
    context.access.update(database, key, |stored, expiry| {
        match string_of(stored).and_then(|old| compute(old, expiry)) {
            Ok((change, value)) => {
                result = Some(Ok(value));
                change
            }
            Err(error) => {
                result = Some(Err(error));
                Change::Keep
            }
        }
    })?;
    // The store calls the closure at least once before it succeeds.
    result.unwrap_or_else(|| Err(CommandError::new("ERR the store did not read the key")))
}

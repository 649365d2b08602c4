//! Commands on the expiry of keys.

use lodestore::store::Change;
use lodestore::{Expiry, Lifetime};

use super::arguments::{TimeKind, expiry_at, integer, is_word};
use super::context::Context;
use crate::clock::now_milliseconds;
use crate::error::{CommandError, CommandResult};
use crate::keyspace_events::class;

/// `EXPIRE key seconds [NX | XX | GT | LT]`
pub(crate) fn expire(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    set_expiry(context, arguments, TimeKind::Seconds, "expire")
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`
pub(crate) fn pexpire(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    set_expiry(context, arguments, TimeKind::Milliseconds, "pexpire")
}

/// `EXPIREAT key seconds [NX | XX | GT | LT]`
pub(crate) fn expireat(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    set_expiry(context, arguments, TimeKind::UnixSeconds, "expireat")
}

/// `PEXPIREAT key milliseconds [NX | XX | GT | LT]`
pub(crate) fn pexpireat(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    set_expiry(context, arguments, TimeKind::UnixMilliseconds, "pexpireat")
}

/// Conditions on the present expiry of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Conditions {
    is_absent: bool,
    is_present: bool,
    is_greater: bool,
    is_less: bool,
}

impl Conditions {
    fn parse(words: &[&[u8]]) -> CommandResult<Self> {
        let mut conditions = Self::default();
        for word in words {
            match () {
                () if is_word(word, "nx") => conditions.is_absent = true,
                () if is_word(word, "xx") => conditions.is_present = true,
                () if is_word(word, "gt") => conditions.is_greater = true,
                () if is_word(word, "lt") => conditions.is_less = true,
                () => {
                    let word = String::from_utf8_lossy(word);
                    return Err(CommandError::new(format!("ERR Unsupported option {word}")));
                }
            }
        }
        if conditions.is_absent && (conditions.is_present || conditions.is_greater || conditions.is_less) {
            return Err(CommandError::new("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if conditions.is_greater && conditions.is_less {
            return Err(CommandError::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// Whether a key with this expiry gets the new one. No expiry counts as an infinite one.
    fn are_met(self, present: Option<Expiry>, new: Expiry) -> bool {
        !(self.is_absent && present.is_some()
            || self.is_present && present.is_none()
            || self.is_greater && present.is_none_or(|present| new <= present)
            || self.is_less && present.is_some_and(|present| new >= present))
    }
}

fn set_expiry(context: &mut Context<'_, '_>, arguments: &[&[u8]], kind: TimeKind, command: &str) -> CommandResult {
    let time = integer(arguments[2])?;
    let conditions = Conditions::parse(&arguments[3..])?;
    let milliseconds = kind.to_unix_milliseconds(time).ok_or_else(|| CommandError::invalid_expiry(command))?;
    let new = expiry_at(milliseconds);
    let mut is_set = false;
    let mut is_deleted = false;
    let database = context.database();
    context.access.update(database, arguments[1], |stored, present| {
        is_set = stored.is_some() && conditions.are_met(present, new);
        is_deleted = new.is_past();
        match stored {
            Some(_) if is_set && is_deleted => Change::Delete,
            Some(stored) if is_set => Change::Put(stored.to_vec(), Lifetime::Until(new)),
            _ => Change::Keep,
        }
    })?;
    if is_set {
        let event = if is_deleted { "del" } else { "expire" };
        context.notify(class::GENERIC, event, arguments[1]);
    }
    context.reply.write_integer(i64::from(is_set));
    Ok(())
}

/// `PERSIST key`
pub(crate) fn persist(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let mut is_changed = false;
    let database = context.database();
    context.access.update(database, arguments[1], |stored, present| {
        is_changed = present.is_some();
        match stored {
            Some(stored) if is_changed => Change::Put(stored.to_vec(), Lifetime::Forever),
            _ => Change::Keep,
        }
    })?;
    if is_changed {
        context.notify(class::GENERIC, "persist", arguments[1]);
    }
    context.reply.write_integer(i64::from(is_changed));
    Ok(())
}

/// Answer of `TTL` and its like for an absent key.
const NO_KEY: i64 = -2;

/// Answer of `TTL` and its like for a key without an expiry.
const NO_EXPIRY: i64 = -1;

/// `TTL key`
pub(crate) fn ttl(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    // Redis rounds to the nearest second.
    write_time(context, arguments, |expiry| millis_left(expiry).saturating_add(500) / 1000)
}

/// `PTTL key`
pub(crate) fn pttl(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    write_time(context, arguments, millis_left)
}

/// `EXPIRETIME key`
pub(crate) fn expiretime(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    write_time(context, arguments, |expiry| millis_of(expiry).saturating_add(500) / 1000)
}

/// `PEXPIRETIME key`
pub(crate) fn pexpiretime(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    write_time(context, arguments, millis_of)
}

fn write_time(context: &mut Context<'_, '_>, arguments: &[&[u8]], time: impl FnOnce(Expiry) -> i64) -> CommandResult {
    let answer = match context.expiry_of(arguments[1])? {
        None => NO_KEY,
        Some(None) => NO_EXPIRY,
        Some(Some(expiry)) => time(expiry),
    };
    context.reply.write_integer(answer);
    Ok(())
}

fn millis_of(expiry: Expiry) -> i64 {
    i64::try_from(expiry.millis()).unwrap_or(i64::MAX)
}

fn millis_left(expiry: Expiry) -> i64 {
    (millis_of(expiry) - now_milliseconds()).max(0)
}

//! Commands on strings, but for those that compute with numbers.

use lodestore::store::Change;
use lodestore::{Expiry, Lifetime};

use super::arguments::{TimeKind, integer, is_word};
use super::context::{Context, string_of};
use crate::data::access::lifetime_of;
use crate::data::value::{STRING_BYTES_MAX, encode_string};
use crate::error::{CommandError, CommandResult, STRING_TOO_LONG, SYNTAX};
use crate::keyspace_events::class;

/// Condition of `SET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition<'a> {
    Absent,
    Present,
    EqualTo(&'a [u8]),
}

/// Options of `SET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SetOptions<'a> {
    condition: Option<Condition<'a>>,
    lifetime: Lifetime,
    returns_old: bool,
}

/// `GET key`
pub(crate) fn get(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    context.write_string_of(arguments[1])
}

/// `SET key value [NX | XX | IFEQ value] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`
pub(crate) fn set(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let (key, value) = (arguments[1], arguments[2]);
    if arguments.len() == 3 {
        let database = context.database();
        context.access.put(database, key, encode_string(value), None)?;
        context.notify(class::STRING, "set", key);
        context.reply.write_ok();
        return Ok(());
    }
    let options = parse_set_options(&arguments[3..])?;
    let mut result = Ok((false, None));
    let database = context.database();
    context.access.update(database, key, |present, _| {
        result = decide_set(present, &options);
        match &result {
            Ok((true, _)) => Change::Put(encode_string(value), options.lifetime),
            _ => Change::Keep,
        }
    })?;
    let (is_set, old) = result?;
    if is_set {
        context.notify(class::STRING, "set", key);
        if matches!(options.lifetime, Lifetime::Until(_)) {
            context.notify(class::GENERIC, "expire", key);
        }
    }
    match (options.returns_old, old, is_set) {
        (true, Some(old), _) => context.reply.write_bulk(&old),
        (true, None, _) | (false, _, false) => context.reply.write_null(),
        (false, _, true) => context.reply.write_ok(),
    }
    Ok(())
}

/// Returns whether the condition is met, and the old string if the client wants it.
fn decide_set(stored: Option<&[u8]>, options: &SetOptions<'_>) -> CommandResult<(bool, Option<Vec<u8>>)> {
    let needs_string = options.returns_old || matches!(options.condition, Some(Condition::EqualTo(_)));
    let old = if needs_string { string_of(stored)? } else { None };
    let is_met = match options.condition {
        None => true,
        Some(Condition::Absent) => stored.is_none(),
        Some(Condition::Present) => stored.is_some(),
        Some(Condition::EqualTo(expected)) => old == Some(expected),
    };
    Ok((is_met, old.filter(|_| options.returns_old).map(<[u8]>::to_vec)))
}

fn parse_set_options<'a>(arguments: &[&'a [u8]]) -> CommandResult<SetOptions<'a>> {
    let mut options = SetOptions { condition: None, lifetime: Lifetime::Forever, returns_old: false };
    let mut rest = arguments;
    let mut lifetime_word: Option<&[u8]> = None;
    while let [word, after @ ..] = rest {
        rest = after;
        let condition = match () {
            () if is_word(word, "nx") => Some(Condition::Absent),
            () if is_word(word, "xx") => Some(Condition::Present),
            () if is_word(word, "ifeq") => {
                let [expected, after @ ..] = rest else { return Err(SYNTAX) };
                rest = after;
                Some(Condition::EqualTo(expected))
            }
            () => None,
        };
        if condition.is_some() {
            // Redis allows a repeated `NX` or `XX`. Valkey refuses a repeated `IFEQ`.
            let is_equality = matches!(condition, Some(Condition::EqualTo(_)));
            if options.condition.is_some_and(|present| is_equality || Some(present) != condition) {
                return Err(SYNTAX);
            }
            options.condition = condition;
        } else if is_word(word, "get") {
            options.returns_old = true;
        } else {
            // The same option may come twice, and the last one counts.
            if lifetime_word.is_some_and(|known| !known.eq_ignore_ascii_case(word)) {
                return Err(SYNTAX);
            }
            lifetime_word = Some(word);
            (options.lifetime, rest) = parse_lifetime(word, rest, "set")?;
        }
    }
    Ok(options)
}

/// Reads `KEEPTTL` or a time. Returns the arguments that follow.
fn parse_lifetime<'a, 'b>(
    word: &[u8],
    rest: &'b [&'a [u8]],
    command: &str,
) -> CommandResult<(Lifetime, &'b [&'a [u8]])> {
    if is_word(word, "keepttl") {
        return Ok((Lifetime::Keep, rest));
    }
    match (TimeKind::of_option(word), rest) {
        (Some(kind), [time, after @ ..]) => Ok((Lifetime::Until(kind.expiry(time, command)?), after)),
        _ => Err(SYNTAX),
    }
}

/// `SETNX key value`
pub(crate) fn setnx(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let mut is_set = false;
    let database = context.database();
    context.access.update(database, arguments[1], |present, _| {
        is_set = present.is_none();
        if is_set { Change::Put(encode_string(arguments[2]), Lifetime::Forever) } else { Change::Keep }
    })?;
    if is_set {
        context.notify(class::STRING, "set", arguments[1]);
    }
    context.reply.write_integer(i64::from(is_set));
    Ok(())
}

/// `SETEX key seconds value`
pub(crate) fn setex(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let expiry = TimeKind::Seconds.expiry(arguments[2], "setex")?;
    put_expiring(context, arguments, expiry)
}

/// `PSETEX key milliseconds value`
pub(crate) fn psetex(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let expiry = TimeKind::Milliseconds.expiry(arguments[2], "psetex")?;
    put_expiring(context, arguments, expiry)
}

fn put_expiring(context: &mut Context<'_, '_>, arguments: &[&[u8]], expiry: Expiry) -> CommandResult {
    let database = context.database();
    context.access.put(database, arguments[1], encode_string(arguments[3]), Some(expiry))?;
    context.notify(class::STRING, "set", arguments[1]);
    context.notify(class::GENERIC, "expire", arguments[1]);
    context.reply.write_ok();
    Ok(())
}

/// `GETSET key value`
pub(crate) fn getset(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let value = encode_string(arguments[2]);
    let old = change_string(context, arguments[1], |_, _| Ok(Change::Put(value.clone(), Lifetime::Forever)))?;
    context.notify(class::STRING, "set", arguments[1]);
    write_optional(context, old.as_deref());
    Ok(())
}

/// `GETDEL key`
pub(crate) fn getdel(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let old = change_string(context, arguments[1], |old, _| Ok(old.map_or(Change::Keep, |_| Change::Delete)))?;
    context.count_lookup(old.is_some());
    context.notify_miss(arguments[1], old.is_some());
    if old.is_some() {
        context.notify(class::GENERIC, "del", arguments[1]);
    }
    write_optional(context, old.as_deref());
    Ok(())
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`
pub(crate) fn getex(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let option = parse_getex_option(&arguments[2..])?;
    let mut event = None;
    let old = change_string(context, arguments[1], |old, expiry| {
        event = None;
        let Some(old) = old else { return Ok(Change::Keep) };
        // Redis reads the time only if the key exists.
        let lifetime = match option {
            None => return Ok(Change::Keep),
            Some(GetexOption::Persist) => Lifetime::Forever,
            Some(GetexOption::Time(kind, time)) => Lifetime::Until(kind.expiry(time, "getex")?),
        };
        if lifetime.resolve(expiry) == expiry {
            return Ok(Change::Keep);
        }
        event = Some(if lifetime == Lifetime::Forever { "persist" } else { "expire" });
        Ok(Change::Put(encode_string(old), lifetime))
    })?;
    context.count_lookup(old.is_some());
    context.notify_miss(arguments[1], old.is_some());
    if let Some(event) = event {
        context.notify(class::GENERIC, event, arguments[1]);
    }
    write_optional(context, old.as_deref());
    Ok(())
}

/// Option of `GETEX`.
#[derive(Debug, Clone, Copy)]
enum GetexOption<'a> {
    Persist,
    Time(TimeKind, &'a [u8]),
}

/// Reads the options of `GETEX`. The same option may come twice, and the last one counts.
fn parse_getex_option<'a>(arguments: &[&'a [u8]]) -> CommandResult<Option<GetexOption<'a>>> {
    let mut found: Option<(GetexOption<'a>, &[u8])> = None;
    let mut rest = arguments;
    while let [word, after @ ..] = rest {
        if found.is_some_and(|(_, known)| !known.eq_ignore_ascii_case(word)) {
            return Err(SYNTAX);
        }
        let option = match (TimeKind::of_option(word), after) {
            (Some(kind), [time, after @ ..]) => {
                rest = after;
                GetexOption::Time(kind, time)
            }
            (None, _) if is_word(word, "persist") => {
                rest = after;
                GetexOption::Persist
            }
            _ => return Err(SYNTAX),
        };
        found = Some((option, word));
    }
    Ok(found.map(|(option, _)| option))
}

/// Changes a string as `change` answers to its text and expiry. Returns the old string.
fn change_string(
    context: &mut Context<'_, '_>,
    key: &[u8],
    mut change: impl FnMut(Option<&[u8]>, Option<Expiry>) -> CommandResult<Change>,
) -> CommandResult<Option<Vec<u8>>> {
    let mut result = Ok(None);
    let database = context.database();
    context.access.update(database, key, |stored, expiry| {
        let decided = string_of(stored).and_then(|old| Ok((old, change(old, expiry)?)));
        match decided {
            Ok((old, change)) => {
                result = Ok(old.map(<[u8]>::to_vec));
                change
            }
            Err(error) => {
                result = Err(error);
                Change::Keep
            }
        }
    })?;
    result
}

fn write_optional(context: &mut Context<'_, '_>, string: Option<&[u8]>) {
    match string {
        Some(string) => context.reply.write_bulk(string),
        None => context.reply.write_null(),
    }
}

/// `MGET key [key ...]`
pub(crate) fn mget(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let keys = &arguments[1..];
    context.reply.write_array(keys.len());
    let database = context.database();
    let (reply, mut hits) = (&mut context.reply, 0);
    context.access.read_several(database, keys, |stored| match string_of(stored) {
        Ok(Some(string)) => {
            hits += 1;
            reply.write_bulk(string);
        }
        // A key of another type is answered as absent.
        Ok(None) | Err(_) => reply.write_null(),
    })?;
    context.count_lookups(hits, keys.len() as u64 - hits);
    Ok(())
}

/// `MSET key value [key value ...]`
pub(crate) fn mset(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    put_pairs(context, arguments, "mset")?;
    context.reply.write_ok();
    Ok(())
}

/// `MSETNX key value [key value ...]`
pub(crate) fn msetnx(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    check_pairs(arguments, "msetnx")?;
    for key in arguments[1..].iter().step_by(2) {
        if context.access.contains(context.session.database, key)? {
            context.reply.write_integer(0);
            return Ok(());
        }
    }
    put_pairs(context, arguments, "msetnx")?;
    context.reply.write_integer(1);
    Ok(())
}

fn check_pairs(arguments: &[&[u8]], command: &str) -> CommandResult {
    if arguments.len().is_multiple_of(2) { Err(CommandError::wrong_arity(command)) } else { Ok(()) }
}

fn put_pairs(context: &mut Context<'_, '_>, arguments: &[&[u8]], command: &str) -> CommandResult {
    check_pairs(arguments, command)?;
    let database = context.database();
    for pair in arguments[1..].chunks_exact(2) {
        context.access.put(database, pair[0], encode_string(pair[1]), None)?;
        context.notify(class::STRING, "set", pair[0]);
    }
    Ok(())
}

/// `STRLEN key`
pub(crate) fn strlen(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let length = context.read_string(arguments[1], |string| string.map(<[u8]>::len))?;
    context.count_lookup(length.is_some());
    context.notify_miss(arguments[1], length.is_some());
    write_length(context, length.unwrap_or(0));
    Ok(())
}

/// `APPEND key value`
pub(crate) fn append(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let added = arguments[2];
    let mut length = 0;
    change_string(context, arguments[1], |old, expiry| {
        let old = old.unwrap_or_default();
        length = old.len() + added.len();
        if length > STRING_BYTES_MAX {
            return Err(STRING_TOO_LONG);
        }
        let mut stored = encode_string(old);
        stored.extend_from_slice(added);
        Ok(Change::Put(stored, lifetime_of(expiry)))
    })?;
    context.notify(class::STRING, "append", arguments[1]);
    write_length(context, length);
    Ok(())
}

/// `GETRANGE key start end`, and its older name `SUBSTR`
pub(crate) fn getrange(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let (start, end) = (integer(arguments[2])?, integer(arguments[3])?);
    let database = context.database();
    let reply = &mut context.reply;
    let is_hit = context.access.read(database, arguments[1], |stored| {
        let string = string_of(stored)?;
        reply.write_bulk(slice_of(string.unwrap_or_default(), start, end));
        Ok::<_, CommandError>(string.is_some())
    })??;
    context.count_lookup(is_hit);
    context.notify_miss(arguments[1], is_hit);
    Ok(())
}

/// Returns the bytes from `start` to `end`, both included. Negative positions count from the end.
fn slice_of(string: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let length = i64::try_from(string.len()).unwrap_or(i64::MAX);
    let position = |index: i64| if index < 0 { length.saturating_add(index).max(0) } else { index };
    let (start, end) = (position(start), position(end).min(length - 1));
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => &string[start..=end],
        _ => &[],
    }
}

/// `SETRANGE key offset value`
pub(crate) fn setrange(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let offset = integer(arguments[2])?;
    let Ok(offset) = usize::try_from(offset) else {
        return Err(CommandError::new("ERR offset is out of range"));
    };
    let value = arguments[3];
    let mut length = 0;
    change_string(context, arguments[1], |old, expiry| {
        let old = old.unwrap_or_default();
        length = old.len();
        if value.is_empty() {
            return Ok(Change::Keep);
        }
        let end = offset.checked_add(value.len()).filter(|end| *end <= STRING_BYTES_MAX).ok_or(STRING_TOO_LONG)?;
        length = length.max(end);
        let mut stored = encode_string(old);
        let type_bytes = stored.len() - old.len();
        stored.resize(type_bytes + length, 0);
        stored[type_bytes + offset..type_bytes + end].copy_from_slice(value);
        Ok(Change::Put(stored, lifetime_of(expiry)))
    })?;
    if !value.is_empty() {
        context.notify(class::STRING, "setrange", arguments[1]);
    }
    write_length(context, length);
    Ok(())
}

fn write_length(context: &mut Context<'_, '_>, length: usize) {
    // A string has at most 512 MiB.
    context.reply.write_integer(length as i64);
}

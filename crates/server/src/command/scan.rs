//! Walks over the keys of a database: `SCAN`, `KEYS`, `RANDOMKEY`, `LODESTORE.RANGE`.
//!
//! `SCAN` walks in key order. The server keeps the key at which each cursor continues
//! (`data/cursors.rs`).

use std::ops::Bound;

use super::arguments::{integer, is_word};
use super::context::Context;
use crate::data::cursors::Position;
use crate::data::value::Stored;
use crate::error::{CommandError, CommandResult, REPLY_TOO_LONG, SYNTAX};
use crate::glob;

/// Default number of keys per `SCAN`.
const SCAN_COUNT_DEFAULT: usize = 10;

/// Maximum keys per `SCAN`. `COUNT` is a hint, and a walk continues by its cursor.
const SCAN_COUNT_MAX: usize = 65_536;

/// Keys that one step of a walk reads from the store.
const STEP_KEYS_MAX: usize = 1024;

/// Options of `SCAN`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanOptions<'a> {
    pub(super) pattern: Option<&'a [u8]>,
    pub(super) count: usize,
    pub(super) type_name: Option<&'a [u8]>,
}

pub(super) fn parse_scan_options<'a>(arguments: &[&'a [u8]]) -> CommandResult<ScanOptions<'a>> {
    let mut options = ScanOptions { pattern: None, count: SCAN_COUNT_DEFAULT, type_name: None };
    for pair in arguments.chunks(2) {
        match pair {
            [word, pattern] if is_word(word, "match") => options.pattern = Some(pattern),
            [word, count] if is_word(word, "count") => {
                let count = integer(count)?;
                options.count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            }
            [word, type_name] if is_word(word, "type") => options.type_name = Some(type_name),
            _ => return Err(SYNTAX),
        }
    }
    Ok(options)
}

/// Reads the number of a cursor.
pub(super) fn parse_cursor(argument: &[u8]) -> CommandResult<u64> {
    let cursor = std::str::from_utf8(argument).ok().and_then(|text| text.parse().ok());
    cursor.ok_or(CommandError::new("ERR invalid cursor"))
}

/// Returns the error for a cursor whose key the server does not keep.
pub(super) fn unknown_cursor() -> CommandError {
    CommandError::new(
        "ERR invalid cursor: the cursor is from an earlier run of the server, or too many newer cursors exist. Scan \
         again from 0.",
    )
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
pub(crate) fn scan(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let cursor = parse_cursor(arguments[1])?;
    let options = parse_scan_options(&arguments[2..])?;
    let after = match cursor {
        0 => None,
        number => match context.shared.cursors.find(number) {
            Position::After(key) => Some(key),
            Position::Flushed => {
                write_end(context);
                return Ok(());
            }
            Position::Unknown => return Err(unknown_cursor()),
        },
    };
    let page = read_page(context, after, options.count.min(SCAN_COUNT_MAX))?;
    let mut keys = Vec::new();
    for key in &page.keys {
        let is_match = options.pattern.is_none_or(|pattern| glob::matches(pattern, key));
        if is_match && has_type(context, key, options.type_name)? {
            keys.push(key);
        }
    }
    let next = match page.keys.last() {
        Some(last) if !page.is_last => context.shared.cursors.keep(last.clone()),
        _ => 0,
    };
    context.reply.write_array(2);
    context.reply.write_bulk(next.to_string().as_bytes());
    context.reply.write_array(keys.len());
    keys.iter().for_each(|key| context.reply.write_bulk(key));
    Ok(())
}

/// Writes the reply of a walk that has ended: no cursor, and no keys.
fn write_end(context: &mut Context<'_, '_>) {
    context.reply.write_array(2);
    context.reply.write_bulk(b"0");
    context.reply.write_array(0);
}

/// Keys of a walk, in order.
struct KeyPage {
    keys: Vec<Vec<u8>>,
    /// Whether the walk has no further keys.
    is_last: bool,
}

/// Reads at least one and about `count` keys after a key.
fn read_page(context: &Context<'_, '_>, after: Option<Vec<u8>>, count: usize) -> CommandResult<KeyPage> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let (keys, is_last) = context.access.keys_page(context.database(), from, count)?;
    Ok(KeyPage { keys, is_last })
}

fn has_type(context: &Context<'_, '_>, key: &[u8], type_name: Option<&[u8]>) -> CommandResult<bool> {
    let Some(type_name) = type_name else { return Ok(true) };
    Ok(context.access.read(context.database(), key, |stored| {
        stored.is_some_and(|stored| is_word(type_name, Stored::parse(stored).type_name()))
    })?)
}

/// `KEYS pattern`
pub(crate) fn keys(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let pattern = arguments[1];
    let mut found = Vec::new();
    if glob::is_literal(pattern) {
        if !pattern.is_empty() && context.access.contains(context.database(), pattern)? {
            found.push(pattern.to_vec());
        }
    } else {
        let prefix = glob::literal_prefix(pattern).to_vec();
        let mut from = if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(prefix.clone()) };
        loop {
            let (page, is_last) = context.access.keys_page(context.database(), from, STEP_KEYS_MAX)?;
            let next = page.last().cloned();
            let is_past = next.as_ref().is_some_and(|key| !key.starts_with(&prefix));
            found.extend(page.into_iter().filter(|key| glob::matches(pattern, key)));
            match next {
                Some(next) if !is_last && !is_past => from = Bound::Excluded(next),
                _ => break,
            }
        }
    }
    context.reply.write_array(found.len());
    found.iter().for_each(|key| context.reply.write_bulk(key));
    Ok(())
}

/// `RANDOMKEY`
///
/// The store has no uniform choice. The command jumps to a random position between the first and
/// the last key, so keys after a gap are chosen more often.
pub(crate) fn randomkey(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    let database = context.database();
    let (first, _) = context.access.keys_page(database, Bound::Unbounded, STEP_KEYS_MAX)?;
    let random = random_number();
    if first.is_empty() {
        context.reply.write_null();
        return Ok(());
    }
    // Half of the choices are among the first keys, so small databases are chosen from uniformly.
    let index = usize::try_from(random % first.len() as u64).unwrap_or(0);
    let chosen = if first.len() < STEP_KEYS_MAX || random & 1 == 0 {
        first[index].clone()
    } else {
        let mut jump = random.to_le_bytes().to_vec();
        jump.truncate(2);
        let (keys, _) = context.access.keys_page(database, Bound::Included(jump), 1)?;
        keys.into_iter().next().unwrap_or_else(|| first[index].clone())
    };
    context.reply.write_bulk(&chosen);
    Ok(())
}

pub(super) fn random_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0_u8)
}

/// Options of `LODESTORE.RANGE`.
#[derive(Debug, Clone, Copy, Default)]
struct RangeOptions {
    limit: Option<usize>,
    is_reverse: bool,
    has_values: bool,
}

/// `LODESTORE.RANGE start end [LIMIT n] [REV] [WITHVALUES]`
///
/// Answers the keys from `start` to before `end`, in order. `-` is before the first key, and `+`
/// is after the last key.
pub(crate) fn range(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let mut options = RangeOptions::default();
    let mut rest = &arguments[3..];
    while let [word, after @ ..] = rest {
        rest = match after {
            [limit, after @ ..] if is_word(word, "limit") => {
                options.limit = Some(usize::try_from(integer(limit)?).map_err(|_| SYNTAX)?);
                after
            }
            _ if is_word(word, "rev") => {
                options.is_reverse = true;
                after
            }
            _ if is_word(word, "withvalues") => {
                options.has_values = true;
                after
            }
            _ => return Err(SYNTAX),
        };
    }
    let start = if arguments[1] == b"-" { Bound::Unbounded } else { Bound::Included(arguments[1].to_vec()) };
    let end = if arguments[2] == b"+" { Bound::Unbounded } else { Bound::Excluded(arguments[2].to_vec()) };
    let keys = if context.access.is_buffered() {
        pending_range(context, start, &end, options)?
    } else {
        stored_range(context, start, end, options)?
    };
    context.reply.write_array(keys.len() * if options.has_values { 2 } else { 1 });
    for key in keys {
        context.reply.write_bulk(&key.key);
        if options.has_values {
            match key.stored.as_deref().map(Stored::parse) {
                Some(Stored::String(string)) => context.reply.write_bulk(string),
                // A collection has no single value.
                Some(Stored::Hash(_) | Stored::Unknown) | None => context.reply.write_null(),
            }
        }
    }
    Ok(())
}

/// A key of a range.
struct RangeKey {
    key: Vec<u8>,
    /// The stored value, if the client requested values.
    stored: Option<Vec<u8>>,
}

/// Reads a range of the store.
fn stored_range(
    context: &Context<'_, '_>,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    options: RangeOptions,
) -> CommandResult<Vec<RangeKey>> {
    let pairs = context.access.keyspace(context.database()).range((start, end))?;
    let pairs: Box<dyn Iterator<Item = _>> = if options.is_reverse { Box::new(pairs.rev()) } else { Box::new(pairs) };
    let mut found = Vec::new();
    let mut bytes = 0_usize;
    for pair in pairs.take(options.limit.unwrap_or(usize::MAX)) {
        let (key, stored) = pair?;
        // Keys and values are collected before the reply is written.
        bytes += key.len() + if options.has_values { stored.len() } else { 0 };
        if bytes > context.shared.runtime.reply_bytes_max() {
            return Err(REPLY_TOO_LONG);
        }
        found.push(RangeKey { key: key.to_vec(), stored: options.has_values.then(|| stored.to_vec()) });
    }
    Ok(found)
}

/// Reads a range of the store with the writes that wait for `EXEC`.
fn pending_range(
    context: &Context<'_, '_>,
    start: Bound<Vec<u8>>,
    end: &Bound<Vec<u8>>,
    options: RangeOptions,
) -> CommandResult<Vec<RangeKey>> {
    let database = context.database();
    let limit = options.limit.unwrap_or(usize::MAX);
    let is_before_end = |key: &Vec<u8>| match end {
        Bound::Excluded(end) => key < end,
        Bound::Included(end) => key <= end,
        Bound::Unbounded => true,
    };
    let mut keys = Vec::new();
    let mut from = start;
    loop {
        let (page, is_last) = context.access.keys_page(database, from, STEP_KEYS_MAX)?;
        let next = page.last().cloned();
        let before = keys.len() + page.len();
        keys.extend(page.into_iter().filter(is_before_end));
        let is_past = keys.len() < before || (!options.is_reverse && keys.len() >= limit);
        match next {
            Some(next) if !is_last && !is_past => from = Bound::Excluded(next),
            _ => break,
        }
    }
    if options.is_reverse {
        keys.reverse();
    }
    keys.truncate(limit);
    let mut found = Vec::with_capacity(keys.len());
    let mut bytes = 0_usize;
    for key in keys {
        let stored = match options.has_values {
            true => context.access.read(database, &key, |stored| stored.map(<[u8]>::to_vec))?,
            false => None,
        };
        bytes += stored.as_ref().map_or(0, Vec::len);
        if bytes > context.shared.runtime.reply_bytes_max() {
            return Err(REPLY_TOO_LONG);
        }
        found.push(RangeKey { key, stored });
    }
    Ok(found)
}

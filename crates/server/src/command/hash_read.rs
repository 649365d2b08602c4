//! Commands that read hashes.
//!
//! The record of a small hash is a whole value, so one read answers it. A large hash is read in
//! several steps. The sequence of the key's stripe shows whether the hash changed meanwhile; then
//! it is read again, and finally under its stripe. Each reply is therefore of one moment.

use lodestore_wire::ReplyWriter;

use super::context::Context;
use crate::data::access::Access;
use crate::data::access::elements::WHOLE_STEP;
use crate::data::hash::{HashRecord, LargeHash, SmallHash};
use crate::data::hash_editor::{damaged_hash, hash_of};
use crate::error::CommandResult;

/// Attempts to read a large hash without its stripe.
const READ_ATTEMPTS_MAX: usize = 8;

/// A large hash that a command reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct LargeView<'v> {
    access: &'v Access<'v>,
    database: usize,
    key: &'v [u8],
    hash: LargeHash,
}

impl LargeView<'_> {
    /// Returns the number of fields.
    pub(super) fn len(&self) -> u64 {
        self.hash.count
    }

    /// Calls `read` with the value of a field.
    pub(super) fn read<T>(&self, field: &[u8], read: impl FnOnce(Option<&[u8]>) -> T) -> CommandResult<T> {
        Ok(self.access.read_element(self.database, self.hash.id, field, read)?)
    }

    /// Returns some fields after a field, in order.
    pub(super) fn page(
        &self,
        after: Option<&[u8]>,
        limit: crate::data::access::elements::PageLimit,
    ) -> CommandResult<crate::data::access::elements::ElementPage> {
        Ok(self.access.elements_page(self.database, self.hash.id, after, limit)?)
    }

    /// Calls `visit` with all fields and values, in the order of the fields.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8])) -> CommandResult {
        let (mut count, mut after) = (0_u64, None);
        loop {
            let page = self.page(after.as_deref(), WHOLE_STEP)?;
            count += page.pairs.len() as u64;
            page.pairs.iter().for_each(|(field, value)| visit(field, value));
            match page.next {
                // A damaged hash must not write more elements than its reply announced.
                Some(next) if count <= self.hash.count => after = Some(next),
                None if count == self.hash.count => return Ok(()),
                _ => {
                    let damage = format!(
                        "the record of the hash names {} fields, and the store has other fields",
                        self.hash.count
                    );
                    return Err(damaged_hash(self.key, &damage));
                }
            }
        }
    }
}

/// Reads a hash: a small or absent one by `small`, and a large one by `large`. Both write the reply
/// of the command; the last call counts.
pub(super) fn read_hash<T>(
    context: &mut Context<'_, '_>,
    key: &[u8],
    mut small: impl FnMut(Option<SmallHash<'_>>, &mut ReplyWriter<'_>) -> T,
    mut large: impl FnMut(LargeView<'_>, &mut ReplyWriter<'_>) -> CommandResult<T>,
) -> CommandResult<T> {
    let database = context.database();
    let mut is_hit = false;
    let mut attempt = |access: &Access<'_>, reply: &mut ReplyWriter<'_>, reads_large: bool| {
        let found = access.read(database, key, |stored| {
            is_hit = stored.is_some();
            match stored.map(|stored| hash_of(key, stored)).transpose()? {
                None => Ok(Ok(small(None, reply))),
                Some(HashRecord::Small(hash)) => Ok(Ok(small(Some(hash), reply))),
                Some(HashRecord::Large(hash)) => Ok(Err(hash)),
            }
        })?;
        match found {
            Err(error) => Err(error),
            Ok(Ok(value)) => Ok(Some(value)),
            Ok(Err(hash)) if reads_large => large(LargeView { access, database, key, hash }, reply).map(Some),
            Ok(Err(_)) => Ok(None),
        }
    };
    let start = context.reply.output_bytes();
    let stripes = &context.shared.stripes;
    let mut result = attempt(context.access, &mut context.reply, context.access.holds_stripes());
    let index = [stripes.index_of(key)];
    for _ in 0..READ_ATTEMPTS_MAX {
        if !matches!(result, Ok(None)) {
            break;
        }
        let Some(sequence) = stripes.sequences(&index) else {
            std::thread::yield_now();
            continue;
        };
        result = attempt(context.access, &mut context.reply, true);
        if stripes.sequences(&index).as_ref() != Some(&sequence) {
            context.reply.truncate(start);
            result = Ok(None);
        }
    }
    if matches!(result, Ok(None)) {
        let _held = stripes.lock_one(key);
        result = attempt(context.access, &mut context.reply, true);
    }
    context.count_lookup(is_hit);
    context.notify_miss(key, is_hit);
    // The last attempt reads large hashes too.
    result?.ok_or_else(|| damaged_hash(key, "the hash was not read"))
}

fn write_optional(reply: &mut ReplyWriter<'_>, value: Option<&[u8]>) {
    match value {
        Some(value) => reply.write_bulk(value),
        None => reply.write_null(),
    }
}

/// Returns a number for a reply. No count in memory exceeds `i64::MAX`.
fn reply_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the number of elements of a reply.
fn reply_length(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX / 2)
}

/// `HGET key field`
pub(crate) fn hget(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let field = arguments[2];
    read_hash(
        context,
        arguments[1],
        |hash, reply| write_optional(reply, hash.and_then(|hash| hash.get(field))),
        |hash, reply| hash.read(field, |value| write_optional(reply, value)),
    )
}

/// `HMGET key field [field ...]`
pub(crate) fn hmget(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let fields = &arguments[2..];
    read_hash(
        context,
        arguments[1],
        |hash, reply| {
            reply.write_array(fields.len());
            fields.iter().for_each(|field| write_optional(reply, hash.and_then(|hash| hash.get(field))));
        },
        |hash, reply| {
            reply.write_array(fields.len());
            fields.iter().try_for_each(|field| hash.read(field, |value| write_optional(reply, value)))
        },
    )
}

/// Replies with parts of all pairs of a hash: `head` writes the number of pairs, and `write` the
/// parts of a pair.
fn read_all(
    context: &mut Context<'_, '_>,
    key: &[u8],
    head: fn(&mut ReplyWriter<'_>, usize),
    write: impl Fn(&mut ReplyWriter<'_>, &[u8], &[u8]),
) -> CommandResult {
    read_hash(
        context,
        key,
        |hash, reply| {
            head(reply, hash.map_or(0, SmallHash::len));
            hash.into_iter().flat_map(SmallHash::pairs).for_each(|(field, value)| write(reply, field, value));
        },
        |hash, reply| {
            head(reply, reply_length(hash.len()));
            hash.for_each(|field, value| write(reply, field, value))
        },
    )
}

/// `HGETALL key`
pub(crate) fn hgetall(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    read_all(
        context,
        arguments[1],
        |reply, pairs| reply.write_map(pairs),
        |reply, field, value| {
            reply.write_bulk(field);
            reply.write_bulk(value);
        },
    )
}

/// `HKEYS key`
pub(crate) fn hkeys(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    read_all(context, arguments[1], |reply, pairs| reply.write_array(pairs), |reply, field, _| reply.write_bulk(field))
}

/// `HVALS key`
pub(crate) fn hvals(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    read_all(context, arguments[1], |reply, pairs| reply.write_array(pairs), |reply, _, value| reply.write_bulk(value))
}

/// `HLEN key`
pub(crate) fn hlen(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    read_hash(
        context,
        arguments[1],
        |hash, reply| reply.write_integer(hash.map_or(0, SmallHash::len) as i64),
        |hash, reply| {
            reply.write_integer(reply_number(hash.len()));
            Ok(())
        },
    )
}

/// `HEXISTS key field`
pub(crate) fn hexists(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let field = arguments[2];
    read_hash(
        context,
        arguments[1],
        |hash, reply| reply.write_integer(i64::from(hash.is_some_and(|hash| hash.get(field).is_some()))),
        |hash, reply| hash.read(field, |value| reply.write_integer(i64::from(value.is_some()))),
    )
}

/// `HSTRLEN key field`
pub(crate) fn hstrlen(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let field = arguments[2];
    let length = |value: Option<&[u8]>| value.map_or(0, <[u8]>::len) as i64;
    read_hash(
        context,
        arguments[1],
        |hash, reply| reply.write_integer(length(hash.and_then(|hash| hash.get(field)))),
        |hash, reply| hash.read(field, |value| reply.write_integer(length(value))),
    )
}

//! Commands on keys of any type, and on databases.

use super::arguments::{integer, is_word};
use super::context::Context;
use crate::data::hash_editor::{KeyLocation, Record};
use crate::data::transfer::{Transfer, transfer};
use crate::data::value::Stored;
use crate::error::{CommandError, CommandResult, DATABASE_OUT_OF_RANGE, NO_SUCH_KEY, SAME_OBJECT, SYNTAX};
use crate::keyspace_events::class;

/// `DEL key [key ...]`, and its other name `UNLINK`
pub(crate) fn del(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let database = context.database();
    let mut count = 0;
    for key in &arguments[1..] {
        let is_deleted = context.access.delete(database, key)?;
        if is_deleted {
            context.notify(class::GENERIC, "del", key);
        }
        count += i64::from(is_deleted);
    }
    context.reply.write_integer(count);
    Ok(())
}

/// `DELIFEQ key value`: deletes a string if it has this value. The command is Valkey's.
pub(crate) fn delifeq(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let is_equal = context.read_string(arguments[1], |string| string == Some(arguments[2]))?;
    let database = context.database();
    let is_deleted = is_equal && context.access.delete(database, arguments[1])?;
    if is_deleted {
        context.notify(class::GENERIC, "del", arguments[1]);
    }
    context.reply.write_integer(i64::from(is_deleted));
    Ok(())
}

/// `EXISTS key [key ...]`, and its other name `TOUCH`
pub(crate) fn exists(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let mut count = 0;
    for key in &arguments[1..] {
        let is_present = context.access.contains(context.database(), key)?;
        context.count_lookup(is_present);
        context.notify_miss(key, is_present);
        count += i64::from(is_present);
    }
    context.reply.write_integer(count);
    Ok(())
}

/// `TYPE key`
pub(crate) fn type_of(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let name = context.access.read(context.database(), arguments[1], |stored| {
        stored.map_or("none", |stored| Stored::parse(stored).type_name())
    })?;
    context.reply.write_simple(name);
    Ok(())
}

/// Reads the stored value of a key and its expiry. The caller holds the key's stripe.
fn read_record(context: &Context<'_, '_>, location: KeyLocation<'_>) -> CommandResult<Option<Record>> {
    let stored = context.access.read(location.database, location.key, |stored| stored.map(<[u8]>::to_vec))?;
    let expiry = context.access.expiry(location.database, location.key)?;
    // A key that expires between the two reads is absent.
    Ok(stored.zip(expiry))
}

/// `RENAME key newkey`
pub(crate) fn rename(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let database = context.database();
    let (from, to) = (KeyLocation { database, key: arguments[1] }, KeyLocation { database, key: arguments[2] });
    let record = read_record(context, from)?.ok_or(NO_SUCH_KEY)?;
    if from != to {
        transfer(context.access, from, to, record, Transfer::Move)?;
        notify_rename(context, from, to);
    }
    context.reply.write_ok();
    Ok(())
}

/// `RENAMENX key newkey`
pub(crate) fn renamenx(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let database = context.database();
    let (from, to) = (KeyLocation { database, key: arguments[1] }, KeyLocation { database, key: arguments[2] });
    let record = read_record(context, from)?.ok_or(NO_SUCH_KEY)?;
    let is_free = !context.access.contains(to.database, to.key)?;
    if is_free {
        transfer(context.access, from, to, record, Transfer::Move)?;
        notify_rename(context, from, to);
    }
    context.reply.write_integer(i64::from(is_free));
    Ok(())
}

fn notify_rename(context: &mut Context<'_, '_>, from: KeyLocation<'_>, to: KeyLocation<'_>) {
    context.notify(class::GENERIC, "rename_from", from.key);
    context.notify(class::GENERIC, "rename_to", to.key);
}

/// `MOVE key db`
pub(crate) fn move_key(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let from = KeyLocation { database: context.database(), key: arguments[1] };
    let to = KeyLocation { database: database_number(context, arguments[2])?, key: arguments[1] };
    if from == to {
        return Err(SAME_OBJECT);
    }
    let record = read_record(context, from)?;
    let is_free = !context.access.contains(to.database, to.key)?;
    match record {
        Some(record) if is_free => {
            transfer(context.access, from, to, record, Transfer::Move)?;
            context.notify_in(from.database, class::GENERIC, "move_from", from.key);
            context.notify_in(to.database, class::GENERIC, "move_to", to.key);
            context.reply.write_integer(1);
        }
        _ => context.reply.write_integer(0),
    }
    Ok(())
}

/// `COPY source destination [DB db] [REPLACE]`
pub(crate) fn copy(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let from = KeyLocation { database: context.database(), key: arguments[1] };
    let mut to = KeyLocation { database: from.database, key: arguments[2] };
    let mut replaces = false;
    let mut rest = &arguments[3..];
    while let [word, after @ ..] = rest {
        rest = match after {
            [number, after @ ..] if is_word(word, "db") => {
                to.database = database_number(context, number)?;
                after
            }
            _ if is_word(word, "replace") => {
                replaces = true;
                after
            }
            _ => return Err(SYNTAX),
        };
    }
    if from == to {
        return Err(SAME_OBJECT);
    }
    let record = read_record(context, from)?;
    let is_free = replaces || !context.access.contains(to.database, to.key)?;
    match record {
        Some(record) if is_free => {
            transfer(context.access, from, to, record, Transfer::Copy)?;
            context.notify_in(to.database, class::GENERIC, "copy_to", to.key);
            context.reply.write_integer(1);
        }
        _ => context.reply.write_integer(0),
    }
    Ok(())
}

/// Reads the number of a database.
pub(crate) fn database_number(context: &Context<'_, '_>, argument: &[u8]) -> CommandResult<usize> {
    let number = integer(argument)?;
    let count = context.shared.databases.view().count();
    usize::try_from(number).ok().filter(|number| *number < count).ok_or(DATABASE_OUT_OF_RANGE)
}

/// `DBSIZE`
pub(crate) fn dbsize(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    let count = context.access.count(context.database())?;
    context.reply.write_integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

/// Checks the argument of `FLUSHDB` and `FLUSHALL`: `ASYNC` and `SYNC` do the same here.
fn check_flush_mode(arguments: &[&[u8]]) -> CommandResult {
    match arguments {
        [_] => Ok(()),
        [_, word] if is_word(word, "async") || is_word(word, "sync") => Ok(()),
        _ => Err(SYNTAX),
    }
}

/// `FLUSHDB [ASYNC | SYNC]`
pub(crate) fn flushdb(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    check_flush_mode(arguments)?;
    let database = context.database();
    context.access.mark_database_changed(database, None);
    context.shared.databases.flush(std::iter::once(database))?;
    context.reply.write_ok();
    Ok(())
}

/// `FLUSHALL [ASYNC | SYNC]`
pub(crate) fn flushall(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    check_flush_mode(arguments)?;
    let count = context.shared.databases.view().count();
    (0..count).for_each(|database| context.access.mark_database_changed(database, None));
    context.shared.databases.flush(0..count)?;
    context.shared.cursors.flush();
    context.reply.write_ok();
    Ok(())
}

/// `SWAPDB index1 index2`
pub(crate) fn swapdb(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let parse = |argument: &[u8], which: &str| {
        let number = integer(argument).map_err(|_| CommandError::new(format!("ERR invalid {which} DB index")))?;
        let count = context.shared.databases.view().count();
        usize::try_from(number).ok().filter(|number| *number < count).ok_or(DATABASE_OUT_OF_RANGE)
    };
    let (first, second) = (parse(arguments[1], "first")?, parse(arguments[2], "second")?);
    if first != second {
        context.access.mark_database_changed(first, Some(second));
        context.access.mark_database_changed(second, Some(first));
        context.shared.databases.swap(first, second)?;
    }
    context.reply.write_ok();
    Ok(())
}

/// Writes the lines of a help text.
pub(crate) fn write_help(context: &mut Context<'_, '_>, lines: &[&str]) -> CommandResult {
    context.reply.write_array(lines.len());
    lines.iter().for_each(|line| context.reply.write_simple(line));
    Ok(())
}

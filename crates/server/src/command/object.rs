//! `OBJECT`, `MEMORY`, and the parts of `DEBUG` that describe a key.

use super::arguments::{integer, is_word};
use super::context::Context;
use super::hash_read::read_hash;
use super::keys::write_help;
use crate::data::access::elements::PageLimit;
use crate::data::hash::HashRecord;
use crate::data::value::Stored;
use crate::error::{CommandError, CommandResult, NO_SUCH_KEY, SYNTAX};

/// Longest string that Redis stores next to its header.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Longest field or value of a hash that Redis stores in a list.
const LISTED_BYTES_MAX: usize = 64;

/// Estimate of the bytes that a store uses for a record besides key and value.
const RECORD_OVERHEAD_BYTES: usize = 40;

/// Elements that `MEMORY USAGE` reads if the client does not say.
const SAMPLES_DEFAULT: usize = 5;

/// Most elements that `MEMORY USAGE` reads.
const SAMPLES_MAX: usize = 4096;

/// Bytes of elements after which `MEMORY USAGE` reads no more.
const SAMPLED_BYTES_MAX: usize = 1 << 20;

/// `OBJECT subcommand [arguments]`
pub(crate) fn object(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let subcommand = arguments[1];
    if is_word(subcommand, "help") {
        let lines = [
            "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "ENCODING <key>",
            "    Return the kind of internal representation used in order to store the value",
            "    associated with a <key>.",
            "FREQ <key>",
            "    Return the access frequency index of the <key>. The returned integer is",
            "    proportional to the logarithm of the recent access frequency of the key.",
            "IDLETIME <key>",
            "    Return the idle time of the <key>, that is the approximated number of",
            "    seconds elapsed since the last access to the key.",
            "REFCOUNT <key>",
            "    Return the number of references of the value associated with the specified",
            "    <key>.",
            "HELP",
            "    Prints this help.",
        ];
        return write_help(context, &lines);
    }
    let known = ["encoding", "freq", "idletime", "refcount"];
    let Some(name) = known.into_iter().find(|name| is_word(subcommand, name)) else {
        return Err(CommandError::unknown_subcommand("object", subcommand));
    };
    let [_, _, key] = arguments else {
        return Err(CommandError::wrong_arity(&format!("object|{name}")));
    };
    let encoding = context.access.read(context.database(), key, |stored| stored.map(encoding_of))?;
    let Some(encoding) = encoding else {
        context.reply.write_null();
        return Ok(());
    };
    match name {
        "encoding" => context.reply.write_bulk(encoding.as_bytes()),
        "refcount" => context.reply.write_integer(1),
        // The store counts no accesses of single keys.
        "idletime" => context.reply.write_integer(0),
        _ => {
            return Err(CommandError::new(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
                 switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
    }
    Ok(())
}

/// Returns the encoding that Redis would choose, because clients compare it.
fn encoding_of(stored: &[u8]) -> &'static str {
    match Stored::parse(stored) {
        Stored::String(string) if lodestore_wire::parse_integer(string).is_some() => "int",
        Stored::String(string) if string.len() <= EMBEDDED_BYTES_MAX => "embstr",
        Stored::String(_) => "raw",
        Stored::Hash(record) => match HashRecord::parse(record) {
            Ok(HashRecord::Small(hash)) => {
                let is_short = |text: &[u8]| text.len() <= LISTED_BYTES_MAX;
                let is_listed = hash.len() <= crate::data::hash::SMALL_FIELDS_MAX
                    && hash.pairs().all(|(field, value)| is_short(field) && is_short(value));
                if is_listed { "listpack" } else { "hashtable" }
            }
            Ok(HashRecord::Large(_)) => "hashtable",
            Err(_) => "unknown",
        },
        Stored::Unknown => "unknown",
    }
}

/// `MEMORY USAGE key [SAMPLES count]`, `MEMORY STATS`, `MEMORY DOCTOR`, `MEMORY HELP`
pub(crate) fn memory(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    match &arguments[1..] {
        [word] if is_word(word, "help") => {
            let lines = [
                "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "DOCTOR",
                "    Return memory problems reports.",
                "MALLOC-STATS",
                "    Return internal statistics report from the memory allocator.",
                "PURGE",
                "    Attempt to purge dirty pages for reclamation by the allocator.",
                "STATS",
                "    Return information about the memory usage of the server.",
                "USAGE <key> [SAMPLES <count>]",
                "    Return memory in bytes used by <key> and its value. Nested values are",
                "    sampled up to <count> times (default: 5, 0 means sample all).",
                "HELP",
                "    Prints this help.",
            ];
            write_help(context, &lines)
        }
        [word] if is_word(word, "doctor") => {
            context.reply.write_verbatim(b"Memory is bounded by the capacity of the store. See INFO memory.\n");
            Ok(())
        }
        // The store frees space itself.
        [word] if is_word(word, "purge") => {
            context.reply.write_ok();
            Ok(())
        }
        [word] if is_word(word, "malloc-stats") => {
            context.reply.write_bulk(b"Stats not supported for the current allocator");
            Ok(())
        }
        [word] if is_word(word, "stats") => {
            write_stats(context);
            Ok(())
        }
        [word, key, options @ ..] if is_word(word, "usage") => {
            let samples = match options {
                [] => SAMPLES_DEFAULT,
                [samples, count] if is_word(samples, "samples") => match usize::try_from(integer(count)?) {
                    Ok(0) => SAMPLES_MAX,
                    Ok(count) => count.min(SAMPLES_MAX),
                    Err(_) => return Err(SYNTAX),
                },
                _ => return Err(SYNTAX),
            };
            write_usage(context, key, samples)
        }
        [subcommand, ..]
            if ["doctor", "help", "malloc-stats", "purge", "stats", "usage"]
                .iter()
                .any(|known| is_word(subcommand, known)) =>
        {
            let name = String::from_utf8_lossy(subcommand).to_ascii_lowercase();
            Err(CommandError::wrong_arity(&format!("memory|{name}")))
        }
        [subcommand, ..] => Err(CommandError::unknown_subcommand("memory", subcommand)),
        [] => Err(CommandError::wrong_arity("memory")),
    }
}

/// Writes figures of the store by Redis' names.
fn write_stats(context: &mut Context<'_, '_>) {
    let stats = context.shared.db().stats();
    let clients = context.shared.client_count();
    let figures = [
        ("total.allocated", stats.space.live),
        ("startup.allocated", 0),
        ("clients.normal", clients as u64),
        ("keys.count", stats.keys),
        ("dataset.bytes", stats.space.live),
        ("lodestore.capacity", stats.space.capacity),
        ("lodestore.dead", stats.space.dead),
        ("lodestore.free", stats.space.free),
        ("lodestore.dram", stats.dram_bytes),
    ];
    context.reply.write_map(figures.len());
    for (name, figure) in figures {
        context.reply.write_bulk(name.as_bytes());
        context.reply.write_integer(i64::try_from(figure).unwrap_or(i64::MAX));
    }
}

/// Writes an estimate of the bytes of a key. The elements of a large hash are sampled.
fn write_usage(context: &mut Context<'_, '_>, key: &[u8], samples: usize) -> CommandResult {
    let database = context.database();
    let record = context.access.read(database, key, |stored| {
        stored.map(|stored| (stored.len(), matches!(Stored::parse(stored), Stored::Hash(_))))
    })?;
    let Some((record_bytes, is_hash)) = record else {
        context.reply.write_null();
        return Ok(());
    };
    let mut bytes = (RECORD_OVERHEAD_BYTES + key.len() + record_bytes) as u64;
    if is_hash {
        let limit = PageLimit { elements: samples, bytes: SAMPLED_BYTES_MAX };
        bytes += read_hash(
            context,
            key,
            |_, _| 0,
            |hash, _| {
                let page = hash.page(None, limit)?;
                let sampled = page.pairs.len() as u64;
                let sum: u64 = page.pairs.iter().map(|(field, value)| element_bytes(field, value)).sum();
                Ok((u128::from(sum) * u128::from(hash.len())).checked_div(u128::from(sampled)).unwrap_or(0) as u64)
            },
        )?;
    }
    context.reply.write_integer(i64::try_from(bytes).unwrap_or(i64::MAX));
    Ok(())
}

fn element_bytes(field: &[u8], value: &[u8]) -> u64 {
    (RECORD_OVERHEAD_BYTES + crate::data::collections::ELEMENT_PREFIX_BYTES + field.len() + value.len()) as u64
}

/// Writes the line of `DEBUG OBJECT key`.
pub(crate) fn describe_key(context: &mut Context<'_, '_>, key: &[u8]) -> CommandResult {
    let described = context
        .access
        .read(context.database(), key, |stored| stored.map(|stored| (encoding_of(stored), stored.len())))?;
    let (encoding, bytes) = described.ok_or(NO_SUCH_KEY)?;
    let text = format!("Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{bytes} lru:0 lru_seconds_idle:0");
    context.reply.write_simple(&text);
    Ok(())
}

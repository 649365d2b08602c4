//! `MONITOR`, `SLOWLOG` and `LATENCY`.

use super::arguments::integer;
use super::context::Context;
use super::dispatch;
use super::keys::write_help;
use crate::command_specs::table::COMMANDS;
use crate::error::{CommandError, CommandResult};
use crate::statistics::commands::CommandTotals;
use crate::statistics::latency::{self, Samples};

/// Entries of the slow log that `SLOWLOG GET` returns if the client does not say.
const SLOW_ENTRIES_DEFAULT: usize = 10;

/// `MONITOR`
pub(crate) fn monitor(context: &mut Context<'_, '_>, _: &[&[u8]]) -> CommandResult {
    if context.session.messaging.is_monitor {
        // A second call has no answer, as in Redis.
        return Ok(());
    }
    context.session.messaging.is_monitor = true;
    context.session.public.with_details(|details| details.is_monitor = true);
    context.shared.hub.monitors.add(&context.session.public);
    context.reply.write_ok();
    Ok(())
}

/// `SLOWLOG GET [count] | LEN | RESET | HELP`
pub(crate) fn slowlog(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let subcommand = arguments[1].to_ascii_lowercase();
    match (subcommand.as_slice(), &arguments[2..]) {
        (b"get", []) => write_slow_entries(context, SLOW_ENTRIES_DEFAULT),
        (b"get", [count]) => {
            let count = integer(count).ok().filter(|count| *count >= -1);
            let count = count.ok_or(CommandError::new("ERR count should be greater than or equal to -1"))?;
            write_slow_entries(context, usize::try_from(count).unwrap_or(usize::MAX));
        }
        (b"len", []) => write_number(context, context.shared.statistics.slow_log.len() as u64),
        (b"reset", []) => {
            context.shared.statistics.slow_log.clear();
            context.reply.write_ok();
        }
        (b"help", []) => return write_help(context, &SLOWLOG_HELP),
        (b"get", _) => return Err(CommandError::unknown_subcommand_or_arity("slowlog", arguments[1])),
        (b"len" | b"reset" | b"help", _) => return Err(wrong_arity("slowlog", &subcommand)),
        _ => return Err(CommandError::unknown_subcommand("slowlog", arguments[1])),
    }
    Ok(())
}

const SLOWLOG_HELP: [&str; 12] = [
    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [<count>]",
    "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    "    Entries are made of:",
    "    id, timestamp, time in microseconds, arguments array, client IP and port,",
    "    client name",
    "LEN",
    "    Return the length of the slowlog.",
    "RESET",
    "    Reset the slowlog.",
    "HELP",
    "    Prints this help.",
];

fn wrong_arity(command: &str, subcommand: &[u8]) -> CommandError {
    CommandError::wrong_arity(&format!("{command}|{}", String::from_utf8_lossy(subcommand)))
}

fn write_number(context: &mut Context<'_, '_>, number: u64) {
    context.reply.write_integer(i64::try_from(number).unwrap_or(i64::MAX));
}

fn write_slow_entries(context: &mut Context<'_, '_>, count: usize) {
    let entries = context.shared.statistics.slow_log.newest(count);
    context.reply.write_array(entries.len());
    for entry in entries {
        context.reply.write_array(6);
        write_number(context, entry.number);
        write_number(context, entry.unix_seconds);
        write_number(context, entry.microseconds);
        context.reply.write_array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| context.reply.write_bulk(argument));
        context.reply.write_bulk(entry.address.as_bytes());
        context.reply.write_bulk(entry.name.as_bytes());
    }
}

/// `LATENCY LATEST | HISTORY | RESET | DOCTOR | GRAPH | HISTOGRAM | HELP`
pub(crate) fn latency(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let subcommand = arguments[1].to_ascii_lowercase();
    let monitor = &context.shared.statistics.latency;
    match (subcommand.as_slice(), &arguments[2..]) {
        (b"latest", []) => write_latest(context, &monitor.all()),
        (b"history", [event]) => write_history(context, &monitor.samples(event).unwrap_or_default()),
        (b"reset", events) => write_number(context, monitor.reset(events) as u64),
        (b"doctor", []) => {
            let report = latency::report(&monitor.all(), context.shared.runtime.latency_time());
            context.reply.write_verbatim(report.as_bytes());
        }
        (b"graph", [event]) => {
            let name = String::from_utf8_lossy(event);
            let samples = monitor
                .samples(event)
                .ok_or_else(|| CommandError::new(format!("ERR No samples available for event '{name}'")))?;
            let graph = latency::graph(&name.to_ascii_lowercase(), &samples);
            context.reply.write_verbatim(graph.as_bytes());
        }
        (b"histogram", names) => write_histograms(context, names),
        (b"help", []) => return write_help(context, &LATENCY_HELP),
        (b"latest" | b"history" | b"doctor" | b"graph" | b"help", _) => {
            return Err(wrong_arity("latency", &subcommand));
        }
        _ => return Err(CommandError::unknown_subcommand("latency", arguments[1])),
    }
    Ok(())
}

const LATENCY_HELP: [&str; 17] = [
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "GRAPH <event>",
    "    Return an ASCII latency graph for the <event> class.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event> class.",
    "LATEST",
    "    Return the latest latency samples for all events.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes.",
    "    (default: reset all data for all event classes)",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
    "    If no commands are specified then all histograms are replied.",
    "HELP",
    "    Prints this help.",
];

fn write_latest(context: &mut Context<'_, '_>, events: &[(&'static str, Samples)]) {
    context.reply.write_array(events.len());
    for (name, samples) in events {
        let last = samples.samples.back();
        context.reply.write_array(4);
        context.reply.write_bulk(name.as_bytes());
        write_number(context, last.map_or(0, |sample| sample.unix_seconds));
        write_number(context, last.map_or(0, |sample| sample.milliseconds));
        write_number(context, samples.milliseconds_max);
    }
}

fn write_history(context: &mut Context<'_, '_>, samples: &Samples) {
    context.reply.write_array(samples.samples.len());
    for sample in &samples.samples {
        context.reply.write_array(2);
        write_number(context, sample.unix_seconds);
        write_number(context, sample.milliseconds);
    }
}

/// Writes the histograms of commands that were called; of all commands if there are no names.
fn write_histograms(context: &mut Context<'_, '_>, names: &[&[u8]]) {
    let is_wanted = |name: &str| {
        names.is_empty() || names.iter().any(|wanted| dispatch::find(wanted).is_some_and(|spec| spec.name == name))
    };
    let found: Vec<(&str, CommandTotals)> = COMMANDS
        .iter()
        .enumerate()
        .filter(|(_, spec)| is_wanted(spec.name))
        .map(|(index, spec)| (spec.name, context.shared.statistics.totals(index)))
        .filter(|(_, totals)| totals.calls > 0)
        .collect();
    context.reply.write_map(found.len());
    for (name, totals) in found {
        let buckets = totals.cumulative();
        context.reply.write_bulk(name.as_bytes());
        context.reply.write_map(2);
        context.reply.write_bulk(b"calls");
        write_number(context, totals.calls);
        context.reply.write_bulk(b"histogram_usec");
        context.reply.write_map(buckets.len());
        for (microseconds, count) in buckets {
            write_number(context, microseconds);
            write_number(context, count);
        }
    }
}

//! The metrics of single commands: calls, times and failures.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;

use crate::shared::Shared;
use crate::statistics::commands::CommandTotals;

/// Binary logarithms of the bounds of the histograms in nanoseconds: 512 ns to 8.6 s.
const BOUNDS: std::ops::RangeInclusive<usize> = 9..=33;

/// The numbers of all commands that clients called.
#[derive(Debug)]
pub(super) struct CommandNumbers {
    commands: Vec<(&'static str, CommandTotals)>,
    /// Codes of error replies with their numbers.
    errors: Vec<(String, u64)>,
}

impl CommandNumbers {
    pub(super) fn of(shared: &Shared) -> Self {
        let mut commands = Vec::new();
        shared.statistics.for_each_used(|name, totals| commands.push((name, totals.clone())));
        Self { commands, errors: shared.statistics.errors() }
    }

    fn encode_times(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time of a command in the server, without network and queues. A GET counts the mean of its batch.";
        let mut family =
            encoder.encode_descriptor("command_duration", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (name, totals) in &self.commands {
            let buckets = totals.by_power(BOUNDS);
            // The loops count on meanwhile, so the number of calls may be newer than the buckets.
            let count = buckets.iter().map(|(_, count)| count).sum();
            let seconds = totals.nanoseconds as f64 / 1e9;
            family
                .encode_family(&[("command", *name)])?
                .encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)?;
        }
        Ok(())
    }
}

impl Collector for CommandNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_times(&mut encoder)?;
        let of_commands = |number: fn(&CommandTotals) -> u64| {
            self.commands.iter().map(move |(name, totals)| (*name, number(totals))).collect::<Vec<_>>()
        };
        let help = "Calls of a command that ran and failed.";
        encode_counters(&mut encoder, ("command_failures", help), "command", &of_commands(|totals| totals.failed))?;
        let help = "Calls of a command that were refused before they ran.";
        let rejected = of_commands(|totals| totals.rejected);
        encode_counters(&mut encoder, ("command_rejections", help), "command", &rejected)?;
        let errors: Vec<(&str, u64)> = self.errors.iter().map(|(code, count)| (code.as_str(), *count)).collect();
        encode_counters(&mut encoder, ("error_replies", "Error replies by their first word."), "code", &errors)
    }
}

/// Encodes a counter for each value of a label.
fn encode_counters(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    label: &str,
    numbers: &[(&str, u64)],
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, number) in numbers {
        ConstCounter::new(*number).encode(family.encode_family(&[(label, *value)])?)?;
    }
    Ok(())
}

//! Peaks of latency by event: `LATENCY`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Samples of an event that are kept, as in Redis.
const SAMPLES_MAX: usize = 160;

/// The greatest latency of one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) unix_seconds: u64,
    pub(crate) milliseconds: u64,
}

/// The samples of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Samples {
    /// The oldest sample is the first.
    pub(crate) samples: VecDeque<Sample>,
    pub(crate) milliseconds_max: u64,
}

/// The samples of all events.
#[derive(Debug, Default)]
pub(crate) struct LatencyMonitor {
    events: Mutex<BTreeMap<&'static str, Samples>>,
}

impl LatencyMonitor {
    fn events(&self) -> MutexGuard<'_, BTreeMap<&'static str, Samples>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a latency. A second keeps its greatest one.
    pub(crate) fn add(&self, event: &'static str, latency: Duration) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let milliseconds = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        let mut events = self.events();
        let samples = events.entry(event).or_default();
        samples.milliseconds_max = samples.milliseconds_max.max(milliseconds);
        match samples.samples.back_mut() {
            Some(last) if last.unix_seconds == now => last.milliseconds = last.milliseconds.max(milliseconds),
            _ => samples.samples.push_back(Sample { unix_seconds: now, milliseconds }),
        }
        if samples.samples.len() > SAMPLES_MAX {
            samples.samples.pop_front();
        }
    }

    /// Returns the samples of an event.
    pub(crate) fn samples(&self, event: &[u8]) -> Option<Samples> {
        let events = self.events();
        events.iter().find(|(name, _)| event == name.as_bytes()).map(|(_, samples)| samples.clone())
    }

    /// Returns all events with their samples.
    pub(crate) fn all(&self) -> Vec<(&'static str, Samples)> {
        self.events().iter().map(|(name, samples)| (*name, samples.clone())).collect()
    }

    /// Forgets events; all of them if there are no names. Returns the number of forgotten events.
    pub(crate) fn reset(&self, names: &[&[u8]]) -> usize {
        let mut events = self.events();
        let before = events.len();
        events.retain(|name, _| !names.is_empty() && !names.contains(&name.as_bytes()));
        before - events.len()
    }
}

/// Rows of a graph.
const GRAPH_ROW_COUNT: u64 = 4;

/// Returns a graph of the samples of an event, in characters.
pub(crate) fn graph(event: &str, samples: &Samples) -> String {
    let times = samples.samples.iter().map(|sample| sample.milliseconds);
    let (low, high) = (times.clone().min().unwrap_or(0), times.clone().max().unwrap_or(0));
    let mut text = format!("{event} - high {high} ms, low {low} ms (all time high {} ms)\n", samples.milliseconds_max);
    text.push_str(&"-".repeat(80));
    text.push('\n');
    let span = (high - low).max(1);
    for row in (0..GRAPH_ROW_COUNT).rev() {
        for time in times.clone() {
            let height = (time - low) * (GRAPH_ROW_COUNT - 1) / span;
            text.push(match height.cmp(&row) {
                std::cmp::Ordering::Greater => '|',
                std::cmp::Ordering::Equal => '#',
                std::cmp::Ordering::Less => ' ',
            });
        }
        text.push('\n');
    }
    text
}

/// Returns a report on all events in words.
pub(crate) fn report(events: &[(&'static str, Samples)], threshold: Option<Duration>) -> String {
    let Some(threshold) = threshold else {
        return "Latency monitoring is off. \"CONFIG SET latency-monitor-threshold <milliseconds>\" turns it on.\n"
            .into();
    };
    if events.is_empty() {
        return format!("No command took {} ms or longer since the last reset.\n", threshold.as_millis());
    }
    let mut text = String::from("Latency peaks by event:\n");
    for (name, samples) in events {
        let count = samples.samples.len();
        let sum: u64 = samples.samples.iter().map(|sample| sample.milliseconds).sum();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "* {name}: {count} peaks, mean {} ms, worst {} ms. SLOWLOG GET shows the commands.",
            sum / (count.max(1) as u64),
            samples.milliseconds_max,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_keeps_its_greatest_latency() {
        let monitor = LatencyMonitor::default();
        (0..1000).for_each(|time| monitor.add("command", Duration::from_millis(time % 7)));
        let samples = monitor.samples(b"command").unwrap();
        assert!(samples.samples.len() <= SAMPLES_MAX);
        assert_eq!(samples.milliseconds_max, 6);
        assert!(graph("command", &samples).starts_with("command - high 6 ms"));
        assert_eq!(monitor.reset(&[b"other"]), 0);
        assert_eq!(monitor.reset(&[]), 1);
    }
}

//! Counters and times of the server: commands, errors, slow commands and latency.
//!
//! * `commands`: calls and times of each command, by event loop. `counters`: all others.
//! * `slow_log`: the slowest commands. `latency`: peaks of latency by event. `rate`: commands and
//!   bytes per second.

pub(crate) mod commands;
pub(crate) mod counters;
pub(crate) mod latency;
mod rate;
pub(crate) mod slow_log;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::commands::{CommandTotals, LoopCounters};
use self::counters::Counters;
use self::latency::LatencyMonitor;
use self::rate::Rate;
use self::slow_log::SlowLog;
use crate::client::PublicState;
use crate::command_specs::spec::{CommandSpec, flag};
use crate::command_specs::table::COMMANDS;
use crate::runtime::Runtime;

/// Most different codes of errors that are counted. Further codes are not.
const ERROR_CODES_MAX: usize = 128;

/// Longest code of an error in bytes.
const ERROR_CODE_BYTES_MAX: usize = 32;

/// Bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ByteRates {
    pub(crate) received: f64,
    pub(crate) sent: f64,
}

/// The statistics of a server.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    loops: Mutex<Vec<Arc<LoopCounters>>>,
    errors: Mutex<BTreeMap<String, u64>>,
    pub(crate) slow_log: SlowLog,
    pub(crate) latency: LatencyMonitor,
    command_rate: Rate,
    input_rate: Rate,
    output_rate: Rate,
}

impl Statistics {
    /// Returns the counters of a new event loop.
    pub(crate) fn add_loop(&self) -> Arc<LoopCounters> {
        let counters = Arc::new(LoopCounters::new());
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counters));
        counters
    }

    /// Returns the commands a second since the last call, if that was at least a second ago.
    /// `commands` is their number.
    pub(crate) fn command_rate(&self, commands: u64) -> u64 {
        self.command_rate.sample(Instant::now(), commands).round() as u64
    }

    /// Returns the bytes a second that were received and sent since the last call, if that was at
    /// least a second ago.
    pub(crate) fn byte_rates(&self, counters: &Counters) -> ByteRates {
        let now = Instant::now();
        ByteRates {
            received: self.input_rate.sample(now, counters.bytes_read.load(Ordering::Relaxed)),
            sent: self.output_rate.sample(now, counters.bytes_written.load(Ordering::Relaxed)),
        }
    }

    /// Returns the sum of the counters of all event loops for a command.
    pub(crate) fn totals(&self, command: usize) -> CommandTotals {
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = CommandTotals::default();
        loops.iter().for_each(|counters| counters.add_to(command, &mut totals));
        totals
    }

    /// Calls a function with the name and the counters of each command that clients called.
    pub(crate) fn for_each_used(&self, mut call: impl FnMut(&'static str, &CommandTotals)) {
        for (index, spec) in COMMANDS.iter().enumerate() {
            let totals = self.totals(index);
            if !totals.is_unused() {
                call(spec.name, &totals);
            }
        }
    }

    /// Counts the code of an error reply, which is its first word.
    pub(crate) fn count_error(&self, reply: &str) {
        let code = reply.split(' ').next().unwrap_or_default();
        if code.len() > ERROR_CODE_BYTES_MAX {
            return;
        }
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else if errors.len() < ERROR_CODES_MAX {
            errors.insert(code.to_string(), 1);
        }
    }

    /// Returns the codes of errors with their numbers.
    pub(crate) fn errors(&self) -> Vec<(String, u64)> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    /// Sets the counters of commands and errors to 0: `CONFIG RESETSTAT`.
    pub(crate) fn reset(&self) {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|counters| counters.reset());
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether [`Self::note_time`] records a command of this duration.
    pub(crate) fn is_slow(&self, runtime: &Runtime, elapsed: Duration) -> bool {
        [runtime.slow_time(), runtime.latency_time()].into_iter().flatten().any(|bound| elapsed >= bound)
    }

    /// Records a command that was slow, and its latency.
    pub(crate) fn note_time(
        &self,
        runtime: &Runtime,
        spec: &CommandSpec,
        elapsed: Duration,
        client: &PublicState,
        arguments: &[&[u8]],
    ) {
        // The commands of a transaction have separate entries.
        if runtime.slow_time().is_some_and(|slow| elapsed >= slow) && spec.name != "exec" {
            self.slow_log.add(runtime.slow_log_entries(), elapsed, client, arguments);
        }
        if runtime.latency_time().is_some_and(|threshold| elapsed >= threshold) {
            let event = if spec.has(flag::FAST) { "fast-command" } else { "command" };
            self.latency.add(event, elapsed);
        }
    }
}

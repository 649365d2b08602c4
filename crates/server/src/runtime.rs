//! The options that change while the server runs.
//!
//! Event loops read them from atomics, without a lock. `CONFIG SET` changes them under a lock.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::config::{Config, OutputLimits};
use crate::keyspace_events::parse_flags;

/// The options that change while the server runs.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// All options as they are now.
    current: Mutex<Config>,
    clients_max: AtomicUsize,
    idle_timeout_seconds: AtomicU64,
    keepalive_seconds: AtomicU64,
    memory_max: AtomicU64,
    bulk_bytes_max: AtomicUsize,
    output_bytes_pause: AtomicUsize,
    reply_bytes_max: AtomicUsize,
    query_bytes_max: AtomicUsize,
    clients_memory_max: AtomicU64,
    notify_flags: AtomicU32,
    tracking_keys_max: AtomicUsize,
    slow_microseconds: AtomicI64,
    slow_log_entries: AtomicUsize,
    latency_milliseconds: AtomicUsize,
    output_limits: RwLock<OutputLimits>,
}

impl Runtime {
    pub(crate) fn new(config: &Config) -> Self {
        let runtime = Self {
            current: Mutex::new(config.clone()),
            clients_max: AtomicUsize::default(),
            idle_timeout_seconds: AtomicU64::default(),
            keepalive_seconds: AtomicU64::default(),
            memory_max: AtomicU64::default(),
            bulk_bytes_max: AtomicUsize::default(),
            output_bytes_pause: AtomicUsize::default(),
            reply_bytes_max: AtomicUsize::default(),
            query_bytes_max: AtomicUsize::default(),
            clients_memory_max: AtomicU64::default(),
            notify_flags: AtomicU32::default(),
            tracking_keys_max: AtomicUsize::default(),
            slow_microseconds: AtomicI64::default(),
            slow_log_entries: AtomicUsize::default(),
            latency_milliseconds: AtomicUsize::default(),
            output_limits: RwLock::new(config.output_limits),
        };
        runtime.publish(config);
        runtime
    }

    /// Stores the options where event loops read them.
    fn publish(&self, config: &Config) {
        self.clients_max.store(config.clients_max, Ordering::Relaxed);
        self.idle_timeout_seconds.store(config.idle_timeout.as_secs(), Ordering::Relaxed);
        self.keepalive_seconds.store(config.keepalive.as_secs(), Ordering::Relaxed);
        self.memory_max.store(config.memory_max, Ordering::Relaxed);
        self.bulk_bytes_max.store(config.bulk_bytes_max, Ordering::Relaxed);
        self.output_bytes_pause.store(config.output_bytes_pause, Ordering::Relaxed);
        self.reply_bytes_max.store(config.reply_bytes_max, Ordering::Relaxed);
        self.query_bytes_max.store(config.query_bytes_max, Ordering::Relaxed);
        self.clients_memory_max.store(config.clients_memory_max, Ordering::Relaxed);
        let flags = parse_flags(config.notify_keyspace_events.as_bytes()).unwrap_or(0);
        self.notify_flags.store(flags, Ordering::Relaxed);
        self.tracking_keys_max.store(config.tracking_keys_max, Ordering::Relaxed);
        self.slow_microseconds.store(config.slow_microseconds, Ordering::Relaxed);
        self.slow_log_entries.store(config.slow_log_entries, Ordering::Relaxed);
        self.latency_milliseconds.store(config.latency_milliseconds, Ordering::Relaxed);
        *self.output_limits.write().unwrap_or_else(PoisonError::into_inner) = config.output_limits;
    }

    /// Returns all options as they are now.
    pub(crate) fn config(&self) -> Config {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes options. All changes are made, or none.
    ///
    /// # Errors
    ///
    /// Errors of `change`.
    pub(crate) fn change<E>(&self, change: impl FnOnce(&mut Config) -> Result<(), E>) -> Result<(), E> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = current.clone();
        change(&mut changed)?;
        self.publish(&changed);
        *current = changed;
        Ok(())
    }

    pub(crate) fn clients_max(&self) -> usize {
        self.clients_max.load(Ordering::Relaxed)
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_seconds.load(Ordering::Relaxed))
    }

    pub(crate) fn keepalive(&self) -> Duration {
        Duration::from_secs(self.keepalive_seconds.load(Ordering::Relaxed))
    }

    /// Returns the bound on used bytes, or 0.
    pub(crate) fn memory_max(&self) -> u64 {
        self.memory_max.load(Ordering::Relaxed)
    }

    pub(crate) fn bulk_bytes_max(&self) -> usize {
        self.bulk_bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn reply_bytes_max(&self) -> usize {
        self.reply_bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn query_bytes_max(&self) -> usize {
        self.query_bytes_max.load(Ordering::Relaxed)
    }

    /// Returns the bound on the bytes of all clients, or `usize::MAX`.
    pub(crate) fn clients_memory_max(&self) -> usize {
        match self.clients_memory_max.load(Ordering::Relaxed) {
            0 => usize::MAX,
            max => usize::try_from(max).unwrap_or(usize::MAX),
        }
    }

    pub(crate) fn output_bytes_pause(&self) -> usize {
        self.output_bytes_pause.load(Ordering::Relaxed)
    }

    pub(crate) fn notify_flags(&self) -> u32 {
        self.notify_flags.load(Ordering::Relaxed)
    }

    /// Returns the maximum keys that are tracked for caches. 0 means no bound.
    pub(crate) fn tracking_keys_max(&self) -> usize {
        match self.tracking_keys_max.load(Ordering::Relaxed) {
            0 => usize::MAX,
            max => max,
        }
    }

    /// Returns the time from which a command is slow.
    pub(crate) fn slow_time(&self) -> Option<Duration> {
        u64::try_from(self.slow_microseconds.load(Ordering::Relaxed)).ok().map(Duration::from_micros)
    }

    pub(crate) fn slow_log_entries(&self) -> usize {
        self.slow_log_entries.load(Ordering::Relaxed)
    }

    /// Returns the time from which latency is recorded.
    pub(crate) fn latency_time(&self) -> Option<Duration> {
        let milliseconds = self.latency_milliseconds.load(Ordering::Relaxed);
        (milliseconds > 0).then(|| Duration::from_millis(milliseconds as u64))
    }

    pub(crate) fn output_limits(&self) -> OutputLimits {
        *self.output_limits.read().unwrap_or_else(PoisonError::into_inner)
    }
}

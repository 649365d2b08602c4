//! The options that change while the server runs.
//!
//! Event loops read them from atomics, without a lock. `CONFIG SET` changes them under a lock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::config::Config;

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
    }

    /// Returns all options as they are now.
    pub(crate) fn config(&self) -> Config {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes options. All changes are made, or none.
    ///
    /// # Errors
    ///
    /// Those of `change`.
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
}

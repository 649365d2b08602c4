//! The configuration of messages, logs and backups, and the part of it that `CONFIG SET` changes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use crate::messaging::notify::parse_flags;

/// A bound on the unsent bytes of a client. 0 means no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// A client with more unsent bytes is closed at once.
    pub hard_bytes: usize,
    /// A client that has more unsent bytes for longer than `soft_time` is closed.
    pub soft_bytes: usize,
    /// See `soft_bytes`.
    pub soft_time: Duration,
}

/// Bounds on the unsent bytes of clients by their class. Redis' name: `client-output-buffer-limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    /// Clients that only send commands.
    pub normal: OutputLimit,
    /// Clients that read the commands of others by `MONITOR`. Redis' class `replica`.
    pub replica: OutputLimit,
    /// Clients that subscribe.
    pub pubsub: OutputLimit,
}

/// How the server sends messages, keeps logs and makes backups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagingConfig {
    /// Bounds on unsent bytes. Redis' name: `client-output-buffer-limit`.
    pub output_limits: OutputLimits,
    /// Classes of keyspace events as letters of `KEA$lszhxetdgmn`. Redis' name:
    /// `notify-keyspace-events`.
    pub notify_keyspace_events: String,
    /// Most keys that the server remembers for caches. Redis' name: `tracking-table-max-keys`.
    pub tracking_keys_max: usize,
    /// Microseconds from which a command enters the slow log. Negative: none enters. Redis' name:
    /// `slowlog-log-slower-than`.
    pub slow_microseconds: i64,
    /// Most entries of the slow log. Redis' name: `slowlog-max-len`.
    pub slow_log_entries: usize,
    /// Milliseconds from which latency is recorded. 0: none is recorded. Redis' name:
    /// `latency-monitor-threshold`.
    pub latency_milliseconds: usize,
    /// Directory in which `SAVE` and `BGSAVE` create backups. Redis' name: `dir`.
    pub backup_dir: Option<PathBuf>,
}

impl Default for OutputLimits {
    fn default() -> Self {
        let of_mebibytes = |hard: usize, soft: usize| OutputLimit {
            hard_bytes: hard << 20,
            soft_bytes: soft << 20,
            soft_time: Duration::from_secs(60),
        };
        Self { normal: OutputLimit::default(), replica: of_mebibytes(256, 64), pubsub: of_mebibytes(32, 8) }
    }
}

impl Default for MessagingConfig {
    fn default() -> Self {
        Self {
            output_limits: OutputLimits::default(),
            notify_keyspace_events: String::new(),
            tracking_keys_max: 1_000_000,
            slow_microseconds: 10_000,
            slow_log_entries: 128,
            latency_milliseconds: 0,
            backup_dir: None,
        }
    }
}

/// The values that `CONFIG SET` changes while the server runs.
#[derive(Debug)]
pub(crate) struct Settings {
    notify_flags: AtomicU32,
    tracking_keys_max: AtomicUsize,
    slow_microseconds: AtomicI64,
    slow_log_entries: AtomicUsize,
    latency_milliseconds: AtomicUsize,
    output_limits: RwLock<OutputLimits>,
    backup_dir: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn new(config: &MessagingConfig) -> Self {
        Self {
            notify_flags: AtomicU32::new(parse_flags(config.notify_keyspace_events.as_bytes()).unwrap_or(0)),
            tracking_keys_max: AtomicUsize::new(config.tracking_keys_max),
            slow_microseconds: AtomicI64::new(config.slow_microseconds),
            slow_log_entries: AtomicUsize::new(config.slow_log_entries),
            latency_milliseconds: AtomicUsize::new(config.latency_milliseconds),
            output_limits: RwLock::new(config.output_limits),
            backup_dir: config.backup_dir.clone(),
        }
    }

    pub(crate) fn notify_flags(&self) -> u32 {
        self.notify_flags.load(Ordering::Relaxed)
    }

    /// Returns the most keys that are remembered for caches. 0 means no bound.
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

    pub(crate) fn backup_dir(&self) -> Option<&PathBuf> {
        self.backup_dir.as_ref()
    }

    /// Takes the values of a changed configuration.
    pub(crate) fn apply(&self, config: &MessagingConfig) {
        let flags = parse_flags(config.notify_keyspace_events.as_bytes()).unwrap_or(0);
        self.notify_flags.store(flags, Ordering::Relaxed);
        self.tracking_keys_max.store(config.tracking_keys_max, Ordering::Relaxed);
        self.slow_microseconds.store(config.slow_microseconds, Ordering::Relaxed);
        self.slow_log_entries.store(config.slow_log_entries, Ordering::Relaxed);
        self.latency_milliseconds.store(config.latency_milliseconds, Ordering::Relaxed);
        *self.output_limits.write().unwrap_or_else(PoisonError::into_inner) = config.output_limits;
    }
}

//! What the server knows of one client.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestore::Expiry;
use lodestore_wire::Protocol;

use crate::data::stripes::{DatabaseKey, Stripes};

/// Number of a client. Numbers are never used again.
pub(crate) type ClientId = u64;

/// Which replies a client wants: `CLIENT REPLY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    Off,
    /// No reply to the next command.
    SkipNext,
    /// No reply to this command.
    Skip,
}

/// A command that waits for `EXEC`.
#[derive(Debug)]
pub(crate) struct QueuedCommand {
    /// Name and arguments.
    pub(crate) arguments: Vec<Vec<u8>>,
}

/// The commands since `MULTI`.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) queue: Vec<QueuedCommand>,
    /// Whether a command was refused, so that `EXEC` must fail.
    pub(crate) is_failed: bool,
}

/// What other clients may see of a client, by `CLIENT LIST`.
#[derive(Debug)]
pub(crate) struct PublicState {
    /// Number of the client.
    pub(crate) id: ClientId,
    /// Address and port, or path of the socket.
    pub(crate) address: String,
    /// Address of the server's end.
    pub(crate) local_address: String,
    /// When the client connected.
    pub(crate) connected: Instant,
    /// Milliseconds from `connected` to the last command.
    pub(crate) last_command_ms: AtomicU64,
    /// Whether the connection must be closed.
    pub(crate) is_killed: AtomicBool,
    /// What commands change.
    pub(crate) details: std::sync::Mutex<Details>,
}

/// The part of [`PublicState`] that commands change.
#[derive(Debug, Default, Clone)]
pub(crate) struct Details {
    pub(crate) name: String,
    pub(crate) library_name: String,
    pub(crate) library_version: String,
    pub(crate) user: String,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    pub(crate) last_command: String,
    pub(crate) is_in_transaction: bool,
    pub(crate) watched_count: usize,
}

impl PublicState {
    /// Returns how long the client has sent nothing.
    pub(crate) fn idle(&self) -> Duration {
        self.connected.elapsed().saturating_sub(Duration::from_millis(self.last_command_ms.load(Ordering::Relaxed)))
    }

    /// Calls `change` with the details.
    pub(crate) fn with_details<T>(&self, change: impl FnOnce(&mut Details) -> T) -> T {
        change(&mut self.details.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// The state of one client, owned by its event loop.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) public: Arc<PublicState>,
    pub(crate) protocol: Protocol,
    pub(crate) database: usize,
    pub(crate) is_authenticated: bool,
    pub(crate) transaction: Option<Transaction>,
    /// The keys that `WATCH` named, with the expiry that each had. A key that expires has changed.
    pub(crate) watched: HashMap<DatabaseKey, Option<Expiry>>,
    /// Set by each change of a watched key.
    pub(crate) watch_flag: Arc<AtomicBool>,
    pub(crate) reply_mode: ReplyMode,
    /// Whether the connection is closed once its replies are sent.
    pub(crate) closes: bool,
}

impl Session {
    pub(crate) fn new(public: Arc<PublicState>, is_authenticated: bool) -> Self {
        Self {
            public,
            protocol: Protocol::Resp2,
            database: 0,
            is_authenticated,
            transaction: None,
            watched: HashMap::new(),
            watch_flag: Arc::default(),
            reply_mode: ReplyMode::On,
            closes: false,
        }
    }

    /// Forgets the watched keys. The caller holds no stripe.
    pub(crate) fn unwatch(&mut self, stripes: &Stripes) {
        for (key, _) in self.watched.drain() {
            stripes.unwatch(&key, &self.watch_flag);
        }
        self.watch_flag = Arc::default();
    }

    /// Whether a watched key changed or expired.
    pub(crate) fn is_watch_broken(&self) -> bool {
        self.watch_flag.load(Ordering::SeqCst)
            || self.watched.values().any(|expiry| expiry.is_some_and(Expiry::is_past))
    }
}

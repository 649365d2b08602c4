//! The state of one client.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lodestore::Expiry;
use lodestore_wire::Protocol;

use crate::acl::Acl;
use crate::acl::user::User;
use crate::client::PublicState;
use crate::data::stripes::{DatabaseKey, Stripes};
use crate::messaging::client::ClientMessaging;
use crate::messaging::{Hub, effects};
use crate::runtime::Runtime;
use crate::statistics::commands::LoopCounters;
use crate::statistics::counters::Lookups;

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

impl ReplyMode {
    /// Whether the command that runs gets no reply.
    pub(crate) fn is_silent(self) -> bool {
        matches!(self, Self::Off | Self::Skip)
    }
}

/// A command that waits for `EXEC`.
#[derive(Debug)]
pub(crate) struct QueuedCommand {
    /// Name and arguments.
    pub(crate) arguments: Vec<Vec<u8>>,
}

/// Bytes that a queued command uses, and each of its arguments, in addition to their text.
const QUEUED_OVERHEAD_BYTES: usize = 48;

/// Bytes that a watched key uses in addition to its name: in the session and in the stripe.
const WATCHED_OVERHEAD_BYTES: usize = 320;

impl QueuedCommand {
    /// Returns the bytes that the command uses.
    pub(crate) fn bytes(&self) -> usize {
        let arguments = self.arguments.iter().map(|argument| argument.len() + QUEUED_OVERHEAD_BYTES);
        QUEUED_OVERHEAD_BYTES + arguments.sum::<usize>()
    }
}

/// The commands since `MULTI`.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) queue: Vec<QueuedCommand>,
    /// Bytes of the queue.
    pub(crate) bytes: usize,
    /// Whether a command was refused, so that `EXEC` must fail.
    pub(crate) is_failed: bool,
}

/// The state of one client, owned by its event loop.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) public: Arc<PublicState>,
    pub(crate) protocol: Protocol,
    pub(crate) database: usize,
    /// Whether the client may run commands.
    pub(crate) is_authenticated: bool,
    /// Whether the client sent a password, or needed none when it connected. A client that needs
    /// none only now must send one once the default user has a password again.
    keeps_user: bool,
    /// The user as it was at `acl_generation`.
    pub(crate) user: Arc<User>,
    acl_generation: u64,
    /// Whether the user may do everything, so that no command is checked.
    is_unrestricted: bool,
    pub(crate) transaction: Option<Transaction>,
    /// The keys that `WATCH` named, with the expiry that each had. A key that expires has changed.
    pub(crate) watched: HashMap<DatabaseKey, Option<Expiry>>,
    /// Bytes of the names of the watched keys.
    pub(crate) watched_name_bytes: usize,
    /// Set by each change of a watched key.
    pub(crate) watch_flag: Arc<AtomicBool>,
    pub(crate) reply_mode: ReplyMode,
    /// The messages that the client receives in addition to replies.
    pub(crate) messaging: ClientMessaging,
    /// The counters of the client's event loop.
    pub(crate) counters: Arc<LoopCounters>,
    /// Whether `maxmemory-clients` does not close the client: `CLIENT NO-EVICT`.
    pub(crate) is_kept: bool,
    /// Whether the connection is closed once its replies are sent.
    pub(crate) closes: bool,
    /// The lookups of the running command.
    pub(crate) lookups: Lookups,
    /// When the client's last timed command ended.
    pub(crate) last_command_end: Instant,
}

impl Session {
    /// Returns the session of a new client, with the default user.
    pub(crate) fn new(public: Arc<PublicState>, acl: &Acl, counters: Arc<LoopCounters>) -> Self {
        let acl_generation = acl.generation();
        let user = acl.default_user();
        Self {
            public,
            protocol: Protocol::Resp2,
            database: 0,
            is_authenticated: user.is_open(),
            keeps_user: user.is_open(),
            is_unrestricted: user.is_unrestricted(),
            user,
            acl_generation,
            transaction: None,
            watched: HashMap::new(),
            watched_name_bytes: 0,
            watch_flag: Arc::default(),
            reply_mode: ReplyMode::On,
            messaging: ClientMessaging::default(),
            counters,
            is_kept: false,
            closes: false,
            lookups: Lookups::default(),
            last_command_end: Instant::now(),
        }
    }

    /// Notes that the client sent the right password, or makes it a client without one.
    pub(crate) fn set_authenticated(&mut self, is_authenticated: bool) {
        (self.is_authenticated, self.keeps_user) = (is_authenticated, is_authenticated);
    }

    /// Makes the client another user.
    pub(crate) fn set_user(&mut self, user: Arc<User>) {
        self.public.with_details(|details| {
            details.user.clone_from(&user.name);
            details.user_identity = user.identity;
        });
        self.is_unrestricted = user.is_unrestricted();
        self.user = user;
    }

    /// Whether the client runs no further command.
    pub(crate) fn has_ended(&self) -> bool {
        self.closes || self.public.is_killed()
    }

    /// Whether the user may do everything, and no user has changed since the last command.
    pub(crate) fn is_free_of_checks(&self, acl: &Acl) -> bool {
        self.is_unrestricted && self.has_current_rules(acl)
    }

    /// Whether the user may do everything. [`Self::refresh_user`] comes before.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// Whether no user has changed since the last command.
    pub(crate) fn has_current_rules(&self, acl: &Acl) -> bool {
        self.acl_generation == acl.generation()
    }

    /// Reads the present rules of the user. Closes the connection of a user that no longer exists.
    pub(crate) fn refresh_user(&mut self, acl: &Acl) {
        let generation = acl.generation();
        if generation == self.acl_generation {
            return;
        }
        self.acl_generation = generation;
        match acl.user(self.user.name.as_bytes()).filter(|user| user.identity == self.user.identity) {
            Some(user) => {
                self.is_authenticated = self.keeps_user || (user.identity == 0 && user.is_open());
                self.set_user(user);
            }
            None => self.closes = true,
        }
    }

    /// Forgets the watched keys. The caller holds no stripe.
    pub(crate) fn unwatch(&mut self, stripes: &Stripes) {
        for (key, _) in self.watched.drain() {
            stripes.unwatch(&key, &self.watch_flag);
        }
        self.watched = HashMap::new();
        self.watched_name_bytes = 0;
        self.watch_flag = Arc::default();
    }

    /// Returns the bytes of the transaction's queue, of the watched keys and of the subscriptions.
    pub(crate) fn state_bytes(&self) -> usize {
        let queue_bytes = self.transaction.as_ref().map_or(0, |transaction| transaction.bytes);
        // A name is in the session and in the stripe.
        let watched_bytes = 2 * self.watched_name_bytes + WATCHED_OVERHEAD_BYTES * self.watched.len();
        queue_bytes + watched_bytes + self.messaging.bytes()
    }

    /// Shows the queue of the transaction to `CLIENT LIST`.
    pub(crate) fn show_transaction(&self) {
        let (count, bytes) =
            self.transaction.as_ref().map_or((0, 0), |transaction| (transaction.queue.len(), transaction.bytes));
        self.public.figures.queued_commands.store(count, Ordering::Relaxed);
        self.public.figures.queue_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether the client may run only the commands of subscribers: those of RESP2 that subscribe.
    pub(crate) fn is_restricted_subscriber(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.messaging.is_subscriber()
    }

    /// Ends subscriptions, tracking and `MONITOR`.
    pub(crate) fn leave_hub(&mut self, hub: &Hub, runtime: &Runtime) {
        let id = self.public.id;
        hub.channels.unsubscribe_all(&mut self.messaging, id);
        self.messaging.prefix_bytes = 0;
        if self.messaging.tracking.take().is_some() {
            effects::end_tracking(hub, runtime, id);
        }
        if std::mem::take(&mut self.messaging.is_monitor) {
            hub.monitors.remove(id);
        }
        self.messaging.is_caching_named = false;
        self.public.with_details(|details| {
            (details.channel_count, details.pattern_count, details.shard_channel_count) = (0, 0, 0);
            (details.is_monitor, details.is_tracking, details.redirect) = (false, false, 0);
        });
    }

    /// Whether a watched key changed or expired.
    pub(crate) fn is_watch_broken(&self) -> bool {
        self.watch_flag.load(Ordering::SeqCst)
            || self.watched.values().any(|expiry| expiry.is_some_and(Expiry::is_past))
    }
}

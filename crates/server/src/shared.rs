//! The shared state of all event loops.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use lodestore::Db;

use crate::acl::Acl;
use crate::client::{ClientFigures, ClientId, PublicState, Route};
use crate::config::Config;
use crate::data::census::Census;
use crate::data::cursors::Cursors;
use crate::data::databases::Databases;
use crate::data::orphans::{OrphanSweeps, Sweep};
use crate::data::stripes::Stripes;
use crate::keyspace_events::{class, wants};
use crate::memory::MemoryBound;
use crate::memory::clients::ClientMemory;
use crate::messaging::{Hub, effects};
use crate::pause::{Pause, PauseMode};
use crate::runtime::Runtime;
use crate::saves::Saves;
use crate::statistics::Statistics;
use crate::statistics::counters::Counters;
use crate::store_events::StoreEvents;

/// The shared state of all event loops.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) databases: Databases,
    pub(crate) stripes: Stripes,
    /// The configuration at the start.
    pub(crate) config: Config,
    pub(crate) acl: Acl,
    /// The options that change while the server runs.
    pub(crate) runtime: Runtime,
    pub(crate) memory: MemoryBound,
    pub(crate) pause: Pause,
    pub(crate) counters: Counters,
    pub(crate) cursors: Cursors,
    pub(crate) census: Census,
    pub(crate) orphan_sweeps: OrphanSweeps,
    /// The events of the store, if the program forwards them.
    pub(crate) store_events: OnceLock<StoreEvents>,
    /// Time from the start of the program to the first moment at which it served.
    pub(crate) served_after: OnceLock<Duration>,
    pub(crate) hub: Hub,
    pub(crate) client_memory: ClientMemory,
    pub(crate) statistics: Statistics,
    pub(crate) saves: Arc<Saves>,
    pub(crate) started: Instant,
    pub(crate) started_unix_seconds: u64,
    /// A random text that names this run of the server.
    pub(crate) run_id: String,
    /// The port of TCP that clients connect to, or 0.
    pub(crate) port: u16,
    clients: Mutex<BTreeMap<ClientId, Arc<PublicState>>>,
    next_client: AtomicU64,
    client_count: AtomicUsize,
    is_stopping: AtomicBool,
    stopping_since: OnceLock<Instant>,
}

impl Shared {
    pub(crate) fn new(databases: Databases, config: Config, acl: Acl, port: u16) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let started_unix_seconds = now.map_or(0, |since| since.as_secs());
        Self {
            databases,
            stripes: Stripes::new(),
            runtime: Runtime::new(&config),
            memory: MemoryBound::new(),
            pause: Pause::default(),
            config,
            acl,
            counters: Counters::default(),
            cursors: Cursors::new(),
            census: Census::default(),
            orphan_sweeps: OrphanSweeps::default(),
            store_events: OnceLock::new(),
            served_after: OnceLock::new(),
            hub: Hub::default(),
            client_memory: ClientMemory::default(),
            statistics: Statistics::default(),
            saves: Arc::new(Saves::new(started_unix_seconds)),
            started: Instant::now(),
            started_unix_seconds,
            run_id: random_id(),
            port,
            clients: Mutex::default(),
            next_client: AtomicU64::new(1),
            client_count: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            stopping_since: OnceLock::new(),
        }
    }

    /// Returns the store.
    pub(crate) fn db(&self) -> &Db {
        self.databases.db()
    }

    /// Registers a client. Returns `None` if `maxclients` is reached.
    pub(crate) fn add_client(&self, address: String, local_address: String) -> Option<Arc<PublicState>> {
        let count = self.client_count.fetch_add(1, Ordering::Relaxed);
        if count >= self.runtime.clients_max() {
            self.client_count.fetch_sub(1, Ordering::Relaxed);
            self.counters.refused_connections.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        let public = Arc::new(PublicState {
            id: self.next_client.fetch_add(1, Ordering::Relaxed),
            address,
            local_address,
            connected: Instant::now(),
            last_activity_ms: AtomicU64::new(0),
            is_killed: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            route: Route::default(),
            figures: ClientFigures::default(),
            details: Mutex::default(),
        });
        self.clients().insert(public.id, Arc::clone(&public));
        Some(public)
    }

    /// Forgets a client.
    pub(crate) fn remove_client(&self, id: ClientId) {
        let removed = self.clients().remove(&id);
        if let Some(client) = removed {
            client.is_closed.store(true, Ordering::SeqCst);
            self.client_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of clients.
    pub(crate) fn client_count(&self) -> usize {
        self.client_count.load(Ordering::Relaxed)
    }

    /// Returns all clients in the order in which they connected.
    pub(crate) fn all_clients(&self) -> Vec<Arc<PublicState>> {
        self.clients().values().cloned().collect()
    }

    /// Returns a client.
    pub(crate) fn client(&self, id: ClientId) -> Option<Arc<PublicState>> {
        self.clients().get(&id).cloned()
    }

    /// Whether reads of absent keys or single commands are reported, so that each `GET` runs alone.
    pub(crate) fn reads_are_observed(&self) -> bool {
        self.hub.monitors.is_active() || wants(self.runtime.notify_flags(), class::MISS)
    }

    /// Returns which commands a pause holds now.
    pub(crate) fn pause_mode(&self) -> Option<PauseMode> {
        self.pause.mode()
    }

    /// Asks all event loops to stop. They stop at their next tick. A present pause is kept, so that
    /// no held command runs.
    pub(crate) fn stop(&self) {
        self.pause.keep();
        self.stopping_since.get_or_init(Instant::now);
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    /// Returns the time of the stop request.
    pub(crate) fn stopping_since(&self) -> Option<Instant> {
        self.stopping_since.get().copied()
    }

    /// Whether the server stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Reports keys that have expired since the last sweep. The caller holds no stripe.
    pub(crate) fn sweep_expiries(&self) {
        effects::sweep(&self.hub, &self.runtime, &self.databases, &self.stripes);
    }

    /// Returns the flag that is set when the server stops.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.is_stopping
    }

    /// Returns a sweep of the orphans of all databases. It ends early if the server stops.
    pub(crate) fn orphan_sweep(&self) -> Sweep<'_> {
        Sweep { databases: &self.databases, stripes: &self.stripes, is_stopping: &self.is_stopping }
    }

    fn clients(&self) -> std::sync::MutexGuard<'_, BTreeMap<ClientId, Arc<PublicState>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns 40 hexadecimal digits. The standard library seeds its hashers randomly.
fn random_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let words = (0..3).map(|index| RandomState::new().hash_one(index));
    let digits: String = words.map(|word| format!("{word:016x}")).collect();
    digits[..40].into()
}

//! An open store with its collector thread, and their end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestore_contract::threads::start_thread;
use lodestore_contract::{PoisonReason, Result};
use lodestore_fluidkv::FluidKv;
use lodestore_media::{Pool, own_work};

use crate::gc_rate::GcRateLimit;
use crate::values::{Values, lock};

/// Sleep of the collector thread when idle.
const IDLE_PAUSE: Duration = Duration::from_millis(50);

/// The store with its threads, which scans and snapshots hold as well.
pub(crate) struct Running {
    pub(crate) index: Arc<FluidKv>,
    pub(crate) values: Arc<Values>,
    collector: Mutex<Option<JoinHandle<()>>>,
    stopping: Arc<Stopping>,
}

#[derive(Default)]
struct Stopping {
    stop: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Stopping {
    /// Waits for `time`, or less if the store is being closed.
    fn wait(&self, time: Duration) {
        let guard = lock(&self.lock);
        drop(self.changed.wait_timeout_while(guard, time, |()| !self.stop.load(Ordering::Acquire)));
    }
}

/// Poisons the store if its background thread panics: no thread would finish the collection, or
/// start another.
struct PoisonOnPanic<'a>(&'a Pool);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(PoisonReason::Panic, "a collection panicked");
        }
    }
}

/// Collects due and cheap garbage and separates late values, at `rate` bytes a second, until the
/// store is closed.
fn collect_in_background(values: &Values, rate: u64, stopping: &Stopping) {
    let _poison_on_panic = PoisonOnPanic(&values.pool);
    let mut limit = GcRateLimit::new(rate, Instant::now());
    while !stopping.stop.load(Ordering::Acquire) {
        let found = values.run_background_step();
        let paced = limit.wait(values.counts.collected_bytes(), Instant::now());
        stopping.wait(if found { paced } else { paced.max(IDLE_PAUSE) });
    }
}

impl Running {
    /// Starts the collector thread, unless `workers` is 0. `rate` limits it, in bytes per second.
    ///
    /// # Errors
    /// [`Error::ThreadRefused`](lodestore_contract::Error::ThreadRefused).
    pub(crate) fn start(index: Arc<FluidKv>, values: Arc<Values>, (workers, rate): (usize, u64)) -> Result<Arc<Self>> {
        let running = Arc::new(Self { index, values, collector: Mutex::new(None), stopping: Arc::default() });
        if workers > 0 {
            let (values, stopping) = (Arc::clone(&running.values), Arc::clone(&running.stopping));
            let collect = move || own_work(|| collect_in_background(&values, rate, &stopping));
            *lock(&running.collector) = Some(start_thread("lodestore-hash-collect", collect)?);
        }
        Ok(running)
    }

    /// Ends the collector thread.
    pub(crate) fn stop(&self) {
        {
            let _guard = lock(&self.stopping.lock);
            self.stopping.stop.store(true, Ordering::Release);
        }
        self.stopping.changed.notify_all();
        if let Some(thread) = lock(&self.collector).take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.values.pool.is_foreign() {
            // A forked process has none of these threads, and the index drops nothing there.
            std::mem::forget(self.collector.get_mut().map(Option::take));
            std::mem::forget((Arc::clone(&self.index), Arc::clone(&self.values)));
            return self.index.halt();
        }
        self.stop();
        // The index's workers use it while they separate values.
        self.index.halt();
    }
}

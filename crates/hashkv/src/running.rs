//! An open store with its collector thread, and their end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lodestore_contract::Result;
use lodestore_contract::threads::ThreadGroup;
use lodestore_fluidkv::FluidKv;
use lodestore_media::{PoisonOnPanic, own_work};

use crate::gc_rate::GcRateLimit;
use crate::values::{Values, lock};

/// Sleep of the collector thread when idle.
const IDLE_PAUSE: Duration = Duration::from_millis(50);

/// The store with its threads, which scans and snapshots hold as well.
pub(crate) struct Running {
    pub(crate) index: Arc<FluidKv>,
    pub(crate) values: Arc<Values>,
    collector: ThreadGroup,
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

/// Collects due and cheap garbage and separates late values, at `rate` bytes a second, until the
/// store is closed.
fn collect_in_background(values: &Values, rate: u64, stopping: &Stopping) {
    let _poison_on_panic = PoisonOnPanic::new(&values.pool, "a collection panicked");
    let mut limit = GcRateLimit::new(rate, Instant::now());
    while !stopping.stop.load(Ordering::Acquire) {
        let found = values.run_background_step();
        let paced = limit.wait(values.counts.collected_bytes(), Instant::now());
        stopping.wait(if found { paced } else { paced.max(IDLE_PAUSE) });
    }
}

impl Running {
    /// Starts the collector thread. `rate` limits it, in bytes per second. `None`: no thread.
    ///
    /// # Errors
    /// [`Error::ThreadRefused`](lodestore_contract::Error::ThreadRefused).
    pub(crate) fn start(index: Arc<FluidKv>, values: Arc<Values>, rate: Option<u64>) -> Result<Arc<Self>> {
        let running = Arc::new(Self { index, values, collector: ThreadGroup::default(), stopping: Arc::default() });
        if let Some(rate) = rate {
            let (values, stopping) = (Arc::clone(&running.values), Arc::clone(&running.stopping));
            let collect = move || own_work(|| collect_in_background(&values, rate, &stopping));
            running.collector.start("lodestore-hash-collect", collect)?;
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
        self.collector.join();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.values.pool.is_foreign() {
            // A forked process does not have the thread, and the index drops nothing there.
            std::mem::forget((Arc::clone(&self.index), Arc::clone(&self.values)));
            return self.index.halt();
        }
        self.stop();
        // The index's workers use it while they separate values.
        self.index.halt();
    }
}

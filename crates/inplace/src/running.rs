//! The background threads of a store, from open to close.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lodestore_contract::scrub::{self, Scrub, Scrubbed};
use lodestore_contract::threads::{ThreadGroup, lock};
use lodestore_contract::{Error, Event, Finding, FoundBy, PoisonReason, Result, VerifyReport};
use lodestore_media::own_work;

use crate::engine::Engine;

/// An open store with its background threads. Dropped without [`Running::close`], it leaves the
/// medium as after a crash.
pub struct Running<E: Engine> {
    /// The store.
    pub inner: Arc<E>,
    threads: ThreadGroup,
    /// Held by a closing thread: a concurrent close returns only after the store is closed.
    closing: Mutex<()>,
}

/// The background work after an open.
#[derive(Debug, Clone, Copy)]
pub struct BackgroundPlan {
    /// The last stop was clean.
    pub clean: bool,
    /// Recovery may trust the data saved by the last stop.
    pub trusted: bool,
    /// Recovery gets its own thread; otherwise it runs before the open returns.
    pub recovers: bool,
    /// Milliseconds between sweeps of expired keys; 0: none.
    pub sweep_ms: u64,
}

impl<E: Engine> Running<E> {
    /// Starts the background threads.
    ///
    /// If the recovery thread cannot be started, recovery runs before this returns.
    ///
    /// # Errors
    /// [`Error::ThreadRefused`] if the sweep's thread cannot be started; the error of recovery, if
    /// it runs here.
    pub fn start(inner: E, plan: BackgroundPlan) -> Result<Self> {
        let running = Self { inner: Arc::new(inner), threads: ThreadGroup::default(), closing: Mutex::new(()) };
        let inner = &running.inner;
        if plan.sweep_ms > 0 {
            let shared = Arc::clone(inner);
            let sweep = move || own_work(|| sweep_until_closed(&*shared, plan.sweep_ms));
            // The drop of `running` waits for a rebuild, which can no longer begin.
            running.threads.start("lodestore-sweep", sweep).inspect_err(|error| abandon_recovery(&**inner, error))?;
        }
        let ready_after = inner.recovery.ready();
        inner.report(&Event::Opened { clean: plan.clean, ready_after });
        let shared = Arc::clone(inner);
        let recover = move || own_work(|| run_recovery(&*shared, plan.trusted));
        if !plan.recovers || running.threads.start("lodestore-recovery", recover).is_err() {
            own_work(|| run_recovery(&**inner, plan.trusted));
            inner.recovery.wait_done()?;
        }
        if inner.scrub.is_on() {
            let shared = Arc::clone(inner);
            // Each read checks the data that it returns: a store works without its scrub.
            let _ = running.threads.start("lodestore-scrub", move || own_work(|| scrub::run(&ScrubTarget(&*shared))));
        }
        Ok(running)
    }

    /// Starts a scrub pass without its pause, for tests.
    #[doc(hidden)]
    pub fn scrub_now(&self) {
        self.inner.scrub.set_due();
        self.threads.unpark();
    }

    /// Stops operations and threads. Returns whether this call was the first.
    fn stop(&self) -> bool {
        let first = self.inner.open.close();
        self.inner.recovery.cancel();
        self.threads.join();
        if first {
            self.inner.pool.epochs().synchronize();
            self.inner.halt();
        }
        first
    }

    /// Drops nothing in a forked process that inherited the store. The threads do not exist there,
    /// and memory may be in a state that only they would complete.
    #[cold]
    fn leave_to_parent(&self) {
        self.inner.pool.close_inherited_lock();
        std::mem::forget(Arc::clone(&self.inner));
    }

    /// Closes the store: the next open need not recover.
    ///
    /// # Errors
    /// If something could not be saved, the store is left as after a crash, and nothing is lost.
    /// [`Error::ForeignProcess`]: nothing is changed.
    pub fn close(&self) -> Result<()> {
        let inner = &self.inner;
        inner.open.check_process()?;
        // A stop during recovery would leave the store unclean without need: recovery ends soon.
        let _ = inner.recovery.wait_done();
        let _closing = lock(&self.closing);
        if !self.stop() {
            return Ok(());
        }
        // A poisoned store, or one with a failed recovery, is left as after a crash: nothing is
        // lost.
        let sound = inner.pool.check();
        let whole = inner.recovery.is_done() && sound.is_ok() && inner.is_whole();
        let saved = if whole { inner.save() } else { Ok(()) };
        if whole {
            inner.pool.epochs().reclaim(&inner.pool);
        }
        let closed = inner.pool.close(whole && saved.is_ok());
        sound.and(saved).and(closed)
    }
}

impl<E: Engine> Drop for Running<E> {
    fn drop(&mut self) {
        if self.inner.open.is_foreign() {
            return self.leave_to_parent();
        }
        if self.stop() {
            // As after a crash: the clean flag stays unset.
            let _ = self.inner.pool.close(false);
        }
    }
}

/// Runs an engine's recovery to its end and reports its outcome. Never panics.
fn run_recovery<E: Engine>(engine: &E, trusted: bool) {
    let recovery = &engine.recovery;
    match catch_unwind(AssertUnwindSafe(|| engine.rebuild(trusted))) {
        Ok(Ok(())) => {
            let took = recovery.set_done();
            let state = recovery.state();
            engine.report(&Event::Recovered { keys: state.keys, corrupt: state.corrupt, took });
        }
        Ok(Err(error)) => fail_recovery(engine, &error.to_string()),
        Err(_) => fail_recovery(engine, "recovery panicked"),
    }
}

/// Ends a recovery that will not begin: no thread must wait for it.
fn abandon_recovery<E: Engine>(engine: &E, cause: &Error) {
    engine.recovery.cancel();
    fail_recovery(engine, &cause.to_string());
}

/// Releases the threads that wait for a failed recovery, and poisons the store unless it is being
/// closed.
fn fail_recovery<E: Engine>(engine: &E, cause: &str) {
    let wanted = engine.recovery.check_wanted().is_ok();
    engine.abandon(cause);
    // Before the owner's sink is called: if the sink panics, no thread must be left waiting.
    engine.recovery.set_failed(cause);
    if wanted {
        engine.pool.poison(PoisonReason::Recovery, cause);
    }
}

/// The store as a target of its scrub.
struct ScrubTarget<'a, E>(&'a E);

impl<E: Engine> Scrubbed for ScrubTarget<'_, E> {
    fn scrub(&self) -> &Scrub {
        &self.0.scrub
    }

    fn is_open(&self) -> bool {
        self.0.open.is_open()
    }

    fn verify_pieces(&self, piece: &mut dyn FnMut(VerifyReport) -> bool) -> bool {
        // Before recovery has ended, unreconciled state is no damage.
        self.0.recovery.is_done() && self.0.verify_pieces(piece)
    }

    fn report_finding(&self, finding: &Finding) {
        let (place, what) = (finding.place.clone(), finding.what.clone());
        self.0.report(&Event::Corruption { found_by: FoundBy::Scrub, place, what });
    }
}

/// Sweeps at intervals until the store is closed.
fn sweep_until_closed<E: Engine>(engine: &E, sweep_ms: u64) {
    let pause = Duration::from_millis(sweep_ms);
    while engine.open.is_open() {
        std::thread::park_timeout(pause);
        if engine.recovery.is_done() {
            // A failed sweep is ignored: callers get the same error and report it.
            let _ = engine.sweep();
        }
    }
}

//! The backend threads: who works on which queue, how they sleep, and how their number follows the load.
//!
//! Thread `t` of `n` active ones looks after the queues `q` with `q mod n == t`, and takes from others what is left
//! lying. Which thread takes a queue never matters for the order of its operations, since a queue has one consumer
//! at a time; so threads come and go freely.
//!
//! # Sleep
//! The paper's threads poll. Here a core is worth more than that: a thread that found little takes a nap of
//! [`NAP`], so that it finds a batch next time, with the writers' lines moved once and not for each operation. It
//! is woken before when a queue is a quarter full (a writer looks every 64th push) and by a drain that finds much
//! to do. The first thread, after [`NAPS_EMPTY`] naps that found nothing, sleeps until a push; others sleep until a
//! queue of theirs is a quarter full or they are made active.
//!
//! # Invariants
//! * **No push is slept over.** The first thread stores `asleep`, then reads all tails; a writer claims a tail,
//!   then reads `asleep`: all sequentially consistent, so one of them sees the other.
//! * **No wake-up is lost.** A wake-up is an unpark, which outlasts its moment; state is read again after every park.
//! * Threads end when `stopping` is set, which is never unset; nobody is started after.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use lodestore_contract::Result;
use lodestore_contract::threads::start_thread;
use lodestore_index::KeyResolver;
use lodestore_inplace::lock;
use lodestore_media::own_work;

use crate::adapt::Controller;
use crate::backend::{BATCH, Core, Retire, Worked};
use crate::sampler::Totals;

/// Most backend threads.
pub const THREADS_MAX: usize = 128;
/// The number of backend threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// As many as the paper's equations say.
    Auto {
        /// Serving and backend threads together.
        threads: usize,
    },
    /// This number.
    Fixed(usize),
}
/// Length of a nap: how long a push may lie while its queue is less than a quarter full.
const NAP: Duration = Duration::from_millis(1);
/// Naps in a row that found nothing, after which the first thread sleeps until a push.
const NAPS_EMPTY: u32 = 32;
/// A round that applied fewer operations than this is followed by a pause.
const FEW: usize = 64;
/// Longest spin before a nap, in steps of 32 pauses (about half a microsecond each).
const SPINS_MAX: u32 = 8;

const RUNNING: u8 = 0;
const NAPPING: u8 = 1;
const ASLEEP: u8 = 2;

/// Escalating wait of someone who has nothing to help with: spins, yields, then sleeps.
#[derive(Default)]
pub(crate) struct Wait {
    rounds: u32,
}

impl Wait {
    const SPINS: u32 = 6;
    const YIELDS: u32 = 24;

    pub(crate) fn pause(&mut self) {
        if self.rounds < Self::SPINS {
            (0..1 << self.rounds).for_each(|_| std::hint::spin_loop());
        } else if self.rounds < Self::YIELDS {
            thread::yield_now();
        } else {
            let doublings = (self.rounds - Self::YIELDS).min(4);
            thread::sleep(Duration::from_micros(20 << doublings));
        }
        self.rounds = self.rounds.saturating_add(1);
    }
}

/// One thread's place.
#[repr(align(128))]
#[derive(Default)]
struct Seat {
    state: AtomicU8,
    thread: OnceLock<Thread>,
}

#[repr(align(128))]
#[derive(Default)]
struct Padded<T>(T);

/// All backend threads.
pub(crate) struct Crew {
    seats: Box<[Seat]>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    active: AtomicUsize,
    stopping: AtomicBool,
    /// Whether the first thread sleeps until a push. Read at every push, hardly ever written.
    asleep: Padded<AtomicBool>,
    counts: Padded<Counts>,
    control: Option<Mutex<Control>>,
}

#[derive(Default)]
struct Counts {
    wakes: AtomicU64,
    naps: AtomicU64,
}

struct Control {
    controller: Controller,
    since: Instant,
    totals: Totals,
    full: u64,
    changes: u64,
}

/// The crew's account.
#[derive(Default)]
pub(crate) struct CrewStats {
    pub(crate) backends: u64,
    pub(crate) serving: u64,
    pub(crate) formula: u64,
    pub(crate) wakes: u64,
    pub(crate) naps: u64,
    pub(crate) windows: u64,
    pub(crate) changes: u64,
}

impl Crew {
    pub(crate) fn new(backends: Workers) -> Self {
        let (seats, active, control) = match backends {
            Workers::Fixed(count) => (count.min(THREADS_MAX), count.min(THREADS_MAX), None),
            Workers::Auto { threads } => {
                let controller = Controller::new(threads.min(THREADS_MAX));
                let (most, active) = (threads.saturating_sub(1).min(THREADS_MAX), controller.current());
                let control =
                    Control { controller, since: Instant::now(), totals: Totals::default(), full: 0, changes: 0 };
                (most, active, Some(Mutex::new(control)))
            }
        };
        Self {
            seats: (0..seats).map(|_| Seat::default()).collect(),
            handles: Mutex::default(),
            active: AtomicUsize::new(active),
            stopping: AtomicBool::new(false),
            asleep: Padded::default(),
            counts: Padded::default(),
            control,
        }
    }

    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    pub(crate) fn stats(&self) -> CrewStats {
        let mut stats = CrewStats {
            backends: self.active() as u64,
            wakes: self.counts.0.wakes.load(Ordering::Relaxed),
            naps: self.counts.0.naps.load(Ordering::Relaxed),
            ..CrewStats::default()
        };
        if let Some(control) = &self.control {
            let control = lock(control);
            stats.serving = (control.controller.total() as u64).saturating_sub(stats.backends);
            stats.formula = control.controller.formula() as u64;
            stats.windows = control.controller.windows();
            stats.changes = control.changes;
        }
        stats
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// After a push: wakes the first thread where it sleeps until one.
    #[inline]
    pub(crate) fn wake_if_asleep(&self) {
        if self.asleep.0.load(Ordering::SeqCst) && self.asleep.0.swap(false, Ordering::SeqCst) {
            self.wake(0);
        }
    }

    /// Wakes the thread that looks after a queue.
    #[inline]
    pub(crate) fn wake_owner(&self, queue: usize) {
        let active = self.active();
        if active > 0 {
            self.wake(queue % active);
        }
    }

    /// Whether the first thread sleeps until a push.
    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.0.load(Ordering::SeqCst)
    }

    fn wake(&self, number: usize) {
        let Some(seat) = self.seats.get(number) else { return };
        if seat.state.load(Ordering::SeqCst) == RUNNING {
            return;
        }
        // One waker is enough.
        if seat.state.swap(RUNNING, Ordering::SeqCst) != RUNNING
            && let Some(thread) = seat.thread.get()
        {
            self.counts.0.wakes.fetch_add(1, Ordering::Relaxed);
            thread.unpark();
        }
    }

    /// Ends all threads and waits for them. Once is enough.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let handles = std::mem::take(&mut *lock(&self.handles));
        for handle in &handles {
            handle.thread().unpark();
        }
        for handle in handles {
            // A panic of it has poisoned the backend already, or was in the adaption and harms nobody.
            let _ = handle.join();
        }
    }

    /// Sleeps in `state` for at most `longest`, unless `ready` says that there is something to do; whether it slept.
    fn sleep(&self, number: usize, state: u8, longest: Option<Duration>, ready: impl FnOnce() -> bool) -> bool {
        let seat = &self.seats[number];
        seat.state.store(state, Ordering::SeqCst);
        let sleeps = !self.stopping.load(Ordering::SeqCst) && !ready();
        if sleeps {
            self.counts.0.naps.fetch_add(1, Ordering::Relaxed);
            match longest {
                Some(longest) => thread::park_timeout(longest),
                None => thread::park(),
            }
        }
        seat.state.store(RUNNING, Ordering::SeqCst);
        sleeps
    }
}

impl<R: KeyResolver + Retire + Send + Sync + 'static> Core<R> {
    /// Starts threads until the system refuses one, and goes on with those. Without any, a writer
    /// that finds its queue full and a reader of the tree do the work.
    pub(crate) fn man_or_fewer(core: &Arc<Self>, count: usize) {
        if Self::man(core, count).is_err() {
            core.crew.active.store(lock(&core.crew.handles).len(), Ordering::SeqCst);
        }
    }

    /// Starts threads until `count` have been started.
    pub(crate) fn man(core: &Arc<Self>, count: usize) -> Result<()> {
        let crew = &core.crew;
        let mut handles = lock(&crew.handles);
        if crew.is_stopping() {
            return Ok(());
        }
        while handles.len() < count.min(crew.seats.len()) {
            let number = handles.len();
            let shared = Arc::clone(core);
            let handle = start_thread(format!("hikv-backend-{number}"), move || own_work(|| run(&shared, number)))?;
            // The thread itself sets it too; whoever is first.
            let _ = crew.seats[number].thread.set(handle.thread().clone());
            handles.push(handle);
        }
        Ok(())
    }

    /// One look at the queues; operations worked off.
    fn round(&self, number: usize, active: usize) -> usize {
        let mut sum = 0;
        for queue in (number..self.queues.len()).step_by(active) {
            if let Worked::Done(count) = self.work_off(queue, BATCH) {
                sum += count;
            }
        }
        if sum > 0 || active == 1 {
            return sum;
        }
        for (queue, lying) in self.queues.iter().enumerate() {
            let owner = &self.crew.seats[queue % active];
            if queue % active != number
                && !lying.ring.is_empty()
                && (owner.state.load(Ordering::Relaxed) != RUNNING || lying.ring.len() >= FEW)
                && let Worked::Done(count) = self.work_off(queue, BATCH)
            {
                sum += count;
            }
        }
        sum
    }

    fn is_idle(&self) -> bool {
        self.gate.is_poisoned() || self.queues.iter().all(|queue| queue.ring.tail() == queue.ring.popped())
    }

    /// At the end of a window, takes its counts and follows the controller. By the first thread.
    fn adapt(core: &Arc<Self>) {
        let Some(control) = &core.crew.control else { return };
        let mut control = lock(control);
        if control.since.elapsed() < core.config.window {
            return;
        }
        let (totals, full) = (core.sampler.totals(), core.full.load(Ordering::Relaxed));
        let depth = if full == control.full { core.depth() } else { 1.0 };
        let window = totals.since(control.totals);
        let before = core.crew.active();
        let wish = control.controller.step(&window, depth);
        (control.since, control.totals, control.full) = (Instant::now(), totals, full);
        if wish == before {
            return;
        }
        control.changes += 1;
        drop(control);
        // Where no thread can be started, those that run look after all queues; the next window tries again.
        if Self::man(core, wish).is_ok() {
            core.crew.active.store(wish, Ordering::SeqCst);
            core.crew.wake(wish - 1);
        }
    }
}

/// A backend thread's life.
fn run<R: KeyResolver + Retire + Send + Sync + 'static>(core: &Arc<Core<R>>, number: usize) {
    let crew = &core.crew;
    let _ = crew.seats[number].thread.set(thread::current());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let spins_max = if cores > 1 { SPINS_MAX } else { 0 };
    let mut spins = spins_max;
    let mut empty = 0;
    let mut spun = false;
    while !crew.is_stopping() {
        let active = crew.active();
        if number >= active {
            crew.sleep(number, ASLEEP, None, || number < crew.active.load(Ordering::SeqCst));
            continue;
        }
        let count = core.round(number, active);
        if number == 0 {
            Core::adapt(core);
        }
        if count >= FEW {
            // The spin pays while it ends in a batch worth having.
            spins = if spun { (spins + 1).min(spins_max) } else { spins };
            (empty, spun) = (0, false);
        } else if !spun && spins > 0 {
            (0..spins * 32).for_each(|_| std::hint::spin_loop());
            spun = true;
        } else {
            spins = if spun { spins - 1 } else { u32::from(empty == 0 && spins_max > 0) };
            spun = false;
            empty = if count == 0 { empty + 1 } else { 0 };
            if !rest(core, number, empty) {
                // Something lies there that cannot be taken now, so naps again.
                empty = 0;
            }
        }
    }
}

/// A nap, or a sleep where the last naps found nothing; false where it could not be slept.
fn rest<R: KeyResolver + Retire + Send + Sync + 'static>(core: &Core<R>, number: usize, empty: u32) -> bool {
    let crew = &core.crew;
    if empty < NAPS_EMPTY {
        return crew.sleep(number, NAPPING, Some(NAP), || false);
    }
    if number > 0 {
        return crew.sleep(number, ASLEEP, None, || false);
    }
    let slept = crew.sleep(0, ASLEEP, None, || {
        crew.asleep.0.store(true, Ordering::SeqCst);
        !core.is_idle()
    });
    crew.asleep.0.store(false, Ordering::SeqCst);
    slept
}

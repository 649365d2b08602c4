//! Group commit: one leader does the work of all waiting threads.
//!
//! [`Group::join`] adds work under ascending numbers. A thread that waits for a number
//! ([`Group::wait`]) becomes the leader if there is none. The leader takes the gathered work, does
//! it outside the lock, and wakes the other threads. Work that joins meanwhile goes to the next
//! leader.
//!
//! Invariants
//! 1. At most one thread leads at a time, so groups complete one after the other, in the order of
//!    their numbers.
//! 2. `done` is the last number of a group that succeeded; the store follows the work.
//! 3. After a group failed, no further group runs. A thread that waits for a number of that group,
//!    or for a later number, receives [`Broken`].
//!
//! Any thread may call any method, but [`Group::join`] calls are serialized, in the order of the
//! numbers. A leader holds no lock while it works.

use super::group_sync::{
    AtomicU64, Condvar, DONE_AFTER_WORK, Mutex, MutexGuard, ONE_LEADER, Ordering, PoisonError, WAKES_ALL,
};

/// A group has failed: this number will never be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

struct State<T> {
    gathered: T,
    /// The highest number that joined.
    last: u64,
    leading: bool,
    broken: bool,
}

/// A group commit; see the module documentation.
pub struct Group<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    done: AtomicU64,
}

/// The leadership of one group. If the leader's work panics, the leadership ends as a failure.
struct Leadership<'a, T> {
    group: &'a Group<T>,
    /// The last number of the group, if the work succeeded.
    done: Option<u64>,
}

impl<T> Drop for Leadership<'_, T> {
    fn drop(&mut self) {
        let mut state = self.group.lock();
        match self.done {
            Some(number) => self.group.done.store(number, Ordering::SeqCst),
            None => state.broken = true,
        }
        state.leading = false;
        drop(state);
        if WAKES_ALL { self.group.changed.notify_all() } else { self.group.changed.notify_one() }
    }
}

impl<T> Group<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the highest number that is done.
    #[inline]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Returns the highest number that joined.
    pub fn last(&self) -> u64 {
        self.lock().last
    }

    /// Returns whether a group has failed.
    pub fn is_broken(&self) -> bool {
        self.lock().broken
    }
}

impl<T: Default> Group<T> {
    /// Creates a group with no gathered work. All numbers up to `done` are done.
    pub fn new(done: u64) -> Self {
        let state = State { gathered: T::default(), last: done, leading: false, broken: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), done: AtomicU64::new(done) }
    }

    /// Adds the work of `number`, which must be higher than all numbers before.
    pub fn join(&self, number: u64, add: impl FnOnce(&mut T)) {
        let mut state = self.lock();
        debug_assert!(number > state.last, "numbers ascend");
        state.last = number;
        add(&mut state.gathered);
    }

    /// Waits until `number`, which has joined, is done. If no thread leads, this thread does:
    /// `lead` receives the gathered work and its highest number, and returns whether the work
    /// succeeded.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn wait(&self, number: u64, mut lead: impl FnMut(T, u64) -> bool) -> Result<(), Broken> {
        if self.done() >= number {
            return Ok(());
        }
        let mut state = self.lock();
        loop {
            if self.done() >= number.min(state.last) {
                return Ok(());
            }
            if state.broken {
                return Err(Broken);
            }
            if state.leading && ONE_LEADER {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.leading = true;
            let (gathered, last) = (std::mem::take(&mut state.gathered), state.last);
            drop(state);
            if !DONE_AFTER_WORK {
                self.done.store(last, Ordering::SeqCst);
            }
            let mut leadership = Leadership { group: self, done: None };
            leadership.done = lead(gathered, last).then_some(last);
            drop(leadership);
            state = self.lock();
        }
    }
}

//! Group commit: one leader does for all who wait what each of them would have to do by itself.
//!
//! Work comes with ascending numbers ([`Group::join`]) and is gathered. Who needs a number done ([`Group::wait`]) becomes the leader if there is
//! none: it takes all that was gathered, does the work outside the lock, and wakes the others. What comes meanwhile is the next leader's.
//!
//! Invariants
//! 1. One leads at a time, so groups are done one after the other, in the order of their numbers.
//! 2. `done` is the last number of a group whose work went well; it is stored behind the work.
//! 3. After a group that failed nothing is done any more: who waits for it or for later numbers is told so.
//!
//! Any thread may call anything; [`Group::join`] by one at a time, in the order of the numbers. A leader holds no lock while it works.

use super::group_sync::{
    AtomicU64, Condvar, DONE_BEHIND_WORK, Mutex, MutexGuard, ONE_LEADER, Ordering, PoisonError, WAKES_ALL,
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

/// See the module.
pub struct Group<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    done: AtomicU64,
}

/// The leader's turn, which ends even if its work panics: as a failure then.
struct Turn<'a, T> {
    group: &'a Group<T>,
    /// What is done, where all went well.
    done: Option<u64>,
}

impl<T> Drop for Turn<'_, T> {
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

    /// The highest number that is done.
    #[inline]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// The highest number that joined.
    pub fn last(&self) -> u64 {
        self.lock().last
    }

    /// Whether a group has failed.
    pub fn is_broken(&self) -> bool {
        self.lock().broken
    }
}

impl<T: Default> Group<T> {
    /// Nothing gathered; all numbers up to `done` are done.
    pub fn new(done: u64) -> Self {
        let state = State { gathered: T::default(), last: done, leading: false, broken: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), done: AtomicU64::new(done) }
    }

    /// Adds what `number`, higher than all before, needs to have done.
    pub fn join(&self, number: u64, add: impl FnOnce(&mut T)) {
        let mut state = self.lock();
        debug_assert!(number > state.last, "numbers ascend");
        state.last = number;
        add(&mut state.gathered);
    }

    /// Returns when `number`, which has joined, is done. Where nobody leads, this thread does: `lead` is given what was gathered and the highest
    /// number among it, and says whether all went well.
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
            if !DONE_BEHIND_WORK {
                self.done.store(last, Ordering::SeqCst);
            }
            let mut turn = Turn { group: self, done: None };
            turn.done = lead(gathered, last).then_some(last);
            drop(turn);
            state = self.lock();
        }
    }
}

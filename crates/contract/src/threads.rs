//! Locks and thread starts. The system may refuse each start: RLIMIT_NPROC, or the pids limit of a
//! container.
//!
//! Every engine starts its threads here. A store either continues with fewer threads, or refuses
//! the open with [`Error::ThreadRefused`]. Tests refuse starts by [`limit_thread_starts`].

use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle, Scope, ScopedJoinHandle};

use crate::error::{Error, Result};

/// Locks a mutex, also after a panic of an earlier holder: the lock does not protect a state that a
/// panic leaves half changed.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread.
///
/// # Errors
/// [`Error::ThreadRefused`].
pub fn start_thread<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let name = name.into();
    let started = check_limit().and_then(|()| Builder::new().name(name.clone()).spawn(work));
    started.map_err(|source| Error::ThreadRefused { name, source })
}

/// Starts a thread of a scope.
///
/// # Errors
/// [`Error::ThreadRefused`].
pub fn start_scoped_thread<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let name = name.into();
    let started = check_limit().and_then(|()| Builder::new().name(name.clone()).spawn_scoped(scope, work));
    started.map_err(|source| Error::ThreadRefused { name, source })
}

/// Starts up to `count` threads of a scope for the same work, and stops at the first refusal. The
/// caller does its own share, so the work completes without any of them.
pub fn start_helpers<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    count: usize,
    work: impl Fn() -> T + Send + Copy + 'scope,
) -> Vec<ScopedJoinHandle<'scope, T>> {
    (0..count).map_while(|_| start_scoped_thread(scope, name, work).ok()).collect()
}

/// The background threads of an open store, which ends all of them at its close.
///
/// A group that is dropped without [`ThreadGroup::join`] leaks its handles: a process forked from
/// the store's has none of the threads.
#[derive(Debug, Default)]
pub struct ThreadGroup {
    handles: Mutex<ManuallyDrop<Vec<JoinHandle<()>>>>,
}

impl ThreadGroup {
    /// Starts a thread of the group.
    ///
    /// # Errors
    /// [`Error::ThreadRefused`].
    pub fn start(&self, name: impl Into<String>, work: impl FnOnce() + Send + 'static) -> Result<()> {
        lock(&self.handles).push(start_thread(name, work)?);
        Ok(())
    }

    /// Wakes the parked threads of the group.
    pub fn unpark(&self) {
        lock(&self.handles).iter().for_each(|handle| handle.thread().unpark());
    }

    /// Wakes the parked threads and waits for the ends of all. Does not wait for the calling
    /// thread: an event sink may drop the last handle of a store on a thread of the group, which
    /// then ends by itself.
    pub fn join(&self) {
        let handles = std::mem::take(&mut **lock(&self.handles));
        for handle in handles {
            if handle.thread().id() != thread::current().id() {
                handle.thread().unpark();
                // The thread itself caught and reported any panic.
                let _ = handle.join();
            }
        }
    }
}

#[cfg(not(feature = "conformance"))]
#[expect(clippy::unnecessary_wraps, reason = "the test build refuses starts")]
fn check_limit() -> std::io::Result<()> {
    Ok(())
}

#[cfg(feature = "conformance")]
use limit::check_limit;
#[cfg(feature = "conformance")]
pub use limit::{ThreadLimit, limit_thread_starts};

#[cfg(feature = "conformance")]
mod limit {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Number of threads that this process may still start. `usize::MAX`: no limit.
    static STARTS_LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);
    static LIMITING: Mutex<()> = Mutex::new(());

    /// Refuses thread starts until it is dropped.
    #[derive(Debug)]
    pub struct ThreadLimit(#[expect(dead_code, reason = "the lock is held until the drop")] MutexGuard<'static, ()>);

    /// Lets this process start `starts` more threads and refuses all further starts, as the system
    /// does at RLIMIT_NPROC. The limit also counts stores of other tests in the process, so use it
    /// in a separate test binary. Only one limit exists at a time: the next call waits for the
    /// drop.
    pub fn limit_thread_starts(starts: usize) -> ThreadLimit {
        let limiting = LIMITING.lock().unwrap_or_else(PoisonError::into_inner);
        STARTS_LEFT.store(starts, Ordering::SeqCst);
        ThreadLimit(limiting)
    }

    impl Drop for ThreadLimit {
        fn drop(&mut self) {
            STARTS_LEFT.store(usize::MAX, Ordering::SeqCst);
        }
    }

    pub(super) fn check_limit() -> io::Result<()> {
        let take = |left: usize| if left == usize::MAX { Some(left) } else { left.checked_sub(1) };
        match STARTS_LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => Ok(()),
            // EAGAIN, as pthread_create returns it.
            Err(_) => Err(io::Error::from_raw_os_error(11)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Weak, mpsc};
    use std::time::Duration;

    use super::*;

    const THREAD_COUNT: usize = 3;

    #[test]
    fn a_join_wakes_parked_threads_and_waits_for_the_ends_of_all() {
        let group = ThreadGroup::default();
        let ended_count = Arc::new(AtomicUsize::new(0));
        for index in 0..THREAD_COUNT {
            let ended_count = Arc::clone(&ended_count);
            let work = move || {
                // Without the wake-up, the test never ends.
                thread::park();
                thread::sleep(Duration::from_millis(20));
                ended_count.fetch_add(1, Ordering::SeqCst);
            };
            group.start(format!("parked {index}"), work).expect("started");
        }
        group.join();
        assert_eq!(ended_count.load(Ordering::SeqCst), THREAD_COUNT);
    }

    /// An event sink may drop the last handle of a store on a thread of the group.
    #[test]
    fn a_join_by_a_thread_of_the_group_does_not_wait_for_itself() {
        let group = Arc::new(ThreadGroup::default());
        let (send_group, receive_group) = mpsc::channel::<Weak<ThreadGroup>>();
        let (send_end, receive_end) = mpsc::channel();
        let work = move || {
            if let Some(group) = receive_group.recv().expect("sent below").upgrade() {
                group.join();
            }
            send_end.send(()).expect("received below");
        };
        group.start("joins its own group", work).expect("started");
        send_group.send(Arc::downgrade(&group)).expect("the thread waits");
        receive_end.recv_timeout(Duration::from_secs(60)).expect("the join returned");
    }
}

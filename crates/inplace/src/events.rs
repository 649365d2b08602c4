//! Telling the owner of a store what was met, when no lock is held: the owner's sink may then use the store.
//!
//! What a thread meets while it is [`Quiet`] waits, and is told when the thread's last quiet moment ends. Every operation is quiet for as
//! long as its epoch guard lives, and so is whatever takes a lock outside of one. A sink's own calls are quiet as well: what they
//! meet is told behind the event at hand, and once, so that a sink that reads a damaged key on each event about it comes to an end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use lodestore_contract::{Event, EventSink};

/// Most events that wait; more of one operation are not told.
const WAITING_MAX: usize = 4096;
/// Bit of [`DEPTH`]: something waits.
const WAITS: u32 = 1 << 31;

thread_local! {
    /// Quiet moments of this thread that are not over.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// What is to be told behind them; while it is told, an event is still the first.
    static WAITING: RefCell<VecDeque<(EventSink, Event)>> = const { RefCell::new(VecDeque::new()) };
}

/// While it lives, nothing is told on this thread. Declared before the locks that it is for, so that it ends behind them.
#[must_use = "it ends when it is dropped"]
pub struct Quiet {
    /// It belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Quiet {
    /// Begins a quiet moment.
    #[inline]
    pub fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self { not_send: PhantomData }
    }

    /// Whether this thread is in one: then it must not wait for others.
    pub fn is_now() -> bool {
        DEPTH.get() & !WAITS != 0
    }
}

impl Drop for Quiet {
    #[inline]
    fn drop(&mut self) {
        let left = DEPTH.get() - 1;
        DEPTH.set(left);
        if left == WAITS {
            tell_waiting();
        }
    }
}

/// A sink that tells this one, but not while the thread is quiet. To be given to a pool in place of its owner's.
pub fn behind_locks(sink: &EventSink) -> EventSink {
    let sink = Arc::clone(sink);
    Arc::new(move |event| tell(&sink, event))
}

/// Tells a sink, at once or behind the quiet moment.
#[cold]
pub(crate) fn tell(sink: &EventSink, event: &Event) {
    WAITING.with_borrow_mut(|waiting| {
        let is_known = waiting.iter().any(|(other, known)| Arc::ptr_eq(other, sink) && known == event);
        if !is_known && waiting.len() < WAITING_MAX {
            waiting.push_back((Arc::clone(sink), event.clone()));
        }
    });
    let depth = DEPTH.get();
    DEPTH.set(depth | WAITS);
    if depth & !WAITS == 0 {
        tell_waiting();
    }
}

#[cold]
fn tell_waiting() {
    /// The sink's calls are over, or it panicked: what still waits is told behind the next quiet moment.
    struct Told;
    impl Drop for Told {
        fn drop(&mut self) {
            WAITING.with_borrow_mut(VecDeque::pop_front);
            DEPTH.set(if WAITING.with_borrow(VecDeque::is_empty) { 0 } else { WAITS });
        }
    }
    if std::thread::panicking() {
        return;
    }
    while let Some((sink, event)) = WAITING.with_borrow(|waiting| waiting.front().cloned()) {
        let _told = Told;
        DEPTH.set(1);
        sink(&event);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    use super::*;

    fn full(needed: u64) -> Event {
        Event::Full { needed }
    }

    fn noting(told: &Arc<Mutex<Vec<Event>>>) -> EventSink {
        let told = Arc::clone(told);
        Arc::new(move |event| told.lock().expect("no panic").push(event.clone()))
    }

    #[test]
    fn what_is_met_in_a_quiet_moment_is_told_behind_the_last_of_them() {
        let told = Arc::default();
        let sink = noting(&told);
        let outer = Quiet::begin();
        {
            let _inner = Quiet::begin();
            tell(&sink, &full(1));
            tell(&sink, &full(2));
            tell(&sink, &full(1));
        }
        assert!(told.lock().expect("no panic").is_empty() && Quiet::is_now());
        drop(outer);
        assert_eq!(*told.lock().expect("no panic"), [full(1), full(2)]);
        tell(&sink, &full(1));
        assert_eq!(told.lock().expect("no panic").len(), 3, "nothing is quiet any more");
        assert!(!Quiet::is_now());
    }

    #[test]
    fn a_sink_that_meets_what_it_was_told_comes_to_an_end() {
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let inner = noting(&told);
        let cell: Arc<Mutex<Option<EventSink>>> = Arc::default();
        let again = Arc::clone(&cell);
        let sink: EventSink = Arc::new(move |event| {
            inner(event);
            let me = again.lock().expect("no panic").clone();
            me.iter().for_each(|me| {
                tell(me, event);
                tell(me, &full(9));
            });
        });
        *cell.lock().expect("no panic") = Some(Arc::clone(&sink));
        tell(&sink, &full(1));
        *cell.lock().expect("no panic") = None;
        assert_eq!(told.lock().expect("no panic")[..2], [full(1), full(9)]);
        assert_eq!(told.lock().expect("no panic").len(), 2);
    }

    #[test]
    fn a_sink_that_panics_leaves_the_thread_as_it_was() {
        let sink: EventSink = Arc::new(|_| panic!("in the sink"));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _quiet = Quiet::begin();
            tell(&sink, &full(1));
        }));
        assert!(panicked.is_err() && !Quiet::is_now());
        let told = Arc::default();
        tell(&noting(&told), &full(2));
        assert_eq!(*told.lock().expect("no panic"), [full(2)]);
    }
}

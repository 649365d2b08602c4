//! Reports events to the owner of a store when no lock is held: the owner's sink may then use the
//! store.
//!
//! Events that occur while a thread is [`Quiet`] wait, and are reported when the thread's last
//! quiet scope ends. An engine's operation is quiet for as long as its epoch guard lives, and so is
//! any code that acquires a lock outside of one. All reports use
//! [`Pool::report_event`](crate::Pool::report_event). A sink's own calls are quiet as well: their
//! events are reported after the current one, and once.
//! A sink that reads a damaged key on each event about it therefore terminates.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lodestore_contract::{Event, EventSink};

/// Maximum waiting events; further ones of an operation are dropped.
const WAITING_EVENTS_MAX: usize = 4096;
/// Bit of [`DEPTH`]: events wait.
const WAITING_FLAG: u32 = 1 << 31;

thread_local! {
    /// Quiet scopes of this thread that are open.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Whether a sink is being called, for the first waiting event.
    static REPORTING: Cell<bool> = const { Cell::new(false) };
    /// Whether a sink's panic ends here: the thread is a store's own.
    static CATCHES_PANICS: Cell<bool> = const { Cell::new(false) };
    /// Events to report after the quiet scopes; an event stays first while it is reported.
    static WAITING: RefCell<VecDeque<(EventSink, Event)>> = const { RefCell::new(VecDeque::new()) };
}

/// A scope without reports on this thread. Declare it before the locks that it is for, so that it
/// ends after them.
#[must_use = "it ends when it is dropped"]
pub struct Quiet {
    /// A scope belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Quiet {
    /// Begins a quiet scope.
    #[inline]
    pub fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self { not_send: PhantomData }
    }

    /// Returns whether this thread is in a quiet scope: it must not wait for other threads then.
    pub fn is_now() -> bool {
        DEPTH.get() & !WAITING_FLAG != 0
    }
}

impl Drop for Quiet {
    #[inline]
    fn drop(&mut self) {
        let left = DEPTH.get() - 1;
        DEPTH.set(left);
        if left == WAITING_FLAG {
            report_waiting();
        }
    }
}

/// Reports an event to a sink, at once or after the quiet scope.
#[cold]
pub(crate) fn report(sink: &EventSink, event: &Event) {
    WAITING.with_borrow_mut(|waiting| {
        let is_known = waiting.iter().any(|(other, known)| Arc::ptr_eq(other, sink) && known == event);
        if !is_known && waiting.len() < WAITING_EVENTS_MAX {
            waiting.push_back((Arc::clone(sink), event.clone()));
        }
    });
    let depth = DEPTH.get();
    DEPTH.set(depth | WAITING_FLAG);
    if depth & !WAITING_FLAG == 0 {
        report_waiting();
    }
}

#[cold]
fn report_waiting() {
    /// Runs when the sink returned or panicked: events that still wait are reported after the next
    /// quiet scope.
    struct ReportDone;
    impl Drop for ReportDone {
        fn drop(&mut self) {
            WAITING.with_borrow_mut(VecDeque::pop_front);
            DEPTH.set(if WAITING.with_borrow(VecDeque::is_empty) { 0 } else { WAITING_FLAG });
            REPORTING.set(false);
        }
    }
    if std::thread::panicking() {
        return;
    }
    while let Some((sink, event)) = WAITING.with_borrow(|waiting| waiting.front().cloned()) {
        let _done = ReportDone;
        DEPTH.set(1);
        REPORTING.set(true);
        if CATCHES_PANICS.get() {
            // The store stays consistent whatever the owner's code does; the panic hook has
            // reported the panic.
            let _ = catch_unwind(AssertUnwindSafe(|| sink(&event)));
        } else {
            sink(&event);
        }
    }
}

/// Runs a store's own work on this thread: a panicking sink harms neither the work nor the store.
pub fn own_work<R>(work: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            CATCHES_PANICS.set(self.0);
        }
    }
    let _before = Before(CATCHES_PANICS.replace(true));
    work()
}

/// Returns whether this thread is in a call of this sink.
pub(crate) fn is_in_call_of(sink: &EventSink) -> bool {
    let first = |waiting: &VecDeque<(EventSink, Event)>| {
        waiting.front().is_some_and(|(reported, _)| Arc::ptr_eq(reported, sink))
    };
    REPORTING.get() && WAITING.with_borrow(first)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn full(needed: u64) -> Event {
        Event::Full { needed }
    }

    fn collecting_sink(reported: &Arc<Mutex<Vec<Event>>>) -> EventSink {
        let reported = Arc::clone(reported);
        Arc::new(move |event| reported.lock().expect("no panic").push(event.clone()))
    }

    #[test]
    fn events_of_a_quiet_scope_are_reported_after_the_outermost_scope() {
        let reported = Arc::default();
        let sink = collecting_sink(&reported);
        let outer = Quiet::begin();
        {
            let _inner = Quiet::begin();
            report(&sink, &full(1));
            report(&sink, &full(2));
            report(&sink, &full(1));
        }
        assert!(reported.lock().expect("no panic").is_empty() && Quiet::is_now());
        drop(outer);
        assert_eq!(*reported.lock().expect("no panic"), [full(1), full(2)]);
        report(&sink, &full(1));
        assert_eq!(reported.lock().expect("no panic").len(), 3, "nothing is quiet any more");
        assert!(!Quiet::is_now());
    }

    #[test]
    fn a_sink_that_causes_its_own_event_terminates() {
        let reported: Arc<Mutex<Vec<Event>>> = Arc::default();
        let inner = collecting_sink(&reported);
        let cell: Arc<Mutex<Option<EventSink>>> = Arc::default();
        let shared = Arc::clone(&cell);
        let sink: EventSink = Arc::new(move |event| {
            inner(event);
            let own = shared.lock().expect("no panic").clone();
            own.iter().for_each(|own| {
                report(own, event);
                report(own, &full(9));
            });
        });
        *cell.lock().expect("no panic") = Some(Arc::clone(&sink));
        report(&sink, &full(1));
        *cell.lock().expect("no panic") = None;
        assert_eq!(reported.lock().expect("no panic")[..2], [full(1), full(9)]);
        assert_eq!(reported.lock().expect("no panic").len(), 2);
    }

    #[test]
    fn a_sink_that_panics_in_a_stores_own_work_harms_nothing() {
        let sink: EventSink = Arc::new(|_| panic!("in the sink"));
        own_work(|| {
            let _quiet = Quiet::begin();
            report(&sink, &full(1));
            report(&sink, &full(2));
        });
        assert!(!Quiet::is_now() && !CATCHES_PANICS.get());
    }

    #[test]
    fn a_sink_that_panics_leaves_the_thread_as_it_was() {
        let sink: EventSink = Arc::new(|_| panic!("in the sink"));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _quiet = Quiet::begin();
            report(&sink, &full(1));
        }));
        assert!(panicked.is_err() && !Quiet::is_now());
        let reported = Arc::default();
        report(&collecting_sink(&reported), &full(2));
        assert_eq!(*reported.lock().expect("no panic"), [full(2)]);
    }
}

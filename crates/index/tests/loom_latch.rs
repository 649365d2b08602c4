//! The version latch under the C11 memory model: every interleaving (loom), and mutants, which must
//! fail.

#[path = "../src/latch.rs"]
#[expect(dead_code, reason = "the model uses a part of the latch")]
mod latch;
#[path = "../src/mutant.rs"]
#[expect(dead_code, reason = "the model plants some of the faults")]
mod mutant;

/// The latch's dependencies in the model: loom's atomics, and mutants that can be switched on.
mod sync {
    use std::cell::Cell;

    pub(crate) use crate::mutant::Mutant;
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

    thread_local! {
        pub(crate) static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn mutant(which: Mutant) -> bool {
        PLANTED.with(|planted| planted.get() == Some(which))
    }

    pub(crate) fn relax(_round: u32) {
        loom::thread::yield_now();
    }
}

use std::panic::catch_unwind;

use latch::Latch;
use loom::sync::Arc;
use sync::{AtomicU64, Mutant, Ordering, PLANTED};

/// Two words that are equal whenever no thread holds the latch.
struct Pair {
    latch: Latch,
    a: AtomicU64,
    b: AtomicU64,
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self { latch: Latch::new(), a: AtomicU64::new(0), b: AtomicU64::new(0) })
    }

    fn bump(&self) {
        assert!(self.latch.lock());
        let next = self.a.load(Ordering::Relaxed) + 1;
        self.a.store(next, Ordering::Relaxed);
        self.b.store(next, Ordering::Relaxed);
        self.latch.unlock();
    }

    /// Returns the pair if it was read in one state.
    fn read(&self) -> Option<(u64, u64)> {
        let version = self.latch.read()?;
        let pair = (self.a.load(Ordering::Relaxed), self.b.load(Ordering::Relaxed));
        self.latch.validate(version).then_some(pair)
    }
}

fn with_mutant(mutant: Option<Mutant>, model: fn()) {
    PLANTED.with(|planted| planted.set(mutant));
    let result = catch_unwind(|| loom::model(model));
    PLANTED.with(|planted| planted.set(None));
    match mutant {
        None => assert!(result.is_ok(), "the model holds"),
        Some(mutant) => assert!(result.is_err(), "{mutant:?} must be caught"),
    }
}

fn a_reader_and_a_writer() {
    let pair = Pair::new();
    let writer = loom::thread::spawn({
        let pair = pair.clone();
        move || pair.bump()
    });
    if let Some((a, b)) = pair.read() {
        assert_eq!(a, b, "validated reads are of one state");
    }
    writer.join().unwrap();
}

fn two_writers() {
    let pair = Pair::new();
    let writer = loom::thread::spawn({
        let pair = pair.clone();
        move || pair.bump()
    });
    pair.bump();
    writer.join().unwrap();
    assert_eq!(pair.read(), Some((2, 2)), "no change is lost");
}

fn an_upgrade_and_a_writer() {
    let pair = Pair::new();
    let writer = loom::thread::spawn({
        let pair = pair.clone();
        move || pair.bump()
    });
    if let Some(version) = pair.latch.read() {
        let seen = pair.a.load(Ordering::Relaxed);
        if pair.latch.try_upgrade(version) {
            assert_eq!(seen, pair.a.load(Ordering::Relaxed), "what was read before an upgrade still holds");
            pair.a.store(seen + 1, Ordering::Relaxed);
            pair.b.store(seen + 1, Ordering::Relaxed);
            pair.latch.unlock();
        }
    }
    writer.join().unwrap();
    let (a, b) = pair.read().unwrap();
    assert_eq!(a, b);
}

/// A minimal split: words move from one node to another, then the parent is marked, then the node
/// is unlocked.
fn a_reader_and_a_split() {
    let (parent, pair) = (Arc::new(Latch::new()), Pair::new());
    let reader = loom::thread::spawn({
        let (parent, pair) = (parent.clone(), pair.clone());
        move || {
            if let Some(version) = pair.latch.read()
                && (!parent.is_obsolete() || sync::mutant(Mutant::ParentUnchecked))
            {
                let a = pair.a.load(Ordering::Relaxed);
                if pair.latch.validate(version) {
                    assert_eq!(a, 0, "while the parent stands, nothing has left the leaf");
                }
            }
        }
    });
    assert!(pair.latch.lock());
    pair.a.store(1, Ordering::Relaxed);
    assert!(parent.lock());
    if sync::mutant(Mutant::LeafUnlockedEarly) {
        pair.latch.unlock();
        parent.unlock_obsolete();
    } else {
        parent.unlock_obsolete();
        pair.latch.unlock();
    }
    reader.join().unwrap();
}

#[test]
fn validated_reads_are_of_one_state() {
    with_mutant(None, a_reader_and_a_writer);
}

#[test]
fn writers_exclude_each_other() {
    with_mutant(None, two_writers);
    with_mutant(None, an_upgrade_and_a_writer);
}

#[test]
fn a_live_parent_proves_that_nothing_left_the_leaf() {
    with_mutant(None, a_reader_and_a_split);
}

#[test]
fn mutants_of_the_latch_are_caught() {
    for mutant in [Mutant::ReadUnvalidated, Mutant::VersionKept, Mutant::LockUnfenced] {
        with_mutant(Some(mutant), a_reader_and_a_writer);
    }
    with_mutant(Some(Mutant::VersionKept), an_upgrade_and_a_writer);
}

#[test]
fn mutants_of_the_split_are_caught() {
    for mutant in [Mutant::ParentUnchecked, Mutant::LeafUnlockedEarly] {
        with_mutant(Some(mutant), a_reader_and_a_split);
    }
}

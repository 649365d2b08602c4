//! Copies of a whole store as it is at one moment, during concurrent reads and writes.
//!
//! [`Store::copy_all`](crate::Store::copy_all) passes the pairs of a store to a [`CopySink`]. An
//! engine with snapshots walks over a snapshot. An engine without them is a [`FuzzySource`], and
//! [`copy_fuzzy`] copies it:
//!
//! 1. Recording begins ([`Changes`]). Then the copier acquires and releases every stripe once. A
//!    write that acquires its stripe later records its key before it changes anything.
//! 2. The copier walks over the store part by part. The copier copies a part in memory, and passes
//!    the pairs to the sink while it holds neither pins nor stripes. Pairs that exceed the memory
//!    of a part are read again one by one. A key that no write touches is shown with its value. A
//!    recorded key may be shown with any value that it had meanwhile, or not at all.
//! 3. The copier takes the recorded keys out of the set, and copies each key again. Holding the
//!    key's stripe, it reads the key after the write that recorded it. If writers share stripes,
//!    the copier first waits for the writers that hold a stripe
//!    ([`FuzzySource::wait_for_writers`]). Later writes record the key again. The copier repeats
//!    this until few keys are left. If the set is full, writers wait in short steps.
//! 4. The copier holds all stripes, takes the last keys out, and reads them. At that point no write
//!    is between the acquisition and the release of its stripes. **This is the moment of the
//!    copy.**
//!
//! The copy holds the state of that moment. A key that was never recorded has had one value since
//! step 1, and the walk has shown it. The last copy of a recorded key was read after its last
//! write. A batch holds the stripes of all of its keys while it changes them. Step 4 therefore sees
//! all of a batch or nothing of it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::entry::{Entry, Pair};
use crate::error::{Error, Result};
use crate::threads::lock;

/// Bytes of recorded keys above which writers wait.
const CHANGES_BYTES_MAX: u64 = 64 << 20;
/// Writers never wait while fewer bytes than this are recorded.
const CHANGES_BYTES_MIN: u64 = 16 << 10;
/// The copy ends with an error once the recorded keys use this many times their limit.
const OVERFLOW_RATIO: u64 = 4;
/// Bytes that a recorded key uses in addition to its own.
const KEY_OVERHEAD_BYTES: u64 = 64;
/// Keys that are read while all writers are paused, if the last rounds left no more.
const PAUSED_KEYS_MAX: usize = 256;
/// Bytes of pairs that are read while all writers are paused.
const PAUSED_BYTES_MAX: usize = 8 << 20;
/// Bytes of keys and values that a part of the walk copies while it may hold pins.
const PART_BYTES_MAX: usize = 4 << 20;
/// Rounds after which the pause reads any number of keys.
const ROUNDS_MAX: u32 = 64;
/// Maximum time that one write waits for the copier.
const WRITE_WAIT_MAX: Duration = Duration::from_millis(40);
/// Step of that wait.
const WRITE_WAIT_PAUSE: Duration = Duration::from_millis(1);

/// Receives a copy of a store.
pub trait CopySink {
    /// Adds a pair whose key the copy does not have.
    ///
    /// # Errors
    /// The sink's own, which end the copy.
    fn add(&mut self, pair: Pair<'_>) -> Result<()>;

    /// Stores a pair, whether the copy has its key or not.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    fn put(&mut self, pair: Pair<'_>) -> Result<()>;

    /// Removes a key, whether the copy has it or not.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    fn delete(&mut self, key: &[u8]) -> Result<()>;
}

/// The keys that were written since a copy began. Nothing is recorded while no copy runs.
///
/// Invariants:
/// 1. A write checks [`is_active`](Self::is_active) under the stripe of its key, and records the
///    key before it changes anything.
/// 2. The lock of the set is acquired after stripes, and no lock after it.
#[derive(Debug, Default)]
pub struct Changes {
    is_active: AtomicBool,
    has_overflowed: AtomicBool,
    /// Bytes of the set.
    used: AtomicU64,
    /// Bytes of the set at which writers wait.
    limit: AtomicU64,
    keys: Mutex<HashSet<Box<[u8]>>>,
    /// Held by the running copy.
    copy_lock: Mutex<()>,
}

impl Changes {
    /// Returns whether a copy is running and writes must record their keys.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Returns whether a writer should [wait](Self::wait_for_copier) before it acquires its stripe.
    pub fn is_crowded(&self) -> bool {
        self.is_active() && self.used.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed)
    }

    /// Waits briefly for the copier, at most 40 ms. The caller holds no stripe.
    #[cold]
    pub fn wait_for_copier(&self) {
        let begun = Instant::now();
        while self.is_crowded() && begun.elapsed() < WRITE_WAIT_MAX {
            thread::sleep(WRITE_WAIT_PAUSE);
        }
    }

    /// Records a key. The caller holds its stripe.
    #[cold]
    pub fn record(&self, key: &[u8]) {
        let mut keys = lock(&self.keys);
        // If recording has ended, nothing empties the set.
        if !self.is_active() || keys.contains(key) {
            return;
        }
        let bytes = key.len() as u64 + KEY_OVERHEAD_BYTES;
        if self.used.load(Ordering::Relaxed) > CHANGES_BYTES_MAX * OVERFLOW_RATIO {
            self.has_overflowed.store(true, Ordering::Relaxed);
            return;
        }
        keys.insert(key.into());
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Begins recording. Waits for another copy to end.
    fn begin(&self) -> Recording<'_> {
        let copy_lock = lock(&self.copy_lock);
        self.limit.store(CHANGES_BYTES_MAX, Ordering::Relaxed);
        self.has_overflowed.store(false, Ordering::Relaxed);
        self.is_active.store(true, Ordering::SeqCst);
        Recording { changes: self, begun: Instant::now(), _copy_lock: copy_lock }
    }
}

/// Records changes until it is dropped.
struct Recording<'a> {
    changes: &'a Changes,
    begun: Instant,
    _copy_lock: MutexGuard<'a, ()>,
}

impl Recording<'_> {
    fn len(&self) -> usize {
        lock(&self.changes.keys).len()
    }

    fn is_half_full(&self) -> bool {
        self.changes.used.load(Ordering::Relaxed) > CHANGES_BYTES_MAX / 2
    }

    /// Halves the bytes at which writers wait.
    fn lower_limit(&self) {
        let limit = self.changes.limit.load(Ordering::Relaxed) / 2;
        self.changes.limit.store(limit.max(CHANGES_BYTES_MIN), Ordering::Relaxed);
    }

    /// Takes all recorded keys out of the set.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if keys could not be recorded.
    fn take(&self) -> Result<HashSet<Box<[u8]>>> {
        let mut keys = lock(&self.changes.keys);
        self.changes.used.store(0, Ordering::Relaxed);
        let taken = std::mem::take(&mut *keys);
        if self.changes.has_overflowed.load(Ordering::Relaxed) {
            return Err(Error::Unfinished {
                doing: "copying the store",
                after: self.begun.elapsed(),
                instead: "writers change keys faster than the copy can follow: copy the store while there are fewer \
                          writes",
            });
        }
        Ok(taken)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.changes.is_active.store(false, Ordering::SeqCst);
        *lock(&self.changes.keys) = HashSet::new();
        self.changes.used.store(0, Ordering::Relaxed);
    }
}

/// A store without snapshots that records its changes.
pub trait FuzzySource {
    /// Where the next part of a walk begins. The default is the first part.
    type Position: Default;
    /// Stripes that are held.
    type Held<'a>
    where
        Self: 'a;

    /// Returns the record of the changes.
    fn changes(&self) -> &Changes;

    /// Acquires and releases every stripe once.
    ///
    /// # Errors
    /// Those of every operation.
    fn pass_stripes(&self) -> Result<()>;

    /// Walks over a part of the store and calls `visit` for every live pair in it. Returns where
    /// the next part begins; `None` after the last. Holds nothing when it returns.
    ///
    /// `visit` copies in memory, at most `PART_BYTES_MAX` and one pair. Pins may be held
    /// meanwhile.
    ///
    /// # Errors
    /// Those of `visit`; [`Error::Corrupt`] if a pair of the part is damaged or may be missing.
    fn walk_part(
        &self,
        at: Self::Position,
        visit: &mut dyn FnMut(Pair<'_>) -> Result<()>,
    ) -> Result<Option<Self::Position>>;

    /// Waits until all writes have ended that recorded a key before this call. The copier calls
    /// this after it has taken recorded keys, and before it reads them. The default does nothing,
    /// for a source whose writers hold the stripe of their key alone: [`hold_key`](Self::hold_key)
    /// waits for them.
    ///
    /// # Errors
    /// Those of every operation.
    fn wait_for_writers(&self) -> Result<()> {
        Ok(())
    }

    /// Acquires the stripe of a key, so that no write of the key is under way that recorded the key
    /// before the last [`wait_for_writers`](Self::wait_for_writers).
    ///
    /// # Errors
    /// Those of every operation.
    fn hold_key(&self, key: &[u8]) -> Result<Self::Held<'_>>;

    /// Acquires all stripes, in their order.
    ///
    /// # Errors
    /// Those of every operation.
    fn hold_all(&self) -> Result<Self::Held<'_>>;

    /// Reads a key whose stripe is held; `None` if it is absent or has expired.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn read_held(&self, held: &Self::Held<'_>, key: &[u8]) -> Result<Option<Entry>>;
}

/// Copies a store without snapshots as it is at one moment of this call. See the module
/// documentation for the proof.
///
/// # Errors
/// Those of the sink and of reads; [`Error::Unfinished`] if more keys change than the copy can
/// follow.
pub fn copy_fuzzy<S: FuzzySource>(source: &S, sink: &mut dyn CopySink) -> Result<()> {
    let recording = source.changes().begin();
    source.pass_stripes()?;
    let (mut position, mut has_copied_changes) = (Some(S::Position::default()), false);
    while let Some(at) = position {
        let mut part = PartPairs::default();
        position = source.walk_part(at, &mut |pair| {
            part.add(pair);
            Ok(())
        })?;
        part.each(source, &mut |pair| if has_copied_changes { sink.put(pair) } else { sink.add(pair) })?;
        if recording.is_half_full() {
            has_copied_changes = true;
            copy_changed(source, &recording, sink)?;
        }
    }
    let mut rounds = 0;
    loop {
        let is_forced = rounds >= ROUNDS_MAX;
        if (is_forced || recording.len() <= PAUSED_KEYS_MAX)
            && let Some(last) = read_last(source, &recording, is_forced)?
        {
            drop(recording);
            return last.iter().try_for_each(|(key, found)| copy_key(sink, key, found.as_ref()));
        }
        copy_changed(source, &recording, sink)?;
        recording.lower_limit();
        rounds += 1;
    }
}

/// The pairs of a part of a walk. The sink receives them after the walk has released everything,
/// because a sink may write to a slow medium, or wait.
#[derive(Default)]
struct PartPairs {
    pairs: Vec<Entry>,
    bytes: usize,
    /// Keys whose pairs did not fit. Each is read separately.
    rest: Vec<Box<[u8]>>,
}

impl PartPairs {
    fn add(&mut self, pair: Pair<'_>) {
        let bytes = pair.key.len() + pair.value.len();
        if self.pairs.is_empty() || self.bytes + bytes <= PART_BYTES_MAX {
            self.bytes += bytes;
            self.pairs.push(Entry::of_pair(pair));
        } else {
            self.rest.push(pair.key.into());
        }
    }

    /// Calls `each` for every pair. A key that was not recorded still has the value that the walk
    /// read. A recorded key may be absent by now.
    fn each<S: FuzzySource>(self, source: &S, each: &mut dyn FnMut(Pair<'_>) -> Result<()>) -> Result<()> {
        self.pairs.iter().try_for_each(|entry| each(entry.pair()))?;
        drop(self.pairs);
        for key in self.rest {
            let held = source.hold_key(&key)?;
            let found = source.read_held(&held, &key)?;
            drop(held);
            found.map_or(Ok(()), |entry| each(entry.pair()))?;
        }
        Ok(())
    }
}

/// Copies all keys that are currently recorded.
fn copy_changed<S: FuzzySource>(source: &S, recording: &Recording<'_>, sink: &mut dyn CopySink) -> Result<()> {
    let taken = recording.take()?;
    source.wait_for_writers()?;
    for key in taken {
        let held = source.hold_key(&key)?;
        let found = source.read_held(&held, &key)?;
        drop(held);
        copy_key(sink, &key, found.as_ref())?;
    }
    Ok(())
}

fn copy_key(sink: &mut dyn CopySink, key: &[u8], found: Option<&Entry>) -> Result<()> {
    match found {
        Some(entry) => sink.put(entry.pair()),
        None => sink.delete(key),
    }
}

/// Keys, each with its pair if the key is present.
type LastKeys = Vec<(Box<[u8]>, Option<Entry>)>;

/// Pauses all writers, and reads the last recorded keys. Returns `None` if there are too many for a
/// short pause, unless `is_forced`. The keys stay recorded then.
fn read_last<S: FuzzySource>(source: &S, recording: &Recording<'_>, is_forced: bool) -> Result<Option<LastKeys>> {
    let held = source.hold_all()?;
    let keys_max = if is_forced { usize::MAX } else { PAUSED_KEYS_MAX * 4 };
    if recording.len() > keys_max {
        return Ok(None);
    }
    let keys = recording.take()?;
    let (mut last, mut bytes) = (LastKeys::with_capacity(keys.len()), 0);
    for key in &keys {
        let found = source.read_held(&held, key)?;
        bytes += found.as_ref().map_or(0, |entry| entry.value().len());
        if bytes > PAUSED_BYTES_MAX && keys.len() > 1 && !is_forced {
            // Runs under the stripes of the keys, as a write that records them does.
            keys.iter().for_each(|key| recording.changes.record(key));
            return Ok(None);
        }
        last.push((key.clone(), found));
    }
    Ok(Some(last))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Keys that are written again after each copy.
    const BUSY_KEYS: u32 = 1000;

    /// A store whose keys are written again whenever the copier has released their stripe.
    #[derive(Default)]
    struct Busy {
        changes: Changes,
        copied: Cell<u64>,
    }

    impl FuzzySource for Busy {
        type Position = ();
        type Held<'a> = ();

        fn changes(&self) -> &Changes {
            &self.changes
        }

        fn pass_stripes(&self) -> Result<()> {
            Ok(())
        }

        fn walk_part(&self, (): (), _: &mut dyn FnMut(Pair<'_>) -> Result<()>) -> Result<Option<()>> {
            (0..BUSY_KEYS).for_each(|key| self.changes.record(&key.to_le_bytes()));
            Ok(None)
        }

        fn hold_key(&self, key: &[u8]) -> Result<()> {
            self.copied.set(self.copied.get() + 1);
            assert!(self.copied.get() <= u64::from(BUSY_KEYS * (ROUNDS_MAX + 1)), "the copy has no end");
            self.changes.record(key);
            Ok(())
        }

        fn hold_all(&self) -> Result<()> {
            Ok(())
        }

        fn read_held(&self, (): &(), key: &[u8]) -> Result<Option<Entry>> {
            Ok(Some(Entry::new(key, b"value")))
        }
    }

    /// A store whose pairs do not fit in the memory of one part. The source must hold nothing while
    /// the sink works.
    #[derive(Default)]
    struct Large {
        changes: Changes,
        /// Pins and stripes that are held.
        held: Cell<u32>,
    }

    const LARGE_KEYS: u8 = 5;
    const LARGE_BYTES: usize = PART_BYTES_MAX / 2 - 10;

    struct HeldOne<'a>(&'a Cell<u32>);

    impl Drop for HeldOne<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }

    impl Large {
        fn hold(&self) -> HeldOne<'_> {
            self.held.set(self.held.get() + 1);
            HeldOne(&self.held)
        }
    }

    impl FuzzySource for Large {
        type Position = u8;
        type Held<'a> = HeldOne<'a>;

        fn changes(&self) -> &Changes {
            &self.changes
        }

        fn pass_stripes(&self) -> Result<()> {
            Ok(())
        }

        fn walk_part(&self, part: u8, visit: &mut dyn FnMut(Pair<'_>) -> Result<()>) -> Result<Option<u8>> {
            let _pin = self.hold();
            for key in 0..LARGE_KEYS {
                visit(Pair { key: &[part, key], value: &vec![key; LARGE_BYTES], expiry: None })?;
            }
            // Simulates a write that removes a key after the walk read it.
            self.changes.record(&[part, LARGE_KEYS - 1]);
            Ok((part == 0).then_some(1))
        }

        fn hold_key(&self, _: &[u8]) -> Result<HeldOne<'_>> {
            Ok(self.hold())
        }

        fn hold_all(&self) -> Result<HeldOne<'_>> {
            Ok(self.hold())
        }

        fn read_held(&self, _: &HeldOne<'_>, key: &[u8]) -> Result<Option<Entry>> {
            Ok((key[1] != LARGE_KEYS - 1).then(|| Entry::new(key, &vec![key[1]; LARGE_BYTES])))
        }
    }

    /// Fails if the source holds anything.
    struct SinkWithoutLocks<'a>(&'a Cell<u32>, Keys);

    impl CopySink for SinkWithoutLocks<'_> {
        fn add(&mut self, pair: Pair<'_>) -> Result<()> {
            assert_eq!(self.0.get(), 0, "the copier holds something while the sink works");
            assert_eq!(pair.value, vec![pair.key[1]; LARGE_BYTES]);
            self.1.add(pair)
        }

        fn put(&mut self, pair: Pair<'_>) -> Result<()> {
            self.add(pair)
        }

        fn delete(&mut self, key: &[u8]) -> Result<()> {
            assert_eq!(self.0.get(), 0, "the copier holds something while the sink works");
            self.1.delete(key)
        }
    }

    #[test]
    fn the_copier_holds_nothing_while_the_sink_works_and_copies_pairs_that_exceed_a_part() {
        let source = Large::default();
        let mut sink = SinkWithoutLocks(&source.held, Keys::default());
        copy_fuzzy(&source, &mut sink).expect("a copy");
        let keys = |part| (0..LARGE_KEYS - 1).map(move |key| vec![part, key]);
        assert_eq!(sink.1.0, keys(0).chain(keys(1)).collect());
    }

    #[derive(Default)]
    struct Keys(HashSet<Vec<u8>>);

    impl CopySink for Keys {
        fn add(&mut self, pair: Pair<'_>) -> Result<()> {
            self.put(pair)
        }

        fn put(&mut self, pair: Pair<'_>) -> Result<()> {
            self.0.insert(pair.key.to_vec());
            Ok(())
        }

        fn delete(&mut self, key: &[u8]) -> Result<()> {
            self.0.remove(key);
            Ok(())
        }
    }

    #[test]
    fn a_copy_ends_although_many_keys_are_rewritten_in_each_round() {
        let (source, mut keys) = (Busy::default(), Keys::default());
        copy_fuzzy(&source, &mut keys).expect("a copy");
        assert_eq!(keys.0.len(), BUSY_KEYS as usize);
        assert!(!source.changes.is_active());
    }
}

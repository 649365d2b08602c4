//! Shared state of an open store.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, HiddenKeys, Pair, Result, Visit};
use lodestore_index::KeyResolver;
use lodestore_inplace::{Base, FirstDamage, Index, StripeIndex};
use lodestore_media::{NvPtr, Pool};

use crate::backend::{Backend, Retire};
use crate::entry::Entry;
use crate::hash::{Hashed, Signature, Target};
use crate::options::HiKvOptions;
#[cfg(feature = "lab")]
use crate::paper_wal::Wal;
use crate::record::Record;
use crate::sampler::Sampler;
use crate::stripe::Stripes;
use crate::table::{Hit, PREFETCH_BYTES, Segment, Table, damaged_word};
use crate::tree_op::TreeOp;
use crate::walk::walk_from;

/// Keys whose damaged entry a write cleared. The entry's record is unknown. The queued change of
/// the tree therefore names the entry's slot in place of a record, and finds the key here. At most
/// one key per slot; they stay until the store is closed.
#[derive(Default)]
pub(crate) struct ClearedKeys {
    has_any: AtomicBool,
    keys: Mutex<HashMap<u64, Box<[u8]>>>,
}

impl ClearedKeys {
    /// Notes the key whose entry was in `slot`.
    pub(crate) fn insert(&self, slot: NvPtr, key: &[u8]) {
        lock(&self.keys).insert(slot.raw(), key.into());
        self.has_any.store(true, Ordering::Release);
    }

    #[inline]
    fn is_empty(&self) -> bool {
        !self.has_any.load(Ordering::Acquire)
    }

    #[inline]
    fn has(&self, position: NvPtr) -> bool {
        !self.is_empty() && lock(&self.keys).contains_key(&position.raw())
    }

    /// Calls `f` with the key noted for `position`, or else with `found`.
    #[cold]
    fn with<T>(&self, position: u64, found: &[u8], f: impl FnOnce(&[u8]) -> T) -> T {
        let noted = lock(&self.keys).get(&position).cloned();
        f(noted.as_deref().unwrap_or(found))
    }
}

/// Records as the tree sees them: a payload is a position.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) pool: Arc<Pool>,
    pub(crate) cleared: Arc<ClearedKeys>,
}

impl KeyResolver for Records {
    #[inline]
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        // A record in the tree was readable when it was inserted. If its bytes were changed on the
        // medium since, it compares as the key that a write noted, or as the empty key. The order
        // is then wrong, which `verify` finds, but nothing panics.
        match Record::read(&self.pool, NvPtr::from_raw(payload)) {
            Ok(record) if self.cleared.is_empty() => f(record.key()),
            record => self.cleared.with(payload, record.map_or(&[], |record| record.key()), f),
        }
    }

    #[inline]
    fn prefetch(&self, payload: u64) {
        self.pool.prefetch(NvPtr::from_raw(payload).untagged(), 64);
    }

    #[inline]
    fn prefetch_whole(&self, payload: u64) {
        self.pool.prefetch(NvPtr::from_raw(payload).untagged(), PREFETCH_BYTES);
    }
}

impl Retire for Records {
    fn retire(&self, position: NvPtr) {
        if self.cleared.has(position) {
            // A damaged entry may have named another key's record.
            return;
        }
        if let Ok(record) = Record::read(&self.pool, position) {
            self.pool.epochs().retire(&self.pool, position.untagged(), record.len());
        }
    }

    fn is_cleared(&self, position: NvPtr) -> bool {
        self.cleared.has(position)
    }

    fn is_damaged(&self, position: NvPtr) -> bool {
        !Record::read(&self.pool, position).is_ok_and(|record| record.check(position).is_ok())
    }

    fn pinned<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guard = self.pool.epochs().pin();
        work()
    }
}

/// An open store.
pub struct Inner {
    pub(crate) base: Base,
    pub(crate) table: Table,
    pub(crate) stripes: Stripes,
    pub(crate) backend: Backend<Records>,
    pub(crate) records: Records,
    pub(crate) sampler: Arc<Sampler>,
    #[cfg(feature = "lab")]
    pub(crate) wal: Option<Wal>,
    pub(crate) options: HiKvOptions,
    /// An entry was changed since the open: the sorted run of the last stop is stale.
    pub(crate) written: AtomicBool,
    /// Extents of the run that was loaded. The run is kept until the next clean stop.
    pub(crate) run: Mutex<Vec<NvPtr>>,
}

impl Deref for Inner {
    type Target = Base;

    #[inline]
    fn deref(&self) -> &Base {
        &self.base
    }
}

impl Index for Inner {
    type Own = u64;
    type Hash = Hashed;
    type Entry = Entry;
    type Stripe = u64;

    #[inline]
    fn hash_key(&self, key: &[u8]) -> Hashed {
        self.table.placement.hash(key)
    }

    #[inline]
    fn stripe_of(hash: Hashed) -> StripeIndex {
        hash.stripe
    }

    #[inline]
    fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    #[inline]
    fn verifies_reads(&self) -> bool {
        self.options.verify_reads
    }

    fn find_held(&self, target: Target<'_>) -> Result<Option<Hit<'_>>> {
        let sig = target.hash.sig;
        let segment = self.segment(sig)?;
        if self.is_unsettled() {
            self.persist_buckets(segment, sig);
        }
        let found = self.probe_buckets(segment, sig).find(&self.pool, target.key);
        let found = found.inspect_err(|error| self.report_corruption(error))?;
        if found.is_none() {
            self.check_absent(segment, sig)?;
        }
        Ok(found)
    }

    /// A piece is a segment. A key that exists throughout a walk is in the segment that covers its
    /// prefix, before a split and after it.
    fn visit_piece(
        &self,
        partition: usize,
        from: u64,
        verifies: bool,
        wrong: &mut Option<Error>,
        visit: &mut dyn FnMut(Pair<'_>) -> Visit,
    ) -> Result<Option<u64>> {
        let _guard = self.enter()?;
        let mut next = None;
        walk_from(&self.table, &self.pool, (partition, from), |location, slots| {
            next = self.visit_slots(location, slots, verifies, wrong, visit).then(|| location.end());
            Ok(false)
        })?;
        Ok(next)
    }

    /// Waits for the walk after a crash.
    fn check_complete(&self) -> Result<()> {
        if !self.is_careful() {
            return Ok(());
        }
        self.recovery.wait_ordered()?;
        match self.careful_mode.first_damage() {
            None => Ok(()),
            Some(FirstDamage { place, what }) => {
                let what = format!("{what}: keys may be missing from this answer");
                Err(Error::hiding(place, what, HiddenKeys::Unknown))
            }
        }
    }
}

impl Inner {
    /// Returns the segment of this signature.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the directory word is damaged; the owner gets the event.
    #[inline]
    pub(crate) fn segment(&self, sig: Signature) -> Result<Segment> {
        self.table.segment(&self.pool, sig).ok_or_else(|| self.report_damaged_word(sig))
    }

    /// Reports that the directory word of this signature is damaged. Returns the error.
    #[cold]
    pub(crate) fn report_damaged_word(&self, sig: Signature) -> Error {
        let error = damaged_word(self.table.placement.partition(sig));
        self.report_corruption(&error);
        error
    }

    /// Queues a change of the tree after a change of the index.
    #[inline]
    pub(crate) fn enqueue_tree_change(&self, hash: u64, op: TreeOp) {
        if !self.written.load(Ordering::Relaxed) {
            self.written.store(true, Ordering::Relaxed);
        }
        self.backend.enqueue(hash, op);
    }
}

//! The contract of every engine.

use crate::capability::Capabilities;
use crate::condition::{Commit, Condition, RangeCondition};
use crate::copy::CopySink;
use crate::entry::{Entry, Pair};
use crate::error::{Error, Result};
use crate::expiry::{Expiry, Lifetime};
use crate::options::Options;
use crate::range::ScanRange;
use crate::stats::Stats;
use crate::verify::{Progress, VerifyReport};

/// An ordered walk that owns its data. The walk may move to another thread and outlive the caller's
/// handle.
pub type Scan = Box<dyn Iterator<Item = Result<Entry>> + Send + 'static>;

/// Whether a visitor wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// Continue.
    More,
    /// Stop here.
    Stop,
}

/// Result of `compare_and_swap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// The value was as expected and is changed.
    Done,
    /// The value differed; contains the current value.
    Differs(Option<Vec<u8>>),
}

/// The change that an `update_with` closure requests for its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Leave the key as it is.
    Keep,
    /// Store this value, with this lifetime.
    Put(Vec<u8>, Lifetime),
    /// Remove the key.
    Delete,
}

/// The closure of [`Store::update_with`]: receives the current value and expiry of a key, and
/// returns a change. The expiry is `None` if the key is absent, has expired, or does not expire.
pub type ChangeFn<'a> = dyn FnMut(Option<&[u8]>, Option<Expiry>) -> Change + 'a;

/// An operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchOp {
    /// Put a value.
    Put {
        /// Key.
        key: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// Expiry, if any.
        expiry: Option<Expiry>,
    },
    /// Delete a key.
    Delete {
        /// Key.
        key: Vec<u8>,
    },
}

/// Writes that take effect all or not at all, in this order: see [`Store::write`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The operations.
    pub ops: Vec<BatchOp>,
}

/// A fixed view of a store.
pub trait Snapshot: Send + Sync {
    /// Returns the value of `key` in this view.
    ///
    /// # Errors
    /// Those of [`Store::get`].
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get_with_expiry(key)?.map(|(value, _)| value))
    }

    /// Returns the value of `key` in this view, and when the key expires.
    ///
    /// # Errors
    /// Those of [`Store::get`].
    fn get_with_expiry(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>>;

    /// Returns a walk over this view. Its entries report the expiry of their keys.
    ///
    /// # Errors
    /// Those of [`Store::scan`].
    fn scan(&self, range: &ScanRange) -> Result<Scan>;
}

/// A key-value store. All methods may be called from any number of threads.
///
/// Single-key operations are durably linearizable: a write that returned survives at the store's
/// durability, and so does every value that a read returned. Keys hold 1 B to 64 KiB and values up
/// to 1 GiB of opaque bytes ([`limits`](crate::limits)).
///
/// Errors common to all operations: [`Error::KeyLength`], [`Error::ValueLength`],
/// [`Error::Corrupt`], [`Error::Closed`]; to writes: [`Error::Full`], [`Error::DramBudget`],
/// [`Error::Poisoned`].
pub trait Store: Send + Sync {
    /// Returns the engine's name.
    fn engine(&self) -> &'static str;

    /// Returns the engine's optional capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Returns a number that distinguishes the store from all others, the same at each open; `None`
    /// if the engine has none. The number is not 0.
    fn identity(&self) -> Option<u64> {
        None
    }

    /// Returns the options that shape the store, by the names used at its creation. Capacity and
    /// durability are in [`stats`](Store::stats).
    fn creation_options(&self) -> Options {
        Options::new()
    }

    /// Returns a number that each open and each clean close increases by at least 2; 0 if the
    /// engine has none. After a close the number is the one that the next open finds.
    fn opening(&self) -> u64 {
        0
    }

    /// Returns the number that [`set_mark`](Store::set_mark) stored last, and 0 before that. `None`
    /// if the engine has no marks.
    fn mark(&self) -> Option<u64> {
        None
    }

    /// Stores a number of the owner in the store's header, durably. A copy of the store from before
    /// the call has an earlier mark. Does nothing if the engine has no marks.
    ///
    /// # Errors
    /// The common ones.
    fn set_mark(&self, _mark: u64) -> Result<()> {
        Ok(())
    }

    /// Replaces the contents of `value` by the value of `key`, and returns whether there is a
    /// value. If not, `value` is left empty.
    ///
    /// # Errors
    /// The common ones.
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Returns the value of `key`, if there is one.
    ///
    /// # Errors
    /// The common ones.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Calls `with` with the value of `key`, if there is one, and returns whether there is one. The
    /// slice is valid only during the call. `with` runs at most once. Keep `with` short, and do not
    /// call the store from it: the store keeps the value in its place meanwhile.
    ///
    /// # Errors
    /// The common ones. `with` is not called then.
    fn get_with(&self, key: &[u8], with: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut value = Vec::new();
        let is_present = self.get_into(key, &mut value)?;
        if is_present {
            with(&value);
        }
        Ok(is_present)
    }

    /// Returns whether `key` has a value.
    ///
    /// # Errors
    /// The common ones.
    fn contains(&self, key: &[u8]) -> Result<bool>;

    /// Calls `each` with every index of `keys` once, in order, and its value if there is one. Each
    /// key is read at its own moment during the call. The slices are valid only during the call.
    /// `each` must not write to the store.
    ///
    /// # Errors
    /// [`Error::KeyLength`] if any key is refused, before `each` is called. The other common ones,
    /// after `each` was called for the keys before the failing key.
    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;

    /// Returns the expiry of `key`. The outer `None`: the key is absent. The inner `None`: the key
    /// does not expire.
    ///
    /// # Errors
    /// The common ones.
    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>>;

    /// Stores `value` under `key` without an expiry, whether the key is present or not.
    ///
    /// # Errors
    /// The common ones.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_expiring(key, value, None)
    }

    /// Stores `value` under `key` with this expiry, whether the key is present or not.
    ///
    /// # Errors
    /// The common ones.
    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()>;

    /// Stores `value` under `key` only if the key is absent. Returns whether the key was absent.
    /// [`Lifetime::Keep`] means no expiry here, because an absent key has none.
    ///
    /// # Errors
    /// The common ones.
    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool>;

    /// Stores `value` under `key` only if the key is present. Returns whether the key was present.
    /// `lifetime` defines the new expiry of the key. A refused update leaves the expiry unchanged.
    ///
    /// # Errors
    /// The common ones.
    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool>;

    /// Removes `key`, and returns whether it was present.
    ///
    /// # Errors
    /// The common ones.
    fn delete(&self, key: &[u8]) -> Result<bool>;

    /// Sets `key` to `new` (`None`: absent) if its value is `expected` (`None`: absent), as one
    /// step. `new` gets `lifetime`. If the value differs, neither the value nor the expiry changes.
    ///
    /// # Errors
    /// The common ones.
    fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap>;

    /// Applies the change that `change` returns for the key's current value and expiry, as one
    /// step. `change` runs under the key's lock: it must be short and must not call the store. If
    /// the write has to start over, `change` runs again with the newer value and expiry.
    ///
    /// # Errors
    /// The common ones.
    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()>;

    /// Calls `visit` for the keys of `range` in order. Returns the number of visited keys,
    /// including the key at which `visit` returned [`Visit::Stop`].
    ///
    /// The scan contains every write that returned before the scan began. A write in progress may
    /// be missing, even if a get has seen it. The slices are valid only during the call. `visit`
    /// must not write to the store.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the capability; the common ones.
    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize>;

    /// Returns an owned walk over `range`. Its entries report the expiry of their keys.
    ///
    /// Bounds that exclude everything, including inverted bounds, give an empty walk. The walk may
    /// outlive the store's handle; it then continues, or ends after one error.
    ///
    /// # Errors
    /// Those of [`Store::scan_each`].
    fn scan(&self, range: &ScanRange) -> Result<Scan>;

    /// Calls `visit` for every live pair, each key exactly once, in no particular order. Returns
    /// the number of visited pairs, as [`scan_each`](Store::scan_each) does. Keys that are inserted
    /// or removed meanwhile may be shown or not.
    ///
    /// # Errors
    /// The common ones. The walk skips damaged records and continues; a walk that reaches its end
    /// returns the first [`Error::Corrupt`](crate::Error::Corrupt).
    fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        self.for_each_pair(&mut |pair| visit(pair.key, pair.value))
    }

    /// Calls `visit` as [`for_each`](Store::for_each) does, with the expiry of each key. Value and
    /// expiry of a pair are of one moment.
    ///
    /// # Errors
    /// Those of [`for_each`](Store::for_each).
    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64>;

    /// Writes all of `batch` or nothing, for any keys and through any crash. The operations take
    /// effect in their order, so the last operation on a key wins. The delete of an absent key does
    /// nothing. A batch without operations does nothing.
    ///
    /// To readers of single keys, and to writers, a batch is one step: a get that begins after
    /// another get has seen one key of the batch sees all of it. A walk (`scan`, `for_each`) may
    /// show a part of a batch in progress, and shows all of a batch whose `write` returned before
    /// the walk began. Each key of a `multi_get` is read at its own moment.
    ///
    /// The number of operations ([`limits::BATCH_OPS_MAX`](crate::limits::BATCH_OPS_MAX)), keys and
    /// values are checked before anything is done.
    ///
    /// In addition to the space of the values, an engine needs one contiguous block for its log. A
    /// full store may therefore refuse a batch that only deletes, and a batch may be too large for
    /// a store that is not full. [`Error::Full`] then reports the bytes of that block, and several
    /// smaller batches succeed. An engine whose log holds the keys, or more, refuses a batch whose
    /// block is longer than one region of the store. An index in DRAM may also limit the operations
    /// of a batch ([`Error::DramBudget`]).
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the capability; [`Error::BatchLength`]; the common ones. On
    /// error nothing is changed, except after [`Error::Poisoned`] or [`Error::Io`]: then the next
    /// open may find the batch applied or not.
    fn write(&self, batch: &Batch) -> Result<()> {
        self.write_if(&[], batch).map(|_| ())
    }

    /// Writes all of `batch` if every condition is met, else nothing. Check and write are one step:
    /// no other write of a key of a condition or of the batch comes between.
    ///
    /// A key may be in several conditions and in the batch. An empty batch checks the conditions,
    /// all at one moment. [`Commit::Unmet`] names the first condition that is not met; nothing is
    /// changed then. At most [`limits::BATCH_OPS_MAX`](crate::limits::BATCH_OPS_MAX) conditions are
    /// accepted. Limits, visibility and durability are the same as for [`write`](Store::write).
    /// Conditions see the state before the batch. An unmet condition takes precedence over a lack
    /// of space.
    ///
    /// # Errors
    /// Those of [`write`](Store::write). [`Error::Corrupt`] if a key of a condition is damaged,
    /// even if the batch replaces it.
    fn write_if(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        let _ = (conditions, batch);
        Err(Error::Unsupported {
            engine: self.engine(),
            what: "atomic batches".into(),
            instead: "write the keys one by one",
        })
    }

    /// Does the same as [`write_if`](Store::write_if), with conditions on ranges too: no other
    /// write of any key in the ranges comes between check and write. An absent key is therefore
    /// known to be still absent.
    ///
    /// The engine blocks all writes while it walks the ranges, so they should be short. All ranges
    /// and their keys together are at most [`limits::BATCH_OPS_MAX`](crate::limits::BATCH_OPS_MAX).
    ///
    /// # Errors
    /// Those of [`write_if`](Store::write_if); [`Error::Unsupported`] without the capability
    /// `range_conditions`, if there are ranges.
    fn write_if_ranges(&self, conditions: &[Condition], ranges: &[RangeCondition], batch: &Batch) -> Result<Commit> {
        if ranges.is_empty() {
            return self.write_if(conditions, batch);
        }
        Err(Error::Unsupported {
            engine: self.engine(),
            what: "conditions on ranges".into(),
            instead: "use conditions on keys, or an engine with snapshots (fluidkv, hashkv)",
        })
    }

    /// Returns a fixed view of the store as it is now.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the capability.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Err(Error::Unsupported {
            engine: self.engine(),
            what: "snapshots".into(),
            instead: "use scan, which reads committed pairs",
        })
    }

    /// Passes all live pairs to `sink`, as they are at one moment of this call. A batch is in the
    /// copy completely or not at all. Reads and writes continue meanwhile; an engine without
    /// snapshots may let a write wait for the copy, at most 40 ms. Pairs come in no particular
    /// order. A key may come more than once; its last pair counts. `sink` must not call the store.
    ///
    /// # Errors
    /// Those of `sink`; [`Error::Corrupt`] if a pair is damaged, or pairs may be missing;
    /// [`Error::Unfinished`] if more keys change than the copy can follow; [`Error::Unsupported`]
    /// without the capability; the common ones. The copy is useless then.
    fn copy_all(&self, sink: &mut dyn CopySink) -> Result<()> {
        let view = self.snapshot()?;
        for entry in view.scan(&ScanRange::all())? {
            sink.add(entry?.pair())?;
        }
        Ok(())
    }

    /// Returns the number of live keys. Expired keys count until they are swept. An open after a
    /// crash may count swept keys again.
    ///
    /// # Errors
    /// The common ones.
    fn len(&self) -> Result<u64>;

    /// Returns whether there is no live key.
    ///
    /// # Errors
    /// The common ones.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the store's statistics.
    fn stats(&self) -> Stats;

    /// Makes every operation that returned before this call survive power loss, if the medium
    /// supports it.
    ///
    /// # Errors
    /// [`Error::DurabilityRefused`] if the medium does not support it; [`Error::Io`], after which
    /// the store is poisoned.
    fn sync(&self) -> Result<()>;

    /// Flushes and compacts: runs the background work of writes that is due or would become due,
    /// and moves buffered data to where reads are fastest. Never required; useful before
    /// measurements and planned stops. Engines without such work return at once.
    ///
    /// An error reports that not everything was done, and why, the most severe cause first. The
    /// remaining work was done, no data is lost, and the store continues.
    ///
    /// # Errors
    /// The common ones; [`Error::Full`] if there is not enough space; [`Error::Corrupt`] if damage
    /// prevents the work; [`Error::Unfinished`] if concurrent writes are so fast that the work has
    /// no end.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until the background recovery of the open has ended; [`stats`](Store::stats) then
    /// reports it as done.
    ///
    /// # Errors
    /// The error that stopped the recovery.
    fn wait_recovered(&self) -> Result<()>;

    /// Reads and checks everything. `progress` is called now and then, at least once, and never
    /// decreases.
    ///
    /// # Errors
    /// The common ones. Damage on the medium is in the report instead.
    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport>;

    /// Stops the store cleanly, so that the next open is fast. Later calls return
    /// [`Error::Closed`]. Closing twice is no error; a close concurrent with another close returns
    /// when the store is closed.
    ///
    /// The store is closed even if this returns an error, and no acknowledged write is lost. A full
    /// store closes like any other.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Poisoned`] if the store already refused writes, and its state is
    /// then as after a crash; [`Error::Corrupt`] if the close found damage, which is left as it is.
    fn close(&self) -> Result<()>;
}

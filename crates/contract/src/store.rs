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

/// An ordered walk that owns what it needs: it may move to another thread and outlive the caller's handle.
pub type Scan = Box<dyn Iterator<Item = Result<Entry>> + Send + 'static>;

/// Whether a visitor wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// Go on.
    More,
    /// Stop here.
    Stop,
}

/// What `compare_and_swap` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// The value was as expected and is changed.
    Done,
    /// It was not; this is what is there.
    Differs(Option<Vec<u8>>),
}

/// What an `update_with` closure wants done with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Leave it as it is.
    Keep,
    /// Give it this value, and this lifetime.
    Put(Vec<u8>, Lifetime),
    /// Remove it.
    Delete,
}

/// The closure of [`Store::update_with`]: answers with a change to the present value and expiry of
/// a key. The expiry is `None` if the key is absent, has expired, or does not expire.
pub type ChangeFn<'a> = dyn FnMut(Option<&[u8]>, Option<Expiry>) -> Change + 'a;

/// One operation of a batch.
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

/// Writes that happen all or not at all, in this order: see [`Store::write`].
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
    /// As [`Store::get`].
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get_with_expiry(key)?.map(|(value, _)| value))
    }

    /// Returns the value of `key` in this view, and when the key expires.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn get_with_expiry(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>>;

    /// A walk over this view. Its entries report the expiry of their keys.
    ///
    /// # Errors
    /// As [`Store::scan`].
    fn scan(&self, range: &ScanRange) -> Result<Scan>;
}

/// A key-value store. All methods may be called from any number of threads.
///
/// Single-key operations are durably linearizable: a write that returned
/// survives at the store's durability, and so does whatever a read returned.
/// Keys hold 1 B to 64 KiB and values up to 1 GiB of opaque bytes ([`limits`](crate::limits)).
///
/// Errors common to all: [`Error::KeyLength`], [`Error::ValueLength`], [`Error::Corrupt`],
/// [`Error::Closed`]; to writes: [`Error::Full`], [`Error::DramBudget`], [`Error::Poisoned`].
pub trait Store: Send + Sync {
    /// The engine's name.
    fn engine(&self) -> &'static str;

    /// What it can do beyond the core.
    fn capabilities(&self) -> Capabilities;

    /// Returns a number that distinguishes the store from all others, the same at each open; `None`
    /// if the engine has none. The number is not 0.
    fn identity(&self) -> Option<u64> {
        None
    }

    /// Returns the options that shape the store, by the names under which its creation was given
    /// them. Capacity and durability are in [`stats`](Store::stats).
    fn creation_options(&self) -> Options {
        Options::new()
    }

    /// Returns a number that each open and each clean close raises by at least 2; 0 if the engine
    /// has none. After a close the number is the one that the next open finds.
    fn opening(&self) -> u64 {
        0
    }

    /// Replaces the contents of `value` by the value of `key`; whether there is one.
    /// Without one `value` is left empty.
    ///
    /// # Errors
    /// The common ones.
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// The value of `key`, if there is one.
    ///
    /// # Errors
    /// The common ones.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Calls `with` with the value of `key`, if there is one. Returns whether there is one. The
    /// slice is valid during the call only. `with` runs at most once. Keep `with` short, and do not
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

    /// Whether there is a value of `key`.
    ///
    /// # Errors
    /// The common ones.
    fn contains(&self, key: &[u8]) -> Result<bool>;

    /// Calls `each` with every index of `keys` once, in order, and its value if there is one.
    /// Each key is read at a moment of its own during the call. The slices are valid during the call only; `each` must not
    /// write to the store.
    ///
    /// # Errors
    /// [`Error::KeyLength`] if any key is refused, before `each` is called; the other common ones, after
    /// `each` was called for the keys before the one that failed.
    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;

    /// The expiry of `key`: outer `None` where there is no such key, inner where it does not expire.
    ///
    /// # Errors
    /// The common ones.
    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>>;

    /// Gives `key` this value and no expiry, whether it was there or not.
    ///
    /// # Errors
    /// The common ones.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_expiring(key, value, None)
    }

    /// Gives `key` this value and this expiry, whether it was there or not.
    ///
    /// # Errors
    /// The common ones.
    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()>;

    /// Stores `value` under `key` only if the key is absent. Returns whether it was.
    /// [`Lifetime::Keep`] means no expiry here: an absent key has none.
    ///
    /// # Errors
    /// The common ones.
    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool>;

    /// Stores `value` under `key` only if the key is present. Returns whether it was. `lifetime`
    /// says what happens to the expiry of the key; a refused update leaves the expiry as it is.
    ///
    /// # Errors
    /// The common ones.
    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool>;

    /// Removes `key`; whether it was there.
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

    /// Changes `key` as `change` answers to its present value and expiry, as one step.
    /// `change` runs under the key's lock: it must be short and must not call the store. If the
    /// write has to start over, `change` runs again with the newer value and expiry.
    ///
    /// # Errors
    /// The common ones.
    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()>;

    /// Calls `visit` for the keys of `range` in order; how many it visited, the one at which it said
    /// [`Visit::Stop`] included. Every write that returned before the scan began is in it; one under way may not
    /// be, even if a get has seen it. The slices are valid during the call only; `visit` must not write to the store.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the capability; the common ones.
    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize>;

    /// An owned walk over `range`. Its entries report the expiry of their keys.
    ///
    /// Bounds that exclude everything, inverted ones too, give an empty one.
    /// It may outlive the store's handle; it then goes on, or ends after one error.
    ///
    /// # Errors
    /// As [`Store::scan_each`].
    fn scan(&self, range: &ScanRange) -> Result<Scan>;

    /// Calls `visit` for every live pair, each key exactly once, in no particular order; how many it
    /// visited, as [`scan_each`](Store::scan_each). Keys that come or go meanwhile may be shown or not.
    ///
    /// # Errors
    /// The common ones. A record that is damaged is left out and the walk goes on; the first [`Error::Corrupt`](crate::Error::Corrupt)
    /// is the result of a walk that came to its end.
    fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        self.for_each_pair(&mut |pair| visit(pair.key, pair.value))
    }

    /// Calls `visit` as [`for_each`](Store::for_each) does, with the expiry of each key. Value and
    /// expiry of a pair are of one moment.
    ///
    /// # Errors
    /// As [`for_each`](Store::for_each).
    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64>;

    /// Writes all of `batch` or nothing, over any keys, whatever crash comes. Its operations take effect in their order, so the last one
    /// of a key is what stays; the delete of an absent key does nothing. A batch without operations does nothing.
    ///
    /// To readers of single keys, and to writers, it is one step: a get that begins after another get has seen one key of the batch
    /// sees all of it. A walk (`scan`, `for_each`) may show a part of a batch that is under way; all of it where `write` returned before the
    /// walk began. Each key of a `multi_get` is read at a moment of its own.
    ///
    /// Number of operations ([`limits::BATCH_OPS_MAX`](crate::limits::BATCH_OPS_MAX)), keys and values are checked before anything is
    /// done. Besides the room that the values take, an engine needs some for its log, in one piece; so a full store may refuse a batch that only deletes, and a batch
    /// may be too large for a store that is not full: then [`Error::Full`] has the bytes of that piece, and several smaller batches do it. An engine whose log has the
    /// keys, or more, takes no batch whose piece is longer than one region of the store. An index in DRAM may bound the operations of a batch as well
    /// ([`Error::DramBudget`]).
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the capability; [`Error::BatchLength`]; the common ones. But for [`Error::Poisoned`] and
    /// [`Error::Io`], after which the next open may find the batch done or not, nothing is changed.
    fn write(&self, batch: &Batch) -> Result<()> {
        self.write_if(&[], batch).map(|_| ())
    }

    /// Writes all of `batch` if every condition is met, else nothing. Check and write are one step:
    /// no other write of a key of a condition or of the batch comes between.
    ///
    /// A key may be in several conditions and in the batch. An empty batch checks the conditions,
    /// all at one moment. [`Commit::Unmet`] names the first condition that is not met; nothing is
    /// changed then. At most [`limits::BATCH_OPS_MAX`](crate::limits::BATCH_OPS_MAX) conditions
    /// are accepted. Limits, visibility and durability are those of [`write`](Store::write).
    /// Conditions see the state before the batch. An unmet condition takes precedence over a lack
    /// of space.
    ///
    /// # Errors
    /// As [`write`](Store::write). [`Error::Corrupt`] if a key of a condition is damaged, even if
    /// the batch replaces it.
    fn write_if(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        let _ = (conditions, batch);
        Err(Error::Unsupported {
            engine: self.engine(),
            what: "atomic batches".into(),
            instead: "write the keys one by one",
        })
    }

    /// As [`write_if`](Store::write_if), with conditions on ranges too: no other write of any key
    /// in the ranges comes between check and write. So an absent key is known to be absent still.
    ///
    /// The engine blocks all writes while it walks the ranges: they should be short. All ranges and
    /// their keys together are at most [`limits::BATCH_OPS_MAX`](crate::limits::BATCH_OPS_MAX).
    ///
    /// # Errors
    /// As [`write_if`](Store::write_if); [`Error::Unsupported`] without the capability
    /// `range_conditions`, if there are ranges.
    fn write_if_ranges(&self, conditions: &[Condition], ranges: &[RangeCondition], batch: &Batch) -> Result<Commit> {
        if ranges.is_empty() {
            return self.write_if(conditions, batch);
        }
        Err(Error::Unsupported {
            engine: self.engine(),
            what: "conditions on ranges".into(),
            instead: "conditions on keys, or an engine with snapshots (fluidkv, hashkv)",
        })
    }

    /// A fixed view of the store as it is now.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the capability.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Err(Error::Unsupported {
            engine: self.engine(),
            what: "snapshots".into(),
            instead: "scan, which reads committed pairs",
        })
    }

    /// Hands all live pairs to `sink`, as they are at one moment of this call. A batch is in the
    /// copy whole or not at all. Reads and writes go on meanwhile; an engine without snapshots may
    /// let a write wait for the copy, at most 40 ms. Pairs come in no particular order, and a key
    /// may come more than once: its last one counts. `sink` must not call the store.
    ///
    /// # Errors
    /// Those of `sink`; [`Error::Corrupt`] if a pair is damaged, or pairs may be missing;
    /// [`Error::Unfinished`] if more keys change than the copy can follow;
    /// [`Error::Unsupported`] without the capability; the common ones. The copy is useless then.
    fn copy_all(&self, sink: &mut dyn CopySink) -> Result<()> {
        let view = self.snapshot()?;
        for entry in view.scan(&ScanRange::all())? {
            sink.add(entry?.pair())?;
        }
        Ok(())
    }

    /// Live keys. Expired keys count until they are swept. An open after a crash may count swept
    /// ones again.
    ///
    /// # Errors
    /// The common ones.
    fn len(&self) -> Result<u64>;

    /// Whether there is no live key.
    ///
    /// # Errors
    /// The common ones.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The store's account of itself.
    fn stats(&self) -> Stats;

    /// Makes everything that returned before this call survive power loss, where the medium can.
    ///
    /// # Errors
    /// [`Error::DurabilityRefused`] where it cannot; [`Error::Io`], after which the store is poisoned.
    fn sync(&self) -> Result<()>;

    /// Does the work behind writes that is due or would be some time: what is buffered goes to where reads find it quickest. Nothing
    /// needs it; measurements and planned stops do well with it. Engines without such work return at once.
    ///
    /// An error says that not everything was done, and why: first what is gravest. What could be done was done, nothing is lost by it, and the store goes on.
    ///
    /// # Errors
    /// The common ones; [`Error::Full`] where there is no room for it, [`Error::Corrupt`] where damage is in its way, [`Error::Unfinished`] where others write
    /// so fast that it has no end.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until recovery behind the open has ended, then [`stats`](Store::stats) says so.
    ///
    /// # Errors
    /// What recovery met that stops it.
    fn wait_recovered(&self) -> Result<()>;

    /// Reads and checks everything; `progress` is called now and then, at least once, and never goes back.
    ///
    /// # Errors
    /// The common ones; what is wrong on the medium is in the report instead.
    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport>;

    /// Stops the store cleanly, so that the next open is quick. Later calls answer
    /// [`Error::Closed`]; closing twice is no error, and a close beside another returns when the store is closed.
    ///
    /// The store is closed whatever this answers, and nothing that was acknowledged is lost by it. A full store closes as any other.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Poisoned`] where the store took no writes any more: it is then as after a crash. [`Error::Corrupt`] where the close met
    /// damage, which is left as it is.
    fn close(&self) -> Result<()>;
}

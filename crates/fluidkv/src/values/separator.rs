//! The interface of a separator, which keeps values outside the tables, and the values that a flush
//! or a compaction reports to it. `background/separate.rs` calls it.

use lodestore_contract::{Result, VerifyReport};

/// A value that a flush hands to the separator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Separable<'a> {
    /// The key of the value.
    pub key: &'a [u8],
    /// The value as it was written.
    pub value: &'a [u8],
}

/// Keeps values separated from the tables: see
/// [`FluidKv::start_separating`](crate::FluidKv::start_separating) (HashKV, ATC 2018, section 3).
///
/// Called on a worker's thread, or on the caller's with `workers` 0 and in `settle` and `close`.
/// Never called before [`FluidKv::begin_workers`](crate::FluidKv::begin_workers). A panic in it
/// poisons the store. Reads of the store and [`FluidKv::replace`](crate::FluidKv::replace) are
/// allowed. Other writes and `settle` are forbidden: they may wait for this same flush. While the
/// store closes, all of these return [`Error::Closed`](lodestore_contract::Error::Closed).
pub trait Separator: Send + Sync + 'static {
    /// Returns whether the live value of a key goes to [`separate`](Self::separate). Must be cheap:
    /// called for each value of a memtable that is flushed.
    fn wants(&self, key: &[u8], value: &[u8]) -> bool;

    /// Returns the bytes that the tables hold instead of each value, in the order of `values`;
    /// `None` keeps the value itself. The keys ascend. A call has at most 65,536 values; a larger
    /// memtable needs several calls. On return, the separator's writes are as durable as the store
    /// promises. Calls are serial and hold none of the store's locks. A value that was answered for
    /// is not handed over again in the same process.
    ///
    /// Until [`published`](Self::published) is called, nothing in the store names the answers, and
    /// the separator must keep them.
    ///
    /// # Errors
    /// Any error fails the flush, and the values stay in the log. The store retries it as it does
    /// failed flushes ([`Error::Full`](lodestore_contract::Error::Full) and
    /// [`Error::Io`](lodestore_contract::Error::Io) may pass).
    ///
    /// # Panics The store panics if the answers are not as many as the values, or if an answer is
    /// longer than 2^30 + 16 bytes.
    fn separate(&self, values: &[Separable<'_>]) -> Result<Vec<Option<Box<[u8]>>>>;

    /// Called once after each flush, before its [`died`](Self::died). All answers of
    /// [`separate`](Self::separate) are now durable in the tables, and visible to reads and
    /// [`FluidKv::replace`](crate::FluidKv::replace).
    fn published(&self) {}

    /// Returns whether the store may name any answer of [`separate`](Self::separate). If not,
    /// [`died`](Self::died) is not called. Called once after each flush, after
    /// [`published`](Self::published).
    fn holds(&self) -> bool {
        true
    }

    /// Frees capacity that the separator uses outside the regions
    /// (`lodestore_media::Pool::take_beside`). Called when a write does not fit in the pool after
    /// all possible flushes and compactions. Holds none of the store's locks; any number of threads
    /// may call it. Calls of [`FluidKv::replace`](crate::FluidKv::replace) are allowed.
    ///
    /// # Errors
    /// Errors that make the write fail: [`Error::Poisoned`](lodestore_contract::Error::Poisoned)
    /// and the like. Having nothing to free is not an error.
    fn make_room(&self) -> Result<()> {
        Ok(())
    }

    /// Makes all writes of the separator durable before it returns. Called while the store closes,
    /// after all possible flushes. After this the pool records a clean stop, whatever the
    /// durability.
    ///
    /// # Errors
    /// Any error makes the stop unclean.
    fn closing(&self) -> Result<()> {
        Ok(())
    }

    /// Verifies the separator's data piece by piece, for a background scrub. Calls `piece` with the
    /// report of each piece, holding none of its own locks, and returns when `piece` returns false.
    fn verify_pieces(&self, piece: &mut dyn FnMut(VerifyReport) -> bool) {
        let _ = piece;
    }

    /// Reports stored values that no longer belong to a key. A value dies in one of these ways:
    /// * A durable flush hid it, the newest stored value of a key in the tables, under a newer
    ///   version or a delete.
    /// * [`FluidKv::replace`](crate::FluidKv::replace) put it, and another write replaced it before
    ///   its flush.
    /// * The value expired, and a flush or a compaction dropped it.
    ///
    /// A call has up to about 256 values, in no order. Calls are serial, and each value is reported
    /// once. A snapshot or a scan may still show the values. Not reported: values that expire
    /// before their range is compacted, values unreadable because of damage, values in FluidKV's
    /// own value log. After a crash following the flush, values not reported by then are not
    /// reported either.
    fn died(&self, stored: &[&[u8]]);
}

/// A key and its stored value, owned.
pub(crate) type StoredPair = (Box<[u8]>, Box<[u8]>);

/// Expired pairs that a flush or a merge dropped.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    pub(crate) keys: u64,
    /// Keys and stored values for the separator.
    pub(crate) stored: Vec<StoredPair>,
}

impl Expired {
    pub(crate) fn count(&mut self) {
        self.keys += 1;
    }

    /// Keeps a stored value for the separator.
    pub(crate) fn add(&mut self, key: &[u8], stored: &[u8]) {
        self.stored.push((key.into(), stored.into()));
    }

    pub(crate) fn merge(&mut self, mut other: Self) {
        self.keys += other.keys;
        self.stored.append(&mut other.stored);
    }
}

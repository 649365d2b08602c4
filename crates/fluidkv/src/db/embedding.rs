//! The operations of a store for an engine built on it: `hashkv` keeps large values outside of the
//! tables ([`Separator`]), and moves them.

use std::ops::Bound;
use std::sync::Arc;

#[cfg(doc)]
use lodestore_contract::Store;
use lodestore_contract::limits::check_key;
use lodestore_contract::{Batch, Commit, Error, Result, Visit};
use lodestore_media::{OpenReport, Pool};

use crate::db::batch::Conditions;
use crate::db::replace::Replace;
use crate::db::store::FluidKv;
use crate::options::FluidOptions;
use crate::space::reserve::SpaceBalance;
use crate::values::separator::Separator;

/// For engines built on this one.
impl FluidKv {
    /// Like [`FluidKv::start`], for a store whose flushes hand values to `separator`. Stored values
    /// may then have 2^30 + 16 bytes, so that the owner can mark them. Each open needs the same
    /// separator, or one that knows the earlier answers.
    ///
    /// The owner starts the threads with [`FluidKv::begin_workers`] when it knows the stored
    /// values. Nothing is flushed before.
    ///
    /// # Errors
    /// Those of [`FluidKv::create`] and [`FluidKv::open`].
    pub fn start_separating(
        pool: Arc<Pool>,
        report: &OpenReport,
        options: &FluidOptions,
        separator: Arc<dyn Separator>,
    ) -> Result<Self> {
        Self::start_with(pool, report, options, Some(separator))
    }

    /// Puts `new` for each key whose newest version is a live value equal to `old`, and keeps the
    /// expiry. Other keys are unchanged. Returns which keys were replaced, in the order of `moves`;
    /// each move sees the moves before it.
    ///
    /// Durable on return, with one fence or group for up to 256 keys and about 64 KiB of log. Such
    /// a record is stored whole or not at all. Readers may see part of it before the rest. Does not
    /// wait for a flush, and is not throttled when flushes lag: the caller bounds the moved bytes.
    /// May be called from within [`Separator::separate`].
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`], [`Error::Closed`], [`Error::KeyLength`],
    /// [`Error::ValueLength`]; [`Error::Corrupt`] if a key's value cannot be read. Moves in records
    /// before the failed one are done.
    pub fn replace(&self, moves: &[Replace<'_>]) -> Result<Vec<bool>> {
        let inner = &self.running.inner;
        inner.replace(moves).inspect_err(|error| inner.report_corruption(error))
    }
    /// Like [`Store::get_into`], for background work. Many counted reads start compactions sooner;
    /// this read is not counted.
    ///
    /// # Errors
    /// Those of [`Store::get_into`].
    pub fn peek_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let inner = &self.running.inner;
        inner.peek_into(key, value).inspect_err(|error| inner.report_corruption(error))
    }

    /// Like [`Store::write_if_ranges`], but the caller evaluates the conditions.
    ///
    /// # Errors
    /// Those of [`Store::write_if_ranges`], and of the closures in `conditions`.
    pub fn write_checked(&self, conditions: &mut Conditions<'_, '_>, batch: &Batch) -> Result<Commit> {
        conditions.keys.iter().try_for_each(|key| check_key(key))?;
        let inner = &self.running.inner;
        let written = inner.write_batch(batch, conditions);
        written
            .or_else(|error: Error| Commit::after_refusal(error, || inner.write_batch(&Batch::default(), conditions)))
    }

    /// Returns whether a value or a delete of a key waits in the logs for its flush. If so, the
    /// tables may hold an older version.
    ///
    /// # Errors
    /// Those of [`Store::get_into`].
    pub fn is_buffered(&self, key: &[u8]) -> Result<bool> {
        let inner = &self.running.inner;
        inner.is_buffered(key).inspect_err(|error| inner.report_corruption(error))
    }

    /// Reads the flushed values of these ascending keys that are stored in tables, not in the value
    /// log. For a [`Separator`], these are the values that the handed values replace. Calls `each`
    /// with a key's index in `keys` and its value, in any order, and not at all for a key without a
    /// value. Not counted, like [`FluidKv::peek_into`]. The answers are hints: filters are not
    /// verified, so damage can hide a key.
    ///
    /// # Errors
    /// Those of [`Store::get_into`]. Before [`Error::Corrupt`] is returned, `each` is called for
    /// all readable keys.
    pub fn peek_tables(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let inner = &self.running.inner;
        inner.peek_tables(keys, each).inspect_err(|error| inner.report_corruption(error))
    }

    /// Calls `each` with each key that has a value in the tables, the newest value there, and
    /// whether it is live; then with the entries of each memtable. Large values of the value log
    /// and deletes are left out. For an engine built on this one whose stored values name locations
    /// of its own ([`FluidKv::start_separating`]). The calls include every value that a read after
    /// the begin of this call may return. They also include every value that
    /// [`Separator::died`] may report; an expired value is not live.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Corrupt`] if the calls are incomplete.
    #[expect(clippy::type_complexity, reason = "a key, its stored value, and whether it is live")]
    pub fn each_stored(&self, each: &mut dyn FnMut(&[u8], &[u8], bool)) -> Result<()> {
        self.running.inner.each_stored(each)
    }

    /// Calls `visit` with each key from `from` on that has a live value in the tables, and its
    /// newest value there, until `visit` returns stop. Values in the value log are left out.
    /// Memtables may have newer versions.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Corrupt`].
    pub fn each_flushed(&self, from: Bound<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<()> {
        self.running.inner.each_flushed(from, visit)
    }

    /// Stops the store as dropping it does, which is a crash for the medium, and waits for its
    /// threads. For an owner whose [`Separator`] holds the store at times: dropping the owner's
    /// handle may not drop the last one.
    pub fn halt(&self) {
        self.running.halt();
    }

    /// Returns whether the store is closed or closing. Then [`FluidKv::replace`] returns
    /// [`Error::Closed`], while memtables may still be flushed.
    pub fn is_closed(&self) -> bool {
        !self.running.inner.open.is_open()
    }

    /// Returns the bytes of the capacity that must stay free of other use outside the regions
    /// (`lodestore_media::Pool::take_beside`). Flushes, compactions, deletes and some more puts
    /// need them.
    pub fn reserved_bytes(&self) -> u64 {
        let SpaceBalance { required, free } = self.space_balance();
        required.saturating_sub(free)
    }

    /// Returns the bytes free in the regions beyond the required space. No other owner can use
    /// them.
    pub fn free_bytes_in_regions(&self) -> u64 {
        let SpaceBalance { required, free } = self.space_balance();
        free.saturating_sub(required)
    }

    /// Merges tables of which a large share has expired, so that the separator learns of it.
    /// Returns whether there were any. Cheap if there are none and each table was examined before.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], and the errors of a flush.
    pub fn merge_expired(&self) -> Result<bool> {
        self.running.inner.merge_expired()
    }

    /// Returns the bytes that background work and some more puts need, and the free bytes.
    fn space_balance(&self) -> SpaceBalance {
        let inner = &self.running.inner;
        let view = inner.view.load();
        let percent = u64::from(inner.options.buffer_percent);
        let buffers =
            view.ranges.list.iter().map(|range| (range.stable.bytes * percent / 100).saturating_sub(range.run_bytes()));
        inner.reserve.balance(&inner.pool, view.active.log_limit(), buffers.sum())
    }
}

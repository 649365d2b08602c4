//! Writes tables to the medium from items.
//!
//! Each table is built in DRAM and stored once, into its own extent. All tables are durable after
//! the fence of [`Output::finish`]. Nothing names them before that; if dropped unnamed, they free
//! their extents.

use std::sync::Arc;

use lodestore_contract::{Error, Result};

use crate::background::scheduler::Background;
use crate::layout::KIND_TABLE;
use crate::space::gauge::Building;
use crate::sst::{Item, ItemKind, TableBuilder, TableOptions, hash};
use crate::values::Dead;
use crate::values::record::Pointer;
use crate::values::separator::Expired;
use crate::version::cursor::Pair;
use crate::version::known::Known;
use crate::version::manifest::{Key, TableDescriptor};
use crate::version::tables::{NEVER_STALE_MILLIS, TableHandle};

/// Tables that are written but not named yet: freed when dropped.
struct Unnamed(Vec<Arc<TableHandle>>);

impl Drop for Unnamed {
    fn drop(&mut self) {
        self.0.iter().for_each(|table| table.set_removed());
    }
}

pub(crate) struct Output<'a> {
    inner: &'a Background,
    options: &'a TableOptions,
    /// Whether tables may be no longer than the pieces that the reserve holds.
    serial: bool,
    /// Bytes at which a table ends.
    table_bytes: usize,
    /// Keys at which a table must end, ascending; passed keys are removed.
    cuts: &'a [Key],
    builder: Option<(TableBuilder, u64)>,
    /// The last key of the ended tables; empty if there is none.
    ended: Vec<u8>,
    done: Unnamed,
    /// Whether deletes are dropped, since nothing older is left for them to hide.
    bottom: bool,
    /// Large values of dropped items, and their bytes in the table that is being written.
    dead: Dead,
    expired: Expired,
    pointer_bytes: u64,
    /// Whether an item in the table that is being written expires.
    expires: bool,
    _building: Building<'a>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(inner: &'a Background, options: &'a TableOptions, cuts: &'a [Key], bottom: bool) -> Self {
        let done = Unnamed(Vec::new());
        let serial = inner.scheduler.is_serial();
        let table_bytes = options.table_bytes;
        let building = Building::new(&inner.dram.built, table_bytes);
        Self {
            inner,
            options,
            serial,
            table_bytes,
            cuts,
            builder: None,
            ended: Vec::new(),
            done,
            bottom,
            dead: Dead::default(),
            expired: Expired::default(),
            pointer_bytes: 0,
            expires: false,
            _building: building,
        }
    }

    /// Adds a pair.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::Corrupt`] if its key is not above all earlier keys: an input table
    /// of the merge has changed since it was written.
    #[inline]
    pub(crate) fn add(&mut self, pair: &Pair<'_>) -> Result<()> {
        let item = match pair.known {
            known if self.bottom && !known.is_live() => {
                if !matches!(known, Known::Deleted) {
                    self.expired.count();
                }
                if let Known::Pointer(pointer, _) = known {
                    self.dead.add(pair.key, pointer);
                }
                if let Known::Value(stored, _) = known
                    && self.inner.separator.is_some()
                {
                    self.expired.add(pair.key, stored);
                }
                return Ok(());
            }
            Known::Value(value, expiry) => Item { key: pair.key, kind: ItemKind::Value, expiry, value },
            Known::Pointer(value, expiry) => Item { key: pair.key, kind: ItemKind::Pointer, expiry, value },
            Known::Deleted => Item { key: pair.key, kind: ItemKind::Tombstone, expiry: None, value: &[] },
        };
        let full = self.builder.as_ref().is_some_and(|(builder, _)| {
            let bytes = builder.bytes() + item.key.len() + item.value.len();
            bytes >= self.table_bytes
        });
        let mut cut = full;
        while let Some((_, rest)) = self.cuts.split_first().filter(|(first, _)| ***first <= *item.key) {
            self.cuts = rest;
            cut = true;
        }
        if cut {
            self.end_table()?;
        }
        if self.serial && self.builder.is_none() {
            self.table_bytes = self.options.table_bytes.min(self.inner.reserve.longest_piece() as usize);
        }
        let (builder, _) = self.builder.get_or_insert_with(|| {
            let identity = self.inner.identities.next();
            (TableBuilder::new(self.options, identity), identity)
        });
        if item.key <= builder.last_key().unwrap_or(&self.ended) {
            return Err(disordered());
        }
        builder.add(&item, hash(item.key));
        self.expires |= item.expiry.is_some();
        if let Known::Pointer(pointer, _) = pair.known {
            self.pointer_bytes += u64::from(Pointer::decode(pointer).len);
        }
        Ok(())
    }

    fn end_table(&mut self) -> Result<()> {
        let Some((builder, identity)) = self.builder.take().filter(|(builder, _)| !builder.is_empty()) else {
            return Ok(());
        };
        let pool = &self.inner.pool;
        let built = builder.finish();
        self.ended.clone_from(&built.last_key);
        let bytes = built.bytes.len() as u64;
        let at = self.inner.reserve.alloc(pool, bytes, KIND_TABLE)?;
        pool.store_and_flush(at, &[&built.bytes]);
        let descriptor = TableDescriptor {
            at,
            bytes,
            identity,
            items: built.items.into(),
            tombstones: built.tombstones.into(),
            pointer_bytes: std::mem::take(&mut self.pointer_bytes),
            min: built.first_key.into(),
            max: built.last_key.into(),
        };
        let table = TableHandle::new((pool, &self.inner.dram.tables), Arc::new(descriptor), Some(built.meta));
        if !std::mem::take(&mut self.expires) {
            table.stale_from.get_or_init(|| NEVER_STALE_MILLIS);
        }
        self.done.0.push(Arc::new(table));
        Ok(())
    }

    /// Returns the tables, durable, and the large and stored values of dropped items.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`].
    pub(crate) fn finish(mut self) -> Result<(Vec<Arc<TableHandle>>, Dead, Expired)> {
        self.end_table()?;
        self.inner.pool.fence_checked()?;
        Ok((std::mem::take(&mut self.done.0), self.dead, self.expired))
    }
}

#[cold]
fn disordered() -> Error {
    Error::corrupt(
        "the tables of a merge",
        "the keys are not in order, although the checksums match: verify the store to find the table",
    )
}

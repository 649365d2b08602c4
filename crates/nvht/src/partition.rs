//! Partitions: which table a key belongs to, while tables grow.
//!
//! The truth is the partition's root on the medium (`layout.rs`); this is its copy for look-ups, changed only when the root is durable.
//!
//! Invariants:
//! 1. While `next` is 0 all keys are in `current`. While it is not, keys with fractions below the cursor are in `next`, all others in
//!    `current`.
//! 2. Only who holds `growing` changes the three words. To begin: cursor 0, then `next`. To end: `current`, then `next` to 0. The cursor only
//!    grows between.
//! 3. A table is given back when it is in no word, durably, and behind the readers (epochs).
//!
//! A reader loads `next`, the cursor, `next` again, and then `current` if it needs it (`place`). Where `next` was 0, a `current` loaded
//! later is that of the same moment or a newer one. Where it was not, and was the same before and after the cursor was loaded, the cursor is
//! that table's; a table cannot become `next` twice while the reader's guard keeps its extent. So the reader finds the table that its key
//! belonged to at some moment since it began; a miss counts only if the key still belongs there (`read.rs`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use lodestore_contract::{Error, Result};
use lodestore_media::{NvPtr, Pool};

use crate::layout::{CURSOR_END, LINE, LINE_SLOTS, LINES_MAX, Root, Superblock, TableHeader, TableStage};
use crate::stripe::STRIPES;
use crate::table::Table;

/// A table's home lines use at most this share of the longest region, so that the records in the
/// rest of its region can be named by slots.
const TABLE_SHARE_DIVISOR: u64 = 2;
/// Bits of a table's word that count its doublings.
const DOUBLINGS: u64 = 63;

/// A partition, on lines of its own.
#[repr(align(128))]
pub(crate) struct Partition {
    current: AtomicU64,
    next: AtomicU64,
    cursor: AtomicU64,
    first_lines: u64,
    probe: u32,
    salt: u64,
    /// Home lines of the longest table.
    lines_max: u64,
    /// Keys of a stripe when its table is due to grow, were all stripes alike.
    due_keys: AtomicU64,
    load: u64,
    /// Keys when the stripes' counts were last set; below 0 where that is not known.
    pub(crate) keys_before: AtomicI64,
    /// Held by who grows the table.
    pub(crate) growing: Mutex<()>,
    /// Keys at which the next attempt to grow is due, after one that found no room.
    pub(crate) grow_again_at: AtomicU64,
    /// Lines stored that are accounted to the medium's segments.
    pub(crate) lines_accounted: AtomicU64,
}

/// What stands in a partition's root, checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) current: u64,
    pub(crate) next: u64,
    pub(crate) cursor: u64,
    pub(crate) keys: Option<u64>,
}

/// The number that the checks of a table's lines begin with, from its partition's.
#[inline]
fn salt_of(partition_salt: u64, lines: u64) -> u64 {
    partition_salt ^ lines.wrapping_mul(0x9fb2_1c65_1e98_df25)
}

/// A table's word: its position and its doublings.
pub(crate) fn table_word(at: NvPtr, doublings: u32) -> u64 {
    debug_assert!(at.raw() & DOUBLINGS == 0 && u64::from(doublings) <= DOUBLINGS);
    at.raw() | u64::from(doublings)
}

/// The extent of the table that a word names.
pub(crate) fn extent_of(word: u64) -> NvPtr {
    NvPtr::from_raw(word & !DOUBLINGS)
}

/// How often the table that a word names was doubled.
pub(crate) fn doublings_of(word: u64) -> u32 {
    (word & DOUBLINGS) as u32
}

impl Partition {
    /// `salt` is the store's ([`Superblock::salt`]).
    pub(crate) fn new(shape: &Superblock, salt: u64, partition: usize, found: Found) -> Self {
        let made = Self {
            current: AtomicU64::new(found.current),
            next: AtomicU64::new(found.next),
            cursor: AtomicU64::new(found.cursor),
            first_lines: shape.first_lines(partition),
            probe: shape.probe_lines,
            salt: salt ^ partition as u64,
            lines_max: (shape.region_bytes_max() / TABLE_SHARE_DIVISOR / LINE).min(LINES_MAX),
            due_keys: AtomicU64::new(0),
            load: shape.load.into(),
            keys_before: AtomicI64::new(-1),
            growing: Mutex::new(()),
            grow_again_at: AtomicU64::new(0),
            lines_accounted: AtomicU64::new(0),
        };
        made.set_due();
        made
    }

    fn set_due(&self) {
        let keys = self.current().lines * LINE_SLOTS as u64 * self.load / 100;
        self.due_keys.store(keys / STRIPES as u64, Ordering::Relaxed);
    }

    /// Whether a stripe that has so many keys now is a sign that the table may be due to grow: then all are counted. Where stripes have
    /// few keys each is a sign, else every eighth once they are near.
    #[inline]
    pub(crate) fn may_be_due(&self, keys_of_stripe: i32) -> bool {
        let due = self.due_keys.load(Ordering::Relaxed);
        let before = self.keys_before.load(Ordering::Relaxed).max(0) / STRIPES as i64;
        let keys = u64::try_from(i64::from(keys_of_stripe) + before).unwrap_or(0);
        due < 16 || keys % 8 == 0 && keys * 4 >= due * 3
    }

    #[inline]
    fn table(&self, word: u64) -> Table {
        let lines = self.first_lines << (word & DOUBLINGS);
        Table { lines_at: extent_of(word).add(LINE), lines, probe: self.probe, salt: salt_of(self.salt, lines) }
    }

    /// The table that keys of this fraction belong to.
    #[inline]
    pub(crate) fn place(&self, fraction: u32) -> Table {
        loop {
            let next = self.next.load(Ordering::Acquire);
            if next == 0 {
                return self.table(self.current.load(Ordering::Acquire));
            }
            let cursor = self.cursor.load(Ordering::Acquire);
            if self.next.load(Ordering::Acquire) != next {
                continue;
            }
            let word = if u64::from(fraction) < cursor { next } else { self.current.load(Ordering::Acquire) };
            return self.table(word);
        }
    }

    /// The words now: current, next, cursor. Of one moment for who holds `growing`.
    pub(crate) fn words(&self) -> (u64, u64, u64) {
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        (load(&self.current), load(&self.next), load(&self.cursor))
    }

    /// The table of the word `current`; keys may have left it already.
    pub(crate) fn current(&self) -> Table {
        self.table(self.current.load(Ordering::Acquire))
    }

    /// The table that keys are moving to, if it grows.
    pub(crate) fn next(&self) -> Option<Table> {
        Some(self.next.load(Ordering::Acquire)).filter(|word| *word != 0).map(|word| self.table(word))
    }

    /// Whether the table is growing.
    #[inline]
    pub(crate) fn is_growing(&self) -> bool {
        self.next.load(Ordering::Acquire) != 0
    }

    /// Fractions below it are in the next table.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Acquire)
    }

    pub(crate) fn set_next(&self, word: u64) {
        self.cursor.store(0, Ordering::Release);
        self.next.store(word, Ordering::Release);
    }

    pub(crate) fn set_cursor(&self, cursor: u64) {
        debug_assert!(cursor >= self.cursor.load(Ordering::Relaxed) && cursor <= CURSOR_END);
        self.cursor.store(cursor, Ordering::Release);
    }

    pub(crate) fn set_current(&self, word: u64) {
        self.current.store(word, Ordering::Release);
        self.next.store(0, Ordering::Release);
        self.set_due();
    }

    /// Lines of the table after one doubling more; `None` where that is more than a table may have.
    pub(crate) fn lines_of(&self, doublings: u32) -> Option<u64> {
        let lines = self.first_lines.checked_shl(doublings)?;
        (lines <= self.lines_max && u64::from(doublings) <= DOUBLINGS).then_some(lines)
    }

    /// The first table of a partition that is being made, at this extent.
    pub(crate) fn first_table(shape: &Superblock, salt: u64, partition: usize, extent: NvPtr) -> Table {
        let found = Found { current: table_word(extent, 0), next: 0, cursor: 0, keys: None };
        Self::new(shape, salt, partition, found).current()
    }

    /// The table that a word names, of this partition.
    pub(crate) fn table_of(&self, word: u64) -> Table {
        self.table(word)
    }
}

/// Reads a partition's root and checks it against the headers of its tables.
///
/// # Errors
/// [`Error::Corrupt`].
pub(crate) fn load_root(pool: &Pool, shape: &Superblock, partition: usize) -> Result<Found> {
    let root = Root::of(pool, partition);
    let wrong = |what: &str| Error::corrupt(format!("root of partition {partition}"), what);
    let mut found = Found {
        current: pool.load_u64(root.current()),
        next: pool.load_u64(root.next()),
        cursor: root.unsealed(pool.load_u64(root.cursor())).ok_or_else(|| wrong("its cursor was changed"))?,
        keys: root.unsealed(pool.load_u64(root.keys())).and_then(|keys| keys.checked_sub(1)),
    };
    let is_table = |word: u64| {
        let (at, doublings) = (extent_of(word), doublings_of(word));
        let lines = shape.first_lines(partition).checked_shl(doublings).filter(|lines| *lines <= LINES_MAX)?;
        let header = TableHeader { partition: partition as u32, doublings, lines };
        let whole = header.stands_at(pool, at)
            && usize::try_from(Table::extent_bytes(lines, shape.probe_lines)).is_ok_and(|len| pool.contains(at, len));
        whole.then_some(doublings)
    };
    let current = is_table(found.current).ok_or_else(|| wrong("it names no table of this partition"))?;
    if found.cursor > CURSOR_END {
        return Err(wrong("its cursor is beyond the end"));
    }
    if found.next == found.current {
        // The last step of a growth, cut off between its stores.
        found.next = 0;
    }
    if found.next == 0 {
        if found.cursor != 0 && found.cursor != CURSOR_END {
            return Err(wrong("it names no table to which its cursor belongs"));
        }
        found.cursor = 0;
    } else if is_table(found.next) != Some(current + 1) {
        return Err(wrong("the table it grows to is none of this partition"));
    }
    Ok(found)
}

/// Compares a partition's root with the stages of its tables.
///
/// # Errors
/// [`Error::Corrupt`] where a stage says that the root is older, or was changed.
pub(crate) fn check_stages(pool: &Pool, partition: usize, found: &Found) -> Result<()> {
    let wrong = |what: &str| Error::corrupt(format!("root of partition {partition}"), what);
    let stage_of =
        |word| TableStage::load(pool, extent_of(word)).ok_or_else(|| wrong("the stage of its table was changed"));
    let is_growing = found.next != 0;
    let stage_max = if is_growing { TableStage::GROWS } else { TableStage::of_cursor(CURSOR_END) };
    let is_older = stage_of(found.current)? > stage_max
        || is_growing && stage_of(found.next)? > TableStage::of_cursor(found.cursor);
    if is_older { Err(wrong("it is older than its table, so values may be older and keys missing")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKind;

    #[test]
    fn a_key_belongs_to_the_next_table_once_the_cursor_has_passed_it() {
        let shape = Superblock {
            partitions: 1,
            first_slots: 14,
            probe_lines: 4,
            load: 80,
            hash: HashKind::Murmur3,
            seed: 0,
            offset_bits: crate::slot::OFFSET_BITS_MIN,
        };
        let (old, new) = (table_word(NvPtr::new(0, 4096), 0), table_word(NvPtr::new(0, 8192), 1));
        let part = Partition::new(&shape, 7, 0, Found { current: old, next: 0, cursor: 0, keys: None });
        let first = part.place(5);
        assert_eq!((first.lines_at, first.lines), (NvPtr::new(0, 4096 + 64), shape.first_lines(0)));
        part.set_next(new);
        assert_eq!(part.place(0), first);
        part.set_cursor(100);
        let grown = part.place(99);
        assert_eq!((grown.lines_at, grown.lines), (NvPtr::new(0, 8192 + 64), 2 * first.lines));
        assert_eq!(part.place(100), first);
        part.set_cursor(CURSOR_END);
        part.set_current(new);
        assert_eq!((part.place(0), part.place(u32::MAX), part.is_growing()), (grown, grown, false));
    }
}

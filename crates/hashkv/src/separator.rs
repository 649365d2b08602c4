//! The interface for FluidKV's flushes ([`Separator`]).

use lodestore_contract::{Error, Result, VerifyReport};
use lodestore_fluidkv::embedding::{Separable, Separator};

use crate::append::Item;
use crate::layout::{Pointer, Stored, record_len};
use crate::space::{Gain, Space};
use crate::space_management::FUTILE_COLLECTIONS_MAX;
use crate::values::{Counts, Values, lock};

impl Values {
    /// Returns whether a stored value belongs into the file: long enough, and with its key not too
    /// long for a segment.
    pub(crate) fn may_separate(&self, key: &[u8], stored: &[u8]) -> bool {
        // `stored` ends with a tag. A pointer is shorter than any threshold.
        self.sizes.threshold > 0
            && stored.len() > self.sizes.threshold
            && record_len(key.len(), stored.len() - 1) <= Space::record_max(self.sizes.segment_bytes)
    }

    /// Sends new versions of values that were not updated for a long time to the cold storage
    /// (hotness awareness: HashKV, ATC 2018, section 3.4). An update soon is unlikely. A value
    /// whose old entry cannot be read is not cold.
    fn mark_cold(&self, items: &mut [Item<'_>]) {
        let Some(index) = self.index().filter(|index| self.sizes.hotness && !index.is_closed()) else { return };
        let keys: Vec<_> = items.iter().map(|item| item.key).collect();
        let mut before = Vec::with_capacity(keys.len());
        // On damage, `peek_tables` has reported all readable entries.
        let _ = index.peek_tables(&keys, &mut |number, stored| {
            if let Ok(Stored::Pointer(pointer)) = Stored::read(stored) {
                before.push((number, pointer.generation));
            }
        });
        let space = lock(&self.space);
        before.iter().for_each(|(number, generation)| items[*number].cold = space.is_old(*generation));
    }
}

impl Separator for Values {
    fn wants(&self, key: &[u8], value: &[u8]) -> bool {
        value.len() < self.sizes.longest && self.may_separate(key, value)
    }

    fn separate(&self, values: &[Separable<'_>]) -> Result<Vec<Option<Box<[u8]>>>> {
        let mut items = Vec::with_capacity(values.len());
        for value in values {
            match Stored::read(value.value)? {
                Stored::Value(own) => items.push(Item::new(value.key, own)),
                Stored::Pointer(_) => {
                    return Err(Error::corrupt("a flush", "the flush passed a pointer instead of a value"));
                }
            }
        }
        self.mark_cold(&mut items);
        self.collect_until_fits(items.iter().map(|item| item.len() as u64).sum())?;
        let (parts, pointers) = self.append(&items, self.gc_reserve_segments())?.into_parts();
        lock(&self.unpublished).extend(parts);
        let placed = pointers.iter().flatten();
        Counts::add(&self.counts.separated, placed.clone().count() as u64);
        Counts::add(&self.counts.separated_bytes, placed.map(|pointer| u64::from(pointer.len)).sum());
        let kept = pointers.iter().filter(|pointer| pointer.is_none()).count() as u64;
        Counts::add(&self.counts.kept, kept);
        if kept > 0 {
            self.note_late();
        }
        Ok(pointers.into_iter().map(|pointer| pointer.map(Pointer::stored)).collect())
    }

    fn published(&self) {
        let parts = std::mem::take(&mut *lock(&self.unpublished));
        let mut space = lock(&self.space);
        parts.iter().for_each(|(part, live)| space.end_write(part, *live));
        drop(space);
        self.note_full();
        self.signal_work();
    }

    fn holds(&self) -> bool {
        lock(&self.space).in_use() > 0
    }

    fn make_room(&self) -> Result<()> {
        let Some(index) = self.index() else { return Ok(()) };
        let (mut tries, mut most) = (FUTILE_COLLECTIONS_MAX, 0);
        loop {
            self.release_space(self.gc_reserve_segments());
            let room = self.pool.room_on_medium();
            tries -= u32::from(room <= most);
            if room >= index.reserved_bytes() || tries == 0 {
                break;
            }
            most = most.max(room);
            self.collect_gain(&Gain::ONE_SEGMENT)?;
        }
        Ok(())
    }

    fn closing(&self) -> Result<()> {
        self.file.sync_now()
    }

    fn verify_pieces(&self, piece: &mut dyn FnMut(VerifyReport) -> bool) {
        self.scrub(piece);
    }

    fn died(&self, stored: &[&[u8]]) {
        let mut space = lock(&self.space);
        for stored in stored {
            if let Ok(Stored::Pointer(pointer)) = Stored::read(stored) {
                space.mark_dead(pointer);
            }
        }
        drop(space);
        self.signal_work();
    }
}

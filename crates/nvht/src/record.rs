//! A key with its value on the medium.
//!
//! ```text
//!  0        4      8          12     14 15 16
//! | crc32c | vlen | fraction |klen  |fl|ve| [expiry: 8] | key | value |
//! ```
//! What the parts are: `lodestore_inplace::Record`. `fraction` is the engine's own, that of the key's hash, so that a table that grows need
//! not hash long keys again. 16 + 64 bytes of key and value take 96, a size class of its own.

use crate::hash::Hasher;
use crate::slot::{Slot, SlotForm};

/// Bytes of the header that are the engine's: the fraction.
pub(crate) const OWN: usize = 4;

/// A record as it stands on the medium.
pub(crate) type Record<'a> = lodestore_inplace::Record<'a, OWN>;

const _: () = assert!(Record::HEADER == 16);

/// Where in its partition a record's key belongs.
pub(crate) trait Placed {
    /// As the header has it.
    fn fraction(&self) -> u32;

    /// Returns the fraction if the key, the header and the slot agree on it, the key is of this
    /// partition and the slot vouches for this record. None of them was changed then, whatever
    /// became of the value.
    fn vouched_fraction(&self, hasher: Hasher, form: SlotForm, slot: Slot, partition: usize) -> Option<u32>;
}

impl Placed for Record<'_> {
    #[inline]
    fn fraction(&self) -> u32 {
        u32::from_le_bytes(self.own())
    }

    fn vouched_fraction(&self, hasher: Hasher, form: SlotForm, slot: Slot, partition: usize) -> Option<u32> {
        let hashed = hasher.hash(self.key());
        let is_placed = hashed.fraction == self.fraction() && hashed.partition == partition;
        let agree = is_placed && hashed.tag == slot.tag();
        (agree && form.is_bound(slot, self.binding())).then_some(hashed.fraction)
    }
}

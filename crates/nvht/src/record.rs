//! A key with its value on the medium.
//!
//! ```text
//!  0        4      8          12     14 15 16
//! | crc32c | vlen | fraction |klen  |fl|ve| [expiry: 8] | key | value |
//! ```
//! `lodestore_inplace::Record` describes the fields. `fraction` is the engine's own: the fraction
//! of the key's hash. A growing table need not hash long keys again. 16 + 64 bytes of key and value
//! use 96 bytes, a size class of its own.

use crate::hash::Hasher;
use crate::slot::{Slot, SlotForm};

/// A record on the medium. The engine's own field is the fraction.
pub(crate) type Record<'a> = lodestore_inplace::Record<'a, u32>;

const _: () = assert!(Record::HEADER == 16);

/// The location of a record's key in its partition.
pub(crate) trait Placed {
    /// Returns the fraction in the header.
    fn fraction(&self) -> u32;

    /// Returns the fraction if key, header and slot agree on it, the key is of this partition and
    /// the slot vouches for this record. All of these are then intact; the value may be damaged.
    fn vouched_fraction(&self, hasher: Hasher, form: SlotForm, slot: Slot, partition: usize) -> Option<u32>;
}

impl Placed for Record<'_> {
    #[inline]
    fn fraction(&self) -> u32 {
        self.own()
    }

    fn vouched_fraction(&self, hasher: Hasher, form: SlotForm, slot: Slot, partition: usize) -> Option<u32> {
        let hashed = hasher.hash(self.key());
        let is_placed = hashed.fraction == self.fraction() && hashed.partition == partition;
        let agree = is_placed && hashed.tag == slot.tag();
        (agree && form.is_bound(slot, self.binding())).then_some(hashed.fraction)
    }
}

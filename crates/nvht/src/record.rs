//! A key with its value on the medium: one allocation, one checksum.
//!
//! ```text
//!  0        4      8          12     14 15 16
//! | crc32c | vlen | fraction |klen  |fl|ve| [expiry: 8] | key | value |
//! ```
//! `crc32c` covers everything behind it. `fraction` is that of the key's hash, so that a table that grows need not hash long keys again.
//! `klen` is the key's length less one, `fl` the flags (bit 0: an expiry stands before the key), `ve` the record version. Written
//! whole, out of place, and never changed once a slot names it. 16 + 64 bytes of key and value take 96, a size class of its own.

use lodestore_contract::limits::{KEY_MAX, VALUE_MAX};
use lodestore_contract::{Error, Expiry, Result};
use lodestore_media::{NvPtr, Pool, crc32c, u32_at, u64_at};

use crate::hash::{Hashed, Hasher};
use crate::layout::Slot;

/// Bytes of the fixed header.
pub(crate) const HEADER: usize = 16;
const EXPIRY: usize = 8;
/// Flag: an expiry stands before the key.
const FLAG_EXPIRY: u8 = 1;
/// Version of this record format.
const VERSION: u8 = 1;

const _: () = assert!(KEY_MAX - 1 <= u16::MAX as usize && VALUE_MAX <= u32::MAX as usize);

/// Bytes of a record of these lengths.
#[inline]
pub(crate) fn record_len(key: usize, value: usize, expires: bool) -> usize {
    HEADER + if expires { EXPIRY } else { 0 } + key + value
}

/// What stands before the key: header and expiry.
pub(crate) struct Head {
    bytes: [u8; HEADER + EXPIRY],
    len: usize,
}

impl Head {
    /// The head of a record, checksum included.
    #[inline]
    pub(crate) fn new(key: &[u8], value: &[u8], hashed: Hashed, expiry: Option<Expiry>) -> Self {
        debug_assert!((1..=KEY_MAX).contains(&key.len()) && value.len() <= VALUE_MAX);
        let mut bytes = [0; HEADER + EXPIRY];
        bytes[4..8].copy_from_slice(&(value.len() as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&hashed.fraction.to_le_bytes());
        bytes[12..14].copy_from_slice(&((key.len() - 1) as u16).to_le_bytes());
        bytes[15] = VERSION;
        let mut len = HEADER;
        if let Some(expiry) = expiry {
            bytes[14] = FLAG_EXPIRY;
            bytes[HEADER..].copy_from_slice(&expiry.millis().to_le_bytes());
            len += EXPIRY;
        }
        let crc = crc32c(&[&bytes[4..len], key, value]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        Self { bytes, len }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A record as it stands on the medium, its lengths checked against its region, its checksum not yet.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    bytes: &'a [u8],
    key_at: usize,
    key_len: usize,
}

impl<'a> Record<'a> {
    /// The record at `at`. The caller holds an epoch guard from before it read the slot, or the key's stripe.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where lengths, flags or version cannot be.
    #[inline]
    pub(crate) fn read(pool: &'a Pool, at: NvPtr) -> Result<Self> {
        let Some(head) = pool.bytes_first_read(at, HEADER) else { return Err(wrong(at, "position outside the pool")) };
        let value_len = u32_at(head, 4) as usize;
        let key_len = usize::from(u16::from_le_bytes([head[12], head[13]])) + 1;
        let flags = head[14];
        if head[15] != VERSION || flags & !FLAG_EXPIRY != 0 || value_len > VALUE_MAX {
            return Err(wrong(at, "record header is not one"));
        }
        let key_at = record_len(0, 0, flags & FLAG_EXPIRY != 0);
        match pool.bytes(at, key_at + key_len + value_len) {
            Some(bytes) => Ok(Self { bytes, key_at, key_len }),
            None => Err(wrong(at, "record reaches beyond its region")),
        }
    }

    /// Compares the checksum.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn check(&self, at: NvPtr) -> Result<()> {
        if crc32c(&[&self.bytes[4..]]) == u32_at(self.bytes, 0) {
            Ok(())
        } else {
            Err(wrong(at, "record checksum differs"))
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        &self.bytes[self.key_at..self.key_at + self.key_len]
    }

    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        &self.bytes[self.key_at + self.key_len..]
    }

    /// Bytes it takes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Where in its partition its key belongs, as the header has it.
    #[inline]
    pub(crate) fn fraction(&self) -> u32 {
        u32_at(self.bytes, 8)
    }

    /// The fraction of its key, where key, header and the slot's tag agree on it: so none of them was changed, whatever became of the value.
    pub(crate) fn vouched_fraction(&self, hasher: Hasher, slot: Slot) -> Option<u32> {
        let hashed = hasher.hash(self.key());
        (hashed.fraction == self.fraction() && hashed.tag == slot.tag()).then_some(hashed.fraction)
    }

    #[inline]
    pub(crate) fn expiry(&self) -> Option<Expiry> {
        (self.key_at > HEADER).then(|| Expiry::at_millis(u64_at(self.bytes, HEADER)))
    }
}

#[cold]
fn wrong(at: NvPtr, what: &str) -> Error {
    Error::corrupt(format!("record {at:?}"), what)
}

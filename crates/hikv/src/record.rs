//! A key with its value on the medium (HiKV, ATC 2017, section 3.4: the KV item).
//!
//! ```text
//!  0       4       8               16  18 19 20      24
//! | crc32c | vlen  | sequence      |klen|fl|ve| zero  | [expiry: 8] | key | value |
//! ```
//! `crc32c` covers everything behind it. `klen` is the key's length less one, `fl` the flags
//! (bit 0: an expiry stands before the key), `ve` the record version. Written whole, out of place, and
//! never changed once an index entry names it.

use lodestore_contract::limits::{KEY_MAX, VALUE_MAX};
use lodestore_contract::{Error, Expiry, Result};
use lodestore_media::{NvPtr, Pool, crc32c};

/// Bytes of the fixed header.
pub(crate) const HEADER: usize = 24;
/// Bytes of an expiry.
const EXPIRY: usize = 8;
/// Flag: an expiry stands before the key.
const FLAG_EXPIRY: u8 = 1;
/// Version of this record format.
const VERSION: u8 = 1;
/// Tag of a position whose record has an expiry, so that sweeps read no other record.
pub(crate) const TAG_EXPIRY: u8 = 1;

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
    pub(crate) fn new(key: &[u8], value: &[u8], sequence: u64, expiry: Option<Expiry>) -> Self {
        debug_assert!((1..=KEY_MAX).contains(&key.len()) && value.len() <= VALUE_MAX);
        let mut bytes = [0; HEADER + EXPIRY];
        bytes[4..8].copy_from_slice(&(value.len() as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
        bytes[16..18].copy_from_slice(&((key.len() - 1) as u16).to_le_bytes());
        bytes[19] = VERSION;
        let mut len = HEADER;
        if let Some(expiry) = expiry {
            bytes[18] = FLAG_EXPIRY;
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

/// What a record's header says of its parts, in bytes.
struct Lengths {
    key_at: usize,
    key_len: usize,
    all: usize,
}

impl Lengths {
    /// `None` where lengths, flags or version cannot be.
    #[inline]
    fn of(head: &[u8]) -> Option<Self> {
        let value_len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let key_len = usize::from(u16::from_le_bytes([head[16], head[17]])) + 1;
        let flags = head[18];
        if head[19] != VERSION || flags & !FLAG_EXPIRY != 0 || value_len > VALUE_MAX {
            return None;
        }
        let expires = flags & FLAG_EXPIRY != 0;
        Some(Self { key_at: record_len(0, 0, expires), key_len, all: record_len(key_len, value_len, expires) })
    }
}

/// The key of the whole record that stands at `at`, if one does. For places that no entry is known to name: another thread may be writing
/// there, so the bytes are copied word by word, and the copy counts only if its checksum is right.
pub(crate) fn copied_key(pool: &Pool, at: NvPtr) -> Option<Vec<u8>> {
    let at = at.untagged();
    let copy = |len: usize| {
        let whole = len.next_multiple_of(8);
        let words = (0..whole as u64).step_by(8).map(|word| pool.load_u64(at.add(word)));
        pool.contains(at, whole).then(|| words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
    };
    let lengths = Lengths::of(&copy(HEADER)?)?;
    let mut bytes = copy(lengths.all)?;
    bytes.truncate(lengths.all);
    let stored = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let key = lengths.key_at..lengths.key_at + lengths.key_len;
    (crc32c(&[bytes.get(4..)?]) == stored).then(|| bytes[key].to_vec())
}

/// A record as it stands on the medium, its lengths checked against its region, its checksum not yet.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    bytes: &'a [u8],
    key_at: usize,
    key_len: usize,
}

impl<'a> Record<'a> {
    /// The record at `at` (its tag is ignored). The caller holds an epoch guard, or the key's lock.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where lengths, flags or version cannot be.
    #[inline]
    pub(crate) fn read(pool: &'a Pool, at: NvPtr) -> Result<Self> {
        let at = at.untagged();
        let Some(head) = pool.bytes_first_read(at, HEADER) else { return Err(wrong(at, "position outside the pool")) };
        let Some(Lengths { key_at, key_len, all }) = Lengths::of(head) else {
            return Err(wrong(at, "record header is not one"));
        };
        match pool.bytes(at, all) {
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
        let stored = u32::from_le_bytes([self.bytes[0], self.bytes[1], self.bytes[2], self.bytes[3]]);
        if crc32c(&[&self.bytes[4..]]) == stored { Ok(()) } else { Err(wrong(at, "record checksum differs")) }
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

    pub(crate) fn sequence(&self) -> u64 {
        word(&self.bytes[8..16])
    }

    pub(crate) fn expiry(&self) -> Option<Expiry> {
        (self.key_at > HEADER).then(|| Expiry::at_millis(word(&self.bytes[HEADER..HEADER + EXPIRY])))
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cold]
fn wrong(at: NvPtr, what: &str) -> Error {
    Error::corrupt(format!("record {at:?}"), what)
}

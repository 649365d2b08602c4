//! A key with its value on the medium: one allocation, one checksum.
//!
//! ```text
//!  0        4      8     8 + OWN                          HEADER
//! | crc32c | vlen | own | klen: 2 | fl: 1 | ve: 1 | zeros | [expiry: 8] | key | value |
//! ```
//! `crc32c` covers the record's seed and everything after the checksum. The seed mixes the pool's
//! identity and the record's position: a record that was copied to another position or pool fails
//! its check. `own` is the engine's field of OWN bytes. `klen` is the key's length minus one, `fl`
//! the flags (bit 0: an expiry precedes the key), `ve` the record version. The header is padded to
//! a multiple of eight. A record is written whole, out of place, and never changed once the index
//! names it.

use std::marker::PhantomData;

use lodestore_contract::limits::{KEY_MAX, VALUE_MAX};
use lodestore_contract::{Error, Expiry, Pair, Result};
use lodestore_media::{NvPtr, Pool, crc32c_seeded, u32_at, u64_at};

use crate::planted;

const OWN_AT: usize = 8;
const EXPIRY_BYTES: usize = 8;
/// Maximum header with an expiry.
const HEAD_BYTES_MAX: usize = 32;
/// Flag: an expiry precedes the key.
const EXPIRY_FLAG: u8 = 1;
/// Version of this record format, shared by the engines. Raised if any part except `own` changes.
const RECORD_VERSION: u8 = 2;

const _: () = assert!(KEY_MAX - 1 <= u16::MAX as usize && VALUE_MAX <= u32::MAX as usize);

/// The field of a record's header that is the engine's own, little-endian on the medium.
pub trait OwnField: Copy + Into<u64> {
    /// Bytes of the field.
    const BYTES: usize;

    /// Returns the field with these low bits.
    fn from_bits(bits: u64) -> Self;
}

impl OwnField for u32 {
    const BYTES: usize = 4;

    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits as Self
    }
}

impl OwnField for u64 {
    const BYTES: usize = 8;

    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits
    }
}

/// Returns the bytes of a record of these lengths.
#[inline]
pub const fn record_len<O: OwnField>(key: usize, value: usize, expires: bool) -> usize {
    Record::<O>::HEADER + if expires { EXPIRY_BYTES } else { 0 } + key + value
}

/// The part before the key: header and expiry.
pub struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl Head {
    /// Returns the head of a record that will be stored at `at`, checksum included.
    #[inline]
    pub fn new<O: OwnField>(pool: &Pool, at: NvPtr, own: O, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Self {
        debug_assert!((1..=KEY_MAX).contains(&key.len()) && value.len() <= VALUE_MAX);
        let (tail, mut len) = (OWN_AT + O::BYTES, Record::<O>::HEADER);
        let mut bytes = [0; HEAD_BYTES_MAX];
        bytes[4..8].copy_from_slice(&(value.len() as u32).to_le_bytes());
        bytes[OWN_AT..tail].copy_from_slice(&own.into().to_le_bytes()[..O::BYTES]);
        bytes[tail..tail + 2].copy_from_slice(&((key.len() - 1) as u16).to_le_bytes());
        bytes[tail + 3] = RECORD_VERSION;
        if let Some(expiry) = expiry {
            bytes[tail + 2] = EXPIRY_FLAG;
            bytes[len..len + EXPIRY_BYTES].copy_from_slice(&expiry.millis().to_le_bytes());
            len += EXPIRY_BYTES;
        }
        let crc = crc32c_seeded(pool.position_seed(at), &[&bytes[4..len], key, value]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        Self { bytes, len }
    }

    /// Returns the stored checksum: the bits that an index entry can use to vouch for this record.
    #[inline]
    pub fn binding(&self) -> u32 {
        u32_at(&self.bytes, 0)
    }

    /// Returns the bytes before the key.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The lengths of a record's parts by its header, in bytes.
struct Lengths {
    key_at: usize,
    key_len: usize,
    all: usize,
}

impl Lengths {
    /// `None` if lengths, flags or version are invalid.
    #[inline]
    fn of<O: OwnField>(head: &[u8]) -> Option<Self> {
        let tail = OWN_AT + O::BYTES;
        let value_len = u32_at(head, 4) as usize;
        let key_len = usize::from(u16::from_le_bytes([head[tail], head[tail + 1]])) + 1;
        let flags = head[tail + 2];
        if head[tail + 3] != RECORD_VERSION || flags & !EXPIRY_FLAG != 0 || value_len > VALUE_MAX {
            return None;
        }
        let key_at = record_len::<O>(0, 0, flags & EXPIRY_FLAG != 0);
        Some(Self { key_at, key_len, all: key_at + key_len + value_len })
    }
}

/// Returns the key of the whole record at `at`, if there is one. For positions that the index may
/// not name. Another thread may be writing there: the bytes are copied word by word, and the copy
/// counts only if its checksum matches.
pub fn copied_key<O: OwnField>(pool: &Pool, at: NvPtr) -> Option<Vec<u8>> {
    let at = at.untagged();
    let copy = |len: usize| {
        let whole = len.next_multiple_of(8);
        let words = (0..whole as u64).step_by(8).map(|word| pool.load_u64(at.add(word)));
        pool.contains(at, whole).then(|| words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
    };
    let lengths = Lengths::of::<O>(&copy(Record::<O>::HEADER)?)?;
    let mut bytes = copy(lengths.all)?;
    bytes.truncate(lengths.all);
    let key = lengths.key_at..lengths.key_at + lengths.key_len;
    (crc32c_seeded(pool.position_seed(at), &[bytes.get(4..)?]) == u32_at(&bytes, 0)).then(|| bytes[key].to_vec())
}

/// A record on the medium. Its lengths have been checked against its region, its checksum has not.
#[derive(Clone, Copy)]
pub struct Record<'a, O> {
    pool: &'a Pool,
    bytes: &'a [u8],
    key_at: u32,
    key_len: u32,
    own: PhantomData<O>,
}

impl<O: OwnField> Record<'_, O> {
    /// Bytes of the fixed header.
    pub const HEADER: usize = (OWN_AT + O::BYTES + 4).next_multiple_of(8);
    const FITS: () = assert!(Self::HEADER + EXPIRY_BYTES <= HEAD_BYTES_MAX);
}

impl<'a, O: OwnField> Record<'a, O> {
    /// Reads the record at `at`, ignoring the tag. The caller holds an epoch guard from before it
    /// read the position, or the key's lock.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if lengths, flags or version are invalid.
    #[inline]
    pub fn read(pool: &'a Pool, at: NvPtr) -> Result<Self> {
        const { Self::FITS };
        let at = at.untagged();
        let Some(head) = pool.bytes_first_read(at, Self::HEADER) else {
            return Err(corrupt_record(at, "the position is outside the pool"));
        };
        let Some(Lengths { key_at, key_len, all }) = Lengths::of::<O>(head) else {
            return Err(corrupt_record(at, "the record header is invalid"));
        };
        match pool.bytes(at, all) {
            Some(bytes) => Ok(Self { pool, bytes, key_at: key_at as u32, key_len: key_len as u32, own: PhantomData }),
            None => Err(corrupt_record(at, "the record ends after its region")),
        }
    }

    /// Compares the checksum, given the position that the record was read from.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub fn check(&self, at: NvPtr) -> Result<()> {
        let sum = crc32c_seeded(self.pool.position_seed(at.untagged()), &[&self.bytes[4..]]);
        if sum == self.binding() || self.pool.has_fault(planted::RECORD_CHECKSUM_IGNORED) {
            Ok(())
        } else {
            Err(corrupt_record(at, "the record checksum differs"))
        }
    }

    /// Returns the stored checksum. An index entry with bits of this value names this record and no
    /// earlier record at the same position.
    #[inline]
    pub fn binding(&self) -> u32 {
        u32_at(self.bytes, 0)
    }

    /// Returns the key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        let key_at = self.key_at as usize;
        &self.bytes[key_at..key_at + self.key_len as usize]
    }

    /// Returns the value.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        &self.bytes[self.key_at as usize + self.key_len as usize..]
    }

    /// Returns the bytes of the record.
    #[expect(clippy::len_without_is_empty, reason = "no record is empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the engine's own field.
    #[inline]
    pub fn own(&self) -> O {
        O::from_bits(u64_at(self.bytes, OWN_AT))
    }

    /// Returns the moment from which readers treat the record as absent.
    #[inline]
    pub fn expiry(&self) -> Option<Expiry> {
        (self.key_at as usize > Self::HEADER).then(|| Expiry::at_millis(u64_at(self.bytes, Self::HEADER)))
    }

    /// Returns the key, the value and the expiry.
    #[inline]
    pub fn pair(&self) -> Pair<'a> {
        Pair { key: self.key(), value: self.value(), expiry: self.expiry() }
    }

    /// Returns whether the record has expired, and is absent to readers. A record with an expiry is
    /// first compared with its checksum: the damage may be in its expiry.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub fn is_expired(&self, at: NvPtr) -> Result<bool> {
        let Some(expiry) = self.expiry() else { return Ok(false) };
        self.check(at).map(|()| expiry.is_past())
    }
}

#[cold]
fn corrupt_record(at: NvPtr, what: &str) -> Error {
    Error::corrupt(format!("record {at:?}"), what)
}

#[cfg(test)]
mod tests {
    use lodestore_media::PoolOptions;

    use super::*;
    use crate::testing::Scratch;

    fn pool(scratch: &Scratch) -> std::sync::Arc<Pool> {
        let options = PoolOptions { capacity: 8 << 20, region_bytes: 8 << 20, ..PoolOptions::default() };
        Pool::create(&scratch.store(), "test", 1, options).expect("create").0
    }

    fn store(pool: &Pool, at: NvPtr, head: &Head) {
        pool.store(at, &[head.as_bytes(), b"key", b"value"].concat());
    }

    #[test]
    fn a_record_copied_to_another_position_or_pool_fails_its_check() {
        let (scratch, other_scratch) = (Scratch::new(), Scratch::new());
        let (pool, other_pool) = (pool(&scratch), pool(&other_scratch));
        let at = pool.allocator().alloc(&pool, 256).expect("space");
        let head = Head::new(&pool, at, 7_u64, b"key", b"value", None);
        store(&pool, at, &head);
        let record = Record::<u64>::read(&pool, at).expect("record");
        record.check(at).expect("at its own position");
        assert_eq!(record.binding(), head.binding());
        assert_eq!(copied_key::<u64>(&pool, at).as_deref(), Some(&b"key"[..]));
        for shift in [16, 32, 64, 128] {
            let elsewhere = at.add(shift);
            store(&pool, elsewhere, &head);
            let record = Record::<u64>::read(&pool, elsewhere).expect("a header");
            assert!(matches!(record.check(elsewhere), Err(Error::Corrupt { .. })));
            assert_eq!(copied_key::<u64>(&pool, elsewhere), None);
        }
        store(&other_pool, at, &head);
        let record = Record::<u64>::read(&other_pool, at).expect("a header");
        assert!(matches!(record.check(at), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn seeds_of_positions_that_differ_in_one_or_two_bits_differ() {
        let scratch = Scratch::new();
        let pool = pool(&scratch);
        let at = NvPtr::new(3, 0x1234_5670);
        for first in 4..64 {
            for second in first..64 {
                let other = NvPtr::from_raw(at.raw() ^ 1 << first ^ if second > first { 1 << second } else { 0 });
                assert_ne!(pool.position_seed(at), pool.position_seed(other), "bits {first} and {second}");
            }
        }
    }
}

//! One write in a log segment, which tells by itself whether it is whole (FluidKV, VLDB 2024: thread-exclusive logs).
//!
//! ```text
//!  0       4       8     10 11 12       16
//! | crc32c | vlen  |klen |fg|ck| seq    | [expiry: 8] | key | value |     then up to the next multiple of 8
//! ```
//! `vlen` is the value's length, bit 31 the mark *durable*: all before this entry in its segment was durable when it was
//! written. `klen` is the key's length less one. `fg` has the flags in its low five bits and the *gap* in the high three:
//! the 8-byte steps that were left out before the entry. `ck` is a cheap check of the header, `seq` the sequence less the
//! segment's base. `crc32c` covers the segment's nonce, the entry's offset and everything behind itself, so that neither
//! what an older use of the space left nor an entry at another place is ever taken for one.
//!
//! An entry of 8 B + 8 B takes 32 bytes. Nothing ends an entry but its lengths: readers go on until one is not whole.
//! A batch is one record of several entries: [`batch`].

pub(crate) mod batch;
#[cfg(test)]
pub(crate) mod tests;

use lodestore_contract::Expiry;
use lodestore_contract::limits::{KEY_MAX, VALUE_MAX};
use lodestore_media::{crc32c, u32_at, u64_at};

/// Bytes of the fixed header.
pub(crate) const HEADER: usize = 16;
/// Entries begin at multiples of this, in bytes.
pub(crate) const STEP: usize = 8;
/// Bytes that the shortest entry takes.
pub(crate) const LEAST: usize = 24;
/// Bytes of what stands for a large value.
pub(crate) const POINTER: usize = 16;
/// Bytes of the longest value that is stored: those of an engine that stands on this one may have some bytes of its own.
pub(crate) const STORED_MAX: usize = VALUE_MAX + 16;
/// Bytes of an expiry.
const EXPIRY: usize = 8;
/// Offsets in a segment are below this, since the checksum takes in their steps as 32 bits.
pub(crate) const OFFSET_MAX: u64 = (STEP as u64) << 32;

/// Flag: the key is deleted; no value, no expiry.
const TOMBSTONE: u8 = 1;
/// Flag: an expiry stands before the key.
const EXPIRES: u8 = 2;
/// Flag: the value is a pointer to a large one.
const POINTS: u8 = 4;
/// A pointer with an expiry.
const POINTS_EXPIRES: u8 = POINTS | EXPIRES;
/// Flag: the head of a batch.
const BATCH: u8 = 8;
/// Flag: an operation of a batch, which counts only with its batch.
const MEMBER: u8 = 16;
/// The bits of the flags.
const FLAGS: u8 = 31;
/// Where the gap stands beside the flags.
const GAP_SHIFT: u32 = 5;
/// The mark in the length of the value.
const DURABLE: u32 = 1 << 31;

const _: () = assert!(KEY_MAX - 1 <= u16::MAX as usize && STORED_MAX < DURABLE as usize);
const _: () = assert!(HEADER + 8 + 8 == 32 && (HEADER + 1).next_multiple_of(STEP) == LEAST);

/// What all entries of a segment have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// A number that no other use of the same space has; any checksum begins with it.
    pub(crate) nonce: u64,
    /// Sequence from which those of the entries are counted.
    pub(crate) base: u64,
}

/// A place for an entry in its segment, found by [`crate::segment::place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Offset from the segment's start, in bytes, a multiple of [`STEP`].
    pub(crate) at: u64,
    /// Steps left out before it: 0 to 7.
    pub(crate) gap: u8,
}

/// What a key is to become, or became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    /// This value.
    Value(&'a [u8]),
    /// A large value that stands elsewhere; what the bytes mean is the value log's.
    Pointer(&'a [u8; POINTER]),
    /// Deleted.
    Tombstone,
}

impl<'a> Payload<'a> {
    /// The bytes that stand in the entry.
    #[inline]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        match *self {
            Self::Value(value) => value,
            Self::Pointer(pointer) => pointer,
            Self::Tombstone => &[],
        }
    }
}

/// One operation to be logged. The key is within the contract's limits, the value of [`STORED_MAX`] bytes at most; a tombstone has no expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op<'a> {
    /// The key.
    pub(crate) key: &'a [u8],
    /// Its new state.
    pub(crate) payload: Payload<'a>,
    /// When it stops to exist.
    pub(crate) expiry: Option<Expiry>,
}

impl Op<'_> {
    /// Bytes that its entry takes, a multiple of [`STEP`].
    #[inline]
    pub(crate) fn entry_len(&self) -> usize {
        span(self.expiry.is_some(), self.key.len(), self.payload.bytes().len()).next_multiple_of(STEP)
    }

    fn flags(&self) -> u8 {
        let kind = match self.payload {
            Payload::Value(_) => 0,
            Payload::Pointer(_) => POINTS,
            Payload::Tombstone => TOMBSTONE,
        };
        kind | if self.expiry.is_some() { EXPIRES } else { 0 }
    }

    fn is_sound(&self) -> bool {
        (1..=KEY_MAX).contains(&self.key.len())
            && self.payload.bytes().len() <= STORED_MAX
            && (self.expiry.is_none() || self.payload != Payload::Tombstone)
    }
}

/// Bytes of an entry without its padding.
#[inline]
fn span(expires: bool, key: usize, value: usize) -> usize {
    HEADER + if expires { EXPIRY } else { 0 } + key + value
}

/// What stands before the key: header and expiry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    bytes: [u8; HEADER + EXPIRY],
    len: usize,
}

impl Header {
    /// The bytes to store.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The header of one entry, checksum included: stored at the slot as `[header, key, value]`, padding left as it is.
/// `durable` says that all before it in the segment is durable now.
///
/// `None` where the sequence is out of the segment's reach (below its base, or 2^32 above): begin another segment. So too
/// for lengths that the contract refuses.
#[inline]
pub(crate) fn encode_header(frame: Frame, slot: Slot, sequence: u64, durable: bool, op: &Op<'_>) -> Option<Header> {
    encode(frame, slot, sequence, durable, 0, op)
}

#[inline]
fn encode(frame: Frame, slot: Slot, sequence: u64, durable: bool, also: u8, op: &Op<'_>) -> Option<Header> {
    debug_assert!(op.is_sound(), "checked by the caller");
    if !op.is_sound() {
        return None;
    }
    let value = op.payload.bytes();
    let fields =
        Fields { flags: op.flags() | also, gap: slot.gap, durable, key: op.key.len() - 1, value: value.len() as u32 };
    let mut bytes = [0; HEADER + EXPIRY];
    fields.write(frame, slot.at, sequence, &mut bytes)?;
    let mut len = HEADER;
    if let Some(expiry) = op.expiry {
        bytes[HEADER..].copy_from_slice(&expiry.millis().to_le_bytes());
        len += EXPIRY;
    }
    let crc = checksum(frame.nonce, slot.at, &bytes[4..len], &[op.key, value]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    Some(Header { bytes, len })
}

/// A header's fields, but for its sequence and its checks. For a batch's head, `key` is its operations less one and `value`
/// the steps of its body.
#[derive(Clone, Copy)]
struct Fields {
    flags: u8,
    gap: u8,
    durable: bool,
    key: usize,
    value: u32,
}

impl Fields {
    /// Writes all but the checksum. `None` where the sequence or the place is out of reach.
    #[inline]
    fn write(self, frame: Frame, at: u64, sequence: u64, bytes: &mut [u8]) -> Option<()> {
        debug_assert!(at.is_multiple_of(STEP as u64) && self.gap < 8 && self.value < DURABLE);
        let offset = u32::try_from(sequence.checked_sub(frame.base)?).ok()?;
        if at >= OFFSET_MAX {
            return None;
        }
        let length = self.value | if self.durable { DURABLE } else { 0 };
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes[8..10].copy_from_slice(&(self.key as u16).to_le_bytes());
        bytes[10] = self.flags | self.gap << GAP_SHIFT;
        bytes[12..16].copy_from_slice(&offset.to_le_bytes());
        bytes[11] = header_check(frame.nonce, at, bytes);
        Some(())
    }

    /// `None` where they are not 16 bytes, or say what no entry can be.
    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<HEADER>()?;
        let length = u32_at(head, 4);
        let key = usize::from(u16::from_le_bytes([head[8], head[9]]));
        let flags = head[10] & FLAGS;
        let fields =
            Self { flags, gap: head[10] >> GAP_SHIFT, durable: length & DURABLE != 0, key, value: length & !DURABLE };
        let sound = match flags & !MEMBER {
            0 | EXPIRES => fields.value as usize <= STORED_MAX,
            TOMBSTONE => fields.value == 0,
            POINTS | POINTS_EXPIRES => fields.value as usize == POINTER,
            BATCH => flags & MEMBER == 0,
            _ => false,
        };
        let alone = flags & MEMBER == 0 || fields.gap == 0 && !fields.durable;
        (sound && alone).then_some(fields)
    }

    /// Bytes from header to end, without padding.
    #[inline]
    fn span(self) -> usize {
        if self.flags & BATCH == 0 {
            span(self.flags & EXPIRES != 0, self.key + 1, self.value as usize)
        } else {
            HEADER + self.value as usize * STEP
        }
    }
}

/// A byte of all the header's fields, its place and the nonce: tells most of what is no entry without reading it.
#[inline]
fn header_check(nonce: u64, at: u64, head: &[u8]) -> u8 {
    // The fields but for this byte itself, which stands at 11.
    let fields = u64_at(head, 4) & !(0xff << 56);
    let place = u64::from(u32_at(head, 12)) << 32 | (at / STEP as u64) & 0xffff_ffff;
    let mixed = (fields ^ nonce).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (((mixed >> 29 ^ mixed) ^ place).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
}

/// The checksum of an entry at `at`: nonce, place, `head` (header behind the checksum, and expiry), then the parts.
#[inline]
fn checksum(nonce: u64, at: u64, head: &[u8], parts: &[&[u8]; 2]) -> u32 {
    let mut first = [0; 12 + HEADER - 4 + EXPIRY];
    first[..8].copy_from_slice(&nonce.to_le_bytes());
    first[8..12].copy_from_slice(&((at / STEP as u64) as u32).to_le_bytes());
    first[12..12 + head.len()].copy_from_slice(head);
    crc32c(&[&first[..12 + head.len()], parts[0], parts[1]])
}

/// The bytes of what may be a record (an entry or a batch) at the start of `bytes`, which stand at `at` of the segment, by the
/// looks of its header alone; padding is left out. `None` where none can be, or it would reach beyond `bytes`.
#[inline]
pub(crate) fn likely_span(bytes: &[u8], frame: Frame, at: u64) -> Option<usize> {
    let fields = Fields::read(bytes)?;
    let right = bytes[11] == header_check(frame.nonce, at, bytes) && fields.flags & MEMBER == 0;
    (right && fields.span() <= bytes.len()).then(|| fields.span())
}

/// An entry, decoded where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    bytes: &'a [u8],
    key_at: usize,
    key_len: usize,
}

impl<'a> Entry<'a> {
    /// An entry that this process wrote or found whole, also one of a batch: lengths are checked, the checksum is not. `fetch`
    /// gives that many bytes from the entry's start, or `None` where they are not all there.
    #[inline]
    pub(crate) fn read(fetch: impl Fn(usize) -> Option<&'a [u8]>) -> Option<Self> {
        let fields = Fields::read(fetch(HEADER)?)?;
        if fields.flags & BATCH != 0 {
            return None;
        }
        let key_at = span(fields.flags & EXPIRES != 0, 0, 0);
        let bytes = fetch(fields.span()).filter(|bytes| bytes.len() == fields.span())?;
        Some(Self { bytes, key_at, key_len: fields.key + 1 })
    }

    /// The entry at the start of `bytes`, which stand at `at` of the segment and may reach beyond it, also one of a batch. `None`
    /// where none is whole there.
    pub(crate) fn checked(bytes: &'a [u8], frame: Frame, at: u64) -> Option<Self> {
        let entry = Self::read(|len| bytes.get(..len))?;
        let (head, rest) = entry.bytes.split_at(entry.key_at);
        let right = head[11] == header_check(frame.nonce, at, head)
            && checksum(frame.nonce, at, &head[4..], &[rest, &[]]) == u32_at(head, 0);
        right.then_some(entry)
    }

    /// Its key.
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        &self.bytes[self.key_at..self.key_at + self.key_len]
    }

    /// What became of the key.
    #[inline]
    pub(crate) fn payload(&self) -> Payload<'a> {
        let value = &self.bytes[self.key_at + self.key_len..];
        match (self.bytes[10] & (TOMBSTONE | POINTS), value.first_chunk()) {
            (TOMBSTONE, _) => Payload::Tombstone,
            (POINTS, Some(pointer)) => Payload::Pointer(pointer),
            _ => Payload::Value(value),
        }
    }

    /// When the key stops to exist.
    #[inline]
    pub(crate) fn expiry(&self) -> Option<Expiry> {
        (self.key_at > HEADER).then(|| Expiry::at_millis(u64_at(self.bytes, HEADER)))
    }

    /// Its sequence, given the base of its segment.
    #[inline]
    pub(crate) fn sequence(&self, base: u64) -> u64 {
        base.wrapping_add(u64::from(u32_at(self.bytes, 12)))
    }

    /// Bytes that it takes, a multiple of [`STEP`].
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len().next_multiple_of(STEP)
    }

    /// Whether it counts only with its batch.
    fn is_member(&self) -> bool {
        self.bytes[10] & MEMBER != 0
    }

    fn head(&self) -> &'a [u8] {
        &self.bytes[..HEADER]
    }
}

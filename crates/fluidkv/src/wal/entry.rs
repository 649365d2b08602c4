//! One write in a log segment. An entry shows by itself whether it is whole (FluidKV, PVLDB 2024:
//! thread-exclusive logs).
//!
//! ```text
//!  0       4       8     10 11 12       16
//! | crc32c | vlen  |klen |fg|ck| seq    | [expiry: 8] | key | value |  padding to a multiple of 8
//! ```
//! `vlen` is the value's length. Its bit 31 is the flag *durable*: everything before this entry in
//! its segment was durable when the entry was written. `klen` is the key's length minus one. `fg`
//! has the flags in its low five bits and the *gap* in the high three: the 8-byte steps skipped
//! before the entry. `ck` is a cheap check of the header. `seq` is the sequence number minus the
//! segment's base. `crc32c` covers the segment's nonce, the entry's offset and all bytes after the
//! checksum. Leftovers of an older use of the space and entries at another offset therefore never
//! pass as an entry.
//!
//! An entry of 8 B + 8 B uses 32 bytes. Only its lengths say where an entry ends: readers continue
//! until an entry is not whole. A batch is one record of several entries: [`batch`].

pub(crate) mod batch;
#[cfg(test)]
pub(crate) mod tests;

use lodestore_contract::Expiry;
use lodestore_contract::limits::KEY_MAX;
use lodestore_media::{crc32c, u32_at, u64_at};

use crate::layout::STORED_MAX;

/// Bytes of the fixed header.
pub(crate) const ENTRY_HEADER_BYTES: usize = 16;
/// Alignment of entries, in bytes.
pub(crate) const ENTRY_ALIGN_BYTES: usize = 8;
/// Bytes of the shortest entry.
pub(crate) const ENTRY_BYTES_MIN: usize = 24;
/// Bytes of a pointer to a large value.
pub(crate) const POINTER_BYTES: usize = 16;
/// Bytes of an expiry.
const EXPIRY_BYTES: usize = 8;
/// Offsets in a segment are below this: the checksum covers an offset as 32 bits, in steps.
pub(crate) const OFFSET_MAX: u64 = (ENTRY_ALIGN_BYTES as u64) << 32;

/// Flag: the key is deleted; no value, no expiry.
const TOMBSTONE_FLAG: u8 = 1;
/// Flag: an expiry precedes the key.
const EXPIRES_FLAG: u8 = 2;
/// Flag: the value is a pointer to a large one.
const POINTER_FLAG: u8 = 4;
/// A pointer with an expiry.
const EXPIRING_POINTER_MASK: u8 = POINTER_FLAG | EXPIRES_FLAG;
/// Flag: the head of a batch.
const BATCH_FLAG: u8 = 8;
/// Flag: an operation of a batch, which counts only with its batch.
const MEMBER_FLAG: u8 = 16;
/// The bits of the flags.
const FLAGS_MASK: u8 = 31;
/// Shift of the gap above the flags.
const GAP_SHIFT: u32 = 5;
/// The flag *durable* in the length of the value.
const DURABLE_FLAG: u32 = 1 << 31;

const _: () = assert!(KEY_MAX - 1 <= u16::MAX as usize && STORED_MAX < DURABLE_FLAG as usize);
const _: () = assert!(
    ENTRY_HEADER_BYTES + 8 + 8 == 32 && (ENTRY_HEADER_BYTES + 1).next_multiple_of(ENTRY_ALIGN_BYTES) == ENTRY_BYTES_MIN
);

/// Constants of all entries of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// A number that no other use of the same space has. Each checksum begins with it.
    pub(crate) nonce: u64,
    /// Base of the entries' sequence numbers.
    pub(crate) base: u64,
}

/// The position of an entry in its segment, found by [`crate::wal::segment::place_record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Offset from the segment's start, in bytes, a multiple of [`ENTRY_ALIGN_BYTES`].
    pub(crate) at: u64,
    /// Steps skipped before the entry: 0 to 7.
    pub(crate) gap: u8,
}

/// The new state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    /// A value stored in the entry.
    Value(&'a [u8]),
    /// A large value stored elsewhere. Only the value log interprets the bytes.
    Pointer(&'a [u8; POINTER_BYTES]),
    /// Deleted.
    Tombstone,
}

impl<'a> Payload<'a> {
    /// Returns the bytes stored in the entry.
    #[inline]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        match *self {
            Self::Value(value) => value,
            Self::Pointer(pointer) => pointer,
            Self::Tombstone => &[],
        }
    }
}

/// One operation to log. The key is within the contract's limits, the value has at most
/// [`STORED_MAX`] bytes, and a tombstone has no expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op<'a> {
    /// The key.
    pub(crate) key: &'a [u8],
    /// Its new state.
    pub(crate) payload: Payload<'a>,
    /// When the key expires.
    pub(crate) expiry: Option<Expiry>,
}

impl Op<'_> {
    /// Returns the bytes of its entry, a multiple of [`ENTRY_ALIGN_BYTES`].
    #[inline]
    pub(crate) fn entry_len(&self) -> usize {
        span(self.expiry.is_some(), self.key.len(), self.payload.bytes().len()).next_multiple_of(ENTRY_ALIGN_BYTES)
    }

    /// Returns whether it deletes its key.
    #[inline]
    pub(crate) fn is_delete(&self) -> bool {
        self.payload == Payload::Tombstone
    }

    fn flags(&self) -> u8 {
        let kind = match self.payload {
            Payload::Value(_) => 0,
            Payload::Pointer(_) => POINTER_FLAG,
            Payload::Tombstone => TOMBSTONE_FLAG,
        };
        kind | if self.expiry.is_some() { EXPIRES_FLAG } else { 0 }
    }

    fn is_sound(&self) -> bool {
        (1..=KEY_MAX).contains(&self.key.len())
            && self.payload.bytes().len() <= STORED_MAX
            && (self.expiry.is_none() || self.payload != Payload::Tombstone)
    }
}

/// Returns the bytes of an entry without its padding.
#[inline]
fn span(expires: bool, key: usize, value: usize) -> usize {
    ENTRY_HEADER_BYTES + if expires { EXPIRY_BYTES } else { 0 } + key + value
}

/// The bytes before the key: header and expiry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    bytes: [u8; ENTRY_HEADER_BYTES + EXPIRY_BYTES],
    len: usize,
}

impl Header {
    /// Returns the bytes to store.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the header of one entry, checksum included. The caller stores `[header, key, value]` at
/// the slot and leaves the padding unchanged. `durable`: everything before the entry in the segment
/// is durable now.
///
/// Returns `None` if the sequence number is out of the segment's range (below its base, or 2^32
/// above): the caller begins another segment. Also returns `None` for lengths that the contract
/// refuses.
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
    let mut bytes = [0; ENTRY_HEADER_BYTES + EXPIRY_BYTES];
    fields.write(frame, slot.at, sequence, &mut bytes)?;
    let mut len = ENTRY_HEADER_BYTES;
    if let Some(expiry) = op.expiry {
        bytes[ENTRY_HEADER_BYTES..].copy_from_slice(&expiry.millis().to_le_bytes());
        len += EXPIRY_BYTES;
    }
    let crc = checksum(frame.nonce, slot.at, &bytes[4..len], &[op.key, value]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    Some(Header { bytes, len })
}

/// The fields of a header, except its sequence number and its checks. In a batch's head, `key` is
/// the number of operations minus one, and `value` the number of steps of the body.
#[derive(Clone, Copy)]
struct Fields {
    flags: u8,
    gap: u8,
    durable: bool,
    key: usize,
    value: u32,
}

impl Fields {
    /// Writes all but the checksum. Returns `None` if the sequence number or the offset is out of
    /// range.
    #[inline]
    fn write(self, frame: Frame, at: u64, sequence: u64, bytes: &mut [u8]) -> Option<()> {
        debug_assert!(at.is_multiple_of(ENTRY_ALIGN_BYTES as u64) && self.gap < 8 && self.value < DURABLE_FLAG);
        let offset = u32::try_from(sequence.checked_sub(frame.base)?).ok()?;
        if at >= OFFSET_MAX {
            return None;
        }
        let length = self.value | if self.durable { DURABLE_FLAG } else { 0 };
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes[8..10].copy_from_slice(&(self.key as u16).to_le_bytes());
        bytes[10] = self.flags | self.gap << GAP_SHIFT;
        bytes[12..16].copy_from_slice(&offset.to_le_bytes());
        bytes[11] = header_check(frame.nonce, at, bytes);
        Some(())
    }

    /// Returns `None` if `bytes` has fewer than 16 bytes or no entry can have these fields.
    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<ENTRY_HEADER_BYTES>()?;
        let length = u32_at(head, 4);
        let key = usize::from(u16::from_le_bytes([head[8], head[9]]));
        let flags = head[10] & FLAGS_MASK;
        let fields = Self {
            flags,
            gap: head[10] >> GAP_SHIFT,
            durable: length & DURABLE_FLAG != 0,
            key,
            value: length & !DURABLE_FLAG,
        };
        let sound = match flags & !MEMBER_FLAG {
            0 | EXPIRES_FLAG => fields.value as usize <= STORED_MAX,
            TOMBSTONE_FLAG => fields.value == 0,
            POINTER_FLAG | EXPIRING_POINTER_MASK => fields.value as usize == POINTER_BYTES,
            BATCH_FLAG => flags & MEMBER_FLAG == 0,
            _ => false,
        };
        let alone = flags & MEMBER_FLAG == 0 || fields.gap == 0 && !fields.durable;
        (sound && alone).then_some(fields)
    }

    /// Returns the bytes from header to end, without padding.
    #[inline]
    fn span(self) -> usize {
        if self.flags & BATCH_FLAG == 0 {
            span(self.flags & EXPIRES_FLAG != 0, self.key + 1, self.value as usize)
        } else {
            ENTRY_HEADER_BYTES + self.value as usize * ENTRY_ALIGN_BYTES
        }
    }
}

/// Returns a one-byte check of the header's fields, its offset and the nonce. The check rejects
/// most bytes that are not an entry without reading the rest.
#[inline]
fn header_check(nonce: u64, at: u64, head: &[u8]) -> u8 {
    // All fields except this byte itself, which is at offset 11.
    let fields = u64_at(head, 4) & !(0xff << 56);
    let place = u64::from(u32_at(head, 12)) << 32 | (at / ENTRY_ALIGN_BYTES as u64) & 0xffff_ffff;
    let mixed = (fields ^ nonce).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (((mixed >> 29 ^ mixed) ^ place).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
}

/// Returns the checksum of an entry at `at`. The checksum covers the nonce, the offset, `head` (the
/// header after the checksum, and the expiry), then the parts.
#[inline]
fn checksum(nonce: u64, at: u64, head: &[u8], parts: &[&[u8]; 2]) -> u32 {
    let mut first = [0; 12 + ENTRY_HEADER_BYTES - 4 + EXPIRY_BYTES];
    first[..8].copy_from_slice(&nonce.to_le_bytes());
    first[8..12].copy_from_slice(&((at / ENTRY_ALIGN_BYTES as u64) as u32).to_le_bytes());
    first[12..12 + head.len()].copy_from_slice(head);
    crc32c(&[&first[..12 + head.len()], parts[0], parts[1]])
}

/// Returns the bytes of the record (an entry or a batch) that may begin at the start of `bytes`,
/// without padding. Judges by the header alone. `bytes` begins at offset `at` of the segment.
/// Returns `None` if no record can begin there, or if it would extend past `bytes`.
#[inline]
pub(crate) fn likely_span(bytes: &[u8], frame: Frame, at: u64) -> Option<usize> {
    let fields = Fields::read(bytes)?;
    let right = bytes[11] == header_check(frame.nonce, at, bytes) && fields.flags & MEMBER_FLAG == 0;
    (right && fields.span() <= bytes.len()).then(|| fields.span())
}

/// An entry, decoded in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    bytes: &'a [u8],
    key_at: usize,
    key_len: usize,
}

impl<'a> Entry<'a> {
    /// Reads an entry that this process wrote or found whole, also an entry of a batch. Lengths are
    /// checked, the checksum is not. `fetch` returns that many bytes from the entry's start, or
    /// `None` if they are not all available.
    #[inline]
    pub(crate) fn read(fetch: impl Fn(usize) -> Option<&'a [u8]>) -> Option<Self> {
        let fields = Fields::read(fetch(ENTRY_HEADER_BYTES)?)?;
        if fields.flags & BATCH_FLAG != 0 {
            return None;
        }
        let key_at = span(fields.flags & EXPIRES_FLAG != 0, 0, 0);
        let bytes = fetch(fields.span()).filter(|bytes| bytes.len() == fields.span())?;
        Some(Self { bytes, key_at, key_len: fields.key + 1 })
    }

    /// Returns the entry at the start of `bytes`, also an entry of a batch. `bytes` begins at
    /// offset `at` of the segment and may extend past the entry. Returns `None` if no whole entry
    /// is there.
    pub(crate) fn checked(bytes: &'a [u8], frame: Frame, at: u64) -> Option<Self> {
        let entry = Self::read(|len| bytes.get(..len))?;
        let (head, rest) = entry.bytes.split_at(entry.key_at);
        let right = head[11] == header_check(frame.nonce, at, head)
            && checksum(frame.nonce, at, &head[4..], &[rest, &[]]) == u32_at(head, 0);
        right.then_some(entry)
    }

    /// Returns its key.
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        &self.bytes[self.key_at..self.key_at + self.key_len]
    }

    /// Returns the new state of the key.
    #[inline]
    pub(crate) fn payload(&self) -> Payload<'a> {
        let value = &self.bytes[self.key_at + self.key_len..];
        match (self.bytes[10] & (TOMBSTONE_FLAG | POINTER_FLAG), value.first_chunk()) {
            (TOMBSTONE_FLAG, _) => Payload::Tombstone,
            (POINTER_FLAG, Some(pointer)) => Payload::Pointer(pointer),
            _ => Payload::Value(value),
        }
    }

    /// Returns when the key expires.
    #[inline]
    pub(crate) fn expiry(&self) -> Option<Expiry> {
        (self.key_at > ENTRY_HEADER_BYTES).then(|| Expiry::at_millis(u64_at(self.bytes, ENTRY_HEADER_BYTES)))
    }

    /// Returns its sequence number, given the base of its segment.
    #[inline]
    pub(crate) fn sequence(&self, base: u64) -> u64 {
        base.wrapping_add(u64::from(u32_at(self.bytes, 12)))
    }

    /// Returns its bytes in the segment, a multiple of [`ENTRY_ALIGN_BYTES`].
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len().next_multiple_of(ENTRY_ALIGN_BYTES)
    }

    /// Returns whether the entry counts only with its batch.
    fn is_member(&self) -> bool {
        self.bytes[10] & MEMBER_FLAG != 0
    }

    fn head(&self) -> &'a [u8] {
        &self.bytes[..ENTRY_HEADER_BYTES]
    }
}

//! An atomic batch: one record in the log, with a head and one entry per operation.
//!
//! ```text
//! | head: 16 | entry | entry | ...       each entry at a multiple of 8, padded with zeros
//! ```
//! The head is a header with the flag *batch*. In place of the key's length it has the number of
//! operations minus one. In place of the value's length it has the length of the body in 8-byte
//! steps. Its checksum covers its own fields and the checksums of the entries. The checksum of each
//! entry covers the entry's bytes. A batch is thus either whole or invalid, and no byte is summed
//! twice. Each entry must have the flag *member*, and does not count without its batch. Entries can
//! be read in place like any other.
//!
//! All operations of a batch share one sequence number, so a snapshot sees all of them or none. If
//! a key occurs twice, the later operation wins: replay accepts an entry whose sequence number
//! equals that of the entry it has.

use lodestore_contract::limits::BATCH_OPS_MAX;
use lodestore_contract::{Error, Result};
use lodestore_media::{Pool, u32_at};

use super::{
    BATCH_FLAG, DURABLE_FLAG, ENTRY_ALIGN_BYTES, ENTRY_HEADER_BYTES, Entry, Fields, Frame, GAP_SHIFT, Header,
    MEMBER_FLAG, Op, Slot, checksum, encode,
};

/// Zeros for padding.
const PADDING: [u8; ENTRY_ALIGN_BYTES] = [0; ENTRY_ALIGN_BYTES];

/// A batch to be stored in the log.
pub(crate) struct BatchRecord<'a> {
    head: [u8; ENTRY_HEADER_BYTES],
    members: Vec<(Header, Op<'a>)>,
    at: u64,
}

impl<'a> BatchRecord<'a> {
    /// Returns the bytes of the record of these operations. Returns `None` for no operations, for
    /// more than the contract allows, and for a body of 16 GiB or more.
    pub(crate) fn len_of(ops: &[Op<'_>]) -> Option<usize> {
        let body = ops.iter().try_fold(0usize, |sum, op| sum.checked_add(op.entry_len()))?;
        ((1..=BATCH_OPS_MAX).contains(&ops.len()) && body / ENTRY_ALIGN_BYTES < DURABLE_FLAG as usize)
            .then_some(ENTRY_HEADER_BYTES + body)
    }

    /// Encodes the record of these operations for this slot. Returns `None` in the cases of
    /// [`super::encode_header`] and [`Self::len_of`].
    pub(crate) fn encode(frame: Frame, slot: Slot, sequence: u64, durable: bool, ops: &[Op<'a>]) -> Option<Self> {
        let len = Self::len_of(ops)?;
        let mut members = Vec::with_capacity(ops.len());
        let mut sums = Vec::with_capacity(4 * ops.len());
        let mut at = slot.at + ENTRY_HEADER_BYTES as u64;
        for op in ops {
            let header = encode(frame, Slot { at, gap: 0 }, sequence, false, MEMBER_FLAG, op)?;
            sums.extend_from_slice(&header.bytes[..4]);
            members.push((header, *op));
            at += op.entry_len() as u64;
        }
        debug_assert_eq!(at, slot.at + len as u64, "the length that was told is the length that is taken");
        let mut head = [0; ENTRY_HEADER_BYTES];
        let value = ((len - ENTRY_HEADER_BYTES) / ENTRY_ALIGN_BYTES) as u32;
        let fields = Fields { flags: BATCH_FLAG, gap: slot.gap, durable, key: ops.len() - 1, value };
        fields.write(frame, slot.at, sequence, &mut head)?;
        let crc = checksum(frame.nonce, slot.at, &head[4..], &[&sums, &[]]);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        Some(Self { head, members, at: slot.at })
    }

    /// Returns the parts to store at the slot, in order.
    pub(crate) fn parts(&self) -> Vec<&[u8]> {
        let mut parts: Vec<&[u8]> = Vec::with_capacity(1 + 4 * self.members.len());
        parts.push(&self.head);
        for (header, op) in &self.members {
            let value = op.payload.bytes();
            let taken = header.as_bytes().len() + op.key.len() + value.len();
            let padding = &PADDING[..taken.next_multiple_of(ENTRY_ALIGN_BYTES) - taken];
            parts.extend([header.as_bytes(), op.key, value, padding]);
        }
        parts
    }

    /// Returns the offset of each operation's entry in the segment, in order.
    pub(crate) fn positions(&self) -> impl Iterator<Item = u64> {
        self.members.iter().scan(self.at + ENTRY_HEADER_BYTES as u64, |next, (_, op)| {
            let at = *next;
            *next += op.entry_len() as u64;
            Some(at)
        })
    }
}

/// Returns the bytes of a batch record of these operations.
///
/// # Errors
/// [`Error::Full`] if no record can have them.
pub(crate) fn batch_len(pool: &Pool, ops: &[Op<'_>]) -> Result<usize> {
    BatchRecord::len_of(ops).ok_or_else(|| Error::Full { needed: u64::MAX, capacity: pool.options().capacity })
}

/// Returns whether a batch only deletes.
pub(crate) fn only_deletes(ops: &[Op<'_>]) -> bool {
    ops.iter().all(Op::is_delete)
}

/// A batch that was found whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl<'a> Batch<'a> {
    fn checked(bytes: &'a [u8], fields: Fields, frame: Frame, at: u64) -> Option<Self> {
        let bytes = bytes.get(..fields.span())?;
        let (mut sums, mut next, mut count) = (Vec::new(), ENTRY_HEADER_BYTES, 0);
        while next < bytes.len() {
            let member = Entry::checked(&bytes[next..], frame, at + next as u64)?;
            let same = member.is_member() && u32_at(member.head(), 12) == u32_at(bytes, 12);
            (same && count <= fields.key).then_some(())?;
            sums.extend_from_slice(&member.head()[..4]);
            (next, count) = (next + member.len(), count + 1);
        }
        let whole = next == bytes.len() && count == fields.key + 1;
        let right =
            whole && checksum(frame.nonce, at, &bytes[4..ENTRY_HEADER_BYTES], &[&sums, &[]]) == u32_at(bytes, 0);
        right.then_some(Self { bytes, at })
    }

    /// Returns its operations in order, each with the offset of its entry in the segment.
    pub(crate) fn members(&self) -> impl Iterator<Item = (u64, Entry<'a>)> + use<'a> {
        let Self { bytes, at } = *self;
        let mut next = ENTRY_HEADER_BYTES;
        std::iter::from_fn(move || {
            let rest = bytes.get(next..)?;
            let member = Entry::read(|len| rest.get(..len))?;
            let place = at + next as u64;
            next += member.len();
            Some((place, member))
        })
    }
}

/// The record of one durable append to a log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Record<'a> {
    /// One write.
    One(Entry<'a>),
    /// Several writes: all of them count or none.
    Batch(Batch<'a>),
}

impl<'a> Record<'a> {
    /// Returns the record at the start of `bytes`. `bytes` begins at offset `at` of the segment and
    /// may extend past the record. Returns `None` if no whole record is there. An entry of a batch
    /// is no record by itself.
    pub(crate) fn checked(bytes: &'a [u8], frame: Frame, at: u64) -> Option<Self> {
        super::likely_span(bytes, frame, at)?;
        let fields = Fields::read(bytes)?;
        if fields.flags & BATCH_FLAG != 0 {
            Batch::checked(bytes, fields, frame, at).map(Self::Batch)
        } else {
            Entry::checked(bytes, frame, at).map(Self::One)
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::One(entry) => entry.bytes,
            Self::Batch(batch) => batch.bytes,
        }
    }

    /// Returns whether everything before it in its segment was durable when it was written.
    pub(crate) fn is_durable(&self) -> bool {
        u32_at(self.bytes(), 4) & DURABLE_FLAG != 0
    }

    /// Returns the steps skipped before it.
    pub(crate) fn gap(&self) -> u8 {
        self.bytes()[10] >> GAP_SHIFT
    }

    /// Returns its bytes in the segment, a multiple of [`ENTRY_ALIGN_BYTES`].
    pub(crate) fn len(&self) -> usize {
        self.bytes().len().next_multiple_of(ENTRY_ALIGN_BYTES)
    }
}

//! An atomic batch: one record in the log, of a head and an entry for each operation.
//!
//! ```text
//! | head: 16 | entry | entry | ...       each entry at a multiple of 8, padded with zeros
//! ```
//! The head is a header with the flag *batch*: operations less one where an entry has its key's length, 8-byte steps of the body
//! where it has its value's. Its checksum covers its own fields and the checksums of the entries, each of which covers its own
//! bytes: so a batch is whole or is none, and no byte is summed twice. The entries have the flag *member*, without which
//! nothing at their place would count, and can be read in place as any other.
//!
//! All operations of a batch share one sequence, so a snapshot sees all of them or none. Where a key comes twice, the
//! later one wins: replay takes an entry with a sequence equal to that of the one it has.

use lodestore_contract::limits::BATCH_OPS_MAX;
use lodestore_media::u32_at;

use super::{
    BATCH, DURABLE, Entry, Fields, Frame, GAP_SHIFT, HEADER, Header, MEMBER, Op, STEP, Slot, checksum, encode,
};

/// Zeros to pad with.
const PADDING: [u8; STEP] = [0; STEP];

/// A batch on its way to the log.
pub(crate) struct BatchRecord<'a> {
    head: [u8; HEADER],
    members: Vec<(Header, Op<'a>)>,
    at: u64,
}

impl<'a> BatchRecord<'a> {
    /// Bytes that the record of these operations takes. `None` for none of them, for more than the contract allows, and for a
    /// body of 16 GiB or more.
    pub(crate) fn len_of(ops: &[Op<'_>]) -> Option<usize> {
        let body = ops.iter().try_fold(0usize, |sum, op| sum.checked_add(op.entry_len()))?;
        ((1..=BATCH_OPS_MAX).contains(&ops.len()) && body / STEP < DURABLE as usize).then_some(HEADER + body)
    }

    /// The record of these operations, for this slot. `None` as [`super::encode_header`] and [`Self::len_of`] have it.
    pub(crate) fn encode(frame: Frame, slot: Slot, sequence: u64, durable: bool, ops: &[Op<'a>]) -> Option<Self> {
        let len = Self::len_of(ops)?;
        let mut members = Vec::with_capacity(ops.len());
        let mut sums = Vec::with_capacity(4 * ops.len());
        let mut at = slot.at + HEADER as u64;
        for op in ops {
            let header = encode(frame, Slot { at, gap: 0 }, sequence, false, MEMBER, op)?;
            sums.extend_from_slice(&header.bytes[..4]);
            members.push((header, *op));
            at += op.entry_len() as u64;
        }
        debug_assert_eq!(at, slot.at + len as u64, "the length that was told is the length that is taken");
        let mut head = [0; HEADER];
        let value = ((len - HEADER) / STEP) as u32;
        let fields = Fields { flags: BATCH, gap: slot.gap, durable, key: ops.len() - 1, value };
        fields.write(frame, slot.at, sequence, &mut head)?;
        let crc = checksum(frame.nonce, slot.at, &head[4..], &[&sums, &[]]);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        Some(Self { head, members, at: slot.at })
    }

    /// What to store at the slot, one part behind the other.
    pub(crate) fn parts(&self) -> Vec<&[u8]> {
        let mut parts: Vec<&[u8]> = Vec::with_capacity(1 + 4 * self.members.len());
        parts.push(&self.head);
        for (header, op) in &self.members {
            let value = op.payload.bytes();
            let taken = header.as_bytes().len() + op.key.len() + value.len();
            let padding = &PADDING[..taken.next_multiple_of(STEP) - taken];
            parts.extend([header.as_bytes(), op.key, value, padding]);
        }
        parts
    }

    /// The offset of each operation's entry in the segment, in their order.
    pub(crate) fn places(&self) -> impl Iterator<Item = u64> {
        self.members.iter().scan(self.at + HEADER as u64, |next, (_, op)| {
            let at = *next;
            *next += op.entry_len() as u64;
            Some(at)
        })
    }
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
        let (mut sums, mut next, mut count) = (Vec::new(), HEADER, 0);
        while next < bytes.len() {
            let member = Entry::checked(&bytes[next..], frame, at + next as u64)?;
            let same = member.is_member() && u32_at(member.head(), 12) == u32_at(bytes, 12);
            (same && count <= fields.key).then_some(())?;
            sums.extend_from_slice(&member.head()[..4]);
            (next, count) = (next + member.len(), count + 1);
        }
        let whole = next == bytes.len() && count == fields.key + 1;
        let right = whole && checksum(frame.nonce, at, &bytes[4..HEADER], &[&sums, &[]]) == u32_at(bytes, 0);
        right.then_some(Self { bytes, at })
    }

    /// Its operations in their order, each with the offset of its entry in the segment.
    pub(crate) fn members(&self) -> impl Iterator<Item = (u64, Entry<'a>)> + use<'a> {
        let Self { bytes, at } = *self;
        let mut next = HEADER;
        std::iter::from_fn(move || {
            let rest = bytes.get(next..)?;
            let member = Entry::read(|len| rest.get(..len))?;
            let place = at + next as u64;
            next += member.len();
            Some((place, member))
        })
    }
}

/// What one durable append put into a log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Record<'a> {
    /// One write.
    One(Entry<'a>),
    /// Several, of which all count or none.
    Batch(Batch<'a>),
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, which stand at `at` of the segment and may reach beyond it. `None` where none is
    /// whole there; an entry of a batch is none by itself.
    pub(crate) fn checked(bytes: &'a [u8], frame: Frame, at: u64) -> Option<Self> {
        super::likely_span(bytes, frame, at)?;
        let fields = Fields::read(bytes)?;
        if fields.flags & BATCH != 0 {
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

    /// Whether all before it in its segment was durable when it was written.
    pub(crate) fn is_durable(&self) -> bool {
        u32_at(self.bytes(), 4) & DURABLE != 0
    }

    /// Steps that were left out before it.
    pub(crate) fn gap(&self) -> u8 {
        self.bytes()[10] >> GAP_SHIFT
    }

    /// Bytes that it takes, a multiple of [`STEP`].
    pub(crate) fn len(&self) -> usize {
        self.bytes().len().next_multiple_of(STEP)
    }
}

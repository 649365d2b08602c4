//! A log segment: an extent for the writes of one memtable. One thread slot appends to it or, in a
//! shared log, all threads do. Its header, and what proves the end of its records. `wal/reader.rs`
//! reads it.
//!
//! ```text
//!  0      4        8     10     12       16     24     32      40       48      56     64
//! | LLOG | crc32c | ver | slot | number | gen. | base | nonce | capac. | prev. | hint | copy |
//!  128           capacity - 64
//! | records ... | spare |
//! ```
//!
//! `crc32c` covers the bytes 8..56. The header is stored twice, so that no damage to a line
//! hides the records. A third copy in the segment's last line, the *spare*, covers damage to a
//! page. The segments of one slot and generation are numbered from 0 without holes. `prev.` is the
//! durable length of the previous segment, in bytes from its start, when this one was created; 0 if
//! unknown.
//!
//! Persist order in a log of one thread: header; then each record, stored and fenced before it is
//! acknowledged, the first one together with the header. The spare is stored when the first record
//! is durable, and fenced with the next record. A whole spare therefore proves that a record
//! existed. Once a record and all before it are durable, an *end mark* is stored directly after it,
//! where the next record or gap begins. Only then is the record acknowledged. The end mark is not
//! flushed, so it costs no persist order, and it survives a kill.
//!
//! In a shared log (`tree/group_commit.rs`) the records of a group have one fence, and
//! `mark_shared_end` may skip the end mark. At `interval`, a record there is acknowledged before it
//! is durable.
//!
//! A reader stops at the first record that is not whole. The bytes there are one of two:
//!
//! * the end, or a truncated record: nothing proves that it was durable;
//! * damage: an end mark follows, or a later whole record with the mark *durable*; or the next
//!   segment's header proves a longer log; or there is a spare but no record.
//!
//! The end is also damage if the spare must be durable and is not whole, and nothing else confirms
//! this end. The spare is durable with the segment's second record of one thread.
//!
//! The *end hint* repeats the end mark elsewhere: in the last 8 bytes of the spare's line or of the
//! second header copy's line, whichever is in the other half of the segment. A damaged page at the
//! log's end leaves the hint.
//!
//! A power failure may lose the end mark and the end hint of the last record, which are not flushed
//! with it. Then a damaged last record looks like a truncated one. In a log of one thread, the
//! second record that ends in each page of 4096 bytes flushes the hint of the record before it. If
//! the last page of such a log is lost, the early end is detected.

use lodestore_contract::{Error, Result};
use lodestore_media::{crc32c, u32_at, u64_at};

use crate::layout::{LOG_HEADER_BYTES, LOG_SPARE_BYTES};
use crate::wal::entry::batch::Record;
use crate::wal::entry::{ENTRY_ALIGN_BYTES, ENTRY_BYTES_MIN, Frame, OFFSET_MAX, Slot};

#[cfg(test)]
mod tests;

/// Bytes of a segment's header, with both copies.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 2 * HEADER_COPY_BYTES;
/// Bytes of the spare copy at the segment's end.
pub(crate) const SPARE_BYTES: usize = HEADER_COPY_BYTES;
/// Bytes of one header copy.
const HEADER_COPY_BYTES: usize = 64;
const _: () = assert!(SEGMENT_HEADER_BYTES == LOG_HEADER_BYTES && SPARE_BYTES == LOG_SPARE_BYTES);
/// Bytes of a copy that belong to the header, including those that its checksum covers. The end
/// hint follows.
const HEADER_BYTES: usize = HEADER_COPY_BYTES - END_MARK_BYTES;
/// Offset of the first end hint: after the second copy of the header.
const FIRST_HINT_AT: u64 = (HEADER_COPY_BYTES + HEADER_BYTES) as u64;
pub(super) const END_MARK_BYTES: usize = ENTRY_ALIGN_BYTES;
/// Bytes of a cache line.
pub(super) const LINE_BYTES: u64 = 64;
pub(crate) const LOG_VERSION: u16 = 3;
const MAGIC: [u8; 4] = *b"LLOG";

/// Returns the offset of the spare header copy, where records end, in a segment of this many bytes.
#[inline]
pub(crate) fn spare_at(capacity: u64) -> u64 {
    capacity.saturating_sub(SPARE_BYTES as u64)
}

/// Returns where a writer's records end in a segment of this many bytes: the end mark of the last
/// record still fits. Readers accept records up to the spare.
#[inline]
pub(crate) fn records_end_of(capacity: u64) -> u64 {
    spare_at(capacity).saturating_sub(END_MARK_BYTES as u64)
}

/// Returns the bytes of a segment whose only record has this length.
pub(crate) fn capacity_for(len: u64) -> u64 {
    (SEGMENT_HEADER_BYTES + END_MARK_BYTES + SPARE_BYTES) as u64 + len
}

/// Returns the end mark, stored at offset `at` of a segment when all before it is durable. The mark
/// is specific to this offset and this use of the space.
#[inline]
pub(crate) fn end_mark(frame: Frame, at: u64) -> u64 {
    let mixed = (frame.nonce ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed >> 32 ^ mixed).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // Never zero: unwritten space is zero.
    mixed >> 29 ^ mixed | 1
}

/// Returns the end hint: the offset in steps of 8, with the high half of the end mark there as its
/// check.
#[inline]
pub(crate) fn end_hint(mark: u64, end: u64) -> u64 {
    (mark & !u64::from(u32::MAX)) | (end / ENTRY_ALIGN_BYTES as u64)
}

/// Returns where the end hint for records up to `end` is stored: in the half of the segment that
/// does not hold `end`.
#[inline]
pub(crate) fn end_hint_at(end: u64, spare_at: u64) -> u64 {
    if end > (spare_at + SPARE_BYTES as u64) / 2 { FIRST_HINT_AT } else { spare_at + HEADER_BYTES as u64 }
}

/// Decodes an end hint: all records up to the returned offset were durable.
fn hinted_end(frame: Frame, hint: u64) -> Option<u64> {
    let end = (hint & u64::from(u32::MAX)) * ENTRY_ALIGN_BYTES as u64;
    (hint != 0 && end_hint(end_mark(frame, end), end) == hint).then_some(end)
}

/// Returns where a record of `len` bytes goes in a segment that is written up to `end` and may hold
/// records up to `records_end`. This is `end`, or the next line if the record would otherwise touch
/// one line more than necessary. `None` if it does not fit.
#[inline]
pub(crate) fn place_record(end: u64, len: usize, records_end: u64) -> Option<Slot> {
    debug_assert!(end.is_multiple_of(ENTRY_ALIGN_BYTES as u64) && len >= ENTRY_BYTES_MIN);
    let len = len as u64;
    let lines = (end % LINE_BYTES).checked_add(len)?.div_ceil(LINE_BYTES);
    let at = if lines > len.div_ceil(LINE_BYTES) { end.next_multiple_of(LINE_BYTES) } else { end };
    (at.checked_add(len)? <= records_end).then(|| Slot { at, gap: ((at - end) / ENTRY_ALIGN_BYTES as u64) as u8 })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The memtable whose writes the segment holds.
    pub(crate) generation: u64,
    /// The thread slot that writes the segment.
    pub(crate) slot: u16,
    /// Number among the segments of this slot and generation, from 0.
    pub(crate) number: u32,
    /// Nonce of the checksums and base of the sequence numbers.
    pub(crate) frame: Frame,
    /// Bytes including the header: a multiple of 8, at most 32 GiB.
    pub(crate) capacity: u64,
    /// Bytes of the previous segment (by number) that were durable when this one was created; 0 if
    /// unknown.
    pub(crate) previous_end: u64,
}

/// A segment as its headers describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) header: SegmentHeader,
    /// Whether the spare is whole: there was a durable record.
    pub(crate) has_spare: bool,
    /// Whether only the spare is whole.
    pub(crate) only_spare: bool,
    /// All bytes up to here were durable, according to the end hints; 0 if none is whole.
    hinted_end: u64,
}

impl Found {
    /// Returns the offset up to which all was durable at least; 0 if unknown.
    pub(crate) fn least_end(&self) -> u64 {
        self.hinted_end.max(if self.has_spare { (SEGMENT_HEADER_BYTES + ENTRY_BYTES_MIN) as u64 } else { 0 })
    }

    /// Returns whether a record of this segment, at the start of `extent`, was durable and is found
    /// or known to be missing.
    pub(crate) fn has_record(&self, extent: &[u8]) -> bool {
        let first =
            || Record::checked(extent.get(SEGMENT_HEADER_BYTES..)?, self.header.frame, SEGMENT_HEADER_BYTES as u64);
        self.has_spare || self.hinted_end > 0 || first().is_some()
    }
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        for copy in bytes.as_chunks_mut::<HEADER_COPY_BYTES>().0 {
            copy[..HEADER_BYTES].copy_from_slice(&self.copy());
        }
        bytes
    }

    /// Returns one copy without its end hint.
    pub(crate) fn copy(&self) -> [u8; HEADER_BYTES] {
        debug_assert!(is_capacity(self.capacity));
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&LOG_VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.slot.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        let words = [self.generation, self.frame.base, self.frame.nonce, self.capacity, self.previous_end];
        for (word, place) in words.iter().zip(bytes[16..].as_chunks_mut::<8>().0) {
            *place = word.to_le_bytes();
        }
        let crc = crc32c(&[&bytes[8..]]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the header of the segment in the bytes of an extent. `None` if no copy is whole: the
    /// segment was never finished. At most its first record was acknowledged, unless its number is
    /// missing among those of its slot. A header of a longer segment, or a spare that differs from
    /// the header, is from an older use.
    ///
    /// # Errors
    /// [`Error::NewerFormat`], [`Error::OlderFormat`]; [`Error::Corrupt`] for a whole header with
    /// impossible values.
    pub(crate) fn decode(extent: &[u8]) -> Result<Option<Found>> {
        let whole = |head: &&[u8; HEADER_COPY_BYTES]| {
            head[..4] == MAGIC
                && crc32c(&[&head[8..HEADER_BYTES]]) == u32_at(&head[..], 4)
                && u64_at(&head[..], 40) <= extent.len() as u64
        };
        let copies = extent.get(..SEGMENT_HEADER_BYTES).unwrap_or_default().as_chunks::<HEADER_COPY_BYTES>().0;
        let first = copies.iter().find(whole);
        let capacity = first.map_or(extent.len() as u64, |head| u64_at(head, 40));
        let spare =
            extent.get(spare_at(capacity) as usize..).and_then(<[u8]>::first_chunk::<HEADER_COPY_BYTES>).filter(whole);
        let spare = spare.filter(|spare| {
            first.map_or(u64_at(&spare[..], 40) == capacity, |first| first[..HEADER_BYTES] == spare[..HEADER_BYTES])
        });
        let Some(head) = first.or(spare) else { return Ok(None) };
        let header = Self::read(head)?;
        let hints = [FIRST_HINT_AT, spare_at(header.capacity) + HEADER_BYTES as u64].map(|at| {
            let word = extent.get(at as usize..).and_then(<[u8]>::first_chunk::<END_MARK_BYTES>);
            word.and_then(|word| hinted_end(header.frame, u64::from_le_bytes(*word))).unwrap_or(0)
        });
        let hinted_end = hints[0].max(hints[1]);
        Ok(Some(Found { header, has_spare: spare.is_some(), only_spare: first.is_none(), hinted_end }))
    }

    fn read(head: &[u8; HEADER_COPY_BYTES]) -> Result<Self> {
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let (part, found, known) = ("fluidkv log".into(), u32::from(half(8)), u32::from(LOG_VERSION));
        if found > known {
            return Err(Error::NewerFormat { part, found, known });
        }
        if found < known {
            return Err(Error::OlderFormat { part, found, oldest: known });
        }
        let header = Self {
            generation: u64_at(head, 16),
            slot: half(10),
            number: u32_at(head, 12),
            frame: Frame { base: u64_at(head, 24), nonce: u64_at(head, 32) },
            capacity: u64_at(head, 40),
            previous_end: u64_at(head, 48),
        };
        if !is_capacity(header.capacity) {
            return Err(Error::corrupt("log segment", "the header is complete but invalid"));
        }
        Ok(header)
    }
}

fn is_capacity(bytes: u64) -> bool {
    bytes.is_multiple_of(ENTRY_ALIGN_BYTES as u64)
        && ((SEGMENT_HEADER_BYTES + SPARE_BYTES) as u64..=OFFSET_MAX).contains(&bytes)
}

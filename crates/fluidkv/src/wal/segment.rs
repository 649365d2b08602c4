//! A log segment, an extent to which one thread slot appends the writes of one memtable, and its
//! reader for recovery.
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
//! Persist order of the writer: header; then each record, stored and fenced before it is
//! acknowledged, the first one together with the header. The spare is stored when the first record
//! is durable, and fenced with the next record. A whole spare therefore proves that a record
//! existed. Once a record and all before it are durable, an *end mark* is stored directly after it,
//! where the next record or gap begins. Only then is the record acknowledged. The end mark is not
//! flushed, so it costs no persist order, and it survives a kill. A reader stops at the first
//! record that is not whole. The bytes there are one of two:
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
use crate::wal::entry::{ENTRY_ALIGN_BYTES, ENTRY_BYTES_MIN, Frame, OFFSET_MAX, Slot, likely_span};

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
const END_MARK_BYTES: usize = ENTRY_ALIGN_BYTES;
/// Bytes of a cache line.
const LINE_BYTES: u64 = 64;
pub(crate) const LOG_VERSION: u16 = 3;
const MAGIC: [u8; 4] = *b"LLOG";
/// Bytes that a search for later records may checksum in vain, in addition to four times the
/// segment's own.
const SEARCH_BYTES: u64 = 64 << 10;

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
            return Err(Error::corrupt("log segment", "its header is whole and cannot be"));
        }
        Ok(header)
    }
}

fn is_capacity(bytes: u64) -> bool {
    bytes.is_multiple_of(ENTRY_ALIGN_BYTES as u64)
        && ((SEGMENT_HEADER_BYTES + SPARE_BYTES) as u64..=OFFSET_MAX).contains(&bytes)
}

/// The reaction of a reader to damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Reports the damage and stops.
    Strict,
    /// Continues at the next whole record, and counts the skipped bytes.
    Salvage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Offset in the segment from which a durable record is missing.
    pub(crate) at: u64,
    /// How the damage is known.
    pub(crate) what: &'static str,
}

/// The bytes after the last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Its end mark: the record was durable. After a gap a truncated record may follow.
    Marked,
    /// Nothing: the end of the segment, or zeros.
    Clean,
    /// A truncated record, or bytes of an older use.
    Torn,
}

/// The result of reading a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// End of the last record, in bytes from the segment's start.
    pub(crate) end: u64,
    /// The bytes after it.
    pub(crate) tail: Tail,
    /// Number of places where durable bytes were skipped; only in [`Mode::Salvage`].
    pub(crate) lost_ranges: u64,
    /// Bytes skipped there.
    pub(crate) lost_bytes: u64,
    /// False if the search for later records skipped some: too much of the space looks like long
    /// records but is none. Damage may then have been taken for an end. This does not apply if the
    /// next segment has the length of this one: that is always compared.
    pub(crate) searched: bool,
}

/// Reads the records of a segment in order.
pub(crate) struct SegmentReader<'a> {
    bytes: &'a [u8],
    frame: Frame,
    mode: Mode,
    end: u64,
    /// All bytes up to here were durable.
    durable_to: u64,
    /// A whole record after damage, where reading continues.
    resume: Option<u64>,
    /// Bytes that searches may still checksum.
    budget: u64,
    /// Whether no search skipped anything that looked right.
    searched: bool,
    outcome: Option<Outcome>,
    /// Whether damage was reported.
    failed: bool,
    lost: (u64, u64),
    /// A planted fault: records after a hole count.
    skips_holes: bool,
    /// A planted fault: end marks do not count.
    ignores_marks: bool,
    /// Whether the spare is whole.
    has_spare: bool,
    /// Number of records after the first one that have the mark *durable*.
    settled_records: u32,
}

impl<'a> SegmentReader<'a> {
    /// Returns a reader of the segment at the start of `bytes`, from which `header` was decoded.
    /// All bytes up to `known_end` were durable, according to the next segment's header or the
    /// spare; 0 if unknown.
    pub(crate) fn new(bytes: &'a [u8], header: &SegmentHeader, mode: Mode, known_end: u64) -> Self {
        let capacity = header.capacity.min(bytes.len() as u64);
        Self {
            bytes: &bytes[..spare_at(capacity) as usize],
            frame: header.frame,
            mode,
            end: SEGMENT_HEADER_BYTES as u64,
            durable_to: known_end.min(capacity),
            resume: None,
            budget: 4 * capacity + SEARCH_BYTES,
            searched: true,
            outcome: None,
            failed: false,
            lost: (0, 0),
            skips_holes: false,
            ignores_marks: false,
            has_spare: true,
            settled_records: 0,
        }
    }

    pub(crate) fn with_spare(self, has_spare: bool) -> Self {
        Self { has_spare, ..self }
    }

    pub(crate) fn skipping_holes(self, on: bool) -> Self {
        Self { skips_holes: on, ..self }
    }

    pub(crate) fn ignoring_end(self, on: bool) -> Self {
        let durable_to = if on { 0 } else { self.durable_to };
        Self { ignores_marks: on, durable_to, has_spare: self.has_spare || on, ..self }
    }

    /// Returns the result once the iterator has returned its last item. `None` before, and after
    /// reported damage.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    fn at(&self, at: u64) -> &'a [u8] {
        self.bytes.get(at as usize..).unwrap_or_default()
    }

    fn is_marked(&self, at: u64) -> bool {
        !self.ignores_marks
            && self.at(at).first_chunk().is_some_and(|word| u64::from_le_bytes(*word) == end_mark(self.frame, at))
    }

    fn record_at(&self, at: u64) -> Option<(u64, Record<'a>)> {
        Record::checked(self.at(at), self.frame, at).map(|record| (at, record))
    }

    /// Returns the record that follows, here or at the next line.
    fn following(&mut self) -> Option<(u64, Record<'a>)> {
        if let Some(at) = self.resume.take() {
            return self.record_at(at);
        }
        let fits = |at: u64, record: &Record<'_>| u64::from(record.gap()) * ENTRY_ALIGN_BYTES as u64 == at - self.end;
        [self.end, self.end.next_multiple_of(LINE_BYTES)]
            .into_iter()
            .find_map(|at| self.record_at(at).filter(|(at, record)| fits(*at, record)))
    }

    /// Finds the first whole record after one that is not whole. Stops at the first record that was
    /// written when all before it was durable, or at an end mark.
    ///
    /// Each offset costs a check of a header. A candidate that fails its checksum uses up at most a
    /// quarter of the remaining budget. A few long candidates therefore do not end the search for
    /// short ones.
    fn search(&mut self) -> Option<u64> {
        let mut first = None;
        let mut at = self.end + ENTRY_ALIGN_BYTES as u64;
        while at + END_MARK_BYTES as u64 <= self.bytes.len() as u64 {
            let mut step = ENTRY_ALIGN_BYTES as u64;
            if self.is_marked(at) {
                self.durable_to = self.durable_to.max(at);
            } else if let Some(span) = likely_span(self.at(at), self.frame, at).map(|span| span as u64) {
                if span > self.budget / 4 {
                    self.searched = false;
                } else if let Some((_, record)) = self.record_at(at) {
                    first.get_or_insert(at);
                    self.durable_to = self.durable_to.max(if record.is_durable() { at } else { 0 });
                    step = record.len() as u64;
                } else {
                    self.budget -= span;
                }
            }
            if first.is_some() && self.durable_to > self.end {
                break;
            }
            at += step;
        }
        first
    }

    fn finish(&mut self) {
        let is_zero = |at: u64| self.at(at).iter().take(ENTRY_BYTES_MIN).all(|byte| *byte == 0);
        let clean = is_zero(self.end) && is_zero(self.end.next_multiple_of(LINE_BYTES));
        let tail = match clean {
            _ if self.is_marked(self.end) => Tail::Marked,
            true => Tail::Clean,
            false => Tail::Torn,
        };
        let (lost_ranges, lost_bytes) = self.lost;
        self.outcome = Some(Outcome { end: self.end, tail, lost_ranges, lost_bytes, searched: self.searched });
    }

    /// Returns whether the spare is damaged and nothing else confirms that the log ends here. The
    /// spare is durable with the first record after the segment's first one that has the mark
    /// *durable*. The second such record was stored after that.
    fn lacks_spare(&self) -> bool {
        let is_due = self.settled_records > 1 && !self.has_spare;
        is_due && self.durable_to < self.end && !self.is_marked(self.end)
    }

    /// Returns whether there is more to read after a record that is not whole.
    fn pass(&mut self) -> Result<bool, Damage> {
        let known = self.durable_to > self.end;
        let first = self.search();
        if self.durable_to <= self.end {
            self.resume = first.filter(|_| self.skips_holes);
            if self.lacks_spare() {
                if self.mode == Mode::Strict {
                    let what = "the end of the log cannot be told, since its spare header is damaged";
                    return Err(Damage { at: self.end, what });
                }
                self.lost.0 += 1;
            }
            if self.resume.is_none() {
                self.finish();
            }
            return Ok(self.resume.is_some());
        }
        if self.mode == Mode::Strict {
            let what =
                if known { "a durable record is missing" } else { "what stands behind it says that it was durable" };
            return Err(Damage { at: self.end, what });
        }
        let next = first.unwrap_or(self.durable_to);
        self.lost = (self.lost.0 + 1, self.lost.1 + next.saturating_sub(self.end));
        if first.is_none() {
            self.finish();
        }
        self.resume = first;
        Ok(first.is_some())
    }
}

impl<'a> Iterator for SegmentReader<'a> {
    /// A record with its offset in the segment; in [`Mode::Strict`], also the damage that ends the
    /// reading.
    type Item = Result<(u64, Record<'a>), Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        // Each iteration returns a record, ends the reading, or finds the record for the next
        // iteration.
        while self.outcome.is_none() && !self.failed {
            if let Some((at, record)) = self.following() {
                self.end = at + record.len() as u64;
                self.settled_records += u32::from(record.is_durable() && at != SEGMENT_HEADER_BYTES as u64);
                return Some(Ok((at, record)));
            }
            match self.pass() {
                Ok(true) => {}
                Ok(false) => break,
                Err(damage) => {
                    self.failed = true;
                    return Some(Err(damage));
                }
            }
        }
        None
    }
}

//! The reader of a log segment, for recovery. It stops at the first record that is not whole, and
//! decides whether the bytes there are the end or damage (`wal/segment.rs`).

use crate::wal::entry::batch::Record;
use crate::wal::entry::{ENTRY_ALIGN_BYTES, ENTRY_BYTES_MIN, Frame, likely_span};
use crate::wal::segment::{END_MARK_BYTES, LINE_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, end_mark, spare_at};

/// Bytes that a search for later records may checksum in vain, in addition to four times the
/// segment's own.
const SEARCH_BYTES: u64 = 64 << 10;

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
                    let what = "the end of the log is unknown, because its spare header is damaged";
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
            let what = if known {
                "a durable record is missing"
            } else {
                "a record is missing that the following bytes mark as durable"
            };
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

//! Delivers the pairs of a walk to the visitor, and reads the values to which the LSM's entries
//! point.
//!
//! While the page cache has the values ([`BlockFile::is_warm`]), they are read in the walk's order
//! and prefetched some pairs ahead. Otherwise a window of pairs is sorted by offset in the file
//! (HashKV, ATC 2018, section 3.6). Neighbours become one read, and all reads of the window are
//! announced to the system. Meanwhile the window before is read and shown. A window ends by pairs
//! or by bytes, whichever comes first. Values in the LSM are shown directly, or copied if earlier
//! pairs wait.
//!
//! [`BlockFile::is_warm`]: lodestore_media::BlockFile::is_warm

use lodestore_contract::{Error, Expiry, Pair, Result, Visit};

use crate::layout::{Pointer, RECORD_HEADER_BYTES, Record, Stored};
use crate::read::lost_value;
use crate::values::Values;

/// Pairs of a window, initially and at most.
const WINDOW_PAIRS: (usize, usize) = (16, 256);
/// Bytes at which a window is full, regardless of its number of pairs. Two windows exist at a time.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;
/// Maximum bytes between two records that are read as one: a block of the page cache, which is read
/// as a whole.
const READ_GAP_MAX: u64 = 4096;
/// LSM values of at least this length are not copied: waiting pairs are shown first.
const UNCOPIED_VALUE_BYTES_MIN: usize = 16 << 10;
/// Number of pairs to prefetch ahead of the read.
const PREFETCH_COUNT: usize = 4;

/// The value of a pair.
enum Held {
    /// A value of this length, stored after the key.
    Value(usize),
    /// A record at this offset in the file.
    Separated { pointer: Pointer, offset: u64 },
    /// No value, with the reason.
    Failed(Error),
}

/// A waiting pair.
struct Pending {
    /// Offset and length of the key in the window's bytes.
    key: (usize, usize),
    expiry: Option<Expiry>,
    held: Held,
    /// For a record in a run: the run's index, and the record's offset in the buffer.
    run: (usize, usize),
}

/// Records that are read as one.
struct Run {
    segment: u32,
    from: u64,
    len: u64,
    /// Offset of its bytes in the buffer.
    at: usize,
    pairs: usize,
    failed: Option<Error>,
}

/// Pairs in the walk's order.
#[derive(Default)]
struct Window {
    pairs: Vec<Pending>,
    /// Keys, and values of the LSM.
    bytes: Vec<u8>,
    /// Bytes of records in the file.
    separated_bytes: usize,
    /// The records of all pairs from `planned` on, by offset in the file.
    runs: Vec<Run>,
    planned: usize,
}

impl Window {
    fn add(&mut self, pair: Pair<'_>, held: Held) {
        let Pair { key, value, expiry } = pair;
        if let Held::Separated { pointer, .. } = &held {
            self.separated_bytes += pointer.len as usize;
        }
        self.pairs.push(Pending { key: (self.bytes.len(), key.len()), expiry, held, run: (0, 0) });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn is_full(&self, pairs: usize) -> bool {
        self.pairs.len() >= pairs || self.bytes.len() + self.separated_bytes >= WINDOW_BYTES
    }

    fn clear(&mut self) {
        self.pairs.clear();
        self.bytes.clear();
        self.runs.clear();
        self.separated_bytes = 0;
    }

    /// Groups the records of all pairs from `first` on into runs.
    fn plan(&mut self, first: usize) {
        let mut order = Vec::with_capacity(self.pairs.len() - first);
        for (number, pair) in self.pairs.iter().enumerate().skip(first) {
            if let Held::Separated { pointer, offset } = &pair.held {
                order.push((*offset, number, *pointer));
            }
        }
        order.sort_unstable_by_key(|(offset, number, _)| (*offset, *number));
        self.runs.clear();
        self.planned = first;
        for (offset, number, pointer) in order {
            let len = u64::from(pointer.len);
            match self.runs.last_mut() {
                Some(run) if run.segment == pointer.segment && offset <= run.from + run.len + READ_GAP_MAX => {
                    run.len = run.len.max(offset + len - run.from);
                    run.pairs += 1;
                }
                last => {
                    let at = last.map_or(0, |run| run.at + run.len as usize);
                    self.runs.push(Run { segment: pointer.segment, from: offset, len, at, pairs: 1, failed: None });
                }
            }
            let index = self.runs.len() - 1;
            let run = &self.runs[index];
            self.pairs[number].run = (index, run.at + (offset - run.from) as usize);
        }
    }

    /// Announces the planned reads. A single run needs no announcement.
    fn will_read(&self, values: &Values) {
        if self.runs.len() > 1 {
            self.runs.iter().for_each(|run| values.file.will_read(run.from, run.len));
        }
    }

    /// Reads the planned runs.
    fn read(&mut self, values: &Values, buffer: &mut Vec<u8>) {
        for run in &mut self.runs {
            let bytes = buffer_of(buffer, run.at + run.len as usize);
            run.failed = values.file.read_asked(run.from, &mut bytes[run.at..]).err();
        }
    }
}

/// Returns the first `len` bytes of a buffer, extended if necessary.
fn buffer_of(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

/// A walk. The caller holds its moment, which keeps every pointer's record available.
pub(crate) struct Walk<'w, V> {
    values: &'w Values,
    visit: V,
    /// Called if a value cannot be read; an error ends the walk.
    failed: &'w mut dyn FnMut(Error) -> Result<()>,
    /// Pairs whose reads were announced.
    ready: Window,
    /// The pairs after them.
    filling: Window,
    /// Records of runs, and a buffer for a single record.
    buffer: Vec<u8>,
    single: Vec<u8>,
    /// Number of pairs at which a window is full.
    size: usize,
    visited: u64,
    stopped: bool,
    outcome: Result<()>,
}

impl<'w, V: FnMut(Pair<'_>) -> Visit> Walk<'w, V> {
    pub(crate) fn new(values: &'w Values, failed: &'w mut dyn FnMut(Error) -> Result<()>, visit: V) -> Self {
        let (ready, filling) = (Window::default(), Window::default());
        let (buffer, single) = (Vec::new(), Vec::new());
        let size = WINDOW_PAIRS.0;
        Self {
            values,
            visit,
            failed,
            ready,
            filling,
            buffer,
            single,
            size,
            visited: 0,
            stopped: false,
            outcome: Ok(()),
        }
    }

    fn continues(&self) -> bool {
        !self.stopped && self.outcome.is_ok()
    }

    /// Adds the LSM's entry of the walk's next key.
    pub(crate) fn pair(&mut self, stored: Pair<'_>) -> Visit {
        match Stored::read(stored.value) {
            Ok(Stored::Value(value)) => {
                let pair = Pair { value, ..stored };
                let waits = !self.ready.pairs.is_empty() || !self.filling.pairs.is_empty();
                if waits && value.len() < UNCOPIED_VALUE_BYTES_MIN {
                    self.filling.add(pair, Held::Value(value.len()));
                } else {
                    self.flush();
                    if self.continues() {
                        self.visited += 1;
                        self.stopped = (self.visit)(pair) == Visit::Stop;
                    }
                }
            }
            Ok(Stored::Pointer(pointer)) => {
                let held = match self.values.offset_of(pointer) {
                    Some(offset) => Held::Separated { pointer, offset },
                    None => Held::Failed(lost_value(pointer)),
                };
                self.filling.add(Pair { value: &[], ..stored }, held);
            }
            Err(error) => self.filling.add(Pair { value: &[], ..stored }, Held::Failed(error)),
        }
        if self.filling.is_full(self.size) {
            self.switch_windows();
        }
        if self.continues() { Visit::More } else { Visit::Stop }
    }

    /// Shows the rest. Returns the number of visited pairs, whether the visitor has stopped the
    /// walk, and the result of `failed`.
    pub(crate) fn end(mut self) -> (u64, bool, Result<()>) {
        self.flush();
        (self.visited, self.stopped, self.outcome)
    }

    /// Handles a full window.
    fn switch_windows(&mut self) {
        self.size = (self.size * 2).min(WINDOW_PAIRS.1);
        let first = self.filling.pairs.iter().find_map(|pair| match pair.held {
            Held::Separated { offset, .. } => Some(offset),
            _ => None,
        });
        if first.is_none_or(|offset| self.values.file.is_warm(offset)) {
            self.flush();
            return;
        }
        self.filling.plan(0);
        self.filling.will_read(self.values);
        self.show();
        std::mem::swap(&mut self.ready, &mut self.filling);
    }

    /// Shows all waiting pairs.
    fn flush(&mut self) {
        self.show();
        std::mem::swap(&mut self.ready, &mut self.filling);
        self.show();
    }

    /// Shows the pairs that are ready, and clears them.
    fn show(&mut self) {
        let mut window = std::mem::take(&mut self.ready);
        if self.continues() {
            let planned = if window.runs.is_empty() { window.pairs.len() } else { window.planned };
            window.read(self.values, &mut self.buffer);
            self.show_pairs(&mut window, planned);
        }
        window.clear();
        self.ready = window;
    }

    /// Shows these pairs. Pairs from `planned` on are in the buffer.
    fn show_pairs(&mut self, window: &mut Window, mut planned: usize) {
        let file = &self.values.file;
        let prefetch = |window: &Window, number: usize| {
            if let Some(Pending { held: Held::Separated { pointer, offset }, .. }) = window.pairs.get(number) {
                file.prefetch(*offset, pointer.len as usize);
            }
        };
        (0..PREFETCH_COUNT.min(planned)).for_each(|number| prefetch(window, number));
        for number in 0..window.pairs.len() {
            if number < planned {
                prefetch(window, number + PREFETCH_COUNT);
                // The rest is not in the page cache: read it as a window.
                if let Held::Separated { offset, .. } = window.pairs[number].held
                    && !file.is_warm(offset)
                {
                    planned = number;
                    window.plan(planned);
                    window.will_read(self.values);
                    window.read(self.values, &mut self.buffer);
                }
            }
            self.show_pair(window, number, number >= planned);
            if !self.continues() {
                return;
            }
        }
    }

    fn show_pair(&mut self, window: &mut Window, number: usize, in_buffer: bool) {
        let pair = &mut window.pairs[number];
        let (at, len) = pair.key;
        let key = &window.bytes[at..at + len];
        let held = std::mem::replace(&mut pair.held, Held::Value(0));
        let separated = if let Held::Separated { pointer, .. } = held { Some(pointer) } else { None };
        let value = match held {
            Held::Value(value) => Ok(&window.bytes[at + len..at + len + value]),
            Held::Failed(error) => Err(error),
            Held::Separated { pointer, .. } if in_buffer => {
                let run = &mut window.runs[pair.run.0];
                match run.failed.take() {
                    None => self.values.value_in(pointer, key, &self.buffer[pair.run.1..][..pointer.len as usize]),
                    Some(error) if run.pairs == 1 => Err(error),
                    // A failed run is read again record by record: one failure does not affect its
                    // neighbours.
                    failed => {
                        run.failed = failed;
                        self.values.value_alone(pointer, key, &mut self.single)
                    }
                }
            }
            Held::Separated { pointer, .. } => self.values.value_alone(pointer, key, &mut self.single),
        };
        match value {
            Ok(value) => {
                self.visited += 1;
                self.stopped = (self.visit)(Pair { key, value, expiry: pair.expiry }) == Visit::Stop;
            }
            Err(Error::Corrupt { .. })
                if separated.is_some_and(|pointer| self.values.is_expired_and_freed(key, pointer)) => {}
            Err(error) => self.outcome = (self.failed)(error),
        }
    }
}

impl Values {
    /// Returns the value at a pointer, from its run's bytes in the buffer.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn value_in<'b>(&self, pointer: Pointer, key: &[u8], record: &'b [u8]) -> Result<&'b [u8]> {
        let found = Record::read(record, pointer.location(self.seed())).filter(|found| found.key == key);
        found.map(|found| found.value).ok_or_else(|| lost_value(pointer))
    }

    /// Returns the value at a pointer, read into this buffer.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn value_alone<'b>(&self, pointer: Pointer, key: &[u8], buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let record = buffer_of(buffer, pointer.len as usize);
        let len = self.read_record(pointer, key, record)?.ok_or_else(|| lost_value(pointer))?;
        Ok(&record[RECORD_HEADER_BYTES + key.len()..][..len])
    }
}

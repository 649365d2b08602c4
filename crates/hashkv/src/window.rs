//! The pairs of a walk on their way from the LSM, which has pointers for them, to who visits them.
//!
//! While the page cache has the values ([`BlockFile::is_warm`]) they are read in the walk's order, each asked of the processor some pairs ahead. Else a window of pairs is sorted by place in
//! the file (HashKV, ATC 2018, section 3.6), neighbours become one read, all of them are asked of the system, and meanwhile the window before is read and shown. A window ends by
//! number or by bytes, whichever comes first. What the LSM holds itself is shown where it stands, or, behind pairs that wait, copied.
//!
//! [`BlockFile::is_warm`]: lodestore_media::BlockFile::is_warm

use lodestore_contract::{Error, Expiry, Pair, Result, Visit};

use crate::layout::{Pointer, RECORD_HEADER, Record, Stored};
use crate::read::lost;
use crate::values::Values;

/// Pairs of a window at first, and at most.
const PAIRS: (usize, usize) = (16, 256);
/// Bytes at which a window is full, whatever the number of its pairs: two of them are there at a time.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;
/// Most bytes between two records that are read as one: a block of the page cache, which is brought whole.
const GAP: u64 = 4096;
/// A value of so many bytes that the LSM holds is not copied: what waits before it is shown first.
const NOT_COPIED: usize = 16 << 10;
/// Pairs that the processor is asked for before they are read.
const AHEAD: usize = 4;

/// What there is of a pair.
enum Held {
    /// A value of so many bytes, behind the key.
    Value(usize),
    /// A record that stands there in the file.
    Apart { pointer: Pointer, place: u64 },
    /// None: why.
    Failed(Error),
}

/// A pair that waits.
struct Pending {
    /// Where its key stands among the window's bytes, and how long that is.
    key: (usize, usize),
    expiry: Option<Expiry>,
    held: Held,
    /// Of a record that a run has: the run's number, and where in the buffer it is.
    run: (usize, usize),
}

/// Records that are read as one.
struct Run {
    segment: u32,
    from: u64,
    len: u64,
    /// Where its bytes begin in the buffer.
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
    /// Bytes of records.
    apart: usize,
    /// The records of all pairs from `planned` on, by place.
    runs: Vec<Run>,
    planned: usize,
}

impl Window {
    fn add(&mut self, pair: Pair<'_>, held: Held) {
        let Pair { key, value, expiry } = pair;
        if let Held::Apart { pointer, .. } = &held {
            self.apart += pointer.len as usize;
        }
        self.pairs.push(Pending { key: (self.bytes.len(), key.len()), expiry, held, run: (0, 0) });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn is_full(&self, pairs: usize) -> bool {
        self.pairs.len() >= pairs || self.bytes.len() + self.apart >= WINDOW_BYTES
    }

    fn clear(&mut self) {
        self.pairs.clear();
        self.bytes.clear();
        self.runs.clear();
        self.apart = 0;
    }

    /// Makes runs of the records of all pairs from `first` on.
    fn plan(&mut self, first: usize) {
        let mut order = Vec::with_capacity(self.pairs.len() - first);
        for (number, pair) in self.pairs.iter().enumerate().skip(first) {
            if let Held::Apart { pointer, place } = &pair.held {
                order.push((*place, number, *pointer));
            }
        }
        order.sort_unstable_by_key(|(place, number, _)| (*place, *number));
        self.runs.clear();
        self.planned = first;
        for (place, number, pointer) in order {
            let len = u64::from(pointer.len);
            match self.runs.last_mut() {
                Some(run) if run.segment == pointer.segment && place <= run.from + run.len + GAP => {
                    run.len = run.len.max(place + len - run.from);
                    run.pairs += 1;
                }
                last => {
                    let at = last.map_or(0, |run| run.at + run.len as usize);
                    self.runs.push(Run { segment: pointer.segment, from: place, len, at, pairs: 1, failed: None });
                }
            }
            let index = self.runs.len() - 1;
            let run = &self.runs[index];
            self.pairs[number].run = (index, run.at + (place - run.from) as usize);
        }
    }

    /// Asks for what is planned. Of one run the read itself asks.
    fn ask(&self, values: &Values) {
        if self.runs.len() > 1 {
            self.runs.iter().for_each(|run| values.file.will_read(run.from, run.len));
        }
    }

    /// Reads what is planned.
    fn read(&mut self, values: &Values, buffer: &mut Vec<u8>) {
        for run in &mut self.runs {
            let bytes = room(buffer, run.at + run.len as usize);
            run.failed = values.file.read_asked(run.from, &mut bytes[run.at..]).err();
        }
    }
}

/// So many bytes of a buffer, which becomes longer where it must.
fn room(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

/// A walk; it holds its moment, so that every pointer's record is there.
pub(crate) struct Walk<'w, V> {
    values: &'w Values,
    visit: V,
    /// What becomes of the walk where a value cannot be read.
    failed: &'w mut dyn FnMut(Error) -> Result<()>,
    /// Pairs that were asked for, and those behind them.
    ready: Window,
    filling: Window,
    /// Records that runs have, and one that is read by itself.
    buffer: Vec<u8>,
    single: Vec<u8>,
    /// Pairs at which a window is full.
    size: usize,
    visited: u64,
    stopped: bool,
    outcome: Result<()>,
}

impl<'w, V: FnMut(Pair<'_>) -> Visit> Walk<'w, V> {
    pub(crate) fn new(values: &'w Values, failed: &'w mut dyn FnMut(Error) -> Result<()>, visit: V) -> Self {
        let (ready, filling) = (Window::default(), Window::default());
        let (buffer, single) = (Vec::new(), Vec::new());
        let size = PAIRS.0;
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

    fn goes_on(&self) -> bool {
        !self.stopped && self.outcome.is_ok()
    }

    /// Takes what the LSM holds for the walk's next key.
    pub(crate) fn pair(&mut self, stored: Pair<'_>) -> Visit {
        match Stored::read(stored.value) {
            Ok(Stored::Value(value)) => {
                let pair = Pair { value, ..stored };
                let waits = !self.ready.pairs.is_empty() || !self.filling.pairs.is_empty();
                if waits && value.len() < NOT_COPIED {
                    self.filling.add(pair, Held::Value(value.len()));
                } else {
                    self.flush();
                    if self.goes_on() {
                        self.visited += 1;
                        self.stopped = (self.visit)(pair) == Visit::Stop;
                    }
                }
            }
            Ok(Stored::Pointer(pointer)) => {
                let held = match self.values.place_of(pointer) {
                    Some(place) => Held::Apart { pointer, place },
                    None => Held::Failed(lost(pointer)),
                };
                self.filling.add(Pair { value: &[], ..stored }, held);
            }
            Err(error) => self.filling.add(Pair { value: &[], ..stored }, Held::Failed(error)),
        }
        if self.filling.is_full(self.size) {
            self.turn();
        }
        if self.goes_on() { Visit::More } else { Visit::Stop }
    }

    /// Shows the rest. How many pairs were visited, whether the visitor has stopped it, and what `failed` answered.
    pub(crate) fn end(mut self) -> (u64, bool, Result<()>) {
        self.flush();
        (self.visited, self.stopped, self.outcome)
    }

    /// A window is full.
    fn turn(&mut self) {
        self.size = (self.size * 2).min(PAIRS.1);
        let first = self.filling.pairs.iter().find_map(|pair| match pair.held {
            Held::Apart { place, .. } => Some(place),
            _ => None,
        });
        if first.is_none_or(|place| self.values.file.is_warm(place)) {
            self.flush();
            return;
        }
        self.filling.plan(0);
        self.filling.ask(self.values);
        self.show();
        std::mem::swap(&mut self.ready, &mut self.filling);
    }

    /// Shows all that waits.
    fn flush(&mut self) {
        self.show();
        std::mem::swap(&mut self.ready, &mut self.filling);
        self.show();
    }

    /// Shows the pairs that are ready, and leaves none.
    fn show(&mut self) {
        let mut window = std::mem::take(&mut self.ready);
        if self.goes_on() {
            let planned = if window.runs.is_empty() { window.pairs.len() } else { window.planned };
            window.read(self.values, &mut self.buffer);
            self.show_pairs(&mut window, planned);
        }
        window.clear();
        self.ready = window;
    }

    /// Shows these pairs, of which those from `planned` on are in the buffer.
    fn show_pairs(&mut self, window: &mut Window, mut planned: usize) {
        let file = &self.values.file;
        let ask = |window: &Window, number: usize| {
            if let Some(Pending { held: Held::Apart { pointer, place }, .. }) = window.pairs.get(number) {
                file.prefetch(*place, pointer.len as usize);
            }
        };
        (0..AHEAD.min(planned)).for_each(|number| ask(window, number));
        for number in 0..window.pairs.len() {
            if number < planned {
                ask(window, number + AHEAD);
                // The page cache has no more: the rest is read as a window is.
                if let Held::Apart { place, .. } = window.pairs[number].held
                    && !file.is_warm(place)
                {
                    planned = number;
                    window.plan(planned);
                    window.ask(self.values);
                    window.read(self.values, &mut self.buffer);
                }
            }
            self.show_pair(window, number, number >= planned);
            if !self.goes_on() {
                return;
            }
        }
    }

    fn show_pair(&mut self, window: &mut Window, number: usize, in_buffer: bool) {
        let pair = &mut window.pairs[number];
        let (at, len) = pair.key;
        let key = &window.bytes[at..at + len];
        let held = std::mem::replace(&mut pair.held, Held::Value(0));
        let apart = if let Held::Apart { pointer, .. } = held { Some(pointer) } else { None };
        let value = match held {
            Held::Value(value) => Ok(&window.bytes[at + len..at + len + value]),
            Held::Failed(error) => Err(error),
            Held::Apart { pointer, .. } if in_buffer => {
                let run = &mut window.runs[pair.run.0];
                match run.failed.take() {
                    None => self.values.value_in(pointer, key, &self.buffer[pair.run.1..][..pointer.len as usize]),
                    Some(error) if run.pairs == 1 => Err(error),
                    // What fails of a run does not take its neighbours with it.
                    failed => {
                        run.failed = failed;
                        self.values.value_alone(pointer, key, &mut self.single)
                    }
                }
            }
            Held::Apart { pointer, .. } => self.values.value_alone(pointer, key, &mut self.single),
        };
        match value {
            Ok(value) => {
                self.visited += 1;
                self.stopped = (self.visit)(Pair { key, value, expiry: pair.expiry }) == Visit::Stop;
            }
            Err(Error::Corrupt { .. }) if apart.is_some_and(|pointer| self.values.is_gone(key, pointer)) => {}
            Err(error) => self.outcome = (self.failed)(error),
        }
    }
}

impl Values {
    /// The value at a pointer, from its run's place in the buffer.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn value_in<'b>(&self, pointer: Pointer, key: &[u8], record: &'b [u8]) -> Result<&'b [u8]> {
        let found = Record::read(record, pointer.place(self.seed())).filter(|found| found.key == key);
        found.map(|found| found.value).ok_or_else(|| lost(pointer))
    }

    /// The value at a pointer, read into this buffer.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn value_alone<'b>(&self, pointer: Pointer, key: &[u8], buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let record = room(buffer, pointer.len as usize);
        let len = self.read_record(pointer, key, record)?.ok_or_else(|| lost(pointer))?;
        Ok(&record[RECORD_HEADER + key.len()..][..len])
    }
}

//! The input of an import: read ahead by a separate thread, and split into lines.
//!
//! Invariants. One channel carries blocks, the end and signals, so that a thread that waits for
//! input also wakes for a signal. The channel holds at most [`BLOCKS_AHEAD_MAX`] blocks. Blocks
//! arrive in order; a signal may overtake waiting blocks, as [`Input::signal`].

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::format::{Format, Record};
use crate::long_line::LongLine;
use crate::stop_signal::stop_signals;

/// Maximum bytes of one block.
const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Maximum blocks read ahead.
const BLOCKS_AHEAD_MAX: usize = 4;

/// An item of the channel.
pub enum Item {
    /// Bytes of the file.
    Block(Vec<u8>),
    /// Nothing arrived for the given time.
    Pause,
    /// The end of the file.
    End,
    /// Reading the file failed.
    Failed(io::Error),
    /// A signal to stop arrived.
    Signal,
}

/// A file that is read ahead, and the signals that end its import.
pub struct Input {
    items: Receiver<Item>,
    signal: Arc<AtomicI32>,
}

impl Input {
    /// Starts to read `source`, and to watch for SIGINT, SIGTERM and SIGHUP: the first signal
    /// requests an orderly end, a second ends the process at once.
    pub fn start(source: Box<dyn Read + Send>) -> io::Result<Self> {
        let (sender, items) = sync_channel(BLOCKS_AHEAD_MAX);
        let signal = Arc::new(AtomicI32::new(0));
        watch_signals(sender.clone(), Arc::clone(&signal))?;
        thread::Builder::new().name("import-read".into()).spawn(move || read_blocks(source, &sender))?;
        Ok(Self { items, signal })
    }

    /// Returns the next item, or a pause if none arrives within `timeout`; without `timeout` it
    /// waits forever.
    pub fn next(&self, timeout: Option<Duration>) -> Item {
        let item = match timeout {
            Some(timeout) => self.items.recv_timeout(timeout),
            None => self.items.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match item {
            Ok(item) => item,
            Err(RecvTimeoutError::Timeout) => Item::Pause,
            Err(RecvTimeoutError::Disconnected) => Item::End,
        }
    }

    /// Returns the signal that arrived, if any.
    pub fn signal(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

fn read_blocks(mut source: Box<dyn Read + Send>, sender: &SyncSender<Item>) {
    loop {
        let mut block = vec![0; BLOCK_BYTES_MAX];
        let item = match source.read(&mut block) {
            Ok(0) => Item::End,
            Ok(length) => {
                block.truncate(length);
                Item::Block(block)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Item::Failed(error),
        };
        let last = !matches!(item, Item::Block(_));
        if sender.send(item).is_err() || last {
            return;
        }
    }
}

fn watch_signals(sender: SyncSender<Item>, signal: Arc<AtomicI32>) -> io::Result<()> {
    let seen = Arc::new(AtomicBool::new(false));
    let numbers = stop_signals();
    for number in numbers.iter().copied() {
        // In this order: the first signal only sets `seen`, the second finds it set.
        signal_hook::flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&seen))?;
        signal_hook::flag::register(number, Arc::clone(&seen))?;
    }
    let mut signals = signal_hook::iterator::Signals::new(numbers)?;
    thread::Builder::new().name("import-signals".into()).spawn(move || {
        if let Some(number) = signals.forever().next() {
            signal.store(number, Ordering::Relaxed);
            // After the end of the import the receiver is gone.
            let _ = sender.send(Item::Signal);
        }
    })?;
    Ok(())
}

/// Bytes of a line that are kept as text. A longer line is decoded as it arrives.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Splits blocks into lines and reads them.
pub struct Lines {
    format: Format,
    text_bytes_max: usize,
    /// The line that has no newline yet.
    rest: OpenLine,
}

enum OpenLine {
    Text(Vec<u8>),
    Long(LongLine),
}

impl Lines {
    pub fn new(format: Format) -> Self {
        Self { format, text_bytes_max: TEXT_BYTES_MAX, rest: OpenLine::Text(Vec::new()) }
    }

    /// Calls `each` for every line that `block` completes, with its record or the line's fault.
    /// A line that cannot become a record is reported before its end.
    pub fn feed<E>(
        &mut self,
        block: &[u8],
        mut each: impl FnMut(Result<Record, String>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut block = block;
        while let Some(at) = block.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&block[..at], &block[at + 1..]);
            block = rest;
            match &mut self.rest {
                OpenLine::Text(text) if text.is_empty() => each(self.format.parse(line))?,
                _ => {
                    let read =
                        self.extend(line).and_then(|()| self.take_line().unwrap_or_else(|| self.format.parse(b"")));
                    each(read)?;
                }
            }
        }
        self.extend(block).or_else(|what| each(Err(what)))
    }

    /// Adds to the line that has no newline yet.
    fn extend(&mut self, bytes: &[u8]) -> Result<(), String> {
        match &mut self.rest {
            OpenLine::Long(long) => long.feed(bytes),
            OpenLine::Text(text) if text.len() + bytes.len() <= self.text_bytes_max => {
                text.extend_from_slice(bytes);
                Ok(())
            }
            OpenLine::Text(text) => {
                let mut long = LongLine::new(self.format);
                let read = long.feed(text).and_then(|()| long.feed(bytes));
                self.rest = OpenLine::Long(long);
                read
            }
        }
    }

    /// Takes the line that has no newline yet, if it has any bytes.
    fn take_line(&mut self) -> Option<Result<Record, String>> {
        match std::mem::replace(&mut self.rest, OpenLine::Text(Vec::new())) {
            OpenLine::Text(text) if text.is_empty() => None,
            OpenLine::Text(text) => Some(self.format.parse(&text)),
            OpenLine::Long(long) => Some(long.finish()),
        }
    }

    /// Whether the last line has no newline, although a cut line would be a record: a value of TSV
    /// is as long as the line.
    pub fn may_be_cut(&self) -> bool {
        let is_empty = matches!(&self.rest, OpenLine::Text(text) if text.is_empty());
        !is_empty && self.format == Format::Tsv
    }

    /// Returns the last line, if it has no newline.
    pub fn finish(mut self) -> Option<Result<Record, String>> {
        self.take_line()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_do_not_depend_on_the_cuts_of_the_input_or_on_the_limit_of_text(
            lines in prop::collection::vec("k?\t?[ab\r]{0,8}", 0..8),
            has_last_newline in any::<bool>(),
            text_bytes_max in 0..12usize,
            cuts in prop::collection::vec(0..10usize, 0..20),
        ) {
            let mut text = lines.join("\n");
            if has_last_newline {
                text.push('\n');
            }
            let mut cutter = Lines { text_bytes_max, ..Lines::new(Format::Tsv) };
            let mut found = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (block, after) = rest.split_at(cut.min(rest.len()));
                cutter.feed(block, |line| { found.push(line.ok()); Ok::<(), ()>(()) }).expect("no error");
                rest = after;
            }
            found.extend(cutter.finish().map(Result::ok));
            let expected: Vec<_> = text.split_terminator('\n').map(|line| Format::Tsv.parse(line.as_bytes()).ok()).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_source_arrives_whole_and_ends() {
        let input = Input::start(Box::new(io::Cursor::new(vec![7u8; BLOCK_BYTES_MAX * 3 + 5]))).expect("threads start");
        let mut length = 0;
        loop {
            match input.next(None) {
                Item::Block(block) => length += block.len(),
                Item::End => break,
                _ => panic!("nothing else was sent"),
            }
        }
        assert_eq!(length, BLOCK_BYTES_MAX * 3 + 5);
    }
}

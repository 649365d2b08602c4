//! The input of an import: read ahead by a thread of its own, and cut into lines.
//!
//! Invariants. One channel carries blocks, the end and signals, so that whoever waits for input also
//! wakes for a signal. It is bounded: at most [`AHEAD`] blocks wait. Blocks arrive in order; a signal may
//! overtake what waits, as [`Input::signal`].

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::format::LINE_MAX;

/// Most bytes of one block.
const BLOCK: usize = 256 << 10;
/// Most blocks read ahead.
const AHEAD: usize = 4;

/// What arrives.
pub enum Item {
    /// Bytes of the file.
    Block(Vec<u8>),
    /// Nothing arrived for the time given.
    Pause,
    /// The end of the file.
    End,
    /// The file could not be read on.
    Failed(io::Error),
    /// A signal to stop came.
    Signal,
}

/// A file that is read ahead, and the signals that end its import.
pub struct Input {
    items: Receiver<Item>,
    signal: Arc<AtomicI32>,
}

impl Input {
    /// Starts to read `source`, and to watch for SIGINT, SIGTERM and SIGHUP: the first asks for an orderly
    /// end, a second ends the process at once.
    pub fn start(source: Box<dyn Read + Send>) -> io::Result<Self> {
        let (sender, items) = sync_channel(AHEAD);
        let signal = Arc::new(AtomicI32::new(0));
        watch(sender.clone(), Arc::clone(&signal))?;
        thread::Builder::new().name("import-read".into()).spawn(move || read(source, &sender))?;
        Ok(Self { items, signal })
    }

    /// The next item, or a pause where none comes in `patience`; without it, however long it takes.
    pub fn next(&self, patience: Option<Duration>) -> Item {
        let item = match patience {
            Some(patience) => self.items.recv_timeout(patience),
            None => self.items.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match item {
            Ok(item) => item,
            Err(RecvTimeoutError::Timeout) => Item::Pause,
            Err(RecvTimeoutError::Disconnected) => Item::End,
        }
    }

    /// The signal that came, if one did.
    pub fn signal(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

fn read(mut source: Box<dyn Read + Send>, sender: &SyncSender<Item>) {
    loop {
        let mut block = vec![0; BLOCK];
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

fn watch(sender: SyncSender<Item>, signal: Arc<AtomicI32>) -> io::Result<()> {
    let seen = Arc::new(AtomicBool::new(false));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal only sets `seen`, the second finds it set.
        signal_hook::flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&seen))?;
        signal_hook::flag::register(number, Arc::clone(&seen))?;
    }
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("import-signals".into()).spawn(move || {
        if let Some(number) = signals.forever().next() {
            signal.store(number, Ordering::Relaxed);
            // Nobody listens any more where the import has ended by itself.
            let _ = sender.send(Item::Signal);
        }
    })?;
    Ok(())
}

/// Cuts blocks into lines.
#[derive(Default)]
pub struct Lines {
    /// What has no newline yet.
    rest: Vec<u8>,
}

impl Lines {
    /// Calls `each` for every line that `block` completes, without its newline.
    pub fn feed<E>(&mut self, block: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut block = block;
        while let Some(at) = block.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&block[..at], &block[at + 1..]);
            block = rest;
            if self.rest.is_empty() {
                each(line)?;
            } else {
                self.rest.extend_from_slice(line);
                let line = std::mem::take(&mut self.rest);
                each(&line)?;
            }
        }
        self.rest.extend_from_slice(block);
        Ok(())
    }

    /// Whether what waits for its newline is longer than any line may be.
    pub fn too_long(&self) -> bool {
        self.rest.len() > LINE_MAX
    }

    /// The last line, where it has no newline.
    pub fn finish(self) -> Option<Vec<u8>> {
        Some(self.rest).filter(|rest| !rest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_input_is_cut(
            text in "[ab\n]{0,60}",
            cuts in prop::collection::vec(0..10usize, 0..20),
        ) {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (block, after) = rest.split_at(cut.min(rest.len()));
                lines.feed(block, |line| { found.push(line.to_vec()); Ok::<(), ()>(()) }).expect("no error");
                rest = after;
            }
            lines.feed(rest, |line| { found.push(line.to_vec()); Ok::<(), ()>(()) }).expect("no error");
            found.extend(lines.finish());
            let expected: Vec<_> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_source_arrives_whole_and_ends() {
        let input = Input::start(Box::new(io::Cursor::new(vec![7u8; BLOCK * 3 + 5]))).expect("threads start");
        let mut length = 0;
        loop {
            match input.next(None) {
                Item::Block(block) => length += block.len(),
                Item::End => break,
                _ => panic!("nothing else was sent"),
            }
        }
        assert_eq!(length, BLOCK * 3 + 5);
    }
}

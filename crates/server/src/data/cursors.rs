//! The positions of walks: the keys and fields at which cursors continue.
//!
//! Clients send cursors as 64-bit numbers, so the server keeps the position of each cursor. A walk
//! that is never finished is forgotten when newer cursors need its space. A forgotten cursor, and
//! a cursor of an earlier run of the server, is refused: a silent restart would show keys twice,
//! and a silent end would hide keys.
//!
//! `FLUSHALL` frees all positions. No key was there before it and after it, so the walk of an older
//! cursor just ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most cursors that the server keeps.
const CURSORS_MAX: usize = 16_384;

/// Most bytes of the cursors that the server keeps. A position is at most 64 KiB long, so at least
/// the newest 500 cursors are kept.
const CURSOR_BYTES_MAX: usize = 32 << 20;

/// Bytes that a cursor uses in addition to its position.
const CURSOR_OVERHEAD_BYTES: usize = 64;

/// The position at which the walk of a cursor continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Position {
    /// After a key or field.
    After(Vec<u8>),
    /// Nowhere: `FLUSHALL` has removed all keys since.
    Flushed,
    /// The server does not know.
    Unknown,
}

/// The positions of all cursors.
#[derive(Debug)]
pub(crate) struct Cursors {
    state: Mutex<CursorTable>,
}

#[derive(Debug, Default)]
struct CursorTable {
    /// By the number of the cursor, which rises.
    positions: BTreeMap<u64, Box<[u8]>>,
    /// Bytes of the positions, with their overhead.
    bytes: usize,
    last: u64,
    /// The last number before this run of the server.
    before_first: u64,
    /// The last number before the last `FLUSHALL`.
    last_flushed: u64,
}

impl CursorTable {
    fn remove_oldest(&mut self) {
        if let Some((_, position)) = self.positions.pop_first() {
            self.bytes -= bytes_of(&position);
        }
    }
}

impl Cursors {
    pub(crate) fn new() -> Self {
        // Cursors of an earlier run must be unknown, so numbers begin at the present microsecond.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let last = now.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0));
        Self {
            state: Mutex::new(CursorTable { last, before_first: last, last_flushed: last, ..CursorTable::default() }),
        }
    }

    fn state(&self) -> MutexGuard<'_, CursorTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the key or field after which a walk continues. Returns the number of its cursor.
    pub(crate) fn keep(&self, position: Vec<u8>) -> u64 {
        let position = position.into_boxed_slice();
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        state.bytes += bytes_of(&position);
        state.positions.insert(number, position);
        while state.positions.len() > CURSORS_MAX || (state.bytes > CURSOR_BYTES_MAX && state.positions.len() > 1) {
            state.remove_oldest();
        }
        number
    }

    /// Returns where the walk of a cursor continues. A client may use a cursor again.
    pub(crate) fn find(&self, number: u64) -> Position {
        let state = self.state();
        match state.positions.get(&number) {
            Some(position) => Position::After(position.to_vec()),
            None if number > state.before_first && number <= state.last_flushed => Position::Flushed,
            None => Position::Unknown,
        }
    }

    /// Frees all cursors, because all databases are empty.
    pub(crate) fn flush(&self) {
        let mut state = self.state();
        state.positions = BTreeMap::new();
        state.bytes = 0;
        state.last_flushed = state.last;
    }

    /// Returns the bytes that the cursors use.
    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes
    }
}

fn bytes_of(position: &[u8]) -> usize {
    position.len() + CURSOR_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_cursors_are_evicted_when_their_number_or_their_bytes_exceed_the_bound() {
        let cursors = Cursors::new();
        let first = cursors.keep(b"a".to_vec());
        assert_eq!(cursors.find(first), Position::After(b"a".to_vec()));
        let mut last = first;
        for _ in 0..CURSORS_MAX {
            last = cursors.keep(b"b".to_vec());
        }
        assert_eq!((cursors.find(first), cursors.find(last)), (Position::Unknown, Position::After(b"b".to_vec())));
        assert_eq!(cursors.bytes(), CURSORS_MAX * (1 + CURSOR_OVERHEAD_BYTES));
        for _ in 0..3 {
            let large = cursors.keep(vec![0; CURSOR_BYTES_MAX]);
            assert_ne!(cursors.find(large), Position::Unknown);
            assert_eq!((cursors.find(last), cursors.state().positions.len()), (Position::Unknown, 1));
        }
        cursors.flush();
        assert_eq!((cursors.find(first), cursors.bytes()), (Position::Flushed, 0));
        let state = cursors.state();
        let (before_first, next) = (state.before_first, state.last + 1);
        drop(state);
        assert_eq!([before_first, next].map(|number| cursors.find(number)), [Position::Unknown, Position::Unknown]);
    }
}

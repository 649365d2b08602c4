//! Pairs found by a walk; many share one buffer.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::expiry::Expiry;

/// Pairs of more than this many bytes get a separate buffer.
const SHARED_PAIR_BYTES_MAX: usize = 256;

/// A pair shown to a visitor. The slices are valid only during the call of the visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// When the key expires; `None` if it does not.
    pub expiry: Option<Expiry>,
}

/// A key with its value and expiry, as a walk found them.
///
/// Short pairs that were read together share one buffer, and an entry keeps it alive: up to 128 KiB
/// in the walks of this project's engines. [`Entry::into_pair`] copies, and keeps no buffer alive.
#[derive(Clone)]
pub struct Entry {
    buffer: Arc<[u8]>,
    position: PairPosition,
}

/// Position of a pair in its buffer: the key, then the value. The 8 bytes before the key are the
/// expiry, in milliseconds, little-endian, if [`EXPIRES_FLAG`] is set.
#[derive(Clone, Copy)]
struct PairPosition {
    at: u32,
    /// The length of the key, and the bit [`EXPIRES_FLAG`].
    key_word: u32,
    value_len: u32,
}

/// Set in [`PairPosition::key_word`] if the pair has an expiry. Keys are much shorter than this.
const EXPIRES_FLAG: u32 = 1 << 31;
/// Bytes of a stored expiry.
const EXPIRY_BYTES: usize = 8;

impl PairPosition {
    fn new(at: usize, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Self {
        let flag = if expiry.is_some() { EXPIRES_FLAG } else { 0 };
        Self { at: at as u32, key_word: key.len() as u32 | flag, value_len: value.len() as u32 }
    }

    #[inline]
    fn key_len(self) -> usize {
        (self.key_word & !EXPIRES_FLAG) as usize
    }
}

impl Entry {
    /// Copies a key and its value into a separate buffer. The key does not expire.
    #[must_use]
    pub fn new(key: &[u8], value: &[u8]) -> Self {
        Self::of_pair(Pair { key, value, expiry: None })
    }

    /// Copies a pair into a separate buffer.
    #[must_use]
    pub fn of_pair(pair: Pair<'_>) -> Self {
        let Pair { key, value, expiry } = pair;
        match expiry {
            None => Self { buffer: Arc::from([key, value].concat()), position: PairPosition::new(0, key, value, None) },
            Some(at) => {
                let buffer = Arc::from([&at.millis().to_le_bytes()[..], key, value].concat());
                Self { buffer, position: PairPosition::new(EXPIRY_BYTES, key, value, expiry) }
            }
        }
    }

    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.bytes()[..self.position.key_len()]
    }

    /// Returns the value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.bytes()[self.position.key_len()..]
    }

    /// Returns when the key expires; `None` if it does not.
    #[must_use]
    pub fn expiry(&self) -> Option<Expiry> {
        if self.position.key_word & EXPIRES_FLAG == 0 {
            return None;
        }
        let bytes = self.buffer[..self.position.at as usize].last_chunk::<EXPIRY_BYTES>();
        bytes.map(|bytes| Expiry::at_millis(u64::from_le_bytes(*bytes)))
    }

    /// Returns the key, the value and the expiry.
    #[must_use]
    pub fn pair(&self) -> Pair<'_> {
        Pair { key: self.key(), value: self.value(), expiry: self.expiry() }
    }

    /// Returns copies of the key and the value.
    #[must_use]
    pub fn into_pair(self) -> (Vec<u8>, Vec<u8>) {
        (self.key().to_vec(), self.value().to_vec())
    }

    /// Shortens the value to at most `len` bytes.
    #[inline]
    pub fn truncate_value(&mut self, len: usize) {
        self.position.value_len =
            u32::try_from(len).map_or(self.position.value_len, |len| len.min(self.position.value_len));
    }

    /// Returns the key followed by the value.
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.position.at as usize..][..self.position.key_len() + self.position.value_len as usize]
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.position.key_word == other.position.key_word
            && self.bytes() == other.bytes()
            && self.expiry() == other.expiry()
    }
}

impl Eq for Entry {}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\": b\"{}\"", self.key().escape_ascii(), self.value().escape_ascii())?;
        self.expiry().map_or(Ok(()), |at| write!(f, " until {}", at.millis()))
    }
}

/// Pairs that a walk copies together, and then returns one by one.
///
/// [`EntryChunk::push`] fills a chunk, and then [`EntryChunk::pop`] empties it from its start.
#[derive(Default)]
pub struct EntryChunk {
    /// The short pairs while the chunk is being filled.
    filling: Vec<u8>,
    /// The short pairs after the first pop.
    sealed: Arc<[u8]>,
    /// A long pair has the position [`LONG_PAIR`].
    positions: Vec<PairPosition>,
    long: VecDeque<Entry>,
    /// Number of popped pairs.
    popped: usize,
}

impl fmt::Debug for EntryChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryChunk").field("pairs", &self.len()).finish_non_exhaustive()
    }
}

/// The position of a pair that is in [`EntryChunk::long`].
const LONG_PAIR: PairPosition = PairPosition { at: u32::MAX, key_word: 0, value_len: 0 };

impl EntryChunk {
    /// Adds a copy of a pair to a chunk that is empty or being filled.
    #[inline]
    pub fn push(&mut self, pair: Pair<'_>) {
        let Pair { key, value, expiry } = pair;
        if key.len() + value.len() > SHARED_PAIR_BYTES_MAX || self.filling.len() > (LONG_PAIR.at / 2) as usize {
            self.positions.push(LONG_PAIR);
            self.long.push_back(Entry::of_pair(pair));
            return;
        }
        if let Some(at) = expiry {
            self.filling.extend_from_slice(&at.millis().to_le_bytes());
        }
        let at = self.filling.len();
        self.filling.extend_from_slice(key);
        self.filling.extend_from_slice(value);
        self.positions.push(PairPosition::new(at, key, value, expiry));
    }

    /// Ends the filling.
    #[cold]
    fn seal(&mut self) {
        self.sealed = Arc::from(self.filling.as_slice());
        self.filling.clear();
    }

    /// Returns the key of the last pair, until that pair is popped.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        let position = *self.positions.last()?;
        if position.at == LONG_PAIR.at {
            return self.long.back().map(Entry::key);
        }
        let bytes = if self.filling.is_empty() { &*self.sealed } else { &*self.filling };
        Some(&bytes[position.at as usize..][..position.key_len()])
    }

    /// Pops the next pair.
    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        if !self.filling.is_empty() {
            self.seal();
        }
        let position = *self.positions.get(self.popped)?;
        self.popped += 1;
        if position.at == LONG_PAIR.at {
            return self.long.pop_front();
        }
        Some(Entry { buffer: Arc::clone(&self.sealed), position })
    }

    /// Removes all pairs, and keeps the memory for the next pairs.
    pub fn clear(&mut self) {
        self.filling.clear();
        self.positions.clear();
        self.long.clear();
        self.popped = 0;
        self.sealed = Arc::default();
    }

    /// Returns whether all pairs were popped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.popped == self.positions.len()
    }

    /// Returns the number of pairs that were not popped yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.positions.len() - self.popped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_expiry<'a>(key: &'a [u8], value: &'a [u8]) -> Pair<'a> {
        Pair { key, value, expiry: None }
    }

    fn filled(pairs: &[(&[u8], &[u8])]) -> EntryChunk {
        let mut chunk = EntryChunk::default();
        pairs.iter().for_each(|(key, value)| chunk.push(without_expiry(key, value)));
        chunk
    }

    #[test]
    fn a_chunk_returns_its_short_and_long_pairs_in_order() {
        let long = [7; SHARED_PAIR_BYTES_MAX];
        let pairs: [(&[u8], &[u8]); 4] = [(b"a", b""), (b"b", &long), (b"cc", b"3"), (b"d", &long)];
        let mut chunk = filled(&pairs);
        for round in 0..2 {
            assert_eq!(chunk.last_key(), Some(&b"d"[..]), "of a long pair, in round {round}");
            assert_eq!((chunk.len(), chunk.is_empty()), (4, false));
            let found: Vec<_> = std::iter::from_fn(|| chunk.pop()).collect();
            assert!(found.iter().map(|entry| (entry.key(), entry.value())).eq(pairs), "{found:?}");
            assert!(chunk.is_empty() && chunk.pop().is_none());
            chunk.clear();
            pairs.iter().for_each(|(key, value)| chunk.push(without_expiry(key, value)));
        }
    }

    #[test]
    fn short_and_long_entries_report_their_expiry() {
        let (long, soon) = ([7; SHARED_PAIR_BYTES_MAX], Expiry::at_millis(u64::MAX - 1));
        let pairs =
            [(&b"a"[..], &b"1"[..], None), (b"b", b"", Some(soon)), (b"c", &long, Some(soon)), (b"", b"", None)];
        let pairs = pairs.map(|(key, value, expiry)| Pair { key, value, expiry });
        let mut chunk = EntryChunk::default();
        pairs.iter().for_each(|pair| chunk.push(*pair));
        for pair in pairs {
            let mut entry = chunk.pop().expect("a pair");
            assert_eq!((entry.pair(), entry.expiry()), (pair, pair.expiry));
            assert_eq!(entry, Entry::of_pair(pair));
            assert_eq!(entry == Entry::new(pair.key, pair.value), pair.expiry.is_none(), "the expiry counts");
            entry.truncate_value(0);
            assert_eq!(entry.pair(), Pair { value: b"", ..pair });
        }
    }

    #[test]
    fn the_last_key_of_a_chunk_is_the_same_after_a_pop() {
        let mut chunk = filled(&[(b"a", b"1"), (b"bb", b"2")]);
        assert_eq!(chunk.last_key(), Some(&b"bb"[..]));
        assert_eq!(chunk.pop(), Some(Entry::new(b"a", b"1")));
        assert_eq!(chunk.last_key(), Some(&b"bb"[..]));
        chunk.clear();
        assert_eq!(chunk.last_key(), None);
    }

    #[test]
    fn an_entry_outlives_its_chunk_and_equals_a_separate_entry() {
        let mut chunk = filled(&[(b"a", b"12"), (b"b", b"3")]);
        let mut first = chunk.pop().expect("the first pair");
        chunk.clear();
        chunk.push(without_expiry(b"z", b"zz"));
        assert_eq!(first, Entry::new(b"a", b"12"));
        assert_ne!(first, Entry::new(b"a1", b"2"), "the same bytes, divided otherwise");
        first.truncate_value(7);
        assert_eq!(first.value(), b"12");
        first.truncate_value(1);
        assert_eq!(first.into_pair(), (b"a".to_vec(), b"1".to_vec()));
    }
}

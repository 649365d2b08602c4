//! Pairs that a walk found: many share one buffer.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Pairs of more than this many bytes get a buffer of their own.
const SHARED_PAIR_BYTES_MAX: usize = 256;

/// A key with its value, as a walk found them.
///
/// Short pairs that were read together share one buffer, and an entry keeps it: up to 128 KiB in
/// the walks of this project's engines. [`Entry::into_pair`] copies, and keeps no buffer.
#[derive(Clone)]
pub struct Entry {
    buffer: Arc<[u8]>,
    place: Place,
}

/// Where a pair is in its buffer: the key, then the value.
#[derive(Clone, Copy)]
struct Place {
    at: u32,
    key_len: u32,
    value_len: u32,
}

impl Entry {
    /// Copies a key and its value into a buffer of their own.
    #[must_use]
    pub fn new(key: &[u8], value: &[u8]) -> Self {
        let buffer = Arc::from([key, value].concat());
        Self { buffer, place: Place { at: 0, key_len: key.len() as u32, value_len: value.len() as u32 } }
    }

    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.pair()[..self.place.key_len as usize]
    }

    /// Returns the value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.pair()[self.place.key_len as usize..]
    }

    /// Returns copies of the key and the value.
    #[must_use]
    pub fn into_pair(self) -> (Vec<u8>, Vec<u8>) {
        (self.key().to_vec(), self.value().to_vec())
    }

    /// Shortens the value to at most `len` bytes.
    #[inline]
    pub fn truncate_value(&mut self, len: usize) {
        self.place.value_len = u32::try_from(len).map_or(self.place.value_len, |len| len.min(self.place.value_len));
    }

    #[inline]
    fn pair(&self) -> &[u8] {
        let Place { at, key_len, value_len } = self.place;
        &self.buffer[at as usize..][..key_len as usize + value_len as usize]
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.place.key_len == other.place.key_len && self.pair() == other.pair()
    }
}

impl Eq for Entry {}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\": b\"{}\"", self.key().escape_ascii(), self.value().escape_ascii())
    }
}

/// Pairs that a walk copies together, and then hands out one by one.
///
/// [`EntryChunk::push`] fills a chunk, and then [`EntryChunk::pop`] empties it from its start.
#[derive(Default)]
pub struct EntryChunk {
    /// The short pairs, while the chunk is filled.
    filling: Vec<u8>,
    /// The short pairs, when the first was taken.
    sealed: Arc<[u8]>,
    /// A long pair has the place [`LONG`].
    places: Vec<Place>,
    long: VecDeque<Entry>,
    /// Pairs that were taken.
    taken: usize,
}

/// The place of a pair that is in [`EntryChunk::long`].
const LONG: Place = Place { at: u32::MAX, key_len: 0, value_len: 0 };

impl EntryChunk {
    /// Adds a copy of a pair to a chunk that is empty or being filled.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let at = self.filling.len();
        if key.len() + value.len() > SHARED_PAIR_BYTES_MAX || at > (LONG.at / 2) as usize {
            self.places.push(LONG);
            self.long.push_back(Entry::new(key, value));
            return;
        }
        self.filling.extend_from_slice(key);
        self.filling.extend_from_slice(value);
        self.places.push(Place { at: at as u32, key_len: key.len() as u32, value_len: value.len() as u32 });
    }

    /// Ends the filling.
    #[cold]
    fn seal(&mut self) {
        self.sealed = Arc::from(self.filling.as_slice());
        self.filling.clear();
    }

    /// Returns the key of the last pair, until that pair is taken.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        let Place { at, key_len, .. } = *self.places.last()?;
        if at == LONG.at {
            return self.long.back().map(Entry::key);
        }
        let bytes = if self.filling.is_empty() { &*self.sealed } else { &*self.filling };
        Some(&bytes[at as usize..][..key_len as usize])
    }

    /// Takes the next pair.
    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        if !self.filling.is_empty() {
            self.seal();
        }
        let place = *self.places.get(self.taken)?;
        self.taken += 1;
        if place.at == LONG.at {
            return self.long.pop_front();
        }
        Some(Entry { buffer: Arc::clone(&self.sealed), place })
    }

    /// Forgets all pairs, and keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.filling.clear();
        self.places.clear();
        self.long.clear();
        self.taken = 0;
        self.sealed = Arc::default();
    }

    /// Returns whether all pairs were taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken == self.places.len()
    }

    /// Returns the pairs that were not taken yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pairs: &[(&[u8], &[u8])]) -> EntryChunk {
        let mut chunk = EntryChunk::default();
        pairs.iter().for_each(|(key, value)| chunk.push(key, value));
        chunk
    }

    #[test]
    fn a_chunk_hands_out_its_short_and_long_pairs_in_order() {
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
            pairs.iter().for_each(|(key, value)| chunk.push(key, value));
        }
    }

    #[test]
    fn the_last_key_of_a_chunk_is_known_before_and_after_a_pair_was_taken() {
        let mut chunk = filled(&[(b"a", b"1"), (b"bb", b"2")]);
        assert_eq!(chunk.last_key(), Some(&b"bb"[..]));
        assert_eq!(chunk.pop(), Some(Entry::new(b"a", b"1")));
        assert_eq!(chunk.last_key(), Some(&b"bb"[..]));
        chunk.clear();
        assert_eq!(chunk.last_key(), None);
    }

    #[test]
    fn an_entry_outlives_its_chunk_and_is_equal_to_one_of_its_own() {
        let mut chunk = filled(&[(b"a", b"12"), (b"b", b"3")]);
        let mut first = chunk.pop().expect("the first pair");
        chunk.clear();
        chunk.push(b"z", b"zz");
        assert_eq!(first, Entry::new(b"a", b"12"));
        assert_ne!(first, Entry::new(b"a1", b"2"), "the same bytes, divided otherwise");
        first.truncate_value(7);
        assert_eq!(first.value(), b"12");
        first.truncate_value(1);
        assert_eq!(first.into_pair(), (b"a".to_vec(), b"1".to_vec()));
    }
}

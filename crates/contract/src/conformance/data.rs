//! Random numbers, and values that identify themselves.

/// A small generator (splitmix64). The same seed always produces the same numbers.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "nothing is below 0");
        usize::try_from(self.next_u64() % end as u64).expect("below a usize")
    }

    /// Returns one of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns bytes of this length.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let (words, rest) = bytes.as_chunks_mut::<8>();
        words.iter_mut().for_each(|word| *word = self.next_u64().to_le_bytes());
        rest.copy_from_slice(&self.next_u64().to_le_bytes()[..rest.len()]);
        bytes
    }
}

/// Returns a value that identifies its key and version: 8 bytes of version, then `len` bytes
/// derived from both. A torn or misplaced value fails [`version_of`].
pub fn versioned(key: &[u8], version: u64, len: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.extend_from_slice(&Rng::new(digest(key) ^ version).bytes(len));
    value
}

/// Returns the version of a value of [`versioned`], or `None` if the value does not belong to this
/// key.
pub fn version_of(key: &[u8], value: &[u8]) -> Option<u64> {
    let (head, rest) = value.split_first_chunk::<8>()?;
    let version = u64::from_le_bytes(*head);
    (versioned(key, version, rest.len()) == value).then_some(version)
}

/// FNV-1a.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the `i`-th key of a family, about 4 to 20 bytes, ordered as `i`.
pub(super) fn key(family: &str, i: usize) -> Vec<u8> {
    format!("{family}/{i:08}").into_bytes()
}

/// Returns a length that is often small, sometimes at a boundary, seldom large (at most 20 KiB).
pub(super) fn mixed_len(rng: &mut Rng) -> usize {
    match rng.below(16) {
        0 => 0,
        1..=7 => rng.below(64),
        8..=12 => rng.below(600),
        13 => *rng.pick(&[255, 256, 257, 1000, 1023, 1024, 1025, 4095, 4096, 4097]),
        14 => rng.below(5000),
        _ => rng.below(20 << 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_versioned_value_has_a_version_for_its_own_key_only() {
        let mut value = versioned(b"k", 7, 100);
        assert_eq!(version_of(b"k", &value), Some(7));
        assert_eq!(version_of(b"l", &value), None);
        value[50] ^= 1;
        assert_eq!(version_of(b"k", &value), None);
        assert_eq!(version_of(b"k", b"short"), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        assert_eq!(Rng::new(3).bytes(33), Rng::new(3).bytes(33));
        assert_ne!(Rng::new(3).bytes(33), Rng::new(4).bytes(33));
        assert_eq!(Rng::new(5).bytes(0), Vec::<u8>::new());
    }
}

//! A small seeded generator (SplitMix64, Steele et al., OOPSLA 2014): equal seeds give equal runs
//! on every machine.

/// Pseudo-random numbers from a seed.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

/// One step of SplitMix64's finalizer: a bijection that mixes all bits.
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// Creates a generator from this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: mix(seed) }
    }

    /// Creates the generator of part `index` of a run with `seed`.
    pub fn part(seed: u64, index: u64) -> Self {
        Self::new(mix(seed) ^ mix(index.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let out = mix(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        out
    }

    /// Returns a number below `bound`, which must not be 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below 0 was asked for");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true once in `n` on average; never for `n` of 0.
    #[inline]
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    /// Returns an index of a slice of `len` elements.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

//! The routing of keys to groups.
//!
//! A key's hash selects its group by jump consistent hashing (Lamping and Veach, 2014). Each of `n`
//! groups has an equal share of the keys. When a group is added, one key in `n + 1` moves to it,
//! and no other key moves.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The hash of a key, which determines its group, stripe and filter counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    /// Returns the hash of `key` in a matrix with this seed.
    #[inline]
    pub(crate) fn of(key: &[u8], seed: u64) -> Self {
        Self(xxh3_64_with_seed(key, seed))
    }

    /// Returns the key's group, from 0, among `groups`.
    #[inline]
    pub(crate) fn group(self, groups: usize) -> usize {
        if groups == 1 { 0 } else { jump(self.0, groups) }
    }

    /// Returns the key's stripe among `stripes`, a power of two.
    #[inline]
    pub(crate) fn stripe(self, stripes: usize) -> usize {
        debug_assert!(stripes.is_power_of_two());
        (self.mixed() >> 40) as usize & (stripes - 1)
    }

    /// Returns bits for the filter, independent of the group and the stripe.
    #[inline]
    pub(crate) fn mixed(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    }
}

/// Returns the bucket of `key` among `buckets`.
fn jump(mut key: u64, buckets: usize) -> usize {
    let (mut bucket, mut next) = (0, 0_u64);
    while next < buckets as u64 {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1_u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as u64;
    }
    bucket as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 40_000;

    fn groups_of(groups: usize) -> Vec<usize> {
        (0..KEYS).map(|key| KeyHash::of(&key.to_le_bytes(), 7).group(groups)).collect()
    }

    #[test]
    fn groups_have_equal_shares() {
        for groups in [1, 2, 3, 7, 16] {
            let mut shares = vec![0_u64; groups];
            groups_of(groups).into_iter().for_each(|group| shares[group] += 1);
            let mean = KEYS / groups as u64;
            assert!(shares.iter().all(|share| share.abs_diff(mean) < mean / 8), "{groups}: {shares:?}");
        }
    }

    #[test]
    fn a_new_group_gets_its_share_and_no_other_key_moves() {
        for groups in 1..16 {
            let (old, new) = (groups_of(groups), groups_of(groups + 1));
            let moved = old.iter().zip(&new).filter(|(old, new)| old != new);
            assert!(moved.clone().all(|(_, new)| *new == groups), "keys move to the new group alone");
            let (moved, share) = (moved.count() as u64, KEYS / (groups as u64 + 1));
            assert!(moved.abs_diff(share) < share / 8, "{groups}: {moved} of {share}");
        }
    }
}

//! The keys that a scan visits, and their order.

use std::ops::Bound;

/// The order of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Ascending keys.
    #[default]
    Forward,
    /// Descending keys.
    Backward,
}

/// Bounds, direction and limit of a scan. Order is lexicographic on unsigned bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRange {
    /// Lower bound.
    pub from: Bound<Vec<u8>>,
    /// Upper bound.
    pub to: Bound<Vec<u8>>,
    /// Order.
    pub direction: Direction,
    /// Maximum number of entries to visit.
    pub limit: usize,
}

impl Default for ScanRange {
    fn default() -> Self {
        Self::all()
    }
}

impl ScanRange {
    /// Returns the range of every key, ascending.
    pub fn all() -> Self {
        Self { from: Bound::Unbounded, to: Bound::Unbounded, direction: Direction::Forward, limit: usize::MAX }
    }

    /// Returns the range of the keys at or after `from`, ascending.
    pub fn from(from: impl Into<Vec<u8>>) -> Self {
        Self { from: Bound::Included(from.into()), ..Self::all() }
    }

    /// Returns the range of the keys that begin with `prefix`, ascending.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { from: Bound::Included(prefix.to_vec()), to: prefix_end(prefix), ..Self::all() }
    }

    /// Sets the upper bound (excluded).
    #[must_use]
    pub fn to(mut self, to: impl Into<Vec<u8>>) -> Self {
        self.to = Bound::Excluded(to.into());
        self
    }

    /// Sets descending order.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.direction = Direction::Backward;
        self
    }

    /// Sets the maximum number of entries.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Returns whether the bounds alone exclude every key: inverted, or at one key without
    /// including it. (`BTreeMap::range` panics for some of these.)
    pub fn excludes_all(&self) -> bool {
        match (&self.from, &self.to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        }
    }

    /// Returns whether `key` is within the bounds.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.above_from(key) && self.below_to(key)
    }

    /// Returns whether `key` satisfies the lower bound.
    pub fn above_from(&self, key: &[u8]) -> bool {
        match &self.from {
            Bound::Included(from) => key >= from.as_slice(),
            Bound::Excluded(from) => key > from.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// Returns whether `key` satisfies the upper bound.
    pub fn below_to(&self, key: &[u8]) -> bool {
        match &self.to {
            Bound::Included(to) => key <= to.as_slice(),
            Bound::Excluded(to) => key < to.as_slice(),
            Bound::Unbounded => true,
        }
    }
}

/// Returns the smallest key greater than every key that begins with `prefix`, as an excluded bound.
fn prefix_end(prefix: &[u8]) -> Bound<Vec<u8>> {
    match prefix.iter().rposition(|byte| *byte != u8::MAX) {
        None => Bound::Unbounded,
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            Bound::Excluded(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_contains_exactly_the_keys_with_the_prefix() {
        let range = ScanRange::prefix(b"ab");
        assert!(range.contains(b"ab") && range.contains(b"ab\xff\xff"));
        assert!(!range.contains(b"aa\xff") && !range.contains(b"ac"));
    }

    #[test]
    fn a_prefix_of_high_bytes_has_no_upper_bound() {
        let range = ScanRange::prefix(b"\xff\xff");
        assert!(range.contains(b"\xff\xff\xff") && !range.contains(b"\xff\xfe"));
        assert!(ScanRange::prefix(b"a\xff").contains(b"a\xff\x01"));
        assert!(!ScanRange::prefix(b"a\xff").contains(b"b"));
    }

    #[test]
    fn bounds_include_or_exclude_their_keys() {
        let range = |from, to| ScanRange { from, to, ..ScanRange::all() };
        let (a, c) = (|| b"a".to_vec(), || b"c".to_vec());
        let inside = |range: &ScanRange| [&b"a"[..], b"b", b"c"].map(|key| range.contains(key));
        assert_eq!(inside(&range(Bound::Included(a()), Bound::Included(c()))), [true, true, true]);
        assert_eq!(inside(&range(Bound::Included(a()), Bound::Excluded(c()))), [true, true, false]);
        assert_eq!(inside(&range(Bound::Excluded(a()), Bound::Included(c()))), [false, true, true]);
        assert_eq!(inside(&range(Bound::Excluded(a()), Bound::Excluded(c()))), [false, true, false]);
        assert_eq!(inside(&ScanRange::all()), [true, true, true]);
        assert_eq!(inside(&ScanRange::from(b"b".to_vec()).to(b"c".to_vec())), [false, true, false]);
    }

    #[test]
    fn bounds_that_exclude_every_key_are_detected() {
        let bounds = |byte: u8| [Bound::Unbounded, Bound::Included(vec![byte]), Bound::Excluded(vec![byte])];
        for (from, to) in [(1, 1), (1, 3), (3, 1)] {
            for from in bounds(from) {
                for to in bounds(to) {
                    let range = ScanRange { from: from.clone(), to, ..ScanRange::all() };
                    // Between any two of these bytes there are further keys that begin with the
                    // lower byte.
                    let any = (0..5_u8).any(|byte| range.contains(&[byte]) || range.contains(&[byte, 0]));
                    assert_eq!(range.excludes_all(), !any, "{range:?}");
                }
            }
        }
    }

    #[test]
    fn each_builder_method_changes_one_field() {
        let range = ScanRange::prefix(b"p").reverse().limit(7);
        assert_eq!((range.direction, range.limit), (Direction::Backward, 7));
        assert_eq!((range.from, range.to), (Bound::Included(b"p".to_vec()), Bound::Excluded(b"q".to_vec())));
        assert_eq!(ScanRange::prefix(b""), ScanRange { from: Bound::Included(Vec::new()), ..ScanRange::all() });
        assert_eq!(ScanRange::default(), ScanRange::all());
    }
}

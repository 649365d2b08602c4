//! The account of a set of pairs: their number, and a sum of their hashes.
//!
//! The sum does not depend on the order of the pairs, and a pair can be removed again. Pairs that
//! expire are counted in groups by their remaining lifetime, since walks omit expired pairs: a
//! group is compared only while none of its pairs can have expired.

use std::collections::BTreeMap;

use lodestore_contract::{Pair, Result, Store, Visit, now_millis};
use xxhash_rust::xxh3::Xxh3;

/// Groups for each doubling of the remaining lifetime.
const DOUBLING_GROUP_COUNT: u64 = 8;

/// A number of pairs, and the sum of their hashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) pairs: u64,
    pub(super) hash: u128,
}

/// The account of a set of pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The start of the account, in milliseconds since the Unix epoch.
    pub(super) begun_millis: u64,
    /// Pairs without an expiry.
    pub(super) lasting: Sum,
    /// Pairs with an expiry, by group. Later groups expire later.
    pub(super) expiring: BTreeMap<u64, Sum>,
}

/// Returns the group of a lifetime. A longer lifetime has the same group or a later one.
fn group_of(lifetime_millis: u64) -> u64 {
    let doublings = u64::from(64 - lifetime_millis.leading_zeros());
    let next_bits = lifetime_millis >> doublings.saturating_sub(4);
    doublings * DOUBLING_GROUP_COUNT + next_bits % DOUBLING_GROUP_COUNT
}

fn hash_of(pair: Pair<'_>) -> u128 {
    let mut hash = Xxh3::new();
    hash.update(&(pair.key.len() as u64).to_le_bytes());
    hash.update(&pair.expiry.map_or(u64::MAX, |expiry| expiry.millis()).to_le_bytes());
    hash.update(pair.key);
    hash.update(pair.value);
    hash.digest128()
}

impl Account {
    /// Begins an account now.
    pub fn begin() -> Self {
        Self::begin_at(now_millis())
    }

    /// Begins an account that is compared with another one begun at `begun_millis`.
    pub(super) fn begin_at(begun_millis: u64) -> Self {
        Self { begun_millis, lasting: Sum::default(), expiring: BTreeMap::new() }
    }

    fn sum_of(&mut self, pair: Pair<'_>) -> &mut Sum {
        match pair.expiry {
            None => &mut self.lasting,
            Some(expiry) => {
                let lifetime = expiry.millis().saturating_sub(self.begun_millis);
                self.expiring.entry(group_of(lifetime)).or_default()
            }
        }
    }

    /// Begins an account that can be compared with this one.
    pub fn begin_comparable(&self) -> Self {
        Self::begin_at(self.begun_millis)
    }

    /// Adds a pair.
    pub fn add(&mut self, pair: Pair<'_>) {
        let sum = self.sum_of(pair);
        sum.pairs += 1;
        sum.hash = sum.hash.wrapping_add(hash_of(pair));
    }

    /// Removes a pair that was added.
    pub(super) fn remove(&mut self, pair: Pair<'_>) {
        let sum = self.sum_of(pair);
        sum.pairs = sum.pairs.wrapping_sub(1);
        sum.hash = sum.hash.wrapping_sub(hash_of(pair));
    }

    /// Returns the number of pairs.
    pub fn pairs(&self) -> u64 {
        self.expiring.values().fold(self.lasting.pairs, |pairs, sum| pairs.wrapping_add(sum.pairs))
    }

    /// Returns whether `found`, an account with the same start made until now, is of the same
    /// pairs, except for pairs that may have expired.
    pub fn agrees_with(&self, found: &Self) -> bool {
        let expired = group_of(now_millis().saturating_sub(self.begun_millis));
        let live = |account: &Self| -> Vec<(u64, Sum)> {
            let groups = account.expiring.iter().map(|(group, sum)| (*group, *sum));
            groups.filter(|(group, sum)| *group > expired && *sum != Sum::default()).collect()
        };
        self.lasting == found.lasting && live(self) == live(found)
    }

    /// Makes the account of all pairs of a store. Calls `each` with each number of pairs read.
    ///
    /// # Errors
    ///
    /// As [`Store::for_each_pair`]; those of `each`.
    pub(super) fn of_store(store: &dyn Store, begun_millis: u64, each: &mut dyn FnMut(u64)) -> Result<Self> {
        let (mut account, mut read) = (Self::begin_at(begun_millis), 0);
        store.for_each_pair(&mut |pair| {
            account.add(pair);
            read += 1;
            each(read);
            Visit::More
        })?;
        Ok(account)
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::Expiry;

    use super::*;

    fn pair<'a>(key: &'a str, value: &'a str, millis: Option<u64>) -> Pair<'a> {
        Pair { key: key.as_bytes(), value: value.as_bytes(), expiry: millis.map(Expiry::at_millis) }
    }

    #[test]
    fn longer_lifetimes_have_the_same_group_or_a_later_one() {
        let mut lifetimes: Vec<u64> = (0..64).flat_map(|bits| (0..20).map(move |i| (1_u64 << bits) / 10 * i)).collect();
        lifetimes.extend([0, 1, 2, 7, 8, 9, u64::MAX]);
        lifetimes.sort_unstable();
        let groups: Vec<u64> = lifetimes.iter().map(|lifetime| group_of(*lifetime)).collect();
        assert!(groups.is_sorted(), "{groups:?}");
        assert!(group_of(3_600_000) < group_of(4_600_000), "an hour, and a quarter more");
    }

    #[test]
    fn accounts_of_the_same_pairs_agree_in_any_order_and_of_others_do_not() {
        let far = now_millis() + 3_600_000;
        let pairs = [pair("a", "1", None), pair("b", "2", Some(far)), pair("ab", "", None)];
        let account = |pairs: &[Pair<'_>]| {
            let mut account = Account::begin();
            pairs.iter().for_each(|pair| account.add(*pair));
            account
        };
        let mut expected = account(&pairs);
        expected.add(pair("gone", "3", Some(far)));
        expected.remove(pair("gone", "3", Some(far)));
        let of = |pairs: &[Pair<'_>]| Account { begun_millis: expected.begun_millis, ..account(pairs) };
        assert!(expected.agrees_with(&of(&[pairs[2], pairs[1], pairs[0]])));
        assert_eq!(expected.pairs(), 3);
        assert!(!expected.agrees_with(&of(&pairs[..2])), "one pair less");
        assert!(!expected.agrees_with(&of(&[pairs[0], pairs[1], pair("a", "b", None)])), "another division");
        assert!(!expected.agrees_with(&of(&[pairs[0], pair("b", "2", Some(far + 1)), pairs[2]])), "another expiry");
        assert!(!expected.agrees_with(&of(&[pairs[0], pair("b", "2", None), pairs[2]])), "no expiry");
    }

    #[test]
    fn pairs_that_expire_meanwhile_are_not_compared() {
        let soon = now_millis();
        let mut expected = Account::begin_at(soon - 1000);
        expected.add(pair("kept", "1", None));
        let found = expected.clone();
        expected.add(pair("soon", "1", Some(soon)));
        assert!(expected.agrees_with(&found));
    }
}

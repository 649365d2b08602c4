//! Walks over a device's store by pages, between which it may change. Damaged pairs are skipped and
//! reported.
//!
//! A store with key order is walked over by ranges. A store without order has no position to
//! continue from: one pass over the store for each share collects the keys of that share, by hash.
//! The walk therefore needs the memory of one share, for any number of keys.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use lodestore_contract::{Direction, Error, Expiry, Pair as Shown, Result, ScanRange, Store, Visit};

use crate::route::KeyHash;

/// Approximate number of keys of a share.
const SHARE_KEYS: u64 = 1 << 20;
/// Makes shares independent of groups and stripes.
const SHARE_SEED: u64 = 0x5ead_ed57_0125_e77e;

/// A key with its stored contents.
pub(crate) type Pair = (Vec<u8>, StoredValue);

/// The value and the expiry of a key. Both are left out if a page does not request them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredValue {
    pub(crate) value: Vec<u8>,
    pub(crate) expiry: Option<Expiry>,
}

/// Limits of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageLimits {
    pub(crate) pairs: usize,
    /// A page with at least one pair ends at this many bytes of keys and values.
    pub(crate) bytes: usize,
    /// The parts of each pair that are kept.
    pub(crate) contents: PageContents,
}

/// The parts of a pair that a page keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageContents {
    /// The key alone.
    Keys,
    /// The key and the value.
    Values,
    /// The key, the value and the expiry.
    Pairs,
}

impl PageContents {
    fn keep(self, value: &[u8], expiry: Option<Expiry>) -> StoredValue {
        match self {
            Self::Keys => StoredValue::default(),
            Self::Values => StoredValue { value: value.to_vec(), expiry: None },
            Self::Pairs => StoredValue { value: value.to_vec(), expiry },
        }
    }
}

/// Limits of a page of keys.
pub(crate) const KEY_PAGE_LIMITS: PageLimits = PageLimits { pairs: 128, bytes: 4 << 20, contents: PageContents::Keys };

/// The next pairs of a store.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) pairs: Vec<Pair>,
    /// No pair follows.
    pub(crate) is_last: bool,
    /// Read errors, each with the key before it.
    pub(crate) damage: Vec<(Option<Vec<u8>>, Error)>,
    /// Bytes of its keys, and of all their values.
    pub(crate) bytes: usize,
}

impl Page {
    /// Adds a pair. Returns false if the page is full then.
    fn push(&mut self, pair: Shown<'_>, limits: &PageLimits) -> bool {
        self.bytes += pair.key.len() + pair.value.len();
        self.pairs.push((pair.key.to_vec(), limits.contents.keep(pair.value, pair.expiry)));
        self.is_last = self.bytes < limits.bytes && self.pairs.len() < limits.pairs;
        self.is_last
    }

    fn push_damage(&mut self, error: Error) {
        self.damage.push((self.pairs.last().map(|(key, _)| key.clone()), error));
    }
}

/// Returns the first pairs of `range` in a store with key order. The range's own limit is ignored.
///
/// # Errors
/// Errors of the store, except damage.
pub(crate) fn page(store: &dyn Store, range: &ScanRange, limits: &PageLimits) -> Result<Page> {
    if limits.contents == PageContents::Pairs {
        return page_with_damage(store, range, limits);
    }
    let mut page = Page { is_last: true, ..Page::default() };
    let visit = &mut |key: &[u8], value: &[u8]| {
        if page.push(Shown { key, value, expiry: None }, limits) { Visit::More } else { Visit::Stop }
    };
    match store.scan_each(&ScanRange { limit: limits.pairs, ..range.clone() }, visit) {
        Ok(_) => Ok(page),
        Err(Error::Corrupt { .. }) => page_with_damage(store, range, limits),
        Err(error) => Err(error),
    }
}

/// As [`page`], by a scan that continues after damage and reports expiries.
fn page_with_damage(store: &dyn Store, range: &ScanRange, limits: &PageLimits) -> Result<Page> {
    let mut page = Page { is_last: true, ..Page::default() };
    let mut is_cut = false;
    for entry in store.scan(&ScanRange { limit: usize::MAX, ..range.clone() })? {
        is_cut = matches!(entry, Err(Error::Corrupt { .. }));
        match entry {
            Ok(entry) if page.push(entry.pair(), limits) => {}
            Ok(_) => return Ok(page),
            Err(error @ Error::Corrupt { .. }) => page.push_damage(error),
            Err(error) => return Err(error),
        }
    }
    // The last entry was an error: the damage may have ended the scan early.
    if is_cut { page_by_unordered_walk(store, range, limits, page.damage) } else { Ok(page) }
}

/// As [`page`], by an unordered walk over the whole store, which skips damage.
fn page_by_unordered_walk(
    store: &dyn Store,
    range: &ScanRange,
    limits: &PageLimits,
    damage: Vec<(Option<Vec<u8>>, Error)>,
) -> Result<Page> {
    let is_forward = range.direction == Direction::Forward;
    let mut found: BTreeMap<Vec<u8>, (usize, StoredValue)> = BTreeMap::new();
    let (mut bytes, mut is_last) = (0, true);
    let walked = store.for_each_pair(&mut |Shown { key, value, expiry }| {
        if !range.contains(key) {
            return Visit::More;
        }
        let farthest = if is_forward { found.last_key_value() } else { found.first_key_value() };
        let is_beyond = farthest.is_some_and(|(farthest, _)| (key > &farthest[..]) == is_forward);
        if is_beyond && (!is_last || found.len() == limits.pairs) {
            is_last = false;
            return Visit::More;
        }
        bytes += key.len() + value.len();
        found.insert(key.to_vec(), (value.len(), limits.contents.keep(value, expiry)));
        while found.len() > limits.pairs || (bytes > limits.bytes && found.len() > 1) {
            let farthest = if is_forward { found.pop_last() } else { found.pop_first() };
            bytes -= farthest.map_or(0, |(key, (value_len, _))| key.len() + value_len);
            is_last = false;
        }
        Visit::More
    });
    match walked {
        Ok(_) | Err(Error::Corrupt { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut pairs: Vec<Pair> = found.into_iter().map(|(key, (_, held))| (key, held)).collect();
    if !is_forward {
        pairs.reverse();
    }
    Ok(Page { pairs, is_last, damage, bytes })
}

/// Calls `each`, outside any call of the store, for every readable key that is in the store
/// throughout the walk. Returns the first damage.
///
/// # Errors
/// Errors of the store, except damage; errors of `each`.
pub(crate) fn each_key(store: &dyn Store, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Option<Error>> {
    let mut damage = None;
    if store.capabilities().scan {
        let mut range = ScanRange::all();
        loop {
            let page = page(store, &range, &KEY_PAGE_LIMITS)?;
            page.pairs.iter().try_for_each(|(key, _)| each(key))?;
            damage = damage.or(page.damage.into_iter().next().map(|(_, error)| error));
            match page.pairs.into_iter().next_back() {
                Some((last, _)) if !page.is_last => range.from = Bound::Excluded(last),
                _ => return Ok(damage),
            }
        }
    }
    let shares = Shares::new(key_count(store));
    for share in 0..shares.count() {
        let mut keys = HashSet::new();
        damage = damage.or(shares.add_keys(share, store, &mut keys)?);
        keys.iter().try_for_each(|key| each(key))?;
    }
    Ok(damage)
}

/// Shares of keys, of about equal size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares(u64);

impl Shares {
    /// Divides `keys` keys into shares of about [`SHARE_KEYS`] keys.
    pub(crate) fn new(keys: u64) -> Self {
        Self::of(keys, SHARE_KEYS)
    }

    fn of(keys: u64, share_keys: u64) -> Self {
        Self(keys.div_ceil(share_keys).max(1))
    }

    pub(crate) fn count(self) -> u64 {
        self.0
    }

    fn contains(self, share: u64, key: &[u8]) -> bool {
        self.0 == 1 || KeyHash::of(key, SHARE_SEED).mixed() % self.0 == share
    }

    /// Adds the store's keys of one share to `keys`. Returns the damage found.
    ///
    /// # Errors
    /// Errors of the store, except damage.
    pub(crate) fn add_keys(self, share: u64, store: &dyn Store, keys: &mut HashSet<Vec<u8>>) -> Result<Option<Error>> {
        let walked = store.for_each(&mut |key, _| {
            if self.contains(share, key) && !keys.contains(key) {
                keys.insert(key.to_vec());
            }
            Visit::More
        });
        match walked {
            Ok(_) => Ok(None),
            Err(error @ Error::Corrupt { .. }) => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }
}

/// Returns the number of live keys of a store, approximately if the exact number is not available.
pub(crate) fn key_count(store: &dyn Store) -> u64 {
    store.len().unwrap_or_else(|_| store.stats().keys)
}

/// Returns whether a walk over this store shows all its pairs, except reported damage. Pairs that a
/// recovery left out are never shown.
pub(crate) fn shows_all(store: &dyn Store) -> bool {
    let recovery = store.stats().recovery;
    recovery.done && recovery.left_out == 0
}

#[cfg(test)]
mod tests {
    use lodestore_media::PoolOptions;
    use lodestore_nvht::{Nvht, NvhtOptions};

    use super::*;

    #[test]
    fn shares_contain_each_key_once_and_have_similar_sizes() {
        const KEYS: u64 = 4000;
        let dir = lodestore_contract::testing::Scratch::on_disk();
        let pool = PoolOptions { region_bytes: 4 << 20, ..PoolOptions::default() };
        let store =
            Nvht::create(&dir.path().join("store"), &NvhtOptions { pool, partitions: 1, ..NvhtOptions::default() })
                .expect("create");
        for key in 0..KEYS {
            store.put(&key.to_le_bytes(), b"value").expect("put");
        }
        assert_eq!(Shares::of(KEYS, KEYS).count(), 1);
        let shares = Shares::of(KEYS, KEYS / 8);
        let mut all = HashSet::new();
        for share in 0..shares.count() {
            let mut keys = HashSet::new();
            assert!(shares.add_keys(share, &store, &mut keys).expect("a walk").is_none());
            assert!((300..800).contains(&keys.len()), "{} of {KEYS} keys in share {share} of 8", keys.len());
            let before = all.len();
            all.extend(keys.drain());
            assert!(all.len() > before + 300, "shares have no keys in common");
        }
        assert_eq!((shares.count(), all.len() as u64), (8, KEYS));
    }
}

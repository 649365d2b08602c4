//! Walks over a device's store by pages, between which it may change. What is damaged is passed over, and told.
//!
//! A store with order is walked over by ranges. One without has no place to go on from: it is walked over several times, and each time the keys of one share are kept, by
//! their hashes; so a walk takes the memory of one share, however many keys there are.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use lodestore_contract::{Direction, Error, Expiry, Pair as Shown, Result, ScanRange, Store, Visit};

use crate::route::KeyHash;

/// Keys of a share, about.
const SHARE: u64 = 1 << 20;
/// Shares are told apart by other bits than groups and stripes.
const SHARE_SEED: u64 = 0x5ead_ed57_0125_e77e;

/// A key with what is stored under it.
pub(crate) type Pair = (Vec<u8>, Held);

/// The value of a key, and when the key expires. Both are left out if a page does not ask for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) value: Vec<u8>,
    pub(crate) expiry: Option<Expiry>,
}

/// The most that a page takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub(crate) pairs: usize,
    /// Bytes of keys and values at which it ends that has a pair.
    pub(crate) bytes: usize,
    /// The parts of each pair that are kept.
    pub(crate) keeps: Keeps,
}

/// What a page keeps of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// The key alone.
    Keys,
    /// The key and the value.
    Values,
    /// The key, the value and the expiry.
    Pairs,
}

impl Keeps {
    fn held(self, value: &[u8], expiry: Option<Expiry>) -> Held {
        match self {
            Self::Keys => Held::default(),
            Self::Values => Held { value: value.to_vec(), expiry: None },
            Self::Pairs => Held { value: value.to_vec(), expiry },
        }
    }
}

/// Keys of a page.
pub(crate) const KEYS: Most = Most { pairs: 128, bytes: 4 << 20, keeps: Keeps::Keys };

/// The next pairs of a store.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) pairs: Vec<Pair>,
    /// There is nothing behind them.
    pub(crate) is_last: bool,
    /// What could not be read, each with the key before it.
    pub(crate) damage: Vec<(Option<Vec<u8>>, Error)>,
    /// Bytes of its keys, and of all their values.
    pub(crate) bytes: usize,
}

impl Page {
    /// Takes one more; false where it is full with it.
    fn take(&mut self, pair: Shown<'_>, most: &Most) -> bool {
        self.bytes += pair.key.len() + pair.value.len();
        self.pairs.push((pair.key.to_vec(), most.keeps.held(pair.value, pair.expiry)));
        self.is_last = self.bytes < most.bytes && self.pairs.len() < most.pairs;
        self.is_last
    }

    fn miss(&mut self, error: Error) {
        self.damage.push((self.pairs.last().map(|(key, _)| key.clone()), error));
    }
}

/// The first pairs of `range` in a store with order, whatever its limit.
///
/// # Errors
/// The store's, but for damage.
pub(crate) fn page(store: &dyn Store, range: &ScanRange, most: &Most) -> Result<Page> {
    if most.keeps == Keeps::Pairs {
        return page_with_damage(store, range, most);
    }
    let mut page = Page { is_last: true, ..Page::default() };
    let visit = &mut |key: &[u8], value: &[u8]| {
        if page.take(Shown { key, value, expiry: None }, most) { Visit::More } else { Visit::Stop }
    };
    match store.scan_each(&ScanRange { limit: most.pairs, ..range.clone() }, visit) {
        Ok(_) => Ok(page),
        Err(Error::Corrupt { .. }) => page_with_damage(store, range, most),
        Err(error) => Err(error),
    }
}

/// As [`page`], by a scan that goes on behind what is damaged and reports expiries.
fn page_with_damage(store: &dyn Store, range: &ScanRange, most: &Most) -> Result<Page> {
    let mut page = Page { is_last: true, ..Page::default() };
    let mut is_cut = false;
    for entry in store.scan(&ScanRange { limit: usize::MAX, ..range.clone() })? {
        is_cut = matches!(entry, Err(Error::Corrupt { .. }));
        match entry {
            Ok(entry) if page.take(entry.pair(), most) => {}
            Ok(_) => return Ok(page),
            Err(error @ Error::Corrupt { .. }) => page.miss(error),
            Err(error) => return Err(error),
        }
    }
    // The last that it said: the damage may have ended it.
    if is_cut { nearest(store, range, most, page.damage) } else { Ok(page) }
}

/// As [`page`], by a walk without order over all of the store, which passes over what is damaged.
fn nearest(store: &dyn Store, range: &ScanRange, most: &Most, damage: Vec<(Option<Vec<u8>>, Error)>) -> Result<Page> {
    let is_forward = range.direction == Direction::Forward;
    let mut found: BTreeMap<Vec<u8>, (usize, Held)> = BTreeMap::new();
    let (mut bytes, mut is_last) = (0, true);
    let walked = store.for_each_pair(&mut |Shown { key, value, expiry }| {
        if !range.contains(key) {
            return Visit::More;
        }
        let farthest = if is_forward { found.last_key_value() } else { found.first_key_value() };
        let is_beyond = farthest.is_some_and(|(farthest, _)| (key > &farthest[..]) == is_forward);
        if is_beyond && (!is_last || found.len() == most.pairs) {
            is_last = false;
            return Visit::More;
        }
        bytes += key.len() + value.len();
        found.insert(key.to_vec(), (value.len(), most.keeps.held(value, expiry)));
        while found.len() > most.pairs || (bytes > most.bytes && found.len() > 1) {
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

/// Calls `each` for every key that is in the store from the beginning to the end of the walk and can be read, and outside of any call of the store. The first damage that
/// it met.
///
/// # Errors
/// The store's, but for damage; those of `each`.
pub(crate) fn each_key(store: &dyn Store, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Option<Error>> {
    let mut damage = None;
    if store.capabilities().scan {
        let mut range = ScanRange::all();
        loop {
            let page = page(store, &range, &KEYS)?;
            page.pairs.iter().try_for_each(|(key, _)| each(key))?;
            damage = damage.or(page.damage.into_iter().next().map(|(_, error)| error));
            match page.pairs.into_iter().next_back() {
                Some((last, _)) if !page.is_last => range.from = Bound::Excluded(last),
                _ => return Ok(damage),
            }
        }
    }
    let shares = Shares::new(keys_of(store));
    for share in 0..shares.count() {
        let mut keys = HashSet::new();
        damage = damage.or(shares.collect(share, store, &mut keys)?);
        keys.iter().try_for_each(|key| each(key))?;
    }
    Ok(damage)
}

/// Shares of keys, of about one size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares(u64);

impl Shares {
    /// As many as it takes that one has about [`SHARE`] keys of so many.
    pub(crate) fn new(keys: u64) -> Self {
        Self::of(keys, SHARE)
    }

    fn of(keys: u64, most: u64) -> Self {
        Self(keys.div_ceil(most).max(1))
    }

    pub(crate) fn count(self) -> u64 {
        self.0
    }

    fn has(self, share: u64, key: &[u8]) -> bool {
        self.0 == 1 || KeyHash::of(key, SHARE_SEED).mixed() % self.0 == share
    }

    /// Adds the keys of one share that a store has to `keys`. The damage that it met.
    ///
    /// # Errors
    /// The store's, but for damage.
    pub(crate) fn collect(self, share: u64, store: &dyn Store, keys: &mut HashSet<Vec<u8>>) -> Result<Option<Error>> {
        let walked = store.for_each(&mut |key, _| {
            if self.has(share, key) && !keys.contains(key) {
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

/// Live keys of a store, about where it cannot tell.
pub(crate) fn keys_of(store: &dyn Store) -> u64 {
    store.len().unwrap_or_else(|_| store.stats().keys)
}

/// Whether a walk over this store shows all that it has, but for what it tells as damaged: a recovery that left pairs out has them shown by none.
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
    fn shares_have_each_key_once_and_are_of_about_one_size() {
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
            assert!(shares.collect(share, &store, &mut keys).expect("a walk").is_none());
            assert!((300..800).contains(&keys.len()), "{} of {KEYS} keys in share {share} of 8", keys.len());
            let before = all.len();
            all.extend(keys.drain());
            assert!(all.len() > before + 300, "shares have no keys in common");
        }
        assert_eq!((shares.count(), all.len() as u64), (8, KEYS));
    }
}

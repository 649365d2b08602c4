//! std's hash map in shards, each with a readers-writer lock: the ceiling without persistence for
//! stores without order, in DRAM.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use lodestore_contract::Result;

use crate::target::{Account, Facts, Target};
use crate::workload::keys::mix;

/// Number of shards, as a power of two: many more than concurrent threads, so that two threads
/// seldom meet in one shard.
const SHARD_BITS: u32 = 8;

type Map = HashMap<Vec<u8>, Vec<u8>>;

/// A shard, separated from the others in the processor's caches.
#[derive(Default)]
#[repr(align(128))]
struct Shard(RwLock<Map>);

/// The map. Readers share the lock of a shard; a writer holds it exclusively.
pub(crate) struct Sharded(Vec<Shard>);

impl Default for Sharded {
    fn default() -> Self {
        Self((0..1 << SHARD_BITS).map(|_| Shard::default()).collect())
    }
}

impl Sharded {
    /// Returns the shard of a key, by its first bytes, in which the keys of the bench differ.
    #[inline]
    fn shard(&self, key: &[u8]) -> &RwLock<Map> {
        let first = key.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        &self.0[(mix(first) >> (u64::BITS - SHARD_BITS)) as usize].0
    }

    #[inline]
    fn read(&self, key: &[u8]) -> RwLockReadGuard<'_, Map> {
        self.shard(key).read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn write(&self, key: &[u8]) -> RwLockWriteGuard<'_, Map> {
        self.shard(key).write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for Sharded {
    fn facts(&self) -> Facts {
        let set = [("lock", "std RwLock".into()), ("shards", self.0.len().to_string()), ("hash", "SipHash 1-3".into())];
        let settings = BTreeMap::from(set.map(|(name, value)| (name.into(), value)));
        Facts { medium: "dram".into(), durability: "none".into(), settings, ..Facts::default() }
    }

    fn ordered(&self) -> bool {
        false
    }

    fn account(&self) -> Account {
        Account::default()
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        Ok(self.read(key).get(key).is_some_and(|found| {
            value.extend_from_slice(found);
            true
        }))
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        keys.iter().enumerate().for_each(|(at, key)| each(at, self.read(key).get(*key).map(Vec::as_slice)));
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (owned, value) = (key.to_vec(), value.to_vec());
        self.write(key).insert(owned, value);
        Ok(())
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.write(key).get_mut(key).is_some_and(|old| {
            old.clear();
            old.extend_from_slice(value);
            true
        }))
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        Ok(self.write(key).remove(key).is_some())
    }

    /// Never called: the map has no order.
    fn scan(&self, _: &[u8], _: usize, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        Ok(0)
    }

    fn catch_up(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::keys::Records;

    #[test]
    fn keys_of_the_bench_are_spread_over_all_shards() {
        for size in [8, 16, 40] {
            let (records, map) = (Records::new(size, 8, 0, 1, false), Sharded::default());
            let mut key = Vec::new();
            for number in 0..100_000 {
                records.key(number, &mut key);
                map.put(&key, b"value").expect("put");
            }
            let sizes: Vec<_> = map.0.iter().map(|shard| shard.0.read().expect("no panic").len()).collect();
            // The mean is 390, with a deviation of 20.
            assert!(sizes.iter().all(|len| (270..510).contains(len)), "key size {size}: {sizes:?}");
            assert_eq!(sizes.iter().sum::<usize>(), 100_000);
        }
    }

    #[test]
    fn it_keeps_what_it_is_given() {
        let (map, mut value) = (Sharded::default(), Vec::new());
        assert!(!map.update(b"a key", b"1").expect("update") && !map.get(b"a key", &mut value).expect("get"));
        map.put(b"a key", b"one").expect("put");
        assert!(map.update(b"a key", b"two").expect("update"));
        assert!(map.get(b"a key", &mut value).expect("get") && value == b"two");
        let mut found = Vec::new();
        map.multi_get(&[b"none", b"a key"], &mut |at, value| found.push((at, value.map(<[u8]>::to_vec)))).expect("get");
        assert_eq!(found, [(0, None), (1, Some(b"two".to_vec()))]);
        assert!(map.delete(b"a key").expect("delete") && !map.delete(b"a key").expect("delete"));
        assert!(!map.get(b"a key", &mut value).expect("get") && !map.ordered());
    }
}

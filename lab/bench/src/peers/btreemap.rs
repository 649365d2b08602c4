//! std's B-tree with a readers-writer lock: the ceiling without persistence, in DRAM.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use lodestore_contract::Result;

use crate::target::{Account, Facts, Target};

/// The map. Readers share the lock; a writer holds it exclusively.
#[derive(Default)]
pub(crate) struct BTree {
    map: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Target for BTree {
    fn facts(&self) -> Facts {
        let settings = BTreeMap::from([("lock".into(), "std RwLock".into())]);
        Facts { medium: "dram".into(), durability: "none".into(), settings, ..Facts::default() }
    }

    fn account(&self) -> Account {
        Account::default()
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        Ok(map.get(key).is_some_and(|found| {
            value.extend_from_slice(found);
            true
        }))
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().enumerate().for_each(|(at, key)| each(at, map.get(*key).map(Vec::as_slice)));
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.map.write().unwrap_or_else(PoisonError::into_inner).insert(key, value);
        Ok(())
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        Ok(map.get_mut(key).is_some_and(|old| {
            old.clear();
            old.extend_from_slice(value);
            true
        }))
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        Ok(self.map.write().unwrap_or_else(PoisonError::into_inner).remove(key).is_some())
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let run = map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).take(limit);
        Ok(run.map(|(key, value)| each(key, value)).count())
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

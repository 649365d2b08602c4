//! How a group's filter is made: by a walk over its keys, while they come and go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result, Store};

use crate::filter::Building;
use crate::group::Group;
use crate::route::KeyHash;
use crate::walk::{PAGE, each_key, page};

/// A filter is made anew when it counts this many eighths of the keys that it was made for, and then for so many times as many.
const FULL_EIGHTHS: u64 = 12;
const GROWTH: u64 = 2;

impl Group {
    /// Whether it has no filter, or one that counts too many keys or is not to be trusted.
    pub(crate) fn needs_filter(&self) -> bool {
        if !self.has_filter {
            return false;
        }
        // Where writes hold all stripes it is asked again.
        let Some(filter) = self.stripes.peek(|stripe| stripe.filter.clone()) else { return false };
        filter.is_none_or(|filter| self.raised() > filter.keys() / 8 * FULL_EIGHTHS)
            || self.distrust.load(Ordering::Acquire)
    }

    /// A store that has everything, while all stripes are held.
    fn whole_store(&self) -> Result<Arc<dyn Store>> {
        if self.sole().is_some() {
            return Ok(Arc::clone(self.devices()[0].store()));
        }
        let last = self.last();
        let whole = self.active().into_iter().find(|device| device.applied() >= last);
        whole.map(|device| Arc::clone(device.store())).ok_or(Error::TooFewDevices {
            group: self.index,
            live: 0,
            needed: 1,
        })
    }

    /// Makes the group's filter by a walk over its keys, while they come and go.
    ///
    /// # Errors
    /// The devices'. The filter is then as it was.
    pub(crate) fn build_filter(&self, seed: u64, stops: &dyn Fn() -> bool) -> Result<()> {
        let keys = self.devices().iter().map(|device| device.store().stats().keys).max().unwrap_or(0);
        let keys = (keys * GROWTH).max(self.options.filter_keys);
        let is_ordered = self.devices().iter().all(|device| device.store().capabilities().scan);
        let building = Arc::new(Building::new(keys, is_ordered));
        self.distrust.store(false, Ordering::Release);
        for mut stripe in self.stripes.all() {
            stripe.building = Some(Arc::clone(&building));
        }
        let built = self.count_keys(&building, seed, stops);
        let mut stripes = self.stripes.all();
        let is_whole = built.as_ref().is_ok_and(|whole| *whole);
        if is_whole {
            self.raised_before.store(building.keys(), Ordering::Relaxed);
        }
        let is_distrusted = self.distrust.load(Ordering::Acquire);
        for stripe in &mut stripes {
            stripe.building = None;
            if is_whole {
                stripe.counts.raised.store(0, Ordering::Relaxed);
                stripe.filter = Some(Arc::clone(building.filter()));
            } else if is_distrusted {
                stripe.filter = None;
            }
        }
        built.map(drop)
    }

    /// Counts all keys; false where it was stopped.
    fn count_keys(&self, building: &Building, seed: u64, stops: &dyn Fn() -> bool) -> Result<bool> {
        let hash = |key: &[u8]| KeyHash::of(key, seed);
        if !self.devices().iter().all(|device| device.store().capabilities().scan) {
            let stripes = self.stripes.all();
            let store = self.whole_store()?;
            drop(stripes);
            each_key(&*store, &mut |key| {
                building.count(&[key.to_vec()], false, hash);
                Ok(())
            })?;
            return Ok(true);
        }
        loop {
            let stripes = self.stripes.all();
            let store = self.whole_store()?;
            let keys = page(&*store, building.place().as_deref())?;
            building.count(&keys, keys.len() < PAGE, hash);
            drop(stripes);
            if keys.len() < PAGE || stops() {
                return Ok(keys.len() < PAGE);
            }
        }
    }
}

//! Builds a group's filter: by a walk over its keys, concurrently with writes.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result, ScanRange};

use crate::filter::Building;
use crate::group::Group;
use crate::lock;
use crate::route::KeyHash;
use crate::source::Source;
use crate::walk::{Page, PageContents, PageLimits, page};

/// A filter is rebuilt when it counts more than `FULL_EIGHTHS_COUNT` eighths of its planned keys.
/// The new one is planned for `GROWTH_FACTOR` times the present keys.
const FULL_EIGHTHS_COUNT: u64 = 12;
const GROWTH_FACTOR: u64 = 2;
/// Maximum number of keys counted while all stripes are held, and of value bytes read for them.
const COUNT_PAGE_LIMITS: PageLimits = PageLimits { pairs: 2048, bytes: 8 << 20, contents: PageContents::Keys };
/// Wait after a walk that met pairs which no member can read.
const DAMAGE_RETRY_DELAY: Duration = Duration::from_secs(10);

impl Group {
    /// Returns whether a filter must and can be built: there is none, or it counts too many keys,
    /// or its counts are unreliable.
    pub(crate) fn needs_filter(&self) -> bool {
        if !self.has_filter || lock(&self.no_filter_before).is_some_and(|before| Instant::now() < before) {
            return false;
        }
        // While all stripes are locked exclusively, a later round checks again.
        let Some(filter) = self.stripes.read_any(|stripe| stripe.filter.clone()) else { return false };
        let is_due = filter.is_none_or(|filter| self.raised() > filter.keys() / 8 * FULL_EIGHTHS_COUNT)
            || self.is_filter_unreliable.load(Ordering::Acquire);
        is_due && self.active().iter().any(|device| device.shows_all())
    }

    /// Returns the stores that have everything and show all of it, while all stripes are held. A
    /// filter built from another walk would report present keys as absent.
    fn whole_stores(&self) -> Result<Vec<Source>> {
        let mut devices = if self.sole().is_some() { self.devices() } else { self.active() };
        let last = self.last();
        devices.retain(|device| (self.sole().is_some() || device.applied() >= last) && device.shows_all());
        if devices.is_empty() {
            return Err(self.too_few_error(0, 1));
        }
        Ok(devices.iter().map(|device| Source::of(device)).collect())
    }

    /// Builds the group's filter by a walk over its keys, concurrently with writes.
    ///
    /// # Errors
    /// Errors of the devices. The filter is then as it was.
    pub(crate) fn build_filter(&self, seed: u64, stops: &dyn Fn() -> bool) -> Result<()> {
        let keys = self.devices().iter().map(|device| device.store().stats().keys).max().unwrap_or(0);
        let keys = (keys * GROWTH_FACTOR).max(self.options.filter_keys);
        let is_ordered = self.devices().iter().all(|device| device.store().capabilities().scan);
        let building = Arc::new(Building::new(keys, is_ordered));
        self.is_filter_unreliable.store(false, Ordering::Release);
        for mut stripe in self.stripes.lock_all() {
            stripe.building = Some(Arc::clone(&building));
        }
        let built = self.count_keys(&building, seed, stops);
        let mut stripes = self.stripes.lock_all();
        let is_whole = built.as_ref().is_ok_and(|whole| *whole);
        if is_whole {
            self.raised_before.store(building.keys(), Ordering::Relaxed);
        }
        let is_unreliable = self.is_filter_unreliable.load(Ordering::Acquire);
        for stripe in &mut stripes {
            stripe.building = None;
            if is_whole {
                stripe.counts.raised.store(0, Ordering::Relaxed);
                stripe.filter = Some(Arc::clone(building.filter()));
            } else if is_unreliable {
                stripe.filter = None;
            }
        }
        if matches!(built, Err(Error::Corrupt { .. })) {
            *lock(&self.no_filter_before) = Some(Instant::now() + DAMAGE_RETRY_DELAY);
        }
        built.map(drop)
    }

    /// Counts all keys. Returns false if it was stopped.
    fn count_keys(&self, building: &Building, seed: u64, stops: &dyn Fn() -> bool) -> Result<bool> {
        let hash = |key: &[u8]| KeyHash::of(key, seed);
        if !self.devices().iter().all(|device| device.store().capabilities().scan) {
            let stripes = self.stripes.lock_all();
            let stores = self.whole_stores()?;
            drop(stripes);
            let damage = self.each_key_of(&stores, &mut |key| {
                if stops() {
                    return Err(Error::Closed);
                }
                building.count(&[key.to_vec()], false, hash);
                Ok(())
            })?;
            return damage.map_or(Ok(true), Err);
        }
        loop {
            let from = building.position().map_or(Bound::Unbounded, Bound::Excluded);
            let range = ScanRange { from, ..ScanRange::all() };
            // Loads the page from the medium before writers have to wait.
            let near = self.active().into_iter().find(|device| device.shows_all());
            near.map(|device| page(&**device.store(), &range, &COUNT_PAGE_LIMITS)).transpose()?;
            let stripes = self.stripes.lock_all();
            let page = self.undamaged(&range)?;
            let keys: Vec<_> = page.pairs.into_iter().map(|(key, _)| key).collect();
            building.count(&keys, page.is_last, hash);
            drop(stripes);
            if page.is_last || stops() {
                return Ok(page.is_last);
            }
        }
    }

    /// Returns the first keys of `range`, from a member that can read all of them. All stripes are
    /// held.
    fn undamaged(&self, range: &ScanRange) -> Result<Page> {
        let mut damage = None;
        for source in self.whole_stores()? {
            let page = page(&*source.store, range, &COUNT_PAGE_LIMITS)?;
            if page.damage.is_empty() {
                return Ok(page);
            }
            damage = damage.or_else(|| page.damage.into_iter().next().map(|(_, error)| error));
        }
        Err(damage.unwrap_or_else(|| self.too_few_error(0, 1)))
    }
}

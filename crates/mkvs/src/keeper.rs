//! The thread that keeps a matrix whole: members that are behind catch up, pairs that one member cannot read are taken from another, filters are made anew.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Event, Result, Store};

use crate::apply::apply;
use crate::events::Relay;
use crate::filter::Building;
use crate::group::Group;
use crate::layout::{Matrix, MemberState};
use crate::lock;
use crate::operation::Mutation;
use crate::route::KeyHash;
use crate::store::Inner;
use crate::walk::{PAGE, each_key, page};

/// Most damaged keys that wait to be put right.
pub(crate) const DAMAGED_MAX: usize = 4096;
/// Between two rounds.
const ROUND: Duration = Duration::from_millis(50);
/// After a failure, before it is tried again.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// A filter is made anew when it counts this many eighths of the keys that it was made for, and then for so many times as many.
const FULL_EIGHTHS: u64 = 12;
const GROWTH: u64 = 2;

/// The keeper's own state.
#[derive(Default)]
pub(crate) struct Keeper {
    stops: AtomicBool,
    sleep: Mutex<()>,
    /// Of devices with something in their queues: how much they had executed, and when that was first so.
    watched: Mutex<HashMap<u64, (u64, Instant)>>,
    wake: Condvar,
}

impl Keeper {
    /// Ends the thread.
    pub(crate) fn stop(&self) {
        let sleep = lock(&self.sleep);
        self.stops.store(true, Ordering::Release);
        drop(sleep);
        self.wake.notify_all();
    }

    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// The thread.
    pub(crate) fn work(&self, inner: &Inner) {
        let relay = inner.options.relay.as_ref();
        let mut not_before = [Instant::now(); Matrix::GROUPS_MAX];
        while !self.stops() {
            relay.inspect(|relay| relay.tell());
            let groups = inner.shape.groups();
            tell_failures(&groups, relay);
            for (group, not_before) in groups.iter().zip(&mut not_before) {
                self.watch(group);
                if Instant::now() >= *not_before && !self.round(group, inner.seed) {
                    *not_before = Instant::now() + AFTER_FAILURE;
                }
            }
            let sleep = lock(&self.sleep);
            let awake =
                self.wake.wait_timeout_while(sleep, ROUND, |()| !self.stops()).unwrap_or_else(PoisonError::into_inner);
            drop(awake);
        }
        relay.inspect(|relay| relay.tell());
    }

    /// Fails devices that hang: with something in their queues, they execute nothing for as long as an operation may take.
    fn watch(&self, group: &Group) {
        let mut watched = lock(&self.watched);
        for device in group.devices() {
            let progress = device.progress();
            if device.depth() == 0 {
                watched.remove(&device.id);
                continue;
            }
            let (seen, since) = watched.entry(device.id).or_insert_with(|| (progress, Instant::now()));
            if *seen != progress {
                (*seen, *since) = (progress, Instant::now());
            } else if since.elapsed() > group.options.timeout {
                device.fail(group.too_late());
            }
        }
    }

    /// Does what is due in a group; false where something failed.
    pub(crate) fn round(&self, group: &Group, seed: u64) -> bool {
        let mut is_well = true;
        if group.sole().is_none() && group.active().is_empty() && !self.stops() {
            is_well &= group.revive().unwrap_or(false);
        }
        for device in group.devices() {
            if device.state() == MemberState::Behind && !self.stops() {
                is_well &= group.catch_up(&device).unwrap_or(false);
            }
        }
        let damaged = std::mem::take(&mut *lock(&group.damaged));
        for key in damaged {
            let is_repaired = group.repair(&key, KeyHash::of(&key, seed)).is_ok();
            if !is_repaired {
                group.note_damage(&key);
            }
            is_well &= is_repaired;
        }
        if group.needs_filter() && !self.stops() {
            is_well &= group.build_filter(seed, &|| self.stops()).is_ok();
        }
        is_well
    }
}

/// Tells the owner which devices have failed.
fn tell_failures(groups: &[Arc<Group>], relay: Option<&Relay>) {
    let Some(relay) = relay else { return };
    for group in groups {
        for device in group.devices() {
            if let Some(what) = device.news() {
                relay.keep(Event::Corruption { place: format!("group {} device {}", group.index, device.index), what });
            }
        }
    }
}

impl Group {
    /// Gives members that cannot read `key` what another one has.
    ///
    /// # Errors
    /// The devices'.
    pub(crate) fn repair(&self, key: &[u8], hash: KeyHash) -> Result<()> {
        let stripe = self.stripes.own(hash);
        let pair = self.pair(&stripe, key)?;
        let mutation = pair.map_or(Mutation::Delete, |(value, expiry)| Mutation::Put { value, expiry });
        for device in self.active() {
            if device.applied() >= stripe.last && matches!(device.store().get(key), Err(Error::Corrupt { .. })) {
                apply(&**device.store(), key, &mutation, false)?;
                self.counts.repaired.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Whether it has no filter, or one that counts too many keys or is not to be trusted.
    fn needs_filter(&self) -> bool {
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

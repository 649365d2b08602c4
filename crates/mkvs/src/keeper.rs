//! The thread that keeps a matrix whole: members that are behind catch up, pairs that one member cannot read are taken from another, filters are made anew.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Event, Result};

use crate::apply::apply;
use crate::events::Relay;
use crate::group::Group;
use crate::layout::{Matrix, MemberState};
use crate::lock;
use crate::operation::Mutation;
use crate::route::KeyHash;
use crate::store::Inner;

/// Most damaged keys that wait to be put right.
pub(crate) const DAMAGED_MAX: usize = 4096;
/// Between two rounds.
const ROUND: Duration = Duration::from_millis(50);
/// After a failure, before it is tried again.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

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
}

//! What keeps a matrix whole behind its callers. Each group has a thread, its *keeper*: members that are behind catch up, pairs that one member cannot read are taken from another, filters
//! are made anew. Another one finds devices that hang, and one tells the owner what happened: none of them waits for a keeper, which may be at a copy for hours.
//!
//! Invariant
//! A group has one keeper. Who catches up takes the sequencer while a device's processor is held (`catchup.rs`, `fill.rs`); who chooses a leader waits for processors while the sequencer is
//! held (`revive.rs`). They never wait for each other because one thread does both: a group's copy, catch-up and revival are never done beside each other. One that may hang in a member
//! which was replaced has a successor: when it comes back it finds that this member cannot join, and ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Event, Result};

use crate::apply::apply;
use crate::catchup::CaughtUp;
use crate::device::Device;
use crate::events::Relay;
use crate::group::Group;
use crate::layout::MemberState;
use crate::lock;
use crate::operation::Mutation;
use crate::route::KeyHash;
use crate::shape::Shape;

/// Most damaged keys that wait to be put right.
pub(crate) const DAMAGED_MAX: usize = 4096;
/// Between two rounds.
const ROUND: Duration = Duration::from_millis(50);
/// After a failure, before it is tried again.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What the keepers share.
#[derive(Default)]
pub(crate) struct Keeper {
    stops: AtomicBool,
    sleep: Mutex<()>,
    /// Of devices with something in their queues: how much they had executed, and when that was first so.
    watched: Mutex<HashMap<u64, (u64, Instant)>>,
    wake: Condvar,
    /// Held by who does a round where there are no threads.
    pub(crate) alone: Mutex<()>,
}

impl Keeper {
    /// Ends the threads.
    pub(crate) fn stop(&self) {
        let sleep = lock(&self.sleep);
        self.stops.store(true, Ordering::Release);
        drop(sleep);
        self.wake.notify_all();
    }

    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// Sleeps until the next round, or until all threads are to end.
    fn rest(&self) {
        let sleep = lock(&self.sleep);
        let awake =
            self.wake.wait_timeout_while(sleep, ROUND, |()| !self.stops()).unwrap_or_else(PoisonError::into_inner);
        drop(awake);
    }

    /// The thread that finds devices that hang.
    pub(crate) fn watch_all(&self, shape: &Shape) {
        while !self.stops() {
            shape.groups().iter().for_each(|group| self.watch(group));
            self.rest();
        }
    }

    /// The thread that tells the owner what happened.
    pub(crate) fn tell_all(&self, shape: &Shape, relay: &Relay) {
        loop {
            let is_last = self.stops();
            tell_failures(&shape.groups(), relay);
            relay.tell();
            if is_last {
                return;
            }
            self.rest();
        }
    }

    /// A group's keeper, of this number.
    pub(crate) fn work(&self, group: &Group, by: u64) {
        let mut not_before = Instant::now();
        while !self.stops() && !group.stops.load(Ordering::Acquire) && group.is_kept(by) {
            if Instant::now() >= not_before && !self.round(group, by) {
                not_before = Instant::now() + AFTER_FAILURE;
            }
            self.rest();
        }
    }

    /// Fails devices that hang: with something in their queues, they execute nothing for as long as an operation may take.
    fn watch(&self, group: &Group) {
        let mut watched = lock(&self.watched);
        for device in group.devices() {
            let progress = device.progress();
            if device.depth() == 0 || device.state() == MemberState::Failed {
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

    /// Does what is due in a group as its keeper of this number; false where something failed. Copies last, which may take hours.
    pub(crate) fn round(&self, group: &Group, by: u64) -> bool {
        let mut is_well = true;
        group.recall();
        if group.sole().is_none() && group.active().is_empty() && !self.stops() {
            is_well &= group.revive().unwrap_or(false);
        }
        let mut copies = Vec::new();
        for device in group.devices() {
            if !self.stops() && group.turn_to(by, &device) {
                match group.catch_up(&device) {
                    Ok(CaughtUp::Active) => {}
                    Ok(CaughtUp::LacksMore) => copies.push(device),
                    Ok(CaughtUp::Later) | Err(_) => is_well = false,
                }
            }
        }
        if !group.turn_away(by) {
            return false;
        }
        is_well &= group.repair_all() & group.decide_all();
        if group.needs_filter() && !self.stops() {
            is_well &= group.build_filter(group.seed, &|| self.stops()).is_ok();
        }
        for device in copies {
            // Beside another copy it may have come back, and have fallen behind again: it is looked at anew.
            is_well &= device.state() != MemberState::Behind
                || match group.catch_up(&device) {
                    Ok(CaughtUp::Active) => true,
                    Ok(CaughtUp::LacksMore) => !self.stops() && group.copy(&device).unwrap_or(false),
                    Ok(CaughtUp::Later) | Err(_) => false,
                };
        }
        is_well
    }
}

/// Keeps for the owner which devices have failed.
fn tell_failures(groups: &[Arc<Group>], relay: &Relay) {
    for group in groups {
        for device in group.devices() {
            if let Some((is_late, cause)) = device.news() {
                relay.keep(Event::DeviceFailed { group: group.index, device: device.index, is_late, cause });
            }
        }
    }
}

/// What is done of a group beside a copy, between its pairs.
pub(crate) struct Beside<'a> {
    group: &'a Group,
    /// The member that is being copied.
    copied: &'a Device,
    not_before: Instant,
}

impl<'a> Beside<'a> {
    pub(crate) fn new(group: &'a Group, copied: &'a Device) -> Self {
        Self { group, copied, not_before: Instant::now() + ROUND }
    }

    /// Has other members catch up that only lack what logs tell, and damaged pairs put right, where that is due. What fails is tried again.
    pub(crate) fn turn(&mut self) {
        if Instant::now() < self.not_before {
            return;
        }
        self.group.recall();
        let mut is_well = self.group.repair_all();
        for device in self.group.devices() {
            let is_due = device.id != self.copied.id && device.state() == MemberState::Behind;
            if is_due && !self.group.stops.load(Ordering::Acquire) {
                is_well &= matches!(self.group.catch_up(&device), Ok(CaughtUp::Active));
            }
        }
        self.not_before = Instant::now() + if is_well { ROUND } else { AFTER_FAILURE };
    }
}

impl Group {
    /// Whether it has the keeper of this number still.
    fn is_kept(&self, by: u64) -> bool {
        lock(&self.kept).by == by
    }

    /// Whether the keeper of this number is to have a member catch up. It is known from then on where it may hang; who replaces the member takes it out of use before he looks.
    fn turn_to(&self, by: u64, device: &Device) -> bool {
        let mut kept = lock(&self.kept);
        let turns = kept.by == by && device.state() == MemberState::Behind;
        if turns {
            kept.member = Some(device.id);
        }
        turns
    }

    /// The keeper of this number has no member catch up any more. False where the group has another one by now.
    fn turn_away(&self, by: u64) -> bool {
        let mut kept = lock(&self.kept);
        if kept.by == by {
            kept.member = None;
        }
        kept.by == by
    }

    /// Has those members catch up that failed for being late, and answer again.
    fn recall(&self) {
        if self.sole().is_none() && !self.stops.load(Ordering::Acquire) {
            self.devices().iter().for_each(|device| device.recall(self.options.timeout));
        }
    }

    /// Puts right what could not be read; false where something failed. What nobody can read any more is left: whoever reads it says so.
    fn repair_all(&self) -> bool {
        let mut is_well = true;
        let damaged = std::mem::take(&mut *lock(&self.damaged));
        // What another member has may be older then.
        if self.has_doubts() {
            return true;
        }
        for key in damaged {
            if self.stops.load(Ordering::Acquire) {
                return false;
            }
            match self.repair(&key, KeyHash::of(&key, self.seed)) {
                Ok(()) | Err(Error::Corrupt { .. }) => {}
                Err(_) => {
                    self.note_damage(&key);
                    is_well = false;
                }
            }
        }
        is_well
    }

    /// Gives members that cannot read `key` what another one has.
    ///
    /// # Errors
    /// The devices'.
    pub(crate) fn repair(&self, key: &[u8], hash: KeyHash) -> Result<()> {
        let stripe = self.stripes.own(hash);
        let pair = self.pair(&stripe, key)?;
        let mutation = pair.map_or(Mutation::Delete, |(value, expiry)| Mutation::Put { value, expiry });
        for device in self.active() {
            let lacks = match device.store().get(key) {
                Err(Error::Corrupt { .. }) => true,
                Ok(None) => device.has_gaps() && mutation != Mutation::Delete,
                Ok(Some(_)) | Err(_) => false,
            };
            if device.applied() >= stripe.last && lacks {
                apply(&**device.store(), key, &mutation, false)?;
                self.counts.repaired.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

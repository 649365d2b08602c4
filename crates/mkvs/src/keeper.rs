//! Background maintenance of a matrix. Each group has a thread, its *keeper*. The keeper catches up
//! members that are behind, repairs pairs from another member, and rebuilds filters. A separate
//! thread finds devices that hang, and another one sends events to the owner. Neither waits for a
//! keeper, which may spend hours on a copy.
//!
//! Invariant A group has one keeper. Catch-up locks the sequencer while it holds a device's
//! processor (`catchup.rs`, `state_transfer.rs`). Choosing a leader waits for processors while it
//! holds the sequencer (`reelection.rs`). The two cannot deadlock, because one thread does both: a
//! group's copy, catch-up and re-election never run concurrently. A keeper that may hang in a
//! replaced member gets a successor. When the old keeper continues, it finds that this member
//! cannot join, and ends.

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
use crate::topology::Shape;

/// Maximum number of damaged keys queued for repair.
pub(crate) const DAMAGED_MAX: usize = 4096;
/// Time between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_millis(50);
/// Time to wait after a failure before the next attempt.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// State shared by the keepers.
#[derive(Default)]
pub(crate) struct Keeper {
    stops: AtomicBool,
    sleep: Mutex<()>,
    /// For each device with queued commands: its progress counter, and when that value was first
    /// seen.
    watched: Mutex<HashMap<u64, (u64, Instant)>>,
    wake: Condvar,
    /// Held during a round if there are no threads.
    pub(crate) inline_round: Mutex<()>,
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

    /// Sleeps until the next round, or until the threads must end.
    fn sleep_round(&self) {
        let sleep = lock(&self.sleep);
        let awake = self
            .wake
            .wait_timeout_while(sleep, ROUND_INTERVAL, |()| !self.stops())
            .unwrap_or_else(PoisonError::into_inner);
        drop(awake);
    }

    /// The thread that finds devices that hang.
    pub(crate) fn watch_all(&self, shape: &Shape) {
        while !self.stops() {
            shape.groups().iter().for_each(|group| self.watch(group));
            self.sleep_round();
        }
    }

    /// The thread that sends events to the owner.
    pub(crate) fn send_events(&self, shape: &Shape, relay: &Relay) {
        loop {
            let is_last = self.stops();
            queue_failure_events(&shape.groups(), relay);
            relay.deliver();
            if is_last {
                return;
            }
            self.sleep_round();
        }
    }

    /// The thread of the group's keeper with this number.
    pub(crate) fn work(&self, group: &Group, number: u64) {
        let mut not_before = Instant::now();
        while !self.stops() && !group.stops.load(Ordering::Acquire) && group.is_keeper(number) {
            if Instant::now() >= not_before && !self.run_round(group, number) {
                not_before = Instant::now() + RETRY_DELAY;
            }
            self.sleep_round();
        }
    }

    /// Fails devices that hang: their queue is not empty, and they make no progress for the
    /// operation timeout.
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
                device.fail(group.late_failure());
            }
        }
    }

    /// Runs one round of the group's keeper `number`. Returns false if something failed. Copies
    /// come last, because they may run for hours.
    pub(crate) fn run_round(&self, group: &Group, number: u64) -> bool {
        let mut is_well = true;
        group.recall();
        if group.sole().is_none() && group.active().is_empty() && !self.stops() {
            is_well &= group.reelect_leader().unwrap_or(false);
        }
        let mut copies = Vec::new();
        for device in group.devices() {
            if !self.stops() && group.begin_catch_up(number, &device) {
                match group.catch_up(&device) {
                    Ok(CaughtUp::Active) => {}
                    Ok(CaughtUp::LacksMore) => copies.push(device),
                    Ok(CaughtUp::Later) | Err(_) => is_well = false,
                }
            }
        }
        if !group.end_catch_up(number) {
            return false;
        }
        is_well &= group.repair_all() & group.resolve_in_doubt_writes();
        if group.needs_filter() && !self.stops() {
            is_well &= group.build_filter(group.seed, &|| self.stops()).is_ok();
        }
        for device in copies {
            // During another copy this device may have come back and fallen behind again: its state
            // is checked again.
            is_well &= device.state() != MemberState::Behind
                || match group.catch_up(&device) {
                    Ok(CaughtUp::Active) => true,
                    Ok(CaughtUp::LacksMore) if self.stops() => false,
                    Ok(CaughtUp::LacksMore) => {
                        let mut maintenance = CopyMaintenance::new(group, &device);
                        group.copy(&device, &mut || maintenance.run_if_due()).unwrap_or(false)
                    }
                    Ok(CaughtUp::Later) | Err(_) => false,
                };
        }
        is_well
    }
}

/// Queues an event for each device that has failed.
fn queue_failure_events(groups: &[Arc<Group>], relay: &Relay) {
    for group in groups {
        for device in group.devices() {
            if let Some((is_late, cause)) = device.take_failure_report() {
                relay.push(Event::DeviceFailed { group: group.index, device: device.index, is_late, cause });
            }
        }
    }
}

/// The group's maintenance between two pairs of a running copy.
struct CopyMaintenance<'a> {
    group: &'a Group,
    /// The member that is being copied.
    copied: &'a Device,
    not_before: Instant,
}

impl<'a> CopyMaintenance<'a> {
    fn new(group: &'a Group, copied: &'a Device) -> Self {
        Self { group, copied, not_before: Instant::now() + ROUND_INTERVAL }
    }

    /// Catches up other members from logs and repairs damaged pairs, if due. Failures are retried.
    fn run_if_due(&mut self) {
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
        self.not_before = Instant::now() + if is_well { ROUND_INTERVAL } else { RETRY_DELAY };
    }
}

impl Group {
    /// Returns whether `number` is still the group's keeper.
    fn is_keeper(&self, number: u64) -> bool {
        lock(&self.keeper).number == number
    }

    /// Returns whether the keeper `number` is to catch up a member. The member is recorded before,
    /// in case the keeper hangs in it. A replacement takes the member out of use before it reads
    /// the record.
    fn begin_catch_up(&self, number: u64, device: &Device) -> bool {
        let mut keeper = lock(&self.keeper);
        let turns = keeper.number == number && device.state() == MemberState::Behind;
        if turns {
            keeper.member = Some(device.id);
        }
        turns
    }

    /// Records that the keeper `number` catches up no member. Returns false if the group has
    /// another keeper by now.
    fn end_catch_up(&self, number: u64) -> bool {
        let mut keeper = lock(&self.keeper);
        if keeper.number == number {
            keeper.member = None;
        }
        keeper.number == number
    }

    /// Lets members catch up that failed for being late and answer again.
    fn recall(&self) {
        if self.sole().is_none() && !self.stops.load(Ordering::Acquire) {
            self.devices().iter().for_each(|device| device.recall(self.options.timeout));
        }
    }

    /// Repairs keys that a member could not read. Returns false if something failed. A key that no
    /// member can read is left; its reads report the damage.
    fn repair_all(&self) -> bool {
        let mut is_well = true;
        let damaged = std::mem::take(&mut *lock(&self.damaged));
        // With doubts, another member's pair may be older.
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

    /// Copies another member's pair of `key` to members that cannot read it.
    ///
    /// # Errors
    /// Errors of the devices.
    pub(crate) fn repair(&self, key: &[u8], hash: KeyHash) -> Result<()> {
        let stripe = self.stripes.lock_exclusive(hash);
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

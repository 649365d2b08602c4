//! The competition of a group's devices for a read (MKVS, Micromachines 2019, section 3.3): who is asked, and whose answer counts.
//!
//! Invariants
//! 1. The caller holds the key's stripe, shared: no write of its key is under way. A member may answer that has applied the stripe's last operation, or that gets the read
//!    behind it in its queue: so whoever answers first says what was acknowledged last.
//! 2. An error answers only where no member has anything better. What one cannot read and another can is put right behind (`keeper.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result, Store};

use crate::command::{Command, ReadOp};
use crate::device::Device;
use crate::group::Group;
use crate::options::Reads;
use crate::stripes::Stripe;
use crate::{lock, read};

/// Reads between two looks at how often a second device was asked.
const PER_CENT: u64 = 100;

impl Group {
    /// Active members whose stores have all of `stripe`, in an order that begins with another one for each key.
    fn able(&self, stripe: &Stripe, spread: usize) -> Vec<Arc<Device>> {
        let members = read(&self.members);
        let count = members.len();
        let able = (0..count).map(|at| &members[(at + spread) % count]);
        able.filter(|device| device.is_active() && device.applied() >= stripe.last).cloned().collect()
    }

    /// Asks one store after the other, on this thread, until one answers. For what is asked seldom, and under a stripe that is held exclusively.
    ///
    /// # Errors
    /// The first store's; [`Error::TooFewDevices`].
    pub(crate) fn ask<T>(
        &self,
        stripe: &Stripe,
        key: &[u8],
        mut ask: impl FnMut(&dyn Store) -> Result<T>,
    ) -> Result<T> {
        if let Some(store) = self.sole() {
            return ask(store);
        }
        self.check_decided(stripe, key)?;
        let mut first = None;
        for device in self.able(stripe, key.len()) {
            let Some(answer) = device.ask(&mut ask) else { continue };
            match answer {
                Ok(answer) => {
                    if matches!(first, Some(Error::Corrupt { .. })) {
                        self.note_damage(key);
                    }
                    return Ok(answer);
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(Error::TooFewDevices { group: self.index, live: 0, needed: 1 }))
    }

    /// The value of `key`, by whoever is to be asked.
    ///
    /// # Errors
    /// The devices'; [`Error::TooFewDevices`].
    #[inline]
    pub(crate) fn fetch(&self, stripe: &Stripe, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        match self.sole() {
            Some(store) => store.get_into(key, value),
            None => self.compete(stripe, key, value),
        }
    }

    fn compete(&self, stripe: &Stripe, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.check_decided(stripe, key)?;
        let reads = self.counts.reads.fetch_add(1, Ordering::Relaxed);
        if let Some(device) = self.idle(stripe, reads as usize)
            && let Some(answer) = device.ask(|store| store.get_into(key, value))
        {
            return match answer {
                Ok(is_there) => Ok(is_there),
                Err(error) => self.ask_others(stripe, key, value, &error),
            };
        }
        let mut members = self.active();
        members.sort_by_key(|device| device.depth());
        let op = Arc::new(ReadOp::new(key));
        let begun = Instant::now();
        let answer = match self.options.reads {
            Reads::Single => self.ask_queued(&op, &mut members.iter(), 1, None),
            Reads::RaceAll => self.ask_queued(&op, &mut members.iter(), usize::MAX, None),
            Reads::Hedged => self.hedge(&op, &members, begun, reads),
        };
        self.latency.note(begun.elapsed());
        if op.met_damage() {
            self.note_damage(key);
        }
        match answer {
            Some(answer) => match answer.is_there {
                Ok(is_there) => {
                    value.clear();
                    value.extend_from_slice(&answer.value);
                    Ok(is_there)
                }
                Err(error) => self.ask_others(stripe, key, value, &error),
            },
            None => self.ask(stripe, key, |store| store.get_into(key, value)),
        }
    }

    /// Asks every member that may answer, when one could not.
    fn ask_others(&self, stripe: &Stripe, key: &[u8], value: &mut Vec<u8>, error: &Error) -> Result<bool> {
        let is_there = self.ask(stripe, key, |store| store.get_into(key, value))?;
        if matches!(error, Error::Corrupt { .. }) {
            self.note_damage(key);
        }
        Ok(is_there)
    }

    /// A member whose store this thread may read: with nothing in its queue, and everything of the stripe.
    fn idle(&self, stripe: &Stripe, spread: usize) -> Option<Arc<Device>> {
        if self.options.reads == Reads::RaceAll {
            return None;
        }
        let members = read(&self.members);
        let count = members.len();
        let is_idle = |device: &Device| {
            device.is_inline() && device.is_active() && device.depth() == 0 && device.applied() >= stripe.last
        };
        (0..count).map(|at| &members[(at + spread) % count]).find(|device| is_idle(device)).cloned()
    }

    /// Queues the read at `most` more of `members`, and waits.
    fn ask_queued<'a>(
        &self,
        op: &Arc<ReadOp>,
        members: &mut impl Iterator<Item = &'a Arc<Device>>,
        most: usize,
        until: Option<Instant>,
    ) -> Option<crate::command::Answer> {
        let mut given = Vec::new();
        for device in members {
            op.open();
            if device.push(Command::Read(Arc::clone(op))) {
                given.push(device);
            } else {
                op.give_up();
            }
            if given.len() == most {
                break;
            }
        }
        given.iter().for_each(|device| device.kick());
        op.wait(until)
    }

    /// The shortest queue first; another one where that takes longer than 95 of 100 reads, unless too many were asked twice already.
    fn hedge(
        &self,
        op: &Arc<ReadOp>,
        members: &[Arc<Device>],
        begun: Instant,
        reads: u64,
    ) -> Option<crate::command::Answer> {
        let mut members = members.iter();
        let patience = self.latency.p95();
        let first = self.ask_queued(op, &mut members, 1, Some(begun + patience));
        if first.is_some() || !op.is_open() {
            return first;
        }
        let hedged = self.counts.hedged.load(Ordering::Relaxed);
        let is_allowed = hedged * PER_CENT < (reads + PER_CENT) * u64::from(self.options.hedge_percent);
        if !is_allowed || members.len() == 0 {
            return self.wait_on(op);
        }
        self.counts.hedged.fetch_add(1, Ordering::Relaxed);
        let answer = self.ask_queued(op, &mut members, 1, Some(begun + self.options.timeout));
        if answer.is_some() && begun.elapsed() < 4 * patience {
            self.counts.hedges_won.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    fn wait_on(&self, op: &Arc<ReadOp>) -> Option<crate::command::Answer> {
        op.wait(Some(Instant::now() + self.options.timeout.max(Duration::from_millis(1))))
    }

    /// A member cannot read this key, and another can.
    pub(crate) fn note_damage(&self, key: &[u8]) {
        let mut damaged = lock(&self.damaged);
        if damaged.len() < crate::keeper::DAMAGED_MAX {
            damaged.push(key.to_vec());
        }
    }
}

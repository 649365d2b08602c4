//! Scans over all groups: one member of each, merged in the order of keys.
//!
//! The cut: what was given a number in any group before the scan began is in it, since each member that is asked has applied that much. Where the members' stores
//! have snapshots, each shows one moment; else it shows committed pairs while writers go on, as its engine says.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lodestore_contract::{Direction, Entry, Error, Result, Scan, ScanRange, Store};

use crate::group::Group;

impl Group {
    /// The store of a member that has everything up to `cut`.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`].
    pub(crate) fn store_at(&self, cut: u64) -> Result<Arc<dyn Store>> {
        if self.sole().is_some() {
            return Ok(Arc::clone(self.devices()[0].store()));
        }
        let begun = Instant::now();
        loop {
            let active = self.active();
            if let Some(device) = active.iter().find(|device| device.is_active() && device.applied() >= cut) {
                return Ok(Arc::clone(device.store()));
            }
            if active.is_empty() || begun.elapsed() > self.options.timeout {
                return Err(Error::TooFewDevices { group: self.index, live: active.len(), needed: 1 });
            }
            // What is queued is done in a moment, by its processor or by this thread.
            active.iter().for_each(|device| device.kick());
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

/// The groups' stores at a cut: everything that was given a number before this call.
///
/// # Errors
/// [`Error::TooFewDevices`].
pub(crate) fn stores(groups: &[Arc<Group>]) -> Result<Vec<Arc<dyn Store>>> {
    let cuts: Vec<u64> = groups.iter().map(|group| group.last()).collect();
    groups.iter().zip(cuts).map(|(group, cut)| group.store_at(cut)).collect()
}

/// Walks merged in the order of their keys.
struct Merge {
    walks: Vec<(Option<Result<Entry>>, Scan)>,
    direction: Direction,
    left: usize,
    is_over: bool,
}

impl Iterator for Merge {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.left == 0 || self.is_over {
            return None;
        }
        let is_before = |entry: &Entry, other: &Entry| {
            let wanted = if self.direction == Direction::Forward { Ordering::Less } else { Ordering::Greater };
            entry.key.cmp(&other.key) == wanted
        };
        let mut best: Option<usize> = None;
        for (at, (head, _)) in self.walks.iter().enumerate() {
            best = match (head, best.map(|best| &self.walks[best].0)) {
                (None, _) => best,
                // An error comes out at once, and ends the walk.
                (Some(Err(_)), _) => Some(at),
                (Some(Ok(_)), Some(Some(Err(_)))) => best,
                (Some(Ok(entry)), Some(Some(Ok(other)))) if !is_before(entry, other) => best,
                (Some(Ok(_)), _) => Some(at),
            };
        }
        let (head, walk) = &mut self.walks[best?];
        let next = walk.next();
        let entry = std::mem::replace(head, next)?;
        self.left -= 1;
        self.is_over = entry.is_err();
        Some(entry)
    }
}

/// An owned walk over `range` in all of these stores.
///
/// # Errors
/// The stores'.
pub(crate) fn merged(stores: &[Arc<dyn Store>], range: &ScanRange) -> Result<Scan> {
    let (direction, left) = (range.direction, range.limit);
    if let [store] = stores {
        return store.scan(range);
    }
    let mut walks = Vec::with_capacity(stores.len());
    for store in stores {
        let mut walk = store.scan(range)?;
        walks.push((walk.next(), walk));
    }
    Ok(Box::new(Merge { walks, direction, left, is_over: false }))
}

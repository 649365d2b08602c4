//! The groups of a matrix, the routing of keys to groups, and the move of keys to an added group.
//!
//! An added group receives one key in `groups + 1` (`route.rs`). Keys move in the background, one
//! at a time. A write of a key that has not moved moves it first. The new group therefore has the
//! newest pair, and a read that finds nothing there looks in the old one.
//!
//! To move a key, with its stripes of both groups held: it is put into its new group, durably, then
//! removed from the old one. After a crash in between, both groups have it with the same value,
//! because a write first removes it from the old one. The new group's pair counts, and the old one
//! is removed when the key is next moved.
//!
//! Invariants
//! 1. `shape` is checked again after the stripes are acquired; a caller with an older shape starts
//!    over. The walk over the old groups starts after all holders of the former shape have released
//!    their stripes. No later write adds a moving key to the old groups.
//! 2. Stripes of two groups are acquired in the order of the groups: the new one is the last.
//! 3. A walk over all groups shares `gate` for each page. Moving a key holds it exclusively,
//!    together with the key's stripes. A page therefore shows each key once. The holder of the gate
//!    waits for no stripe and runs no callback of a caller.
//! 4. The move is complete when every key of the old groups has been seen. While an old group has
//!    pairs that no walk shows or no device can read, reads of keys missing in the new group query
//!    it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use lodestore_contract::copy::Changes;
use lodestore_contract::{Error, Expiry, Lifetime, Result};

use crate::command::{Found, Query};
use crate::group::Group;
use crate::host::Host;
use crate::layout::Matrix;
use crate::operation::Mutation;
use crate::planted;
use crate::rate_limit::RateLimit;
use crate::route::KeyHash;
use crate::stripes::{ExclusiveStripe, Stripe};
use crate::write;

/// The groups, and how many of them shared the keys before the newest was added.
pub(crate) struct Shape {
    groups: [OnceLock<Arc<Group>>; Matrix::GROUPS_MAX],
    /// The number of groups in the lower 32 bits, the number of groups with all their keys
    /// (settled) above.
    shape: AtomicU64,
    pub(crate) gate: RwLock<()>,
    /// Keys moved since the open (`moved`), and their bytes with the values' (`moved_bytes`).
    pub(crate) moved: AtomicU64,
    moved_bytes: AtomicU64,
    /// Keys written since a copy of the matrix began.
    pub(crate) changes: Changes,
    /// The error of the last walk that should have moved all keys.
    pub(crate) move_error: Mutex<Option<Error>>,
}

/// A key's group and stripe, shared with other readers; and its old group and stripe, if it may not
/// have moved.
pub(crate) struct Shared<'a> {
    pub(crate) group: &'a Group,
    pub(crate) hash: KeyHash,
    pub(crate) stripe: RwLockReadGuard<'a, Stripe>,
    pub(crate) old: Option<(&'a Group, RwLockReadGuard<'a, Stripe>)>,
}

/// A key's group and stripe, locked exclusively. The key is in this group, if it exists; a pair
/// that no device can read stays in the old one.
pub(crate) struct Owned<'a> {
    pub(crate) group: &'a Group,
    pub(crate) hash: KeyHash,
    pub(crate) stripe: ExclusiveStripe<'a>,
    /// The old group of the key, if there is one.
    old: Option<(&'a Group, ExclusiveStripe<'a>)>,
    /// Why the key cannot be read in the old group. A write replaces this pair.
    unread: Option<String>,
}

impl Owned<'_> {
    /// Returns whether there is a pair that no device can read.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// Fails if no device can read the pair.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn check_read(&self) -> Result<()> {
        let why = |why: &String| Err(Error::corrupt(format!("group {}", self.group.index), why.clone()));
        self.unread.as_ref().map_or(Ok(()), why)
    }

    /// Fails if the key cannot be read, and its old group may lack it: it may not exist.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn check_unread_exists(&self) -> Result<()> {
        match &self.old {
            Some((group, _)) if group.has_doubtful_votes() => self.check_read(),
            _ => Ok(()),
        }
    }

    /// Removes the unreadable pair after a write of the key. Returns whether there was one.
    ///
    /// # Errors
    /// Errors of the devices.
    pub(crate) fn forget_unread(&mut self, key: &[u8]) -> Result<bool> {
        let Some((group, stripe)) = self.old.as_mut().filter(|_| self.unread.is_some()) else { return Ok(false) };
        group.delete_unread(stripe, key, self.hash)?;
        self.unread = None;
        Ok(true)
    }

    /// Returns the value of the key, and the expiry that a write with `lifetime` gives it. All
    /// devices get this expiry: none resolves a lifetime with its own clock.
    pub(crate) fn pair_for(&self, key: &[u8], lifetime: Lifetime) -> Result<(Option<Vec<u8>>, Option<Expiry>)> {
        self.check_read()?;
        if !self.stripe.may_have(self.hash) {
            return Ok((None, lifetime.resolve(None)));
        }
        if lifetime != Lifetime::Keep {
            return Ok((self.group.get(&self.stripe, key)?, lifetime.resolve(None)));
        }
        let pair = self.group.pair(&self.stripe, key)?;
        Ok(pair.map_or((None, None), |(value, expiry)| (Some(value), expiry)))
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        self.check_read()?;
        Ok(self.stripe.may_have(self.hash) && self.group.contains(&self.stripe, key)?)
    }

    /// Returns the expiry that an update with `lifetime` gives the key; the outer `None` if the
    /// key is absent. As [`Self::pair_for`].
    pub(crate) fn expiry_for(&self, key: &[u8], lifetime: Lifetime) -> Result<Option<Option<Expiry>>> {
        if lifetime != Lifetime::Keep {
            return Ok(self.contains(key)?.then(|| lifetime.resolve(None)));
        }
        self.check_read()?;
        if !self.stripe.may_have(self.hash) {
            return Ok(None);
        }
        let found = self.group.find(&self.stripe, key, Query::Expiry, &mut Vec::new())?;
        Ok(found.is_present.then_some(found.expiry))
    }

    pub(crate) fn change(&mut self, key: &[u8], mutation: Mutation) -> Result<bool> {
        let was_present = self.group.change(&mut self.stripe, key, self.hash, mutation)?;
        Ok(self.forget_unread(key)? || was_present)
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<bool> {
        self.change(key, Mutation::Put { value: value.to_vec(), expiry })
    }
}

impl Shared<'_> {
    /// Queries the key in its group, then in the group that it may not have left yet.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], query: Query, value: &mut Vec<u8>) -> Result<Found> {
        let mut found = Found::default();
        if self.stripe.may_have(self.hash) {
            found = self.group.find(&self.stripe, key, query, value)?;
        }
        if let Some((group, stripe)) = &self.old
            && !found.is_present
            && stripe.may_have(self.hash)
        {
            found = group.find(stripe, key, query, value)?;
        }
        Ok(found)
    }
}

/// All stripes of all groups, locked exclusively.
pub(crate) struct HeldShape<'a> {
    shape: u64,
    held: Vec<(&'a Group, Vec<RwLockWriteGuard<'a, Stripe>>)>,
}

impl HeldShape<'_> {
    /// Returns the groups that may have a key, with its stripe in each. The key's own group comes
    /// first, then the group that the key may not have left yet.
    pub(crate) fn groups_of(&self, hash: KeyHash) -> impl Iterator<Item = (&Group, &Stripe)> {
        let (home, old) = Shape::route(self.shape, hash);
        std::iter::once(home).chain(old).map(move |index| {
            let (group, stripes) = &self.held[index];
            (*group, &*stripes[group.stripes.index_of(hash)])
        })
    }
}

const SETTLED_SHIFT: u32 = 32;

impl Shape {
    /// Creates the shape of these groups; the first `settled` shared all keys before.
    pub(crate) fn new(groups: Vec<Arc<Group>>, settled: usize) -> Self {
        let shape = (settled as u64) << SETTLED_SHIFT | groups.len() as u64;
        let mut groups = groups.into_iter();
        let slot = |_| groups.next().map_or_else(OnceLock::new, OnceLock::from);
        Self {
            groups: std::array::from_fn(slot),
            shape: AtomicU64::new(shape),
            gate: RwLock::new(()),
            moved: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            changes: Changes::default(),
            move_error: Mutex::default(),
        }
    }

    fn shape(&self) -> u64 {
        self.shape.load(Ordering::Acquire)
    }

    /// Returns the number of groups, and the number of groups that have all their keys.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let shape = self.shape();
        ((shape & u64::from(u32::MAX)) as usize, (shape >> SETTLED_SHIFT) as usize)
    }

    /// Returns whether keys are moving to a new group.
    pub(crate) fn is_moving(&self) -> bool {
        let (groups, settled) = self.counts();
        settled < groups
    }

    /// Returns all groups.
    pub(crate) fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.iter().filter_map(|group| group.get().cloned()).collect()
    }

    /// Returns an existing group.
    #[inline]
    fn group(&self, index: usize) -> &Group {
        match self.groups[index].get() {
            Some(group) => group,
            // A group is set before `shape` counts it.
            None => unreachable!("group {index} is counted and not there"),
        }
    }

    /// Adds a group without keys.
    pub(crate) fn add(&self, group: Arc<Group>) {
        let (groups, settled) = self.counts();
        debug_assert_eq!((groups, group.index), (settled, settled), "one group is added at a time");
        // No other thread adds one: the caller holds the matrix's `changes` lock.
        let _ = self.groups[groups].set(group);
        self.shape.store((settled as u64) << SETTLED_SHIFT | (groups as u64 + 1), Ordering::Release);
    }

    /// Records that all keys have moved to the newest group.
    pub(crate) fn mark_moved(&self) {
        let (groups, _) = self.counts();
        self.shape.store((groups as u64) << SETTLED_SHIFT | groups as u64, Ordering::Release);
    }

    /// Returns the group of a key in this shape, and its old group if they differ.
    #[inline]
    fn route(shape: u64, hash: KeyHash) -> (usize, Option<usize>) {
        let (groups, settled) = ((shape & u64::from(u32::MAX)) as usize, (shape >> SETTLED_SHIFT) as usize);
        let home = hash.group(groups);
        let old = if settled < groups { Some(hash.group(settled)).filter(|old| *old != home) } else { None };
        (home, old)
    }

    /// Acquires a key's stripes, shared, for a read.
    #[inline]
    pub(crate) fn lock_shared(&self, hash: KeyHash) -> Shared<'_> {
        loop {
            let shape = self.shape();
            let (home, old) = Self::route(shape, hash);
            let old = old.map(|old| (self.group(old), self.group(old).stripes.lock_shared(hash)));
            let group = self.group(home);
            let stripe = group.stripes.lock_shared(hash);
            if self.shape() == shape {
                return Shared { group, hash, stripe, old };
            }
        }
    }

    /// Acquires a key's stripes exclusively, and moves the key to its group.
    ///
    /// # Errors
    /// Errors of the devices.
    pub(crate) fn lock_exclusive(&self, key: &[u8], hash: KeyHash) -> Result<Owned<'_>> {
        loop {
            let shape = self.shape();
            let (home, old) = Self::route(shape, hash);
            let mut old = old.map(|old| (self.group(old), self.group(old).stripes.lock_exclusive(hash)));
            let group = self.group(home);
            let mut stripe = group.stripes.lock_exclusive(hash);
            if self.shape() != shape {
                continue;
            }
            // A move records its key too: a copy may find the key in neither group.
            if self.changes.is_active() {
                self.changes.record(key);
            }
            let unread = match &mut old {
                Some((from, old_stripe)) => self.move_key(key, hash, (from, old_stripe), (group, &mut stripe))?,
                None => None,
            };
            return Ok(Owned { group, hash, stripe, old, unread });
        }
    }

    /// Acquires all stripes of all groups: no write and no move is in progress.
    pub(crate) fn hold_all(&self) -> HeldShape<'_> {
        loop {
            let shape = self.shape();
            let (groups, _) = self.counts();
            let held: Vec<_> =
                (0..groups).map(|index| (self.group(index), self.group(index).stripes.lock_all())).collect();
            // A group added later receives no key: its keys are under held stripes.
            if self.shape() == shape {
                return HeldShape { shape, held };
            }
        }
    }

    /// Moves a key from its old group, if it is there. Returns a reason if no device can read it.
    fn move_key(
        &self,
        key: &[u8],
        hash: KeyHash,
        from: (&Group, &mut Stripe),
        to: (&Group, &mut Stripe),
    ) -> Result<Option<String>> {
        if !from.1.may_have(hash) {
            return Ok(None);
        }
        let _gate = write(&self.gate);
        let pair = match from.0.pair(from.1, key) {
            Err(error @ Error::Corrupt { .. }) => Err(error.to_string()),
            pair => match pair? {
                None => return Ok(None),
                Some(pair) => Ok(pair),
            },
        };
        if from.0.options.planted.has_fault(planted::MOVED_DELETED_FIRST) {
            from.0.change(from.1, key, hash, Mutation::Delete)?;
        }
        let is_read = pair.is_ok();
        if !to.1.may_have(hash) || !to.0.contains(to.1, key)? {
            let (value, expiry) = match pair {
                Ok(pair) => pair,
                Err(why) => return Ok(Some(why)),
            };
            let bytes = key.len() + value.len();
            to.0.change(to.1, key, hash, Mutation::Put { value, expiry })?;
            self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
        if is_read {
            from.0.change(from.1, key, hash, Mutation::Delete)?;
        } else {
            from.0.delete_unread(from.1, key, hash)?;
        }
        Ok(None)
    }

    /// Moves all keys of the newest group, and records the end in the description. Returns false if
    /// it was stopped.
    ///
    /// # Errors
    /// Errors of the devices; errors of the host's store; [`Error::Corrupt`] if all readable keys
    /// were moved and others are left.
    pub(crate) fn rebalance(&self, host: &Host, seed: u64, rate: u64, stops: &dyn Fn() -> bool) -> Result<bool> {
        let (groups, settled) = self.counts();
        if groups == settled {
            return Ok(true);
        }
        // With doubts, the move would count as complete although a salvage cannot read some keys to
        // be moved.
        if self.groups().iter().any(|group| group.has_doubts()) {
            return Ok(false);
        }
        let mut limit = RateLimit::new(rate);
        let (mut stopped, mut unread) = (false, None);
        for group in self.groups().into_iter().take(settled) {
            // After this, all holders of the former shape have released their stripes.
            let stripes = group.stripes.lock_all();
            let last = group.last();
            drop(stripes);
            let walked = group.each_key_of(&group.stores_at(last)?, &mut |key| {
                stopped |= stops();
                let hash = KeyHash::of(key, seed);
                if stopped {
                    return Err(Error::Closed);
                }
                if hash.group(groups) == group.index {
                    return Ok(());
                }
                if self.changes.is_crowded() {
                    self.changes.wait_for_copier();
                }
                let before = self.moved_bytes.load(Ordering::Relaxed);
                match self.lock_exclusive(key, hash).and_then(|owned| owned.check_read()) {
                    Err(error @ Error::Corrupt { .. }) => unread = unread.take().or(Some(error)),
                    moved_key => moved_key?,
                }
                let bytes = self.moved_bytes.load(Ordering::Relaxed).wrapping_sub(before);
                limit.throttle(bytes as usize, &mut || stops());
                Ok(())
            });
            if stopped {
                return Ok(false);
            }
            unread = unread.or(walked?);
        }
        if let Some(error) = unread {
            return Err(error);
        }
        host.change(|matrix| matrix.settled_groups = groups as u32)?;
        self.mark_moved();
        Ok(true)
    }
}

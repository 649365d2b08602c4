//! Which groups there are, which of them has a key, and keys on their way to a group that was added.
//!
//! A group that is added gets one key of each `groups + 1` (`route.rs`). They move behind, one at a time, and whoever writes such a key moves it first; so the new
//! group has the newest, and who finds nothing there looks in the old one.
//!
//! Moving a key, with its stripes of both groups held: it is put into its new group, durably, then removed from the old one. A crash between leaves it in both, with the
//! same value, since it is changed only when the old one has it no more; then the new group's counts, and the old one's is removed when the key is next moved.
//!
//! Invariants
//! 1. `shape` is looked at again when the stripes are held: who took them by an older shape starts over. So when the walk over the old groups begins, behind all who held
//!    stripes when the shape changed, nobody adds a moving key to them.
//! 2. Stripes of two groups are taken in the order of the groups: the new one is the last.
//! 3. A walk over all groups holds `gate` for each page, shared; who moves a key holds it alone, with the key's stripes. So a page shows each key once; and nobody waits for a stripe
//!    who holds the gate, nor calls what a caller gave him.
//! 4. Keys are called settled when all were seen that the old groups have: while one has pairs that no walk shows, or that nobody can read, it is asked for what the new one has not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use lodestore_contract::copy::Changes;
use lodestore_contract::{Error, Result};

use crate::fill::Pace;
use crate::group::Group;
use crate::host::Host;
use crate::layout::Matrix;
use crate::operation::Mutation;
use crate::planted::Fault;
use crate::route::KeyHash;
use crate::stripes::{Alone, Stripe};
use crate::write;

/// The groups, and how many of them keys were spread over before the newest.
pub(crate) struct Shape {
    groups: [OnceLock<Arc<Group>>; Matrix::GROUPS_MAX],
    /// Groups, and settled ones above them.
    shape: AtomicU64,
    pub(crate) gate: RwLock<()>,
    /// Keys that were moved since the open, and their bytes with their values'.
    pub(crate) moved: AtomicU64,
    moved_bytes: AtomicU64,
    /// Keys that were written since a copy of the matrix began.
    pub(crate) changes: Changes,
    /// What the last walk that was to move all keys ended with, where it did not.
    pub(crate) hindrance: Mutex<Option<Error>>,
}

/// A key's group and stripe, shared with others who read; and those that it is on its way from.
pub(crate) struct Shared<'a> {
    pub(crate) group: &'a Group,
    pub(crate) hash: KeyHash,
    pub(crate) stripe: RwLockReadGuard<'a, Stripe>,
    pub(crate) old: Option<(&'a Group, RwLockReadGuard<'a, Stripe>)>,
}

/// A key's group and stripe, held alone. The key is there, if anywhere; but for what nobody can read, which stays where it is.
pub(crate) struct Owned<'a> {
    pub(crate) group: &'a Group,
    pub(crate) hash: KeyHash,
    pub(crate) stripe: Alone<'a>,
    /// The group that it was on its way from.
    old: Option<(&'a Group, Alone<'a>)>,
    /// Why it cannot be read there. What is written then takes its place.
    unread: Option<String>,
}

impl Owned<'_> {
    /// Whether there is a pair that nobody can read.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// Refuses to say what nobody can read.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn check_read(&self) -> Result<()> {
        let why = |why: &String| Err(Error::corrupt(format!("group {}", self.group.index), why.clone()));
        self.unread.as_ref().map_or(Ok(()), why)
    }

    /// The key was written: a pair that nobody can read is no more. Whether there was one.
    ///
    /// # Errors
    /// The devices'.
    pub(crate) fn forget_unread(&mut self, key: &[u8]) -> Result<bool> {
        let Some((group, stripe)) = self.old.as_mut().filter(|_| self.unread.is_some()) else { return Ok(false) };
        group.change(stripe, key, self.hash, Mutation::Delete)?;
        self.unread = None;
        Ok(true)
    }
}

/// All stripes of all groups, held alone.
pub(crate) struct HeldShape<'a> {
    shape: u64,
    held: Vec<(&'a Group, Vec<RwLockWriteGuard<'a, Stripe>>)>,
}

impl HeldShape<'_> {
    /// Returns the groups that may have a key, with its stripe in each. The group that the key
    /// belongs to comes first. The second one is the group that the key may not have left yet.
    pub(crate) fn places(&self, hash: KeyHash) -> impl Iterator<Item = (&Group, &Stripe)> {
        let (home, old) = Shape::route(self.shape, hash);
        std::iter::once(home).chain(old).map(move |index| {
            let (group, stripes) = &self.held[index];
            (*group, &*stripes[group.stripes.place(hash)])
        })
    }
}

const SETTLED: u32 = 32;

impl Shape {
    /// These groups, of which the first `settled` had all keys before.
    pub(crate) fn new(groups: Vec<Arc<Group>>, settled: usize) -> Self {
        let shape = (settled as u64) << SETTLED | groups.len() as u64;
        let mut groups = groups.into_iter();
        let slot = |_| groups.next().map_or_else(OnceLock::new, OnceLock::from);
        Self {
            groups: std::array::from_fn(slot),
            shape: AtomicU64::new(shape),
            gate: RwLock::new(()),
            moved: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            changes: Changes::default(),
            hindrance: Mutex::default(),
        }
    }

    fn shape(&self) -> u64 {
        self.shape.load(Ordering::Acquire)
    }

    /// Groups, and settled ones among them.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let shape = self.shape();
        ((shape & u64::from(u32::MAX)) as usize, (shape >> SETTLED) as usize)
    }

    /// Whether keys are on their way to a new group.
    pub(crate) fn is_moving(&self) -> bool {
        let (groups, settled) = self.counts();
        settled < groups
    }

    /// All groups.
    pub(crate) fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.iter().filter_map(|group| group.get().cloned()).collect()
    }

    /// A group that there is.
    #[inline]
    fn group(&self, index: usize) -> &Group {
        match self.groups[index].get() {
            Some(group) => group,
            // The shape counts groups that were set before it.
            None => unreachable!("group {index} is counted and not there"),
        }
    }

    /// A group is there, and no key is yet.
    pub(crate) fn add(&self, group: Arc<Group>) {
        let (groups, settled) = self.counts();
        debug_assert_eq!((groups, group.index), (settled, settled), "one group is added at a time");
        // Nobody else adds one: the owner of the matrix holds the lock for it.
        let _ = self.groups[groups].set(group);
        self.shape.store((settled as u64) << SETTLED | (groups as u64 + 1), Ordering::Release);
    }

    /// All keys have come to the newest group.
    pub(crate) fn settle(&self) {
        let (groups, _) = self.counts();
        self.shape.store((groups as u64) << SETTLED | groups as u64, Ordering::Release);
    }

    /// The group of a key in this shape, and the one that it is on its way from.
    #[inline]
    fn route(shape: u64, hash: KeyHash) -> (usize, Option<usize>) {
        let (groups, settled) = ((shape & u64::from(u32::MAX)) as usize, (shape >> SETTLED) as usize);
        let home = hash.group(groups);
        let old = if settled < groups { Some(hash.group(settled)).filter(|old| *old != home) } else { None };
        (home, old)
    }

    /// Takes a key's stripes to read.
    #[inline]
    pub(crate) fn share(&self, hash: KeyHash) -> Shared<'_> {
        loop {
            let shape = self.shape();
            let (home, old) = Self::route(shape, hash);
            let old = old.map(|old| (self.group(old), self.group(old).stripes.share(hash)));
            let group = self.group(home);
            let stripe = group.stripes.share(hash);
            if self.shape() == shape {
                return Shared { group, hash, stripe, old };
            }
        }
    }

    /// Takes a key's stripes alone, and brings the key to its group.
    ///
    /// # Errors
    /// The devices'.
    pub(crate) fn own(&self, key: &[u8], hash: KeyHash) -> Result<Owned<'_>> {
        loop {
            let shape = self.shape();
            let (home, old) = Self::route(shape, hash);
            let mut old = old.map(|old| (self.group(old), self.group(old).stripes.own(hash)));
            let group = self.group(home);
            let mut stripe = group.stripes.own(hash);
            if self.shape() != shape {
                continue;
            }
            // A move records its key too: a copy may meet the key in neither group.
            if self.changes.is_active() {
                self.changes.record(key);
            }
            let unread = match &mut old {
                Some((from, theirs)) => self.bring(key, hash, (from, theirs), (group, &mut stripe))?,
                None => None,
            };
            return Ok(Owned { group, hash, stripe, old, unread });
        }
    }

    /// Acquires all stripes of all groups, so that no write and no move is under way. Returns the
    /// groups in their order, and the counts of groups and of settled groups.
    pub(crate) fn hold_all(&self) -> HeldShape<'_> {
        loop {
            let shape = self.shape();
            let (groups, _) = self.counts();
            let held: Vec<_> = (0..groups).map(|index| (self.group(index), self.group(index).stripes.all())).collect();
            // A group that is added from now on gets no key: its keys are under held stripes.
            if self.shape() == shape {
                return HeldShape { shape, held };
            }
        }
    }

    /// Moves a key, if it is in the group that it is on its way from; or says why nobody can read it.
    fn bring(
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
        if from.0.options.planted.is(Fault::MovedDeletedFirst) {
            from.0.change(from.1, key, hash, Mutation::Delete)?;
        }
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
        from.0.change(from.1, key, hash, Mutation::Delete).map(|_| None)
    }

    /// Moves all keys that belong to the newest group, and says so in the description. False where it was stopped.
    ///
    /// # Errors
    /// The devices'; the host's store's; [`Error::Corrupt`] where all that can be read has been moved, and there is more.
    pub(crate) fn rebalance(&self, host: &Host, seed: u64, rate: u64, stops: &dyn Fn() -> bool) -> Result<bool> {
        let (groups, settled) = self.counts();
        if groups == settled {
            return Ok(true);
        }
        // A group would count as settled though a salvage cannot read keys that are to be moved.
        if self.groups().iter().any(|group| group.has_doubts()) {
            return Ok(false);
        }
        let mut pace = Pace::new(rate);
        let (mut stopped, mut unread) = (false, None);
        for group in self.groups().into_iter().take(settled) {
            // Whoever took stripes by the old shape has given them back behind this.
            let stripes = group.stripes.all();
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
                match self.own(key, hash).and_then(|owned| owned.check_read()) {
                    Err(error @ Error::Corrupt { .. }) => unread = unread.take().or(Some(error)),
                    brought => brought?,
                }
                let bytes = self.moved_bytes.load(Ordering::Relaxed).wrapping_sub(before);
                pace.pass(bytes as usize, &mut || stops());
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
        self.settle();
        Ok(true)
    }
}

//! Copies of the whole matrix while it is written ([`lodestore_contract::copy`]).
//!
//! A write records its key under its stripe (`inner.rs`). A move to another group does the same
//! (`topology.rs`).
//!
//! * **Groups of several devices.** A write holds its stripe exclusively until it has ended. The
//!   copier shares the stripe while it reads a key.
//! * **Groups of one device.** Writers share stripes. Before the copier reads the keys that it
//!   collected, it acquires and releases each stripe once. Writes that recorded one of these keys
//!   have ended then. Later writes record it again.
//! * **The walk.** A page is read from a device that has applied all numbered operations. A key
//!   without concurrent writes has one value on every such device. Pages follow the order of keys
//!   and show no key twice. Devices without order are walked over by shares of keys, each key of a
//!   share once. A key that moves is recorded, therefore a page or a share may lack it.
//! * **In-doubt writes.** They are recorded by their writer, or when the recording begins. The copy
//!   fails if such a key is still in doubt when it is read ([`Error::TooFewDevices`]).
//! * **Damage.** The copy ends at a pair that no device of its group can read. Further ends are a
//!   group in which no device shows all pairs, and a group in which a salvage may have given up
//!   writes.

use std::collections::HashSet;
use std::ops::Bound;
use std::vec::IntoIter;

use lodestore_contract::copy::{Changes, FuzzySource};
use lodestore_contract::{Direction, Entry, Error, Options, Pair as Shown, Result, ScanRange};

use crate::command::Query;
use crate::group::Group;
use crate::inner::Inner;
use crate::route::KeyHash;
use crate::source::{Source, merge};
use crate::stripes::Stripe;
use crate::topology::{HeldShape, Shared};
use crate::walk::{PageContents, PageLimits, Shares, StoredValue, key_count};

/// Limits of one part of the walk, for each group.
const PART_LIMITS: PageLimits = PageLimits { pairs: 4096, bytes: 1 << 20, contents: PageContents::Pairs };
/// Options of the devices' pools. A matrix has them as its own options.
const POOL_OPTIONS: [&str; 2] = ["region", "chunk"];

/// Where a part of the walk begins.
#[derive(Default)]
pub(crate) enum Position {
    #[default]
    Begin,
    /// After this key.
    After(Vec<u8>),
    /// The keys of a share that are not shown yet.
    Share { shares: Shares, share: u64, keys: IntoIter<Vec<u8>> },
}

/// Stripes that the copier holds.
pub(crate) enum HeldStripes<'a> {
    Key(Shared<'a>),
    All(HeldShape<'a>),
}

/// Reads a key in the groups that may have it, first in the one that it belongs to. Filters are not
/// consulted.
fn find<'g>(groups: impl Iterator<Item = (&'g Group, &'g Stripe)>, key: &[u8]) -> Result<Option<Entry>> {
    for (group, stripe) in groups {
        let mut value = Vec::new();
        let found = group.find(stripe, key, Query::Pair, &mut value)?;
        if found.is_present {
            return Ok(Some(Entry::of_pair(Shown { key, value: &value, expiry: found.expiry })));
        }
    }
    Ok(None)
}

impl Inner {
    /// Refuses a matrix that may lack pairs. Waits for the recovery of its devices first.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; errors of the devices.
    pub(crate) fn check_copyable(&self) -> Result<()> {
        for (group, sources) in self.stores(&[])? {
            sources.iter().try_for_each(|source| source.store.wait_recovered())?;
            if group.has_doubts() {
                let what = "a salvage may lack acknowledged writes: verify the matrix, and export the readable pairs";
                return Err(Error::corrupt(format!("group {}", group.index), what));
            }
            if !sources.iter().any(Source::shows_all) {
                return Err(group.left_out_error());
            }
        }
        Ok(())
    }

    /// Shows the pairs after `from`, in key order. Returns where the next part begins.
    fn show_page(
        &self,
        from: Bound<Vec<u8>>,
        visit: &mut dyn FnMut(Shown<'_>) -> Result<()>,
    ) -> Result<Option<Position>> {
        let range = ScanRange { from, ..ScanRange::all() };
        let mut page = merge(self.pages(&range, &[], PART_LIMITS)?, Direction::Forward);
        if !page.damage.is_empty() {
            return Err(page.damage.swap_remove(0).1);
        }
        for (key, StoredValue { value, expiry }) in &page.pairs {
            visit(Shown { key, value, expiry: *expiry })?;
        }
        match page.pairs.pop() {
            Some((last, _)) if !page.is_last => Ok(Some(Position::After(last))),
            _ => self.check_copyable().map(|()| None),
        }
    }

    /// Collects the keys of a share. Returns `None` after the last share.
    fn share_position(&self, shares: Shares, share: u64) -> Result<Option<Position>> {
        if share == shares.count() {
            return self.check_copyable().map(|()| None);
        }
        let (mut found, mut damage) = (HashSet::new(), None);
        self.add_keys_of_share(shares, share, &mut found, &mut damage)?;
        match damage {
            Some(error) => Err(error),
            None => {
                Ok(Some(Position::Share { shares, share, keys: found.into_iter().collect::<Vec<_>>().into_iter() }))
            }
        }
    }
}

impl FuzzySource for Inner {
    type Position = Position;
    type Held<'a> = HeldStripes<'a>;

    fn changes(&self) -> &Changes {
        &self.shape.changes
    }

    fn pass_stripes(&self) -> Result<()> {
        self.check_open()?;
        for group in self.shape.groups() {
            group.stripes.lock_each(|stripe| {
                stripe.in_doubt.iter().for_each(|(key, _)| self.shape.changes.record(key));
            });
        }
        Ok(())
    }

    fn walk_part(&self, at: Position, visit: &mut dyn FnMut(Shown<'_>) -> Result<()>) -> Result<Option<Position>> {
        self.check_open()?;
        let (shares, share, mut keys) = match at {
            Position::Begin if self.can_scan() => return self.show_page(Bound::Unbounded, visit),
            Position::Begin => {
                let keys = self.stores_now()?.iter().map(|source| key_count(&*source.store)).sum();
                return self.share_position(Shares::new(keys), 0);
            }
            Position::After(key) => return self.show_page(Bound::Excluded(key), visit),
            Position::Share { shares, share, keys } => (shares, share, keys),
        };
        for key in keys.by_ref().take(PART_LIMITS.pairs) {
            if let Some(StoredValue { value, expiry }) = self.read_pair(&key)? {
                visit(Shown { key: &key, value: &value, expiry })?;
            }
        }
        if keys.len() == 0 {
            self.share_position(shares, share + 1)
        } else {
            Ok(Some(Position::Share { shares, share, keys }))
        }
    }

    fn wait_for_writers(&self) -> Result<()> {
        for group in self.shape.groups().iter().filter(|group| group.sole().is_some()) {
            group.stripes.lock_each(|_| {});
        }
        Ok(())
    }

    fn hold_key(&self, key: &[u8]) -> Result<HeldStripes<'_>> {
        let held = self.shape.lock_shared(KeyHash::of(key, self.seed));
        // A close waits for the stripes of calls in progress.
        self.check_open().map(|()| HeldStripes::Key(held))
    }

    fn hold_all(&self) -> Result<HeldStripes<'_>> {
        let held = self.shape.hold_all();
        self.check_open().map(|()| HeldStripes::All(held))
    }

    fn read_held(&self, held: &HeldStripes<'_>, key: &[u8]) -> Result<Option<Entry>> {
        match held {
            HeldStripes::Key(Shared { group, stripe, old, .. }) => {
                let old = old.as_ref().map(|(group, stripe)| (*group, &**stripe));
                find(std::iter::once((*group, &**stripe)).chain(old), key)
            }
            HeldStripes::All(held) => find(held.groups_of(KeyHash::of(key, self.seed)), key),
        }
    }
}

impl Inner {
    /// Returns the options that shape the matrix. Its directories are left out.
    pub(crate) fn creation_options(&self) -> Options {
        let (matrix, groups) = (self.host.matrix(), self.shape.groups());
        let mut options = Options::new();
        options.set("groups", groups.len().to_string());
        options.set("devices", groups[0].width.to_string());
        options.set("acks", matrix.acks.name());
        options.set("log-ops", matrix.log_ops.to_string());
        options.set("log-bytes", matrix.log_bytes.to_string());
        options.set("device-engine", matrix.engine);
        if let Some(device) = groups[0].devices().first() {
            for (name, value) in device.store().creation_options().iter() {
                let name = if POOL_OPTIONS.contains(&name) { name.to_owned() } else { format!("device.{name}") };
                options.set(&name, value);
            }
        }
        options
    }
}

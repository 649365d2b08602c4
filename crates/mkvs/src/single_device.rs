//! Writes to a group of one device: its store decides, and the filter is updated with it.
//!
//! The key's stripe is shared: the store orders the writes of a key. Counters are raised before a
//! key may exist, and lowered after it is removed, as often as the store reports. The order in
//! which callers receive the reports does not matter. The filter never counts too little.

use std::sync::atomic::Ordering;

use lodestore_contract::{Change, ChangeFn, Error, Expiry, Lifetime, Result, Store, Swap};

use crate::apply::{is_refusal, put_reporting_presence};
use crate::topology::Shared;

impl Shared<'_> {
    /// Returns the group's only store.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`] in a group of several devices, which the caller has excluded.
    pub(crate) fn store(&self) -> Result<&dyn Store> {
        self.group.sole().ok_or(Error::too_few_devices(self.group.index, 0, 1))
    }

    /// Adds the key with `add`, which returns whether the key was added.
    pub(crate) fn add_sole(&self, key: &[u8], add: impl FnOnce(&dyn Store) -> Result<bool>) -> Result<bool> {
        if !self.group.has_filter {
            return add(self.store()?);
        }
        self.group.raise(&self.stripe, key, self.hash);
        let added = add(self.store()?);
        match &added {
            Ok(true) => {}
            Err(error) if !is_refusal(error) => {
                self.group.counts.leaked.fetch_add(1, Ordering::Relaxed);
            }
            _ => self.group.lower(&self.stripe, key, self.hash),
        }
        added
    }

    /// Sets the value of the key.
    pub(crate) fn put_sole(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        if !self.group.has_filter {
            return self.store()?.put_expiring(key, value, expiry);
        }
        if expiry.is_some() {
            return self
                .add_sole(key, |store| {
                    put_reporting_presence(store, key, value, expiry, false).map(|presence| !presence)
                })
                .map(drop);
        }
        let mut is_new = !self.stripe.may_have(self.hash);
        loop {
            if !is_new && self.store()?.update(key, value, Lifetime::Forever)? {
                return Ok(());
            }
            if self.add_sole(key, |store| store.insert(key, value, Lifetime::Forever))? {
                return Ok(());
            }
            is_new = false;
        }
    }

    /// Changes the key by `change`, which reports whether the key existed before and exists after.
    fn change_sole(&self, key: &[u8], change: impl FnOnce(&mut (bool, bool)) -> Result<()>) -> Result<()> {
        if !self.group.has_filter {
            return change(&mut (false, false));
        }
        // The change may add the key: it is counted before, and corrected after.
        self.group.raise(&self.stripe, key, self.hash);
        let mut presence = (false, false);
        let changed = change(&mut presence);
        let too_many = match (&changed, presence) {
            (Ok(()), (false, true)) => 0,
            (Ok(()), (true, false)) => 2,
            (Err(error), _) if !is_refusal(error) => {
                self.group.counts.leaked.fetch_add(1, Ordering::Relaxed);
                0
            }
            _ => 1,
        };
        (0..too_many).for_each(|_| self.group.lower(&self.stripe, key, self.hash));
        changed
    }

    /// Replaces the value `expected` by `new`, which gets `lifetime`.
    pub(crate) fn swap_sole(
        &self,
        key: &[u8],
        (expected, new): (Option<&[u8]>, Option<&[u8]>),
        lifetime: Lifetime,
    ) -> Result<Swap> {
        let mut swap = Swap::Done;
        self.change_sole(key, |presence| {
            swap = self.store()?.compare_and_swap(key, expected, new, lifetime)?;
            *presence = match &swap {
                Swap::Done => (expected.is_some(), new.is_some()),
                Swap::Differs(found) => (found.is_some(), found.is_some()),
            };
            Ok(())
        })?;
        Ok(swap)
    }

    /// Changes the key according to the result of `change` for its value and expiry.
    pub(crate) fn update_sole(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        self.change_sole(key, |presence| {
            self.store()?.update_with(key, &mut |old, expiry| {
                let change = change(old, expiry);
                let is_present = match &change {
                    Change::Keep => old.is_some(),
                    Change::Put(..) => true,
                    Change::Delete => false,
                };
                *presence = (old.is_some(), is_present);
                change
            })
        })
    }
}

//! The matrix as a store: the contract's operations.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use lodestore_contract::limits::{check_key, check_value};
use lodestore_contract::{
    Capabilities, Change, Error, Expiry, Progress, Result, Scan, ScanRange, Stats, Store, Swap, VerifyReport, Visit,
};

use crate::ENGINE;
use crate::device::{apply, is_refusal, put_told};
use crate::group::{Group, Stripe};
use crate::host::Host;
use crate::keeper::Keeper;
use crate::layout::Mutation;
use crate::options::MkvsOptions;
use crate::places::Places;
use crate::recover::{self, Opened};
use crate::route::KeyHash;
use crate::{lock, scan, verify};

/// What threads share.
pub(crate) struct Inner {
    pub(crate) options: Arc<MkvsOptions>,
    pub(crate) host: Arc<Host>,
    pub(crate) groups: Vec<Arc<Group>>,
    pub(crate) seed: u64,
    pub(crate) keeper: Keeper,
    is_closed: AtomicBool,
}

/// A matrix of devices. Made and opened with the stores that its owner gives it.
pub struct Mkvs {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Mkvs {
    /// Makes a matrix whose description lies in the directory `path`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`]; those of the devices' creation.
    pub fn create(path: &Path, options: &MkvsOptions, places: &dyn Places) -> Result<Self> {
        let options = Arc::new(options.clone());
        Self::start(recover::create(path, &options, places)?)
    }

    /// Opens the matrix whose description lies in the directory `path`. What shapes it (groups, devices, paths, acks, logs) comes from there.
    ///
    /// # Errors
    /// Those of the devices' opening; [`Error::TooFewDevices`] where not all that was acknowledged need be in those that are there, unless in salvage.
    pub fn open(path: &Path, options: &MkvsOptions, places: &dyn Places) -> Result<Self> {
        let options = Arc::new(options.clone());
        Self::start(recover::open(path, &options, places)?)
    }

    fn start(opened: Opened) -> Result<Self> {
        let seed = opened.host.matrix().seed;
        let inner = Inner {
            options: opened.options,
            host: opened.host,
            groups: opened.groups,
            seed,
            keeper: Keeper::default(),
            is_closed: AtomicBool::new(false),
        };
        let store = Self { inner: Arc::new(inner), threads: Mutex::default() };
        let spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
            let thread = Builder::new().name(name).spawn(work);
            thread.map_err(|error| Error::io("starting a thread of", "the matrix", error))
        };
        let inner = Arc::clone(&store.inner);
        let keeper = spawn(
            "mkvs-keeper".into(),
            Box::new(move || inner.keeper.work(&inner.groups, inner.seed, inner.options.relay.as_ref())),
        )?;
        lock(&store.threads).push(keeper);
        for group in store.inner.groups.iter().filter(|group| group.sole().is_none()) {
            for device in group.devices() {
                let name = format!("mkvs-{}.{}", group.index, device.index);
                let thread = spawn(name, Box::new(move || device.work()))?;
                lock(&store.threads).push(thread);
            }
        }
        Ok(store)
    }

    /// Ends all threads.
    fn stop(&self) {
        self.inner.keeper.stop();
        self.inner.groups.iter().flat_map(|group| group.devices()).for_each(|device| device.stop());
        for thread in lock(&self.threads).drain(..) {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

impl Drop for Mkvs {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    fn check_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// The group of a key that may be asked for.
    #[inline]
    fn find(&self, key: &[u8]) -> Result<(&Group, KeyHash)> {
        check_key(key)?;
        self.check_open()?;
        let hash = KeyHash::of(key, self.seed);
        Ok((&self.groups[hash.group(self.groups.len())], hash))
    }

    /// Does `mutation` to a key of a group of several, whose stripe is held; whether the key was there.
    fn commit(
        &self,
        group: &Group,
        stripe: &mut Stripe,
        key: &[u8],
        hash: KeyHash,
        mutation: Mutation,
    ) -> Result<bool> {
        let adds = matches!(mutation, Mutation::Put { .. });
        let is_new = adds && stripe.filter.is_some() && !stripe.may_have(hash);
        let was_there = match group.commit(stripe, key, mutation, is_new) {
            Ok(was_there) => was_there,
            Err(error) => {
                // Whether it is there is not known: counted, it is looked for.
                if adds && !is_refusal(&error) {
                    group.raise(stripe, key, hash);
                    group.counts.leaked.fetch_add(1, Ordering::Relaxed);
                }
                return Err(error);
            }
        };
        // Nobody looks before the stripe is given back.
        match (adds, was_there) {
            (true, false) => group.raise(stripe, key, hash),
            (false, true) => group.lower(stripe, key, hash),
            _ => {}
        }
        Ok(was_there)
    }

    /// Adds to the only store of a group; it counts as added when `add` says so.
    fn add_sole(
        &self,
        group: &Group,
        stripe: &Stripe,
        key: &[u8],
        hash: KeyHash,
        add: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        group.raise(stripe, key, hash);
        match add() {
            Ok(true) => Ok(true),
            Ok(false) => {
                group.lower(stripe, key, hash);
                Ok(false)
            }
            Err(error) => {
                if is_refusal(&error) {
                    group.lower(stripe, key, hash);
                } else {
                    group.counts.leaked.fetch_add(1, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }

    /// A put to the only store of a group.
    fn put_sole(
        &self,
        group: &Group,
        store: &dyn Store,
        key: &[u8],
        hash: KeyHash,
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<()> {
        let stripe = group.share(hash);
        if !self.options.filter {
            return store.put_expiring(key, value, expiry);
        }
        if expiry.is_some() {
            return self
                .add_sole(group, &stripe, key, hash, || put_told(store, key, value, expiry, false).map(|there| !there))
                .map(drop);
        }
        let mut is_new = !stripe.may_have(hash);
        loop {
            if !is_new && store.update(key, value)? {
                return Ok(());
            }
            if self.add_sole(group, &stripe, key, hash, || store.insert(key, value))? {
                return Ok(());
            }
            is_new = false;
        }
    }

    /// Changes a key of the only store of a group by `change`, which says whether it was there and is there behind it.
    fn change_sole(
        &self,
        group: &Group,
        key: &[u8],
        hash: KeyHash,
        change: impl FnOnce(&mut (bool, bool)) -> Result<()>,
    ) -> Result<()> {
        let stripe = group.share(hash);
        // It may add the key: counted before, and set right behind.
        group.raise(&stripe, key, hash);
        let mut there = (false, false);
        let changed = change(&mut there);
        match (&changed, there) {
            (Ok(()), (false, true)) => {}
            (Ok(()), (true, false)) => {
                group.lower(&stripe, key, hash);
                group.lower(&stripe, key, hash);
            }
            (Err(error), _) if !is_refusal(error) => drop(group.counts.leaked.fetch_add(1, Ordering::Relaxed)),
            _ => group.lower(&stripe, key, hash),
        }
        changed
    }
}

impl Store for Mkvs {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn capabilities(&self) -> Capabilities {
        let first = self.inner.groups[0].devices()[0].store().capabilities();
        Capabilities { batch: false, snapshot: false, interval: false, ..first }
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (group, hash) = self.inner.find(key)?;
        let stripe = group.share(hash);
        if !stripe.may_have(hash) {
            group.counts.filtered.fetch_add(1, Ordering::Relaxed);
            value.clear();
            return Ok(false);
        }
        let is_there = group.fetch(&stripe, key, value)?;
        if !is_there && stripe.filter.is_some() {
            group.counts.false_positives.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_there)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        let (group, hash) = self.inner.find(key)?;
        let stripe = group.share(hash);
        Ok(stripe.may_have(hash) && group.ask(&stripe, key, |store| store.contains(key))?)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key))?;
        self.inner.check_open()?;
        if let ([group], false) = (&self.inner.groups[..], self.inner.options.filter)
            && let Some(store) = group.sole()
        {
            return store.multi_get(keys, each);
        }
        let mut value = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let is_there = self.get_into(key, &mut value)?;
            each(index, is_there.then_some(&value[..]));
        }
        Ok(())
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        let (group, hash) = self.inner.find(key)?;
        let stripe = group.share(hash);
        if !stripe.may_have(hash) {
            return Ok(None);
        }
        group.ask(&stripe, key, |store| store.expiry(key))
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        let (group, hash) = self.inner.find(key)?;
        check_value(value)?;
        if let Some(store) = group.sole() {
            return self.inner.put_sole(group, store, key, hash, value, expiry);
        }
        let mut stripe = group.own(hash);
        self.inner.commit(group, &mut stripe, key, hash, Mutation::Put { value: value.to_vec(), expiry }).map(drop)
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let (group, hash) = self.inner.find(key)?;
        check_value(value)?;
        if let Some(store) = group.sole() {
            let stripe = group.share(hash);
            return self.inner.add_sole(group, &stripe, key, hash, || store.insert(key, value));
        }
        let mut stripe = group.own(hash);
        if stripe.may_have(hash) && group.ask(&stripe, key, |store| store.contains(key))? {
            return Ok(false);
        }
        self.inner
            .commit(group, &mut stripe, key, hash, Mutation::Put { value: value.to_vec(), expiry: None })
            .map(|_| true)
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let (group, hash) = self.inner.find(key)?;
        check_value(value)?;
        if let Some(store) = group.sole() {
            let stripe = group.share(hash);
            return Ok(stripe.may_have(hash) && store.update(key, value)?);
        }
        let mut stripe = group.own(hash);
        if !stripe.may_have(hash) || !group.ask(&stripe, key, |store| store.contains(key))? {
            return Ok(false);
        }
        self.inner
            .commit(group, &mut stripe, key, hash, Mutation::Put { value: value.to_vec(), expiry: None })
            .map(|_| true)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        let (group, hash) = self.inner.find(key)?;
        if let Some(store) = group.sole() {
            let stripe = group.share(hash);
            let was_there = stripe.may_have(hash) && apply(store, key, &Mutation::Delete, false)?;
            if was_there {
                group.lower(&stripe, key, hash);
            }
            return Ok(was_there);
        }
        let mut stripe = group.own(hash);
        if !stripe.may_have(hash) {
            return Ok(false);
        }
        self.inner.commit(group, &mut stripe, key, hash, Mutation::Delete)
    }

    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        let (group, hash) = self.inner.find(key)?;
        new.map_or(Ok(()), check_value)?;
        if let Some(store) = group.sole() {
            let mut swap = Swap::Done;
            self.inner.change_sole(group, key, hash, |there| {
                swap = store.compare_and_swap(key, expected, new)?;
                *there = match &swap {
                    Swap::Done => (expected.is_some(), new.is_some()),
                    Swap::Differs(found) => (found.is_some(), found.is_some()),
                };
                Ok(())
            })?;
            return Ok(swap);
        }
        let mut stripe = group.own(hash);
        let found = if stripe.may_have(hash) { group.ask(&stripe, key, |store| store.get(key))? } else { None };
        if found.as_deref() != expected {
            return Ok(Swap::Differs(found));
        }
        let mutation = match new {
            Some(value) => Mutation::Put { value: value.to_vec(), expiry: None },
            None if found.is_none() => return Ok(Swap::Done),
            None => Mutation::Delete,
        };
        self.inner.commit(group, &mut stripe, key, hash, mutation).map(|_| Swap::Done)
    }

    fn update_with(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        let (group, hash) = self.inner.find(key)?;
        if let Some(store) = group.sole() {
            return self.inner.change_sole(group, key, hash, |there| {
                store.update_with(key, &mut |old| {
                    let change = change(old);
                    *there = (
                        old.is_some(),
                        match &change {
                            Change::Keep => old.is_some(),
                            Change::Put(..) => true,
                            Change::Delete => false,
                        },
                    );
                    change
                })
            });
        }
        let mut stripe = group.own(hash);
        let found = if stripe.may_have(hash) { group.ask(&stripe, key, |store| store.get(key))? } else { None };
        let mutation = match change(found.as_deref()) {
            Change::Put(value, expiry) => {
                check_value(&value)?;
                Mutation::Put { value, expiry }
            }
            Change::Delete if found.is_some() => Mutation::Delete,
            Change::Delete | Change::Keep => return Ok(()),
        };
        self.inner.commit(group, &mut stripe, key, hash, mutation).map(drop)
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.inner.check_open()?;
        let stores = scan::stores(&self.inner.groups)?;
        if let [store] = &stores[..] {
            return store.scan_each(range, visit);
        }
        let mut visited = 0;
        for entry in scan::merged(&stores, range)? {
            let entry = entry?;
            visited += 1;
            if visit(&entry.key, &entry.value) == Visit::Stop {
                break;
            }
        }
        Ok(visited)
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        self.inner.check_open()?;
        scan::merged(&scan::stores(&self.inner.groups)?, range)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        self.inner.check_open()?;
        let (mut visited, mut stopped, mut damage) = (0, false, None);
        for store in scan::stores(&self.inner.groups)? {
            let walked = store.for_each(&mut |key, value| {
                visited += 1;
                let more = visit(key, value);
                stopped |= more == Visit::Stop;
                more
            });
            match walked {
                Ok(_) => {}
                Err(error @ Error::Corrupt { .. }) => damage = damage.or(Some(error)),
                Err(error) => return Err(error),
            }
            if stopped {
                return Ok(visited);
            }
        }
        damage.map_or(Ok(visited), Err)
    }

    fn len(&self) -> Result<u64> {
        self.inner.check_open()?;
        scan::stores(&self.inner.groups)?.iter().map(|store| store.len()).sum()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn sync(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.each_store(&|store| store.sync())
    }

    fn settle(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.each_store(&|store| store.settle())
    }

    fn wait_recovered(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.each_store(&|store| store.wait_recovered())
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.inner.check_open()?;
        verify::verify(&self.inner.groups, self.inner.seed, progress)
    }

    fn close(&self) -> Result<()> {
        if self.inner.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.stop();
        self.inner.close()
    }
}

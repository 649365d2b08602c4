//! The matrix as a store: the operations of the contract.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestore_contract::copy::{CopySink, copy_fuzzy};
use lodestore_contract::limits::{check_key, check_value};
use lodestore_contract::threads::start_thread;
use lodestore_contract::{
    Capabilities, Change, ChangeFn, Expiry, Lifetime, Options, Pair, Progress, Result, Scan, ScanRange, Stats, Store,
    Swap, VerifyReport, Visit,
};
use lodestore_media::OpenState;

use crate::ENGINE;
use crate::apply::apply;
use crate::command::Query;
use crate::device::{Device, HANG_TIMEOUT};
use crate::group::{CurrentKeeper, Group};
use crate::inner::{Inner, WriteLock};
use crate::keeper::Keeper;
use crate::layout::MemberState;
use crate::operation::Mutation;
use crate::options::MkvsOptions;
use crate::places::Places;
use crate::recover::{self, Opened};
use crate::topology::Shape;
use crate::{lock, verify};

/// A matrix of devices, created and opened with stores that its owner provides.
pub struct Mkvs {
    pub(crate) inner: Arc<Inner>,
    threads: Mutex<Vec<Thread>>,
    /// Held while the matrix's shape is changed.
    pub(crate) changes: Mutex<()>,
}

/// A thread, and the device whose processor it is.
struct Thread {
    handle: JoinHandle<()>,
    device: Option<Arc<Device>>,
}

/// Time that a thread which calls devices has to end. After that, the thread is abandoned. Such a
/// thread checks for a stop between two calls.
const THREAD_END_TIMEOUT: Duration = Duration::from_secs(30);

impl Mkvs {
    /// Creates a matrix whose description is in the directory `path`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](lodestore_contract::Error::InvalidOption); errors of the devices'
    /// creation.
    pub fn create(path: &Path, options: &MkvsOptions, places: &dyn Places) -> Result<Self> {
        let options = Arc::new(options.clone());
        recover::create(path, &options, places, Self::start)
    }

    /// Opens the matrix whose description is in the directory `path`. Its shape (groups, devices,
    /// paths, acks, logs) comes from the description.
    ///
    /// # Errors
    /// As the opening of the devices;
    /// [`Error::TooFewDevices`](lodestore_contract::Error::TooFewDevices) if the available devices
    /// may lack acknowledged writes, unless in salvage.
    pub fn open(path: &Path, options: &MkvsOptions, places: &dyn Places) -> Result<Self> {
        let options = Arc::new(options.clone());
        Self::start(recover::open(path, &options, places)?)
    }

    fn start(opened: Opened) -> Result<Self> {
        let matrix = opened.host.matrix();
        // Epochs begun by the open do not count as changes.
        opened.groups.iter().for_each(|group| group.counts.epochs.store(0, Ordering::Relaxed));
        let inner = Inner {
            options: opened.options,
            host: opened.host,
            shape: Shape::new(opened.groups, matrix.settled_groups as usize),
            seed: matrix.seed,
            keeper: Keeper::default(),
            open: OpenState::new()?,
        };
        let store = Self { inner: Arc::new(inner), threads: Mutex::default(), changes: Mutex::default() };
        if store.inner.options.threads {
            store.spawn_threads()?;
        }
        Ok(store)
    }

    /// Starts all threads.
    fn spawn_threads(&self) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        self.spawn("mkvs-watch".into(), move || inner.keeper.watch_all(&inner.shape))?;
        if let Some(relay) = self.inner.options.relay.clone() {
            let inner = Arc::clone(&self.inner);
            self.spawn("mkvs-events".into(), move || inner.keeper.send_events(&inner.shape, &relay))?;
        }
        for group in self.inner.shape.groups() {
            self.start_keeper(&group)?;
            group.devices().into_iter().try_for_each(|device| self.start_processor(&group, device))?;
        }
        if self.inner.shape.is_moving() {
            self.start_mover()?;
        }
        Ok(())
    }

    /// Starts the keeper of a group, if there are threads. An earlier keeper stops its work for the
    /// group.
    pub(crate) fn start_keeper(&self, group: &Arc<Group>) -> Result<()> {
        if !self.inner.options.threads {
            return Ok(());
        }
        let mut keeper = lock(&group.keeper);
        let number = keeper.number + 1;
        let (inner, own) = (Arc::clone(&self.inner), Arc::clone(group));
        self.spawn(format!("mkvs-keeper-{}", group.index), move || inner.keeper.work(&own, number))?;
        *keeper = CurrentKeeper { number, member: None };
        Ok(())
    }

    /// Starts another keeper of a group if its present one is catching up the replaced member,
    /// where it may hang.
    pub(crate) fn replace_keeper_of(&self, group: &Arc<Group>, replaced: &Device) -> Result<()> {
        let is_catching_up = lock(&group.keeper).member == Some(replaced.id);
        if is_catching_up { self.start_keeper(group) } else { Ok(()) }
    }

    /// Starts a thread that ends with the matrix.
    pub(crate) fn spawn(&self, name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
        self.spawn_for(None, name, work)
    }

    fn spawn_for(&self, device: Option<Arc<Device>>, name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let handle = start_thread(name, work)?;
        lock(&self.threads).push(Thread { handle, device });
        Ok(())
    }

    /// Starts a device's own thread, if there are threads and several devices in its group.
    pub(crate) fn start_processor(&self, group: &Group, device: Arc<Device>) -> Result<()> {
        if group.sole().is_some() || !self.inner.options.threads {
            return Ok(());
        }
        let name = format!("mkvs-{}.{}", group.index, device.index);
        let own = Arc::clone(&device);
        self.spawn_for(Some(Arc::clone(&device)), name, move || own.work())?;
        // The thread exists: it executes the device's commands from now on.
        device.start();
        Ok(())
    }

    /// Ends all threads: first the threads that call devices, then the devices' own. A thread that
    /// hangs in a call of a device's medium is abandoned.
    fn stop(&self) {
        self.inner.keeper.stop();
        let groups = self.inner.shape.groups();
        groups.iter().for_each(|group| group.stops.store(true, Ordering::Release));
        let (processors, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *lock(&self.threads)).into_iter().partition(|thread| thread.device.is_some());
        let patience = self.inner.options.timeout;
        // Also the devices that were replaced: a thread may hang in one.
        let replaced = processors.iter().filter_map(|thread| thread.device.clone());
        let devices: Vec<_> = groups.iter().flat_map(|group| group.devices()).chain(replaced).collect();
        let begun = Instant::now();
        // The owner may drop the matrix in an event callback: that thread does not wait for itself.
        let own = std::thread::current().id();
        for Thread { handle, .. } in others.into_iter().filter(|thread| thread.handle.thread().id() != own) {
            let is_stuck = || {
                let waited = begun.elapsed();
                waited > THREAD_END_TIMEOUT
                    || (waited > patience && devices.iter().any(|device| device.hangs(HANG_TIMEOUT)))
            };
            while !handle.is_finished() && !is_stuck() {
                std::thread::sleep(Duration::from_micros(100));
            }
            if handle.is_finished() {
                // The error of a thread that panicked is ignored.
                let _ = handle.join();
            }
        }
        devices.iter().for_each(|device| device.stop());
        for Thread { handle, device } in processors {
            let hangs = device.is_some_and(|device| {
                device.stop();
                device.hangs(if device.state() == MemberState::Failed { HANG_TIMEOUT } else { patience })
            });
            if !hangs {
                let _ = handle.join();
            }
        }
    }
}

impl Drop for Mkvs {
    fn drop(&mut self) {
        if self.inner.open.is_foreign() {
            // The matrix's and its devices' threads do not exist in a forked process.
            let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(threads));
            return std::mem::forget(Arc::clone(&self.inner));
        }
        self.stop();
    }
}

impl Store for Mkvs {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn capabilities(&self) -> Capabilities {
        let first = self.inner.shape.groups()[0].devices()[0].store().capabilities();
        Capabilities { batch: false, range_conditions: false, snapshot: false, interval: false, ..first }
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let at = self.inner.lock_shared(key)?;
        value.clear();
        if !at.stripe.may_have(at.hash) && at.old.is_none() {
            at.stripe.counts.filtered.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        let is_present = at.find(key, Query::Value, value)?.is_present;
        if !is_present && at.stripe.filter.is_some() {
            at.group.counts.false_positives.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_present)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        let at = self.inner.lock_shared(key)?;
        Ok(at.find(key, Query::Presence, &mut Vec::new())?.is_present)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key))?;
        self.inner.check_open()?;
        let mut value = Vec::new();
        if let [group] = &self.inner.shape.groups()[..]
            && let (Some(store), false) = (group.sole(), group.has_filter)
        {
            let mut failed = Ok(());
            store.multi_get(keys, &mut |index, found| {
                // With still one group, an absent key was nowhere. Otherwise it may have moved to
                // another group.
                if found.is_some() || self.inner.shape.counts() == (1, 1) || failed.is_err() {
                    return each(index, found);
                }
                match self.get_into(keys[index], &mut value) {
                    Ok(is_present) => each(index, is_present.then_some(&value[..])),
                    Err(error) => failed = Err(error),
                }
            })?;
            return failed;
        }
        for (index, key) in keys.iter().enumerate() {
            let is_present = self.get_into(key, &mut value)?;
            each(index, is_present.then_some(&value[..]));
        }
        Ok(())
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        let at = self.inner.lock_shared(key)?;
        let found = at.find(key, Query::Expiry, &mut Vec::new())?;
        Ok(found.is_present.then_some(found.expiry))
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        match self.inner.lock_for_write(key)? {
            WriteLock::Sole(at) => at.put_sole(key, value, expiry),
            WriteLock::Owned(mut at) => at.put(key, value, expiry).map(drop),
        }
    }

    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        check_key(key)?;
        check_value(value)?;
        match self.inner.lock_for_write(key)? {
            WriteLock::Sole(at) => at.add_sole(key, |store| store.insert(key, value, lifetime)),
            WriteLock::Owned(at) if at.contains(key)? => Ok(false),
            WriteLock::Owned(mut at) => at.put(key, value, lifetime.resolve(None)).map(|_| true),
        }
    }

    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        check_key(key)?;
        check_value(value)?;
        match self.inner.lock_for_write(key)? {
            WriteLock::Sole(at) => Ok(at.stripe.may_have(at.hash) && at.store()?.update(key, value, lifetime)?),
            WriteLock::Owned(mut at) => match at.expiry_for(key, lifetime)? {
                Some(expiry) => at.put(key, value, expiry).map(|_| true),
                None => Ok(false),
            },
        }
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        match self.inner.lock_for_write(key)? {
            WriteLock::Sole(at) => {
                let was_present = at.stripe.may_have(at.hash) && apply(at.store()?, key, &Mutation::Delete, false)?;
                if was_present {
                    at.group.lower(&at.stripe, key, at.hash);
                }
                Ok(was_present)
            }
            WriteLock::Owned(mut at) => {
                if !at.stripe.may_have(at.hash) && !at.is_unread() {
                    return Ok(false);
                }
                at.check_unread_exists()?;
                at.change(key, Mutation::Delete)
            }
        }
    }

    fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        check_key(key)?;
        new.map_or(Ok(()), check_value)?;
        let mut at = match self.inner.lock_for_write(key)? {
            WriteLock::Sole(at) => return at.swap_sole(key, (expected, new), lifetime),
            WriteLock::Owned(at) => at,
        };
        let (found, expiry) = at.pair_for(key, lifetime)?;
        if found.as_deref() != expected {
            return Ok(Swap::Differs(found));
        }
        match new {
            Some(value) => drop(at.put(key, value, expiry)?),
            None if found.is_some() => drop(at.change(key, Mutation::Delete)?),
            None => {}
        }
        Ok(Swap::Done)
    }

    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        let mut at = match self.inner.lock_for_write(key)? {
            WriteLock::Sole(at) => return at.update_sole(key, change),
            WriteLock::Owned(at) => at,
        };
        let (found, expiry) = at.pair_for(key, Lifetime::Keep)?;
        match change(found.as_deref(), expiry) {
            Change::Put(value, lifetime) => {
                check_value(&value)?;
                at.change(key, Mutation::Put { value, expiry: lifetime.resolve(expiry) }).map(drop)
            }
            Change::Delete if found.is_some() => at.change(key, Mutation::Delete).map(drop),
            Change::Delete | Change::Keep => Ok(()),
        }
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.inner.check_open()?;
        Inner::scan_each(&self.inner, range, visit)
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        self.inner.check_open()?;
        Inner::scan(&self.inner, range)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        self.inner.check_open()?;
        Inner::for_each(&self.inner, visit)
    }

    fn copy_all(&self, sink: &mut dyn CopySink) -> Result<()> {
        self.inner.check_open()?;
        self.inner.check_copyable()?;
        copy_fuzzy(&*self.inner, sink)
    }

    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        self.inner.check_open()?;
        Inner::for_each_pair(&self.inner, visit)
    }

    fn len(&self) -> Result<u64> {
        self.inner.check_open()?;
        Inner::len(&self.inner)
    }

    fn identity(&self) -> Option<u64> {
        Some(self.inner.host.matrix().id | 1)
    }

    fn creation_options(&self) -> Options {
        self.inner.creation_options()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn sync(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.for_each_store(&|store| store.sync())
    }

    fn settle(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.for_each_store(&|store| store.settle()).map(|()| self.inner.run_maintenance())
    }

    fn wait_recovered(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.for_each_store(&|store| store.wait_recovered()).map(|()| self.inner.run_maintenance())
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.inner.check_open()?;
        verify::verify(&**self.inner.host.store(), &self.inner.shape.groups(), self.inner.seed, progress)
    }

    fn close(&self) -> Result<()> {
        self.inner.open.check_process()?;
        // A change of the matrix's shape ends first.
        let _changes = lock(&self.changes);
        if !self.inner.open.close() {
            return Ok(());
        }
        // Calls in progress end before their devices' threads, except calls that hang.
        self.inner.shape.groups().iter().for_each(|group| group.wait_calls());
        let drained = self.inner.drain();
        self.stop();
        drained.and(self.inner.close())
    }
}

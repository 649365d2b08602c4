//! A store that fails, refuses, waits or stops according to a test's plan.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lodestore_contract::*;

/// Kinds of calls of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    Read,
    Write,
    /// The store's mark is changed.
    Mark,
    /// The whole store is synced.
    Sync,
    /// The whole store is verified.
    Verify,
    /// The number of keys is requested.
    Count,
    Close,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The call lasts this long.
    Slow(Duration),
    /// The medium fails.
    Io,
    /// There is no free space.
    Full,
    /// The pair is damaged.
    Corrupt,
    /// As damaged, and no walk shows it: a recovery left it out. The test sets the number of such
    /// pairs by [`Switch::leave_out`].
    LeftOut,
    /// As left out, but the store can still confirm that the key exists.
    Unseen,
}

/// Decides the outcome of each call.
pub type Plan = Arc<dyn Fn(Touch, &[u8]) -> Fault + Send + Sync>;

/// A plan that can be changed, and the reported recovery of a store.
#[derive(Clone)]
pub struct Switch {
    plan: Arc<Mutex<Plan>>,
    left_out: Arc<AtomicU64>,
    found_at_end: Arc<AtomicU64>,
    recovers: Arc<AtomicBool>,
    cuts: Arc<AtomicBool>,
    expires: Arc<AtomicBool>,
}

impl Switch {
    pub fn new() -> Self {
        Self {
            plan: Arc::new(Mutex::new(Arc::new(|_, _| Fault::None))),
            left_out: Arc::default(),
            found_at_end: Arc::default(),
            recovers: Arc::default(),
            cuts: Arc::default(),
            expires: Arc::default(),
        }
    }

    pub fn set(&self, plan: impl Fn(Touch, &[u8]) -> Fault + Send + Sync + 'static) {
        *self.plan.lock().expect("the plan") = Arc::new(plan);
    }

    /// Makes the store's recovery leave out `count` pairs.
    pub fn leave_out(&self, count: u64) {
        self.left_out.store(count, Ordering::Release);
    }

    /// The store's recovery leaves out `count` keys, and reports this when a caller waited for its
    /// end.
    pub fn find_at_end(&self, count: u64) {
        self.found_at_end.store(count, Ordering::Release);
    }

    /// Lets the store's recovery go on: walks wait for its end, reads and writes do not.
    pub fn recover(&self, goes_on: bool) {
        self.recovers.store(goes_on, Ordering::Release);
    }

    /// Makes owned scans end at a damaged pair, as some engines do.
    pub fn cut_scans(&self) {
        self.cuts.store(true, Ordering::Release);
    }

    /// Makes keys expire before their expiry is read.
    pub fn expire(&self) {
        self.expires.store(true, Ordering::Release);
    }

    fn wait_recovered(&self) {
        while self.recovers.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.left_out.fetch_add(self.found_at_end.swap(0, Ordering::AcqRel), Ordering::AcqRel);
    }

    /// Returns a walk's view of a pair: nothing, the pair, or an error if it cannot be read.
    fn shows(&self, key: &[u8]) -> Option<Result<()>> {
        let plan = Arc::clone(&self.plan.lock().expect("the plan"));
        (!matches!(plan(Touch::Read, key), Fault::LeftOut | Fault::Unseen)).then(|| self.ask(Touch::Read, key))
    }

    fn is_unseen(&self, key: &[u8]) -> bool {
        let plan = Arc::clone(&self.plan.lock().expect("the plan"));
        plan(Touch::Read, key) == Fault::Unseen
    }

    pub fn clear(&self) {
        self.set(|_, _| Fault::None);
    }

    fn ask(&self, touch: Touch, key: &[u8]) -> Result<()> {
        let plan = Arc::clone(&self.plan.lock().expect("the plan"));
        match plan(touch, key) {
            Fault::None => Ok(()),
            Fault::Slow(time) => {
                std::thread::sleep(time);
                Ok(())
            }
            Fault::Io => Err(Error::io("writing", "device", std::io::Error::from_raw_os_error(5))),
            Fault::Full => Err(Error::Full { needed: 1, capacity: 1 }),
            Fault::Corrupt | Fault::LeftOut | Fault::Unseen => Err(Error::corrupt("device", "planted")),
        }
    }
}

/// The store.
pub struct Faulty {
    pub store: Arc<dyn Store>,
    pub switch: Switch,
}

impl Store for Faulty {
    fn engine(&self) -> &'static str {
        self.store.engine()
    }
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
    fn opening(&self) -> u64 {
        self.store.opening()
    }
    fn mark(&self) -> Option<u64> {
        self.store.mark()
    }
    fn set_mark(&self, mark: u64) -> Result<()> {
        self.switch.ask(Touch::Mark, b"")?;
        self.store.set_mark(mark)
    }
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.switch.ask(Touch::Read, key)?;
        self.store.get_into(key, value)
    }
    fn contains(&self, key: &[u8]) -> Result<bool> {
        if !self.switch.is_unseen(key) {
            self.switch.ask(Touch::Read, key)?;
        }
        self.store.contains(key)
    }
    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.store.multi_get(keys, each)
    }
    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.switch.ask(Touch::Read, key)?;
        if self.switch.expires.load(Ordering::Acquire) {
            return Ok(None);
        }
        self.store.expiry(key)
    }
    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        self.switch.ask(Touch::Write, key)?;
        self.store.put_expiring(key, value, expiry)
    }
    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.switch.ask(Touch::Write, key)?;
        self.store.insert(key, value, lifetime)
    }
    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.switch.ask(Touch::Write, key)?;
        self.store.update(key, value, lifetime)
    }
    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.switch.ask(Touch::Write, key)?;
        self.store.delete(key)
    }
    fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        self.switch.ask(Touch::Write, key)?;
        self.store.compare_and_swap(key, expected, new, lifetime)
    }
    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        self.switch.ask(Touch::Write, key)?;
        self.store.update_with(key, change)
    }
    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.switch.wait_recovered();
        let (mut visited, mut failed) = (0, None);
        if range.limit == 0 {
            return Ok(0);
        }
        self.store.scan_each(&ScanRange { limit: usize::MAX, ..range.clone() }, &mut |key, value| {
            match self.switch.shows(key) {
                None => return Visit::More,
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    failed = Some(error);
                    return Visit::Stop;
                }
            }
            visited += 1;
            let more = visit(key, value);
            if visited == range.limit { Visit::Stop } else { more }
        })?;
        failed.map_or(Ok(visited), Err)
    }
    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        self.switch.wait_recovered();
        let (switch, mut is_over) = (self.switch.clone(), false);
        let shown = self.store.scan(range)?.filter_map(move |entry| {
            let Ok(entry) = entry else { return Some(entry) };
            switch.shows(entry.key()).filter(|_| !is_over).map(|shown| {
                let ends = matches!(shown, Err(Error::Corrupt { .. })) && switch.cuts.load(Ordering::Acquire);
                is_over |= ends || matches!(shown, Err(ref error) if !matches!(error, Error::Corrupt { .. }));
                shown.map(|()| entry)
            })
        });
        Ok(Box::new(shown))
    }
    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        self.switch.wait_recovered();
        let (mut visited, mut failed) = (0, None);
        self.store.for_each_pair(&mut |pair| {
            match self.switch.shows(pair.key) {
                None => return Visit::More,
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    let goes_on = matches!(error, Error::Corrupt { .. });
                    failed.get_or_insert(error);
                    return if goes_on { Visit::More } else { Visit::Stop };
                }
            }
            visited += 1;
            visit(pair)
        })?;
        failed.map_or(Ok(visited), Err)
    }
    fn len(&self) -> Result<u64> {
        self.switch.ask(Touch::Count, b"")?;
        self.store.len()
    }
    fn stats(&self) -> Stats {
        let mut stats = self.store.stats();
        let left_out = self.switch.left_out.load(Ordering::Acquire);
        stats.recovery.left_out += left_out;
        stats.recovery.corrupt += left_out;
        stats.recovery.done &= !self.switch.recovers.load(Ordering::Acquire);
        stats
    }
    fn sync(&self) -> Result<()> {
        self.switch.ask(Touch::Sync, b"")?;
        self.store.sync()
    }
    fn settle(&self) -> Result<()> {
        self.store.settle()
    }
    fn wait_recovered(&self) -> Result<()> {
        self.switch.wait_recovered();
        self.store.wait_recovered()
    }
    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.switch.ask(Touch::Verify, b"")?;
        self.store.verify(progress)
    }
    fn close(&self) -> Result<()> {
        self.switch.ask(Touch::Close, b"")?;
        self.store.close()
    }
}

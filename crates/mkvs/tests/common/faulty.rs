//! A store that fails, refuses, waits or stops as a test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lodestore_contract::*;

/// What is done to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    Read,
    Write,
    /// The whole store is asked to be durable.
    Sync,
    /// The whole store is checked.
    Verify,
}

/// What comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It takes this long.
    Slow(Duration),
    /// The medium fails.
    Io,
    /// There is no room.
    Full,
    /// What is read is damaged.
    Corrupt,
}

/// Says what comes of each call.
pub type Plan = Arc<dyn Fn(Touch, &[u8]) -> Fault + Send + Sync>;

/// A plan that can be changed.
#[derive(Clone)]
pub struct Switch(Arc<Mutex<Plan>>);

impl Switch {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Arc::new(|_, _| Fault::None))))
    }

    pub fn set(&self, plan: impl Fn(Touch, &[u8]) -> Fault + Send + Sync + 'static) {
        *self.0.lock().expect("the plan") = Arc::new(plan);
    }

    pub fn clear(&self) {
        self.set(|_, _| Fault::None);
    }

    fn ask(&self, touch: Touch, key: &[u8]) -> Result<()> {
        let plan = Arc::clone(&self.0.lock().expect("the plan"));
        match plan(touch, key) {
            Fault::None => Ok(()),
            Fault::Slow(time) => {
                std::thread::sleep(time);
                Ok(())
            }
            Fault::Io => Err(Error::io("writing", "device", std::io::Error::from_raw_os_error(5))),
            Fault::Full => Err(Error::Full { needed: 1, capacity: 1 }),
            Fault::Corrupt => Err(Error::corrupt("device", "planted")),
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
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.switch.ask(Touch::Read, key)?;
        self.store.get_into(key, value)
    }
    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.switch.ask(Touch::Read, key)?;
        self.store.contains(key)
    }
    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.store.multi_get(keys, each)
    }
    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.store.expiry(key)
    }
    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        self.switch.ask(Touch::Write, key)?;
        self.store.put_expiring(key, value, expiry)
    }
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.switch.ask(Touch::Write, key)?;
        self.store.insert(key, value)
    }
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.switch.ask(Touch::Write, key)?;
        self.store.update(key, value)
    }
    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.switch.ask(Touch::Write, key)?;
        self.store.delete(key)
    }
    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.switch.ask(Touch::Write, key)?;
        self.store.compare_and_swap(key, expected, new)
    }
    fn update_with(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        self.switch.ask(Touch::Write, key)?;
        self.store.update_with(key, change)
    }
    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.store.scan_each(range, visit)
    }
    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        self.store.scan(range)
    }
    fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        self.store.for_each(visit)
    }
    fn len(&self) -> Result<u64> {
        self.store.len()
    }
    fn stats(&self) -> Stats {
        self.store.stats()
    }
    fn sync(&self) -> Result<()> {
        self.switch.ask(Touch::Sync, b"")?;
        self.store.sync()
    }
    fn settle(&self) -> Result<()> {
        self.store.settle()
    }
    fn wait_recovered(&self) -> Result<()> {
        self.store.wait_recovered()
    }
    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.switch.ask(Touch::Verify, b"")?;
        self.store.verify(progress)
    }
    fn close(&self) -> Result<()> {
        self.store.close()
    }
}

//! A separator that keeps values in DRAM, and a store with it. Stored bytes end with a tag: 0 after
//! a value, 1 after the number of a separated value.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use lodestore_contract::{Direction, Error, Expiry, Result, ScanRange, Snapshot, Store};
use lodestore_fluidkv::embedding::{Separable, Separator};
use lodestore_fluidkv::{ENGINE, FORMAT, FluidKv, FluidOptions};
use lodestore_media::Pool;

/// Values of at least this many bytes are separated.
pub const LARGE: usize = 100;
const INLINE: u8 = 0;
const APART: u8 = 1;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called with the values of a `separate`, or with `None` after a published flush. An error is the
/// separator's error.
pub type Hook = Box<dyn Fn(&FluidKv, Option<&[Separable<'_>]>) -> Result<()> + Send>;

/// See the module.
#[derive(Default)]
pub struct Toy {
    /// By number.
    pub kept: Mutex<HashMap<u64, Vec<u8>>>,
    pub died: Mutex<Vec<Vec<u8>>>,
    /// Values that contain these bytes are not separated.
    pub stays: Mutex<Option<Vec<u8>>>,
    pub hook: Mutex<Option<Hook>>,
    pub store: OnceLock<Weak<FluidKv>>,
    pub calls: AtomicU64,
    next: AtomicU64,
}

impl Toy {
    /// Keeps a value and returns the stored bytes for it.
    pub fn keep(&self, value: &[u8]) -> Vec<u8> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.kept).insert(number, value.to_vec());
        [&number.to_le_bytes()[..], &[APART]].concat()
    }

    /// Returns the value for stored bytes.
    pub fn decode(&self, stored: &[u8]) -> Vec<u8> {
        match stored.split_last().expect("a tag") {
            (&INLINE, value) => value.to_vec(),
            (_, number) => {
                let number = u64::from_le_bytes(number.try_into().expect("a number"));
                lock(&self.kept).get(&number).expect("it is kept").clone()
            }
        }
    }

    /// Returns the maximum number of times that a value was kept.
    pub fn times_kept(&self) -> usize {
        let mut times: HashMap<Vec<u8>, usize> = HashMap::new();
        lock(&self.kept).values().for_each(|value| *times.entry(value.clone()).or_default() += 1);
        times.into_values().max().unwrap_or(0)
    }

    fn call(&self, values: Option<&[Separable<'_>]>) -> Result<()> {
        let hook = lock(&self.hook);
        match (&*hook, self.store.get().and_then(Weak::upgrade)) {
            (Some(hook), Some(store)) => hook(&store, values),
            _ => Ok(()),
        }
    }

    pub fn set_hook(&self, hook: impl Fn(&FluidKv, Option<&[Separable<'_>]>) -> Result<()> + Send + 'static) {
        *lock(&self.hook) = Some(Box::new(hook));
    }
}

impl Separator for Toy {
    fn wants(&self, _key: &[u8], value: &[u8]) -> bool {
        value.len() > LARGE && value.last() == Some(&INLINE)
    }

    fn separate(&self, values: &[Separable<'_>]) -> Result<Vec<Option<Box<[u8]>>>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(values.windows(2).all(|pair| pair[0].key < pair[1].key), "keys ascend");
        self.call(Some(values))?;
        let stays = lock(&self.stays).clone();
        let answer = |value: &Separable<'_>| {
            let (_, value) = value.value.split_last().expect("a tag");
            let stays = stays.as_ref().is_some_and(|text| value.windows(text.len()).any(|part| part == text));
            (!stays).then(|| self.keep(value).into())
        };
        Ok(values.iter().map(answer).collect())
    }

    fn published(&self) {
        self.call(None).expect("a hook that answers nothing");
    }

    fn died(&self, stored: &[&[u8]]) {
        lock(&self.died).extend(stored.iter().map(|stored| stored.to_vec()));
    }
}

/// A store with a toy separator.
pub struct Toyed {
    pub store: Arc<FluidKv>,
    pub toy: Arc<Toy>,
    pub pool: Arc<Pool>,
}

impl Toyed {
    pub fn create(dir: &Path, options: &FluidOptions) -> Self {
        let (pool, report) = Pool::create(dir, ENGINE, FORMAT, options.pool.clone()).expect("a pool");
        let toy = Arc::new(Toy::default());
        let store = FluidKv::start_separating(Arc::clone(&pool), &report, options, Arc::clone(&toy) as _);
        Self::of(store.expect("a store"), toy, pool)
    }

    fn of(store: FluidKv, toy: Arc<Toy>, pool: Arc<Pool>) -> Self {
        let store = Arc::new(store);
        let _ = toy.store.set(Arc::downgrade(&store));
        store.begin_workers().expect("threads");
        Self { store, toy, pool }
    }

    /// Drops the store, which is a crash unless it was closed. Opens it again with the values that
    /// the toy has kept.
    pub fn reopen(self, dir: &Path, options: &FluidOptions) -> Self {
        let Self { store, toy, pool } = self;
        drop((store, pool));
        let kept = std::mem::take(&mut *lock(&toy.kept));
        let next = AtomicU64::new(toy.next.load(Ordering::Relaxed));
        let toy = Arc::new(Toy { kept: Mutex::new(kept), next, ..Toy::default() });
        let (pool, report) = Pool::open(dir, ENGINE, FORMAT, options.pool.clone()).expect("a pool");
        let store = FluidKv::start_separating(Arc::clone(&pool), &report, options, Arc::clone(&toy) as _);
        Self::of(store.expect("a store"), toy, pool)
    }

    pub fn try_put(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        self.store.put_expiring(key, &inline(value), expiry)
    }

    pub fn put(&self, key: &[u8], value: &[u8]) {
        self.try_put(key, value, None).expect("put");
    }

    /// Returns the stored bytes of a key.
    pub fn stored(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.store.get(key).expect("get")
    }

    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.stored(key).map(|stored| self.toy.decode(&stored))
    }

    pub fn is_apart(&self, key: &[u8]) -> bool {
        self.stored(key).is_some_and(|stored| stored.last() == Some(&APART))
    }

    /// Returns all pairs that a snapshot shows.
    pub fn pairs(&self, snapshot: &dyn Snapshot, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
        let range = ScanRange { direction, ..ScanRange::all() };
        let scan = snapshot.scan(&range).expect("scan");
        scan.map(|entry| entry.map(|entry| (entry.key().to_vec(), self.toy.decode(entry.value()))))
            .collect::<Result<_>>()
            .expect("read")
    }

    pub fn assert_clean(&self) {
        let report = self.store.verify(&mut |_| ()).expect("verify");
        assert!(report.is_clean(), "{report:?}");
    }
}

/// Returns the stored bytes of a value that is not separated.
pub fn inline(value: &[u8]) -> Vec<u8> {
    [value, &[INLINE]].concat()
}

pub fn full() -> Error {
    Error::Full { needed: 1, capacity: 2 }
}

pub fn refused() -> Error {
    Error::io("writing", "the toy", std::io::Error::from_raw_os_error(24))
}

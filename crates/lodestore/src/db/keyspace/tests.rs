//! The order of writes, with a stop after each of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lodestore_contract::testing::Scratch;
use lodestore_contract::threads::limit_thread_starts;
use lodestore_contract::{
    Batch, Capabilities, ChangeFn, Durability, Error, Expiry, Lifetime, Pair, Progress, Result, Scan, ScanRange, Stats,
    Store, Swap, VerifyReport, Visit,
};

use super::key::id_of;
use super::record::{Header, SlotRecord, header_key, slot_key};
use crate::db::{Choice, Db};
use crate::options::{CreateOptions, OpenOptions};

const ENGINES: &[&str] = &[
    #[cfg(feature = "hikv")]
    "hikv",
    #[cfg(feature = "nvht")]
    "nvht",
    #[cfg(feature = "fluidkv")]
    "fluidkv",
    #[cfg(feature = "mkvs")]
    "mkvs",
];

/// A write or a sync requested from a store.
#[derive(Debug, PartialEq)]
enum Step {
    Put(Vec<u8>),
    Delete,
    Sync,
}

/// A store that refuses all writes after the first `writes_left`, as if the process were killed.
struct Stopping {
    store: Arc<dyn Store>,
    writes_left: Mutex<u32>,
    steps: Mutex<Vec<Step>>,
    /// The visits after which a scan finds damage; 0: none.
    visits_to_damage: AtomicUsize,
    /// The next puts of slots that fail but take effect.
    doubtful_puts: AtomicUsize,
    /// The next puts of slots that are refused as by a full store.
    refused_puts: AtomicUsize,
}

impl Stopping {
    fn note(&self, step: Step) -> Result<()> {
        let mut left = self.writes_left.lock().expect("no panic");
        let stopped = || Error::Poisoned { cause: "the test stops the store".into() };
        *left = left.checked_sub(1).ok_or_else(stopped)?;
        self.steps.lock().expect("no panic").push(step);
        Ok(())
    }

    fn take_steps(&self) -> Vec<Step> {
        std::mem::take(&mut self.steps.lock().expect("no panic"))
    }
}

impl Store for Stopping {
    fn engine(&self) -> &'static str {
        self.store.engine()
    }
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.store.get_into(key, value)
    }
    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.store.contains(key)
    }
    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.store.multi_get(keys, each)
    }
    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.store.expiry(key)
    }
    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        self.note(Step::Put(key.to_vec()))?;
        let is_slot = id_of(key) == Some(0) && *key != *header_key();
        let next = |left: usize| left.checked_sub(1);
        if is_slot && self.refused_puts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
            return Err(Error::Full { needed: 1, capacity: 1 });
        }
        self.store.put_expiring(key, value, expiry)?;
        if is_slot && self.doubtful_puts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
            return Err(Error::TooFewDevices { group: 0, live: 1, needed: 2, may_stand: true });
        }
        Ok(())
    }
    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.store.insert(key, value, lifetime)
    }
    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.store.update(key, value, lifetime)
    }
    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.note(Step::Delete)?;
        self.store.delete(key)
    }
    fn compare_and_swap(&self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>, life: Lifetime) -> Result<Swap> {
        self.store.compare_and_swap(key, old, new, life)
    }
    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        self.store.update_with(key, change)
    }
    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        let visits_max = self.visits_to_damage.load(Ordering::Relaxed);
        if visits_max == 0 || range.limit < visits_max {
            return self.store.scan_each(range, visit);
        }
        let visits = self.store.scan_each(&range.clone().limit(visits_max), visit)?;
        if visits == visits_max { Err(Error::corrupt("a test", "damage")) } else { Ok(visits) }
    }
    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        self.store.scan(range)
    }
    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        self.store.for_each_pair(visit)
    }
    fn write(&self, batch: &Batch) -> Result<()> {
        // Only the reclaim writes batches here.
        self.note(Step::Delete)?;
        self.store.write(batch)
    }
    fn len(&self) -> Result<u64> {
        self.store.len()
    }
    fn stats(&self) -> Stats {
        self.store.stats()
    }
    fn sync(&self) -> Result<()> {
        self.note(Step::Sync)
    }
    fn wait_recovered(&self) -> Result<()> {
        self.store.wait_recovered()
    }
    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.store.verify(progress)
    }
    fn close(&self) -> Result<()> {
        self.store.close()
    }
}

/// Opens the store at `path` with `engine`, or creates it. The handle stops after `writes` writes.
fn open(path: &Path, engine: &str, durability: Durability, writes: u32) -> (Db, Arc<Stopping>) {
    let opened = crate::store::open(path, &OpenOptions::new());
    let size = if engine == "mkvs" { 256 << 20 } else { 32 << 20 };
    let created = || crate::store::create(path, &CreateOptions::new().engine(engine).size(size));
    let store = opened.or_else(|_| created()).expect("a store").into_store();
    let (writes_left, steps, visits_to_damage) = (Mutex::new(writes), Mutex::default(), AtomicUsize::new(0));
    let [doubtful_puts, refused_puts] = [0, 0].map(AtomicUsize::new);
    let stopping = Arc::new(Stopping { store, writes_left, steps, visits_to_damage, doubtful_puts, refused_puts });
    let choice = Choice { engine: stopping.engine(), durability, reason: "a test".into() };
    (Db::of(Arc::clone(&stopping) as Arc<dyn Store>, choice), stopping)
}

#[test]
fn each_step_is_durable_before_the_next_one() {
    let _threads = limit_thread_starts(usize::MAX);
    for &engine in ENGINES {
        let dir = Scratch::new();
        let (header, slot) = (|| Step::Put(header_key()), || Step::Put(slot_key(0)));
        let (db, steps) = open(&dir.store(), engine, Durability::Interval(Duration::from_secs(1)), u32::MAX);
        let users = db.keyspace("users").expect("creates");
        assert_eq!(steps.take_steps(), [header(), Step::Sync, slot(), Step::Sync], "{engine}");
        users.put("k", "v").expect("put");
        db.keyspace("users").expect("opens");
        assert_eq!(steps.take_steps(), [Step::Put(b"\xff\xff\x02k".to_vec())], "{engine}");
        assert!(db.drop_keyspace("users").expect("drops"));
        db.settle().expect("a settle");
        let dropped = [slot(), Step::Sync, Step::Delete, Step::Sync, slot(), Step::Sync];
        assert_eq!(steps.take_steps(), dropped, "{engine}");
        drop((users, db));
        let (db, steps) = open(&dir.store(), engine, Durability::Process, u32::MAX);
        db.keyspace("users").expect("creates");
        assert_eq!(steps.take_steps(), [header(), slot()], "no syncs without an interval: {engine}");
    }
}

/// The keyspaces `a` and `b` by the answers of a script.
#[derive(Debug, Default)]
struct Answers {
    /// Whether each was created, and its record put.
    has: [bool; 2],
    /// The keyspace whose creation, put or drop was started last, and may be done or not.
    in_doubt: Option<usize>,
}

const NAMES: [&str; 2] = ["a", "b"];

/// Creates and drops keyspaces until the store stops. Returns whether the script reached its end.
fn run_script(db: &Db, answers: &mut Answers) -> Result<()> {
    let create = |answers: &mut Answers, at: usize| {
        answers.in_doubt = Some(at);
        let map = db.keyspace(NAMES[at])?;
        assert_eq!(map.count()?, 0, "a new keyspace has records of an old one");
        map.put("k", NAMES[at])?;
        (answers.has[at], answers.in_doubt) = (true, None);
        Ok(())
    };
    let remove = |answers: &mut Answers, at: usize| {
        answers.in_doubt = Some(at);
        assert!(db.drop_keyspace(NAMES[at])?);
        (answers.has[at], answers.in_doubt) = (false, None);
        db.settle()
    };
    create(answers, 0)?;
    create(answers, 1)?;
    remove(answers, 0)?;
    create(answers, 0)?;
    remove(answers, 1)?;
    remove(answers, 0)?;
    create(answers, 1)
}

/// Checks the catalogue's records, and that all records of keyspaces have one. Returns the next id.
fn check_records(store: &dyn Store, name: &str) -> u32 {
    let mut known = vec![0, 1];
    let header = store.get(&header_key()).expect("get").map(|value| Header::decode(&value).expect("a header"));
    let next_id = header.map_or(2, |header| header.next_id);
    for number in 0..=header.map_or(0, |header| header.slots) {
        let Some(value) = store.get(&slot_key(number)).expect("get") else { continue };
        if let SlotRecord::Live { id, .. } | SlotRecord::Dead { id, .. } =
            SlotRecord::decode(number, &value).expect("a slot")
        {
            assert!((2..next_id).contains(&id) && !known.contains(&id), "{name}: id {id} of {known:?}");
            known.push(id);
        }
    }
    let each = |key: &[u8], _: &[u8]| {
        assert!(id_of(key).is_none_or(|id| known.contains(&id)), "{name}: {key:?} belongs to no keyspace");
        Visit::More
    };
    store.for_each(&mut { each }).expect("a walk");
    next_id
}

#[test]
fn a_stop_after_any_write_leaves_each_keyspace_complete_or_absent_and_no_id_is_reused() {
    let _threads = limit_thread_starts(usize::MAX);
    for &engine in ENGINES {
        let mut is_over = false;
        for writes in 0.. {
            let (dir, name) = (Scratch::new(), format!("{engine} after {writes} writes"));
            let mut answers = Answers::default();
            let (db, stopping) = open(&dir.store(), engine, Durability::Process, writes);
            match run_script(&db, &mut answers) {
                Ok(()) => is_over = true,
                Err(Error::Poisoned { .. }) => {}
                Err(error) => panic!("{name}: {error}"),
            }
            let next_id = check_records(&*stopping.store, &name);
            drop((db, stopping));
            let (db, stopping) = open(&dir.store(), engine, Durability::Process, u32::MAX);
            let names = db.keyspaces().expect("names");
            for (at, has) in answers.has.into_iter().enumerate() {
                let found = names.iter().any(|name| name == NAMES[at]);
                assert!(found == has || answers.in_doubt == Some(at), "{name}: {answers:?} {names:?}");
                let map = db.keyspace(NAMES[at]).expect("opens or creates");
                let value = map.get("k").expect("get");
                assert!(value.is_none() || found, "{name}: a new keyspace has records of an old one");
                assert!(value.is_none_or(|value| value == NAMES[at]), "{name}");
                assert!(!has || answers.in_doubt == Some(at) || map.contains("k").expect("get"), "{name}");
            }
            db.keyspace("new").and_then(|map| map.put("k", "v")).expect("creates");
            db.settle().expect("a settle");
            assert!(check_records(&*stopping.store, &name) > next_id, "{name}");
            if is_over {
                break;
            }
        }
    }
}

#[test]
fn a_drop_works_without_a_thread_and_a_settle_frees_the_space() {
    let Some(engine) = ENGINES.first() else { return };
    let dir = Scratch::new();
    let (db, stopping) = open(&dir.store(), engine, Durability::Process, u32::MAX);
    let users = db.keyspace("users").expect("creates");
    users.put("k", "v").expect("put");
    let threads = limit_thread_starts(0);
    assert!(db.drop_keyspace("users").expect("drops"));
    drop(threads);
    assert!(stopping.store.contains(b"\xff\xff\x02k").expect("contains"), "nothing was removed");
    db.settle().expect("a settle");
    assert!(!stopping.store.contains(b"\xff\xff\x02k").expect("contains"));
}

#[test]
fn a_walk_and_a_reclaim_skip_damage_that_stops_a_scan() {
    let _threads = limit_thread_starts(usize::MAX);
    for engine in ["hikv", "fluidkv"].into_iter().filter(|engine| ENGINES.contains(engine)) {
        let dir = Scratch::new();
        let (db, stopping) = open(&dir.store(), engine, Durability::Process, u32::MAX);
        let users = db.keyspace("users").expect("creates");
        for number in 0..400_u16 {
            users.put(number.to_le_bytes(), "v").expect("put");
            db.put(number.to_le_bytes(), "v").expect("put");
        }
        stopping.visits_to_damage.store(100, Ordering::Relaxed);
        for map in [&users, &db.default] {
            let mut keys = BTreeSet::new();
            let walked = map.for_each(|key, _| {
                assert!(keys.insert(key.to_vec()), "{engine}: {key:?} is shown twice");
                Visit::More
            });
            assert!(matches!(walked, Err(Error::Corrupt { .. })), "{engine}: {walked:?}");
            assert_eq!(keys.len(), 400, "{engine}");
        }
        assert!(db.drop_keyspace("users").expect("drops"));
        db.settle().expect("a settle");
        stopping.visits_to_damage.store(0, Ordering::Relaxed);
        check_records(&*stopping.store, engine);
        assert_eq!(stopping.store.len().expect("len"), 402, "the default pairs, the header and a free slot: {engine}");
    }
}

const DURABILITY: Durability = Durability::Process;

#[test]
fn a_failed_creation_that_took_effect_uses_one_slot_for_its_name() {
    for &engine in ENGINES {
        let dir = Scratch::new();
        let (db, stopping) = open(&dir.store(), engine, DURABILITY, u32::MAX);
        db.keyspace("z").expect("creates");
        stopping.doubtful_puts.store(1, Ordering::Relaxed);
        assert!(matches!(db.keyspace("a").map(drop), Err(Error::TooFewDevices { .. })), "{engine}");
        assert!(db.drop_keyspace("z").expect("drops"));
        db.settle().expect("removes");
        db.keyspace("a").expect("creates").put("key", "value").expect("put");
        drop((db, stopping));
        let (db, _stopping) = open(&dir.store(), engine, DURABILITY, u32::MAX);
        assert_eq!(db.keyspaces().expect("names"), ["a"], "{engine}");
        assert!(db.keyspace("a").expect("opens").contains("key").expect("get"), "{engine}");
    }
}

#[test]
fn no_write_is_acknowledged_after_a_failed_drop_that_took_effect() {
    for (engine, failures) in ENGINES.iter().copied().flat_map(|engine| [(engine, 1), (engine, 2)]) {
        let dir = Scratch::new();
        let (db, stopping) = open(&dir.store(), engine, DURABILITY, u32::MAX);
        let map = db.keyspace("a").expect("creates");
        map.put("before", "value").expect("put");
        stopping.doubtful_puts.store(failures, Ordering::Relaxed);
        assert!(matches!(db.drop_keyspace("a"), Err(Error::TooFewDevices { .. })), "{engine}");
        match map.put("after", "value") {
            Ok(()) => assert_eq!(failures, 1, "{engine}: the slot could not be restored"),
            Err(Error::KeyspaceDropped { .. }) => {
                assert_eq!(failures, 2, "{engine}: the slot was restored");
                db.keyspace("a").expect("restores").put("after", "value").expect("put");
            }
            Err(error) => panic!("{engine}: {error}"),
        }
        drop((map, db, stopping));
        let (db, _stopping) = open(&dir.store(), engine, DURABILITY, u32::MAX);
        let map = db.keyspace("a").expect("opens");
        assert_eq!(map.count().expect("count"), 2, "{engine}");
        assert!(db.drop_keyspace("a").expect("drops"));
    }
}

#[test]
fn reads_and_deletes_work_after_a_full_store_refuses_a_drop_and_a_creation() {
    for &engine in ENGINES {
        let dir = Scratch::new();
        let (db, stopping) = open(&dir.store(), engine, DURABILITY, u32::MAX);
        let map = db.keyspace("a").expect("creates");
        map.put("key", "value").expect("put");
        // A refused put is not repeated: the second one here would be refused, too.
        stopping.refused_puts.store(2, Ordering::Relaxed);
        assert!(matches!(db.drop_keyspace("a"), Err(Error::Full { .. })), "{engine}");
        assert!(map.contains("key").expect("a read") && db.keyspace("a").is_ok(), "{engine}");
        assert!(matches!(db.keyspace("b").map(drop), Err(Error::Full { .. })), "{engine}");
        assert_eq!(stopping.refused_puts.load(Ordering::Relaxed), 0, "{engine}");
        assert!(map.delete("key").expect("a delete"), "{engine}");
        assert!(db.drop_keyspace("a").expect("drops"), "{engine}");
        db.keyspace("b").expect("creates");
        drop((map, db, stopping));
        let (db, _stopping) = open(&dir.store(), engine, DURABILITY, u32::MAX);
        assert_eq!(db.keyspaces().expect("names"), ["b"], "{engine}");
    }
}

//! Random operations on tables that begin with a line or two, with short probes. One test compares
//! with a `BTreeMap` across stops and opens. The other uses threads, with a reader for which no key
//! may ever be missing.
//!
//! Everything depends on a seed, which a failure prints: `LODESTORE_SEED` replaces it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::{Scratch, small_dax};
use lodestore_contract::conformance::{Rng, seed, version_of, versioned};
use lodestore_contract::{Batch, BatchOp, Change, Error, Expiry, Lifetime, Store, Swap, Visit};
use lodestore_media::PoolOptions;
use lodestore_nvht::{HashKind, Nvht, NvhtOptions};

/// Expiries that no test reaches: in the distant past, and in the far future.
const PAST: u64 = 1000;
const FAR: u64 = 1 << 52;

/// A value, and whether its key has an expiry.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, bool)>;

/// Returns a small shape: one to four partitions, one to three lines of probing, few slots
/// initially.
fn shape(rng: &mut Rng) -> NvhtOptions {
    let probe = *rng.pick(&[7, 14, 21]);
    NvhtOptions {
        pool: PoolOptions { region_bytes: 4 << 20, ..small_dax().pool },
        partitions: 1 << rng.below(3),
        initial_capacity: 1 + rng.below(30) as u32,
        load_percent: *rng.pick(&[50, 80, 95]),
        probe_length: probe,
        hash: *rng.pick(&[HashKind::Murmur3, HashKind::Xxh3]),
        hash_seed: Some(rng.next_u64()),
        ..small_dax()
    }
}

/// Returns one of `keys` keys: short ones, long ones, and prefixes of each other.
fn key(rng: &mut Rng, keys: usize) -> Vec<u8> {
    let index = rng.below(keys);
    let tail = if index.is_multiple_of(17) { 300 } else { index % 5 };
    [&format!("key {index}").into_bytes()[..], &vec![b'x'; tail]].concat()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(20) {
        0 => 0,
        1 => rng.below(5000),
        _ => rng.below(90),
    };
    rng.bytes(len)
}

/// A store, its expected content, and its history.
struct Sequence {
    scratch: Scratch,
    options: NvhtOptions,
    store: Option<Nvht>,
    model: Model,
    /// Keys put with a past expiry since the last sweep: `len` may also count these.
    expired: u64,
    keys: usize,
    /// Tables grown before the last open.
    grown: u64,
}

impl Sequence {
    fn new(rng: &mut Rng) -> Self {
        let (scratch, options) = (Scratch::new(), shape(rng));
        let store = Nvht::create(&scratch.store(), &options).expect("create");
        let keys = *rng.pick(&[20, 200, 1500]);
        Self { scratch, options, store: Some(store), model: Model::new(), expired: 0, keys, grown: 0 }
    }

    fn store(&self) -> &Nvht {
        self.store.as_ref().expect("open but for a moment")
    }

    fn current_value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.model.get(key).map(|(value, _)| value.clone())
    }

    /// Returns a random expiry, and updates the model for a put with it.
    fn put_expiring(&mut self, rng: &mut Rng, key: Vec<u8>, value: Vec<u8>) -> Option<Expiry> {
        let millis = *rng.pick(&[None, None, Some(FAR), Some(PAST)]);
        if millis == Some(PAST) {
            self.model.remove(&key);
            self.expired += 1;
        } else {
            self.model.insert(key, (value, millis.is_some()));
        }
        millis.map(Expiry::at_millis)
    }

    fn step(&mut self, rng: &mut Rng) {
        let (key, value) = (key(rng, self.keys), value(rng));
        let current_value = self.current_value(&key);
        match rng.below(40) {
            0..=11 => {
                self.store().put(&key, &value).expect("put");
                self.model.insert(key, (value, false));
            }
            12..=14 => {
                let expiry = self.put_expiring(rng, key.clone(), value.clone());
                self.store().put_expiring(&key, &value, expiry).expect("put_expiring");
            }
            15..=18 => {
                assert_eq!(
                    self.store().insert(&key, &value, Lifetime::Forever).expect("insert"),
                    current_value.is_none()
                );
                self.model.entry(key).or_insert((value, false));
            }
            19..=21 => {
                assert_eq!(
                    self.store().update(&key, &value, Lifetime::Forever).expect("update"),
                    current_value.is_some()
                );
                if current_value.is_some() {
                    self.model.insert(key, (value, false));
                }
            }
            22..=27 => {
                assert_eq!(self.store().delete(&key).expect("delete"), current_value.is_some());
                self.model.remove(&key);
            }
            28..=29 => self.swap(rng, key, value, current_value),
            30 => self.update_with(rng, key, value, current_value),
            31..=33 => self.batch(rng),
            34..=36 => {
                assert_eq!(self.store().get(&key).expect("get"), current_value);
                let expiry = self.model.get(&key).map(|(_, expires)| expires.then(|| Expiry::at_millis(FAR)));
                assert_eq!(self.store().expiry(&key).expect("expiry"), expiry);
            }
            37 => {
                self.store().sweep_expired().expect("sweep");
                self.expired = 0;
            }
            38 if rng.below(4) == 0 => self.reopen(rng.below(2) == 0),
            _ if rng.below(20) == 0 => self.check(),
            _ => assert_eq!(self.store().contains(&key).expect("contains"), current_value.is_some()),
        }
    }

    fn swap(&mut self, rng: &mut Rng, key: Vec<u8>, value: Vec<u8>, current_value: Option<Vec<u8>>) {
        let (meets, new) = (rng.below(3) > 0, (rng.below(3) > 0).then_some(value));
        let other = current_value.is_none().then(|| b"not this".to_vec());
        let expected = if meets { &current_value } else { &other };
        let answer =
            self.store().compare_and_swap(&key, expected.as_deref(), new.as_deref(), Lifetime::Forever).expect("swap");
        assert_eq!(answer, if meets { Swap::Done } else { Swap::Differs(current_value.clone()) });
        match new {
            _ if !meets => {}
            Some(value) => drop(self.model.insert(key, (value, false))),
            None => drop(self.model.remove(&key)),
        }
    }

    fn update_with(&mut self, rng: &mut Rng, key: Vec<u8>, value: Vec<u8>, current_value: Option<Vec<u8>>) {
        let change = match rng.below(3) {
            0 => Change::Keep,
            1 => Change::Delete,
            _ => Change::Put(value.clone(), Lifetime::Forever),
        };
        let update = self.store().update_with(&key, &mut |now, _| {
            assert_eq!(now, current_value.as_deref());
            change.clone()
        });
        update.expect("update_with");
        match change {
            Change::Keep => {}
            Change::Delete => drop(self.model.remove(&key)),
            Change::Put(..) => drop(self.model.insert(key, (value, false))),
        }
    }

    /// Writes some keys, perhaps one twice: the last operation counts. Sometimes writes a batch
    /// that is refused as a whole.
    fn batch(&mut self, rng: &mut Rng) {
        let most = *rng.pick(&[3, 12, 60]);
        let mut ops = Vec::new();
        let (before, expired) = (self.model.clone(), self.expired);
        for _ in 0..1 + rng.below(most) {
            let (key, value) = (key(rng, self.keys), value(rng));
            if rng.below(3) == 0 {
                self.model.remove(&key);
                ops.push(BatchOp::Delete { key });
            } else {
                let expiry = self.put_expiring(rng, key.clone(), value.clone());
                ops.push(BatchOp::Put { key, value, expiry });
            }
        }
        if rng.below(10) == 0 {
            ops.push(BatchOp::Delete { key: Vec::new() });
            let refused = self.store().write(&Batch { ops });
            assert!(matches!(refused, Err(Error::KeyLength { len: 0, .. })), "{refused:?}");
            (self.model, self.expired) = (before, expired);
            return;
        }
        self.store().write(&Batch { ops }).expect("write");
    }

    fn reopen(&mut self, clean: bool) {
        if clean {
            self.store().close().expect("close");
        }
        self.grown += self.store().stats().engine_counters["tables_grown"];
        // Dropped before its directory is opened again.
        self.store = None;
        self.store = Some(Nvht::open(&self.scratch.store(), &self.options).expect("open"));
    }

    /// Compares the store with the model.
    fn check(&self) {
        let mut seen = BTreeMap::new();
        let walk = self.store().for_each(&mut |key, value| {
            assert!(seen.insert(key.to_vec(), value.to_vec()).is_none(), "for_each shows {key:?} twice");
            Visit::More
        });
        assert_eq!(walk.expect("for_each"), self.model.len() as u64);
        assert!(seen.iter().eq(self.model.iter().map(|(key, (value, _))| (key, value)).collect::<BTreeMap<_, _>>()));
        let keys: Vec<&[u8]> = self.model.keys().map(Vec::as_slice).collect();
        let mut found = Vec::new();
        let each = &mut |_, value: Option<&[u8]>| found.push(value.map(<[u8]>::to_vec));
        self.store().multi_get(&keys, each).expect("multi_get");
        assert!(found.into_iter().eq(self.model.values().map(|(value, _)| Some(value.clone()))));
        let (len, least) = (self.store().len().expect("len"), self.model.len() as u64);
        assert!((least..=least + self.expired).contains(&len), "len {len}, {least} live, {} expired", self.expired);
        assert_eq!(self.store().verify(&mut |_| ()).expect("verify").findings, []);
    }
}

#[test]
fn random_operations_on_small_tables_match_a_btreemap() {
    const SEQUENCES: u64 = 40;
    println!("LODESTORE_SEED={:#x}", seed());
    let mut grown = 0;
    for number in 0..SEQUENCES {
        let mut rng = Rng::new(seed() ^ number);
        let mut sequence = Sequence::new(&mut rng);
        println!("sequence {number}: {} keys, {:?}", sequence.keys, {
            let NvhtOptions { partitions, initial_capacity, load_percent, probe_length, hash, .. } = sequence.options;
            (partitions, initial_capacity, load_percent, probe_length, hash)
        });
        for _ in 0..1200 {
            sequence.step(&mut rng);
        }
        for clean in [false, true] {
            sequence.reopen(clean);
            sequence.check();
        }
        grown += sequence.grown;
    }
    assert!(grown >= SEQUENCES, "{grown} tables grown in {SEQUENCES} sequences");
    println!("{grown} tables grown");
}

/// Each key, once present, stays present with rising versions. Two threads write their own keys
/// each, while tables grow.
#[test]
fn a_reader_finds_every_key_with_a_version_not_older_than_it_saw_while_two_threads_write() {
    const WRITERS: usize = 2;
    const KEYS: usize = 6000;
    println!("LODESTORE_SEED={:#x}", seed());
    let name = |writer: usize, index: usize| format!("{writer} of {index}").into_bytes();
    for round in 0..4 {
        let (scratch, mut rng) = (Scratch::new(), Rng::new(seed() ^ 0x77 << 8 ^ round));
        let options = shape(&mut rng);
        let store = Nvht::create(&scratch.store(), &options).expect("create");
        // The newest version that is certainly present, and the newest that was begun; 0: none.
        let words = || (0..WRITERS * KEYS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (acknowledged, begun, done) = (words(), words(), AtomicBool::new(false));
        let write = |writer: usize| {
            let mut rng = Rng::new(seed() ^ round << 16 ^ writer as u64);
            let mut newest = 0;
            while newest < KEYS {
                // A new key or an old one, alone or with two more in a batch.
                let some = if rng.below(4) == 0 { 3 } else { 1 };
                let mut indices: Vec<usize> = (0..some).map(|_| rng.below(newest + 1)).collect();
                indices[0] = if rng.below(2) == 0 { newest } else { indices[0] };
                newest += usize::from(indices.contains(&newest));
                indices.sort_unstable();
                indices.dedup();
                let slots: Vec<usize> = indices.iter().map(|index| writer * KEYS + index).collect();
                let put = |(index, slot): (&usize, &usize)| {
                    let (key, version) = (name(writer, *index), begun[*slot].fetch_add(1, Ordering::SeqCst) + 1);
                    let len = (version % 60) as usize;
                    BatchOp::Put { value: versioned(&key, version, len), key, expiry: None }
                };
                let ops: Vec<BatchOp> = indices.iter().zip(&slots).map(put).collect();
                match &ops[..] {
                    [BatchOp::Put { key, value, .. }] => store.put(key, value).expect("put"),
                    _ => store.write(&Batch { ops }).expect("write"),
                }
                for slot in slots {
                    acknowledged[slot].store(begun[slot].load(Ordering::SeqCst), Ordering::SeqCst);
                }
            }
        };
        let read = |rng: &mut Rng| {
            let (writer, index) = (rng.below(WRITERS), rng.below(KEYS));
            let (key, slot) = (name(writer, index), writer * KEYS + index);
            let least = acknowledged[slot].load(Ordering::SeqCst);
            let found = store.get(&key).expect("get").map(|value| version_of(&key, &value).expect("a value written"));
            let most = begun[slot].load(Ordering::SeqCst);
            let seen = found.unwrap_or(0);
            assert!(
                (least..=most).contains(&seen),
                "{key:?}: version {seen}, of {least} to {most}; seed {:#x}",
                seed()
            );
            acknowledged[slot].fetch_max(seen, Ordering::SeqCst);
        };
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    read(&mut rng)
                }
            });
            let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            done.store(true, Ordering::Release);
            ended.into_iter().for_each(|ended| ended.expect("a writer ends well"));
        });
        assert!(store.stats().engine_counters["tables_grown"] >= 6);
        assert_eq!(store.len().expect("len"), (WRITERS * KEYS) as u64);
        assert_eq!(store.verify(&mut |_| ()).expect("verify").findings, []);
    }
}

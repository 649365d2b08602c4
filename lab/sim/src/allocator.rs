//! The pool and its allocator alone, under an engine that only holds records and extents.
//!
//! The pool's root area is a list of `SLOTS` words. A word that is not zero names a *thing*: a
//! record, or (lowest bit) an extent of the engine, with a key and its value.
//!
//! * A put stores the thing, flushes, fences; stores its word, flushes, fences; then frees the
//!   replaced thing.
//! * A delete stores a zero word, flushes, fences, and frees the thing.
//! * An open after a crash reads the words, checks and marks every thing, and ends the recovery.
//!
//! After each crash every thing is therefore marked, intact and held once. Later allocations, also
//! during recovery, overlap none of them. The explorer compares the live bytes to find leaks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lodestore_contract::{Direction, Error, Result, VerifyReport, now_millis};
use lodestore_media::sim::{Recorder, SimImage, SimSpec};
use lodestore_media::{ExtentKind, NvPtr, OpenReport, PlantedFault, Pool, PoolOptions, crc32c, u32_at, u64_at};

use crate::faults::allocator as faults;
use crate::op::{Held, Op, Outcome, State};
use crate::shape::Shape;
use crate::subject::{Engine, Pair, Subject};

/// The engine of records and extents.
#[derive(Debug, Clone, Copy)]
pub struct AllocatorEngine;

/// Mode of a [`Shape`]: a replaced thing is freed at once instead of retired.
pub const AT_ONCE_MODE_FLAG: u32 = 1;
/// Mode of a [`Shape`]: wear does not affect the placement.
pub const NO_WEAR_MODE_FLAG: u32 = 2;
/// Mode of a [`Shape`]: things are allocated and freed during recovery.
pub const BUSY_RECOVERY_MODE_FLAG: u32 = 4;

const NAME: &str = "allocator";
const FORMAT: u32 = 1;
/// Maximum number of things.
const SLOTS: u64 = Pool::ROOT_BYTES / 8;
/// The bit of a word that marks an extent.
const EXTENT_FLAG: u64 = 1;
/// The kind of the extents.
const KIND: ExtentKind = ExtentKind::ENGINE;
/// checksum, value length, key length and whether it expires, expiry.
const HEAD_BYTES: usize = 24;
/// Lengths allocated during a recovery.
const BUSY: [usize; 4] = [40, 200, 900, 3000];

/// The location of a pair.
#[derive(Debug, Clone)]
struct Thing {
    slot: u64,
    word: u64,
    len: usize,
    held: Held,
}

impl Thing {
    fn at(&self) -> NvPtr {
        NvPtr::from_raw(self.word & !EXTENT_FLAG)
    }
}

struct Holder {
    pool: Arc<Pool>,
    at_once: bool,
    things: Mutex<BTreeMap<Vec<u8>, Thing>>,
}

fn options(shape: &Shape) -> PoolOptions {
    PoolOptions { wear_aware: shape.mode & NO_WEAR_MODE_FLAG == 0, ..shape.pool() }
}

impl Engine for AllocatorEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn mutants(&self) -> &'static [PlantedFault] {
        faults::OF_CRASHES
    }

    fn create(&self, spec: &SimSpec, shape: &Shape) -> Result<Box<dyn Subject>> {
        let (pool, _) = Pool::create_sim(spec, NAME, FORMAT, options(shape))?;
        pool.mark_created()?;
        Ok(Box::new(Holder { pool, at_once: shape.mode & AT_ONCE_MODE_FLAG != 0, things: Mutex::default() }))
    }

    fn open(&self, image: &SimImage, shape: &Shape) -> Result<Box<dyn Subject>> {
        let (pool, report) = Pool::open_sim(image, NAME, FORMAT, options(shape))?;
        pool.mark_created()?;
        let holder = Holder { pool, at_once: shape.mode & AT_ONCE_MODE_FLAG != 0, things: Mutex::default() };
        holder.recover(&report, shape)?;
        Ok(Box::new(holder))
    }
}

/// A thing's bytes.
fn encode(key: &[u8], held: &Held) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&(held.value.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&u32::from(held.expiry.is_some()).to_le_bytes());
    bytes.extend_from_slice(&held.expiry.unwrap_or(0).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&held.value);
    let check = crc32c(&[&bytes[4..]]);
    bytes[..4].copy_from_slice(&check.to_le_bytes());
    bytes
}

impl Holder {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Thing>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word_at(&self, slot: u64) -> NvPtr {
        assert!(slot < SLOTS);
        self.pool.root().add(slot * 8)
    }

    /// The thing that a word names.
    fn read(&self, slot: u64, word: u64) -> Result<(Vec<u8>, Thing)> {
        let at = NvPtr::from_raw(word & !EXTENT_FLAG);
        let wrong = |what: &str| Error::corrupt(format!("slot {slot}, {at:?}"), what);
        let head = self.pool.bytes(at, HEAD_BYTES).ok_or_else(|| wrong("it leads out of the pool"))?;
        let (value_len, key_len) = (u32_at(head, 4) as usize, u32_at(head, 8) as usize);
        let len = HEAD_BYTES + key_len + value_len;
        let bytes = self.pool.bytes(at, len).ok_or_else(|| wrong("it ends beyond the pool"))?;
        if crc32c(&[&bytes[4..]]) != u32_at(bytes, 0) {
            return Err(wrong("its bytes are not what was put there"));
        }
        let (key, value) = bytes[HEAD_BYTES..].split_at(key_len);
        let expiry = (u32_at(bytes, 12) == 1).then(|| u64_at(bytes, 16));
        Ok((key.to_vec(), Thing { slot, word, len, held: Held { value: value.to_vec(), expiry } }))
    }

    fn recover(&self, report: &OpenReport, shape: &Shape) -> Result<()> {
        let pool = &*self.pool;
        if !report.settled {
            // The store builds on stores that a killed process did not flush.
            pool.flush(pool.root(), Pool::ROOT_BYTES as usize);
            pool.fence();
        }
        let mut things = self.lock();
        for slot in 0..SLOTS {
            let word = pool.load_u64(self.word_at(slot));
            if word != 0 {
                let (key, thing) = self.read(slot, word)?;
                if things.insert(key, thing).is_some() {
                    return Err(Error::corrupt(format!("slot {slot}"), "a key that is held twice"));
                }
            }
        }
        if !pool.allocator().is_recovering() {
            return Ok(());
        }
        let busy = if shape.mode & BUSY_RECOVERY_MODE_FLAG == 0 { Vec::new() } else { self.hand_out(&things)? };
        for thing in things.values() {
            if thing.word & EXTENT_FLAG != 0 {
                pool.allocator().mark_extent(pool, thing.at(), KIND)?;
            } else if !(thing.slot % 7 == 3 && pool.has_fault(faults::RECORD_NOT_MARKED)) {
                pool.allocator().mark(pool, thing.at(), thing.len)?;
            }
        }
        pool.allocator().finish_recovery(pool);
        for (at, len) in busy {
            pool.allocator().free(pool, at, len);
        }
        Ok(())
    }

    /// Allocates records, as a put does, while marking is in progress; none may overlap a thing.
    fn hand_out(&self, things: &BTreeMap<Vec<u8>, Thing>) -> Result<Vec<(NvPtr, usize)>> {
        let mut got = Vec::new();
        for len in BUSY {
            match self.pool.allocator().alloc(&self.pool, len) {
                Ok(at) => got.push((at, len)),
                Err(Error::Full { .. }) => break,
                Err(other) => return Err(other),
            }
        }
        let overlaps = |(at, len): &(NvPtr, usize)| {
            things.values().any(|thing| {
                at.region() == thing.at().region()
                    && at.offset() < thing.at().offset() + thing.len as u64
                    && thing.at().offset() < at.offset() + *len as u64
            })
        };
        match got.iter().find(|taken| overlaps(taken)) {
            Some((at, len)) => {
                Err(Error::corrupt(format!("{at:?}"), format!("{len} bytes of what is held were handed out")))
            }
            None => Ok(got),
        }
    }

    /// Stores this pair, replacing the key's previous one.
    fn put(&self, things: &mut BTreeMap<Vec<u8>, Thing>, key: &[u8], held: Held) -> Result<()> {
        let pool = &*self.pool;
        let bytes = encode(key, &held);
        let before = things.get(key).cloned();
        let slot = match &before {
            Some(thing) => thing.slot,
            None => {
                let used: std::collections::BTreeSet<u64> = things.values().map(|thing| thing.slot).collect();
                let free = (0..SLOTS).find(|slot| !used.contains(slot));
                free.ok_or(Error::Full { needed: 8, capacity: Pool::ROOT_BYTES })?
            }
        };
        // Sizes of both kinds: one third of the things are extents.
        let extent = bytes.len().is_multiple_of(3);
        let at = if extent {
            pool.allocator().alloc_extent(pool, bytes.len() as u64, KIND)?
        } else {
            pool.allocator().alloc(pool, bytes.len())?
        };
        let word = at.raw() | (u64::from(extent) * EXTENT_FLAG);
        if pool.has_fault(faults::PUBLISH_BEFORE_RECORD) {
            self.publish(slot, word)?;
        }
        if let Some(thing) = before.as_ref().filter(|_| pool.has_fault(faults::REUSE_BEFORE_DURABLE)) {
            self.give_back(thing, true);
        }
        pool.store_and_flush(at, &[&bytes]);
        pool.fence_checked()?;
        let published = self.publish(slot, word);
        things.insert(key.to_vec(), Thing { slot, word, len: bytes.len(), held });
        // The old thing is freed only when nothing durable names it.
        published?;
        if let Some(thing) = before.filter(|_| !pool.has_fault(faults::REUSE_BEFORE_DURABLE)) {
            self.give_back(&thing, self.at_once);
        }
        Ok(())
    }

    #[track_caller]
    fn publish(&self, slot: u64, word: u64) -> Result<()> {
        let at = self.word_at(slot);
        self.pool.publish_u64(at, word);
        self.pool.flush(at, 8);
        self.pool.fence_checked()
    }

    fn give_back(&self, thing: &Thing, at_once: bool) {
        let pool = &*self.pool;
        match (thing.word & EXTENT_FLAG != 0, at_once) {
            (false, false) => pool.epochs().retire(pool, thing.at(), thing.len),
            (false, true) => pool.allocator().free(pool, thing.at(), thing.len),
            (true, false) => pool.epochs().retire_extent(pool, thing.at()),
            (true, true) => pool.allocator().free_extent(pool, thing.at()),
        }
    }

    fn delete(&self, things: &mut BTreeMap<Vec<u8>, Thing>, key: &[u8]) -> Result<()> {
        if let Some(thing) = things.remove(key) {
            if self.pool.has_fault(faults::REUSE_BEFORE_DURABLE) {
                self.give_back(&thing, true);
                return self.publish(thing.slot, 0);
            }
            self.publish(thing.slot, 0)?;
            self.give_back(&thing, self.at_once);
        }
        Ok(())
    }
}

fn is_live(held: &Held) -> bool {
    held.expiry.is_none_or(|at| at > now_millis())
}

impl Subject for Holder {
    fn recorder(&self) -> &Recorder {
        self.pool.recorder().expect("a simulated pool has a recorder")
    }

    fn wait_recovered(&self) -> Result<()> {
        Ok(())
    }

    fn apply(&self, op: &Op) -> Result<Outcome> {
        if !matches!(op, Op::Get { .. }) {
            self.pool.check()?;
        }
        if op.is_batch() {
            return Ok(Outcome::Full);
        }
        let mut things = self.lock();
        let Some(key) = op.key() else { return Ok(Outcome::Done) };
        // The model's semantics, as in the toy: this engine tests space only.
        let mut state = State::default();
        if let Some(thing) = things.get(key) {
            state.set(key.to_vec(), thing.held.clone());
        }
        let before = state.clone();
        let outcome = state.apply(op);
        if state == before {
            return Ok(outcome);
        }
        match state.all().next().map(|(_, held)| held.clone()) {
            None => self.delete(&mut things, key)?,
            Some(held) => match self.put(&mut things, key, held) {
                Err(Error::Full { .. }) => return Ok(Outcome::Full),
                other => other?,
            },
        }
        Ok(outcome)
    }

    fn get(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>> {
        let things = self.lock();
        let Some(thing) = things.get(key) else { return Ok(None) };
        // Reads the medium, so that overwritten things are detected.
        let (found, read) = self.read(thing.slot, self.pool.load_u64(self.word_at(thing.slot)))?;
        if found != key || read.word != thing.word {
            return Err(Error::corrupt(format!("slot {}", thing.slot), "it holds another thing"));
        }
        Ok(is_live(&read.held).then_some((read.held.value, read.held.expiry)))
    }

    fn scan(&self, direction: Direction) -> Result<Option<Vec<Pair>>> {
        let mut pairs = self.pairs()?;
        if direction == Direction::Backward {
            pairs.reverse();
        }
        Ok(Some(pairs))
    }

    fn pairs(&self) -> Result<Vec<Pair>> {
        let things = self.lock();
        let live = things.iter().filter(|(_, thing)| is_live(&thing.held));
        Ok(live.map(|(key, thing)| (key.clone(), thing.held.value.clone())).collect())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.lock().len() as u64)
    }

    fn verify(&self) -> Result<Vec<String>> {
        let mut report = VerifyReport::default();
        self.pool.allocator().verify(&self.pool, &mut report);
        let mut wrong: Vec<String> =
            report.findings.iter().map(|found| format!("{}: {}", found.place, found.what)).collect();
        let things = self.lock();
        let mut places: Vec<(NvPtr, usize)> = things.values().map(|thing| (thing.at(), thing.len)).collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            if pair[0].0.add(pair[0].1 as u64) > pair[1].0 {
                wrong.push(format!("{:?} and {:?} overlap", pair[0], pair[1]));
            }
        }
        let records = things.values().filter(|thing| thing.word & EXTENT_FLAG == 0).count() as u64;
        self.live_bytes();
        let counted = self.pool.allocator().live_records();
        if self.pool.epochs().waiting_bytes() == 0 && counted != records {
            wrong.push(format!("{records} records are held, the allocator counts {counted}"));
        }
        Ok(wrong)
    }

    fn live_bytes(&self) -> Option<u64> {
        for _ in 0..4 {
            self.pool.epochs().reclaim(&self.pool);
        }
        Some(self.pool.space().live)
    }

    fn close(&self) -> Result<()> {
        self.pool.close(true)
    }
}

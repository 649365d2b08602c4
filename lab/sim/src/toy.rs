//! The explorer's own test subject: a minimal engine with every kind of fault.
//!
//! The store is one region: a root word at 0, then two halves that hold a log of puts and deletes.
//! The root word names the half in use (lowest bit) and the bytes of its log. An append stores the
//! entry after the log, flushes, fences, then stores the root word, flushes, fences. A full log,
//! and every open, rewrites the live pairs into the other half.
//!
//! Persist order: entry bytes before the root word that covers them; the whole other half before
//! the root word that names it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lodestore_contract::{Direction, Error, Result, now_millis};
use lodestore_media::PlantedFault;
use lodestore_media::sim::{Recorder, SimImage, SimSpec};

use crate::faults::toy as faults;
use crate::op::{Held, Op, Outcome, State};
use crate::shape::Shape;
use crate::subject::{Engine, Pair, Subject};

/// The toy as an engine.
#[derive(Debug, Clone, Copy)]
pub struct Toy;

/// Bytes before the first half.
const HALVES_AT: u64 = 512;
/// Bytes of a half.
const HALF_BYTES: u64 = 8192 - 256;
/// Bytes of the region.
const REGION_BYTES: usize = (HALVES_AT + 2 * HALF_BYTES) as usize;
/// Kind, has expiry, key length, value length, expiry.
const HEAD_BYTES: usize = 16;
const PUT_ID: u8 = 1;
const DELETE_ID: u8 = 2;

/// A running toy.
struct ToyStore {
    recorder: Recorder,
    inner: Mutex<Inner>,
}

struct Inner {
    bytes: Vec<u8>,
    half: u64,
    len: u64,
    pairs: BTreeMap<Vec<u8>, Held>,
}

impl Engine for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn mutants(&self) -> &'static [PlantedFault] {
        faults::OF_CRASHES
    }

    // The toy writes to its recorder, without a pool that could be poisoned.
    fn sees_failed_syncs(&self) -> bool {
        false
    }

    fn create(&self, spec: &SimSpec, _: &Shape) -> Result<Box<dyn Subject>> {
        let recorder = Recorder::new(spec);
        recorder.region_added(0, REGION_BYTES as u64);
        let store = ToyStore::new(recorder, vec![0; REGION_BYTES]);
        store.lock().publish(&store.recorder, 0, 0);
        Ok(Box::new(store))
    }

    fn open(&self, image: &SimImage, _: &Shape) -> Result<Box<dyn Subject>> {
        let bytes = image.regions.first().cloned().unwrap_or_default();
        if bytes.len() != REGION_BYTES {
            return Err(Error::corrupt("toy region", "not of its length"));
        }
        let store = ToyStore::new(Recorder::new(&image.spec), bytes);
        store.lock().recover(&store.recorder)?;
        Ok(Box::new(store))
    }
}

impl ToyStore {
    fn new(recorder: Recorder, bytes: Vec<u8>) -> Self {
        Self { recorder, inner: Mutex::new(Inner { bytes, half: 0, len: 0, pairs: BTreeMap::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry(kind: u8, key: &[u8], held: &Held) -> Vec<u8> {
    let mut bytes = vec![kind, u8::from(held.expiry.is_some())];
    bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&(held.value.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&held.expiry.unwrap_or(0).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&held.value);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Returns the entry at the head of `log`: kind, key, value, and its bytes.
fn parse(log: &[u8]) -> Result<(u8, Vec<u8>, Held, usize)> {
    let wrong = || Error::corrupt("toy log", "an entry that cannot be");
    let head = log.get(..HEAD_BYTES).ok_or_else(wrong)?;
    let key_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let value_len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let mut expiry = [0; 8];
    expiry.copy_from_slice(&head[8..]);
    if !matches!(head[0], PUT_ID | DELETE_ID) || head[1] > 1 || key_len == 0 {
        return Err(wrong());
    }
    let key = log.get(HEAD_BYTES..HEAD_BYTES + key_len).ok_or_else(wrong)?.to_vec();
    let value = log.get(HEAD_BYTES + key_len..HEAD_BYTES + key_len + value_len).ok_or_else(wrong)?.to_vec();
    let expiry = (head[1] == 1).then(|| u64::from_le_bytes(expiry));
    Ok((head[0], key, Held { value, expiry }, (HEAD_BYTES + key_len + value_len).next_multiple_of(8)))
}

impl Inner {
    fn store(&mut self, recorder: &Recorder, at: u64, bytes: &[u8]) {
        self.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        recorder.store(0, at, bytes);
    }

    fn set_root(&mut self, recorder: &Recorder, half: u64, len: u64) {
        assert!(len <= HALF_BYTES && len.is_multiple_of(8));
        self.store(recorder, 0, &(len | half).to_le_bytes());
    }

    fn publish(&mut self, recorder: &Recorder, half: u64, len: u64) {
        self.set_root(recorder, half, len);
        recorder.flush(0, 0, 8);
        recorder.fence();
        (self.half, self.len) = (half, len);
    }

    fn start(half: u64) -> u64 {
        HALVES_AT + half * HALF_BYTES
    }

    fn append(&mut self, recorder: &Recorder, kind: u8, key: &[u8], held: &Held) -> Result<()> {
        let bytes = entry(kind, key, held);
        if self.len + bytes.len() as u64 > HALF_BYTES {
            self.rewrite(recorder);
            if self.len + bytes.len() as u64 > HALF_BYTES {
                return Err(Error::Full { needed: bytes.len() as u64, capacity: HALF_BYTES });
            }
        }
        let (half, at, len) = (self.half, Self::start(self.half) + self.len, self.len + bytes.len() as u64);
        if recorder.has_fault(faults::LENGTH_FIRST) {
            self.publish(recorder, half, len);
        }
        self.store(recorder, at, &bytes);
        recorder.flush(0, at, bytes.len() as u64);
        recorder.fence();
        if !recorder.has_fault(faults::LENGTH_FIRST) {
            self.publish(recorder, half, len);
        }
        Ok(())
    }

    /// Writes the live pairs into the other half and switches to it.
    fn rewrite(&mut self, recorder: &Recorder) {
        let other = if recorder.has_fault(faults::RECOVERY_TWICE) { self.half } else { 1 - self.half };
        let log: Vec<u8> = self.pairs.iter().flat_map(|(key, held)| entry(PUT_ID, key, held)).collect();
        self.store(recorder, Self::start(other), &log);
        recorder.flush(0, Self::start(other), log.len() as u64);
        recorder.fence();
        self.publish(recorder, other, log.len() as u64);
    }

    fn recover(&mut self, recorder: &Recorder) -> Result<()> {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[..8]);
        let root = u64::from_le_bytes(word);
        (self.half, self.len) = (root & 1, root & !1);
        if self.len > HALF_BYTES {
            return Err(Error::corrupt("toy root", "longer than a half"));
        }
        let start = Self::start(self.half) as usize;
        let mut at = start;
        while at < start + self.len as usize {
            let (kind, key, held, bytes) = parse(&self.bytes[at..start + self.len as usize])?;
            if kind == PUT_ID {
                self.pairs.insert(key, held);
            } else {
                self.pairs.remove(&key);
            }
            at += bytes;
        }
        self.rewrite(recorder);
        Ok(())
    }

    fn live(&self, key: &[u8]) -> Option<&Held> {
        self.pairs.get(key).filter(|held| held.expiry.is_none_or(|at| at > now_millis()))
    }
}

impl Subject for ToyStore {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn wait_recovered(&self) -> Result<()> {
        Ok(())
    }

    fn apply(&self, op: &Op) -> Result<Outcome> {
        if op.is_batch() {
            return Ok(Outcome::Full);
        }
        let mut inner = self.lock();
        let Some(key) = op.key() else { return Ok(Outcome::Done) };
        // The toy uses the model for its semantics: it tests persistence only.
        let mut state = State::default();
        if let Some(held) = inner.pairs.get(key) {
            state.set(key.to_vec(), held.clone());
        }
        let before = state.clone();
        let outcome = state.apply(op);
        if state != before {
            let after = state.all().next().map(|(_, held)| held.clone());
            let gone = Held { value: Vec::new(), expiry: None };
            let kind = if after.is_some() { PUT_ID } else { DELETE_ID };
            match inner.append(&self.recorder, kind, key, after.as_ref().unwrap_or(&gone)) {
                Err(Error::Full { .. }) => return Ok(Outcome::Full),
                other => other?,
            }
            match after {
                Some(held) => inner.pairs.insert(key.to_vec(), held),
                None => inner.pairs.remove(key),
            };
        }
        Ok(outcome)
    }

    fn get(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>> {
        Ok(self.lock().live(key).map(|held| (held.value.clone(), held.expiry)))
    }

    fn scan(&self, direction: Direction) -> Result<Option<Vec<Pair>>> {
        let mut pairs = self.pairs()?;
        if direction == Direction::Backward {
            pairs.reverse();
        }
        Ok(Some(pairs))
    }

    fn pairs(&self) -> Result<Vec<Pair>> {
        let inner = self.lock();
        let live = inner.pairs.keys().filter_map(|key| inner.live(key).map(|held| (key.clone(), held.value.clone())));
        Ok(live.collect())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.lock().pairs.len() as u64)
    }

    fn verify(&self) -> Result<Vec<String>> {
        let inner = self.lock();
        let mut word = [0; 8];
        word.copy_from_slice(&inner.bytes[..8]);
        let root = u64::from_le_bytes(word);
        Ok(if root == inner.len | inner.half { Vec::new() } else { vec![format!("root word is {root:#x}")] })
    }

    fn live_bytes(&self) -> Option<u64> {
        None
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

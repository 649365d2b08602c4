//! Writes to slots that a kill left uncounted, before recovery has checked their lines.
//!
//! A kill between the store of a slot and the store of its line's check leaves the slot uncounted.
//! The tests open such a store, and block recovery in another partition while they write.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use lodestore_contract::testing::{HANG_TIMEOUT, Scratch};
use lodestore_contract::{Batch, BatchOp, Durability, Event, EventSink, Result, Store, Visit};
use lodestore_media::{PoolOptions, Prefault};
use lodestore_nvht::{HashKind, Nvht, NvhtOptions};

const LINE: usize = 64;
const TABLE_ROOTS: usize = 8192 + 256;
const ROOT_BYTES: usize = 32;
/// Lines of each table that are examined: all home lines.
const LINES: usize = 20;
/// Keys of the store besides the one whose slot is uncounted.
const KEYS: u32 = 40;

fn options() -> NvhtOptions {
    NvhtOptions {
        pool: PoolOptions {
            capacity: 512 << 10,
            region_bytes: 256 << 10,
            durability: Durability::Process,
            prefault: Prefault::None,
            ..PoolOptions::default()
        },
        partitions: 2,
        initial_capacity: 280,
        hash: HashKind::Xxh3,
        hash_seed: Some(5),
        recovery_threads: 1,
        sweep_ms: 0,
        ..NvhtOptions::default()
    }
}

fn key(index: u32) -> Vec<u8> {
    format!("key{index:05}").into_bytes()
}

/// The bytes of a store's only region.
struct Medium {
    file: PathBuf,
    bytes: Vec<u8>,
}

impl Medium {
    fn read(store: &Path) -> Self {
        let file = store.join("pool.0000");
        let bytes = std::fs::read(&file).expect("readable");
        Self { file, bytes }
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Returns the offsets of the lines of a partition's table that have slots.
    fn used_lines(&self, partition: usize, lines: usize) -> Vec<usize> {
        let first = (self.word(TABLE_ROOTS + partition * ROOT_BYTES) & !63) as usize + LINE;
        let has_slots = |at: &usize| self.bytes[at + 8..at + LINE].iter().any(|byte| *byte != 0);
        (first..).step_by(LINE).take(lines).filter(has_slots).collect()
    }
}

/// Creates a killed store in which the slot of one key of partition 1 is uncounted, and a line of
/// partition 0 is zeroed. Returns the key and the number of keys in the zeroed line.
fn create_killed_store(path: &Path) -> (Vec<u8>, usize) {
    let store = Nvht::create(path, &options()).expect("create");
    (0..KEYS).for_each(|index| store.put(&key(index), b"value").expect("put"));
    let (before, uncounted, line) = (KEYS..)
        .find_map(|index| {
            let before = Medium::read(path);
            store.put(&key(index), b"value").expect("put");
            let after = Medium::read(path);
            let line = after.used_lines(1, LINES).into_iter().find(|at| before.word(*at) != after.word(*at));
            line.map(|line| (before, key(index), line))
        })
        .expect("a key of partition 1");
    drop(store);
    let mut medium = Medium::read(path);
    // The check from before the slot was counted.
    medium.bytes[line..line + 8].copy_from_slice(&before.bytes[line..line + 8]);
    let zeroed = medium.used_lines(0, LINES)[0];
    let lost = (1..8).filter(|slot| medium.word(zeroed + slot * 8) != 0).count();
    medium.bytes[zeroed..zeroed + LINE].fill(0);
    std::fs::write(&medium.file, &medium.bytes).expect("writable");
    (uncounted, lost)
}

/// A sink that blocks the recovery thread at the first reported damage.
struct Gate {
    reached: Receiver<()>,
    release: Sender<()>,
}

fn make_gate() -> (Gate, EventSink) {
    let (report, reached) = channel();
    let (release, released) = channel::<()>();
    let once = Mutex::new(Some((report, released)));
    let sink = Arc::new(move |event: &Event| {
        let is_damage = matches!(event, Event::Corruption { .. });
        let taken = if is_damage { once.lock().expect("not poisoned").take() } else { None };
        if let Some((report, released)) = taken {
            report.send(()).expect("the test waits");
            let _ = released.recv_timeout(HANG_TIMEOUT);
        }
    });
    (Gate { reached, release }, sink)
}

/// Opens a killed store, runs `write` before recovery checks the uncounted slot's line, and checks
/// that only the zeroed line is reported.
fn check_write_before_recovery(what: &str, write: impl Fn(&Nvht, &[u8]) -> Result<bool>) {
    let scratch = Scratch::new();
    let path = scratch.store();
    let (uncounted, lost) = create_killed_store(&path);
    let (gate, sink) = make_gate();
    let mut options = options();
    options.pool.events = Some(sink);
    let store = Arc::new(Nvht::open(&path, &options).expect("open"));
    gate.reached.recv_timeout(HANG_TIMEOUT).expect("recovery reports the zeroed line");
    assert!(write(&store, &uncounted).expect(what), "{what}: the key of an uncounted slot is found");
    gate.release.send(()).expect("recovery waits");
    store.wait_recovered().expect("recovered");

    assert_eq!(store.stats().recovery.corrupt, 1, "{what}: only the zeroed line is damaged");
    let wrong = (0..KEYS).filter(|index| store.get(&key(*index)).ok().flatten().as_deref() != Some(b"value")).count();
    assert!(wrong <= lost, "{what}: {wrong} keys are wrong, {lost} were in the zeroed line");
    let findings = store.verify(&mut |_| ()).expect("verify").findings;
    assert_eq!(findings.len(), 1, "{what}: {findings:?}");
    let _ = store.for_each(&mut |_, _| Visit::More);
    assert_eq!(store.get(&uncounted).expect("no damage in its line"), None, "{what}");
}

#[test]
fn a_delete_of_an_uncounted_slot_before_recovery_reports_no_damage() {
    check_write_before_recovery("delete", |store, key| store.delete(key));
}

#[test]
fn a_batch_that_deletes_an_uncounted_slot_before_recovery_reports_no_damage() {
    check_write_before_recovery("batch", |store, key| {
        let mut batch = Batch::default();
        batch.ops.push(BatchOp::Delete { key: key.to_vec() });
        store.write(&batch).map(|()| true)
    });
}

#[test]
fn a_put_and_a_delete_of_an_uncounted_slot_before_recovery_report_no_damage() {
    check_write_before_recovery("put and delete", |store, key| {
        store.put(key, b"another value")?;
        store.delete(key)
    });
}

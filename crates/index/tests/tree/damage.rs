//! A tree whose records change, as bytes on damaged media do. Its order is then wrong, but nothing
//! panics or hangs.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use lodestore_index::{BPlusTree, Direction, KeyResolver};

use crate::common::{Random, Records};

/// Returns a key. Many keys share enough bytes for equal heads; some share fewer.
fn key(random: &mut Random) -> Vec<u8> {
    let number = random.below(600);
    match random.below(4) {
        0 => format!("{:03}/ties/{number:08}", number % 7).into_bytes(),
        1 => format!("ties/{:04}", number * 13 % 1000).into_bytes(),
        _ => format!("ties/{number:08}").into_bytes(),
    }
}

/// Flips one bit, or replaces the key by the empty key, as for a record that cannot be read.
fn harm(records: &Records, payload: u64, random: &mut Random) {
    let mut key = records.key(payload).to_vec();
    if key.is_empty() || random.below(4) == 0 {
        key.clear();
    } else {
        let at = random.below(key.len() as u64) as usize;
        key[at] ^= 1 << random.below(8);
    }
    records.change(payload, &key);
}

fn run(seed: u64, one_in: u64) {
    let mut random = Random(seed);
    let (tree, records) = (BPlusTree::new(), Records::default());
    let mut payloads = Vec::new();
    let mut found = Vec::new();
    for _ in 0..4000 {
        let key = key(&mut random);
        match random.below(8) {
            0 => drop(tree.remove(&records, &key, None)),
            1 => drop(tree.get(&records, &key)),
            2 => {
                found.clear();
                tree.read_range(&records, Bound::Included(&key), Direction::Forward, 100, &mut found);
                tree.read_range(&records, Bound::Excluded(&key), Direction::Backward, 100, &mut found);
            }
            _ => {
                let payload = records.add(&key);
                payloads.push(payload);
                tree.insert(&records, &key, payload);
            }
        }
        if random.below(one_in) == 0 && !payloads.is_empty() {
            let victim = payloads[random.below(payloads.len() as u64) as usize];
            harm(&records, victim, &mut random);
        }
    }
}

#[test]
fn changed_records_cause_wrong_results_but_no_panic_and_no_hang() {
    for seed in 0..400 {
        for one_in in [4, 40, 400] {
            println!("seed {seed}, one record in {one_in} operations is harmed");
            run(seed, one_in);
        }
    }
}

/// A split reads the records of a leaf to move its heads further into the keys. No head is computed
/// from a record that is out of order at that time.
#[test]
fn a_split_takes_no_head_from_a_record_that_is_out_of_order() {
    let rank = |n: u64| n * 37 % 64;
    let key = |n: u64| format!("ties/{:08}", rank(n)).into_bytes();
    // The middle contains the records between which the leaf may be split.
    for victim in (0..64).filter(|n| !(24..40).contains(&rank(*n))) {
        let far = if rank(victim) < 24 { b"ties/00000063" } else { b"ties/00000000" };
        for harmed in [&far[..], b""] {
            let (tree, records) = (BPlusTree::new(), Records::default());
            for n in 0..64 {
                tree.insert(&records, &key(n), records.add(&key(n)));
            }
            records.change(victim, harmed);
            tree.insert(&records, b"ties/99999999", records.add(b"ties/99999999"));
            records.change(victim, &key(victim));
            tree.check(&records).unwrap_or_else(|wrong| panic!("{victim} with {harmed:?}: {wrong}"));
        }
    }
}

/// Returns `reads_left` keys, then panics.
struct Fails {
    records: Records,
    reads_left: AtomicU64,
}

impl KeyResolver for Fails {
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        let left = self.reads_left.load(Ordering::Relaxed);
        assert!(left > 0, "the resolver panics");
        self.reads_left.store(left - 1, Ordering::Relaxed);
        self.records.with_key(payload, f)
    }
    fn prefetch(&self, _payload: u64) {}
}

/// Inserts keys in steps of `step`; the panic leaves the split that reads a record. Returns whether
/// a panic occurred.
fn panic_after(reads: u64, step: u64) -> bool {
    let (tree, resolver) = (BPlusTree::new(), Fails { records: Records::default(), reads_left: reads.into() });
    let panicked = (0..1000).any(|n| {
        let key = format!("ties/{:08}", n * step % 1009).into_bytes();
        let payload = resolver.records.add(&key);
        catch_unwind(AssertUnwindSafe(|| tree.insert(&resolver, &key, payload))).is_err()
    });
    resolver.reads_left.store(u64::MAX, Ordering::Relaxed);
    for n in 0..1009 {
        let key = format!("ties/{n:08}").into_bytes();
        tree.get(&resolver, &key);
        tree.insert(&resolver, &key, resolver.records.add(&key));
    }
    panicked
}

#[test]
fn no_thread_waits_for_a_latch_whose_holder_panicked() {
    let (done, ended) = channel();
    std::thread::spawn(move || {
        let panics =
            (0..1000).flat_map(|reads| [(reads, 1), (reads, 389)]).filter(|(reads, step)| panic_after(*reads, *step));
        let _ = done.send(panics.count());
    });
    let panics = ended.recv_timeout(Duration::from_secs(300)).expect("all end");
    assert!(panics > 300, "{panics} of 2000 runs panicked");
}

//! Several threads: each has its own slabs and frees any record.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Instant;

use super::heap::Heap;
use super::{assert_all_free, check, free};
use crate::alloc::records::Freed;
use crate::epoch::Epochs;
use crate::nvptr::NvPtr;

#[test]
fn records_freed_by_other_threads_are_reused() {
    let heap = Heap::new(4 << 20, 16 << 20, 4096);
    let alloc = heap.open(false);
    let owners: Mutex<BTreeMap<NvPtr, usize>> = Mutex::default();
    let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel::<Vec<Freed>>()).unzip();
    senders.rotate_left(1);
    std::thread::scope(|scope| {
        for (number, (sender, receiver)) in senders.into_iter().zip(receivers).enumerate() {
            let (alloc, heap, owners) = (&alloc, &heap, &owners);
            scope.spawn(move || {
                for round in 0..60usize {
                    let items: Vec<Freed> = (0..100usize)
                        .map(|index| 30 + (index * 31 + round * 7 + number) % 900)
                        .map(|len| Freed { at: alloc.alloc_on(heap, len).expect("room"), len: len as u32 })
                        .collect();
                    let mut all = owners.lock().expect("no panic");
                    items.iter().for_each(|item| assert_eq!(all.insert(item.at, number), None, "handed out twice"));
                    drop(all);
                    sender.send(items).expect("the other lives");
                    if let Ok(items) = receiver.try_recv() {
                        let mut all = owners.lock().expect("no panic");
                        items.iter().for_each(|item| assert!(all.remove(&item.at).is_some()));
                        drop(all);
                        alloc.free_all(heap, &items);
                    }
                }
                drop(sender);
                for items in receiver {
                    let mut all = owners.lock().expect("no panic");
                    items.iter().for_each(|item| assert!(all.remove(&item.at).is_some()));
                    drop(all);
                    alloc.free_all(heap, &items);
                }
            });
        }
    });
    assert_eq!(alloc.live_records(), 0);
    assert_all_free(&alloc, &heap);
}

#[test]
fn slabs_of_ended_threads_are_reused() {
    let heap = Heap::new(4 << 20, 4 << 20, 4096);
    let alloc = heap.open(false);
    for _ in 0..100 {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..10).for_each(|_| assert!(alloc.alloc_on(&heap, 296).is_ok())));
        });
    }
    // A thousand records fit five slabs; concurrent tests' threads may need a few more.
    let used = (4 << 20) - alloc.free_chunk_bytes();
    assert!(used < 30 * 65536, "{used} bytes of slabs for a thousand records");
    check(&alloc, &heap);
}

#[test]
fn a_full_store_allocates_from_slabs_of_living_threads() {
    let heap = Heap::new(256 << 10, 256 << 10, 512);
    let alloc = heap.open(false);
    let (go, wait) = mpsc::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let (alloc, heap) = (&alloc, &heap);
        scope.spawn(move || {
            let mut own: Vec<NvPtr> = std::iter::from_fn(|| alloc.alloc_on(heap, 200).ok()).collect();
            for at in own.split_off(own.len() / 2) {
                free(alloc, heap, at, 200);
            }
            sender.send(own.len()).expect("heard");
            let _ = wait.recv();
        });
        let half = receiver.recv().expect("told");
        let count = std::iter::from_fn(|| alloc.alloc_on(heap, 200).ok()).count();
        assert!(count >= half, "{count} of {half}");
        drop(go);
    });
    check(&alloc, &heap);
}

#[test]
fn retired_records_wait_for_guards_and_are_then_freed() {
    let heap = Heap::new(1 << 20, 1 << 20, 4096);
    let alloc = heap.open(false);
    let epochs = Epochs::new(1 << 20);
    let retire = |at| epochs.retire_on(&alloc, &heap, Freed { at, len: 100 });
    let places: Vec<NvPtr> = (0..200).map(|_| alloc.alloc_on(&heap, 100).expect("room")).collect();
    let guard = epochs.pin();
    places.iter().for_each(|at| retire(*at));
    let inner = epochs.pin();
    drop(guard);
    epochs.reclaim_on(&alloc, &heap, |_| true);
    assert_eq!((alloc.live_records(), epochs.waiting_bytes()), (200, 200 * 112), "a nested guard still holds");
    drop(inner);
    epochs.reclaim_on(&alloc, &heap, |_| true);
    assert_eq!((alloc.live_records(), epochs.waiting_bytes()), (0, 0));
    check(&alloc, &heap);
}

#[test]
fn a_limbo_stays_short_without_collecting() {
    let heap = Heap::new(4 << 20, 4 << 20, 4096);
    let alloc = heap.open(false);
    let epochs = Epochs::new(4 << 20);
    let mut waiting_max = 0;
    for _ in 0..20_000 {
        let at = alloc.alloc_on(&heap, 300).expect("never full");
        epochs.retire_on(&alloc, &heap, Freed { at, len: 300 });
        waiting_max = waiting_max.max(epochs.waiting_bytes());
    }
    assert!(waiting_max <= (4 << 20) / 64 * 2, "{waiting_max}");
}

#[test]
fn the_limbo_of_an_ended_thread_is_emptied_by_others() {
    let heap = Heap::new(1 << 20, 1 << 20, 4096);
    let alloc = heap.open(false);
    let epochs = Epochs::new(1 << 30);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = alloc.alloc_on(&heap, 100).expect("room");
            epochs.retire_on(&alloc, &heap, Freed { at, len: 100 });
        });
    });
    assert_eq!(alloc.live_records(), 1);
    epochs.reclaim_on(&alloc, &heap, |_| true);
    assert_eq!((alloc.live_records(), epochs.waiting_bytes()), (0, 0));
}

#[test]
fn readers_never_see_reused_records() {
    // A reader follows the published position and must find its record unchanged. A side table
    // holds a stamp for each position, set at allocation.
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let heap = Heap::new(256 << 10, 256 << 10, 512);
    let alloc = heap.open(false);
    let epochs = Epochs::new(256 << 10);
    let slots: Vec<AtomicU64> = (0..(256 << 10) / 16).map(|_| AtomicU64::new(0)).collect();
    let published = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let guard = epochs.pin();
                let at = published.load(Ordering::Acquire);
                if at != 0 {
                    let first = slots[at as usize / 16].load(Ordering::Relaxed);
                    std::hint::spin_loop();
                    assert_eq!(slots[at as usize / 16].load(Ordering::Relaxed), first, "written under a guard");
                }
                drop(guard);
            }
        });
        for version in 1..50_000u64 {
            let at = loop {
                // Full while the reader sleeps with its guard; not forever.
                match alloc.alloc_on(&heap, 100) {
                    Ok(at) => break at,
                    Err(_) => std::thread::yield_now(),
                }
                epochs.reclaim_on(&alloc, &heap, |_| true);
            };
            slots[at.offset() as usize / 16].store(version, Ordering::Relaxed);
            let old = published.swap(at.offset(), Ordering::AcqRel);
            if old != 0 {
                epochs.retire_on(&alloc, &heap, Freed { at: NvPtr::new(0, old), len: 100 });
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Returns nanoseconds per call: the lower quartile of many short runs, so that a busy machine
/// disturbs little.
fn nanos(mut work: impl FnMut()) -> f64 {
    const CALLS: u32 = 1000;
    let mut runs: Vec<f64> = (0..200)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| work());
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    runs.sort_unstable_by(f64::total_cmp);
    runs[runs.len() / 4]
}

/// Prints times. For measurements set `LODESTORE_TIMES=1` and `--nocapture`, in a release build.
/// Otherwise the test is short, and only executes the code.
#[test]
fn times_of_alloc_free_and_pin() {
    let long = std::env::var_os("LODESTORE_TIMES").is_some();
    let (rounds, batched) = if long { (3, 200_000) } else { (1, 2_000) };
    let heap = Heap::new(256 << 20, 256 << 20, 4096);
    let alloc = heap.open(false);
    let epochs = Epochs::new(256 << 20);
    for _round in 0..rounds {
        let mut places = Vec::with_capacity(2 * batched);
        let alloc_ns = nanos(|| places.push(alloc.alloc_on(&heap, 296).expect("room")));
        let alloc_free_ns = nanos(|| {
            let at = alloc.alloc_on(&heap, 296).expect("room");
            free(&alloc, &heap, at, 296);
        });
        let free_ns = nanos(|| free(&alloc, &heap, places.pop().expect("as many"), 296));
        (0..batched).for_each(|_| places.push(alloc.alloc_on(&heap, 296).expect("room")));
        let items: Vec<Freed> = places.drain(..).map(|at| Freed { at, len: 296 }).collect();
        let mut batches: Vec<u128> = items
            .chunks(64)
            .map(|batch| {
                let start = Instant::now();
                alloc.free_all(&heap, batch);
                start.elapsed().as_nanos()
            })
            .collect();
        batches.sort_unstable();
        let batch_ns = batches[batches.len() / 4] as f64 / 64.0;
        let pin_ns = nanos(|| drop(std::hint::black_box(epochs.pin())));
        let cycle_ns = nanos(|| {
            let at = alloc.alloc_on(&heap, 296).expect("room");
            epochs.retire_on(&alloc, &heap, Freed { at, len: 296 });
        });
        epochs.reclaim_on(&alloc, &heap, |_| true);
        println!(
            "alloc {alloc_ns:.1} ns, alloc+free {alloc_free_ns:.1}, free {free_ns:.1}, free in batches {batch_ns:.1}, \
             pin+unpin {pin_ns:.1}, alloc+retire+free {cycle_ns:.1}"
        );
    }
}

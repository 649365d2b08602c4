//! Random histories against a model: nothing overlaps, nothing leaks, across crashes and reopens.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::heap::Heap;
use super::{assert_all_free, check};
use crate::alloc::records::Freed;
use crate::alloc::{Allocator, ExtentKind, MediumAccess};
use crate::nvptr::NvPtr;

#[derive(Debug, Clone)]
enum Op {
    Record(usize),
    Extent(u64),
    Free(usize),
    /// Power cut: the seed decides which words survive. The operations run before the marking is
    /// complete.
    Crash(u64, Vec<(bool, usize)>),
    /// Clean stop; the flag removes the saved bitmaps.
    Reopen(bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (1usize..600).prop_map(Op::Record),
        1 => (600usize..9000).prop_map(Op::Record),
        2 => (1u64..6000).prop_map(Op::Extent),
        10 => any::<usize>().prop_map(Op::Free),
        1 => (any::<u64>(), vec((any::<bool>(), 1usize..600), 0..12)).prop_map(|(seed, during)| Op::Crash(seed, during)),
        1 => any::<bool>().prop_map(Op::Reopen),
    ]
}

/// Allocations in use: position to (length, whether it is an engine's extent).
type Model = BTreeMap<NvPtr, (usize, bool)>;

fn coin(mut state: u64) -> impl FnMut() -> bool {
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 60 & 1 == 1
    }
}

fn add(model: &mut Model, at: NvPtr, len: usize, extent: bool) {
    let end = at.add(len as u64);
    assert!(
        model.range(..end).next_back().is_none_or(|(before, (length, _))| before.add(*length as u64) <= at),
        "overlap at {at:?}"
    );
    assert_eq!(at.offset() % if extent { 512 } else { 16 }, 0);
    model.insert(at, (len, extent));
}

fn record(alloc: &Allocator, heap: &Heap, model: &mut Model, len: usize) {
    if let Ok(at) = alloc.alloc_on(heap, len) {
        add(model, at, len, false);
    }
}

fn remove(alloc: &Allocator, heap: &Heap, model: &mut Model, pick: usize) {
    let Some((at, (len, extent))) = model.iter().nth(pick % model.len().max(1)).map(|(at, what)| (*at, *what)) else {
        return;
    };
    model.remove(&at);
    alloc.free_all(heap, &[Freed { at, len: if extent { Freed::EXTENT_FLAG } else { len as u32 } }]);
}

fn mark(alloc: &Allocator, heap: &Heap, at: NvPtr, (len, extent): (usize, bool)) {
    if extent {
        assert!(alloc.mark_extent_on(heap, at, ExtentKind(16)).expect("it is there") >= len as u64);
    } else {
        alloc.mark_on(heap, at, len).expect("it is there");
    }
}

/// Reopens after a crash, and marks while records are allocated and freed.
fn recover(heap: &Heap, model: &mut Model, during: &[(bool, usize)]) -> Allocator {
    let alloc = heap.open(false);
    let mut to_mark: Vec<_> = model.iter().map(|(at, what)| (*at, *what)).collect();
    for (add_one, number) in during {
        if *add_one {
            record(&alloc, heap, model, *number);
        } else {
            remove(&alloc, heap, model, *number);
        }
        // An item freed meanwhile may still be marked through an old pointer.
        for (at, what) in to_mark.drain(..(to_mark.len() / 3)) {
            mark(&alloc, heap, at, what);
        }
    }
    // Or never: the item is then no longer reachable.
    to_mark.retain(|(at, _)| model.contains_key(at));
    for (at, what) in to_mark {
        mark(&alloc, heap, at, what);
    }
    check(&alloc, heap);
    alloc.finish_on(heap);
    alloc
}

fn run(ops: Vec<Op>, region: u64) {
    let heap = Heap::new(region, 3 * region, 512);
    let mut alloc = heap.open(false);
    let mut model = Model::new();
    for op in ops {
        match op {
            Op::Record(len) => record(&alloc, &heap, &mut model, len),
            Op::Extent(len) => {
                if let Ok(at) = alloc.alloc_extent_on(&heap, len, ExtentKind(16)) {
                    add(&mut model, at, len as usize, true);
                }
            }
            Op::Free(pick) => remove(&alloc, &heap, &mut model, pick),
            Op::Crash(seed, during) => {
                drop(alloc);
                heap.crash(coin(seed));
                alloc = recover(&heap, &mut model, &during);
            }
            Op::Reopen(trusted) => {
                let saved = alloc.save(&heap);
                drop(alloc);
                heap.crash(|| false);
                alloc = heap.open(trusted);
                if alloc.is_recovering() {
                    assert!(!saved || !trusted, "saved bitmaps are read back");
                    model.iter().for_each(|(at, what)| mark(&alloc, &heap, *at, *what));
                    alloc.finish_on(&heap);
                }
            }
        }
        let records = model.values().filter(|(_, extent)| !extent).count() as u64;
        assert_eq!(alloc.live_records(), records);
        check(&alloc, &heap);
    }
    let left: Vec<_> = model.keys().copied().collect();
    for _ in left {
        remove(&alloc, &heap, &mut model, 0);
    }
    assert_all_free(&alloc, &heap);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn histories_with_crashes_neither_overlap_nor_leak(ops in vec(op(), 1..200), region in prop_oneof![Just(64u64 << 10), Just(100 << 10), Just(256 << 10)]) {
        run(ops, region);
    }
}

/// Runs one history that allocates extents and crashes; returns whether all extents survived.
fn survives(seed: u64, loses_flushes: bool) -> bool {
    let mut heap = Heap::new(64 << 10, 64 << 10, 512);
    heap.loses_flushes = loses_flushes;
    let alloc = heap.open(false);
    let mut places = Vec::new();
    for _ in 0..4 {
        places.push(alloc.alloc_extent_on(&heap, 1000, ExtentKind(16)).expect("room"));
    }
    drop(alloc);
    heap.crash(coin(seed));
    let alloc = heap.open(false);
    places.iter().all(|at| alloc.mark_extent_on(&heap, *at, ExtentKind(16)).is_ok())
}

#[test]
fn mutant_that_uses_an_extent_before_its_word_is_durable_is_caught() {
    assert!((0..64).all(|seed| survives(seed << 40, false)));
    assert!((0..64).any(|seed| !survives(seed << 40, true)));
}

#[test]
fn a_stale_word_never_hides_a_live_extent() {
    // One long extent is freed and short ones replace it. They are found, whichever cleared words
    // survive.
    for seed in 0..256u64 {
        let heap = Heap::new(64 << 10, 64 << 10, 512);
        let alloc = heap.open(false);
        let long = alloc.alloc_extent_on(&heap, 16 * 512, ExtentKind(16)).expect("room");
        alloc.free_extent_on(&heap, long, false);
        let short: Vec<_> =
            (0..5).map(|_| alloc.alloc_extent_on(&heap, 3 * 512, ExtentKind(16)).expect("room")).collect();
        alloc.free_extent_on(&heap, short[0], false);
        alloc.free_extent_on(&heap, short[1], false);
        heap.crash(coin(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let alloc = heap.open(false);
        for at in &short[2..] {
            assert_eq!(alloc.mark_extent_on(&heap, *at, ExtentKind(16)).expect("found"), 3 * 512, "seed {seed}");
        }
        alloc.finish_on(&heap);
        check(&alloc, &heap);
        assert_eq!(alloc.usage().live, 3 * 3 * 512);
        assert_eq!(heap.layout(0).expect("region 0").chunks, 9 + (alloc.free_chunk_bytes() / 512) as u32);
    }
}

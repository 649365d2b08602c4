//! Wear: kept over restarts, and levelled.

use std::collections::VecDeque;

use super::heap::Heap;
use super::{check, free};
use crate::alloc::{Allocator, ExtentKind, MediumAccess, lock};
use crate::nvptr::NvPtr;

fn wear(alloc: &Allocator) -> Vec<u64> {
    lock(&alloc.space).regions.iter().flat_map(|ranges| ranges.tree.wear().to_vec()).collect()
}

#[test]
fn wear_survives_restarts() {
    let heap = Heap::new(16 << 20, 16 << 20, 4096);
    let alloc = heap.open(false);
    for _ in 0..3000 {
        let at = alloc.alloc_on(&heap, 1000).expect("room");
        free(&alloc, &heap, at, 1000);
    }
    let long = alloc.alloc_on(&heap, 5 << 20).expect("room");
    free(&alloc, &heap, long, 5 << 20);
    assert!(alloc.save(&heap));
    heap.crash(|| false);
    let before = wear(&alloc);
    assert!(before.iter().sum::<u64>() >= 3000 * 1008 + (5 << 20), "{before:?}");
    let reopened = heap.open(true);
    assert_eq!(wear(&reopened), before);
    check(&reopened, &heap);
}

#[test]
fn absurd_counts_on_the_medium_do_no_harm() {
    let heap = Heap::new(256 << 10, 256 << 10, 512);
    let layout = heap.layout(0).expect("region 0");
    for segment in 0..layout.wear_segments {
        heap.damage(layout.wear_word(segment), u64::MAX - u64::from(segment % 3) * (1 << 62));
    }
    let alloc = heap.open(false);
    let at = alloc.alloc_on(&heap, 100).expect("room");
    free(&alloc, &heap, at, 100);
    check(&alloc, &heap);
}

/// Runs the paper's mix of sizes with delayed frees, on a store of which a quarter is cold. Returns
/// the greatest wear of a segment divided by the mean.
fn skew(wear_aware: bool) -> f64 {
    let mut heap = Heap::new(32 << 20, 32 << 20, 4096);
    heap.wear_aware = wear_aware;
    let alloc = heap.open(false);
    let mut state = 7u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let sizes = [128, 512, 1 << 10, 32 << 10, 128 << 10];
    let cold: Vec<NvPtr> = (0..64).map(|_| alloc.alloc_on(&heap, 128 << 10).expect("room")).collect();
    let mut waiting: VecDeque<(NvPtr, usize)> = VecDeque::new();
    for _ in 0..60_000 {
        let len = sizes[random() as usize % sizes.len()];
        waiting.push_back((alloc.alloc_on(&heap, len).expect("room"), len));
        while waiting.len() > 100 {
            let pick = random() as usize % 20;
            let (at, len) = waiting.swap_remove_front(pick).expect("it is there");
            free(&alloc, &heap, at, len);
        }
    }
    alloc.report_wear(&heap);
    let counts = wear(&alloc);
    let used = &counts[..counts.len() - usize::from(heap.layout(0).is_some_and(|layout| layout.chunks < 8192))];
    let mean = used.iter().sum::<u64>() as f64 / used.len() as f64;
    let max = used.iter().copied().max().unwrap_or(0) as f64;
    let min = used.iter().copied().min().unwrap_or(0) as f64;
    println!(
        "wear aware {wear_aware}: segments {}, max/mean {:.2}, min/mean {:.2}",
        used.len(),
        max / mean,
        min / mean
    );
    drop(cold);
    max / mean
}

#[test]
fn wear_aware_placement_levels_the_wear_of_the_papers_mix() {
    let (with, without) = (skew(true), skew(false));
    println!("max/mean: {with:.2} with steering, {without:.2} without");
    assert!(with < without / 1.5, "{with} against {without}");
}

/// Returns the bytes that the allocator reports as written at present.
fn reported_bytes(alloc: &Allocator, heap: &Heap) -> u64 {
    alloc.wear_on(heap).bytes
}

#[test]
fn a_kill_loses_no_more_wear_than_documented() {
    let heap = Heap::new(16 << 20, 16 << 20, 4096);
    let alloc = heap.open(false);
    let mut written = 0;
    let mut held = VecDeque::new();
    for round in 0..40_000usize {
        let len = [100, 300, 1000, 20_000][round % 4];
        held.push_back((alloc.alloc_on(&heap, len).expect("room"), len));
        written += alloc.rounded(len);
        if held.len() > 400 {
            let (at, len) = held.pop_front().expect("it is there");
            free(&alloc, &heap, at, len);
        }
    }
    // All stores are kept, as after the kill of a process; the counts were not queried before.
    heap.crash(|| true);
    let reopened = heap.open(false);
    let segments = u64::from(heap.layout(0).expect("region 0").wear_segments);
    let may_be_lost = segments * (2 << 20) * 9 / 16 + 3 * 8 * (64 << 10);
    let kept = reported_bytes(&reopened, &heap);
    assert!(kept <= written && kept + may_be_lost >= written, "{kept} of {written}, {may_be_lost} may be lost");
    assert!(kept > written / 2, "{kept} of {written}");
    // A clean account is exact.
    assert_eq!(reported_bytes(&alloc, &heap), written);
}

#[test]
fn bytes_stored_in_place_count_for_the_segments_of_their_extent() {
    let heap = Heap::new(32 << 20, 32 << 20, 4096);
    let alloc = heap.open(false);
    let extent = alloc.alloc_extent_on(&heap, 8 << 20, ExtentKind::ENGINE).expect("room");
    let before = reported_bytes(&alloc, &heap);
    assert_eq!(before, 8 << 20, "its making counts once");
    alloc.note_written_on(&heap, extent, 80_000_001);
    alloc.note_written_on(&heap, extent.add(4096), 5);
    alloc.note_written_on(&heap, NvPtr::new(7, 4096), 5);
    assert_eq!(reported_bytes(&alloc, &heap) - before, 80_000_001, "no extent begins at the other places");
    let hot = alloc.wear_on(&heap).hottest;
    let share = 10_000_000 + (1 << 20)..=20_000_000 + (2 << 20) + 1;
    assert!(hot.iter().take(4).all(|segment| share.contains(&segment.bytes)), "{hot:?}");
    heap.crash(|| true);
    assert_eq!(reported_bytes(&heap.open(false), &heap) - before, 80_000_001);
}

#[test]
fn a_record_replaced_for_ever_moves_through_the_store() {
    let heap = Heap::new(16 << 20, 64 << 20, 4096);
    let alloc = heap.open(false);
    let mut at = alloc.alloc_on(&heap, 500).expect("room");
    for _ in 0..400_000 {
        let next = alloc.alloc_on(&heap, 500).expect("room");
        free(&alloc, &heap, at, 500);
        at = next;
    }
    let wear = alloc.wear_on(&heap);
    assert!(wear.max as f64 / wear.mean < 1.5, "{wear:?}");
    assert_eq!(heap.regions(), 1, "for wear alone the store does not grow");
    assert!(alloc.usage().live <= 64 << 10 && alloc.usage().free > 14 << 20, "{:?}", alloc.usage());
    check(&alloc, &heap);
}

#[test]
fn long_extents_go_where_the_medium_is_least_worn() {
    let heap = Heap::new(64 << 20, 64 << 20, 4096);
    let alloc = heap.open(false);
    for _ in 0..300 {
        let at = alloc.alloc_extent_on(&heap, 4 << 20, ExtentKind::ENGINE).expect("room");
        alloc.free_extent_on(&heap, at, false);
    }
    let wear = alloc.wear_on(&heap);
    assert!(wear.max as f64 / wear.mean < 1.5, "{wear:?}");
}

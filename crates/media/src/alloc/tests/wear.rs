//! Wear: kept over restarts, and levelled.

use std::collections::VecDeque;

use super::heap::Heap;
use super::{check, free};
use crate::alloc::{Allocator, Ground, lock};
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
    let again = heap.open(true);
    assert_eq!(wear(&again), before);
    check(&again, &heap);
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

/// The paper's mix of sizes with delayed frees, over a store a quarter of which is cold; greatest wear of a segment by the mean.
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
    let most = used.iter().copied().max().unwrap_or(0) as f64;
    let least = used.iter().copied().min().unwrap_or(0) as f64;
    println!(
        "wear aware {wear_aware}: segments {}, max/mean {:.2}, min/mean {:.2}",
        used.len(),
        most / mean,
        least / mean
    );
    drop(cold);
    most / mean
}

#[test]
fn steering_levels_the_wear_of_the_papers_mix() {
    let (with, without) = (skew(true), skew(false));
    println!("max/mean: {with:.2} with steering, {without:.2} without");
    assert!(with < without / 1.5, "{with} against {without}");
}

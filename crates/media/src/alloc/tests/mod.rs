//! Tests of the whole allocator over a heap medium that can crash.

mod copies;
mod heap;
mod model;
mod recovery;
mod threads;
mod wear;

use std::collections::BTreeMap;

use lodestore_contract::VerifyReport;

use super::records::Freed;
use super::{Allocator, ExtentKind, MediumAccess, SHARD_COUNT};
use crate::nvptr::NvPtr;
use heap::Heap;

fn check(alloc: &Allocator, heap: &Heap) {
    let mut report = VerifyReport::default();
    alloc.verify_on(heap, &mut report);
    assert!(report.is_clean(), "{:#?}", report.findings);
}

fn free(alloc: &Allocator, heap: &Heap, at: NvPtr, len: usize) {
    alloc.free_all(heap, &[Freed { at, len: len as u32 }]);
}

/// Checks that all chunks of all regions are free, as one run each.
fn assert_all_free(alloc: &Allocator, heap: &Heap) {
    alloc.release_empty_slabs(heap);
    check(alloc, heap);
    let usage = alloc.usage();
    let all: u64 =
        (0..heap.regions()).filter_map(|region| heap.layout(region as u16)).map(|layout| layout.usable_bytes()).sum();
    assert_eq!((usage.live, usage.dead, usage.free), (0, 0, all));
    assert_eq!(alloc.free_chunk_bytes(), all);
    for region in 0..heap.regions() {
        let layout = heap.layout(region as u16).expect("it exists");
        let mut space = super::lock(&alloc.space);
        assert_eq!(space.regions[region].tree.alloc_unaligned(layout.chunks), Some(0));
        assert!(space.regions[region].tree.free_range(0, layout.chunks));
    }
}

/// Fills the store with records of these lengths in turn; returns each position with its length.
fn fill(alloc: &Allocator, heap: &Heap, lengths: &[usize]) -> BTreeMap<NvPtr, usize> {
    let mut places = BTreeMap::new();
    for len in lengths.iter().cycle() {
        match alloc.alloc_on(heap, *len) {
            Ok(at) => assert_eq!(places.insert(at, *len), None, "handed out twice"),
            Err(lodestore_contract::Error::Full { needed, capacity }) => {
                assert!(needed >= *len as u64 && capacity == heap.capacity());
                return places;
            }
            Err(other) => panic!("{other}"),
        }
    }
    places
}

fn assert_disjoint(alloc: &Allocator, places: &BTreeMap<NvPtr, usize>) {
    let mut end = NvPtr::NULL;
    for (at, len) in places {
        assert!(*at >= end, "{at:?} overlaps what ends at {end:?}");
        assert_eq!(at.offset() % 16, 0);
        end = at.add(*len as u64);
    }
    assert_eq!(alloc.live_records(), places.len() as u64);
}

#[test]
fn a_store_filled_and_emptied_is_one_free_run() {
    for (region, chunk) in [(64 << 10, 512), (256 << 10, 512), (4 << 20, 4096), (100 << 10, 512)] {
        let heap = Heap::new(region, 2 * region, chunk);
        let alloc = heap.open(false);
        for lengths in [&[40, 100, 300, 56, 200, 33][..], &[304], &[9000, 40], &[1]] {
            let places = fill(&alloc, &heap, lengths);
            assert_disjoint(&alloc, &places);
            check(&alloc, &heap);
            let bytes: usize = places.values().sum();
            assert!(bytes as u64 > region / 4 || lengths == [1], "{bytes} of {region}: {lengths:?}");
            for (at, len) in places {
                free(&alloc, &heap, at, len);
            }
            assert_all_free(&alloc, &heap);
        }
    }
}

#[test]
fn a_tiny_pool_holds_records_and_extents_together() {
    for (region, records) in [(64u64 << 10, 20), (128 << 10, 100), (256 << 10, 200)] {
        let heap = Heap::new(region, region, 512);
        let alloc = heap.open(false);
        let extents: Vec<NvPtr> =
            (0..4).map(|_| alloc.alloc_extent_on(&heap, 4096, ExtentKind(16)).expect("room for an extent")).collect();
        let places: Vec<(NvPtr, usize)> = (0..records)
            .map(|index| 40 + index * 37 % 260)
            .map(|len| (alloc.alloc_on(&heap, len).expect("room for a record"), len))
            .collect();
        check(&alloc, &heap);
        places.iter().for_each(|(at, len)| free(&alloc, &heap, *at, *len));
        extents.iter().for_each(|at| alloc.free_extent_on(&heap, *at, false));
        assert_all_free(&alloc, &heap);
    }
}

#[test]
fn a_record_persists_nothing_and_a_slab_one_line() {
    let heap = Heap::new(4 << 20, 4 << 20, 4096);
    let alloc = heap.open(false);
    let before = heap.persists();
    alloc.alloc_on(&heap, 296).expect("room");
    let first = heap.persists();
    assert_eq!((first.0 - before.0, first.1 - before.1), (2, 1), "flushes (one each copy), fences of a fresh slab");
    let places: Vec<NvPtr> = (1..215).map(|_| alloc.alloc_on(&heap, 296).expect("room")).collect();
    places.into_iter().for_each(|at| free(&alloc, &heap, at, 296));
    assert_eq!(heap.persists(), first);
}

#[test]
fn a_record_longer_than_a_region_gets_a_region_of_its_own() {
    let heap = Heap::new(1 << 20, 64 << 20, 4096);
    let alloc = heap.open(false);
    let long = alloc.alloc_on(&heap, 3 << 20).expect("a region of its own");
    assert_eq!((long.region(), heap.regions()), (1, 2));
    let short = alloc.alloc_on(&heap, 100).expect("room");
    assert_eq!(short.region(), 0);
    assert!(matches!(alloc.alloc_on(&heap, 80 << 20), Err(lodestore_contract::Error::Full { .. })));
    check(&alloc, &heap);
    free(&alloc, &heap, long, 3 << 20);
    free(&alloc, &heap, short, 100);
    assert_all_free(&alloc, &heap);
}

#[test]
fn a_double_free_is_reported_and_harmless() {
    let heap = Heap::new(1 << 20, 1 << 20, 4096);
    let alloc = heap.open(false);
    let at = alloc.alloc_on(&heap, 100).expect("room");
    let other = alloc.alloc_on(&heap, 100).expect("room");
    free(&alloc, &heap, at, 100);
    free(&alloc, &heap, at, 100);
    free(&alloc, &heap, other.add(16), 100);
    alloc.free_extent_on(&heap, NvPtr::new(9, 4096), false);
    assert_eq!(alloc.live_records(), 1);
    let mut report = VerifyReport::default();
    alloc.verify_on(&heap, &mut report);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert!(report.findings[0].what.starts_with("3 frees"));
}

#[test]
fn dram_is_under_half_a_byte_a_record() {
    let heap = Heap::new(64 << 20, 64 << 20, 4096);
    let alloc = heap.open(false);
    let records = 215_000;
    for _ in 0..records {
        alloc.alloc_on(&heap, 296).expect("room");
    }
    // The parts that depend on neither the size of the store nor its content.
    let shards = SHARD_COUNT * size_of::<super::Padded<std::sync::Mutex<super::Shard>>>();
    let fixed = (shards + size_of_val(&*alloc.regions) + alloc.classes.dram_bytes()) as u64;
    let per_record = alloc.dram_bytes() - fixed;
    println!(
        "DRAM: {fixed} bytes, and {:.3} for each of {records} records of 296 bytes",
        per_record as f64 / f64::from(records)
    );
    assert!(per_record < u64::from(records as u32) / 2, "{per_record}");
}

//! Marking, sweeping, saved bitmaps, damaged words.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, VerifyReport};

use super::heap::Heap;
use super::{assert_all_free, check, free};
use crate::alloc::records::Freed;
use crate::alloc::space::Ends;
use crate::alloc::{ExtentKind, MediumAccess};
use crate::nvptr::NvPtr;

fn corrupt(result: Result<impl std::fmt::Debug, Error>, word: &str) {
    match result {
        Err(Error::Corrupt { what, .. }) => assert!(what.contains(word), "{what}"),
        other => panic!("corrupt ({word}) expected, not {other:?}"),
    }
}

/// A store with 300 records of 296 bytes, one long record and one engine's extent.
fn store() -> (Heap, Vec<NvPtr>, NvPtr, NvPtr) {
    let heap = Heap::new(4 << 20, 4 << 20, 4096);
    let alloc = heap.open(false);
    let records = (0..300).map(|_| alloc.alloc_on(&heap, 296).expect("room")).collect();
    let long = alloc.alloc_on(&heap, 10_000).expect("room");
    let extent = alloc.alloc_extent_on(&heap, 16384, ExtentKind(20)).expect("room");
    heap.crash(|| false);
    (heap, records, long, extent)
}

#[test]
fn marked_records_stay_and_the_rest_is_freed() {
    let (heap, records, long, extent) = store();
    let alloc = heap.open(false);
    assert!(alloc.is_recovering());
    assert_eq!(alloc.usage().live, 0);
    for at in &records[..100] {
        alloc.mark_on(&heap, *at, 296).expect("it is there");
    }
    assert_eq!(alloc.mark_extent_on(&heap, extent, ExtentKind(20)).expect("it is there"), 16384);
    let swept = alloc.finish_on(&heap);
    // The second slab and the long record's extent had no marks.
    assert_eq!((swept.records, swept.live_bytes, swept.freed_extents), (100, 100 * 304 + 16384, 2));
    assert_eq!(alloc.finish_on(&heap).freed_extents, 0, "again is harmless");
    check(&alloc, &heap);
    let fresh = alloc.alloc_on(&heap, 296).expect("room");
    assert!(!records[..100].contains(&fresh) && records[100..215].contains(&fresh), "the partial slab is used again");
    free(&alloc, &heap, fresh, 296);
    records[..100].iter().for_each(|at| free(&alloc, &heap, *at, 296));
    alloc.free_extent_on(&heap, extent, false);
    let _ = long;
    assert_all_free(&alloc, &heap);
}

#[test]
fn wrong_marks_are_refused() {
    let (heap, records, long, extent) = store();
    let alloc = heap.open(false);
    alloc.mark_on(&heap, records[0], 296).expect("it is there");
    corrupt(alloc.mark_on(&heap, records[0], 296), "two records have the same place");
    corrupt(alloc.mark_on(&heap, records[1].add(16), 296), "does not begin at a slot");
    corrupt(alloc.mark_on(&heap, records[1], 305), "longer than its slot");
    corrupt(alloc.mark_on(&heap, long.add(16), 10_000), "no extent begins");
    corrupt(alloc.mark_on(&heap, long.add(4096), 100), "no extent begins");
    corrupt(alloc.mark_on(&heap, long, 13_000), "longer than its extent");
    corrupt(alloc.mark_on(&heap, NvPtr::new(0, 64), 100), "no extent begins");
    corrupt(alloc.mark_on(&heap, NvPtr::new(0, (1 << 48) - 16), 100), "no extent begins");
    corrupt(alloc.mark_on(&heap, NvPtr::new(7, 1 << 20), 100), "does not exist");
    corrupt(alloc.mark_extent_on(&heap, extent, ExtentKind(21)), "another kind");
    alloc.mark_extent_on(&heap, extent, ExtentKind(20)).expect("it is there");
    corrupt(alloc.mark_extent_on(&heap, extent, ExtentKind(20)), "two owners");
}

#[test]
fn a_record_freed_while_recovering_is_freed_by_the_sweep_marked_or_not() {
    let (heap, records, long, extent) = store();
    let alloc = heap.open(false);
    alloc.mark_on(&heap, records[0], 296).expect("it is there");
    free(&alloc, &heap, records[0], 296);
    free(&alloc, &heap, records[1], 296);
    alloc.mark_on(&heap, records[1], 296).expect("whoever had the pointer still marks");
    free(&alloc, &heap, records[2], 296);
    free(&alloc, &heap, long, 10_000);
    alloc.free_extent_on(&heap, extent, false);
    alloc.mark_on(&heap, records[3], 296).expect("it is there");
    let fresh = alloc.alloc_on(&heap, 296).expect("room");
    assert!(!records.contains(&fresh), "old slabs hand out nothing while recovering");
    alloc.mark_on(&heap, fresh, 296).expect("a record handed out since the open may be met");
    let other = alloc.alloc_on(&heap, 10_000).expect("room");
    alloc.mark_on(&heap, other, 10_000).expect("the same");
    assert_eq!(alloc.finish_on(&heap).records, 3);
    check(&alloc, &heap);
    free(&alloc, &heap, records[3], 296);
    free(&alloc, &heap, fresh, 296);
    free(&alloc, &heap, other, 10_000);
    assert_all_free(&alloc, &heap);
}

#[test]
fn a_kept_record_outlives_the_sweep_until_it_is_freed() {
    let (heap, records, long, extent) = store();
    let alloc = heap.open(false);
    for (at, len) in [(records[0], 296), (records[250], 296), (long, 10_000)] {
        alloc.exclude_from_sweep(at, len);
    }
    alloc.exclude_extent_from_sweep(extent);
    // One of them is marked as well, one freed before the sweep.
    alloc.mark_on(&heap, records[0], 296).expect("it is there");
    free(&alloc, &heap, records[250], 296);
    assert_eq!(alloc.finish_on(&heap).records, 2);
    check(&alloc, &heap);
    free(&alloc, &heap, records[0], 296);
    free(&alloc, &heap, long, 10_000);
    alloc.free_extent_on(&heap, extent, false);
    assert_all_free(&alloc, &heap);
}

#[test]
fn crashes_while_recovering_change_nothing() {
    let (heap, records, long, extent) = store();
    for round in 0..6 {
        let alloc = heap.open(false);
        let extra = alloc.alloc_on(&heap, 50).expect("room");
        for at in &records[..10 + round] {
            alloc.mark_on(&heap, *at, 296).expect("it is there");
        }
        if round % 2 == 0 {
            alloc.mark_on(&heap, long, 10_000).expect("it is there");
            alloc.mark_extent_on(&heap, extent, ExtentKind(20)).expect("it is there");
            records[10 + round..].iter().for_each(|at| alloc.mark_on(&heap, *at, 296).expect("it is there"));
            let swept = alloc.finish_on(&heap);
            // The extra records of earlier rounds are gone, however often the words of their slabs
            // reappeared.
            assert_eq!((swept.records, swept.live_bytes), (302, 300 * 304 + 64 + 12288 + 16384));
            check(&alloc, &heap);
        }
        let _ = extra;
        heap.crash(|| round % 3 == 0);
    }
}

#[test]
fn saved_bitmaps_replace_the_marking_once() {
    let (heap, records, long, extent) = store();
    let alloc = heap.open(false);
    records.iter().for_each(|at| alloc.mark_on(&heap, *at, 296).expect("it is there"));
    alloc.mark_on(&heap, long, 10_000).expect("it is there");
    alloc.mark_extent_on(&heap, extent, ExtentKind(20)).expect("it is there");
    assert!(!alloc.save(&heap), "not while recovering");
    alloc.finish_on(&heap);
    let tiny = alloc.alloc_on(&heap, 20).expect("room");
    let usage = alloc.usage();
    assert!(alloc.save(&heap));
    heap.crash(|| false);
    let alloc = heap.open(true);
    assert!(!alloc.is_recovering());
    check(&alloc, &heap);
    assert_eq!((alloc.usage(), alloc.live_records()), (usage, 302));
    free(&alloc, &heap, tiny, 20);
    // The open removed the bitmaps. After a crash now, a pool that falsely claims to be clean must
    // mark.
    let _ = alloc.alloc_extent_on(&heap, 4096, ExtentKind(20)).expect("room");
    heap.crash(|| false);
    assert!(heap.open(true).is_recovering());
}

#[test]
fn damaged_bitmaps_lead_to_marking() {
    let (heap, records, ..) = store();
    let alloc = heap.open(false);
    alloc.mark_on(&heap, records[0], 296).expect("it is there");
    alloc.finish_on(&heap);
    assert!(alloc.save(&heap));
    heap.crash(|| false);
    let layout = heap.layout(0).expect("region 0");
    let magic = u64::from_le_bytes(*b"lodeOCC2");
    let saved = (0..layout.chunks).map(|chunk| layout.chunk(chunk)).find(|at| heap.load(*at) == magic).expect("saved");
    heap.damage(saved.add(24), heap.load(saved.add(24)) ^ 4);
    let alloc = heap.open(true);
    assert!(alloc.is_recovering());
    alloc.mark_on(&heap, records[0], 296).expect("nothing of the damaged bitmap was taken");
    assert_eq!(alloc.finish_on(&heap).records, 1);
}

#[test]
fn under_a_damaged_word_marks_are_accepted_and_nothing_is_allocated() {
    let (mut heap, records, long, _) = store();
    let layout = heap.layout(0).expect("region 0");
    let slab = layout.chunk_of(records[0].offset()).expect("a chunk");
    for copy in layout.extent_words(slab) {
        heap.damage(copy, heap.load(copy) ^ 0x100);
    }
    assert!(matches!(heap.try_open().map(|_| ()), Err(Error::Corrupt { .. })), "only a salvage goes on");
    heap.salvage = true;
    let alloc = heap.open(false);
    for at in &records {
        alloc.mark_on(&heap, *at, 296).expect("believed");
    }
    alloc.mark_on(&heap, long, 10_000).expect("it is there");
    alloc.finish_on(&heap);
    alloc.free_all(&heap, &[Freed { at: records[0], len: 296 }]);
    while let Ok(at) = alloc.alloc_on(&heap, 296) {
        assert!(!records.contains(&at), "{at:?} is in use");
    }
    let mut report = VerifyReport::default();
    alloc.verify_on(&heap, &mut report);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert!(report.findings[0].what.contains("are damaged"));
}

#[test]
fn random_damage_to_the_tables_causes_no_panic() {
    for seed in 0..400u64 {
        let (mut heap, records, long, extent) = store();
        heap.salvage = true;
        let layout = heap.layout(0).expect("region 0");
        let mut state = seed;
        for _ in 0..1 + seed % 5 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let word = (state >> 33) % (layout.chunks_offset - layout.extent_table) / 8 * 8;
            // Both copies in one seed of three, otherwise one of them.
            for (copy, table) in (0u64..).zip([layout.extent_table, layout.extent_table_copy]) {
                let at = NvPtr::new(0, (table + word).min(layout.region_bytes - 8));
                if [2, copy].contains(&(seed % 3)) {
                    heap.damage(at, if seed % 2 == 0 { state } else { heap.load(at) ^ 1 << (state % 64) });
                }
            }
        }
        let alloc = heap.open(seed % 3 == 0);
        records.iter().for_each(|at| drop(alloc.mark_on(&heap, *at, 296)));
        let _ = (alloc.mark_on(&heap, long, 10_000), alloc.mark_extent_on(&heap, extent, ExtentKind(20)));
        alloc.finish_on(&heap);
        records.iter().for_each(|at| free(&alloc, &heap, *at, 296));
        free(&alloc, &heap, long, 10_000);
        let _ = alloc.alloc_on(&heap, 296);
    }
}

/// The old bytes may be the header of a log that a recovery would accept.
#[test]
fn an_extent_whose_ends_could_not_be_zeroed_is_not_allocated() {
    const OLD_WORD: u64 = 0x4f4c_444f_4c44;
    let heap = Heap::new(1 << 20, 1 << 20, 4096);
    let alloc = heap.open(true);
    let ends = Ends { head: 64, tail: 64 };
    let old = alloc.alloc_wiped_on(&heap, 8192, (ExtentKind(20), ends)).expect("room");
    heap.put(old, OLD_WORD);
    heap.flush(old, 8);
    heap.fence();
    alloc.free_extent_on(&heap, old, false);
    // The next allocation makes the free word durable.
    let other = alloc.alloc_wiped_on(&heap, 4096, (ExtentKind(20), ends)).expect("room");
    heap.fence_fails.store(true, Ordering::Relaxed);
    assert!(alloc.alloc_wiped_on(&heap, 8192, (ExtentKind(20), ends)).is_err());
    // The device keeps each word of the table, and no zero.
    heap.crash(|| false);
    let recovered = heap.try_open().expect("opens");
    let found: Vec<NvPtr> = recovered.extents_on(&heap, ExtentKind(20)).into_iter().map(|(at, _)| at).collect();
    assert_eq!(heap.load(old), OLD_WORD);
    assert_eq!(found, [other]);
}

//! The two copies of the extent table: damage to one is repaired, damage to both is refused.

use lodestore_contract::{Error, VerifyReport};

use super::check;
use super::heap::Heap;
use crate::alloc::{Allocator, ExtentKind, MediumAccess};
use crate::nvptr::NvPtr;
use crate::region_layout::{PAGE_BYTES, RegionLayout};

/// A store with 300 records, a long record and extents of three engine kinds, all durable.
struct Store {
    heap: Heap,
    layout: RegionLayout,
    /// The extents that the table names.
    extents: Vec<(NvPtr, u8)>,
}

const KINDS: [ExtentKind; 5] = [ExtentKind::SLAB, ExtentKind::LARGE, ExtentKind(16), ExtentKind(17), ExtentKind(18)];

fn named(alloc: &Allocator, heap: &Heap) -> Vec<(NvPtr, u8)> {
    let of_kind = |kind: &ExtentKind| {
        let found = alloc.extents_on(heap, *kind).into_iter().map(|(at, _)| (at, kind.0));
        found.collect::<Vec<_>>()
    };
    KINDS.iter().flat_map(of_kind).collect()
}

fn store() -> Store {
    let heap = Heap::new(8 << 20, 8 << 20, 4096);
    let alloc = heap.open(false);
    for _record in 0..300 {
        alloc.alloc_on(&heap, 296).expect("room");
    }
    alloc.alloc_on(&heap, 10_000).expect("room");
    for kind in [16, 17, 18] {
        alloc.alloc_extent_on(&heap, 16384, ExtentKind(kind)).expect("room");
    }
    // The allocations have returned, so both copies are durable.
    heap.crash(|| false);
    let extents = named(&alloc, &heap);
    let layout = heap.layout(0).expect("region 0");
    for (chunk, _) in alloc.read_table(&heap, &layout, None).extents {
        let [a, b] = layout.extent_words(chunk).map(|copy| heap.load(copy));
        assert!(a != 0 && a == b, "chunk {chunk}: a crash finds both copies");
    }
    Store { heap, layout, extents }
}

impl Store {
    /// Returns the words of a copy, with their content.
    fn words(&self, copy: usize) -> Vec<(NvPtr, u64)> {
        let word = |chunk| self.layout.extent_words(chunk)[copy];
        (0..self.layout.chunks).map(|chunk| (word(chunk), self.heap.load(word(chunk)))).collect()
    }

    fn restore(&self, words: &[(NvPtr, u64)]) {
        words.iter().for_each(|(at, raw)| self.heap.damage(*at, *raw));
    }

    /// Opens after a kill, and checks that all extents are named and the copies are equal again.
    fn assert_repaired(&self, what: &str) -> Vec<String> {
        let alloc = self.heap.try_open().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(named(&alloc, &self.heap), self.extents, "{what}");
        let [a, b] = [0, 1].map(|copy| self.words(copy).into_iter().map(|(_, raw)| raw).collect::<Vec<_>>());
        assert!(a == b, "{what}: the copies differ");
        let mut report = VerifyReport::default();
        alloc.verify_on(&self.heap, &mut report);
        report.findings.into_iter().map(|found| found.what).collect()
    }
}

#[test]
fn a_flipped_bit_of_one_copy_of_the_extent_table_is_repaired_and_reported() {
    let store = store();
    for copy in 0..2 {
        let whole = store.words(copy);
        for (at, raw) in whole.iter().filter(|(_, raw)| *raw != 0).chain(whole.iter().rev().take(3)) {
            for bit in 0..64 {
                store.heap.damage(*at, raw ^ 1 << bit);
                let found = store.assert_repaired(&format!("copy {copy}, {at:?}, bit {bit}"));
                assert!(found.len() == 1 && found[0].contains("repaired"), "{found:?}");
            }
        }
    }
}

#[test]
fn a_zeroed_line_or_page_of_one_copy_of_the_extent_table_loses_no_extent() {
    let store = store();
    for (copy, bytes) in [(0, 64), (1, 64), (0, PAGE_BYTES), (1, PAGE_BYTES)] {
        let whole = store.words(copy);
        for unit in whole.chunk_by(|a, b| a.0.offset() / bytes == b.0.offset() / bytes) {
            unit.iter().for_each(|(at, _)| store.heap.damage(*at, 0));
            store.assert_repaired(&format!("copy {copy}, {bytes} bytes at {:?}", unit[0].0));
        }
        store.restore(&whole);
    }
}

#[test]
fn damage_of_both_copies_of_a_word_is_refused_except_by_a_salvage() {
    let mut store = store();
    let used: Vec<u32> =
        (0..store.layout.chunks).filter(|chunk| store.heap.load(store.layout.extent_words(*chunk)[0]) != 0).collect();
    for chunk in used {
        let copies = store.layout.extent_words(chunk);
        let raw = store.heap.load(copies[0]);
        for damage in [[1, 1], [1, 2], [0xff00, 7], [raw, 1 << 60], [1 << 60, raw]] {
            copies.iter().zip(damage).for_each(|(at, flips)| store.heap.damage(*at, raw ^ flips));
            store.heap.salvage = false;
            let Err(Error::Corrupt { place, what, .. }) = store.heap.try_open().map(|_| ()) else {
                panic!("chunk {chunk}, {damage:x?}: opened")
            };
            assert_eq!(place, format!("region 0 chunk {chunk}"));
            assert!(what.contains("both copies"), "{what}");
            store.heap.salvage = true;
            let alloc = store.heap.try_open().expect("a salvage goes on");
            assert!(named(&alloc, &store.heap).len() < store.extents.len());
            let mut report = VerifyReport::default();
            alloc.verify_on(&store.heap, &mut report);
            assert!(report.findings.iter().any(|found| found.what.contains("both copies")), "{report:?}");
        }
        copies.iter().for_each(|at| store.heap.damage(*at, raw));
    }
}

/// An old word of a long-freed extent in one copy must not hide an extent in use.
#[test]
fn an_older_line_of_one_copy_hides_no_extent_in_use() {
    for copy in 0..2 {
        let heap = Heap::new(8 << 20, 8 << 20, 4096);
        let alloc = heap.open(false);
        let large = alloc.alloc_extent_on(&heap, 16 * 4096, ExtentKind(16)).expect("room");
        heap.crash(|| false);
        let layout = heap.layout(0).expect("region 0");
        let table = |copy: usize| (0..layout.chunks).map(move |chunk| layout.extent_words(chunk)[copy]);
        let older: Vec<(NvPtr, u64)> = table(copy).map(|at| (at, heap.load(at))).collect();
        heap.raise_stamp();
        alloc.free_extent_on(&heap, large, false);
        let mut small = Vec::new();
        while !small.contains(&large) || small.len() < 20 {
            small.push(alloc.alloc_extent_on(&heap, 4096, ExtentKind(17)).expect("an extent where the older one was"));
        }
        heap.crash(|| false);
        for line in older.chunks(8) {
            let newer: Vec<(NvPtr, u64)> = line.iter().map(|(at, _)| (*at, heap.load(*at))).collect();
            line.iter().for_each(|(at, raw)| heap.damage(*at, *raw));
            let alloc = heap.try_open().expect("opens");
            let mut found: Vec<NvPtr> = alloc.extents_on(&heap, ExtentKind(17)).into_iter().map(|(at, _)| at).collect();
            found.sort_unstable();
            small.sort_unstable();
            assert_eq!(found, small, "copy {copy}, line at {:?}", line[0].0);
            newer.iter().for_each(|(at, raw)| heap.damage(*at, *raw));
        }
    }
}

#[test]
fn after_a_clean_stop_any_damage_of_the_table_is_repaired_or_refused() {
    let store = store();
    let alloc = store.heap.open(false);
    for (at, kind) in &store.extents {
        if *kind >= 16 {
            alloc.mark_extent_on(&store.heap, *at, ExtentKind(*kind)).expect("it is there");
        }
    }
    alloc.finish_on(&store.heap);
    assert!(alloc.save(&store.heap));
    let seals = alloc.seal_tables_on(&store.heap);
    let used: Vec<[NvPtr; 2]> = (0..store.layout.chunks)
        .map(|chunk| store.layout.extent_words(chunk))
        .filter(|copies| store.heap.load(copies[0]) != 0)
        .collect();
    assert!(used.len() >= 4);
    let whole = [store.words(0), store.words(1)].concat();
    for copies in &used {
        let raw = store.heap.load(copies[0]);
        let line = |at: NvPtr| (0..8).map(move |word| NvPtr::from_raw(at.raw() & !63).add(word * 8));
        for copy in copies {
            line(*copy).for_each(|at| store.heap.damage(at, 0));
            let alloc = store.heap.open_sealed(&seals).expect("one copy is enough");
            assert!(!alloc.is_recovering(), "everything is known");
            let mut report = VerifyReport::default();
            alloc.verify_on(&store.heap, &mut report);
            assert!(report.findings.iter().any(|found| found.what.contains("repaired")), "{report:?}");
            store.restore(&whole);
        }
        for [a, b] in [[0, 0], [raw ^ 1, 0], [0, raw ^ 1], [raw ^ 1, raw ^ 1]] {
            store.heap.damage(copies[0], a);
            store.heap.damage(copies[1], b);
            let refused = store.heap.open_sealed(&seals).map(|_| ());
            assert!(matches!(refused, Err(Error::Corrupt { .. })), "{a:x} {b:x}: {refused:?}");
            store.restore(&whole);
        }
    }
    check(&store.heap.open_sealed(&seals).expect("whole"), &store.heap);
}

/// A legal crash leaves one copy ahead of the other: no damage, and no extent in use is lost.
#[test]
fn a_crash_between_the_copies_of_a_word_is_no_damage() {
    for seed in 0u64..300 {
        let mut heap = Heap::new(4 << 20, 4 << 20, 4096);
        heap.loses_flushes = true;
        let alloc = heap.open(false);
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        // No word is flushed: any mixture may be left.
        let mut held: Vec<NvPtr> = Vec::new();
        for _step in 0..40 {
            if next(3) == 0 && !held.is_empty() {
                let at = held.swap_remove(next(held.len() as u64) as usize);
                alloc.free_extent_on(&heap, at, false);
            } else if let Ok(at) = alloc.alloc_extent_on(&heap, 4096 * (1 + next(6)), ExtentKind(16)) {
                held.push(at);
            }
        }
        heap.crash(|| next(2) == 0);
        let alloc = heap.try_open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut report = VerifyReport::default();
        alloc.verify_on(&heap, &mut report);
        assert!(report.is_clean(), "seed {seed}: {:?}", report.findings);
    }
}

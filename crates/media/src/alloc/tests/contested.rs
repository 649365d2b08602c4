//! An older line or page in one copy of the extent table, from the same opening.

use std::collections::BTreeMap;

use lodestore_contract::{Error, VerifyReport};

use super::free;
use super::heap::Heap;
use crate::alloc::{Allocator, ExtentKind, MediumAccess};
use crate::nvptr::NvPtr;

/// Kind of the extents here.
const KIND: ExtentKind = ExtentKind(17);

/// Space that the engine uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Record(usize),
    Extent(u64),
}

impl Use {
    fn alloc(self, alloc: &Allocator, heap: &Heap) -> Result<NvPtr, Error> {
        match self {
            Self::Record(len) => alloc.alloc_on(heap, len),
            Self::Extent(bytes) => alloc.alloc_extent_on(heap, bytes, KIND),
        }
    }

    fn mark(self, alloc: &Allocator, heap: &Heap, at: NvPtr) -> Result<(), Error> {
        match self {
            Self::Record(len) => alloc.mark_on(heap, at, len),
            Self::Extent(bytes) => {
                assert!(alloc.holds_extent_on(heap, at, bytes, KIND), "{at:?}");
                alloc.mark_extent_on(heap, at, KIND).map(drop)
            }
        }
    }

    fn free(self, alloc: &Allocator, heap: &Heap, at: NvPtr) {
        match self {
            Self::Record(len) => free(alloc, heap, at, len),
            Self::Extent(_) => alloc.free_extent_on(heap, at, false),
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Record(len) => len as u64,
            Self::Extent(bytes) => bytes,
        }
    }
}

type Held = BTreeMap<NvPtr, Use>;

fn assert_apart(held: &Held, what: &str) {
    let mut end = NvPtr::NULL;
    for (at, used) in held {
        assert!(*at >= end, "{what}: {at:?} was handed out twice");
        end = at.add(used.bytes());
    }
}

fn findings(alloc: &Allocator, heap: &Heap) -> Vec<String> {
    let mut report = VerifyReport::default();
    alloc.verify_on(heap, &mut report);
    report.findings.into_iter().map(|found| found.what).collect()
}

/// Returns a medium whose allocator uses freed chunks again at once.
fn unlevelled() -> Heap {
    let mut heap = Heap::new(2 << 20, 2 << 20, 4096);
    heap.wear_aware = false;
    heap
}

fn words(heap: &Heap, copy: usize) -> Vec<(NvPtr, u64)> {
    let layout = heap.layout(0).expect("region 0");
    let word = |chunk| layout.extent_words(chunk)[copy];
    (0..layout.chunks).map(|chunk| (word(chunk), heap.load(word(chunk)))).collect()
}

/// Opens a killed store, marks all that is held, and fills the store. Returns the findings of the
/// recovered store.
fn recover(heap: &Heap, held: &Held, what: &str) -> Vec<String> {
    let alloc = heap.try_open().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(findings(&alloc, heap), [""; 0], "{what}: nothing is known before the marks");
    for (at, used) in held {
        used.mark(&alloc, heap, *at).unwrap_or_else(|error| panic!("{what}: {used:?} at {at:?}: {error}"));
    }
    alloc.finish_on(heap);
    let found = findings(&alloc, heap);
    let [a, b] = [0, 1].map(|copy| words(heap, copy).into_iter().map(|(_, raw)| raw).collect::<Vec<_>>());
    assert!(a == b, "{what}: the copies differ");
    let mut all = held.clone();
    for used in [Use::Extent(4096), Use::Record(296), Use::Record(40)] {
        while let Ok(at) = used.alloc(&alloc, heap) {
            assert_eq!(all.insert(at, used), None, "{what}: {at:?} was handed out twice");
        }
    }
    assert_apart(&all, what);
    // Later frees find each place in its extent.
    all.into_iter().for_each(|(at, used)| used.free(&alloc, heap, at));
    super::assert_all_free_after(&alloc, heap, &found);
    found
}

/// Uses a store at random. Returns the space in use, and a copy's words of an earlier moment.
fn used_store(heap: &Heap, copy: usize, next: &mut impl FnMut(u64) -> u64) -> (Held, Vec<(NvPtr, u64)>) {
    let alloc = heap.open(false);
    let (mut held, mut older) = (Held::new(), Vec::new());
    let moment = next(60);
    for step in 0..90 {
        if step == moment {
            older = words(heap, copy);
        }
        // Phases of growing and shrinking use the same chunks for other extents.
        let frees = next(3) < 1 + step / 15 % 2;
        if frees && !held.is_empty() {
            let (at, used) =
                held.iter().nth(next(held.len() as u64) as usize).map(|(at, used)| (*at, *used)).expect("one");
            used.free(&alloc, heap, at);
            held.remove(&at);
            continue;
        }
        let used = match next(4) {
            0 => Use::Record(10_000 + next(20_000) as usize),
            1 => Use::Record([40, 104, 296, 1000, 4000][next(5) as usize]),
            _ => Use::Extent(4096 * (1 + next(20))),
        };
        if let Ok(at) = used.alloc(&alloc, heap) {
            held.insert(at, used);
        }
    }
    heap.crash(|| next(2) == 0);
    (held, older)
}

/// Regression: the older word counted, if its copy was the first one. The extent in use was free.
#[test]
fn an_older_line_or_page_of_one_copy_from_the_same_opening_frees_no_space_in_use() {
    let (mut tried, mut contested) = (0, 0);
    for seed in 0u64..400 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (copy, unit) = (next(2) as usize, [8, 512][next(2) as usize]);
        let heap = Heap::new(2 << 20, 2 << 20, 4096);
        let (held, older) = used_store(&heap, copy, &mut next);
        let changed: Vec<&[(NvPtr, u64)]> =
            older.chunks(unit).filter(|line| line.iter().any(|(at, raw)| heap.load(*at) != *raw)).collect();
        if changed.is_empty() {
            continue;
        }
        tried += 1;
        let line = changed[next(changed.len() as u64) as usize];
        line.iter().for_each(|(at, raw)| heap.damage(*at, *raw));
        let found = recover(&heap, &held, &format!("seed {seed}, copy {copy}, {unit} words"));
        assert!(found.iter().all(|what| what.ends_with("repaired by the index")), "seed {seed}: {found:?}");
        contested += usize::from(!found.is_empty());
    }
    assert!(tried > 300 && contested > 50, "{contested} of {tried} were contested");
}

#[test]
fn a_contested_run_without_a_mark_is_free_and_no_damage() {
    for copy in 0..2 {
        let heap = unlevelled();
        let alloc = heap.open(false);
        let first = alloc.alloc_extent_on(&heap, 4 * 4096, KIND).expect("room");
        let older = words(&heap, copy);
        alloc.free_extent_on(&heap, first, false);
        assert_eq!(alloc.alloc_extent_on(&heap, 3 * 4096, ExtentKind(18)).expect("room"), first);
        heap.crash(|| false);
        older.iter().for_each(|(at, raw)| heap.damage(*at, *raw));
        let alloc = heap.try_open().expect("opens");
        assert!(alloc.is_recovering() && matches!(alloc.check_settled(), Err(Error::Corrupt { .. })));
        for (bytes, kind, is_held) in [(4, KIND, true), (3, ExtentKind(18), true), (3, KIND, false)] {
            assert_eq!(alloc.holds_extent_on(&heap, first, bytes * 4096, kind), is_held);
        }
        assert!(matches!(alloc.mark_extent_on(&heap, first, ExtentKind(19)), Err(Error::Corrupt { .. })));
        alloc.finish_on(&heap);
        alloc.check_settled().expect("settled");
        super::assert_all_free(&alloc, &heap);
    }
}

/// Both extents fit the marks: the exact length counts.
#[test]
fn of_two_extents_of_one_kind_the_named_length_counts() {
    for (copy, lengths) in [(0, [4u64, 3]), (1, [4, 3]), (0, [3, 4]), (1, [3, 4])] {
        let heap = unlevelled();
        let alloc = heap.open(false);
        let first = alloc.alloc_extent_on(&heap, lengths[0] * 4096, KIND).expect("room");
        let older = words(&heap, copy);
        alloc.free_extent_on(&heap, first, false);
        assert_eq!(alloc.alloc_extent_on(&heap, lengths[1] * 4096, KIND).expect("room"), first);
        heap.crash(|| false);
        older.iter().for_each(|(at, raw)| heap.damage(*at, *raw));
        let alloc = heap.try_open().expect("opens");
        assert!(alloc.holds_extent_on(&heap, first, lengths[1] * 4096, KIND));
        assert_eq!(alloc.mark_extent_on(&heap, first, KIND).expect("it is there"), u64::MAX);
        assert!(matches!(alloc.mark_extent_on(&heap, first, KIND), Err(Error::Corrupt { .. })), "two owners");
        alloc.finish_on(&heap);
        assert!(alloc.holds_extent_on(&heap, first, lengths[1] * 4096, KIND), "copy {copy}, {lengths:?}");
        assert_eq!(alloc.usage().live, lengths[1] * 4096);
    }
}

#[test]
fn a_record_of_a_contested_run_may_be_kept_and_freed_during_recovery() {
    for is_freed in [false, true] {
        let heap = unlevelled();
        let alloc = heap.open(false);
        let first = alloc.alloc_extent_on(&heap, 8 * 4096, KIND).expect("room");
        let older = words(&heap, 0);
        alloc.free_extent_on(&heap, first, false);
        let records: Vec<NvPtr> = (0..3).map(|_| alloc.alloc_on(&heap, 296).expect("room")).collect();
        heap.crash(|| false);
        older.iter().for_each(|(at, raw)| heap.damage(*at, *raw));
        let alloc = heap.try_open().expect("opens");
        assert!(alloc.check_settled().is_err(), "the records are in a contested run");
        alloc.keep(records[0], 296);
        alloc.mark_on(&heap, records[1], 296).expect("it is there");
        if is_freed {
            free(&alloc, &heap, records[0], 296);
        }
        assert_eq!(alloc.finish_on(&heap).records, 2 - u64::from(is_freed));
        for at in &records[usize::from(is_freed)..2] {
            free(&alloc, &heap, *at, 296);
        }
        super::assert_all_free_after(&alloc, &heap, &findings(&alloc, &heap));
    }
}

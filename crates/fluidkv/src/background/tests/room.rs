//! Tests of range splits in a store with hardly any free space.

use lodestore_media::{ExtentKind, NvPtr};

use super::*;

/// Allocates free space until another range would not fit.
fn take_room(inner: &Background) -> Vec<NvPtr> {
    const KIND: ExtentKind = ExtentKind(ExtentKind::ENGINE.0 + 40);
    let take = || inner.pool.allocator().alloc_extent(&inner.pool, 16 << 10, KIND).ok();
    std::iter::from_fn(|| take().filter(|_| inner.reserve.has_space_for_range(&inner.pool))).collect()
}

/// Plans the split of the only range, before this one of its tables.
fn plan_cut(inner: &Background, table: impl Fn(usize) -> usize) {
    let mut publisher = lock(&inner.publisher);
    let range = Arc::clone(&publisher.ranges().list[0]);
    let tables = &range.stable.tables;
    publisher.set_cuts(range.id, vec![tables[table(tables.len())].descriptor.min.clone()]);
}

/// Regression: a flush uses a chunk for each range. Splits in a full store used the space that
/// background work needs, and deletes were refused for good.
#[test]
fn a_range_is_not_split_if_a_flush_into_both_would_not_fit() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    waiting_split(&store);
    let inner = &store.running.inner;
    // The larger part then needs hardly less free space.
    plan_cut(inner, |_| 1);
    fill(&store, 10..20, 2);
    let taken = take_room(inner);
    flush(inner);
    assert_eq!(inner.view.load().ranges.list.len(), 1);
    taken.iter().for_each(|at| inner.pool.allocator().free_extent(&inner.pool, *at));
    fill(&store, 20..30, 2);
    flush(inner);
    assert_eq!(inner.view.load().ranges.list.len(), 2);
    assert_eq!(*lock(&told), [""; 0]);
    assert_all(&store, 0..30, 2);
}

/// As many bytes must be free as the largest range has. Regression: a range whose split waited for
/// space grew, and used the space that its split waited for.
#[test]
fn the_largest_range_is_split_without_space_if_less_is_needed_afterwards() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    waiting_split(&store);
    let inner = &store.running.inner;
    plan_cut(inner, |tables| tables / 2);
    fill(&store, 10..20, 2);
    take_room(inner);
    let needed = inner.reserve.needed_bytes();
    flush(inner);
    assert_eq!(inner.view.load().ranges.list.len(), 2);
    assert!(inner.reserve.needed_bytes() < needed * 3 / 4, "{needed} before, {}", inner.reserve.needed_bytes());
    assert_eq!(*lock(&told), [""; 0]);
    assert_all(&store, 0..20, 2);
}

/// Regression: the thread that compacted the range left the new cuts in place, and no thread split
/// the range afterwards.
#[test]
fn the_largest_range_is_halved_if_it_can_be_held_and_keeps_its_cuts_otherwise() {
    let scratch = Scratch::new();
    let (store, told) = created(&scratch);
    let inner = &store.running.inner;
    fill(&store, 0..2200, 1);
    store.settle().expect("settled");
    let range = Arc::clone(&inner.view.load().ranges.list[0]);
    let ranges = || inner.view.load().ranges.list.clone();
    assert!(ranges().len() == 1 && range.bytes() >= inner.sizes.range / 2, "{} bytes", range.bytes());
    let held = inner.scheduler.hold_idle_ranges(std::iter::once(range.id));
    assert!(!inner.halve_largest().expect("not halved"));
    inner.scheduler.release_ranges(&held);
    assert!(ranges().len() == 1 && ranges()[0].cuts.is_empty());
    let needed = inner.reserve.needed_bytes();
    assert!(inner.halve_largest().expect("halved"));
    assert_eq!(ranges().len(), 2);
    let [low, high] = [0, 1].map(|index| ranges()[index].bytes());
    assert!(low.abs_diff(high) < range.bytes() / 4, "{low} and {high} bytes");
    assert!(inner.reserve.needed_bytes() < needed, "{needed} before, {}", inner.reserve.needed_bytes());
    while inner.halve_largest().expect("halved") {}
    let count = ranges().len();
    assert!(lock(&inner.scheduler.busy).ranges.is_empty());
    assert_settles(&store, &told);
    assert_eq!(ranges().len(), count, "none is joined again");
    assert_all(&store, 0..2200, 1);
}

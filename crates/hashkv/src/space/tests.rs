use super::*;

const SEGMENT: u32 = 64 << 10;
const NO_GROWTH: SegmentLimits = SegmentLimits { growth: 0, spare: 0 };

/// Returns the bytes of records, of which the first has 100.
fn bytes(wanted: usize) -> PartBytes {
    PartBytes { first: 100, wanted }
}

fn pointer(generation: u32, at: u32, len: u32) -> Pointer {
    Pointer { segment: 1, generation, at, len }
}

/// Returns the account of an open that finds these pointers, all into one segment.
fn counted(pointers: impl IntoIterator<Item = Pointer>) -> Space {
    let mut space = Space::new(SEGMENT, 3, 3);
    pointers.into_iter().for_each(|pointer| space.count(pointer));
    space
}

/// A newer version in a log hides a table's pointer into a segment that was collected and is in use
/// again.
#[test]
fn a_pointer_of_an_earlier_use_of_a_segment_does_not_count_before_or_after_newer_ones() {
    // Numbers of uses wrap around.
    for (earlier, newer) in [(4, 9), (u32::MAX - 2, 3)] {
        let hidden = pointer(earlier, 40 << 10, 8 << 10);
        let live = [pointer(newer, 32, 2000), pointer(newer, 4096, 600)];
        for pointers in [[hidden, live[0], live[1]], [live[0], hidden, live[1]], [live[0], live[1], hidden]] {
            let mut space = counted(pointers);
            assert_eq!(space.live_bytes(), 2600, "in the order {pointers:?}");
            let held = space.counted();
            assert_eq!(held, [1]);
            space.arrange(&[(1, Some((Home::Group(Prefix::ALL), newer)))], false);
            let victim =
                space.choose_victim(&Gain { segments: 0, benefit_min: 0.0 }, 8).expect("a segment with something live");
            let [taken] = &victim.segments[..] else { panic!("one segment") };
            assert_eq!((taken.segment, taken.generation, taken.end), (1, newer, 8192), "in the order {pointers:?}");
            // The next use of a segment gets a new number.
            let part = space.allocate_part(Owner::Cold, bytes(100), NO_GROWTH, &mut |_| false).expect("a free segment");
            assert_eq!(part.generation, newer + 1, "in the order {pointers:?}");
        }
    }
}

/// A flush reports the expired record dead when its key is overwritten.
#[test]
fn generations_named_only_by_pointers_to_expired_values_are_not_reused() {
    let mut space = counted([pointer(4, 32, 2000)]);
    space.note_use(9);
    space.arrange(&[(1, Some((Home::Cold, 4)))], false);
    let part = space.allocate_part(Owner::Cold, bytes(100), NO_GROWTH, &mut |_| false).expect("a free segment");
    assert_eq!(part.generation, 10);
}

/// Serial numbers are compared with the last one, and the first has no predecessor.
#[test]
fn generations_continue_after_those_that_an_open_found() {
    for first in [1, 1 << 30, (1 << 31) - 1, 1 << 31, 3 << 30, u32::MAX - 3] {
        let mut space = counted([first + 2, first, first + 3, first + 1].map(|generation| pointer(generation, 32, 80)));
        space.arrange(&[(1, None)], false);
        let mut next = || {
            space
                .allocate_part(Owner::Cold, bytes(SEGMENT as usize), NO_GROWTH, &mut |_| false)
                .expect("a free segment")
        };
        let last = first + 3;
        // 0 is not a valid number.
        let wanted = last.checked_add(1).map_or([1, 2], |one| [one, one + 1]);
        assert_eq!([next().generation, next().generation], wanted, "behind {last}");
    }
}

/// A file that was cut off may grow again, and flushes report the lost records dead when their keys
/// are overwritten.
#[test]
fn generations_named_by_pointers_beyond_the_end_of_the_file_are_not_reused() {
    for lost in [Pointer { segment: 3, generation: 9, at: 32, len: 80 }, pointer(9, SEGMENT - 8, 80)] {
        let mut space = counted([pointer(4, 32, 80), lost]);
        space.arrange(&[(1, Some((Home::Cold, 4)))], false);
        let part = space.allocate_part(Owner::Cold, bytes(100), NO_GROWTH, &mut |_| false).expect("a free segment");
        assert_eq!(part.generation, 10);
    }
}

#[test]
fn a_circular_log_is_one_group_whatever_groups_another_mode_has_left() {
    let [low, high] = Prefix::ALL.halves();
    let arranged = |circular: bool| {
        let mut space = Space::new(SEGMENT, 3, 3);
        (0..3).for_each(|segment| space.count(Pointer { segment, generation: 9, at: 32, len: 800 }));
        let group = |segment: u32, prefix: Prefix| (segment, Some((Home::Group(prefix), 9)));
        space.arrange(&[group(0, low), group(1, high), group(2, Prefix::ALL)], circular);
        (space.groups(), space.groups[0].segments.clone(), space.orphans.clone())
    };
    assert_eq!(arranged(true), (1, vec![2], vec![0, 1]));
    assert_eq!(arranged(false), (2, vec![0], vec![2]));
}

#[test]
fn deaths_in_an_earlier_use_of_a_segment_change_nothing() {
    let mut space = counted([pointer(9, 32, 2000)]);
    space.mark_dead(pointer(4, 32, 2000));
    assert_eq!(space.live_bytes(), 2000);
    space.mark_dead(pointer(9, 32, 1000));
    assert_eq!(space.live_bytes(), 1000);
}

/// Returns an account of segments of one group with these live bytes.
fn held(live: &[u32]) -> Space {
    let mut space = Space::new(SEGMENT, live.len() as u32, live.len() as u32);
    for (segment, live) in (0..).zip(live) {
        space.count(Pointer { segment, generation: segment + 1, at: 32, len: *live });
    }
    let numbers: Vec<_> =
        (0..live.len() as u32).map(|segment| (segment, Some((Home::Group(Prefix::ALL), segment + 1)))).collect();
    space.arrange(&numbers, false);
    space
}

/// While readers hold retired segments, fewer segments are free than are spared for collections.
#[test]
fn survivors_of_a_collection_fit_into_the_available_segments() {
    let live = [SEGMENT / 2; 10];
    let chosen = |room: u32| {
        let victim = held(&live).choose_victim(&Gain { segments: 0, benefit_min: 0.0 }, room);
        victim.map_or(0, |victim| victim.segments.len())
    };
    assert_eq!(chosen(0), 0);
    for room in [1, 2, 3, 5, 8] {
        let count = chosen(room) as u32;
        assert!(count >= 1 && count * SEGMENT / 2 <= room * SEGMENT, "{count} where there is room for {room}");
    }
    assert!(chosen(8) > chosen(3));
}

/// Segments may have 16 MiB, and all segments of a victim are read into DRAM.
#[test]
fn a_collection_of_long_segments_chooses_few_or_as_many_as_free_one() {
    let count = |segment_bytes: u32, live_in_ten: u32| {
        let mut space = Space::new(segment_bytes, 60, 60);
        for segment in 0..60 {
            let len = segment_bytes / 10 / 8 * 8 * live_in_ten;
            space.count(Pointer { segment, generation: 1, at: 32, len });
        }
        let headers: Vec<_> = (0..60).map(|segment| (segment, Some((Home::Group(Prefix::ALL), 1)))).collect();
        space.arrange(&headers, false);
        space.choose_victim(&Gain { segments: 8, benefit_min: 0.0 }, 64).map_or(0, |victim| victim.segments.len())
    };
    assert_eq!([count(64 << 10, 2), count(64 << 10, 5)], [48; 2]);
    assert_eq!(count(1 << 20, 5), 3);
    assert_eq!([count(16 << 20, 2), count(16 << 20, 5)], [2; 2]);
    assert_eq!(count(16 << 20, 7), 4);
    assert_eq!(count(16 << 20, 9), 0, "too many to be read for one");
}

#[test]
fn a_header_of_another_use_than_that_of_the_pointers_names_no_owner() {
    let [low, high] = Prefix::ALL.halves();
    let mut space = Space::new(SEGMENT, 3, 3);
    (0..3).for_each(|segment| space.count(Pointer { segment, generation: 9, at: 32, len: 800 }));
    space.arrange(
        &[(0, Some((Home::Group(low), 9))), (1, Some((Home::Group(high), 9))), (2, Some((Home::Group(high), 4)))],
        false,
    );
    assert_eq!(space.groups[space.group_of(low.bits)].segments, [0]);
    assert_eq!(space.groups[space.group_of(high.bits)].segments, [1]);
    assert_eq!(space.orphans, [2]);
}

#[test]
fn a_segment_with_only_a_refused_part_is_free_and_allocated_last() {
    let mut space = Space::new(SEGMENT, 4, 4);
    let take = |space: &mut Space, wanted: usize| {
        let owner = space.owner_of(0, false);
        space.allocate_part(owner, bytes(wanted), NO_GROWTH, &mut |_| false).expect("a free segment")
    };
    let refused = take(&mut space, 100);
    // The group is split during the write.
    space.split(0);
    space.fail_write(&refused);
    let counts = space.counts();
    assert_eq!((counts.free, counts.damaged, space.orphans.len()), (4, 0, 0));
    let others = [(); 3].map(|()| take(&mut space, SEGMENT as usize));
    assert!(others.iter().all(|part| part.segment != refused.segment));
    let again = take(&mut space, 100);
    assert_eq!((again.segment, again.from), (refused.segment, 0));
    // Another writer has the following part.
    let behind = take(&mut space, 100);
    assert_eq!((behind.segment, behind.from), (again.segment, again.len));
    space.fail_write(&again);
    space.end_write(&behind, 100);
    assert_eq!((space.counts().free, space.counts().damaged), (0, 1));
    assert_eq!(space.live_of(behind.segment), 100);
}

//! The model against image sets computed by hand.

use std::collections::BTreeSet;
use std::panic::Location;

use super::*;

const GRAIN: u64 = 64;

fn model_of(len: usize) -> LineModel {
    LineModel::new(SimImage { regions: vec![vec![0; len]], ..SimImage::default() })
}

fn event(what: What) -> Event {
    Event { what, site: Location::caller() }
}

fn word(model: &mut LineModel, offset: u64, value: u64) {
    model.apply(&event(What::Word { region: 0, offset, value, mask: u8::MAX, bulk: false }));
}

fn flush(model: &mut LineModel, offset: u64, len: u64, thread: u16) {
    model.apply(&event(What::Flush { region: 0, offset, len, thread }));
}

fn fence(model: &mut LineModel, thread: u16) {
    model.apply(&event(What::Fence { thread }));
}

/// Returns every image of this moment, as the values of the words at `offsets`.
fn images(model: &mut LineModel, offsets: &[u64]) -> BTreeSet<Vec<u64>> {
    let set = model.crash_set();
    let choices = set.select(usize::MAX, &mut Rng::new(0));
    assert_eq!(choices.len() as u64, set.combinations());
    let read = |image: &SimImage| {
        let value = |at: &u64| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&image.regions[0][*at as usize..*at as usize + 8]);
            u64::from_le_bytes(bytes)
        };
        offsets.iter().map(value).collect()
    };
    let all: Vec<Vec<u64>> = choices.iter().map(|choice| model.with_image(&set, choice, read)).collect();
    let distinct: BTreeSet<_> = all.iter().cloned().collect();
    let hashes: BTreeSet<u64> = choices.iter().map(|choice| set.hash(choice)).collect();
    assert_eq!(hashes.len(), choices.len(), "one hash an image");
    assert_eq!(distinct.len(), all.len(), "no image twice (if the offsets tell all)");
    distinct
}

fn sets(expected: &[&[u64]]) -> BTreeSet<Vec<u64>> {
    expected.iter().map(|image| image.to_vec()).collect()
}

#[test]
fn nothing_stored_leaves_one_image() {
    let mut model = model_of(128);
    assert_eq!(images(&mut model, &[0, 64]), sets(&[&[0, 0]]));
}

#[test]
fn stores_to_one_line_persist_as_prefixes() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    word(&mut model, 8, 2);
    word(&mut model, 0, 3);
    assert_eq!(images(&mut model, &[0, 8]), sets(&[&[0, 0], &[1, 0], &[1, 2], &[3, 2]]));
}

#[test]
fn lines_are_independent() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    word(&mut model, 64, 2);
    assert_eq!(images(&mut model, &[0, 64]), sets(&[&[0, 0], &[1, 0], &[0, 2], &[1, 2]]));
}

#[test]
fn a_flush_alone_promises_nothing() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    flush(&mut model, 0, 8, 0);
    assert_eq!(images(&mut model, &[0]), sets(&[&[0], &[1]]));
}

#[test]
fn a_fence_alone_promises_nothing() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    fence(&mut model, 0);
    assert_eq!(images(&mut model, &[0]), sets(&[&[0], &[1]]));
}

#[test]
fn flush_then_fence_makes_durable() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    word(&mut model, 64, 2);
    flush(&mut model, 0, 8, 0);
    fence(&mut model, 0);
    assert_eq!(images(&mut model, &[0, 64]), sets(&[&[1, 0], &[1, 2]]));
    assert_eq!(model.dirty_lines(), 1);
}

#[test]
fn a_flush_covers_its_whole_line_and_no_other() {
    let mut model = model_of(256);
    word(&mut model, 56, 1);
    word(&mut model, 64, 2);
    word(&mut model, 128, 3);
    flush(&mut model, 63, 2, 0);
    fence(&mut model, 0);
    assert_eq!(images(&mut model, &[56, 64, 128]), sets(&[&[1, 2, 0], &[1, 2, 3]]));
}

#[test]
fn a_store_after_the_flush_is_not_covered() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    flush(&mut model, 0, 8, 0);
    word(&mut model, 8, 2);
    assert_eq!(images(&mut model, &[0, 8]), sets(&[&[0, 0], &[1, 0], &[1, 2]]));
    fence(&mut model, 0);
    assert_eq!(images(&mut model, &[0, 8]), sets(&[&[1, 0], &[1, 2]]));
}

#[test]
fn a_dead_process_fences_nothing() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    flush(&mut model, 0, 8, 0);
    model.forget_flushes();
    fence(&mut model, 0);
    assert_eq!(images(&mut model, &[0]), sets(&[&[0], &[1]]));
    flush(&mut model, 0, 8, 0);
    fence(&mut model, 0);
    assert_eq!(images(&mut model, &[0]), sets(&[&[1]]));
}

#[test]
fn another_threads_fence_does_not_count() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    flush(&mut model, 0, 8, 7);
    fence(&mut model, 8);
    assert_eq!(images(&mut model, &[0]), sets(&[&[0], &[1]]));
    fence(&mut model, 7);
    assert_eq!(images(&mut model, &[0]), sets(&[&[1]]));
}

#[test]
fn two_threads_may_flush_one_line() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    flush(&mut model, 0, 8, 1);
    word(&mut model, 8, 2);
    flush(&mut model, 0, 8, 2);
    word(&mut model, 16, 3);
    fence(&mut model, 1);
    assert_eq!(images(&mut model, &[0, 8, 16]), sets(&[&[1, 0, 0], &[1, 2, 0], &[1, 2, 3]]));
    fence(&mut model, 2);
    assert_eq!(images(&mut model, &[0, 8, 16]), sets(&[&[1, 2, 0], &[1, 2, 3]]));
}

#[test]
fn a_fence_that_covers_more_ends_the_others_cover() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    flush(&mut model, 0, 8, 1);
    word(&mut model, 8, 2);
    flush(&mut model, 0, 8, 2);
    fence(&mut model, 2);
    word(&mut model, 16, 3);
    // Thread 1 flushed before the store of 3: its fence must not cover it.
    fence(&mut model, 1);
    assert_eq!(images(&mut model, &[0, 8, 16]), sets(&[&[1, 2, 0], &[1, 2, 3]]));
}

#[test]
fn a_word_written_back_to_its_old_value_adds_no_image() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    word(&mut model, 0, 0);
    assert_eq!(images(&mut model, &[0]), sets(&[&[0], &[1]]));
    let set = model.crash_set();
    let newest = model.with_image(&set, &set.all_new(), |image| image.regions[0][0]);
    assert_eq!(newest, 0, "all new is the last content, although it equals the first");
}

#[test]
fn sixteen_bytes_tear_either_way() {
    let recorder = Recorder::new(&SimSpec::default());
    recorder.locked(|log| log.store_pair_from(Location::caller(), 0, 32, (5, 6)));
    let mut model = model_of(128);
    recorder.take().events.iter().for_each(|event| model.apply(event));
    assert_eq!(images(&mut model, &[32, 40]), sets(&[&[0, 0], &[5, 0], &[0, 6], &[5, 6]]));
}

#[test]
fn a_bulk_store_has_no_order_in_its_line_but_with_its_neighbours() {
    let recorder = Recorder::new(&SimSpec::default());
    recorder.store(0, 0, &9u64.to_le_bytes());
    let bytes: Vec<u8> = [1u64, 2, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
    recorder.store(0, 8, &bytes);
    recorder.store(0, 0, &8u64.to_le_bytes());
    let mut model = model_of(128);
    recorder.take().events.iter().for_each(|event| model.apply(event));
    let expected = sets(&[
        &[0, 0, 0, 0],
        &[9, 0, 0, 0],
        &[9, 1, 0, 0],
        &[9, 1, 2, 0],
        &[9, 1, 2, 3],
        &[9, 0, 0, 3],
        &[9, 0, 2, 3],
        &[8, 1, 2, 3],
    ]);
    assert_eq!(images(&mut model, &[0, 8, 16, 24]), expected);
}

#[test]
fn bytes_that_are_not_whole_words_keep_their_neighbours() {
    let recorder = Recorder::new(&SimSpec::default());
    let mut model = LineModel::new(SimImage { regions: vec![vec![0xEE; 128]], ..SimImage::default() });
    recorder.store(0, 5, &[1, 2, 3, 4, 5]);
    recorder.flush(0, 5, 5);
    recorder.fence();
    let trace = recorder.take();
    assert_eq!(trace.events.len(), 4, "two words, flush, fence");
    trace.events.iter().for_each(|event| model.apply(event));
    let line = &model.durable().regions[0][..12];
    assert_eq!(line, [0xEE, 0xEE, 0xEE, 0xEE, 0xEE, 1, 2, 3, 4, 5, 0xEE, 0xEE]);
    assert_eq!(model.dirty_lines(), 0);
}

#[test]
fn sectors_are_the_same_model_with_a_larger_grain() {
    let spec = SimSpec { grain: SECTOR, ..SimSpec::default() };
    let mut model = LineModel::new(SimImage { regions: vec![vec![0; 1024]], spec, ..SimImage::default() });
    word(&mut model, 0, 1);
    word(&mut model, 64, 2);
    word(&mut model, 512, 3);
    let expected = sets(&[&[0, 0, 0], &[1, 0, 0], &[1, 2, 0], &[0, 0, 3], &[1, 0, 3], &[1, 2, 3]]);
    assert_eq!(images(&mut model, &[0, 64, 512]), expected);
}

#[test]
fn if_stores_persist_there_is_one_image() {
    let spec = SimSpec { stores_persist: true, ..SimSpec::default() };
    let mut model = LineModel::new(SimImage { regions: vec![vec![0; 128]], spec, ..SimImage::default() });
    word(&mut model, 0, 1);
    word(&mut model, 64, 2);
    assert_eq!(images(&mut model, &[0, 64]), sets(&[&[1, 2]]));
}

#[test]
fn an_added_region_is_zero_and_accepts_stores() {
    let mut model = model_of(128);
    model.apply(&event(What::Region { region: 1, len: 128 }));
    model.apply(&event(What::Word { region: 1, offset: 64, value: 7, mask: u8::MAX, bulk: false }));
    assert_eq!(model.newest().regions[1][64], 7);
    assert_eq!(model.crash_set().combinations(), 2);
    assert_eq!(model.durable().regions[1], vec![0; 128]);
}

#[test]
fn a_recreated_region_is_zero() {
    let mut model = LineModel::new(SimImage { regions: vec![vec![0; 128], vec![7; 128]], ..SimImage::default() });
    model.apply(&event(What::Word { region: 1, offset: 0, value: 9, mask: u8::MAX, bulk: false }));
    model.apply(&event(What::Region { region: 1, len: 64 }));
    assert_eq!(model.durable().regions, vec![vec![0; 128], vec![0; 64]]);
    assert_eq!(model.dirty_lines(), 0);
    let hash = |model: &LineModel| model.crash_set().hash(&model.crash_set().all_old());
    assert_eq!(hash(&model), hash(&LineModel::new(model.durable().clone())));
}

#[test]
fn many_images_are_sampled_with_the_extremes_among_them() {
    let mut model = model_of(64 * 20);
    for line in 0..20u64 {
        word(&mut model, line * GRAIN, 1);
    }
    let set = model.crash_set();
    assert_eq!(set.combinations(), 1 << 20);
    let chosen = set.select(100, &mut Rng::new(3));
    assert_eq!(chosen.len(), 100);
    let hashes: BTreeSet<u64> = chosen.iter().map(|choice| set.hash(choice)).collect();
    assert_eq!(hashes.len(), 100, "no image twice");
    assert_eq!(chosen[0], set.all_old());
    assert_eq!(chosen[1], set.all_new());
    for line in 0..20 {
        let count = |wanted: u16| chosen.iter().filter(|c| (0..20).all(|at| (c[at] == wanted) == (at == line))).count();
        assert!(count(1) >= 1 && count(0) >= 1, "line {line} alone new and alone old");
    }
    assert_eq!(chosen, set.select(100, &mut Rng::new(3)), "a seed reproduces the sample");
    assert_ne!(chosen, set.select(100, &mut Rng::new(4)));
}

#[test]
fn a_small_limit_still_holds_the_extremes() {
    let mut model = model_of(64 * 20);
    (0..20u64).for_each(|line| word(&mut model, line * GRAIN, 1));
    let set = model.crash_set();
    let chosen = set.select(8, &mut Rng::new(3));
    assert_eq!(chosen.len(), 8);
    assert!(chosen.contains(&set.all_old()) && chosen.contains(&set.all_new()));
}

#[test]
fn equal_images_have_equal_hashes_at_different_moments() {
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    let before = model.crash_set();
    let hash = before.hash(&before.all_new());
    flush(&mut model, 0, 8, 0);
    fence(&mut model, 0);
    let after = model.crash_set();
    assert_eq!(after.hash(&after.all_old()), hash);
    let rebuilt = LineModel::new(model.durable().clone());
    let set = rebuilt.crash_set();
    assert_eq!(set.hash(&set.all_old()), hash, "the running hash is that of the bytes");
}

#[test]
fn with_image_leaves_the_durable_bytes_as_they_were() {
    let mut model = model_of(256);
    (0..4u64).for_each(|line| word(&mut model, line * GRAIN, line + 1));
    let before = model.durable().clone();
    let set = model.crash_set();
    for choice in set.select(usize::MAX, &mut Rng::new(0)) {
        model.with_image(&set, &choice, |_| ());
        assert_eq!(model.durable(), &before);
    }
}

#[test]
fn a_line_that_is_never_flushed_stays_small_and_right() {
    let mut model = model_of(128);
    for value in 1..=5000u64 {
        word(&mut model, value % 4 * 8, value);
    }
    let set = model.crash_set();
    assert!(set.combinations() <= 4096);
    let newest = model.newest();
    let by_set = model.with_image(&set, &set.all_new(), Clone::clone);
    assert_eq!(newest, by_set);
    assert_eq!(newest.regions[0][..8], 5000u64.to_le_bytes());
    flush(&mut model, 0, 64, 0);
    fence(&mut model, 0);
    assert_eq!(model.durable(), &newest);
}

#[test]
fn a_recorder_that_is_switched_off_keeps_nothing() {
    let recorder = Recorder::new(&SimSpec { record: false, ..SimSpec::default() });
    recorder.store(0, 0, &[1; 8]);
    recorder.fence();
    assert_eq!(recorder.pending(), 0);
    recorder.set_recording(true);
    recorder.store(0, 0, &[1; 8]);
    recorder.mark(4);
    assert_eq!(recorder.take().events.len(), 2);
    assert_eq!(recorder.pending(), 0);
}

#[test]
fn a_dropped_call_site_loses_its_flushes_and_no_others() {
    let plain = Recorder::new(&SimSpec::default());
    let flush_here = |recorder: &Recorder| recorder.flush(0, 0, 64);
    flush_here(&plain);
    let sites = plain.sites();
    let ((verb, file, line), count) = sites.first_key_value().expect("one site");
    assert_eq!((*verb, *count), (Verb::Flush, 1));
    let drop_site = Some(DropSite { verb: *verb, file: (*file).into(), line: *line });
    let lossy = Recorder::new(&SimSpec { drop_site, ..SimSpec::default() });
    flush_here(&lossy);
    assert_eq!(lossy.pending(), 0);
    lossy.flush(0, 0, 64);
    lossy.fence();
    assert_eq!(lossy.pending(), 2);
}

#[test]
fn record_then_publish_leaves_the_documented_images() {
    // Record of two words at 0, pointer at 64. In the right order the pointer never exists without
    // the whole record.
    let mut model = model_of(128);
    let whole = |image: &Vec<u64>| image[2] == 0 || (image[0] == 1 && image[1] == 2);
    word(&mut model, 0, 1);
    word(&mut model, 8, 2);
    assert!(images(&mut model, &[0, 8, 64]).iter().all(whole));
    flush(&mut model, 0, 16, 0);
    fence(&mut model, 0);
    word(&mut model, 64, 99);
    assert_eq!(images(&mut model, &[0, 8, 64]), sets(&[&[1, 2, 0], &[1, 2, 99]]));
    // Without the fence it does.
    let mut model = model_of(128);
    word(&mut model, 0, 1);
    word(&mut model, 8, 2);
    flush(&mut model, 0, 16, 0);
    word(&mut model, 64, 99);
    assert!(!images(&mut model, &[0, 8, 64]).iter().all(whole));
}

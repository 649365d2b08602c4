//! Crashes inside creation, opening, growth and closing of a pool. Every image opens to a whole
//! pool, or to none if the creation was not complete.
#![cfg(feature = "sim")]

use lodestore_contract::Error;
use lodestore_media::sim::{Event, LineModel, Rng, SimImage, SimSpec, Source, What};
use lodestore_media::{ExtentKind, NvPtr, OpenReport, PlantedFault, Pool, PoolOptions, planted, source};

fn options() -> PoolOptions {
    PoolOptions { capacity: 256 << 10, region_bytes: 64 << 10, chunk_bytes: 512, ..PoolOptions::default() }
}

/// Publishes a value, stored in `region`, in the root.
fn publish(pool: &Pool, region: u16, value: u64) {
    let at = pool.layout(region).expect("there").chunk(9);
    pool.store_and_flush(at, &[&value.to_le_bytes()]);
    pool.fence();
    pool.publish_u64(pool.root(), at.raw());
    pool.flush(pool.root(), 8);
    pool.fence();
    pool.recorder().expect("simulated").mark(value);
}

/// Checks an image at a moment when `marks` values were acknowledged.
fn judge(image: &SimImage, created: bool, marks: u64, closed: bool) -> Result<Option<OpenReport>, String> {
    let (pool, report) = match Pool::open_sim(image, "test", 1, options()) {
        Ok(opened) => opened,
        Err(Error::Missing { .. }) if !created => return Ok(None),
        Err(refused) => return Err(refused.to_string()),
    };
    let at = NvPtr::from_raw(pool.load_u64(pool.root()));
    let found = match pool.bytes(at, 8) {
        Some(bytes) => u64::from_le_bytes(bytes.try_into().expect("8 bytes")),
        None if at.is_null() => 0,
        None => return Err(format!("a pointer to nowhere: {at:?}")),
    };
    if found != marks && found != marks + 1 {
        return Err(format!("{found} in the root, {marks} acknowledged"));
    }
    if report.clean && !closed {
        return Err("clean, though it was not closed".into());
    }
    Ok(Some(report))
}

/// Runs a pool's whole life and checks the images of every crash point. Returns the number of
/// images, and the first failure.
fn explore(mutant: Option<PlantedFault>, seed: u64) -> (u64, Option<String>) {
    let spec = SimSpec { mutant, ..SimSpec::default() };
    let (pool, _) = Pool::create_sim(&spec, "test", 1, options()).expect("a pool");
    pool.recorder().expect("simulated").mark(0);
    publish(&pool, 0, 1);
    let index = pool.grow(512).expect("room");
    publish(&pool, index, 2);
    let before_close = pool.recorder().expect("simulated").pending();
    pool.close(true).expect("closes");
    let life = pool.recorder().expect("simulated").take();

    let mut rng = Rng::new(seed);
    let mut model = LineModel::new(SimImage { spec: spec.clone(), ..SimImage::default() });
    let (mut images, mut created, mut marks) = (0, false, 0);
    for (step, event) in life.events.iter().enumerate() {
        model.apply(event);
        if let What::Mark(value) = event.what {
            (created, marks) = (true, value);
        }
        let set = model.crash_set();
        for choice in set.select(24, &mut rng) {
            images += 1;
            let verdict = model.with_image(&set, &choice, |image| judge(image, created, marks, step >= before_close));
            if let Err(wrong) = verdict {
                return (images, Some(format!("seed {seed}, step {step}: {wrong}")));
            }
        }
    }
    let (more, wrong) = explore_reopening(model.newest(), &mut rng);
    (images + more, wrong)
}

/// Crashes inside an opening of the closed pool and the store after it. The pool must not look
/// clean once something was stored.
fn explore_reopening(image: SimImage, rng: &mut Rng) -> (u64, Option<String>) {
    let (pool, report) = Pool::open_sim(&image, "test", 1, options()).expect("opens");
    if !report.clean {
        return (1, Some("closed, but not clean".into()));
    }
    pool.recorder().expect("simulated").mark(2);
    publish(&pool, 1, 3);
    let life = pool.recorder().expect("simulated").take();
    let mut model = LineModel::new(image);
    let (mut images, mut opened, mut stored) = (0, false, false);
    for (step, event) in life.events.iter().enumerate() {
        model.apply(event);
        stored |= opened && matches!(event.what, What::Word { .. });
        opened |= matches!(event.what, What::Mark(2));
        let acknowledged = if matches!(event.what, What::Mark(3)) { 3 } else { 2 };
        let set = model.crash_set();
        for choice in set.select(24, rng) {
            images += 1;
            let verdict = model.with_image(&set, &choice, |image| judge(image, true, acknowledged, true));
            match verdict {
                Ok(Some(report)) if report.clean && stored => {
                    return (images, Some(format!("reopening, step {step}: clean after a store")));
                }
                Ok(_) => {}
                Err(wrong) => return (images, Some(format!("reopening, step {step}: {wrong}"))),
            }
        }
    }
    (images, None)
}

#[test]
fn a_crash_anywhere_in_a_pools_life_leaves_a_whole_pool() {
    let mut images = 0;
    for seed in 0..4 {
        let (judged, wrong) = explore(None, seed);
        assert_eq!(wrong, None);
        images += judged;
    }
    println!("{images} images");
    assert!(images > 5_000, "{images}");
}

fn is_fence(event: &Event) -> bool {
    matches!(event.what, What::Fence { .. })
}

/// Crashes inside an opening of `image`, which is unclean. Returns the first failure.
fn explore_opening_after_crash(image: &SimImage, rng: &mut Rng) -> Option<String> {
    let (pool, _) = match Pool::open_sim(image, "test", 1, options()) {
        Ok(opened) => opened,
        Err(refused) => return Some(format!("after the first crash: {refused}")),
    };
    let life = pool.recorder().expect("simulated").take();
    let mut model = LineModel::new(image.clone());
    for (step, event) in life.events.iter().enumerate() {
        let set = model.crash_set();
        for choice in set.select(if is_fence(event) { 100 } else { 0 }, rng) {
            if let Err(wrong) = model.with_image(&set, &choice, |image| judge(image, true, 2, true)) {
                return Some(format!("opening, step {step}: {wrong}"));
            }
        }
        model.apply(event);
    }
    None
}

/// Regression: an open that finished the raise of a generation overwrote the only whole copy of a
/// region header. If that was torn too, no copy was left.
#[test]
fn a_crash_in_the_open_after_a_crash_in_a_close_leaves_a_whole_pool() {
    let mut rng = Rng::new(1);
    let spec = SimSpec::default();
    let (pool, _) = Pool::create_sim(&spec, "test", 1, options()).expect("a pool");
    publish(&pool, 0, 1);
    let index = pool.grow(512).expect("room");
    publish(&pool, index, 2);
    // An extent there, so that its table has a seal.
    let extents =
        std::iter::repeat_with(|| pool.allocator().alloc_extent(&pool, 512, ExtentKind::ENGINE).expect("room"));
    extents.take(256).find(|at| at.region() == index).expect("an extent in the region");
    let before_close = pool.recorder().expect("simulated").pending();
    pool.close(true).expect("closes");
    let life = pool.recorder().expect("simulated").take();
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    for (step, event) in life.events.iter().enumerate() {
        let set = model.crash_set();
        for choice in set.select(if is_fence(event) && step >= before_close { 200 } else { 0 }, &mut rng) {
            let wrong = model.with_image(&set, &choice, |image| explore_opening_after_crash(image, &mut rng));
            assert_eq!(wrong, None, "closing, step {step}");
        }
        model.apply(event);
    }
}

const HEADER_WRITES: Source = source!("src/header_writes.rs");
/// The pool header is rewritten in place, in its only valid copy.
const IN_PLACE: PlantedFault = PlantedFault::at(
    "HeaderInPlace",
    &[HEADER_WRITES.line_after("pub(crate) fn write_header(", "memory.fence()").without_fence()],
);

#[test]
fn planted_faults_of_the_header_are_caught() {
    for mutant in [IN_PLACE, planted::CLEAN_FLAG_KEPT, planted::REGION_NOT_IN_HEADER] {
        let caught = (0..20).find_map(|seed| explore(Some(mutant), seed).1);
        println!("{mutant:?}: {caught:?}");
        assert!(caught.is_some(), "{mutant:?} was not caught");
    }
}

#[test]
fn a_pool_whose_stores_persist_flushes_nothing() {
    let spec = SimSpec { stores_persist: true, ..SimSpec::default() };
    let (pool, report) = Pool::create_sim(&spec, "test", 1, options()).expect("a pool");
    assert!(report.created && !pool.persists());
    publish(&pool, 0, 1);
    assert_eq!((pool.flushes(), pool.fences()), (0, 0));
    let (pool, _) = Pool::create_sim(&SimSpec::default(), "test", 1, options()).expect("a pool");
    let (flushes, fences) = (pool.flushes(), pool.fences());
    publish(&pool, 0, 1);
    assert_eq!((pool.flushes() - flushes, pool.fences() - fences), (2, 2));
}

/// Regression: seeds did not determine the runs. The header held the ID of the machine's boot, and
/// the explorer of `mkvs` draws its operations from a hash of the images.
#[test]
fn an_image_holds_nothing_of_the_machine() {
    let spec = SimSpec::default();
    let newest = |pool: &Pool, image: SimImage| {
        let mut model = LineModel::new(image);
        pool.recorder().expect("simulated").take().events.iter().for_each(|event| model.apply(event));
        model.newest()
    };
    let (pool, report) = Pool::create_sim(&spec, "test", 1, options()).expect("a pool");
    assert!(report.same_boot);
    let mut image = newest(&pool, SimImage { spec: spec.clone(), ..SimImage::default() });
    for _ in 0..2 {
        // Both copies of the header hold the IDs of the pool and of the boot. The pool's ID begins
        // with the number of its first region.
        for copy in [0, 4096] {
            assert_eq!(image.regions[0][copy + 24..copy + 56], *b"\0\0mulated pool 0simulated boot 0");
        }
        let (pool, report) = Pool::open_sim(&image, "test", 1, options()).expect("opens");
        assert!(report.same_boot);
        image = newest(&pool, image);
    }
}

/// A medium with free space for a little less than one usual region.
#[test]
fn a_region_is_shorter_if_the_medium_has_less_free_space_than_usual() {
    let usual: u64 = 32 << 20;
    let spec = SimSpec { record: false, ..SimSpec::default() };
    let options = PoolOptions { capacity: 1 << 30, ..PoolOptions::default() };
    for (free, grows) in [(usual - 4096, true), (usual / 4, true), (usual / 16, false)] {
        let (pool, _) = Pool::create_sim(&spec, "test", 1, options.clone()).expect("a pool");
        assert_eq!(pool.space().size, usual);
        pool.recorder().expect("simulated").set_medium_bytes(usual + free);
        match pool.grow(256 << 10) {
            Ok(region) => assert_eq!(pool.layout(region).expect("there").region_bytes, free),
            Err(error) => assert!(!grows && matches!(error, Error::Full { .. }), "{free} bytes free: {error}"),
        }
        assert_eq!(pool.regions(), 1 + u16::from(grows));
    }
}

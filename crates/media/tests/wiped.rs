//! An extent's earlier content is never mistaken for its own, after any crash during the
//! allocation.
#![cfg(feature = "sim")]

use lodestore_media::sim::{LineModel, Rng, SimImage, SimSpec};
use lodestore_media::{ExtentKind, Pool, PoolOptions};

const KIND: ExtentKind = ExtentKind(40);
const OTHER: ExtentKind = ExtentKind(41);
const BYTES: u64 = 2048;
const ENDS: (u64, u64) = (128, 64);

fn options() -> PoolOptions {
    PoolOptions { capacity: 64 << 10, region_bytes: 64 << 10, chunk_bytes: 512, ..PoolOptions::default() }
}

/// Returns whether any image has the new extent with old content at its ends.
fn shows_the_past(wiped: bool, grain: u32) -> bool {
    let spec = SimSpec { grain, ..SimSpec::default() };
    let (pool, _) = Pool::create_sim(&spec, "test", 1, options()).expect("a pool");
    let old = pool.allocator().alloc_extent(&pool, BYTES, OTHER).expect("room");
    pool.store(old, &[0xAB; BYTES as usize]);
    pool.flush(old, BYTES as usize);
    pool.fence();
    pool.allocator().free_extent(&pool, old);
    // This allocation makes the freed extent's cleared word durable. Its own extent stays in use.
    let beside = pool.allocator().alloc_extent(&pool, 512, OTHER).expect("room");
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    pool.recorder().expect("simulated").take().events.iter().for_each(|event| model.apply(event));
    let mut taken = Vec::new();
    while !taken.contains(&old) {
        let next = if wiped {
            pool.allocator().alloc_extent_wiped(&pool, BYTES, KIND, ENDS)
        } else {
            pool.allocator().alloc_extent(&pool, BYTES, KIND)
        };
        taken.push(next.expect("the old place comes again"));
    }
    pool.fence();
    let (mut past, mut rng) = (false, Rng::new(1));
    let layout = pool.layout(0).expect("region 0");
    let is_there = |image: &SimImage| {
        let chunk = ((old.offset() - layout.chunk(0).offset()) / 512) as u32;
        let copies = layout.extent_words(chunk).map(|copy| copy.offset() as usize);
        copies.iter().any(|word| image.regions[0][*word..word + 8] != [0; 8])
    };
    let holds = |image: &SimImage, from: u64, len: u64| {
        let from = (old.offset() + from) as usize;
        image.regions[0][from..from + len as usize].iter().any(|byte| *byte != 0)
    };
    for event in &pool.recorder().expect("simulated").take().events {
        let set = model.crash_set();
        for choice in set.select(64, &mut rng) {
            model.with_image(&set, &choice, |image| {
                past |= is_there(image) && (holds(image, 0, ENDS.0) || holds(image, BYTES - ENDS.1, ENDS.1));
            });
        }
        model.apply(event);
    }
    let newest = model.newest();
    assert!(is_there(&newest) && holds(&newest, ENDS.0, BYTES - ENDS.0 - ENDS.1), "the middle stays as it was");
    assert_ne!(beside, old);
    past
}

#[test]
fn an_extent_allocated_with_wiped_ends_never_shows_old_bytes_there() {
    for grain in [64, 512] {
        assert!(!shows_the_past(true, grain), "grain {grain}");
        assert!(shows_the_past(false, grain), "grain {grain}: or this test sees nothing");
    }
}

//! Several simulated pools with one recorder: one trace, and one image of all of them at the same
//! moment.
#![cfg(feature = "sim")]

use std::sync::Arc;

use lodestore_contract::Error;
use lodestore_media::sim::{LineModel, Recorder, SimImage, SimSpec, What};
use lodestore_media::{Pool, PoolOptions};

fn options() -> PoolOptions {
    PoolOptions { capacity: 64 << 10, region_bytes: 64 << 10, chunk_bytes: 512, ..PoolOptions::default() }
}

fn pools(spec: &SimSpec, count: u16) -> (Recorder, Vec<Arc<Pool>>) {
    let recorder = Recorder::new(spec);
    let pool = |first| Pool::create_sim_on(recorder.at(first), spec, "test", 1, options()).expect("a pool").0;
    let pools = (0..count).map(pool).collect();
    (recorder, pools)
}

/// Publishes in the root, without the fence.
fn publish(pool: &Pool, value: u64) {
    pool.publish_u64(pool.root(), value);
    pool.flush(pool.root(), 8);
}

/// Returns the root value of each pool of an image; each pool has one region.
fn roots(image: &SimImage) -> Vec<u64> {
    let recorder = Recorder::of_image(image);
    let open = |first| Pool::open_sim_on(recorder.at(first), image, "test", 1, options()).expect("a pool").0;
    (0..image.regions.len() as u16).map(|first| open(first).load_u64(open(first).root())).collect()
}

fn all_roots(model: &mut LineModel) -> Vec<Vec<u64>> {
    let set = model.crash_set();
    let choices = set.select(64, &mut lodestore_media::sim::Rng::new(1));
    let mut found: Vec<_> = choices.iter().map(|choice| model.with_image(&set, choice, roots)).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn one_trace_has_the_steps_of_all_pools_and_an_image_their_states_at_one_moment() {
    let spec = SimSpec::default();
    let (recorder, pools) = pools(&spec, 3);
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    recorder.take().events.iter().for_each(|event| model.apply(event));
    assert_eq!(all_roots(&mut model), [[0, 0, 0]]);
    for (at, pool) in pools.iter().enumerate() {
        publish(pool, at as u64 + 1);
        pool.fence();
    }
    let trace = recorder.take();
    let stored: Vec<u16> = trace
        .events
        .iter()
        .filter_map(|event| if let What::Word { region, .. } = event.what { Some(region) } else { None })
        .collect();
    assert_eq!(stored, [0, 1, 2], "each pool's store in its own region, in their order");
    let mut seen = Vec::new();
    for event in &trace.events {
        model.apply(event);
        seen.extend(all_roots(&mut model));
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen, [[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 3]], "no later pool without the ones before");
}

#[test]
fn a_fence_covers_the_flushes_of_its_own_pool() {
    let spec = SimSpec::default();
    let (recorder, pools) = pools(&spec, 2);
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    publish(&pools[0], 7);
    publish(&pools[1], 8);
    pools[1].fence();
    recorder.take().events.iter().for_each(|event| model.apply(event));
    assert_eq!(all_roots(&mut model), [[0, 8], [7, 8]]);
}

#[test]
fn a_pool_that_an_image_does_not_have_is_missing() {
    let spec = SimSpec::default();
    let (recorder, _pools) = pools(&spec, 2);
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    recorder.take().events.iter().for_each(|event| model.apply(event));
    let image = model.newest();
    let open = |first| Pool::open_sim_on(recorder.at(first), &image, "test", 1, options()).map(drop);
    assert!(open(1).is_ok());
    assert!(matches!(open(2), Err(Error::Missing { .. })));
}

//! NVHT under threads: live histories, and histories cut by a crash.

use lodestore_media::Mutant;
use lodestore_sim::concurrent::{Load, check_durable, check_live};
use lodestore_sim::config::Config;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::subject::{Engine, Shape};

const LOAD: Load = Load { threads: 3, keys: 3, ops: 60 };

fn shape() -> Shape {
    Shape::default()
}

#[test]
fn live_histories_are_linearizable() {
    for seed in 0..40 {
        let config = Config { seed, ..Config::default() };
        let store = NvhtEngine.create(&config.spec(false), &shape()).expect("a store");
        store.recorder().set_jitter(2);
        check_live(LOAD, seed, &|op| store.apply(op)).unwrap_or_else(|wrong| panic!("seed {seed}: {}", wrong.what));
        assert_eq!(store.verify().expect("verified"), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn what_returned_survives_a_crash_reads_included() {
    let mut images = 0;
    for seed in 0..40 {
        let config = Config { seed, images_per_point: 6, ..Config::default() };
        let counts = check_durable(&NvhtEngine, &config, &shape(), LOAD, 120)
            .unwrap_or_else(|wrong| panic!("seed {seed}: {} oracle: {}", wrong.oracle, wrong.what));
        images += counts.images;
    }
    println!("{images} images of concurrent histories");
}

#[test]
fn an_answer_from_an_entry_that_is_not_durable_is_seen() {
    let seen = (0..400).find(|seed| {
        let config =
            Config { seed: *seed, images_per_point: 6, mutant: Some(Mutant::ReadUnpersisted), ..Config::default() };
        check_durable(&NvhtEngine, &config, &shape(), Load { keys: 1, ops: 40, ..LOAD }, 200).is_err()
    });
    println!("ReadUnpersisted seen by the history of seed {seen:?}");
    assert!(seen.is_some());
}

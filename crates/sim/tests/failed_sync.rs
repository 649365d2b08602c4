//! A sync that fails: the write that needed it is refused, and what was acknowledged stays.

use lodestore_media::sim::{LineModel, SimImage, SimSpec};
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::op::{Op, Outcome};
use lodestore_sim::subject::{Engine, Shape};

fn put(index: u32, value: u8) -> Op {
    Op::Put { key: format!("key {index}").into_bytes(), value: vec![value; 40], expiry: None }
}

fn get(index: u32) -> Op {
    Op::Get { key: format!("key {index}").into_bytes() }
}

/// Fails the `nth` fence of an update and looks at all that a crash may leave; what the store answered until the crash.
fn update_fails(engine: &dyn Engine, nth: u64) -> Vec<Outcome> {
    let (spec, shape) = (SimSpec::default(), Shape::default());
    let store = engine.create(&spec, &shape).expect("create");
    store.apply(&put(1, b'a')).expect("put");
    store.recorder().fail_fence(nth);
    let refused = store.apply(&put(1, b'b')).expect_err("its sync failed");
    assert!(matches!(refused, lodestore_contract::Error::Poisoned { .. }), "{refused}");
    assert!(store.apply(&put(2, b'c')).is_err(), "the store takes no writes");
    let answered = store.apply(&get(1)).expect("get");
    let mut model = LineModel::new(SimImage { regions: Vec::new(), spec });
    store.recorder().take().events.iter().for_each(|event| model.apply(event));
    let set = model.crash_set();
    let mut answers = vec![answered];
    for choice in set.select(64, &mut lodestore_media::sim::Rng::new(1)) {
        let image = model.with_image(&set, &choice, Clone::clone);
        let again = engine.open(&image, &shape).expect("open");
        again.wait_recovered().expect("recovery");
        assert!(again.verify().expect("verify").is_empty());
        answers.push(again.apply(&get(1)).expect("get"));
    }
    answers
}

#[test]
fn an_update_whose_record_is_not_durable_is_not_published() {
    for engine in [&HiKvEngine as &dyn Engine, &NvhtEngine] {
        let old = Outcome::Value(Some(vec![b'a'; 40]));
        assert!(update_fails(engine, 1).iter().all(|answer| *answer == old), "{}", engine.name());
    }
}

#[test]
fn an_update_whose_entry_is_not_durable_has_happened_or_not() {
    let known = [b'a', b'b'].map(|value| Outcome::Value(Some(vec![value; 40])));
    for engine in [&HiKvEngine as &dyn Engine, &NvhtEngine] {
        assert!(update_fails(engine, 2).iter().all(|answer| known.contains(answer)), "{}", engine.name());
    }
}

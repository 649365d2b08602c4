//! A failed sync: the write that needed it is refused, and acknowledged writes remain.

use lodestore_media::sim::{LineModel, SimImage, SimSpec};
use lodestore_sim::fluidkv::{FluidEngine, MODE_INTERVAL};
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::op::{Op, Outcome};
use lodestore_sim::shape::Shape;
use lodestore_sim::subject::Engine;

fn put(index: u32, value: u8) -> Op {
    Op::Put { key: format!("key {index}").into_bytes(), value: vec![value; 40], expiry: None }
}

/// The value is only in the log, and the write waits for its group.
fn put_small(index: u32, value: u8) -> Op {
    Op::Put { key: format!("key {index}").into_bytes(), value: vec![value; 8], expiry: None }
}

fn get(index: u32) -> Op {
    Op::Get { key: format!("key {index}").into_bytes() }
}

/// Fails the `nth` fence of an update and checks all crash images. Returns the store's answers
/// before the crash.
fn update_fails(engine: &dyn Engine, nth: u64) -> Vec<Outcome> {
    let (spec, shape) = (SimSpec::default(), Shape::default());
    let store = engine.create(&spec, &shape).expect("create");
    store.apply(&put(1, b'a')).expect("put");
    store.recorder().fail_fence(nth);
    let refused = store.apply(&put(1, b'b')).expect_err("its sync failed");
    assert!(matches!(refused, lodestore_contract::Error::Poisoned { .. }), "{refused}");
    assert!(store.apply(&put(2, b'c')).is_err(), "the store takes no writes");
    let answered = store.apply(&get(1)).expect("get");
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
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

/// If a group's sync fails, none of its writers is acknowledged, the index has none of its entries,
/// and no writer keeps waiting.
#[test]
fn a_group_whose_sync_fails_is_published_by_nobody() {
    for nth in 1..6 {
        let (spec, shape) = (SimSpec { grain: 512, record: false, ..SimSpec::default() }, Shape::default());
        let store = FluidEngine.create(&spec, &shape).expect("create");
        store.apply(&put(0, b'a')).expect("put");
        store.recorder().set_jitter(2);
        store.recorder().fail_fence(nth);
        let answered: Vec<u32> = std::thread::scope(|scope| {
            let store = &store;
            let writers: Vec<_> = (1..5)
                .map(|thread| {
                    scope.spawn(move || {
                        let all = (0..20).map(|index| thread * 100 + index);
                        let well = all.take_while(|key| match store.apply(&put_small(*key, b'b')) {
                            Ok(outcome) => outcome == Outcome::Done,
                            Err(refused) => {
                                assert!(matches!(refused, lodestore_contract::Error::Poisoned { .. }), "{refused}");
                                false
                            }
                        });
                        well.collect::<Vec<u32>>()
                    })
                })
                .collect();
            writers.into_iter().flat_map(|writer| writer.join().expect("it ends")).collect()
        });
        assert!(answered.len() < 80, "a sync has failed");
        assert!(nth == 1 || !answered.is_empty(), "the groups before it were answered");
        // The index has only durable entries, and all acknowledged ones.
        let there = (100..500).filter(|key| store.apply(&get(*key)).expect("get") != Outcome::Value(None));
        let there: Vec<u32> = there.collect();
        assert!(answered.iter().all(|key| there.contains(key)), "{answered:?} were answered, and {there:?} are there");
        assert_eq!(there.len(), answered.len(), "nobody was told of what is there");
    }
}

/// At `interval` a failed sync may lose acknowledged, unsynced writes, but never synced ones.
#[test]
fn an_interval_whose_sync_fails_keeps_what_was_synced() {
    let spec = SimSpec { grain: 512, ..SimSpec::default() };
    let shape = Shape { mode: MODE_INTERVAL, ..Shape::default() };
    let store = FluidEngine.create(&spec, &shape).expect("create");
    store.apply(&put(1, b'a')).expect("put");
    store.apply(&Op::Sync).expect("synced");
    store.apply(&put(1, b'b')).expect("put");
    store.recorder().fail_fence(1);
    let refused = store.apply(&Op::Sync).expect_err("it fails");
    assert!(matches!(refused, lodestore_contract::Error::Poisoned { .. }), "{refused}");
    assert!(store.apply(&put(2, b'c')).is_err(), "the store takes no writes");
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    store.recorder().take().events.iter().for_each(|event| model.apply(event));
    let set = model.crash_set();
    let mut seen = std::collections::BTreeSet::new();
    for choice in set.select(64, &mut lodestore_media::sim::Rng::new(1)) {
        let image = model.with_image(&set, &choice, Clone::clone);
        let again = FluidEngine.open(&image, &shape).expect("open");
        match again.apply(&get(1)).expect("get") {
            Outcome::Value(Some(value)) => seen.insert(value[0]),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(seen, [b'a', b'b'].into());
}

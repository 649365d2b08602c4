//! Planted faults at call sites: each changes the recorded steps of its statement, and no others.
#![cfg(feature = "sim")]

mod statements;

use std::sync::Arc;

use lodestore_contract::Error;
use lodestore_media::sim::{Change, SimSpec, Site, Source, What};
use lodestore_media::{NvPtr, PlantedFault, Pool, PoolOptions, source};

const STATEMENTS: Source = source!("tests/planted/statements.rs");
const STORE: Site = STATEMENTS.line("pool.store_and_flush(");
const PUBLISH: Site = STATEMENTS.line("pool.publish_u64(");
const PUBLISH_PAIR: Site = STATEMENTS.line("pool.cas_u128(");
const PERSIST: Site = STATEMENTS.line_after("pub fn persist(", "flush_and_fence(pool, at)");
const FENCE: Site = STATEMENTS.line_after("pub fn fence(", "pool.fence()");
const FENCE_CHECKED: Site = STATEMENTS.line("pool.fence_checked()");

fn pool(changes: &'static [Change]) -> (Arc<Pool>, NvPtr) {
    let options =
        PoolOptions { capacity: 64 << 10, region_bytes: 64 << 10, chunk_bytes: 512, ..PoolOptions::default() };
    let spec = SimSpec { mutant: Some(PlantedFault::at("Planted", changes)), ..SimSpec::default() };
    let (pool, _) = Pool::create_sim(&spec, "test", 1, options).expect("a pool");
    pool.recorder().expect("simulated").take();
    let at = pool.root();
    (pool, at)
}

/// Returns the steps since the last call: the offset in the root area and the value of a stored
/// word, the offset of a flush, or a fence.
fn steps(pool: &Pool) -> Vec<String> {
    let root = pool.root().offset();
    let events = pool.recorder().expect("simulated").take().events;
    let step = |what: &What| match what {
        What::Word { offset, value, .. } => format!("{}={value}", offset - root),
        What::Flush { offset, .. } => format!("flush {}", offset - root),
        What::Fence { .. } => "fence".into(),
        other => format!("{other:?}"),
    };
    events.iter().map(|event| step(&event.what)).collect()
}

#[test]
fn lost_steps_are_those_of_the_statement() {
    let (pool, at) = pool(const { &[STORE.without_flush(), PUBLISH.without_store(), FENCE.without_fence()] });
    statements::store(&pool, at);
    statements::publish(&pool, at.add(64));
    statements::fence(&pool);
    assert_eq!(steps(&pool), ["0=7"]);
    pool.flush(at, 8);
    pool.publish_u64(at.add(64), 9);
    pool.fence();
    assert_eq!(steps(&pool), ["flush 0", "64=9", "fence"]);
}

#[test]
fn the_statement_of_a_helper_is_its_caller() {
    let (pool, at) = pool(const { &[PERSIST.without_flush(), PERSIST.without_fence()] });
    statements::persist(&pool, at);
    assert_eq!(steps(&pool), [""; 0]);
}

#[test]
fn a_delayed_flush_follows_the_fence_that_ends_the_delay() {
    let (pool, at) = pool(const { &[STORE.with_delayed_flush(), PERSIST.ends_delay()] });
    statements::store(&pool, at);
    statements::fence(&pool);
    statements::persist(&pool, at.add(64));
    assert_eq!(steps(&pool), ["0=7", "fence", "flush 64", "fence", "flush 0", "fence"]);
    statements::persist(&pool, at.add(64));
    assert_eq!(steps(&pool), ["flush 64", "fence", "fence"]);
}

#[test]
fn a_store_with_a_zero_first_is_a_durable_zero_and_single_words() {
    let (pool, at) = pool(const { &[PUBLISH.with_zero_first(), PUBLISH_PAIR.with_zero_first()] });
    statements::publish(&pool, at);
    assert_eq!(steps(&pool), ["0=0", "flush 0", "fence", "0=8"]);
    statements::publish_pair(&pool, at.add(64));
    assert_eq!(steps(&pool), ["64=0", "flush 64", "fence", "72=2", "64=1"]);
}

#[test]
fn an_unchecked_statement_does_not_see_a_failed_sync() {
    let (pool, _) = pool(const { &[FENCE_CHECKED.without_check()] });
    pool.recorder().expect("simulated").fail_fence(1);
    assert!(statements::fence_checked(&pool).is_ok());
    assert!(matches!(pool.check(), Err(Error::Poisoned { .. })));
    assert!(statements::fence_checked(&pool).is_ok() && pool.fence_checked().is_err());
}

#[test]
fn a_statement_that_is_missing_or_there_twice_is_reported() {
    let source = Source { path: "a.rs", text: "one();\ntwo();\none();\nthree();\n" };
    assert_eq!(source.line("two()").find(), Ok(vec![2]));
    assert_eq!(source.lines("one()").find(), Ok(vec![1, 3]));
    assert_eq!(source.line_after("two()", "one()").find(), Ok(vec![3]));
    for wrong in [
        source.line("one()"),
        source.line("four()"),
        source.lines("four()"),
        source.line_after("one()", "three()"),
        source.line_after("three()", "one()"),
    ] {
        let why = wrong.find().expect_err("no such line");
        assert!(why.contains("a.rs"), "{why}");
    }
}

#[test]
#[should_panic(expected = "Planted: tests/planted/statements.rs has no line with \"pool.sync()\"")]
fn a_pool_refuses_a_fault_without_its_statement() {
    pool(const { &[STATEMENTS.line("pool.sync()").without_fence()] });
}

//! Options that are rejected, and the rate of collections.

use lodestore_contract::{Error, Options, Store};
use lodestore_hashkv::{HashKv, HashKvOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

fn options(capacity: u64, pairs: &[(&str, &str)]) -> HashKvOptions {
    let mut options = Options::new();
    pairs.iter().for_each(|(name, value)| {
        options.set(*name, *value);
    });
    HashKvOptions::from_options(PoolOptions { capacity, ..PoolOptions::default() }, &options).expect("options")
}

#[test]
fn a_threshold_that_no_value_of_the_file_passes_is_refused_by_its_name() {
    let scratch = Scratch::new();
    let refused = HashKv::create(&scratch.store(), &options(64 << 20, &[("separate-from", "65536")]));
    match refused.err().expect("refused") {
        Error::InvalidOption { name, why, .. } => {
            assert_eq!(name, "separate-from");
            assert!(why.contains("value-segment"), "it says what to do: {why}");
        }
        other => panic!("{other}"),
    }
    assert!(!scratch.store().exists(), "nothing is left of it");
    let store = HashKv::create(&scratch.store(), &options(64 << 20, &[("separate-from", "16384")])).expect("a store");
    let longest = store.stats().engine_counters["values_longest_bytes"];
    assert!(longest > 16384, "the counter tells the limit: {longest}");
}

#[test]
fn with_a_rate_for_collections_a_store_that_is_overwritten_keeps_everything_and_closes() {
    let scratch = Scratch::new();
    let options = options(24 << 20, &[("collect-rate", "1048576"), ("workers", "2")]);
    let store = HashKv::create(&scratch.store(), &options).expect("a store");
    let value = |round: u32, key: u32| vec![(round * 31 + key) as u8; 4000];
    for round in 0..8 {
        for key in 0..3000u32 {
            store.put(&key.to_le_bytes(), &value(round, key)).expect("put");
        }
    }
    store.close().expect("close");
    drop(store);
    let store = HashKv::open(&scratch.store(), &options).expect("open");
    for key in 0..3000u32 {
        assert_eq!(store.get(&key.to_le_bytes()).expect("get"), Some(value(7, key)));
    }
}

//! Compressed stable tables in whole stores: together with uncompressed ones, through changes of
//! the option, with all kinds of reads, and damaged.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use lodestore_contract::{Direction, Error, Lifetime, ScanRange, Store, Visit};
use lodestore_fluidkv::{Compression, FluidKv, FluidOptions, VerifyReads};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

const KEYS: u64 = 3000;

fn options(compression: Compression) -> FluidOptions {
    FluidOptions {
        pool: PoolOptions { capacity: 64 << 20, region_bytes: 64 << 20, ..PoolOptions::default() },
        memtable_bytes: 64 << 10,
        segment_bytes: 16 << 10,
        table_bytes: 32 << 10,
        range_bytes: 128 << 10,
        compression,
        workers: 0,
        ..FluidOptions::default()
    }
}

fn key(index: u64) -> Vec<u8> {
    format!("{:016x}", index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

/// Returns a value of which about half is random; some are longer than a block.
fn value(index: u64, version: u64) -> Vec<u8> {
    let mut x = index ^ version << 40;
    let pieces = if index % 500 == 7 { 150 } else { 3 + index % 5 };
    let piece = |_| {
        x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        format!("{:08x}........................", x >> 32)
    };
    (0..pieces).map(piece).collect::<String>().into_bytes()
}

fn fill(store: &FluidKv, keys: impl Iterator<Item = u64>, version: u64) {
    for index in keys {
        store.put(&key(index), &value(index, version)).expect("put");
    }
}

fn counter(store: &FluidKv, name: &str) -> u64 {
    store.stats().engine_counters[name]
}

/// Reads everything in every way. `version` returns the version of each key, if any.
#[track_caller]
fn assert_all(store: &FluidKv, version: impl Fn(u64) -> Option<u64>) {
    let right = |index| version(index).map(|version| value(index, version));
    for index in 0..KEYS + 50 {
        let (key, right) = (key(index), right(index));
        assert_eq!(store.contains(&key).expect("contains"), right.is_some(), "key {index}");
        assert_eq!(store.get(&key).expect("get"), right, "key {index}");
    }
    let keys: Vec<_> = (0..KEYS + 50).map(key).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let each = &mut |index, found: Option<&[u8]>| assert_eq!(found, right(index as u64).as_deref(), "key {index}");
    store.multi_get(&keys, each).expect("multi_get");
    let mut pairs: Vec<_> = (0..KEYS).filter_map(|index| Some((key(index), right(index)?))).collect();
    pairs.sort();
    let collect = |range: &ScanRange| {
        let mut found = Vec::new();
        let seen = &mut |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            Visit::More
        };
        store.scan_each(range, seen).expect("scan");
        found
    };
    assert!(collect(&ScanRange::all()) == pairs, "forward");
    let owned = store.scan(&ScanRange::all()).expect("scan").map(|entry| entry.expect("entry"));
    assert!(owned.map(lodestore_contract::Entry::into_pair).eq(pairs.iter().cloned()), "by chunks");
    pairs.reverse();
    let back = ScanRange { direction: Direction::Backward, ..ScanRange::all() };
    assert!(collect(&back) == pairs, "backward");
    let report = store.verify(&mut |_| ()).expect("verify");
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn compactions_compress_and_flushes_do_not() {
    let scratch = Scratch::new();
    let lazy = FluidOptions { runs_max: 64, buffer_percent: 1000, range_bytes: 16 << 20, ..options(Compression::Lz4) };
    let store = FluidKv::create(&scratch.store(), &lazy).expect("create");
    fill(&store, 0..KEYS, 1);
    assert!(counter(&store, "flushes") > 3 && counter(&store, "compactions") == 0, "runs alone");
    assert_eq!(counter(&store, "compressed_tables"), 0);
    assert_all(&store, |index| (index < KEYS).then_some(1));
    store.settle().expect("settle");
    assert!(counter(&store, "compressed_tables") > 0);
    assert_eq!(counter(&store, "compressed_tables"), counter(&store, "tables"), "all are stable ones now");
    let (stored, plain) = (counter(&store, "compressed_bytes"), counter(&store, "compressed_plain_bytes"));
    assert!(stored * 10 < plain * 6 && plain > KEYS * 100, "{stored} of {plain}");
    assert_all(&store, |index| (index < KEYS).then_some(1));
}

/// The keys overlap nothing, so nothing forces a compaction to rewrite them.
#[test]
fn ascending_keys_are_compressed_and_each_is_rewritten_once() {
    let ascending = |compression| {
        let scratch = Scratch::new();
        let store = FluidKv::create(&scratch.store(), &options(compression)).expect("create");
        for index in 0..6000u64 {
            // None is large enough for the value log, whose garbage collection would rewrite its
            // key.
            store.put(&index.swap_bytes().to_le_bytes(), &value(index * 500, 1)).expect("put");
        }
        store.settle().expect("settle");
        let names = ["flushed_bytes", "compacted_bytes", "compressed_tables", "tables"];
        names.map(|name| counter(&store, name))
    };
    let [_, compacted, compressed, _] = ascending(Compression::None);
    assert_eq!((compacted, compressed), (0, 0), "tables were moved");
    let [flushed, compacted, compressed, tables] = ascending(Compression::Lz4);
    assert_eq!(compressed, tables, "{flushed} bytes flushed, {compacted} compacted");
    assert!(compacted > 0 && compacted < flushed, "{compacted} of {flushed}");
}

#[test]
fn tables_of_both_kinds_coexist_when_the_option_changes() {
    let scratch = Scratch::new();
    let mut store = FluidKv::create(&scratch.store(), &options(Compression::None)).expect("create");
    for _ in 0..4 {
        fill(&store, 0..KEYS, 1);
        store.settle().expect("settle");
    }
    assert_eq!(counter(&store, "compressed_tables"), 0);
    // Writes to a few ranges, so that the others keep their tables.
    assert!(counter(&store, "ranges") > 4, "{} ranges", counter(&store, "ranges"));
    let mut sorted: Vec<u64> = (0..KEYS).collect();
    sorted.sort_by_key(|index| key(*index));
    let low: Vec<u64> = sorted[..KEYS as usize / 4].to_vec();
    let high: Vec<u64> = sorted[KEYS as usize * 3 / 4..].to_vec();
    for (round, (compression, part)) in
        [(Compression::Lz4, &low), (Compression::None, &high), (Compression::Lz4, &high), (Compression::Auto, &low)]
            .into_iter()
            .enumerate()
    {
        let version = round as u64 + 2;
        store.close().expect("close");
        drop(store);
        store = FluidKv::open(&scratch.store(), &options(compression)).expect("open");
        fill(&store, part.iter().copied(), version);
        store.settle().expect("settle");
        let (compressed, all) = (counter(&store, "compressed_tables"), counter(&store, "tables"));
        if round < 3 {
            assert!(compressed > 0 && compressed < all, "round {round}: {compressed} of {all}");
        }
        let newest = |index: u64| match (low.contains(&index), high.contains(&index)) {
            (true, _) => [2, 2, 2, 5][round],
            (_, true) => [1, 3, 4, 4][round],
            _ => 1,
        };
        assert_all(&store, |index| (index < KEYS).then(|| newest(index)));
    }
}

#[test]
fn deletes_snapshots_and_changes_of_compressed_keys_hold() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options(Compression::Lz4)).expect("create");
    fill(&store, 0..KEYS, 1);
    store.settle().expect("settle");
    let snapshot = store.snapshot().expect("snapshot");
    for index in 0..KEYS {
        match index % 4 {
            0 => assert!(store.delete(&key(index)).expect("delete")),
            1 => assert!(store.update(&key(index), &value(index, 2), Lifetime::Forever).expect("update")),
            2 => {
                let swap = store.compare_and_swap(
                    &key(index),
                    Some(&value(index, 1)),
                    Some(&value(index, 2)),
                    Lifetime::Forever,
                );
                assert_eq!(swap.expect("swap"), lodestore_contract::Swap::Done);
            }
            _ => {}
        }
    }
    let version = |index: u64| [None, Some(2), Some(2), Some(1)][index as usize % 4].filter(|_| index < KEYS);
    assert_all(&store, version);
    store.settle().expect("settle");
    assert_all(&store, version);
    for index in 0..KEYS {
        assert_eq!(snapshot.get(&key(index)).expect("get"), Some(value(index, 1)), "key {index}");
    }
    assert_eq!(snapshot.scan(&ScanRange::all()).expect("scan").count() as u64, KEYS);
}

/// Returns the offsets of the first blocks of all compressed tables in a store's file.
fn compressed_blocks(bytes: &[u8]) -> Vec<u64> {
    let begins = bytes.windows(12).enumerate().step_by(64);
    let tables = begins.filter(|(_, window)| window[..8] == *b"LSTABLE\x01" && window[8..] == 4u32.to_le_bytes());
    tables
        .map(|(at, _)| at as u64 + u64::from(u32::from_le_bytes(bytes[at + 48..at + 52].try_into().expect("4"))))
        .collect()
}

#[test]
fn a_damaged_compressed_block_is_reported_by_every_reader_and_affects_only_its_keys() {
    let scratch = Scratch::new();
    let reading = |verify_reads| FluidOptions { verify_reads, ..options(Compression::Lz4) };
    let store = FluidKv::create(&scratch.store(), &options(Compression::Lz4)).expect("create");
    fill(&store, 0..KEYS, 1);
    store.settle().expect("settle");
    let tables = counter(&store, "compressed_tables") as usize;
    store.close().expect("close");
    drop(store);
    let path = scratch.store().join("pool.0000");
    let bytes = std::fs::read(&path).expect("its bytes");
    // Includes blocks of removed tables.
    let damaged = compressed_blocks(&bytes);
    assert!(tables > 3 && damaged.len() >= tables, "{} of {tables} tables", damaged.len());
    let file = OpenOptions::new().write(true).open(&path).expect("the store's file");
    for at in &damaged {
        file.write_all_at(&[0xf0, 0xff, 0xff, 0xff], at + 200).expect("written");
    }
    for options in [VerifyReads::On, VerifyReads::Off].map(reading) {
        let trusting = options.verify_reads == VerifyReads::Off;
        let store = FluidKv::open(&scratch.store(), &options).expect("open");
        let (mut wrong, mut lost) = (0, 0);
        for index in 0..KEYS {
            match store.get(&key(index)) {
                Ok(found) => wrong += usize::from(found != Some(value(index, 1))),
                Err(error) => {
                    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                    lost += 1;
                }
            }
        }
        // Each block has some tens of items. Reads without checksums may return other bytes, and
        // nothing worse.
        assert!(lost > 0 && lost < 80 * tables && (wrong == 0 || trusting), "{lost} lost, {wrong} wrong");
        let report = store.verify(&mut |_| ()).expect("verify");
        assert!(report.findings.len() >= tables, "{report:?}");
        assert!(store.for_each(&mut |_, _| Visit::More).is_err() || trusting);
    }
}

/// Runs on both sides of a stable table: the output of their compaction must not overlap it, or the
/// manifest rejects it each time.
#[test]
fn runs_on_both_sides_of_a_stable_table_are_compacted() {
    let scratch = Scratch::new();
    let options = options(Compression::Lz4);
    let mut store = FluidKv::create(&scratch.store(), &options).expect("create");
    store.put(b"m", b"in the middle").expect("put");
    store.settle().expect("settle");
    for key in [b"a", b"x"] {
        store.put(key, b"beside it").expect("put");
        // A run without a compaction.
        store.close().expect("close");
        drop(store);
        store = FluidKv::open(&scratch.store(), &options).expect("open");
    }
    assert_eq!(counter(&store, "runs_most"), 2);
    store.settle().expect("settle");
    assert_eq!(counter(&store, "runs_most"), 0, "compacted");
    let found: Vec<_> =
        store.scan(&ScanRange::all()).expect("scan").map(|entry| entry.expect("entry").into_pair().0).collect();
    assert_eq!(found, [b"a", b"m", b"x"]);
}

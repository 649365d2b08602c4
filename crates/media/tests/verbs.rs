//! The verbs: their stores, their counts and their refusals.

#[expect(dead_code, reason = "these tests use a part of it")]
mod common;

use std::sync::{Arc, Mutex};

use common::{TestDir, create, open, small};
use lodestore_contract::{Durability, Error, Event, PoisonReason};
use lodestore_media::{MediumKind, NvPtr, PoolOptions};

#[test]
fn process_durability_executes_no_flush_and_no_fence() {
    for dir in [TestDir::shm(), TestDir::disk()] {
        let pool = create(&dir, small());
        let at = pool.layout(0).expect("region 0").chunk(0);
        assert!(!pool.persists());
        pool.store_and_flush(at, &[b"one", b"two"]);
        pool.flush(at, 6);
        pool.fence();
        assert_eq!(pool.bytes(at, 6), Some(&b"onetwo"[..]));
        pool.grow(1).expect("room");
        assert_eq!((pool.flushes(), pool.fences()), (0, 0));
        assert!(pool.bytes_written() > 6);
    }
}

#[test]
fn emulated_dax_counts_each_line_and_each_fence() {
    for dir in [TestDir::shm(), TestDir::disk()] {
        let pool = create(&dir, PoolOptions { emulate_dax: true, ..small() });
        assert!(pool.persists() && pool.medium_name().contains("emulating dax"));
        let at = pool.layout(0).expect("region 0").chunk(0);
        let (flushes, fences) = (pool.flushes(), pool.fences());
        pool.store_and_flush(at.add(16), &[&[1; 100], &[2; 196]]);
        assert_eq!(pool.flushes() - flushes, 5);
        pool.fence();
        pool.store(at.add(1024), &[3; 65]);
        pool.flush(at.add(1024), 65);
        pool.fence();
        assert_eq!((pool.flushes() - flushes, pool.fences() - fences), (7, 2));
        assert_eq!(pool.bytes(at.add(116), 196), Some(&[2; 196][..]));
        drop(pool);
        assert_eq!(open(&dir, PoolOptions::default()).0.bytes(at.add(16), 100), Some(&[1; 100][..]));
    }
}

#[test]
fn power_on_an_ordinary_file_syncs_pages() {
    let dir = TestDir::disk();
    let pool = create(&dir, PoolOptions { durability: Durability::Power, ..small() });
    if pool.medium() != MediumKind::File {
        return;
    }
    let at = pool.layout(0).expect("region 0").chunk(0);
    let (flushes, fences) = (pool.flushes(), pool.fences());
    // Two records on one page, one on the next two: three pages in one sync.
    for offset in [0, 600, 8100] {
        pool.store_and_flush(at.add(offset), &[&[9; 200]]);
    }
    pool.fence();
    pool.check().expect("synced");
    assert_eq!((pool.flushes() - flushes, pool.fences() - fences), (3, 1));
    pool.fence();
    assert_eq!(pool.flushes() - flushes, 3, "nothing was flushed since");
    pool.sync().expect("synced");
    pool.close(true).expect("closes");
}

/// Records are written through the file there, and read through the mapping.
#[test]
fn a_record_of_many_parts_is_whole_on_a_regular_file_at_power() {
    let dir = TestDir::disk();
    let pool = create(&dir, PoolOptions { durability: Durability::Power, ..small() });
    let at = pool.layout(0).expect("region 0").chunk(0).add(300 << 10);
    // More parts than the maximum of one call, and some empty ones.
    let parts: Vec<Vec<u8>> = (0..3000).map(|number| vec![number as u8; number % 50]).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let whole = parts.concat();
    let shown = |pool: &lodestore_media::Pool| {
        let around = pool.bytes(at, whole.len() + 200).expect("in the region");
        assert_eq!((&around[..100], &around[whole.len() + 100..]), (&[7; 100][..], &[8; 100][..]));
        assert!(around[100..whole.len() + 100] == whole);
    };
    pool.store(at, &[7; 100]);
    pool.store(at.add(100 + whole.len() as u64), &[8; 100]);
    pool.store_and_flush(at.add(100), &parts);
    shown(&pool);
    pool.store_parts(at.add(100), &[&[0; 10], &[], &whole[10..]]);
    pool.store_parts(at.add(100), &[&[], &whole[..10], &[]]);
    shown(&pool);
    pool.flush(at, whole.len() + 200);
    pool.fence();
    pool.check().expect("synced");
    pool.close(true).expect("closes");
    drop(pool);
    shown(&open(&dir, PoolOptions::default()).0);
}

#[test]
fn reads_outside_every_region_return_none() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let last = (1 << 20) - 1;
    for (at, len) in [
        (NvPtr::NULL, 1),
        (NvPtr::new(0, 1 << 20), 0),
        (NvPtr::new(0, last), 2),
        (NvPtr::new(0, 64), usize::MAX),
        (NvPtr::new(1, 0), 1),
        (NvPtr::new(4095, 16), 1),
        (NvPtr::new(u16::MAX, (1 << 48) - 1), 1),
        (NvPtr::from_raw(u64::MAX), usize::MAX),
    ] {
        assert_eq!(pool.bytes(at, len), None, "{at:?}+{len}");
        assert!(at.is_null() || !pool.contains(at, len));
        pool.prefetch(at, len);
    }
    assert_eq!(pool.bytes(NvPtr::new(0, last), 1).map(<[u8]>::len), Some(1));
}

#[test]
fn writes_outside_every_region_panic() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let outside = NvPtr::new(0, (1 << 20) - 4);
    let panics = |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
    assert!(panics(&|| pool.store(outside, b"12345")));
    assert!(panics(&|| pool.store_and_flush(outside, &[b"123", b"45"])));
    assert!(panics(&|| pool.zero(outside, 5)));
    assert!(panics(&|| pool.publish_u64(NvPtr::new(7, 0), 1)));
    assert!(panics(&|| pool.publish_u64(pool.root().add(4), 1)));
    assert!(panics(&|| assert!(pool.cas_u128(pool.root().add(8), (0, 0), (1, 1)).is_err(), "it must not return")));
}

#[test]
fn a_reader_never_sees_half_of_a_swapped_pair() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let at = pool.root();
    let rounds = 20_000;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let mut found = pool.load_u128(at);
                    loop {
                        assert_eq!(found.1, found.0.wrapping_mul(3), "half a pair");
                        let next = found.0 + 1;
                        match pool.cas_u128(at, found, (next, next.wrapping_mul(3))) {
                            Ok(()) => break,
                            Err(other) => found = other,
                        }
                    }
                }
            });
        }
    });
    assert_eq!(pool.load_u128(at), (3 * rounds, 9 * rounds));
    assert_eq!(pool.load_words::<2>(at), [3 * rounds, 9 * rounds]);
}

#[test]
fn a_poisoned_pool_reports_the_cause_and_stays_unclean() {
    let dir = TestDir::shm();
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    let events: lodestore_contract::EventSink =
        Arc::new(move |event: &Event| sink.lock().expect("no panic").push(event.clone()));
    let pool = create(&dir, PoolOptions { events: Some(events), ..small() });
    pool.grow(1).expect("room");
    pool.poison(PoisonReason::Sync, "the disk is gone");
    pool.poison(PoisonReason::Panic, "later");
    assert_eq!(pool.poisoned().as_deref(), Some("the disk is gone"));
    assert!(matches!(pool.check(), Err(Error::Poisoned { cause }) if cause == "the disk is gone"));
    assert!(matches!(pool.grow(1), Err(Error::Poisoned { .. })));
    assert!(matches!(pool.sync(), Err(Error::Poisoned { .. })));
    assert!(matches!(pool.close(true), Err(Error::Poisoned { .. })));
    drop(pool);
    assert!(!open(&dir, small()).1.clean);
    let told = told.lock().expect("no panic");
    assert_eq!(
        told[..],
        [
            Event::Grown { bytes: 2 << 20 },
            Event::Poisoned { reason: PoisonReason::Sync, cause: "the disk is gone".into() }
        ]
    );
}

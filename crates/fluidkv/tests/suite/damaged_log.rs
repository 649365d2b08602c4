//! Damage to a log: bits that change in the file while its store is open, and pages that are lost
//! while it is closed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lodestore_contract::{Durability, Error, Store};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

const KEY: &[u8] = b"damaged-key";
const VALUE: &[u8] = b"the right value";

fn options() -> FluidOptions {
    FluidOptions {
        pool: PoolOptions { capacity: 16 << 20, region_bytes: 16 << 20, ..PoolOptions::default() },
        memtable_bytes: 128 << 10,
        segment_bytes: 16 << 10,
        workers: 0,
        ..FluidOptions::default()
    }
}

/// Flips a bit of the byte at `offset` from where the entry's key begins in the store's first file.
fn flip(scratch: &Scratch, offset: i64, bit: u8) {
    let path = scratch.store().join("pool.0000");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("the store's file");
    let bytes = std::fs::read(&path).expect("its bytes");
    let sought = [KEY, VALUE].concat();
    let at = bytes.windows(sought.len()).position(|window| window == sought).expect("the entry");
    let at = at as u64;
    let at = at.checked_add_signed(offset).expect("inside the file");
    let byte = bytes[at as usize] ^ 1 << bit;
    file.write_all_at(&[byte], at).expect("written");
}

/// Opens the store: strict mode fails, and salvage skips the entry and keeps `others` others.
fn refused_then_salvaged(scratch: &Scratch, others: u64) -> FluidKv {
    let refused = opened(scratch, false, Durability::Process).err();
    assert!(matches!(&refused, Some(Error::Corrupt { what, .. }) if what.contains("salvage")), "{refused:?}");
    let store = opened(scratch, true, Durability::Process).expect("salvaged");
    assert_eq!((store.len().expect("len"), store.stats().recovery.left_out), (others, 1));
    store
}

/// Regression: the entry was copied into a table, under a fresh checksum.
#[test]
fn a_damaged_entry_is_not_flushed_and_a_restart_refuses_it() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options()).expect("create");
    store.put(KEY, VALUE).expect("put");
    flip(&scratch, KEY.len() as i64, 0);
    let settled = store.settle();
    assert!(matches!(settled, Err(Error::Corrupt { .. })), "{settled:?}");
    assert!(!store.verify(&mut |_| ()).expect("verify").is_clean());
    drop(store);
    refused_then_salvaged(&scratch, 0);
}

/// Regression: writers received an error that the store was full.
#[test]
fn a_flush_that_meets_damage_reports_corruption() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options()).expect("create");
    store.put(KEY, VALUE).expect("put");
    // In the header: the length of the key.
    flip(&scratch, -8, 1);
    let settled = store.settle();
    assert!(matches!(settled, Err(Error::Corrupt { .. })), "{settled:?}");
    let refused = (0..20_000u64).find_map(|number| store.put(&number.to_le_bytes(), &[7; 40]).err());
    assert!(matches!(refused, Some(Error::Corrupt { .. }) | None), "{refused:?}");
}

/// Regression: the error only said that the entry of another key was damaged.
#[test]
fn writes_that_wait_for_a_damaged_memtable_get_the_cause_and_advice() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options()).expect("create");
    store.put(KEY, VALUE).expect("put");
    flip(&scratch, KEY.len() as i64, 0);
    let mut written = 0u64;
    let refused = loop {
        match store.put(&written.to_le_bytes(), &[7; 40]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100_000, "memtables wait for their flush");
    };
    let text = refused.to_string();
    assert!(matches!(refused, Error::Corrupt { .. }) && text.contains("writes are refused"), "{text}");
    assert!(text.contains("restore the store") && text.contains("salvage"), "{text}");
    assert!(matches!(store.delete(&0u64.to_le_bytes()), Err(Error::Corrupt { .. })), "deletes wait as well");
    assert!(
        (0..written).all(|number| store.get(&number.to_le_bytes()).is_ok_and(|found| found.is_some())),
        "reads go on"
    );
    assert!(matches!(store.close(), Err(Error::Corrupt { .. })));
    drop(store);
    let store = refused_then_salvaged(&scratch, written);
    store.put(b"more", b"value").expect("it takes writes again");
    store.close().expect("close");
}

/// Regression: the close reported success.
#[test]
fn a_close_that_meets_damage_says_so_and_a_restart_refuses_it() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options()).expect("create");
    store.put(KEY, VALUE).expect("put");
    flip(&scratch, KEY.len() as i64, 0);
    let closed = store.close();
    assert!(matches!(closed, Err(Error::Corrupt { .. })), "{closed:?}");
    assert!(matches!(store.get(KEY), Err(Error::Closed)), "it is closed all the same");
    store.close().expect("twice is no error");
    drop(store);
    refused_then_salvaged(&scratch, 0).close().expect("close");
}

/// Leaves a store with keys in several segments as after a crash, and zeroes `bytes` bytes from the
/// last segment's start. Returns the number of its keys.
fn with_last_segment_hurt(scratch: &Scratch, bytes: usize, durability: Durability) -> u64 {
    let mut options = options();
    options.pool.durability = durability;
    let store = FluidKv::create(&scratch.store(), &options).expect("create");
    (0..800u64).for_each(|key| store.put(&key.to_le_bytes(), &[7; 40]).expect("put"));
    assert_eq!(store.stats().engine_counters["flushes"], 0);
    drop(store);
    let path = scratch.store().join("pool.0000");
    let mut image = std::fs::read(&path).expect("its bytes");
    let number = |at: usize| u32::from_le_bytes(image[at + 12..at + 16].try_into().expect("four bytes"));
    let starts = (0..image.len()).step_by(4096).filter(|at| image[*at..].starts_with(b"LLOG"));
    let last = starts.max_by_key(|at| number(*at)).expect("a segment");
    assert!(number(last) > 0, "several segments");
    image[last..last + bytes].fill(0);
    std::fs::write(&path, image).expect("written");
    800
}

fn opened(scratch: &Scratch, salvage: bool, durability: Durability) -> lodestore_contract::Result<FluidKv> {
    let mut options = options();
    (options.pool.salvage, options.pool.durability) = (salvage, durability);
    FluidKv::open(&scratch.store(), &options)
}

/// Regression: the page has both copies of the header, and the store opened without the segment's
/// records and without a report.
#[test]
fn the_lost_first_page_of_a_logs_last_segment_is_reported() {
    for durability in [Durability::Process, Durability::Power] {
        let scratch = Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")));
        let keys = with_last_segment_hurt(&scratch, 4096, durability);
        let refused = opened(&scratch, false, durability).err();
        assert!(matches!(&refused, Some(Error::Corrupt { what, .. }) if what.contains("salvage")), "{refused:?}");
        let store = opened(&scratch, true, durability).expect("salvaged");
        let recovery = store.stats().recovery;
        let len = store.len().expect("len");
        assert!(recovery.corrupt > 0 && recovery.left_out > 0 && len < keys && len > keys / 2, "{len}, {recovery:?}");
    }
}

/// The spare suffices.
#[test]
fn a_segment_with_both_copies_of_its_header_lost_is_read_by_its_spare() {
    let scratch = Scratch::new();
    let keys = with_last_segment_hurt(&scratch, 128, Durability::Process);
    let store = opened(&scratch, false, Durability::Process).expect("open");
    assert_eq!((store.len().expect("len"), store.stats().recovery.corrupt), (keys, 1));
}

/// Leaves a store with ten keys and `KEY` after them in one log as after a crash. Returns the
/// number of keys other than `KEY`.
fn with_a_last_record(scratch: &Scratch, durability: Durability) -> u64 {
    let mut options = options();
    options.pool.durability = durability;
    let store = FluidKv::create(&scratch.store(), &options).expect("create");
    (0..10u64).for_each(|key| store.put(&key.to_le_bytes(), &[7; 40]).expect("put"));
    store.put(KEY, VALUE).expect("put");
    assert_eq!(store.stats().engine_counters["flushes"], 0);
    drop(store);
    10
}

/// Regression: such a record was taken for a truncated one, and was lost without a report.
#[test]
fn a_last_record_with_several_wrong_bits_is_reported() {
    // In its header: its key's length and its sequence number; then its checksum and a byte of its
    // value.
    for flips in [&[(-8, 0), (-4, 1)][..], &[(-8, 1), (-7, 2), (-1, 3)], &[(-16, 0), (14, 5)]] {
        for durability in [Durability::Process, Durability::Power] {
            let scratch = Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")));
            let others = with_a_last_record(&scratch, durability);
            // Bits of the value last: the entry is found by its value.
            flips.iter().for_each(|(offset, bit)| flip(&scratch, *offset, *bit));
            let refused = opened(&scratch, false, durability).err();
            assert!(matches!(&refused, Some(Error::Corrupt { what, .. }) if what.contains("salvage")), "{refused:?}");
            let store = opened(&scratch, true, durability).expect("salvaged");
            let recovery = store.stats().recovery;
            assert_eq!((store.len().expect("len"), recovery.corrupt, recovery.left_out), (others, 1, 1), "{flips:?}");
        }
    }
}

/// Regression: the open corrected the bit by trying bits.
#[test]
fn a_last_record_with_one_wrong_bit_is_refused_and_not_repaired() {
    for durability in [Durability::Process, Durability::Power] {
        let scratch = Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")));
        let others = with_a_last_record(&scratch, durability);
        flip(&scratch, -8, 1);
        let refused = opened(&scratch, false, durability).err();
        assert!(matches!(&refused, Some(Error::Corrupt { what, .. }) if what.contains("salvage")), "{refused:?}");
        let store = opened(&scratch, true, durability).expect("salvaged");
        let recovery = store.stats().recovery;
        assert_eq!((store.len().expect("len"), recovery.corrupt, recovery.left_out), (others, 1, 1), "{durability:?}");
    }
}

/// Both copies of the header are lost with the page, and the spare is only stored with the second
/// record.
#[test]
fn the_lost_first_page_of_a_log_of_one_record_is_reported() {
    for durability in [Durability::Process, Durability::Power] {
        let scratch = Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")));
        let mut options = options();
        options.pool.durability = durability;
        let store = FluidKv::create(&scratch.store(), &options).expect("create");
        store.put(KEY, VALUE).expect("put");
        drop(store);
        let path = scratch.store().join("pool.0000");
        let mut image = std::fs::read(&path).expect("its bytes");
        let at = (0..image.len()).step_by(4096).find(|at| image[*at..].starts_with(b"LLOG")).expect("a segment");
        image[at..at + 4096].fill(0);
        std::fs::write(&path, image).expect("written");
        let refused = opened(&scratch, false, durability).err();
        assert!(matches!(&refused, Some(Error::Corrupt { what, .. }) if what.contains("salvage")), "{refused:?}");
        let store = opened(&scratch, true, durability).expect("salvaged");
        assert!(store.stats().recovery.corrupt > 0 && store.is_empty().expect("is empty"), "{durability:?}");
    }
}

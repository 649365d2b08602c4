//! Seals that are stored, changed and checked.

use std::path::Path;
use std::sync::Arc;

use lodestore_media::PoolOptions;

use super::*;
use crate::testing::Scratch;

const SEAL: Seal = Seal { kind: ExtentKind(40), name: |_| "table" };
const TABLE: ExtentKind = ExtentKind(41);
const TABLE_BYTES: u64 = 3 * 4096 + 100;
/// Offset of the head in the file of region 0.
const HEAD_IN_FILE: usize = 8192 + HEAD_AT as usize;

fn options(salvage: bool) -> PoolOptions {
    PoolOptions { capacity: 8 << 20, region_bytes: 8 << 20, salvage, ..PoolOptions::default() }
}

fn open(dir: &Path, salvage: bool) -> (Arc<Pool>, OpenReport) {
    Pool::open(dir, "test", 1, options(salvage)).expect("open")
}

/// Creates a sealed store with one table. Returns the table's offset in the file of region 0.
fn sealed(dir: &Path) -> usize {
    let (pool, _) = Pool::create(dir, "test", 1, options(false)).expect("create");
    pool.store(pool.root(), &[3; 64]);
    let at = pool.allocator().alloc_extent(&pool, TABLE_BYTES, TABLE).expect("space");
    pool.store(at, &[7; TABLE_BYTES as usize]);
    SEAL.save(&pool, &[SealedExtent { at, bytes: TABLE_BYTES, kind: TABLE }]).expect("save");
    pool.close(true).expect("close");
    at.offset() as usize
}

fn edit(dir: &Path, change: impl FnOnce(&mut [u8])) {
    let file = dir.join("pool.0000");
    let mut bytes = std::fs::read(&file).expect("readable");
    change(&mut bytes);
    std::fs::write(&file, bytes).expect("writable");
}

fn check(dir: &Path, salvage: bool) -> Result<SealCheck> {
    let (pool, report) = open(dir, salvage);
    let outcome = SEAL.check(&pool, &report, 2);
    drop(pool);
    outcome
}

#[test]
fn an_unchanged_store_is_whole_and_an_unclean_one_has_no_seal() {
    let scratch = Scratch::new();
    let dir = scratch.store();
    sealed(&dir);
    assert_eq!(check(&dir, false).expect("unchanged"), SealCheck::Whole);
    // The pool was dropped without a close.
    assert_eq!(check(&dir, false).expect("after a kill"), SealCheck::Absent);
}

#[test]
fn a_changed_block_of_root_area_or_table_refuses_each_strict_open() {
    let root = 8192;
    for offset in [0, 40, 4000, 4096 * 2] {
        let scratch = Scratch::new();
        let dir = scratch.store();
        let table = sealed(&dir);
        for at in [root + offset % 4032, table + offset, table + TABLE_BYTES as usize - 1] {
            edit(&dir, |bytes| bytes[at] ^= 0x10);
            for _attempt in 0..2 {
                let error = check(&dir, false).expect_err("a changed block");
                assert!(error.to_string().contains("backup"), "{error}");
            }
            edit(&dir, |bytes| bytes[at] ^= 0x10);
        }
        // The refusals have changed nothing.
        assert_eq!(check(&dir, false).expect("whole again"), SealCheck::Whole);
    }
}

#[test]
fn a_missing_or_older_head_is_damage_not_an_absent_seal() {
    let scratch = Scratch::new();
    let dir = scratch.store();
    sealed(&dir);
    let head = HEAD_IN_FILE;
    let mut kept = Vec::new();
    edit(&dir, |bytes| {
        kept = bytes[head..head + 64].to_vec();
        bytes[head..head + 64].fill(0);
    });
    assert!(matches!(check(&dir, false), Err(Error::Corrupt { .. })));
    edit(&dir, |bytes| bytes[head..head + 64].copy_from_slice(&kept));
    let (pool, report) = open(&dir, false);
    assert_eq!(SEAL.check(&pool, &report, 1).expect("whole"), SealCheck::Whole);
    pool.store(pool.root(), &[4; 64]);
    SEAL.save(&pool, &[]).expect("save");
    pool.close(true).expect("close");
    drop(pool);
    edit(&dir, |bytes| bytes[head..head + 64].copy_from_slice(&kept));
    assert!(matches!(check(&dir, false), Err(Error::Corrupt { .. })));
}

#[test]
fn a_salvage_open_succeeds_and_later_opens_refuse_the_damage() {
    let scratch = Scratch::new();
    let dir = scratch.store();
    let table = sealed(&dir);
    edit(&dir, |bytes| bytes[table + 5000] = 0);
    assert_eq!(check(&dir, true).expect("salvage"), SealCheck::Damaged);
    let refused = Pool::open(&dir, "test", 1, options(false)).map(|_| ());
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "after an unclean stop: {refused:?}");
    assert_eq!(check(&dir, true).expect("salvage"), SealCheck::Damaged);
}

#[test]
fn a_store_without_free_space_stops_cleanly_without_a_seal() {
    let scratch = Scratch::new();
    let dir = scratch.store();
    let (pool, _) = Pool::create(&dir, "test", 1, options(false)).expect("create");
    while pool.allocator().alloc_extent(&pool, 4096, TABLE).is_ok() {}
    SEAL.save(&pool, &[]).expect("save");
    pool.close(true).expect("close");
    drop(pool);
    assert_eq!(check(&dir, false).expect("open"), SealCheck::Absent);
}

/// Returns the bytes of the head's line.
fn head_line(dir: &Path) -> Vec<u8> {
    let mut line = Vec::new();
    edit(dir, |bytes| line = bytes[HEAD_IN_FILE..HEAD_IN_FILE + 64].to_vec());
    line
}

#[test]
fn a_seal_stays_in_force_after_a_kill_during_the_comparison() {
    let scratch = Scratch::new();
    let dir = scratch.store();
    let table = sealed(&dir);
    for _attempt in 0..3 {
        drop(open(&dir, false));
    }
    edit(&dir, |bytes| bytes[table + 5000] = 0);
    for _attempt in 0..2 {
        assert!(matches!(check(&dir, false), Err(Error::Corrupt { .. })), "a changed block");
    }
    edit(&dir, |bytes| bytes[table + 5000] = 7);
    assert_eq!(check(&dir, false).expect("whole again"), SealCheck::Whole);
    edit(&dir, |bytes| bytes[table + 5000] = 0);
    assert_eq!(check(&dir, false).expect("changed in use"), SealCheck::Absent);
}

#[test]
fn a_kill_between_seal_and_clean_flag_leaves_the_seal_in_force() {
    let scratch = Scratch::new();
    let dir = scratch.store();
    sealed(&dir);
    let (pool, report) = open(&dir, false);
    assert_eq!(SEAL.check(&pool, &report, 1).expect("whole"), SealCheck::Whole);
    pool.store(pool.root(), &[5; 64]);
    SEAL.save(&pool, &[]).expect("save");
    drop(pool);
    assert_eq!(check(&dir, false).expect("unclean"), SealCheck::Whole);
}

/// A torn head is not the head of any seal: neither of the new one, whose first words it has, nor
/// of an older one.
#[test]
fn a_torn_head_does_not_refuse_a_store() {
    let scratch = Scratch::new();
    let dir = scratch.store();
    let table = sealed(&dir);
    let before = head_line(&dir);
    assert_eq!(check(&dir, false).expect("whole"), SealCheck::Whole);
    let in_use = head_line(&dir);
    // The index has changed.
    edit(&dir, |bytes| bytes[table] = 9);
    for words in 0u32..1 << 7 {
        let is_new = |word: usize| words >> word & 1 == 1;
        for (old, new) in [(&before, &in_use), (&in_use, &before)] {
            edit(&dir, |bytes| {
                for word in 0..HEAD_BYTES / 8 {
                    let from = if is_new(word) { new } else { old };
                    bytes[HEAD_IN_FILE + word * 8..][..8].copy_from_slice(&from[word * 8..][..8]);
                }
            });
            let torn = head_line(&dir);
            if torn[..HEAD_BYTES] != before[..HEAD_BYTES] {
                assert_eq!(check(&dir, false).expect("torn"), SealCheck::Absent, "{words:#b}");
                assert_eq!(head_line(&dir)[..HEAD_BYTES], in_use[..HEAD_BYTES]);
            }
        }
    }
}

#[test]
fn a_zeroed_line_does_not_hide_the_damage_mark() {
    let scratch = Scratch::new();
    let dir = scratch.store();
    let table = sealed(&dir);
    edit(&dir, |bytes| bytes[table + 5000] = 0);
    assert_eq!(check(&dir, true).expect("salvage"), SealCheck::Damaged);
    for line in (0..HEAD_IN_FILE + 64).step_by(64) {
        let mut kept = Vec::new();
        edit(&dir, |bytes| {
            kept = bytes[line..line + 64].to_vec();
            bytes[line..line + 64].fill(0);
        });
        let refused = Pool::open(&dir, "test", 1, options(false)).map(|_| ());
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "line at {line}: {refused:?}");
        edit(&dir, |bytes| bytes[line..line + 64].copy_from_slice(&kept));
    }
}

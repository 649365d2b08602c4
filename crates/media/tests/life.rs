//! The life of a pool: creation, opening, growth, closing, and refusals.

mod common;

use std::os::unix::fs::PermissionsExt;

use common::{TestDir, create, open, small};
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Durability, Error};
use lodestore_media::{MediumKind, NvPtr, Pool, PoolOptions, Prefault};

#[test]
fn stores_survive_a_clean_close_and_a_drop() {
    for dir in [TestDir::shm(), TestDir::disk()] {
        let pool = create(&dir, small());
        let at = pool.layout(0).expect("region 0").chunk(5);
        pool.store(at, b"first");
        pool.publish_u64(pool.root(), at.raw());
        pool.close(true).expect("closes");
        pool.close(true).expect("closing twice is nothing");
        assert!(matches!(pool.check(), Err(Error::Closed)));
        assert!(matches!(pool.grow(1), Err(Error::Closed)));
        drop(pool);

        let (pool, report) = open(&dir, PoolOptions::default());
        assert!(report.clean && report.same_boot && !report.created);
        assert_eq!((report.engine.as_str(), report.engine_format), ("test", 3));
        assert_eq!(NvPtr::from_raw(pool.load_u64(pool.root())), at);
        assert_eq!(pool.bytes(at, 5), Some(&b"first"[..]));
        pool.store(at.add(64), b"second");
        drop(pool);

        let (pool, report) = open(&dir, PoolOptions::default());
        assert!(!report.clean, "a drop is no clean stop");
        assert_eq!(pool.bytes(at.add(64), 6), Some(&b"second"[..]));
        pool.close(false).expect("closes");
        drop(pool);
        assert!(!open(&dir, PoolOptions::default()).1.clean);
    }
}

/// A machine that stops soon after an open must not leave a header that says *clean* next to partly
/// written pages.
#[test]
fn an_open_at_process_syncs_the_header_of_a_file_and_nothing_else() {
    for (dir, pages) in [(TestDir::disk(), 2), (TestDir::shm(), 0)] {
        let pool = create(&dir, small());
        let pages = if pool.medium() == MediumKind::Shm { 0 } else { pages };
        pool.close(true).expect("closes");
        drop(pool);
        let (pool, report) = open(&dir, PoolOptions::default());
        assert!(report.clean);
        assert_eq!(pool.flushes(), pages, "pages synced on {}", pool.medium_name());
        pool.store_and_flush(pool.layout(0).expect("region 0").chunk(0), &[&[9; 200]]);
        pool.fence();
        assert_eq!(pool.flushes(), pages);
    }
}

#[test]
fn options_fixed_at_creation_are_kept() {
    let dir = TestDir::shm();
    create(&dir, small()).close(true).expect("closes");
    let given = PoolOptions { capacity: 64 << 20, emulate_dax: true, persist_ns: 1, ..PoolOptions::default() };
    let (pool, _) = open(&dir, given);
    let found = pool.options();
    assert_eq!((found.capacity, found.region_bytes, found.chunk_bytes), (4 << 20, 1 << 20, 512));
    assert!(!found.emulate_dax && found.persist_ns == 1);
    drop(pool);
    let summary = Pool::inspect(&dir.store()).expect("readable");
    assert_eq!((summary.capacity, summary.emulate_dax, summary.clean), (4 << 20, false, false));
}

#[test]
fn a_durability_is_raised_after_a_clean_stop_and_never_lowered() {
    let window = Durability::Interval(std::time::Duration::from_millis(20));
    let refused = |dir: &TestDir, level, why: &str| {
        let raise = PoolOptions { raise: Some(level), ..small() };
        match Pool::open(&dir.store(), "test", 3, raise).map(|_| ()) {
            Err(Error::InvalidOption { name, why: said, .. }) => {
                assert!(name == "durability" && said.contains(why), "{said}")
            }
            other => panic!("{level}: {other:?}"),
        }
    };
    let kept = |dir: &TestDir| Pool::inspect(&dir.store()).expect("readable").durability;
    let dir = TestDir::disk();
    let pool = create(&dir, small());
    let at = pool.layout(0).expect("region 0").chunk(5);
    pool.store(at, b"first");
    drop(pool);
    refused(&dir, Durability::Power, "not clean");
    let (pool, _) = open(&dir, PoolOptions { raise: Some(Durability::Process), ..small() });
    pool.close(true).expect("closes");
    for level in [window, Durability::Power] {
        let before = kept(&dir);
        let (pool, report) = open(&dir, PoolOptions { raise: Some(level), ..small() });
        assert!(report.clean && pool.syncs_pages());
        assert_eq!((pool.durability(), kept(&dir)), (level, level), "it says so from the open on");
        assert_eq!(pool.bytes(at, 5), Some(&b"first"[..]));
        pool.close(true).expect("closes");
        refused(&dir, before, "cannot be lowered");
        let (pool, _) = open(&dir, small());
        assert_eq!(pool.durability(), level, "for good");
        pool.close(true).expect("closes");
    }
}

#[test]
fn a_durability_that_the_medium_cannot_provide_is_refused_and_changes_nothing() {
    let dir = TestDir::shm();
    if !dir.is_shm() {
        eprintln!("skipped: there is no shared memory");
        return;
    }
    create(&dir, small()).close(true).expect("closes");
    let raise = PoolOptions { raise: Some(Durability::Power), ..small() };
    assert!(matches!(Pool::open(&dir.store(), "test", 3, raise), Err(Error::DurabilityRefused { .. })));
    let summary = Pool::inspect(&dir.store()).expect("readable");
    assert_eq!((summary.durability, summary.clean), (Durability::Process, true));
}

#[test]
fn files_and_directories_are_private() {
    let dir = TestDir::shm();
    let _pool = create(&dir, small());
    let mode = |path: std::path::PathBuf| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(dir.store()), 0o700);
    assert_eq!(mode(dir.store().join("pool.0000")), 0o600);
    assert_eq!(mode(dir.store().join("LOCK")), 0o600);
}

#[test]
fn wrong_paths_and_wrong_engines_are_refused_by_type() {
    let dir = TestDir::shm();
    let path = dir.store();
    let try_open = |engine: &str, format| Pool::open(&path, engine, format, PoolOptions::default()).map(|_| ());
    assert!(matches!(try_open("test", 3), Err(Error::Missing { .. })));
    std::fs::create_dir(&path).expect("made");
    assert!(matches!(try_open("test", 3), Err(Error::Missing { .. })));
    assert!(matches!(Pool::inspect(&path), Err(Error::Missing { .. })));
    let pool = create(&dir, small());
    let again = Pool::create(&path, "test", 3, small()).map(|_| ());
    assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
    match try_open("test", 3) {
        Err(Error::Locked { holder, .. }) => {
            let own = format!("{}, pid {} (", Error::OWN_PROCESS, std::process::id());
            assert!(holder.starts_with(&own), "{holder}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(Pool::inspect(&path).expect("readable while open").engine, "test");
    drop(pool);
    assert!(matches!(try_open("other", 3), Err(Error::WrongEngine { .. })));
    assert!(matches!(try_open("test", 2), Err(Error::NewerFormat { found: 3, known: 2, .. })));
    try_open("test", 4).expect("an older format is the engine's to judge");

    let taken = TestDir::shm();
    std::fs::create_dir(taken.store()).expect("made");
    std::fs::write(taken.store().join("letter"), "dear").expect("written");
    let refused = Pool::create(&taken.store(), "test", 3, small()).map(|_| ());
    assert!(matches!(refused, Err(Error::Exists { .. })));
    assert!(matches!(Pool::inspect(&taken.store()), Err(Error::Missing { .. })));
}

#[test]
fn an_interrupted_creation_is_no_store_and_is_started_over() {
    for dir in [TestDir::shm(), TestDir::disk()] {
        std::fs::create_dir(dir.store()).expect("made");
        std::fs::write(dir.store().join("LOCK"), "pid 1 (dead)\n").expect("written");
        std::fs::write(dir.store().join("pool.0000.new"), vec![0; 100_000]).expect("written");
        let refused = Pool::open(&dir.store(), "test", 3, small()).map(|_| ());
        assert!(matches!(refused, Err(Error::Missing { .. })));
        let pool = create(&dir, small());
        assert_eq!(pool.load_u64(pool.root()), 0);
        assert!(!dir.store().join("pool.0000.new").exists());
    }
}

#[test]
fn a_refused_creation_leaves_no_store() {
    let dir = TestDir::shm();
    // A region must have at least eight chunks.
    let no_region = PoolOptions { chunk_bytes: 1 << 20, ..small() };
    let refused = Pool::create(&dir.store(), "test", 3, no_region).map(|_| ());
    assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    let interval = std::time::Duration::from_millis(5);
    for durability in [Durability::Power, Durability::Interval(interval)] {
        if !dir.is_shm() {
            println!("not tried: power and interval are refused on shared memory only, and there is none here");
            continue;
        }
        let refused = Pool::create(&dir.store(), "test", 3, PoolOptions { durability, ..small() }).map(|_| ());
        assert!(matches!(refused, Err(Error::DurabilityRefused { .. })), "{refused:?}");
    }
    create(&dir, small());
}

#[test]
fn a_pool_grows_to_its_capacity_and_no_further() {
    for (dir, prefault) in
        [(TestDir::shm(), Prefault::Ahead), (TestDir::disk(), Prefault::None), (TestDir::shm(), Prefault::None)]
    {
        let pool = create(&dir, PoolOptions { prefault, ..small() });
        let mut places = vec![pool.layout(0).expect("region 0").chunk(1)];
        for index in 1..4 {
            assert_eq!(pool.grow(512).expect("room"), index);
            places.push(pool.layout(index).expect("the new region").chunk(index.into()));
        }
        assert_eq!(pool.space().size, 4 << 20);
        assert!(matches!(pool.grow(512), Err(Error::Full { .. })));
        assert_eq!(pool.grow_from(2, 512).expect("grown meanwhile"), 3);
        for (index, at) in places.iter().enumerate() {
            pool.store(*at, &[index as u8 + 1; 512]);
        }
        drop(pool);
        let (pool, _) = open(&dir, PoolOptions::default());
        assert_eq!(pool.regions(), 4);
        for (index, at) in places.iter().enumerate() {
            assert_eq!(pool.bytes(*at, 512), Some(&[index as u8 + 1; 512][..]));
        }
    }
}

/// With a maximum region of 256 MiB and a capacity beyond the medium, a new store uses 32 MiB.
#[test]
fn a_store_uses_space_as_it_grows() {
    let dir = TestDir::shm();
    let pool = create(&dir, PoolOptions { capacity: 1 << 39, ..PoolOptions::default() });
    let bytes = |index: u16| pool.layout(index).expect("there").region_bytes >> 20;
    for index in 1..6 {
        assert_eq!(pool.grow(4096).expect("room"), index);
    }
    assert_eq!((0..6).map(bytes).collect::<Vec<_>>(), [32, 32, 32, 32, 32, 40]);
    drop(pool);
    let (pool, _) = open(&dir, PoolOptions::default());
    assert_eq!(pool.grow(4096).expect("room"), 6);
    assert_eq!(pool.layout(6).expect("there").region_bytes >> 20, 50);
    // A longer extent gets a region of its own length.
    assert_eq!(pool.grow(100 << 20).expect("room"), 7);
    assert!((100..=102).contains(&(pool.layout(7).expect("there").region_bytes >> 20)));
}

#[test]
fn a_large_extent_gets_a_region_of_its_own_size() {
    let dir = TestDir::shm();
    let pool = create(&dir, PoolOptions { capacity: 8 << 20, ..small() });
    let index = pool.grow(3 << 20).expect("room");
    assert!(pool.layout(index).expect("there").usable_bytes() >= 3 << 20);
    assert!(matches!(pool.grow(6 << 20), Err(Error::Full { .. })));
    pool.close(true).expect("closes");
    drop(pool);
    assert_eq!(open(&dir, small()).0.regions(), 2);
}

/// Waits for a file, even on a slow machine; the timeout is for a file that never appears.
fn appears(path: &std::path::Path) {
    let start = std::time::Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < HANG_TIMEOUT, "{} never comes", path.display());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_spare_region_is_created_ahead_and_an_unused_one_is_removed() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let spare = dir.store().join("pool.0001.new");
    pool.hint_free(1 << 20);
    pool.hint_free(100);
    appears(&spare);
    assert_eq!(pool.grow(512).expect("room"), 1);
    assert!(!spare.exists());
    let spare = dir.store().join("pool.0002.new");
    pool.hint_free(100);
    appears(&spare);
    pool.close(true).expect("closes");
    assert!(!spare.exists());
    drop(pool);
    // The rest of a killed process.
    std::fs::write(&spare, vec![0; 1 << 20]).expect("written");
    std::fs::write(dir.store().join("pool.0002"), vec![0; 1 << 20]).expect("written");
    assert_eq!(open(&dir, small()).0.regions(), 2);
    assert!(!spare.exists() && !dir.store().join("pool.0002").exists());
}

#[test]
fn a_pool_of_one_small_region_works() {
    let dir = TestDir::shm();
    let tiny = PoolOptions { capacity: 70_000, chunk_bytes: 512, ..PoolOptions::default() };
    let pool = create(&dir, tiny);
    assert_eq!(pool.layout(0).expect("there").region_bytes, 68 << 10);
    assert!(matches!(pool.grow(1), Err(Error::Full { .. })));
}

#[test]
fn the_end_of_the_engines_creation_is_reported_at_every_later_open() {
    let dir = TestDir::shm();
    let (pool, report) = Pool::create(&dir.store(), "test", 3, small()).expect("a new store");
    assert!(report.created && !report.engine_created);
    drop(pool);
    let (pool, report) = open(&dir, small());
    assert!(!report.engine_created, "a creation that was cut short");
    pool.mark_created().expect("marked");
    pool.mark_created().expect("twice is nothing");
    drop(pool);
    let (pool, report) = open(&dir, small());
    assert!(report.engine_created && !report.clean);
    pool.grow(1).expect("room");
    pool.close(true).expect("closes");
    assert!(matches!(pool.mark_created(), Err(Error::Closed)));
    drop(pool);
    assert!(open(&dir, small()).1.engine_created);
}

#[test]
fn a_removed_lock_file_lets_nobody_else_in() {
    for dir in [TestDir::shm(), TestDir::disk()] {
        let locked = || match Pool::open(&dir.store(), "test", 3, small()).map(|_| ()) {
            Err(Error::Locked { holder, .. }) => assert!(holder.contains("LOCK was removed"), "{holder}"),
            other => panic!("{other:?}"),
        };
        let pool = create(&dir, small());
        std::fs::remove_file(dir.store().join("LOCK")).expect("removed");
        locked();
        pool.close(true).expect("closes");
        let (next, report) = open(&dir, small());
        assert!(report.clean, "a closed store is free while its pool lives");
        std::fs::remove_file(dir.store().join("LOCK")).expect("removed");
        locked();
        drop(next);
        open(&dir, small());
    }
}

#[test]
fn foreign_files_are_named_and_left_alone() {
    let letter = b"somebody's only copy".repeat(1000);
    let is_foreign = |refused: Result<(), Error>, name: &str| match refused {
        Err(Error::Foreign { path, .. }) => assert!(path.ends_with(name), "{path:?}"),
        other => panic!("{other:?}"),
    };
    let (dir, other) = (TestDir::shm(), TestDir::shm());
    for each in [&dir, &other] {
        let pool = create(each, small());
        pool.grow(1).expect("room");
        pool.close(true).expect("closes");
    }
    let try_open = || Pool::open(&dir.store(), "test", 3, small()).map(|_| ());
    for (name, bytes) in [
        ("pool.0007.new", letter.clone()),
        ("pool.0002.new", letter.clone()),
        ("pool.0002", letter.clone()),
        ("pool.0002", std::fs::read(other.store().join("pool.0001")).expect("readable")),
    ] {
        let path = dir.store().join(name);
        std::fs::write(&path, &bytes).expect("written");
        is_foreign(try_open(), name);
        assert_eq!(std::fs::read(&path).expect("still there"), bytes, "{name}");
        std::fs::remove_file(&path).expect("moved away");
        try_open().expect("opens when it is gone");
    }

    // A foreign file that appears while the store is open.
    let (pool, _) = open(&dir, PoolOptions { prefault: Prefault::None, ..small() });
    let path = dir.store().join("pool.0002");
    std::fs::write(&path, &letter).expect("written");
    is_foreign(pool.grow(1).map(|_| ()), "pool.0002");
    assert_eq!(std::fs::read(&path).expect("still there"), letter);
    assert!(!dir.store().join("pool.0002.new").exists(), "what was made in vain is gone");
    std::fs::remove_file(&path).expect("moved away");
    assert_eq!(pool.grow(1).expect("room"), 2);
    drop(pool);

    let new = TestDir::shm();
    std::fs::create_dir(new.store()).expect("made");
    std::fs::write(new.store().join("pool.0000.new"), &letter).expect("written");
    is_foreign(Pool::create(&new.store(), "test", 3, small()).map(|_| ()), "pool.0000.new");
    std::fs::rename(new.store().join("pool.0000.new"), new.store().join("pool.backup.new")).expect("renamed");
    let refused = Pool::create(&new.store(), "test", 3, small()).map(|_| ());
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
}

#[test]
fn the_creation_of_a_region_overwrites_no_foreign_file_and_follows_no_link() {
    for dir in [TestDir::shm(), TestDir::disk()] {
        let pool = create(&dir, PoolOptions { prefault: Prefault::None, ..small() });
        let (spare, victim) = (dir.store().join("pool.0001.new"), dir.store().with_file_name("victim"));
        let letter = b"somebody's only copy".repeat(1000);
        std::fs::write(&victim, &letter).expect("written");
        let foreign = || match pool.grow(1) {
            Err(Error::Foreign { path, .. }) => assert_eq!(path, spare),
            other => panic!("{other:?}"),
        };
        std::os::unix::fs::symlink(&victim, &spare).expect("linked");
        foreign();
        assert!(spare.is_symlink() && std::fs::read(&victim).expect("still there") == letter);
        std::fs::remove_file(&spare).expect("moved away");
        std::fs::write(&spare, &letter).expect("written");
        foreign();
        assert_eq!(std::fs::read(&spare).expect("still there"), letter);
        // The rest of an interrupted creation is replaced, whatever its length.
        std::fs::write(&spare, vec![0; 100_000]).expect("written");
        assert_eq!(pool.grow(1).expect("room"), 1);
        assert!(!spare.exists());
    }
}

#[test]
fn a_region_whose_creation_was_interrupted_after_its_rename_is_removed() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    pool.close(true).expect("closes");
    drop(pool);
    let (pool, _) = open(&dir, small());
    let region0 = std::fs::read(dir.store().join("pool.0000")).expect("readable");
    pool.grow(1).expect("room");
    drop(pool);
    // The state before the header named the region: its own header is there completely or in part.
    let whole = std::fs::read(dir.store().join("pool.0001")).expect("readable");
    let last = whole.len() - 64;
    for (kept, kept_of_last) in [(0, 0), (8, 0), (40, 16), (0, 64), (64, 64)] {
        let mut region1 = vec![0; whole.len()];
        region1[..kept].copy_from_slice(&whole[..kept]);
        region1[last..last + kept_of_last].copy_from_slice(&whole[last..last + kept_of_last]);
        std::fs::write(dir.store().join("pool.0000"), &region0).expect("written");
        // A power failure can undo the removal of the file, when the header has a later generation.
        for _again in 0..3 {
            std::fs::write(dir.store().join("pool.0001"), &region1).expect("written");
            assert_eq!(open(&dir, small()).0.regions(), 1);
            assert!(!dir.store().join("pool.0001").exists());
        }
    }
}

// ---- obstacles at the paths of the store's own files ----

fn link_options() -> PoolOptions {
    PoolOptions { capacity: 4 << 20, region_bytes: 1 << 20, ..PoolOptions::default() }
}

fn create_at(dir: &std::path::Path) -> Result<(), Error> {
    Pool::create(dir, "test", 1, link_options()).map(drop)
}

#[test]
fn a_lock_that_is_a_link_or_holds_other_text_is_refused_and_left_alone() {
    let scratch = TestDir::shm();
    let dir = scratch.store();
    std::fs::create_dir(&dir).expect("a directory");
    let other = dir.with_extension("txt");
    std::fs::write(&other, "precious").expect("written");
    std::os::unix::fs::symlink(&other, dir.join("LOCK")).expect("a link");
    assert!(matches!(create_at(&dir), Err(Error::Foreign { .. })));
    assert_eq!(std::fs::read_to_string(&other).expect("there"), "precious");
    std::fs::remove_file(dir.join("LOCK")).expect("removed");
    std::fs::write(dir.join("LOCK"), "a note of mine").expect("written");
    assert!(matches!(create_at(&dir), Err(Error::Foreign { .. })));
    assert_eq!(std::fs::read_to_string(dir.join("LOCK")).expect("there"), "a note of mine");
    std::fs::write(dir.join("LOCK"), "pid 1 (gone)\n").expect("written");
    create_at(&dir).expect("a lock left behind is no obstacle");
}

#[test]
fn a_refused_creation_leaves_no_new_directory() {
    let scratch = TestDir::shm();
    if !scratch.is_shm() {
        println!("not tried: what is refused here is refused on shared memory only, and there is none");
        return;
    }
    let dir = scratch.store();
    let refused =
        PoolOptions { durability: Durability::Interval(std::time::Duration::from_millis(5)), ..link_options() };
    assert!(Pool::create(&dir, "test", 1, refused.clone()).is_err());
    assert!(!dir.exists());
    std::fs::create_dir(&dir).expect("a directory");
    assert!(Pool::create(&dir, "test", 1, refused).is_err());
    assert!(dir.exists());
    create_at(&dir).expect("create");
}

#[test]
fn a_sparse_copy_has_its_holes_filled_at_open() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let scratch = TestDir::shm();
    let dir = scratch.store();
    let (pool, _) = Pool::create(&dir, "test", 1, link_options()).expect("create");
    pool.close(true).expect("close");
    drop(pool);
    let file = dir.join("pool.0000");
    let bytes = std::fs::read(&file).expect("readable");
    std::fs::remove_file(&file).expect("removed");
    let copy = std::fs::File::create(&file).expect("made");
    copy.set_len(bytes.len() as u64).expect("sized");
    copy.write_all_at(&bytes[..16384], 0).expect("written");
    let blocks = || std::fs::metadata(&file).expect("there").blocks() * 512;
    if blocks() >= bytes.len() as u64 {
        eprintln!("skipped: this file system makes no holes");
        return;
    }
    let (pool, _) = Pool::open(&dir, "test", 1, link_options()).expect("open");
    assert!(blocks() >= bytes.len() as u64);
    pool.close(true).expect("close");
}

#[test]
fn a_pools_identity_is_the_same_at_each_open_and_another_in_each_pool() {
    let (dir, other) = (TestDir::shm(), TestDir::shm());
    let pool = create(&dir, small());
    let identity = pool.identity();
    pool.close(true).expect("closes");
    drop(pool);
    assert_eq!(open(&dir, small()).0.identity(), identity);
    assert_ne!(create(&other, small()).identity(), identity);
}

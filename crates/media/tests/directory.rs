//! An open store stays with its directory, follows no links and accepts no weaker medium.

#[expect(dead_code, reason = "these tests use a part of it")]
mod common;

use std::path::{Path, PathBuf};

use common::{TestDir, create, open, small};
use lodestore_contract::{Durability, Error};
use lodestore_media::{BlockFile, BlockOptions, Pool, PoolOptions};

/// Returns the names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the path of the store after its directory was renamed.
fn moved(dir: &TestDir) -> PathBuf {
    dir.store().with_file_name("moved")
}

#[test]
fn a_store_whose_directory_is_renamed_grows_in_it_and_not_in_another_store_at_the_old_path() {
    let dir = TestDir::disk();
    for opts in [small(), PoolOptions { prefault: lodestore_media::Prefault::None, ..small() }] {
        let pool = create(&dir, opts.clone());
        std::fs::rename(dir.store(), moved(&dir)).expect("renamed");
        let other = create(&dir, opts.clone());
        while let Ok(region) = pool.grow(4096) {
            assert!(moved(&dir).join(format!("pool.{region:04}")).exists(), "region {region}");
        }
        let file = BlockFile::open(&pool, &BlockOptions::default()).expect("a values file");
        file.grow(8192).expect("it grows");
        assert_eq!(names(&dir.store()), ["LOCK", "pool.0000"]);
        drop(file);
        let regions = pool.regions();
        assert!(regions > 1);
        for pool in [pool, other] {
            pool.close(true).expect("closed");
        }
        assert!(moved(&dir).join("values.0000").exists() && !dir.store().join("values.0000").exists());
        // Both open, each with its own regions.
        let (own, report) = Pool::open(&moved(&dir), "test", 3, opts.clone()).expect("the renamed store opens");
        assert!(report.clean && own.regions() == regions);
        assert!(open(&dir, opts).1.clean);
        drop(own);
        std::fs::remove_dir_all(moved(&dir)).expect("removed");
        std::fs::remove_dir_all(dir.store()).expect("removed");
    }
}

#[test]
fn a_growth_in_a_removed_directory_is_an_error_and_the_store_continues() {
    let dir = TestDir::disk();
    let pool = create(&dir, small());
    std::fs::remove_dir_all(dir.store()).expect("removed");
    let other = create(&dir, small());
    assert!(matches!(pool.grow(4096), Err(Error::Io { .. })));
    pool.check().expect("it goes on");
    assert_eq!(names(&dir.store()), ["LOCK", "pool.0000"]);
    drop(other);
}

/// A region is created ahead, before the directory is removed.
#[test]
fn a_growth_with_a_region_created_before_the_directory_was_removed_reports_it() {
    let dir = TestDir::disk();
    let pool = create(&dir, small());
    pool.grow(4096).expect("a second region");
    let spare = dir.store().join("pool.0002.new");
    pool.hint_free(0);
    for _ in 0..1000 {
        if spare.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(spare.exists(), "no region is made ahead");
    std::fs::remove_dir_all(dir.store()).expect("removed");
    let refused = pool.grow(4096).expect_err("no directory").to_string();
    assert!(refused.contains("the directory of the open store was removed"), "{refused}");
    pool.check().expect("it goes on");
}

/// Creates a store of two regions with a values file, and closes it.
fn closed_store(dir: &TestDir, opts: PoolOptions) {
    let pool = create(dir, opts);
    pool.grow(4096).expect("a second region");
    let file = BlockFile::open(&pool, &BlockOptions::default()).expect("a values file");
    file.grow(8192).expect("it grows");
    drop(file);
    pool.close(true).expect("closed");
}

/// Moves a file of the store elsewhere and leaves a link.
fn link_to(dir: &TestDir, name: &str, elsewhere: &Path) {
    let (own, other) = (dir.store().join(name), elsewhere.join(name));
    std::fs::create_dir_all(elsewhere).expect("a directory");
    std::fs::copy(&own, &other).expect("copied");
    std::fs::remove_file(&own).expect("removed");
    std::os::unix::fs::symlink(&other, &own).expect("linked");
}

#[test]
fn a_region_that_is_a_link_is_refused_on_every_medium() {
    let (dir, memory) = (TestDir::disk(), TestDir::shm());
    let power = PoolOptions { durability: Durability::Power, ..small() };
    for (opts, elsewhere) in [(power, memory.store()), (small(), dir.store().with_file_name("elsewhere"))] {
        if matches!(Pool::create(&dir.store(), "test", 3, opts.clone()), Err(Error::DurabilityRefused { .. })) {
            println!("not tried: the build's directory is on a medium without durability power");
            continue;
        }
        std::fs::remove_dir_all(dir.store()).expect("removed");
        for name in ["pool.0000", "pool.0001"] {
            closed_store(&dir, opts.clone());
            link_to(&dir, name, &elsewhere);
            let refused = Pool::open(&dir.store(), "test", 3, opts.clone()).expect_err("a link");
            let text = refused.to_string();
            assert!(matches!(refused, Error::Corrupt { .. }) && text.contains(name), "{text}");
            assert!(text.contains("symbolic link"), "{text}");
            std::fs::remove_dir_all(dir.store()).expect("removed");
        }
    }
}

#[test]
fn a_region_that_is_a_directory_or_a_pipe_is_refused_without_waiting() {
    let dir = TestDir::disk();
    for make in ["mkdir", "mkfifo"] {
        closed_store(&dir, small());
        let region = dir.store().join("pool.0001");
        std::fs::remove_file(&region).expect("removed");
        assert!(std::process::Command::new(make).arg(&region).status().expect("it runs").success());
        let refused = Pool::open(&dir.store(), "test", 3, small()).expect_err("not a regular file");
        assert!(refused.to_string().contains("not a regular file"), "{refused}");
        std::fs::remove_dir_all(dir.store()).expect("removed");
    }
}

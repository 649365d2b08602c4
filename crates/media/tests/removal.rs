//! An interrupted removal of a store can be repeated.

#[expect(dead_code, reason = "these tests use a part of it")]
mod common;

use std::path::Path;

use common::{TestDir, create, small};
use lodestore_contract::Error;
use lodestore_media::Removal;

/// Creates a store with several regions. Returns the file of the last one.
fn store_of_regions(dir: &TestDir) -> std::path::PathBuf {
    let pool = create(dir, small());
    while pool.grow(4096).is_ok() {}
    let last = dir.store().join(format!("pool.{:04}", pool.regions() - 1));
    pool.close(true).expect("closed");
    assert!(last.exists() && !last.ends_with("pool.0000"), "{}", last.display());
    last
}

/// Begins a removal, lets it fail at the file `obstacle`, and removes the obstacle.
fn interrupt(store: &Path, obstacle: &Path) {
    let removal = Removal::begin(store, &[]).expect("the removal begins");
    std::fs::remove_file(obstacle).expect("the file is there");
    std::fs::create_dir(obstacle).expect("a directory in its place");
    match removal.finish() {
        Err(Error::Io { path, .. }) => assert_eq!(path, obstacle),
        done => panic!("{done:?}"),
    }
    std::fs::remove_dir(obstacle).expect("the obstacle is there");
}

#[test]
fn an_interrupted_removal_of_a_whole_store_can_be_repeated() {
    let dir = TestDir::disk();
    let last = store_of_regions(&dir);
    interrupt(&dir.store(), &last);
    Removal::begin(&dir.store(), &[]).and_then(Removal::finish).expect("the second removal");
    assert!(!dir.store().exists());
}

#[test]
fn an_interrupted_removal_of_a_damaged_store_can_be_repeated() {
    let dir = TestDir::disk();
    let last = store_of_regions(&dir);
    let first = dir.store().join("pool.0000");
    let mut region = std::fs::read(&first).expect("the first region");
    region[..2 * 4096].fill(7);
    std::fs::write(&first, region).expect("the first region is written");
    interrupt(&dir.store(), &last);
    // Only the lock file says that the files are those of a store.
    Removal::begin(&dir.store(), &[]).and_then(Removal::finish).expect("the second removal");
    assert!(!dir.store().exists());
}

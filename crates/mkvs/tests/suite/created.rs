//! A creation that is killed part-way leaves a directory in which the matrix can be created or
//! opened.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::common::{Matrix, Scratch};
use lodestore_contract::conformance::Harness;
use lodestore_contract::{Error, Store};
use lodestore_mkvs::Part;

const CAPACITY: u64 = 16 << 20;

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("list") {
        let entry = entry.expect("list");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().expect("its type").is_dir() {
            copy_directory(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("copy");
        }
    }
}

/// A copy of the matrix's directory after one of its stores was created, and that store.
struct Image {
    copy: Scratch,
    newest: PathBuf,
}

/// Creates a matrix of one group of three and returns its directory as it was after each store.
fn images_of_a_creation() -> Vec<Image> {
    let matrix = Matrix::new("killed", 1, 3);
    let (root, images) = (matrix.path(), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&images);
    let wrap = move |directory: &Path, part: Part, store: Arc<dyn Store>| {
        let copy = Scratch::new();
        copy_directory(&root, &copy.store());
        let newest = directory.join(part.directory()).strip_prefix(&root).expect("below the root").to_path_buf();
        kept.lock().expect("no panic").push(Image { copy, newest });
        store
    };
    let matrix = matrix.on(|places| places.wrap = Some(Arc::new(wrap)));
    matrix.create(CAPACITY).expect("create").close().expect("close");
    std::mem::take(&mut *images.lock().expect("no panic"))
}

/// Returns the names of all files and directories of a matrix, except the stores' own.
fn names(root: &Path) -> Vec<PathBuf> {
    let below = |directory: &Path| {
        let entries = std::fs::read_dir(directory).expect("list").map(|entry| entry.expect("list").path());
        entries.collect::<Vec<_>>()
    };
    let mut names = below(root);
    names.extend(names.clone().iter().filter(|name| name.is_dir()).flat_map(|directory| below(directory)));
    names.retain(|name| name.parent().is_none_or(|above| !above.ends_with("host")));
    names.sort();
    names.iter().map(|name| name.strip_prefix(root).expect("below it").to_path_buf()).collect()
}

/// Checks that there is no matrix, that one can be created, and that it has no remains of the
/// earlier one.
fn assert_starts_over(image: &Path, what: &str) {
    let fresh = Matrix::new("fresh", 2, 2);
    fresh.create(CAPACITY).expect("create").close().expect("close");
    for matrix in [Matrix::new("same shape", 1, 3), Matrix::new("other shape", 2, 2)] {
        copy_directory(image, &matrix.path());
        match matrix.open() {
            Err(Error::Missing { path, .. }) => assert_eq!(path, matrix.path(), "{what}"),
            Err(error) => panic!("{what}: {error:?}"),
            Ok(_) => panic!("{what}: a matrix was never created"),
        }
        let store = matrix.create(CAPACITY).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        store.put(b"k", b"v").expect("put");
        store.close().expect("close");
        if matrix.name().ends_with("other shape") {
            assert_eq!(names(&matrix.path()), names(&fresh.path()), "{what}");
        }
        let store = matrix.open().expect("open");
        assert_eq!(store.get(b"k").expect("get").as_deref(), Some(&b"v"[..]), "{what}");
        assert!(store.verify(&mut |_| {}).expect("verify").is_clean(), "{what}");
    }
}

#[test]
fn a_creation_that_was_killed_after_any_store_starts_over() {
    let images = images_of_a_creation();
    assert_eq!(images.len(), 7, "three devices with logs, and the host");
    for Image { copy, newest } in &images {
        assert_starts_over(&copy.store(), &newest.display().to_string());
    }
}

#[test]
fn a_creation_that_was_killed_inside_a_store_or_a_label_starts_over() {
    for Image { copy, newest } in images_of_a_creation() {
        let (root, store) = (copy.store(), copy.store().join(&newest));
        // Before the store was complete.
        std::fs::remove_file(store.join("pool.0000")).expect("removed");
        assert_starts_over(&root, &format!("{} without its region", newest.display()));
        std::fs::remove_dir_all(&store).expect("removed");
        assert_starts_over(&root, &format!("{} not begun", newest.display()));
        if newest.ends_with("store") {
            // Before the label of its directory was written.
            let label = store.with_file_name("label");
            std::fs::rename(&label, label.with_file_name("label.new")).expect("renamed");
            assert_starts_over(&root, &format!("{} without a label", newest.display()));
        }
    }
}

#[test]
fn an_open_finishes_a_creation_that_has_its_description() {
    let matrix = Matrix::new("described", 1, 3);
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"k", b"v").expect("put");
    store.close().expect("close");
    let record = matrix.path().join("creating");
    assert!(!record.exists(), "a creation that has finished");
    // The same matrix, killed between its description and its return.
    let left = images_of_a_creation();
    std::fs::copy(left[0].copy.store().join("creating"), &record).expect("a record");
    assert!(matches!(matrix.create(CAPACITY), Err(Error::Exists { .. })));
    let store = matrix.open().expect("open");
    assert!(!record.exists(), "the open has finished it");
    assert_eq!(store.get(b"k").expect("get").as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_creation_in_progress_in_another_process_is_locked() {
    let matrix = Matrix::new("busy", 1, 3);
    let image = images_of_a_creation().swap_remove(3).copy;
    copy_directory(&image.store(), &matrix.path());
    let lock = std::fs::File::open(matrix.path()).expect("open");
    lock.lock().expect("a lock");
    assert!(matches!(matrix.create(CAPACITY), Err(Error::Locked { .. })));
    assert!(matches!(matrix.open(), Err(Error::Locked { .. })));
    assert_eq!(names(&matrix.path()), names(&image.store()));
    drop(lock);
    matrix.create(CAPACITY).expect("create");
}

#[test]
fn a_repeated_creation_keeps_files_that_are_not_its_own() {
    let matrix = Matrix::new("others", 1, 3);
    let images = images_of_a_creation();
    copy_directory(&images[3].copy.store(), &matrix.path());
    // The first device's directory contains a device of another matrix, and the second one's a file
    // of the user.
    let first = matrix.device(0, 0);
    std::fs::remove_dir_all(&first).expect("removed");
    copy_directory(&images_of_a_creation()[1].copy.store().join("group0.device0"), &first);
    std::fs::write(matrix.device(0, 1).join("others"), "kept").expect("a file");
    assert!(matches!(matrix.create(CAPACITY), Err(Error::Exists { .. })));
    assert!(first.join("store/pool.0000").is_file(), "the other matrix's pairs");
    assert_eq!(std::fs::read_to_string(matrix.device(0, 1).join("others")).expect("it is there"), "kept");
}

//! Operation logs that are damaged at their end while they are closed, and devices whose
//! directories are removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lodestore_contract::{Store, Visit};
use lodestore_media::sim::Rng;
use lodestore_mkvs::{OpenMode, Part, Places};

use crate::common::Hikvs;

/// The damage to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tear {
    /// One bit of one of its newest entries is inverted.
    Flipped,
    /// The newest entries are missing, although the device says that it has applied them. The
    /// device must have been closed.
    Gone,
    /// Its file is truncated, so the device cannot be opened.
    Cut,
}

/// Removes the directory of a device, which may create files in it meanwhile.
pub fn lose(directory: &Path) {
    let is_filled = |error: &io::Error| error.kind() == io::ErrorKind::DirectoryNotEmpty;
    while let Err(error) = fs::remove_dir_all(directory) {
        assert!(is_filled(&error), "{}: {error}", directory.display());
    }
}

/// Offset of an entry's sequence.
const SEQUENCE_AT: usize = 16;
/// Number of newest entries.
const NEWEST: usize = 4;

/// Returns keys and values of a log's newest entries, the newest first.
fn newest(log: &dyn Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    let walk = log.for_each(&mut |key, value| {
        if key.first() == Some(&b'o') && key.len() == 9 {
            entries.push((key.to_vec(), value.to_vec()));
        }
        Visit::More
    });
    walk.expect("a walk over the log");
    let sequence = |entry: &[u8]| entry[SEQUENCE_AT..][..8].try_into().map(u64::from_le_bytes).expect("eight bytes");
    entries.sort_by_key(|(_, entry)| std::cmp::Reverse(sequence(entry)));
    entries.truncate(NEWEST);
    entries
}

/// Returns the files of a log's pool.
fn files(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory.join(Part::Log.directory())).expect("the log's directory");
    let paths = listed.map(|entry| entry.expect("an entry of it").path());
    paths.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pool."))).collect()
}

/// Damages the log of the device in this directory. Returns false if it has no entry.
pub fn tear(places: &Hikvs, directory: &Path, tear: Tear, rng: &mut Rng) -> bool {
    let log = places.open(directory, Part::Log, "nvht", OpenMode::Strict).expect("the log").store;
    let newest = newest(&*log);
    if newest.is_empty() {
        log.close().expect("close");
        return false;
    }
    if tear == Tear::Gone {
        let count = 1 + rng.index(newest.len());
        newest[..count].iter().for_each(|(key, _)| assert!(log.delete(key).expect("delete")));
    }
    log.close().expect("close");
    drop(log);
    match tear {
        Tear::Gone => {}
        Tear::Cut => {
            let path = files(directory).pop().expect("a file of the log");
            let len = fs::metadata(&path).expect("its length").len();
            let file = fs::OpenOptions::new().write(true).open(&path).expect("the file");
            file.set_len(len - 1 - rng.below(len / 4)).expect("it ends early");
        }
        Tear::Flipped => {
            let (_, entry) = &newest[rng.index(newest.len())];
            let flipped = files(directory).iter().map(|path| flip(path, entry, rng)).sum::<usize>();
            assert!(flipped > 0, "the entry is in the file");
        }
    }
    true
}

/// Flips a bit of these bytes in each copy in a file. Returns the number of copies.
fn flip(path: &Path, entry: &[u8], rng: &mut Rng) -> usize {
    let mut bytes = fs::read(path).expect("a file of the log");
    let places: Vec<usize> = (0..bytes.len() - entry.len()).filter(|at| bytes[*at..].starts_with(entry)).collect();
    for at in &places {
        bytes[at + rng.index(entry.len())] ^= 1 << rng.below(8);
    }
    fs::write(path, bytes).expect("write it back");
    places.len()
}

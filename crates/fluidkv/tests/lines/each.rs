//! Damages each line of a store's files, one at a time: every key keeps its newest value, or an
//! error is returned.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use lodestore_contract::{Result, ScanRange, Store, Visit};
use lodestore_inplace::testing::Scratch;

/// Number of keys, and how many of them are put again after the clean stop.
const KEYS: u64 = 200;
const AGAIN: u64 = 67;
const LINE: usize = 64;
const PAGE: usize = 4096;
const ZEROS: [u8; LINE] = [0; LINE];

type Files = Vec<(PathBuf, Vec<u8>)>;

fn value_of(key: u64) -> Vec<u8> {
    vec![if key < AGAIN { !(key as u8) } else { key as u8 }; 40]
}

fn files(scratch: &Scratch) -> Files {
    let entries = std::fs::read_dir(scratch.store()).expect("a store").map(|entry| entry.expect("a file").path());
    let mut files: Files = entries.map(|path| (path.clone(), std::fs::read(path).expect("its bytes"))).collect();
    files.sort();
    files
}

/// Writes the files with zeros as holes.
fn restore(files: &Files) {
    for (path, bytes) in files {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path).expect("a file");
        file.set_len(bytes.len() as u64).expect("its length");
        for (index, page) in bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
            file.write_all_at(page, (index * PAGE) as u64).expect("written");
        }
    }
}

/// Opens a damaged store and reads all of it: each key has its newest value or an error.
fn check<S: Store>(opened: Result<S>, what: &str) {
    let store = match opened {
        Ok(store) => store,
        Err(error) => return assert!(!error.to_string().is_empty(), "{what}"),
    };
    for key in 0..KEYS {
        if let Ok(found) = store.get(&key.to_le_bytes()) {
            assert_eq!(found, Some(value_of(key)), "{what}: key {key}");
        }
    }
    let mut shown = 0;
    let walked = store.for_each(&mut |key, value| {
        let key = u64::from_le_bytes(key.try_into().expect("eight bytes"));
        assert_eq!(value, value_of(key), "{what}: key {key}");
        shown += 1;
        Visit::More
    });
    assert!(walked.is_err() || shown == KEYS, "{what}: for_each shows {shown}");
    let scan: Vec<_> = store.scan(&ScanRange::all()).map(Iterator::collect).unwrap_or_default();
    let is_whole = scan.len() as u64 == KEYS;
    assert!(scan.is_empty() || is_whole || scan.iter().any(Result::is_err), "{what}: a scan shows {}", scan.len());
    store.verify(&mut |_| ()).expect("verify");
}

/// Zeroes each line of the store's files, and restores it to its content at the last clean stop,
/// one at a time.
pub fn check_each_line<S: Store>(create: impl Fn(&Scratch) -> S, open: impl Fn(&Scratch) -> Result<S>) {
    for clean in [false, true] {
        let scratch = Scratch::new();
        let store = create(&scratch);
        (0..KEYS).for_each(|key| store.put(&key.to_le_bytes(), &[key as u8; 40]).expect("put"));
        store.close().expect("close");
        drop(store);
        let older = files(&scratch);
        let store = open(&scratch).expect("open");
        (0..AGAIN).for_each(|key| store.put(&key.to_le_bytes(), &value_of(key)).expect("put"));
        if clean {
            store.close().expect("close");
        }
        drop(store);
        let newest = files(&scratch);
        let mut damaged = newest.clone();
        for (index, (path, bytes)) in newest.iter().enumerate() {
            let before = older.iter().find(|(other, _)| other == path).map_or(&[][..], |(_, bytes)| bytes);
            for at in (0..bytes.len() / LINE * LINE).step_by(LINE) {
                let line = at..at + LINE;
                let now = &bytes[line.clone()];
                let was = before.get(line.clone()).unwrap_or(&ZEROS);
                for (kind, replaced) in [("zeroed", &ZEROS[..]), ("older", was)] {
                    let is_repeated = kind == "older" && replaced == ZEROS;
                    if replaced == now || is_repeated {
                        continue;
                    }
                    damaged[index].1[line.clone()].copy_from_slice(replaced);
                    restore(&damaged);
                    check(open(&scratch), &format!("clean {clean}, the line at {at} of {}, {kind}", path.display()));
                    damaged[index].1[line.clone()].copy_from_slice(now);
                }
            }
        }
    }
}

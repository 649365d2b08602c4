//! A root word or a directory with its older content after a kill names segments that have been
//! split since. Regression: keys were absent without an error. The open must refuse such a store.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{Scratch, small_dax};
use lodestore_contract::Store;
use lodestore_hikv::{HiKv, HiKvOptions};

const LINE: usize = 64;
/// Offset of the root word of partition 0 in region 0 (docs/format/hikv.md).
const ROOT_WORD: usize = 8192 + 128;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(salvage: bool) -> HiKvOptions {
    let mut options = HiKvOptions { partitions: 1, segment_bytes: 512, hash_seed: Some(5), ..small_dax() };
    options.pool.region_bytes = 1 << 20;
    options.pool.first_bytes = Some(1 << 20);
    options.pool.capacity = 1 << 20;
    options.pool.salvage = salvage;
    options
}

fn key(index: u32) -> Vec<u8> {
    format!("key{index:05}").into_bytes()
}

/// A file after a kill, its content at earlier moments, and the store's content.
struct Killed {
    bytes: Vec<u8>,
    moments: Vec<Vec<u8>>,
    model: Model,
}

fn killed_store() -> Killed {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = HiKv::create(&path, &options(false)).expect("create");
    let (mut model, mut moments) = (Model::new(), Vec::new());
    for index in 0..500 {
        let value = format!("value of {index:05}").into_bytes();
        store.put(&key(index), &value).expect("put");
        model.insert(key(index), value);
        if index % 20 == 0 {
            moments.push(std::fs::read(path.join("pool.0000")).expect("readable"));
        }
    }
    drop(store);
    Killed { bytes: std::fs::read(path.join("pool.0000")).expect("readable"), moments, model }
}

/// Opens the store in `path`. Returns whether it reports damage, or a description of an unreported
/// error.
fn check(path: &Path, model: &Model) -> Result<bool, String> {
    let Ok(store) = HiKv::open(path, &options(false)) else { return Ok(true) };
    let mut is_reported = store.wait_recovered().is_err();
    for (key, value) in model {
        match store.get(key) {
            Ok(Some(found)) if found == *value => {}
            Ok(found) => return Err(format!("{} holds {found:?}", String::from_utf8_lossy(key))),
            Err(_) => is_reported = true,
        }
    }
    Ok(is_reported || !store.verify(&mut |_| ()).map_err(|error| error.to_string())?.is_clean())
}

/// Writes `older` at `at` into the killed file, and checks the store.
fn check_older(path: &Path, killed: &Killed, at: usize, older: &[u8]) -> Result<bool, String> {
    let mut bytes = killed.bytes.clone();
    bytes[at..at + older.len()].copy_from_slice(older);
    std::fs::write(path.join("pool.0000"), &bytes).expect("writable");
    check(path, &killed.model)
}

fn prepared(scratch: &Scratch) -> std::path::PathBuf {
    let path = scratch.store();
    drop(HiKv::create(&path, &options(false)).expect("create"));
    path
}

#[test]
fn an_older_root_word_of_a_killed_store_is_refused() {
    let (killed, scratch) = (killed_store(), Scratch::new());
    let path = prepared(&scratch);
    let mut refused = 0;
    for (index, moment) in killed.moments.iter().enumerate() {
        let older = &moment[ROOT_WORD..ROOT_WORD + 8];
        if *older != killed.bytes[ROOT_WORD..ROOT_WORD + 8] {
            assert_eq!(check_older(&path, &killed, ROOT_WORD, older), Ok(true), "moment {index}");
            refused += 1;
        }
    }
    assert!(refused > 5, "{refused}");
    assert_eq!(check_older(&path, &killed, 0, &[]), Ok(false), "the newest one");
}

#[test]
fn an_older_line_of_a_directory_of_a_killed_store_loses_no_key_silently() {
    let (killed, scratch) = (killed_store(), Scratch::new());
    let path = prepared(&scratch);
    let word = u64::from_le_bytes(killed.bytes[ROOT_WORD..ROOT_WORD + 8].try_into().expect("8 bytes"));
    let (directory, depth) = ((word & 0xff_ffff_ffc0) as usize, (word & 31) as u32);
    let mut reported = 0;
    for moment in &killed.moments {
        for at in (directory..directory + (8 << depth)).step_by(LINE) {
            let older = &moment[at..at + LINE];
            if *older != killed.bytes[at..at + LINE] {
                reported += u32::from(check_older(&path, &killed, at, older).expect("no key is lost"));
            }
        }
    }
    assert!(reported > 5, "{reported}");
}

#[test]
fn a_salvage_opens_a_store_whose_root_word_is_older_and_reports_it() {
    let (killed, scratch) = (killed_store(), Scratch::new());
    let path = prepared(&scratch);
    let moment = &killed.moments[killed.moments.len() / 2];
    let mut bytes = killed.bytes.clone();
    bytes[ROOT_WORD..ROOT_WORD + 8].copy_from_slice(&moment[ROOT_WORD..ROOT_WORD + 8]);
    std::fs::write(path.join("pool.0000"), &bytes).expect("writable");
    assert!(HiKv::open(&path, &options(false)).is_err());
    let store = HiKv::open(&path, &options(true)).expect("a salvage");
    let _ = store.wait_recovered();
    assert!(store.stats().recovery.corrupt > 0);
    assert!(!store.verify(&mut |_| ()).expect("verify").is_clean());
    let found = killed.model.iter().filter_map(|(key, value)| Some((store.get(key).ok()??, value)));
    let found: Vec<_> = found.inspect(|(found, value)| assert_eq!(found, *value)).collect();
    assert!(found.len() > 100, "{}", found.len());
}

/// The depth of a segment's last split has its own check.
#[test]
fn a_damaged_split_depth_is_reported() {
    let (killed, scratch) = (killed_store(), Scratch::new());
    let path = prepared(&scratch);
    let word = |at: usize| u64::from_le_bytes(killed.bytes[at..at + 8].try_into().expect("8 bytes"));
    let segment = (word((word(ROOT_WORD) & 0xff_ffff_ffc0) as usize) & 0xff_ffff_ffc0) as usize;
    assert_eq!(&killed.bytes[segment..segment + 4], b"LSEG");
    for bit in 0..64 {
        let damaged = (word(segment + 24) ^ 1 << bit).to_le_bytes();
        assert_eq!(check_older(&path, &killed, segment + 24, &damaged), Ok(true), "bit {bit}");
    }
}

//! Damage to the end of the newest log of a killed store: every acknowledged key keeps its newest
//! value, or an error names the damage.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result, ScanRange, Store, Visit};
use lodestore_inplace::testing::Scratch;

/// Keys of a store whose log has several segments.
pub const KEYS: u64 = 300;
const HOT: u64 = 0;
const NEWEST: &[u8] = b"the newest value of the hot key";
const LINE: usize = 64;
const PAGE: usize = 4096;
/// Bytes of a log segment in these tests.
pub const SEGMENT: usize = 16 << 10;

fn value_of(key: u64) -> Vec<u8> {
    if key == HOT { NEWEST.to_vec() } else { vec![key as u8; 40] }
}

/// Creates or opens a store in a directory.
type Start<S> = Box<dyn Fn(&Path) -> Result<S>>;

/// A location for one store, and how it is created and opened there.
pub struct Place<S> {
    pub name: String,
    pub scratch: Scratch,
    pub create: Start<S>,
    pub open: Start<S>,
}

/// The files of a killed store.
struct Image {
    /// The bytes of region 0, which has the log.
    bytes: Vec<u8>,
    /// The files next to it, such as that of values.
    others: Vec<(PathBuf, Vec<u8>)>,
}

impl<S: Store> Place<S> {
    /// Kills a store of `keys` keys after it put one of them again.
    fn killed(&self, keys: u64) -> Image {
        let store = (self.create)(&self.scratch.store()).expect("create");
        (0..keys).for_each(|key| store.put(&key.to_le_bytes(), &[key as u8; 40]).expect("put"));
        store.put(&HOT.to_le_bytes(), NEWEST).expect("put");
        assert_eq!(store.stats().engine_counters["flushes"], 0, "all records are in the log");
        drop(store);
        let entries =
            std::fs::read_dir(self.scratch.store()).expect("a store").map(|entry| entry.expect("a file").path());
        let read = |path: PathBuf| (std::fs::read(&path).expect("its bytes"), path);
        let (pool, others): (Vec<_>, Vec<_>) = entries.partition(|path| path.ends_with("pool.0000"));
        let others = others.into_iter().map(read).map(|(bytes, path)| (path, bytes)).collect();
        let bytes = pool.into_iter().map(read).next().expect("region 0").0;
        assert!(!segments(&bytes).is_empty(), "{}: the log is in region 0", self.name);
        Image { bytes, others }
    }

    /// Writes a damaged region 0, with zeros as holes, and the other files as they were.
    fn restore(&self, image: &Image, damaged: &[u8]) {
        image.others.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).expect("written"));
        let path = self.scratch.store().join("pool.0000");
        let file = OpenOptions::new().write(true).truncate(true).open(path).expect("the store's file");
        file.set_len(damaged.len() as u64).expect("its length");
        for (index, page) in damaged.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
            file.write_all_at(page, (index * PAGE) as u64).expect("written");
        }
    }

    /// Opens the store with `damaged` as its file. Returns whether the open failed; if not, every
    /// key must have its newest value or an error.
    fn is_refused(&self, (image, damaged): (&Image, &[u8]), keys: u64, what: &str) -> bool {
        let what = format!("{}, {what}", self.name);
        self.restore(image, damaged);
        let store = match (self.open)(&self.scratch.store()) {
            Ok(store) => store,
            Err(Error::Corrupt { .. } | Error::OlderFormat { .. } | Error::NewerFormat { .. }) => return true,
            Err(error) => panic!("{what}: {error}"),
        };
        for key in 0..keys {
            match store.get(&key.to_le_bytes()) {
                Ok(found) => assert_eq!(found, Some(value_of(key)), "{what}: key {key}"),
                Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{what}: {error}"),
            }
        }
        let right = |key: &[u8], value: &[u8]| {
            let key = u64::from_le_bytes(key.try_into().expect("eight bytes"));
            assert_eq!(value, value_of(key), "{what}: key {key}");
        };
        let mut shown = 0;
        let walked = store.for_each(&mut |key, value| {
            right(key, value);
            shown += 1;
            Visit::More
        });
        assert!(walked.is_err() || shown == keys, "{what}: for_each shows {shown}");
        let scan: Vec<_> = store.scan(&ScanRange::all()).expect("a scan").collect();
        scan.iter().flatten().for_each(|entry| right(entry.key(), entry.value()));
        assert!(scan.iter().any(Result::is_err) || scan.len() as u64 == keys, "{what}: a scan shows {}", scan.len());
        false
    }

    /// Removes the store for the next one.
    fn clear(&self) {
        std::fs::remove_dir_all(self.scratch.store()).expect("removed");
    }
}

/// Positions of the log segments, by their number.
fn segments(image: &[u8]) -> Vec<usize> {
    let number = |at: usize| u32::from_le_bytes(image[at + 12..at + 16].try_into().expect("four bytes"));
    let mut found: Vec<_> = (0..image.len()).step_by(PAGE).filter(|at| image[*at..].starts_with(b"LLOG")).collect();
    found.sort_unstable_by_key(|at| number(*at));
    found
}

/// Where the newest value of the hot key begins: in the log's last record.
fn newest_at(image: &[u8]) -> usize {
    image.windows(NEWEST.len()).position(|window| window == NEWEST).expect("the last record")
}

/// Flips a bit in each header copy of each segment: each open fails.
pub fn check_header_copies<S: Store>(place: &Place<S>) {
    let image = place.killed(KEYS);
    let segments = segments(&image.bytes);
    for at in segments {
        let capacity = u64::from_le_bytes(image.bytes[at + 40..at + 48].try_into().expect("eight bytes")) as usize;
        let mut damaged = image.bytes.clone();
        [at, at + LINE, at + capacity - LINE].into_iter().for_each(|copy| damaged[copy + 20] ^= 4);
        assert!(
            place.is_refused((&image, &damaged), KEYS, "flips in three copies"),
            "{}: segment at {at} is not missed",
            place.name
        );
    }
    place.clear();
}

/// Flips bits in the last record and in its end mark: each open fails.
pub fn check_last_record<S: Store>(place: &Place<S>) {
    for keys in [10, KEYS] {
        let image = place.killed(keys);
        let value = newest_at(&image.bytes);
        let mark = (value + NEWEST.len()).next_multiple_of(8);
        for bits in [[0, 1], [3, 9], [20, 30]] {
            let mut damaged = image.bytes.clone();
            bits.into_iter().for_each(|byte| damaged[value + byte] ^= 1);
            damaged[mark] ^= 8;
            assert!(place.is_refused((&image, &damaged), keys, "flips in record and mark"), "{}: {bits:?}", place.name);
        }
        place.clear();
    }
}

/// Zeroes the page with the log's end, and copies each other page of the log over it: each open
/// fails.
pub fn check_last_page<S: Store>(place: &Place<S>) {
    // With one segment, and with the end in each page of a segment.
    for keys in [10, 70, 130, 190, KEYS] {
        let image = place.killed(keys);
        let page = newest_at(&image.bytes) / PAGE * PAGE;
        let others = segments(&image.bytes).into_iter().flat_map(|at| (at..at + SEGMENT).step_by(PAGE));
        for other in others.map(Some).chain([None]).filter(|other| *other != Some(page)) {
            let mut damaged = image.bytes.clone();
            match other {
                Some(other) => damaged.copy_within(other..other + PAGE, page),
                None => damaged[page..page + PAGE].fill(0),
            }
            let what = format!("{keys} keys, the page {page} replaced by {other:?}");
            assert!(place.is_refused((&image, &damaged), keys, &what), "{}, {what}", place.name);
        }
        place.clear();
    }
}

/// Zeroes each line of the log: no record is hidden.
pub fn check_zeroed_lines<S: Store>(place: &Place<S>) {
    let image = place.killed(200);
    for at in segments(&image.bytes).into_iter().flat_map(|at| (at..at + SEGMENT).step_by(LINE)) {
        if image.bytes[at..at + LINE].iter().any(|byte| *byte != 0) {
            let mut damaged = image.bytes.clone();
            damaged[at..at + LINE].fill(0);
            place.is_refused((&image, &damaged), 200, &format!("the line at {at}"));
        }
    }
    place.clear();
}

//! The operations on a store whose instructions are counted.

use std::path::Path;

use lodestore::options::CreateOptions;
use lodestore::store::Handle;
use lodestore_contract::{Lifetime, Result, ScanRange, Visit};

/// An engine, with the options that would otherwise be random or depend on the machine's cores.
pub(crate) struct Subject {
    /// The engine's name.
    pub(crate) engine: &'static str,
    set: &'static [(&'static str, &'static str)],
}

/// Every engine of this build. No table of NVHT grows, because growth happens at different moments
/// in each run. A matrix has two devices, because one device is only its engine. Its logs, which
/// are such tables, are filled by the load.
pub(crate) const SUBJECTS: [Subject; 5] = [
    Subject { engine: "hikv", set: &[("hash-seed", "1"), ("backends", "1")] },
    Subject { engine: "nvht", set: &[("hash-seed", "1"), ("initial-capacity", "65536")] },
    Subject { engine: "fluidkv", set: &[("workers", "1")] },
    Subject { engine: "hashkv", set: &[("workers", "1")] },
    Subject {
        engine: "mkvs",
        set: &[("devices", "2"), ("log-ops", "4096"), ("device.hash-seed", "1"), ("device.backends", "1")],
    },
];

/// Maximum bytes of a store, and the size of a region.
const CAPACITY_BYTES: u64 = 256 << 20;
const REGION: &str = "16M";
/// Records that are loaded before the first path.
const RECORDS: u32 = 20_000;
/// Operations of a path with one key each.
const SINGLE_KEY_OPS: u32 = 4_000;
/// Operations of a path with many keys each.
const MANY_KEY_OPS: u32 = 400;
/// Keys of a `multi_get`.
const KEYS: usize = 16;
/// Pairs of a scan.
const SCAN_PAIR_COUNT: usize = 50;
/// Bytes of a value.
const VALUE_BYTES: usize = 256;

type Key = [u8; 16];

/// Calls `operation` for each number below `count`. Returns how often it returned `true`. The work
/// of this thread in here is counted, by this function's name.
#[inline(never)]
pub(crate) fn counted(count: u32, operation: &mut dyn FnMut(u32) -> Result<bool>) -> Result<u32> {
    let mut did = 0;
    for number in 0..count {
        did += u32::from(operation(number)?);
    }
    Ok(did)
}

/// Returns the key of a record. Keys are unique, and the keys of successive records are far apart.
fn key(number: u32) -> Key {
    let mixed = (u64::from(number) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    std::array::from_fn(|at| b"0123456789abcdef"[(mixed >> (60 - 4 * at)) as usize & 15])
}

/// A store, and the callback for each path that is done.
struct Run<'a> {
    store: &'a Handle,
    tell: &'a mut dyn FnMut(&str, u32),
}

impl Run<'_> {
    /// Runs one path after all background work of the previous path has ended. `expected`
    /// operations return `true`.
    fn path(
        &mut self,
        name: &str,
        count: u32,
        expected: u32,
        operation: &mut dyn FnMut(u32) -> Result<bool>,
    ) -> Result<()> {
        self.store.settle()?;
        if self.store.capabilities().scan {
            // A scan waits for queued work.
            self.store.scan_each(&ScanRange::all().limit(1), &mut |_, _| Visit::Stop)?;
        }
        let did = counted(count, operation)?;
        assert_eq!(did, expected, "operations of {name} that did what they should");
        (self.tell)(name, count);
        Ok(())
    }

    /// Runs the paths that change nothing.
    fn read(&mut self, keys: &[Key], absent: &[Key]) -> Result<()> {
        let store = self.store;
        let mut value = Vec::with_capacity(VALUE_BYTES);
        self.path("get", SINGLE_KEY_OPS, SINGLE_KEY_OPS, &mut |at| store.get_into(&keys[at as usize], &mut value))?;
        self.path("get_absent", SINGLE_KEY_OPS, 0, &mut |at| store.get_into(&absent[at as usize], &mut value))?;
        let sets: Vec<Vec<&[u8]>> = keys.chunks(KEYS).map(|keys| keys.iter().map(|key| &key[..]).collect()).collect();
        self.path(&format!("multi_get_{KEYS}"), MANY_KEY_OPS, MANY_KEY_OPS, &mut |at| {
            let mut found = 0;
            let keys = &sets[at as usize % sets.len()];
            store.multi_get(keys, &mut |_, value| found += usize::from(value.is_some()))?;
            Ok(found == KEYS)
        })?;
        if !store.capabilities().scan {
            return Ok(());
        }
        // Enough pairs follow the last of these.
        let starts: Vec<_> = keys.iter().filter(|key| key[0] != b'f').collect();
        self.path(&format!("scan_{SCAN_PAIR_COUNT}"), MANY_KEY_OPS, MANY_KEY_OPS, &mut |at| {
            let range = ScanRange::from(&starts[at as usize][..]).limit(SCAN_PAIR_COUNT);
            Ok(store.scan_each(&range, &mut |_, _| Visit::More)? == SCAN_PAIR_COUNT)
        })
    }

    /// Runs the paths that write.
    fn write(&mut self, keys: &[Key], new: &[Key]) -> Result<()> {
        let store = self.store;
        let value = [7; VALUE_BYTES];
        self.path("update", SINGLE_KEY_OPS, SINGLE_KEY_OPS, &mut |at| {
            store.update(&keys[at as usize], &value, Lifetime::Forever)
        })?;
        self.path("put_new", SINGLE_KEY_OPS, SINGLE_KEY_OPS, &mut |at| {
            store.put(&new[at as usize], &value).map(|()| true)
        })?;
        self.path("delete", SINGLE_KEY_OPS, SINGLE_KEY_OPS, &mut |at| store.delete(&new[at as usize]))
    }
}

/// Creates a store in the directory `path`, loads it, and runs each path that it supports. Calls
/// `tell` after each path with its name and the number of its operations.
///
/// # Errors
/// Those of the store.
pub(crate) fn run(subject: &Subject, path: &Path, tell: &mut dyn FnMut(&str, u32)) -> Result<()> {
    let options = CreateOptions::new().engine(subject.engine).size(CAPACITY_BYTES).set("region", REGION);
    let options = subject.set.iter().fold(options, |options, (name, value)| options.set(*name, *value));
    let store = lodestore::store::create(path, &options)?;
    for number in 0..RECORDS {
        store.put(&key(number), &[3; VALUE_BYTES])?;
    }
    // Records from the whole load, without duplicates.
    let keys: Vec<_> = (0..SINGLE_KEY_OPS).map(|number| key(number * 7919 % RECORDS)).collect();
    let new: Vec<_> = (RECORDS..RECORDS + SINGLE_KEY_OPS).map(key).collect();
    let absent: Vec<_> = (2 * RECORDS..2 * RECORDS + SINGLE_KEY_OPS).map(key).collect();
    let mut run = Run { store: &store, tell };
    run.read(&keys, &absent)?;
    run.write(&keys, &new)?;
    store.close()
}

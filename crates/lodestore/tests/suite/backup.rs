//! Backups of handles in use, and restores.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use lodestore::backup::{BackupPhase, restore};
use lodestore::db::{Builder, Engine};
use lodestore::options::MkvsSettings;
use lodestore::{Db, Durability, Error, Expiry, Result};
use lodestore_contract::testing::Scratch;

/// All engines, and two shapes of `mkvs`.
fn engines() -> Vec<Engine> {
    let matrix = MkvsSettings::new().groups(2).devices(2);
    let plain = [Engine::hikv(), Engine::nvht(), Engine::fluidkv(), Engine::hashkv(), Engine::mkvs()];
    plain.into_iter().chain([Engine::Mkvs(matrix)]).collect()
}

/// Whether the engine has batches and transactions.
fn has_batches(engine: &Engine) -> bool {
    engine.name() != Some("mkvs")
}

const CAPACITY: u64 = 128 << 20;
const PAGE: usize = 4096;
/// The number of accounts for transfers, and their total.
const ACCOUNTS: u64 = 16;
const SUM: u64 = ACCOUNTS * 1000;
const FAR: Expiry = Expiry::at_millis(10_000_000_000_000);
const PAST: Expiry = Expiry::at_millis(1);

fn builder(path: &Path, engine: Engine) -> Builder {
    Db::builder(path).engine(engine).capacity(CAPACITY).durability(Durability::Process)
}

fn open(path: &Path) -> Db {
    Db::builder(path).create(false).open().unwrap_or_else(|error| panic!("open {}: {error}", path.display()))
}

fn plain_restore(backup: &Path, target: &Path) -> Result<()> {
    restore(backup, target, &mut |_| {}).map(drop)
}

/// The names in a directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn number(db: &lodestore::Keyspace, key: &str) -> u64 {
    let value = db.get(key).expect("get").unwrap_or_else(|| panic!("no {key}"));
    u64::from_le_bytes(value[..].try_into().expect("8 bytes"))
}

fn account(index: u64) -> String {
    format!("account-{index}")
}

/// Moves money from one account to another.
fn transfer(db: &Db, accounts: &lodestore::Keyspace, step: u64) -> Result<()> {
    let (from, to) = (step % ACCOUNTS, (step * 7 + 3) % ACCOUNTS);
    db.transaction(|tx| {
        let read = |value: Option<lodestore::Value>| {
            u64::from_le_bytes(value.expect("an account")[..].try_into().expect("8 bytes"))
        };
        let has = read(tx.get(accounts, account(from))?);
        let gets = read(tx.get(accounts, account(to))?);
        if from == to || has == 0 {
            return Ok(());
        }
        tx.put(accounts, account(from), (has - 1).to_le_bytes())?;
        tx.put(accounts, account(to), (gets + 1).to_le_bytes())
    })
}

/// Checks the pairs of a copy that was made during writes: `done` writes of the counter had
/// returned before, and at most `begun` were started.
fn assert_whole(copy: &Db, (done, begun): (u64, u64), what: &str) {
    assert_eq!(copy.keyspaces().expect("keyspaces"), ["accounts", "empty"], "{what}");
    let accounts = copy.keyspace("accounts").expect("keyspace");
    let sum: u64 = (0..ACCOUNTS).map(|index| number(&accounts, &account(index))).sum();
    assert_eq!(sum, SUM, "{what}: the money of all accounts");
    let counter = copy.get("counter").expect("get").expect("a counter");
    let counter = u64::from_le_bytes(counter[..].try_into().expect("8 bytes"));
    assert!((done..=begun).contains(&counter), "{what}: counter {counter}, not from {done} to {begun}");
    // The writer puts the key of its step, and deletes the one before, after the counter.
    let last = [counter, counter - 1].map(|step| copy.contains(format!("step-{step}")).expect("contains"));
    assert!(last[0] || last[1], "{what}: neither the key of step {counter} nor the one before");
    assert!(!copy.contains(format!("step-{}", counter - 2)).expect("contains"), "{what}: a deleted key came back");
    for i in 0..500 {
        let value = copy.get(format!("still-{i}")).expect("get").expect("a key that nobody writes");
        assert_eq!(value.len(), i, "{what}");
    }
    assert_eq!(copy.expiry("later").expect("expiry"), Some(Some(FAR)), "{what}");
    assert_eq!(copy.expiry("past").expect("expiry"), None, "{what}");
}

/// Fills a store, and lets writers work while `during` runs.
fn with_writers(db: &Db, during: impl FnOnce(&dyn Fn() -> u64, &dyn Fn() -> u64)) {
    let accounts = db.keyspace("accounts").expect("keyspace");
    db.keyspace("empty").expect("keyspace");
    (0..ACCOUNTS).for_each(|index| accounts.put(account(index), 1000_u64.to_le_bytes()).expect("put"));
    (0..500).for_each(|i| db.put(format!("still-{i}"), vec![7; i]).expect("put"));
    db.put_expiring("later", "v", FAR).expect("put");
    db.put_expiring("past", "v", PAST).expect("put");
    let (begun, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let stop = StopOnDrop(&stop);
            for step in 1.. {
                begun.store(step, Ordering::SeqCst);
                db.put("counter", step.to_le_bytes()).expect("put");
                done.store(step, Ordering::SeqCst);
                db.put(format!("step-{step}"), "v").expect("put");
                db.delete(format!("step-{}", step - 1)).expect("delete");
                if stop.0.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        let (accounts, stop) = (&accounts, &stop);
        scope.spawn(move || {
            for step in 0.. {
                if db.engine() == "mkvs" {
                    // Without transactions the accounts stay unchanged.
                    break;
                }
                transfer(db, accounts, step).expect("a transaction");
                if stop.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        let stop = StopOnDrop(stop);
        while done.load(Ordering::SeqCst) < 3 {
            thread::yield_now();
        }
        during(&|| done.load(Ordering::SeqCst), &|| begun.load(Ordering::SeqCst));
        drop(stop);
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn a_backup_taken_under_writers_is_of_one_moment_and_restores(scratch: &Scratch, durability: Durability) {
    for (index, engine) in engines().into_iter().enumerate() {
        let dir = scratch.path().join(format!("engine-{index}"));
        let db = builder(&dir.join("store"), engine.clone()).durability(durability).open().expect("create");
        with_writers(&db, |done, begun| {
            for round in 0..3 {
                let what = format!("{engine:?}, {durability}, round {round}");
                let target = dir.join(format!("backup-{round}"));
                let (before, mut phases) = (done(), Vec::new());
                let info = db.backup_with(&target, &mut |progress| phases.push(progress.phase));
                let (info, range) = (info.unwrap_or_else(|error| panic!("{what}: {error}")), (before, begun()));
                assert_eq!(Some(info.engine.as_str()), engine.name());
                assert!(phases.contains(&BackupPhase::Copying) && phases.contains(&BackupPhase::Verifying));
                let restored = dir.join(format!("restored-{round}"));
                plain_restore(&target, &restored).unwrap_or_else(|error| panic!("{what}: {error}"));
                for copy in [&restored, &target] {
                    let copy = open(copy);
                    assert_eq!((copy.engine(), copy.durability()), (db.engine(), db.durability()));
                    assert_whole(&copy, range, &what);
                    assert!(copy.verify(|_| {}).expect("verify").is_clean(), "{what}");
                    copy.close().expect("close");
                }
            }
        });
        db.close().expect("close");
        assert!(names(&dir).iter().all(|name| !name.starts_with('.')), "{:?}", names(&dir));
    }
}

#[test]
fn a_backup_taken_under_writers_on_disk_is_of_one_moment_and_restores() {
    a_backup_taken_under_writers_is_of_one_moment_and_restores(&Scratch::on_disk(), Durability::Process);
}

#[test]
fn a_backup_of_a_power_durable_store_restores() {
    a_backup_taken_under_writers_is_of_one_moment_and_restores(&Scratch::on_disk(), Durability::Power);
}

#[test]
fn a_backup_taken_under_writers_in_memory_is_of_one_moment_and_restores() {
    a_backup_taken_under_writers_is_of_one_moment_and_restores(&Scratch::new(), Durability::Process);
}

/// Makes a closed store with some pairs, and a backup of it.
fn store_and_backup(dir: &Path, engine: Engine) -> (PathBuf, PathBuf) {
    let (path, target) = (dir.join("store"), dir.join("backup"));
    let db = builder(&path, engine).open().expect("create");
    (0..2000).for_each(|i| db.put(format!("key-{i}"), format!("value-{i}").repeat(9)).expect("put"));
    let info = db.backup(&target).expect("backup");
    assert_eq!(info.pairs, 2000);
    db.close().expect("close");
    (path, target)
}

#[test]
fn a_target_that_exists_is_refused_and_an_empty_one_accepted() {
    let scratch = Scratch::on_disk();
    let (store, backup) = store_and_backup(scratch.path(), Engine::hikv());
    let db = open(&store);
    let (empty, full) = (scratch.path().join("empty"), scratch.path().join("full"));
    fs::create_dir(&empty).expect("a directory");
    fs::create_dir(&full).expect("a directory");
    fs::write(full.join("file"), "kept").expect("a file");
    for refused in [db.backup(&full).map(drop), plain_restore(&backup, &full), db.backup(&backup).map(drop)] {
        assert!(matches!(refused, Err(Error::TargetExists { .. })), "{refused:?}");
    }
    assert_eq!(names(&full), ["file"]);
    db.backup(&empty).expect("backup");
    let nested = scratch.path().join("new/nested/restored");
    plain_restore(&empty, &nested).expect("restore");
    assert_eq!(open(&nested).count().expect("count"), 2000);
    assert_eq!(names(scratch.path()), ["backup", "empty", "full", "new", "store"]);
}

#[test]
fn an_empty_store_is_backed_up_and_restored() {
    for engine in engines() {
        let scratch = Scratch::on_disk();
        let dir = scratch.path();
        let db = builder(&dir.join("store"), engine).open().expect("create");
        assert_eq!(db.backup(dir.join("backup")).expect("backup").pairs, 0);
        plain_restore(&dir.join("backup"), &dir.join("restored")).expect("restore");
        assert_eq!(open(&dir.join("restored")).count().expect("count"), 0);
    }
}

#[test]
fn a_damaged_or_missing_backup_file_is_refused_and_nothing_restored() {
    let scratch = Scratch::on_disk();
    let (_, backup) = store_and_backup(scratch.path(), Engine::fluidkv());
    let file = backup.join("BACKUP");
    let whole = fs::read(&file).expect("a file");
    for at in [0, 17, whole.len() / 2, whole.len() - 3] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&file, bytes).expect("a file");
        let refused = plain_restore(&backup, &scratch.path().join("restored"));
        assert!(matches!(refused, Err(Error::Backup { .. } | Error::NewerFormat { .. })), "byte {at}: {refused:?}");
    }
    fs::remove_file(&file).expect("removed");
    assert!(matches!(plain_restore(&backup, &scratch.path().join("restored")), Err(Error::Backup { .. })));
    assert_eq!(names(scratch.path()), ["backup", "store"]);
    assert_eq!(open(&backup).count().expect("count"), 2000, "the directory still opens as a store");
}

#[test]
fn a_backup_that_was_changed_or_is_open_is_not_restored() {
    for engine in engines() {
        let scratch = Scratch::on_disk();
        let (_, backup) = store_and_backup(scratch.path(), engine.clone());
        let db = open(&backup);
        let restored = scratch.path().join("restored");
        let refused = plain_restore(&backup, &restored);
        assert!(matches!(refused, Err(Error::Locked { .. })), "{engine:?}: {refused:?}");
        db.put("key-1", "other").expect("put");
        db.close().expect("close");
        drop(db);
        let refused = plain_restore(&backup, &restored);
        assert!(matches!(refused, Err(Error::Backup { .. })), "{engine:?}: {refused:?}");
        assert_eq!(names(scratch.path()), ["backup", "store"]);
    }
}

#[test]
fn a_backup_cannot_be_opened_while_it_is_restored_and_is_restored_twice_at_once() {
    for engine in engines() {
        let scratch = Scratch::on_disk();
        let (_, backup) = store_and_backup(scratch.path(), engine.clone());
        let mut refused = 0;
        let target = |name: &str| scratch.path().join(name);
        restore(&backup, target("first"), &mut |progress| {
            // The first call comes before the files are copied.
            if progress.pairs == 0 {
                let opened = Db::builder(&backup).create(false).open();
                assert!(matches!(opened, Err(Error::Locked { .. })), "{engine:?}: {:?}", opened.map(drop));
                plain_restore(&backup, &target("second")).expect("another restore");
                refused += 1;
            }
        })
        .expect("restore");
        assert_eq!(refused, 1, "{engine:?}");
        for name in ["first", "second", "backup"] {
            assert_eq!(open(&target(name)).count().expect("count"), 2000, "{engine:?}");
        }
    }
}

/// Changes one byte of each occurrence of a value in the files of a directory: flushed logs keep
/// their bytes.
fn damage_value(dir: &Path, value: &str) {
    assert!(damage_below(dir, value) > 0, "no file has {value}");
}

/// As [`damage_value`]. Returns the number of occurrences.
fn damage_below(dir: &Path, value: &str) -> usize {
    let mut damaged = 0;
    for name in names(dir) {
        let path = dir.join(name);
        if path.is_dir() {
            damaged += damage_below(&path, value);
            continue;
        }
        let mut bytes = fs::read(&path).expect("a file");
        let found = bytes.windows(value.len()).enumerate().filter(|(_, window)| *window == value.as_bytes());
        let places: Vec<usize> = found.map(|(at, _)| at).collect();
        places.iter().for_each(|at| bytes[*at] ^= 0x40);
        damaged += places.len();
        fs::write(&path, bytes).expect("a file");
    }
    damaged
}

#[test]
fn damage_of_the_source_or_of_the_backup_ends_in_an_error_and_leaves_nothing() {
    for engine in engines() {
        let scratch = Scratch::on_disk();
        let dir = scratch.path();
        let (store, backup) = store_and_backup(dir, engine.clone());
        let value = "value-1234".repeat(9);
        damage_value(&backup, &value);
        let refused = plain_restore(&backup, &dir.join("restored"));
        assert!(
            matches!(refused, Err(Error::Backup { .. } | Error::Corrupt { .. } | Error::TooFewDevices { .. })),
            "{engine:?}: {refused:?}"
        );
        damage_value(&store, &value);
        // Some engines already refuse the open of the store.
        if let Ok(db) = Db::builder(&store).create(false).open() {
            let refused = db.backup(dir.join("another"));
            assert!(
                matches!(refused, Err(Error::Corrupt { .. } | Error::TooFewDevices { .. })),
                "{engine:?}: {refused:?}"
            );
            let _ = db.close();
        }
        assert_eq!(names(dir), ["backup", "store"], "{engine:?}");
    }
}

#[test]
fn leftovers_of_a_killed_backup_are_removed_by_the_next_backup() {
    let scratch = Scratch::on_disk();
    let dir = scratch.path();
    let (store, _) = store_and_backup(dir, Engine::hikv());
    let abandoned = dir.join(".again.unfinished-1-0");
    fs::create_dir_all(abandoned.join("content")).expect("a directory");
    fs::write(abandoned.join("LOCK"), "").expect("a file");
    fs::write(abandoned.join("content/pool.0000"), "half").expect("a file");
    let db = open(&store);
    // Backups with dated names each have a target of their own.
    db.backup(dir.join("other")).expect("backup");
    assert_eq!(names(dir), ["backup", "other", "store"]);
}

#[test]
fn a_restore_into_the_directory_of_its_backup_is_refused() {
    let scratch = Scratch::on_disk();
    let dir = scratch.path();
    let (_, backup) = store_and_backup(dir, Engine::hikv());
    let before = names(&backup);
    for target in [backup.join("copy"), backup.join("new/copy")] {
        let refused = lodestore::backup::restore(&backup, &target, &mut |_| {});
        assert!(matches!(refused, Err(Error::Backup { .. })), "{refused:?}");
    }
    assert_eq!(names(&backup), before);
}

#[test]
fn two_concurrent_backups_are_both_complete() {
    for engine in engines() {
        let scratch = Scratch::on_disk();
        let dir = scratch.path();
        let (store, _) = store_and_backup(dir, engine);
        let db = open(&store);
        thread::scope(|scope| {
            for name in ["first", "second"] {
                let (db, dir) = (&db, &dir);
                scope.spawn(move || assert_eq!(db.backup(dir.join(name)).expect("backup").pairs, 2000));
            }
        });
        for name in ["first", "second"] {
            assert_eq!(open(&dir.join(name)).count().expect("count"), 2000);
        }
    }
}

#[test]
fn a_backup_contains_large_batches_of_another_thread_completely() {
    for engine in engines().into_iter().filter(has_batches) {
        let scratch = Scratch::new();
        let db = builder(&scratch.path().join("store"), engine.clone()).open().expect("create");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let stops = StopOnDrop(&done);
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                for round in 0_u64.. {
                    let mut batch = db.batch();
                    for key in 0..1500 {
                        batch.put(db, format!("key-{key}"), round.to_le_bytes());
                    }
                    batch.commit().expect("commit");
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                }
            });
            while db.get("key-0").expect("get").is_none() {
                thread::yield_now();
            }
            let target = scratch.path().join("backup");
            let info = db.backup(&target).unwrap_or_else(|error| panic!("{engine:?}: {error}"));
            assert_eq!(info.pairs, 1500);
            let copy = open(&target);
            let first = copy.get("key-0").expect("get").expect("a value");
            (0..1500).for_each(|key| {
                assert_eq!(copy.get(format!("key-{key}")).expect("get").as_ref(), Some(&first), "{engine:?}: {key}");
            });
            drop(stops);
        });
    }
}

#[test]
fn one_of_two_concurrent_backups_with_one_target_succeeds_without_leftovers() {
    let scratch = Scratch::on_disk();
    let (store, _) = store_and_backup(scratch.path(), Engine::fluidkv());
    let db = open(&store);
    for round in 0..8 {
        let target = scratch.path().join(format!("new-{round}/nested/copy"));
        let done: Vec<Result<()>> = thread::scope(|scope| {
            let backups = [0; 3].map(|_| scope.spawn(|| db.backup(&target).map(drop)));
            backups.into_iter().map(|backup| backup.join().expect("no panic")).collect()
        });
        assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1, "{done:?}");
        assert!(
            done.iter().flat_map(|done| done.as_ref().err()).all(|error| matches!(error, Error::TargetExists { .. })),
            "{done:?}"
        );
        assert_eq!(names(target.parent().expect("a parent")), ["copy"]);
        assert_eq!(open(&target).count().expect("count"), 2000);
    }
}

#[test]
fn a_matrix_with_a_missing_device_is_backed_up_whole_and_with_too_few_refused() {
    let scratch = Scratch::on_disk();
    let copy = scratch.path().join("copy");
    let closed_matrix = |name: &str| {
        let path = scratch.path().join(name);
        let db = builder(&path, Engine::Mkvs(MkvsSettings::new().devices(3))).open().expect("create");
        (0..500).for_each(|i| db.put(format!("key-{i}"), format!("value-{i}")).expect("put"));
        db.close().expect("close");
        path
    };
    let store = closed_matrix("store");
    fs::remove_dir_all(store.join("group0.device1")).expect("a device is lost");
    let db = open(&store);
    db.put("key-0", "later").expect("two of three are enough");
    assert_eq!(db.backup(&copy).expect("backup").pairs, 500);
    db.close().expect("close");
    drop(db);
    let whole = open(&copy);
    assert_eq!(whole.get("key-0").expect("get").expect("a value"), "later");
    assert_eq!(whole.count().expect("count"), 500);
    assert!(copy.join("group0.device2").exists(), "the copy has three devices");
    let store = closed_matrix("lost");
    ["group0.device0", "group0.device1"].iter().for_each(|device| {
        fs::remove_dir_all(store.join(device)).expect("a device is lost");
    });
    assert!(matches!(Db::builder(&store).create(false).open().map(drop), Err(Error::TooFewDevices { .. })));
    let db = Db::builder(&store).create(false).salvage(true).open().expect("a salvage");
    let refused = db.backup(scratch.path().join("another"));
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert_eq!(names(scratch.path()), ["copy", "lost", "store"]);
}

/// Copies the files of a store, with one page of its region zeroed.
fn copy_with_lost_page(store: &Path, copy: &Path, page: usize) {
    fs::create_dir(copy).expect("a directory");
    for name in names(store) {
        let mut bytes = fs::read(store.join(&name)).expect("a file");
        if name == "pool.0000" {
            bytes[page * PAGE..][..PAGE].fill(0);
        }
        fs::write(copy.join(&name), bytes).expect("a copy");
    }
}

#[test]
fn a_store_that_a_salvage_opened_with_losses_is_not_backed_up() {
    let scratch = Scratch::new();
    let store = scratch.path().join("store");
    let db = builder(&store, Engine::fluidkv()).open().expect("create");
    (0..3000).for_each(|key| db.put(format!("key-{key}"), "value".repeat(20)).expect("put"));
    db.settle().expect("settle");
    db.close().expect("a clean stop");
    drop(db);
    let bytes = fs::read(store.join("pool.0000")).expect("a region");
    let is_used = |page: &usize| bytes[page * PAGE..][..PAGE].iter().any(|byte| *byte != 0);
    let mut salvaged = 0;
    for page in (0..bytes.len() / PAGE).filter(is_used) {
        let (copy, target) = (scratch.path().join("damaged"), scratch.path().join("backup"));
        copy_with_lost_page(&store, &copy, page);
        let open = |salvages| Db::builder(&copy).create(false).salvage(salvages).open();
        if open(false).is_err()
            && let Ok(db) = open(true)
        {
            db.wait_recovered().expect("recovers");
            if db.stats().recovery.corrupt > 0 {
                salvaged += 1;
                let refused = db.backup(&target);
                assert!(matches!(refused, Err(Error::Corrupt { .. })), "page {page}: {refused:?}");
                assert!(!target.exists(), "page {page}");
            }
        }
        fs::remove_dir_all(&copy).expect("the copy");
    }
    assert!(salvaged > 0, "no page whose loss needs a salvage");
}

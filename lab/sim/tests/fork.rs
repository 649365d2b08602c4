//! A process that forks while a store is open: the child changes nothing, and the parent loses
//! nothing.
//!
//! The driver runs this test again as the parent (`ROLE`). The parent opens the store, forks, and
//! continues to write. The driver kills it and reads the store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lodestore::options::{CreateOptions, OpenOptions};
use lodestore::store::{Batch, BatchOp, Handle, ScanRange, Visit};
use lodestore::{Error, Lifetime};
use lodestore_media::sim::{Forked, exit_now, fork};

/// The directory of the parent's store, for a process that is a parent.
const ROLE: &str = "LODESTORE_TEST_FORK_DIR";
/// Its engine.
const ENGINE: &str = "LODESTORE_TEST_FORK_ENGINE";
/// Keys put before the fork, and accessed by the child.
const BEFORE: u32 = 500;
/// Keys put by the parent after the fork.
const AFTER: u32 = 1000;
/// The time limit of one step of another process.
const PATIENCE: Duration = Duration::from_secs(300);

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fork-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key(who: &str, number: u32) -> Vec<u8> {
    format!("{who}-{number:05}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(16 + number as usize % 30)
}

fn create(dir: &Path, engine: &str) -> Handle {
    let shape: &[&str] = if engine == "mkvs" { &["groups=1", "devices=3"] } else { &[] };
    let options = CreateOptions::new().engine(engine).size(64 << 20);
    let options = shape.iter().try_fold(options, |options, text| options.set_text(text)).expect("options");
    lodestore::store::create(dir.join("store"), &options).expect("created")
}

fn is_foreign<T>(outcome: lodestore::Result<T>) -> bool {
    matches!(outcome, Err(Error::ForeignProcess))
}

/// Runs the child's operations. Returns the first failure.
fn try_everything(dir: &Path, store: Handle) -> Result<(), String> {
    for number in 0..BEFORE {
        if !is_foreign(store.put(&key("child", number), &value(number))) {
            return Err(format!("put {number}"));
        }
    }
    let own = &key("before", 1);
    let batch = Batch { ops: vec![BatchOp::Delete { key: own.clone() }] };
    let visit = &mut |_: &[u8], _: &[u8]| Visit::More;
    let has_scan = store.capabilities().scan;
    let refused = [
        ("get", is_foreign(store.get(own))),
        ("contains", is_foreign(store.contains(own))),
        ("expiry", is_foreign(store.expiry(own))),
        ("multi_get", is_foreign(store.multi_get(&[own.as_slice()], &mut |_, _| {}))),
        ("insert", is_foreign(store.insert(b"new", b"value", Lifetime::Forever))),
        ("update", is_foreign(store.update(own, b"value", Lifetime::Forever))),
        ("delete", is_foreign(store.delete(own))),
        ("compare_and_swap", is_foreign(store.compare_and_swap(own, None, None, Lifetime::Forever))),
        ("write", !store.capabilities().batch || is_foreign(store.write(&batch))),
        ("scan_each", !has_scan || is_foreign(store.scan_each(&ScanRange::all(), visit))),
        ("for_each", is_foreign(store.for_each(visit))),
        ("snapshot", !store.capabilities().snapshot || is_foreign(store.snapshot())),
        ("len", is_foreign(store.len())),
        ("sync", is_foreign(store.sync())),
        ("settle", is_foreign(store.settle()) || matches!(store.engine(), "hikv" | "nvht")),
        ("wait_recovered", is_foreign(store.wait_recovered())),
        ("verify", is_foreign(store.verify(&mut |_| {}))),
        ("close", is_foreign(store.close())),
        ("a second close", is_foreign(store.close())),
    ];
    if let Some((name, _)) = refused.iter().find(|(_, is_refused)| !is_refused) {
        return Err((*name).into());
    }
    if has_scan
        && store.scan(&ScanRange::all()).is_ok_and(|mut scan| !matches!(scan.next(), Some(Err(Error::ForeignProcess))))
    {
        return Err("scan".into());
    }
    let _ = store.stats();
    drop(store);
    match lodestore::store::open(dir.join("store"), &OpenOptions::new()) {
        Err(Error::Locked { .. }) => Ok(()),
        Err(other) => Err(format!("an open beside the parent: {other}")),
        Ok(_) => Err("an open beside the parent".into()),
    }
}

/// Runs the process that is killed, and the child that it forks.
fn parent(dir: &Path, engine: &str) {
    let store = create(dir, engine);
    for number in 0..BEFORE {
        store.put(&key("before", number), &value(number)).expect("put");
    }
    // A scan and a snapshot that the child inherits and drops.
    let scan = store.capabilities().scan.then(|| store.scan(&ScanRange::all()).expect("a scan"));
    let snapshot = store.capabilities().snapshot.then(|| store.snapshot().expect("a snapshot"));
    match fork().expect("a fork") {
        Forked::Child => {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                drop((scan, snapshot));
                try_everything(dir, store)
            }));
            let said = match outcome {
                Ok(Ok(())) => "well".to_string(),
                Ok(Err(what)) => format!("not refused as foreign: {what}"),
                Err(_) => "panicked".into(),
            };
            fs::write(dir.join("child.new"), said).expect("written");
            fs::rename(dir.join("child.new"), dir.join("child")).expect("named");
            // The child lives on without the store while the parent is killed.
            while !dir.join("end").exists() && dir.exists() {
                thread::sleep(Duration::from_millis(5));
            }
            exit_now(0);
        }
        Forked::Parent(_) => {
            wait_for_file(&dir.join("child"));
            drop((scan, snapshot));
            for number in 0..AFTER {
                store.put(&key("after", number), &value(number)).expect("put");
            }
            fs::write(dir.join("parent"), "done").expect("written");
            loop {
                thread::sleep(Duration::from_secs(1));
            }
        }
    }
}

fn wait_for_file(path: &Path) -> String {
    let began = Instant::now();
    loop {
        match fs::read_to_string(path) {
            Ok(text) if !text.is_empty() => return text,
            _ => assert!(began.elapsed() < PATIENCE, "{} never came", path.display()),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The parent's process, killed at the end of the test at the latest.
struct Killed(Child);

impl Killed {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}

fn a_fork_loses_nothing(test: &str, engine: &str) {
    if let Some(dir) = std::env::var_os(ROLE) {
        return parent(Path::new(&dir), &std::env::var(ENGINE).expect("an engine"));
    }
    let scratch = Scratch::new();
    let dir = &scratch.0;
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env(ROLE, dir).env(ENGINE, engine);
    let mut process = Killed(command.stdout(Stdio::null()).spawn().expect("it starts"));
    assert_eq!(wait_for_file(&dir.join("child")), "well", "{engine}: the child");
    wait_for_file(&dir.join("parent"));
    process.kill();
    // A living child keeps the devices of a matrix locked; other engines are free.
    if engine == "mkvs" {
        fs::write(dir.join("end"), "now").expect("written");
    }
    let store = open_patiently(&dir.join("store"), engine == "mkvs");
    store.wait_recovered().expect("recovered");
    for (who, count) in [("before", BEFORE), ("after", AFTER)] {
        for number in 0..count {
            let found = store.get(&key(who, number)).expect("readable");
            assert_eq!(found, Some(value(number)), "{engine}: {who} {number}");
        }
    }
    assert_eq!(store.len().expect("counted"), u64::from(BEFORE + AFTER), "{engine}");
    let report = store.verify(&mut |_| {}).expect("verified");
    assert!(report.is_clean(), "{engine}: {report:?}");
    store.close().expect("closed");
    fs::write(dir.join("end"), "now").expect("written");
}

/// Opens the store. With `waits` it retries while an ending child still has the lock.
fn open_patiently(path: &Path, waits: bool) -> Handle {
    let began = Instant::now();
    loop {
        match lodestore::store::open(path, &OpenOptions::new()) {
            Err(Error::Locked { .. }) if waits && began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(5)),
            opened => return opened.expect("opened while the child lives"),
        }
    }
}

#[test]
fn a_fork_loses_nothing_of_hikv() {
    a_fork_loses_nothing("a_fork_loses_nothing_of_hikv", "hikv");
}

#[test]
fn a_fork_loses_nothing_of_nvht() {
    a_fork_loses_nothing("a_fork_loses_nothing_of_nvht", "nvht");
}

#[test]
fn a_fork_loses_nothing_of_fluidkv() {
    a_fork_loses_nothing("a_fork_loses_nothing_of_fluidkv", "fluidkv");
}

#[test]
fn a_fork_loses_nothing_of_hashkv() {
    a_fork_loses_nothing("a_fork_loses_nothing_of_hashkv", "hashkv");
}

#[test]
fn a_fork_loses_nothing_of_mkvs() {
    a_fork_loses_nothing("a_fork_loses_nothing_of_mkvs", "mkvs");
}

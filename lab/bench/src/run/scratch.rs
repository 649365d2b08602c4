//! The directory of one run, its working process, and its control group. All are removed when the
//! run ends: at its end, on an error, and on a signal that asks the process to end.
//!
//! The signals are watched from the first directory until the process ends, so that none is lost
//! between two runs. The owner of a directory locks it. A later run can therefore recognize
//! directories that a killed run left.

use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::run::control_group::{self, Group};

static NEXT: AtomicU64 = AtomicU64::new(0);
/// Everything currently held. A thread that acquires both locks acquires this one first.
static ALL: Mutex<Vec<Arc<Mutex<Held>>>> = Mutex::new(Vec::new());

/// Prefix of the names of the directories.
const PREFIX: &str = "lodestore-bench-";
/// Maximum time for a bench to end after a request, before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of attempts to remove a directory in which an ending process may still write.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(10);

/// The resources that must be removed when the run ends.
struct Held {
    path: Option<PathBuf>,
    child: Option<Child>,
    /// Whether the child is a bench, which removes its own resources when its input ends.
    bench: bool,
    /// The control group of the child.
    group: Option<Group>,
    keep: bool,
    /// The directory, locked as long as it is held.
    lock: Option<File>,
}

impl Held {
    /// Ends the child, and waits until it has ended.
    fn end_child(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if self.bench {
            drop(child.stdin.take());
            let asked = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < END_TIMEOUT {
                thread::sleep(PAUSE);
            }
        }
        // Both fail only if the child has already ended.
        let _ = child.kill();
        let _ = child.wait();
        if self.bench {
            control_group::remove_groups(child.id());
        }
    }

    fn release(&mut self) {
        self.end_child();
        self.group = None;
        if let Some(path) = self.path.take() {
            wait_for_servers(&path);
            if !self.keep {
                remove(&path);
            }
        }
        self.lock = None;
    }
}

/// Waits until no process is left that was started with something in this directory, as a server is
/// with its socket. A following run would otherwise measure next to it.
fn wait_for_servers(path: &Path) {
    let began = Instant::now();
    while began.elapsed() < REMOVAL_TIMEOUT && is_named(path) {
        thread::sleep(PAUSE);
    }
}

/// Returns whether a process other than this one has this path in its command line.
fn is_named(path: &Path) -> bool {
    let path = path.as_os_str().as_encoded_bytes();
    let names = |entry: &fs::DirEntry| {
        let id = entry.file_name().to_string_lossy().parse::<u32>();
        let other = id.is_ok_and(|id| id != std::process::id());
        other
            && fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.windows(path.len()).any(|part| part == path))
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().any(|entry| names(&entry))
}

/// Removes a directory. The processes of stores end by themselves some time after their parent.
fn remove(path: &Path) {
    let began = Instant::now();
    // A directory that cannot be removed stays visible to its owner. Nothing more can be done here.
    while fs::remove_dir_all(path).is_err() && path.exists() && began.elapsed() < REMOVAL_TIMEOUT {
        thread::sleep(PAUSE);
    }
}

/// A new directory, or none if no store needs one.
pub(crate) struct Scratch {
    held: Arc<Mutex<Held>>,
    path: PathBuf,
}

impl Scratch {
    /// Creates a directory with a new name in `parent`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn new(parent: Option<&Path>, keep: bool) -> Result<Self> {
        watch();
        // The signal handler waits for this lock, so it never finds a directory that is not held
        // yet.
        let mut all = lock(&ALL);
        let mut held = Held { path: None, child: None, bench: false, group: None, keep, lock: None };
        let path = parent.map(create_directory).transpose()?;
        if let Some(path) = &path {
            held.path = Some(path.clone());
            // Without file locks, a killed run is not reported.
            held.lock = File::open(path).ok().filter(|dir| dir.lock().is_ok());
        }
        let held = Arc::new(Mutex::new(held));
        all.push(Arc::clone(&held));
        Ok(Self { held, path: path.unwrap_or_default() })
    }

    /// Returns the directory; empty if there is none.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes ownership of the control group of the next child.
    pub(crate) fn hold_group(&self, group: Option<Group>) {
        self.held().group = group;
    }

    /// Kills the held child, if it is alive, and removes its control group. Returns the error of a
    /// child that the kernel killed there.
    pub(crate) fn leave_group(&self) -> Option<Error> {
        let mut held = self.held();
        held.end_child();
        held.group.take().and_then(|group| group.overrun())
    }

    /// Takes ownership of `child`.
    pub(crate) fn hold_child(&self, child: Child) {
        self.held().child = Some(child);
    }

    /// Waits until the held child has ended. Returns whether it succeeded.
    pub(crate) fn wait_child(&self) -> bool {
        self.wait_status().is_some_and(|status| status.success())
    }

    /// Waits until the held child has ended. Returns its exit status.
    pub(crate) fn wait_status(&self) -> Option<ExitStatus> {
        let mut child = self.held().child.take()?;
        // `wait` closes the input, which would ask the child to end.
        let input = child.stdin.take();
        let status = child.wait().ok();
        drop(input);
        status
    }

    /// Takes ownership of a bench that was started with [`tie`]. To end it, its input is closed,
    /// and it is killed if that has no effect.
    pub(crate) fn hold_bench(&self, child: Child) {
        let mut held = self.held();
        held.child = Some(child);
        held.bench = true;
    }

    /// Ends the held child and waits for its end. Uses SIGKILL, except for a bench.
    pub(crate) fn end_child(&self) {
        self.held().end_child();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.held().release();
        lock(&ALL).retain(|held| !Arc::ptr_eq(held, &self.held));
    }
}

/// Creates a directory in `parent`, which is created too, and returns its path. A killed process
/// with the same id may have left a directory: its name is skipped.
fn create_directory(parent: &Path) -> Result<PathBuf> {
    fs::create_dir_all(parent).map_err(|source| Error::io("making directory", parent, source))?;
    loop {
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(name);
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(source) if source.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(Error::io("making directory", path, source)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes signals that ask the process to end release everything held first, from now on. Signals
/// that the process ignores, as SIGHUP under `nohup`, stay ignored.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let ignored = ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default());
        let taken = [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| (ignored >> (signal - 1)) & 1 == 0);
        let Ok(mut signals) = Signals::new(taken) else { return };
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                end(128 + signal);
            }
        });
    });
}

/// Returns the signals that a process ignores, from the text of its `/proc/PID/status`. Bit N - 1
/// is signal N.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Releases everything held, and ends the process with this code.
fn end(code: i32) -> ! {
    // Locked until the end, so that the main thread neither creates another directory nor reports a
    // child's death as an error.
    let all = lock(&ALL);
    let mut held: Vec<_> = all.iter().map(|held| lock(held)).collect();
    held.iter_mut().for_each(|held| held.release());
    std::process::exit(code)
}

/// Environment variable that says that a bench's input is a pipe of its parent. The parent sets it;
/// users never do.
const TIED: &str = "LODESTORE_BENCH_TIED";

/// Makes a bench that is started by this command end when this process ends, for any reason.
pub(crate) fn tie(command: &mut std::process::Command) {
    command.env(TIED, "1").stdin(Stdio::piped());
}

/// In a bench that was started with [`tie`]: ends it as SIGTERM does when its input ends.
pub(crate) fn follow_parent() {
    if std::env::var_os(TIED).is_some() {
        thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            end(128 + SIGTERM)
        });
    }
}

/// Prints to standard error the leftovers that no run owns: directories in these, of killed runs or
/// kept ones, and control groups.
pub(crate) fn tell_of_left<'a>(parents: impl IntoIterator<Item = &'a PathBuf>) {
    for path in parents.into_iter().flat_map(|parent| left(parent)) {
        eprintln!(
            "{} is of a run that was killed, or that was to keep it: remove it if nobody needs it",
            path.display()
        );
    }
    // Empty directories with the same kind of names.
    for path in control_group::room().iter().flat_map(|room| left(room)) {
        eprintln!("{} is the control group of a run that was killed: remove it with rmdir", path.display());
    }
}

/// Returns whether the process with this id runs this program.
fn is_ours(id: &str) -> bool {
    let program = |process: &str| {
        let file = fs::read_link(Path::new("/proc").join(process).join("exe")).ok()?;
        // The system appends this to the name if the file was replaced since.
        Some(file.file_name()?.to_string_lossy().trim_end_matches(" (deleted)").to_string())
    };
    program(id).is_some_and(|theirs| program("self") == Some(theirs))
}

/// Returns the directories in `parent`, or control groups, of ended runs: no process of this
/// program has their id, and no process holds them.
fn left(parent: &Path) -> Vec<PathBuf> {
    let over = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some((id, number)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else { return false };
        let numbers = [id, number].iter().all(|part| part.parse::<u64>().is_ok());
        let held = || File::open(path).is_ok_and(|dir| matches!(dir.try_lock(), Err(TryLockError::WouldBlock)));
        numbers && path.is_dir() && !is_ours(id) && !held()
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut left: Vec<_> = entries.map(|entry| entry.path()).filter(over).collect();
    left.sort();
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use lodestore_contract::testing::{self, HANG_TIMEOUT};

    #[test]
    fn the_directory_goes_with_its_owner_unless_kept() {
        let parent = testing::Scratch::on_disk();
        let path = {
            let scratch = Scratch::new(Some(parent.path()), false).expect("a directory");
            fs::write(scratch.path().join("file"), "x").expect("a file");
            scratch.path().to_path_buf()
        };
        assert!(!path.exists());
        let kept = Scratch::new(Some(parent.path()), true).expect("a directory").path().to_path_buf();
        assert!(kept.exists());
    }

    #[test]
    fn a_directory_that_a_killed_process_of_the_same_number_left_is_not_in_the_way() {
        let parent = testing::Scratch::on_disk();
        let next = NEXT.load(Ordering::Relaxed);
        // Other tests use numbers at the same time.
        let left = (next..next + 100).map(|at| parent.path().join(format!("{PREFIX}{}-{at}", std::process::id())));
        left.for_each(|path| fs::create_dir(path).expect("a directory"));
        let scratch = Scratch::new(Some(parent.path()), false).expect("a directory of another number");
        assert_eq!(fs::read_dir(scratch.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn the_directory_goes_when_nobody_works_in_it_any_more() {
        let parent = testing::Scratch::on_disk();
        let scratch = Scratch::new(Some(parent.path()), false).expect("a directory");
        let socket = scratch.path().join("socket");
        assert!(!is_named(scratch.path()));
        let script = "sleep 1; exit 0";
        let server = std::process::Command::new("sh").args(["-c", script]).arg(&socket).spawn();
        let mut server = server.expect("sh starts");
        // The command line appears some time after the start.
        let begun = Instant::now();
        while !is_named(scratch.path()) {
            assert!(begun.elapsed() < HANG_TIMEOUT, "it is not seen");
        }
        let waiter = thread::spawn(move || server.wait());
        let path = scratch.path().to_path_buf();
        drop(scratch);
        assert!(!path.exists() && !is_named(&path));
        waiter.join().expect("it waited").expect("it ended");
    }

    #[test]
    fn a_directory_that_nobody_owns_any_more_is_told_of_and_one_of_a_living_run_is_not() {
        let scratch = testing::Scratch::on_disk();
        let parent = scratch.path();
        // The id of another program; and an id greater than any process id.
        let (dead, other) = (parent.join("lodestore-bench-1-0"), parent.join("lodestore-bench-99999998-3"));
        let own = parent.join(format!("lodestore-bench-{}-77", std::process::id()));
        for path in [&dead, &other, &own, &parent.join("lodestore-bench-x-0"), &parent.join("hikv-1")] {
            fs::create_dir(path).expect("a directory");
        }
        fs::write(parent.join("lodestore-bench-99999997-0"), "no directory").expect("a file");
        assert_eq!(left(parent), [dead.clone(), other.clone()]);
        let owner = File::open(&other).expect("it is there");
        owner.lock().expect("a lock");
        assert_eq!(left(parent), [dead]);
    }

    #[test]
    fn a_bench_is_asked_to_end_by_the_end_of_its_input_and_has_time_to_clean_up() {
        let parent = testing::Scratch::on_disk();
        let scratch = Scratch::new(Some(parent.path()), false).expect("a directory");
        let mark = scratch.path().join("mark");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "cat; sleep 0.2; test \"$LODESTORE_BENCH_TIED\" && echo done > \"$0\""]).arg(&mark);
        tie(&mut command);
        scratch.hold_bench(command.spawn().expect("sh starts"));
        scratch.end_child();
        assert_eq!(fs::read_to_string(&mark).expect("it was written"), "done\n");
    }

    #[test]
    fn a_signal_that_is_ignored_is_known_by_its_bit() {
        let mask = ignored("Name:\tbench\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\n");
        assert_eq!(((mask >> (SIGHUP - 1)) & 1, (mask >> (SIGTERM - 1)) & 1), (1, 0));
        assert_eq!(ignored(""), 0);
    }
}

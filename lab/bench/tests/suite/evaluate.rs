//! `evaluate` through the program: an experiment runs, and its page, its rows and the index are
//! complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::place::{Place, text};
use serde_json::Value;

/// The words of an evaluation of one experiment at the tiny scale, with the pages in `out`.
fn evaluate<'a>(only: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let own = ["evaluate", "--scale", "tiny", "--dir", "memory", "--out", "out/pages", "--only", only];
    own.into_iter().chain(more.iter().copied()).collect()
}

fn place() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("memory")).expect("a directory");
    place
}

#[test]
fn an_experiment_leaves_its_page_its_rows_and_the_index_and_no_store() {
    let place = place();
    let told = place.ok(&evaluate("servers", &[]));
    assert!(told.starts_with("servers: ") && told.lines().count() == 1, "{told}");
    let read = |name: &str| fs::read_to_string(place.path("out/pages").join(name)).unwrap_or_else(|_| panic!("{name}"));
    let page = read("servers.md");
    for part in [
        "* Scale: tiny",
        "* Program: lodestore ",
        "hardware threads, Linux ",
        "lodestore-bench run --dir \"$MEMORY\" --engine hikv",
        "| workload | `hikv` | `mkvs` |",
        "## Where we lose",
        "| multiget | `mkvs` | `lodestore-bench run --engine mkvs --dir \"$MEMORY\" --workloads multiget ",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let rows = read("servers.jsonl");
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ran = |store: &str, workload: &str| rows.iter().any(|row| row["store"] == store && row["workload"] == workload);
    assert!(ran("hikv", "get") && ran("mkvs", "a"), "{rows:?}");
    assert!(!page.contains(&place.path("").display().to_string()), "no directory of this machine is named: {page}");
    assert!(read("servers.svg").starts_with("<svg"));
    let index = read("README.md");
    assert!(
        index.contains("| [servers](servers.md) |") && index.contains("* has not run, or not to its end: micro, "),
        "{index}"
    );
    if cfg!(not(feature = "peers")) {
        assert!(page.contains("* `memcached`: not in this build, but in one with --features peers"), "{page}");
        assert!(index.contains("* servers: `redis`: not in this build"), "{index}");
    }
    assert_eq!(fs::read_dir(place.path("memory")).expect("the directory").count(), 0, "the stores are removed");
    // Existing results of this scale and program are not measured again.
    assert_eq!(place.ok(&evaluate("servers", &["--resume"])), "");
    assert!(place.ok(&evaluate("servers", &[])).starts_with("servers: "));
}

#[test]
fn an_experiment_that_cannot_run_is_told_of_and_ends_nothing() {
    let place = place();
    let told = place.fails(&evaluate("reopen,power", &[]), 13, "power measured nothing");
    let lines: Vec<_> = told.lines().collect();
    let why = "power: it measured nothing: no directory on a disk was given (--disk)";
    assert!(lines.len() == 2 && lines[0] == why && lines[1].starts_with("reopen: "), "{told}");
    let page = fs::read_to_string(place.path("out/pages/power.md")).expect("its page");
    assert!(page.contains("* A run failed: no directory on a disk was given (--disk)"), "{page}");
    let page = fs::read_to_string(place.path("out/pages/reopen.md")).expect("its page");
    let beside = if cfg!(feature = "peers") { "of `lmdb`" } else { "No peer was measured." };
    assert!(page.contains("reopen-kill") && page.contains(beside), "{page}");
    // Only failed experiments run again.
    let again = place.fails(&evaluate("reopen,power", &["--resume"]), 13, "--only power");
    assert!(again.starts_with("power: ") && again.lines().count() == 1, "{again}");
}

/// Returns all files of a directory, with their contents.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut all: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).expect("a file"))).collect();
    all.sort();
    all
}

#[test]
fn a_finished_page_stays_as_it_was_when_its_experiment_measures_nothing_later() {
    let place = place();
    fs::create_dir(place.path("disk")).expect("a directory");
    place.ok(&evaluate("hashkv-reserve", &["--disk", "disk"]));
    let before = files(&place.path("out/pages"));
    assert!(before.len() >= 5, "{before:?}");
    let told = place.fails(&evaluate("hashkv-reserve", &[]), 13, "hashkv-reserve measured nothing");
    assert!(told.contains("(--disk); what --out has of it stays as it was"), "{told}");
    assert!(files(&place.path("out/pages")) == before, "a file was changed");
}

#[test]
fn directories_that_cannot_be_used_are_refused_before_anything_runs() {
    let place = place();
    fs::write(place.path("file"), "x").expect("a file");
    fs::create_dir(place.path("disk")).expect("a directory");
    let with = |dir: &'static str, disk: &'static str, out: &'static str| {
        ["evaluate", "--scale", "tiny", "--only", "hikv-fig8", "--dir", dir, "--disk", disk, "--out", out]
    };
    // No user, not even root, can create files in /proc.
    for (args, code, says) in [
        (with("file", "disk", "out"), 2, "option dir=file: it is no directory"),
        (with("memory", "file", "out"), 2, "option disk=file: it is no directory"),
        (with("memory", "disk", "file"), 2, "option out=file: it is no directory"),
        (with("none", "disk", "out"), 8, "none"),
        (with("memory", "none", "out"), 8, "none"),
        (with("/proc", "disk", "out"), 8, "trying to write in /proc"),
        (with("memory", "/proc", "out"), 8, "trying to write in /proc"),
        (with("memory", "disk", "/proc"), 8, "trying to write in /proc"),
    ] {
        assert_eq!(place.fails(&args, code, says), "", "nothing ran");
    }
    assert!(!place.path("out").exists() && fs::read_dir(place.path("memory")).expect("it is there").next().is_none());
}

#[test]
fn what_is_not_whole_any_more_runs_again() {
    let place = place();
    place.ok(&evaluate("hikv-fig8", &[]));
    let pages = place.path("out/pages");
    let runs_again = |what: &str| {
        let told = place.ok(&evaluate("hikv-fig8", &["--resume"]));
        assert!(told.starts_with("hikv-fig8: "), "{what}: {told}");
        assert_eq!(place.ok(&evaluate("hikv-fig8", &["--resume"])), "", "{what}: it is whole again");
    };
    let cut = |name: &str, keep: usize| {
        let bytes = fs::read(pages.join(name)).expect("it is there");
        fs::write(pages.join(name), &bytes[..keep.min(bytes.len() / 2)]).expect("it is cut");
    };
    fs::remove_file(pages.join("hikv-fig8.md")).expect("it was there");
    runs_again("no page");
    cut("hikv-fig8.md", 1000);
    runs_again("half a page");
    cut("hikv-fig8.jsonl", 1000);
    runs_again("half of its rows");
    fs::remove_file(pages.join("hikv-fig8.svg")).expect("it was there");
    runs_again("no picture");
    // The run of another experiment does not count lines of incomplete files.
    cut("hikv-fig8.jsonl", 1000);
    place.ok(&evaluate("hikv-fig12", &[]));
    let index = fs::read_to_string(pages.join("README.md")).expect("the index");
    assert!(index.contains("[hikv-fig12]") && !index.contains("[hikv-fig8]"), "{index}");
}

#[test]
fn a_broken_account_of_the_runs_is_refused_and_stays() {
    let place = place();
    let pages = place.path("out/pages");
    fs::create_dir_all(&pages).expect("directories");
    fs::write(pages.join("runs.json"), "{ \"micro\": { \"scale\"").expect("a file");
    assert_eq!(place.fails(&evaluate("hikv-fig8", &[]), 2, "runs.json in it cannot be read"), "");
    place.fails(&evaluate("hikv-fig8", &[]), 2, "move it away");
    assert_eq!(files(&pages).len(), 1, "nothing was written");
}

/// Starts an evaluation that has begun to measure, and would run for long.
fn begun(place: &Place, words: &[&str]) -> Child {
    let own = ["evaluate", "--scale", "full", "--dir", "memory", "--out", "out"];
    let args: Vec<_> = own.iter().chain(words).copied().collect();
    let mut command = place.command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    // Its own directory, that of the bench in it, and in this the store's directory.
    let below = |dir: PathBuf| fs::read_dir(dir).ok()?.next()?.ok().map(|entry| entry.path());
    let store = || below(below(below(place.path("memory"))?)?);
    within(Duration::from_secs(60), "a store", || {
        assert!(child.try_wait().expect("it can be asked").is_none(), "it ended too early");
        store().is_some()
    });
    child
}

fn within(most: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < most, "{what}: not so after {most:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn kill(signal: &str, id: u32) {
    assert!(Command::new("kill").args(["-s", signal, &id.to_string()]).status().expect("kill runs").success());
}

/// Returns whether a process of this program works in a directory of the place.
fn is_running(place: &Place) -> bool {
    let own = place.path("memory").to_string_lossy().into_owned();
    let processes = fs::read_dir("/proc").expect("it is there").flatten();
    let words = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    words.map(|words| String::from_utf8_lossy(&words).into_owned()).any(|words| words.contains(&own))
}

#[test]
fn a_signal_ends_the_evaluation_and_all_that_it_started() {
    // A signal that this process ignores, as under nohup, is also ignored by its child processes.
    let status = fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a line of it");
    let ignored = u64::from_str_radix(mask.trim(), 16).expect("a mask");
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        if (ignored >> (code - 128 - 1)) & 1 == 1 {
            eprintln!("SIG{signal} is ignored here");
            continue;
        }
        let place = place();
        let child = begun(&place, &["--only", "micro"]);
        kill(signal, child.id());
        let ended: Output = child.wait_with_output().expect("it ends");
        assert_eq!((ended.status.code(), text(&ended.stderr).as_str()), (Some(code), ""), "{signal}");
        assert!(fs::read_dir(place.path("memory")).expect("it is there").next().is_none(), "{signal}");
        assert!(!is_running(&place), "{signal}: a bench goes on");
    }
}

#[test]
fn a_killed_evaluation_takes_its_bench_with_it_and_the_next_tells_what_is_left() {
    let place = place();
    let mut child = begun(&place, &["--only", "micro"]);
    kill("KILL", child.id());
    child.wait().expect("it ends");
    within(Duration::from_secs(30), "no bench runs", || !is_running(&place));
    let left =
        fs::read_dir(place.path("memory")).expect("it is there").next().expect("its directory").expect("an entry");
    assert!(fs::read_dir(left.path()).expect("a directory").next().is_none(), "the bench removed what was its own");
    let output = place.run(&evaluate("hikv-fig8", &[]));
    let told = text(&output.stderr);
    assert!(output.status.success() && told.lines().count() == 1, "{told}");
    assert!(told.contains(&*left.path().to_string_lossy()) && told.contains("remove it"), "{told}");
}

#[test]
fn a_signal_that_was_ignored_before_stays_so() {
    let place = place();
    let args = evaluate("hikv-fig8", &[]).join(" ");
    let line = format!("trap '' HUP; exec {} {args}", env!("CARGO_BIN_EXE_lodestore-bench"));
    let child = Command::new("sh")
        .args(["-c", &line])
        .current_dir(place.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh starts");
    within(Duration::from_secs(60), "it runs", || {
        fs::read_dir(place.path("memory")).expect("it is there").next().is_some()
    });
    kill("HUP", child.id());
    let ended = child.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn the_list_is_printed_without_directories_and_bad_arguments_are_code_2() {
    let place = place();
    let list = place.ok(&["evaluate", "--list", "--scale", "full"]);
    assert!(list.contains("mkvs-tables") && list.contains("expected at scale full: "), "{list}");
    place.fails(&["evaluate", "--dir", "memory"], 2, "--out");
    place.fails(&evaluate("frob", &[]), 2, "micro, ycsb");
    assert!(!place.path("out").exists(), "nothing was made");
}

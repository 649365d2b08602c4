//! `evaluate` through the program: an experiment runs, and its rows and its record are complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::place::{Place, text};
use serde_json::Value;

/// The words of an evaluation of one experiment at the tiny scale, with the results in `out`.
fn evaluate<'a>(only: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let own = ["evaluate", "--scale", "tiny", "--dir", "memory", "--out", "out/results", "--only", only];
    own.into_iter().chain(more.iter().copied()).collect()
}

fn place() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("memory")).expect("a directory");
    place
}

/// Returns the record of an experiment.
fn record(place: &Place, name: &str) -> Value {
    let text = fs::read_to_string(place.path("out/results/runs.json")).expect("the records");
    serde_json::from_str::<Value>(&text).expect("JSON")[name].clone()
}

#[test]
fn an_experiment_leaves_its_rows_and_its_record_and_no_store() {
    let place = place();
    let told = place.ok(&evaluate("servers", &[]));
    assert!(told.starts_with("servers: ") && told.lines().count() == 1, "{told}");
    let read =
        |name: &str| fs::read_to_string(place.path("out/results").join(name)).unwrap_or_else(|_| panic!("{name}"));
    let lines = read("servers.jsonl");
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let row =
        |store: &str, workload: &str| rows.iter().find(|row| row["store"] == store && row["workload"] == workload);
    assert!(row("hikv", "get").is_some() && row("mkvs", "a").is_some(), "{rows:?}");
    let repeat = row("mkvs", "multiget").expect("a row")["repeat"].as_str().expect("text");
    assert!(repeat.contains("--engine mkvs --dir \"$MEMORY\" --workloads multiget "), "{repeat}");
    let found = record(&place, "servers");
    let about = ["scale", "medium", "title"].map(|name| found[name].as_str().expect("text"));
    assert_eq!(about, ["tiny", "memory", "Servers over a unix socket"]);
    assert!(found["rows"] == rows.len() && found["measures"] == serde_json::json!(["rate"]), "{found}");
    assert_eq!(found["draw"], "rates");
    let machine = found["site"]["machine"].as_str().expect("text");
    assert!(machine.contains("hardware threads, Linux "), "{machine}");
    let command = found["commands"][0].as_str().expect("a command");
    assert!(command.starts_with("lodestore-bench run --dir \"$MEMORY\" --engine hikv"), "{command}");
    let own = place.path("").display().to_string();
    assert!(!lines.contains(&own) && !read("runs.json").contains(&own), "a directory of this machine is named");
    if cfg!(not(feature = "peers")) {
        let out = &found["left_out"];
        let missing = serde_json::json!(["memcached", "not in this build, but in one with --features peers"]);
        assert!(out.as_array().is_some_and(|out| out.contains(&missing)), "{out}");
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
    assert_eq!(record(&place, "power")["failed"][0], "no directory on a disk was given (--disk)");
    let rows = fs::read_to_string(place.path("out/results/reopen.jsonl")).expect("its rows");
    assert!(rows.contains("\"reopen-kill\""), "{rows}");
    assert_eq!(rows.contains("\"store\":\"lmdb\""), cfg!(feature = "peers"), "{rows}");
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
fn finished_results_stay_as_they_were_when_their_experiment_measures_nothing_later() {
    let place = place();
    fs::create_dir(place.path("disk")).expect("a directory");
    place.ok(&evaluate("hashkv-reserve", &["--disk", "disk"]));
    let before = files(&place.path("out/results"));
    assert!(before.len() >= 2, "{before:?}");
    let told = place.fails(&evaluate("hashkv-reserve", &[]), 13, "hashkv-reserve measured nothing");
    assert!(told.contains("(--disk); what --out has of it stays as it was"), "{told}");
    assert!(files(&place.path("out/results")) == before, "a file was changed");
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
    let results = place.path("out/results");
    let runs_again = |what: &str| {
        let told = place.ok(&evaluate("hikv-fig8", &["--resume"]));
        assert!(told.starts_with("hikv-fig8: "), "{what}: {told}");
        assert_eq!(place.ok(&evaluate("hikv-fig8", &["--resume"])), "", "{what}: it is whole again");
    };
    let cut = |name: &str| {
        let bytes = fs::read(results.join(name)).expect("it is there");
        fs::write(results.join(name), &bytes[..1000.min(bytes.len() / 2)]).expect("it is cut");
    };
    cut("hikv-fig8.jsonl");
    runs_again("half of its rows");
    fs::remove_file(results.join("hikv-fig8.jsonl")).expect("it was there");
    runs_again("no rows");
}

#[test]
fn a_broken_account_of_the_runs_is_refused_and_stays() {
    let place = place();
    let results = place.path("out/results");
    fs::create_dir_all(&results).expect("directories");
    fs::write(results.join("runs.json"), "{ \"micro\": { \"scale\"").expect("a file");
    assert_eq!(place.fails(&evaluate("hikv-fig8", &[]), 2, "runs.json in it cannot be read"), "");
    place.fails(&evaluate("hikv-fig8", &[]), 2, "move it away");
    assert_eq!(files(&results).len(), 1, "nothing was written");
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

//! Kills of a process that creates, fills and drops keyspaces.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lodestore_contract::conformance::Rng;
use lodestore_contract::testing::{HANG_TIMEOUT, Scratch};

use crate::setup::{ALL, HEADER, Setup, raw, raw_ids, with_raw};

/// Set in a process to be killed: the number of its setup and the directory of its store.
const VICTIM: &str = "LODESTORE_TEST_KEYSPACES_VICTIM";
const NAMES: [&str; 3] = ["a", "b", "c"];
const RECORDS: u32 = 12;
const KILLS: u64 = 4;

/// A line of the journal of a process that is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Told {
    Creating,
    Created,
    Dropping,
    Dropped,
}

fn journal(dir: &Path) -> PathBuf {
    dir.join("journal")
}

/// Creates, fills and drops keyspaces endlessly. Each keyspace writes its number into its records,
/// and each step is in the journal before and after.
fn be_killed(setup: &Setup, dir: &Path) -> ! {
    let db = setup.open(&dir.join("store"));
    let mut journal = OpenOptions::new().append(true).create(true).open(journal(dir)).expect("a journal");
    let mut tell = |told: Told, name: &str, number: u32| {
        journal.write_all(format!("{told:?} {name} {number}\n").as_bytes()).expect("a line");
    };
    let mut rng = Rng::new(u64::from(std::process::id()));
    for number in std::process::id().. {
        let name = *rng.pick(&NAMES);
        tell(Told::Dropping, name, number);
        db.drop_keyspace(name).expect("a drop");
        tell(Told::Dropped, name, number);
        tell(Told::Creating, name, number);
        let map = db.keyspace(name).expect("creates");
        assert_eq!(map.count().expect("count"), 0, "a new keyspace has records");
        (0..RECORDS).try_for_each(|key| map.put(key.to_le_bytes(), number.to_le_bytes())).expect("puts");
        tell(Told::Created, name, number);
    }
    unreachable!("the parent kills this process")
}

/// A keyspace in the journal of a killed process.
#[derive(Debug, Clone, Copy)]
struct Last {
    told: Told,
    /// The number in its records.
    number: u32,
    /// Whether it has all of its records.
    is_filled: bool,
}

/// Returns each keyspace by the last line about it.
fn last_lines(dir: &Path) -> BTreeMap<String, Last> {
    let mut last: BTreeMap<String, Last> = BTreeMap::new();
    for line in std::fs::read_to_string(journal(dir)).unwrap_or_default().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let told = [Told::Creating, Told::Created, Told::Dropping, Told::Dropped];
        let told = told.into_iter().find(|told| format!("{told:?}") == words[0]).expect("a word");
        let number = words[2].parse().expect("a number");
        let present = last.get(words[1]).copied().unwrap_or(Last { told, number, is_filled: false });
        let next = match told {
            Told::Creating | Told::Created => Last { told, number, is_filled: told == Told::Created },
            // A drop concerns the records of the previous creation.
            Told::Dropping | Told::Dropped => Last { told, ..present },
        };
        last.insert(words[1].to_string(), next);
    }
    last
}

/// A process that is killed at the end of the test, also after a panic.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Victim {
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a state").is_some()
    }
}

/// Checks the remains of a killed process, and returns the next id.
fn check(setup: &Setup, dir: &Path, name: &str) -> u32 {
    let path = dir.join("store");
    let db = setup.open(&path);
    let names = db.keyspaces().expect("names");
    for (keyspace, Last { told, number, is_filled }) in last_lines(dir) {
        let is_there = names.contains(&keyspace);
        match told {
            Told::Created => assert!(is_there, "{name}: {keyspace} is missing"),
            Told::Dropped => assert!(!is_there, "{name}: {keyspace} is there after its drop"),
            Told::Creating | Told::Dropping => {}
        }
        if is_there {
            let map = db.keyspace(&keyspace).expect("opens");
            let mut records = 0;
            let mut each = |_: &[u8], value: &[u8]| {
                assert_eq!(value, number.to_le_bytes(), "{name}: a record of another keyspace in {keyspace}");
                records += 1;
                lodestore::store::Visit::More
            };
            map.for_each(&mut each).expect("a walk");
            assert!(records == RECORDS || !is_filled && records < RECORDS, "{name}: {records} {told:?}");
        }
    }
    db.settle().expect("a settle");
    drop(db);
    let slots = raw(&path).into_iter().filter(|(key, value)| key.starts_with(b"\xff\xff\0\x01") && value[1] != 0);
    let mut ids: Vec<u32> =
        slots.map(|(_, value)| u32::from_le_bytes(*value[2..].first_chunk().expect("an id"))).collect();
    ids.sort_unstable();
    assert_eq!(ids.len(), names.len(), "{name}: {ids:?} {names:?}");
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {ids:?}");
    if ids.last().is_some_and(|last| *last < 0xF8) {
        assert!(raw_ids(&path).iter().all(|id| ids.contains(&u32::from(*id))), "{name}: records of no keyspace");
    }
    let header = with_raw(&path, |store| store.get(HEADER).expect("get"));
    header.map_or(2, |header| u32::from_le_bytes(*header[1..].first_chunk().expect("an id")))
}

#[test]
fn a_kill_at_any_moment_leaves_each_keyspace_complete_or_absent() {
    if let Ok(victim) = std::env::var(VICTIM) {
        let (number, dir) = victim.split_once(' ').expect("two words");
        be_killed(&ALL[number.parse::<usize>().expect("a number")], Path::new(dir));
    }
    let seed = std::env::var("LODESTORE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("LODESTORE_SEED={seed}");
    let mut rng = Rng::new(seed);
    let name = "kills::a_kill_at_any_moment_leaves_each_keyspace_complete_or_absent";
    for (number, setup) in ALL.iter().enumerate() {
        for dir in [Scratch::new(), Scratch::on_disk()] {
            let mut next_id = 2;
            for kill in 0..KILLS {
                let created = || {
                    let journal = std::fs::read_to_string(journal(dir.path())).unwrap_or_default();
                    journal.matches("Created").count()
                };
                let (before, begun) = (created(), Instant::now());
                let victim = Command::new(std::env::current_exe().expect("this program"))
                    .args(["--exact", name, "--nocapture"])
                    .env(VICTIM, format!("{number} {}", dir.path().display()))
                    .stdout(Stdio::null())
                    .spawn()
                    .expect("a process");
                let mut victim = Victim(victim);
                while created() == before && !victim.has_ended() {
                    assert!(begun.elapsed() < HANG_TIMEOUT, "{}", setup.name());
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_micros(rng.below(40_000) as u64));
                assert!(!victim.has_ended(), "{}: it ended by itself", setup.name());
                drop(victim);
                let next = check(setup, dir.path(), &format!("{} kill {kill}", setup.name()));
                assert!(next >= next_id, "{}: next id {next} after {next_id}", setup.name());
                next_id = next;
            }
            assert!(next_id > 3, "{}: nothing was created", setup.name());
        }
    }
}

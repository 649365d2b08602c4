//! The contract's suite over NVHT: each medium, level and mode that it offers.

#[expect(dead_code, reason = "these tests use a part of it")]
mod common;

use std::path::{Path, PathBuf};

use common::Scratch;
use lodestore_contract::conformance::{Case, Harness, Plan, seed, sizes};
use lodestore_contract::{Durability, Result};
use lodestore_media::PoolOptions;
use lodestore_nvht::{HashKind, Nvht, NvhtOptions};

/// A place for one store, with the options that it is made and opened with.
struct Place {
    scratch: Scratch,
    name: &'static str,
    plan: Plan,
    options: NvhtOptions,
}

impl Place {
    fn path(&self) -> PathBuf {
        self.scratch.store()
    }
}

impl Harness for Place {
    type S = Nvht;

    fn name(&self) -> String {
        format!("nvht, {}", self.name)
    }

    fn durability(&self) -> Durability {
        self.options.pool.durability
    }

    fn survives_power(&self) -> bool {
        self.options.pool.durability == Durability::Power && !self.options.pool.emulate_dax
    }

    fn plan(&self) -> Plan {
        self.plan
    }

    fn create(&self, capacity: u64) -> Result<Nvht> {
        let pool = PoolOptions { capacity, ..self.options.pool.clone() };
        Nvht::create(&self.path(), &NvhtOptions { pool, ..self.options.clone() })
    }

    fn open(&self) -> Result<Nvht> {
        Nvht::open(&self.path(), &self.options)
    }

    fn clear(&self) {
        match std::fs::remove_dir_all(self.path()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("remove the store: {error}"),
            _ => {}
        }
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).expect("list the store");
        let names =
            entries.map(|entry| entry.expect("list the store").file_name().into_string().expect("a plain name"));
        let mut names: Vec<_> = names.filter(|name| name.starts_with("pool.")).collect();
        names.sort();
        names
    }

    fn alter(&self, file: &str, change: &mut dyn FnMut(&mut Vec<u8>)) {
        let path = self.path().join(file);
        let mut bytes = std::fs::read(&path).expect("read a file of the store");
        change(&mut bytes);
        std::fs::write(&path, bytes).expect("write a file of the store");
    }
}

/// A place on tmpfs with small regions and tables, so that both grow. Keys hash by the run's seed.
fn place(name: &'static str) -> Place {
    let pool = PoolOptions { region_bytes: 16 << 20, ..PoolOptions::default() };
    let options =
        NvhtOptions { pool, partitions: 4, initial_capacity: 64, hash_seed: Some(seed()), ..NvhtOptions::default() };
    Place { scratch: Scratch::new(), name, plan: Plan::default(), options }
}

/// The same with every flush and fence executed.
fn dax(name: &'static str) -> Place {
    let mut place = place(name);
    place.options.pool.durability = Durability::Power;
    place.options.pool.emulate_dax = true;
    place
}

/// On an ordinary file.
fn file(name: &'static str) -> Place {
    Place { scratch: Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR"))), ..place(name) }
}

/// A shorter run, for modes that differ little.
fn short(mut place: Place) -> Place {
    place.plan = Plan { keys: 600, thread_ops: 600, model_cases: 16, value_max: 4 << 20, ..Plan::default() };
    place
}

fn shm_process() -> Place {
    place("tmpfs, process")
}

/// As users get it but for the capacity: 64 partitions, 8192 slots, regions of 256 MiB.
fn shm_defaults() -> Place {
    let options = NvhtOptions { hash_seed: Some(seed()), ..NvhtOptions::default() };
    Place { options, ..short(place("tmpfs, process, default options")) }
}

fn shm_dax() -> Place {
    dax("tmpfs as DAX, power")
}

fn file_process() -> Place {
    short(file("file, process"))
}

fn file_power() -> Place {
    let mut place = file("file, power");
    place.options.pool.durability = Durability::Power;
    place.plan = Plan::small();
    place
}

fn no_threads() -> Place {
    let mut place = dax("tmpfs as DAX, no threads");
    place.options.recovery_threads = 0;
    place.options.sweep_ms = 0;
    place
}

/// Two lines are probed and tables are filled to the brim: keys often stand behind their home lines, and tables grow for want of room.
fn short_probes() -> Place {
    let mut place = short(dax("tmpfs as DAX, 14 slots probed, load 0.95"));
    place.options.probe_length = 14;
    place.options.load_percent = 95;
    place.options.partitions = 1;
    place
}

fn xxh3() -> Place {
    let mut place = short(place("tmpfs, hash=xxh3, one partition"));
    place.options.hash = HashKind::Xxh3;
    place.options.partitions = 1;
    place.options.initial_capacity = 1;
    place
}

/// Some GiB of tmpfs; see there for the variable that turns it on.
#[test]
fn a_value_of_a_gib() {
    sizes::value_of_a_gib(&Case::new(shm_process()));
}

macro_rules! over {
    ($($make:ident)*) => {
        $(mod $make {
            lodestore_contract::conformance!(super::$make);
        })*
    };
}

over! { shm_process shm_defaults shm_dax file_process file_power no_threads short_probes xxh3 }

//! The peers of crate `lodestore-peers` as targets of the bench.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};
use lodestore_peers::{Asked, Kind, Peer as Store, Survives, kinds};

use super::{Asked as Wanted, Gives, Peer};
use crate::procfs::{bytes_given_to_files, bytes_of_blocks};
use crate::target::{Account, Facts, Target};

/// Returns every peer of the crate.
pub(super) fn all() -> impl Iterator<Item = Peer> {
    kinds().iter().map(|kind| Peer {
        name: kind.name,
        family: kind.family,
        gives: match kind.survives {
            Survives::Nothing => Gives::Nothing,
            Survives::Stop => Gives::Stop,
            Survives::Process => Gives::Process,
            Survives::Medium => Gives::Power,
        },
        volatile: false,
        ordered: kind.ordered,
        budget: kind.budget,
        write_buffer: kind.write_buffer,
        ready: Box::new(|| kind.ready()),
        fits_in: Box::new(|dir| kind.fits_in(dir)),
        open: Box::new(|dir, asked| {
            let Wanted { budget, write_buffer, there, threads } = *asked;
            let asked = Asked { budget, write_buffer, there, threads };
            Foreign::open(kind, dir, &asked).map(|peer| Box::new(peer) as Box<dyn Target>)
        }),
    })
}

/// An open peer. The peer runs in a separate process, so its written bytes are the bytes that this
/// process has passed to files since the peer was opened. If it does not count its DRAM, the memory
/// of the process counts. The written bytes of a server are unknown, because its process also
/// writes replies.
struct Foreign {
    store: Box<dyn Store>,
    ordered: bool,
    dir: PathBuf,
    medium: String,
    written_before: u64,
    opening: Duration,
}

impl Foreign {
    fn open(kind: &'static Kind, dir: &Path, asked: &Asked) -> Result<Self> {
        if !asked.there {
            fs::create_dir(dir).map_err(|source| Error::io("making directory", dir, source))?;
        }
        let medium = lodestore::medium::doctor(dir)?.medium.medium.to_string();
        // The library is loaded before the open is timed, as Lodestore's is.
        kind.ready()?;
        let (written_before, start) = (bytes_given_to_files(), Instant::now());
        let store = kind.open(dir, asked)?;
        let opening = start.elapsed();
        Ok(Self { store, ordered: kind.ordered, dir: dir.into(), medium, written_before, opening })
    }
}

/// Returns the failures that an acknowledged write survives, in the terms of Lodestore's
/// durability.
fn durability(survives: Survives, medium: &str) -> &'static str {
    match survives {
        Survives::Nothing | Survives::Stop => "none",
        Survives::Medium if medium != "shm" => "power",
        Survives::Process | Survives::Medium => "process",
    }
}

impl Target for Foreign {
    fn facts(&self) -> Facts {
        let about = self.store.about();
        let durability = durability(about.survives, &self.medium).into();
        Facts { medium: self.medium.clone(), durability, settings: about.settings, ..Facts::default() }
    }

    fn ordered(&self) -> bool {
        self.ordered
    }

    fn opening(&self) -> Option<Duration> {
        Some(self.opening)
    }

    fn account(&self) -> Account {
        let used = bytes_of_blocks(&self.dir);
        let own = self.store.account();
        let bytes_written = match self.store.server() {
            Some(_) => 0,
            None => bytes_given_to_files().saturating_sub(self.written_before),
        };
        Account {
            dram_bytes: own.dram_bytes,
            medium_bytes: used,
            medium_used_bytes: used,
            medium_size_bytes: used,
            bytes_written,
            compactions: own.compactions,
            ..Account::default()
        }
    }

    fn server(&self) -> Option<u32> {
        self.store.server()
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.store.get(key, value)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.store.multi_get(keys, each)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put(key, value)
    }

    #[inline]
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.store.update(key, value)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.store.delete(key)
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        self.store.scan(from, limit, each)
    }

    /// Does nothing: the peers' writes wait for no background work.
    fn catch_up(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.store.settle()
    }

    fn close(&self) -> Result<()> {
        self.store.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_gives_what_the_medium_survives() {
        assert_eq!(durability(Survives::Medium, "shm"), "process");
        assert_eq!(durability(Survives::Medium, "file"), "power");
        assert_eq!(durability(Survives::Process, "file"), "process");
        assert_eq!(durability(Survives::Stop, "file"), "none");
    }
}

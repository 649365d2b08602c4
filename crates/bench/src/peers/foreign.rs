//! The peers of crate `lodestore-peers` as targets of the bench.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};
use lodestore_peers::{Kind, Peer as Store, Survives, kinds};

use super::Peer;
use crate::target::{Account, Facts, Target};

/// Bytes of a block in a file's metadata.
const BLOCK: u64 = 512;

/// Every peer of the crate.
pub(super) fn all() -> impl Iterator<Item = Peer> {
    kinds().iter().map(|kind| Peer {
        name: kind.name,
        volatile: false,
        ready: Box::new(|| kind.ready()),
        open: Box::new(|dir| Foreign::create(kind, dir).map(|peer| Box::new(peer) as Box<dyn Target>)),
    })
}

/// A peer that is open. It has no account of its DRAM, so the process's counts.
struct Foreign {
    store: Box<dyn Store>,
    ordered: bool,
    dir: PathBuf,
    medium: String,
}

impl Foreign {
    fn create(kind: &'static Kind, dir: &Path) -> Result<Self> {
        fs::create_dir(dir).map_err(|source| Error::io("making directory", dir, source))?;
        let medium = lodestore::doctor(dir)?.medium.medium.to_string();
        Ok(Self { store: kind.create(dir)?, ordered: kind.ordered, dir: dir.into(), medium })
    }
}

/// What an acknowledged write survives there, in the words of our own durability.
fn durability(survives: Survives, medium: &str) -> &'static str {
    match survives {
        Survives::Stop => "none",
        Survives::Medium if medium != "shm" => "power",
        Survives::Process | Survives::Medium => "process",
    }
}

/// Bytes that the files under `dir` take. What goes away meanwhile counts for nothing.
fn used(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.blocks() * BLOCK).sum()
}

impl Target for Foreign {
    fn facts(&self) -> Facts {
        let about = self.store.about();
        let durability = durability(about.survives, &self.medium).into();
        Facts { medium: self.medium.clone(), durability, settings: about.settings }
    }

    fn ordered(&self) -> bool {
        self.ordered
    }

    fn account(&self) -> Account {
        let used = used(&self.dir);
        Account { medium_bytes: used, medium_size_bytes: used, ..Account::default() }
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.store.get(key, value)
    }

    /// One get after another: none of these has more to offer.
    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let mut value = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let found = self.store.get(key, &mut value)?;
            each(at, found.then_some(&value));
        }
        Ok(())
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

    /// None of them says when its work behind the writes is done.
    fn settle(&self) -> Result<()> {
        Ok(())
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

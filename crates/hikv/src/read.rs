//! Reading single keys. No reader takes a lock or writes to shared memory, but for its epoch.
//!
//! Durable linearizability: an entry may be seen before it is durable. A reader therefore looks, after it
//! has read an entry (or found none), whether the key's stripe is held; if so it flushes what it read and fences
//! before it answers. If the stripe is free, whatever was read is durable already (`stripe.rs`, invariant 3).
//!
//! A miss counts only if the directory still names the same segment: a split may have moved the key meanwhile.

use lodestore_contract::limits::check_key;
use lodestore_contract::{Error, Event, Expiry, Result};
use lodestore_media::{Mutant, NvPtr};

use crate::hash::Signature;
use crate::inner::Inner;
use crate::layout::BUCKET;
use crate::record::Record;
use crate::table::{Hit, READ_AHEAD, Segment, Table};

/// Keys of one round of a batched read: as many misses as a core can have under way.
const BATCH: usize = 16;

impl Inner {
    /// The live record of `key`; the caller holds a guard.
    #[inline]
    pub(crate) fn lookup(&self, sig: Signature, key: &[u8]) -> Result<Option<Record<'_>>> {
        loop {
            let segment = self.table.segment(&self.pool, sig);
            self.table.prefetch(&self.pool, segment, sig);
            match self.table.find(&self.pool, segment, sig, key)? {
                Some(hit) => {
                    self.persist_read(sig, segment, Some(hit.slot));
                    return self.vet(hit);
                }
                None if self.table.segment(&self.pool, sig).at == segment.at => {
                    self.persist_read(sig, segment, None);
                    return Ok(None);
                }
                None => {}
            }
        }
    }

    /// The record of a hit, if it has not expired and its checksum is right.
    #[inline]
    fn vet<'a>(&'a self, hit: Hit<'a>) -> Result<Option<Record<'a>>> {
        if self.options.verify_reads
            && let Err(error) = hit.record.check(hit.position)
        {
            self.corrupt(&error);
            return Err(error);
        }
        if hit.record.expiry().is_some_and(Expiry::is_past) {
            return Ok(None);
        }
        Ok(Some(hit.record))
    }

    #[cold]
    pub(crate) fn corrupt(&self, error: &Error) {
        if let Error::Corrupt { place, what } = error {
            self.tell(&Event::Corruption { place: place.clone(), what: what.clone() });
        }
    }

    /// Makes durable what was read, where a writer is at work (see the head of this file).
    #[inline]
    fn persist_read(&self, sig: Signature, segment: Segment, slot: Option<NvPtr>) {
        if !self.pool.persists() {
            return;
        }
        let (home, other) = self.table.place.buckets(sig);
        if !self.stripes.is_locked(self.table.place.partition(sig), home) || self.pool.mutant(Mutant::ReadUnpersisted) {
            return;
        }
        match slot {
            Some(slot) => self.pool.flush(slot, 16),
            None => {
                self.pool.flush(Table::bucket(segment, home), BUCKET as usize);
                self.pool.flush(Table::bucket(segment, other), BUCKET as usize);
            }
        }
        self.pool.fence();
    }

    pub(crate) fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        check_key(key)?;
        let _timer = self.sampler.get();
        let _guard = self.enter()?;
        match self.lookup(self.table.place.sign(key), key)? {
            Some(record) => {
                value.extend_from_slice(record.value());
                Ok(true)
            }
            None => Ok(false),
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let _guard = self.enter()?;
        Ok(self.lookup(self.table.place.sign(key), key)?.is_some())
    }

    pub(crate) fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        check_key(key)?;
        let _guard = self.enter()?;
        Ok(self.lookup(self.table.place.sign(key), key)?.map(|record| record.expiry()))
    }

    /// Reads keys in rounds of [`BATCH`]: all directories, then all buckets, then all records are asked for before
    /// the first is waited for, so that their misses overlap.
    pub(crate) fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for key in keys {
            check_key(key)?;
        }
        for (round, batch) in keys.chunks(BATCH).enumerate() {
            self.sampler.gets(batch.len() as u64);
            let _guard = self.enter()?;
            let mut found = [(Signature(1), Segment { at: NvPtr::NULL, depth: 0 }); BATCH];
            for (slot, key) in found.iter_mut().zip(batch) {
                let sig = self.table.place.sign(key);
                let segment = self.table.segment(&self.pool, sig);
                self.table.prefetch(&self.pool, segment, sig);
                *slot = (sig, segment);
            }
            for (sig, segment) in &found[..batch.len()] {
                if let Some(position) = self.table.candidate(&self.pool, *segment, *sig) {
                    self.pool.prefetch(position.untagged(), READ_AHEAD);
                }
            }
            for (index, (key, (sig, _))) in batch.iter().zip(&found).enumerate() {
                let record = self.lookup(*sig, key)?;
                each(round * BATCH + index, record.as_ref().map(Record::value));
            }
        }
        Ok(())
    }
}

//! A writer's lookup before it changes a key: the key's two buckets.

use lodestore_contract::Result;
use lodestore_media::{NvPtr, Pool};

use crate::entry::{Entry, names_record};
use crate::hash::Signature;
use crate::layout::{BUCKET_ENTRIES, ENTRY_BYTES};
use crate::record::Record;
use crate::table::{FreeSlot, Hit, Segment, Table, check_other_record, is_bound};

/// A writer's view of a key's two buckets.
pub struct Probe {
    /// Addresses of the key's two buckets, its home bucket first.
    buckets: [NvPtr; 2],
    /// Bit set of the buckets' entries with the key's signature. More than one bit only if two keys
    /// share a hash.
    same: u16,
    sig: u64,
    /// A free slot and its entry, by the paper's rule: the home bucket, with a second choice.
    pub(crate) free: Option<FreeSlot>,
}

/// A writer's view of one bucket.
struct ProbedBucket {
    /// Entries that are not free.
    used: usize,
    /// Bit set of entries with the key's signature.
    same: u16,
    free: Option<FreeSlot>,
}

impl Table {
    /// Reads both buckets for a writer that holds the key's stripe.
    #[inline]
    pub(crate) fn probe(&self, pool: &Pool, segment: Segment, sig: Signature) -> Probe {
        let (home, other) = self.placement.buckets(sig);
        let buckets = [Self::bucket(segment, home), Self::bucket(segment, other)];
        let [home, other] = buckets.map(|at| self.probe_bucket(pool, segment, sig, at));
        let prefers_home = Self::prefers_home(home.used, other.used);
        let free = if prefers_home { home.free.or(other.free) } else { other.free.or(home.free) };
        Probe { buckets, same: home.same | other.same << BUCKET_ENTRIES, sig: sig.0, free }
    }

    #[inline]
    fn probe_bucket(&self, pool: &Pool, segment: Segment, sig: Signature, at: NvPtr) -> ProbedBucket {
        let words = pool.load_words::<16>(at);
        let mut probed = ProbedBucket { used: 0, same: 0, free: None };
        for index in 0..BUCKET_ENTRIES {
            let entry = Entry { sig: words[index * 2], word: words[index * 2 + 1] };
            if self.is_free(sig, entry.pair(), segment.depth) {
                probed.free = probed.free.or(Some((at.add(index as u64 * ENTRY_BYTES), entry)));
            } else {
                probed.used += 1;
                probed.same |= u16::from(entry.sig == sig.0) << index;
            }
        }
        probed
    }
}

impl Probe {
    /// Returns whether any entry has the key's signature.
    #[inline]
    pub(crate) fn has_candidates(&self) -> bool {
        self.same != 0
    }

    /// Returns the entries with the key's signature, each with its slot. The caller holds the key's
    /// stripe.
    #[inline]
    pub(crate) fn candidates(&self, pool: &Pool) -> impl Iterator<Item = (NvPtr, Entry)> {
        let mut same = self.same;
        std::iter::from_fn(move || {
            let number = same.trailing_zeros() as usize;
            let bucket = *self.buckets.get(number / BUCKET_ENTRIES)?;
            same &= same - 1;
            let slot = bucket.add((number % BUCKET_ENTRIES) as u64 * ENTRY_BYTES);
            Some((slot, Entry::load(pool, slot)))
        })
        .filter(|(_, entry)| entry.sig == self.sig && names_record(entry.word))
    }

    /// Starts to load the records of the candidates.
    #[inline]
    pub(crate) fn prefetch(&self, pool: &Pool) {
        for (_, entry) in self.candidates(pool) {
            pool.prefetch(entry.position().untagged(), 64);
        }
    }

    /// Returns the candidate whose record has this key. The caller holds the key's stripe.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a candidate names no record, or a record with a damaged key.
    #[inline]
    pub(crate) fn find<'a>(&self, pool: &'a Pool, key: &[u8]) -> Result<Option<Hit<'a>>> {
        for (slot, entry) in self.candidates(pool) {
            let position = entry.position();
            let record = Record::read(pool, position)?;
            if record.key() == key && is_bound(pool, entry, slot, record.binding()) {
                return Ok(Some(Hit { at: slot, entry, record_at: position, record, is_bound: true }));
            }
            check_other_record(&record, slot, entry)?;
        }
        Ok(None)
    }
}

//! The storage of the manifest's records: a chain of extents, each as long as free space allows.
//!
//! The records form one sequence of bytes, which continues from extent to extent. The manifest
//! therefore needs no extent of its own length, and can grow in fragmented free space.
//!
//! Persist order of an append that needs more extents: their headers, **fence**; the words that
//! link them, and the record; **fence: the edit is durable**. A link thus leads to a whole header,
//! or it is damaged.
//!
//! Invariants
//! 1. All extents of a chain have its nonce, and their numbers are their positions in it. No other
//!    use of their space had the nonce.
//! 2. Bytes before `end` never change, and are durable.
//! 3. When a record is begun, no bytes of the chain's own records are after `end`, neither in its
//!    extents nor in extents that it allocates. A chain is either fresh, or an open continued it
//!    for lack of space for another one. Such an open wiped the bytes that a crash may have cut off
//!    there. Otherwise, words of a record that never became durable and words of the next, similar
//!    record could form a whole record.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use lodestore_contract::{Error, Result};
use lodestore_media::{NvPtr, Pool};

use super::record::{EXTENT_HEADER_BYTES, Head, LINK_AT, NO_RECORD_MAGIC, WORD_BYTES};
use crate::layout::KIND_MANIFEST;
use crate::planted;
use crate::space::reserve::Reserve;

/// Least bytes of records per extent, if there is a choice.
const EXTENT_RECORDS_BYTES_MIN: u64 = 448;
/// Bytes of a header.
const HEADER_BYTES: u64 = EXTENT_HEADER_BYTES as u64;

/// An extent of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    at: NvPtr,
    /// Bytes, header included.
    capacity: u64,
}

impl Link {
    fn records(&self) -> u64 {
        self.capacity - HEADER_BYTES
    }
}

/// A manifest that an open has read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) chain: Chain,
    /// Where its records end, if they are whole in place: more records may follow.
    pub(crate) ends: Option<Ends>,
}

/// The end of the records of a manifest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// Bytes of the checkpoint, and of all records.
    pub(crate) checkpoint: u64,
    pub(crate) end: u64,
    /// The number of the next record.
    pub(crate) next_number: u64,
}

/// The extents of a manifest.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    links: Vec<Link>,
    /// How many extents are named by the one before, or by the root word.
    linked: usize,
    nonce: u64,
    /// Bytes of its records, and of the space for records.
    end: u64,
    records_capacity: u64,
    /// Whether an earlier open may have written to it. Extents that were allocated and not linked
    /// may contain records with this nonce.
    is_continued: bool,
}

impl Chain {
    /// Creates an empty chain with this nonce.
    pub(crate) fn new(nonce: u64) -> Self {
        Self { nonce, ..Self::default() }
    }

    /// Returns the first extent.
    pub(crate) fn first(&self) -> NvPtr {
        self.links.first().map_or(NvPtr::NULL, |link| link.at)
    }

    /// Returns its extents.
    pub(crate) fn extents(&self) -> impl Iterator<Item = NvPtr> {
        self.links.iter().map(|link| link.at)
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Returns the bytes of the records.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    fn is_full(&self, len: u64) -> bool {
        self.end + len > self.records_capacity
    }

    /// Frees its extents, which nothing names any more.
    pub(crate) fn free_extents(&self, pool: &Pool) {
        self.extents().for_each(|at| pool.allocator().free_extent(pool, at));
    }

    /// Appends a record for which [`Self::make_room`] has allocated space. Durable on return.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    #[track_caller]
    pub(crate) fn append(&mut self, pool: &Pool, record: &[u8]) -> Result<()> {
        assert!(!self.is_full(record.len() as u64), "room was made for it");
        for pair in self.links[self.linked.saturating_sub(1)..].windows(2) {
            let word = pair[0].at.add(LINK_AT);
            pool.publish_u64(word, pair[1].at.raw());
            pool.flush(word, 8);
        }
        self.store(pool, record);
        pool.fence_checked()?;
        self.linked = self.links.len();
        self.end += record.len() as u64;
        Ok(())
    }

    /// Allocates extents until a record of this length fits. Their headers are durable. The next
    /// append links them.
    ///
    /// # Errors
    /// [`Error::Full`]: nothing is changed. [`Error::Poisoned`].
    pub(crate) fn ensure_space(&mut self, pool: &Pool, reserve: &Reserve, len: u64) -> Result<()> {
        if !self.is_full(len) {
            return Ok(());
        }
        let (before, records_capacity) = (self.links.len(), self.records_capacity);
        while self.is_full(len) {
            let missing = self.end + len - self.records_capacity;
            // As many bytes as the chain has: a long chain thus has few extents.
            let sizes = (
                missing.min(EXTENT_RECORDS_BYTES_MIN) + HEADER_BYTES,
                missing.max(self.records_capacity).max(EXTENT_RECORDS_BYTES_MIN) + HEADER_BYTES,
            );
            match reserve.alloc_for_manifest(pool, sizes) {
                Ok((at, capacity)) => {
                    let link = Link { at, capacity };
                    self.records_capacity += link.records();
                    self.links.push(link);
                }
                Err(error) => {
                    self.links.drain(before..).for_each(|link| pool.allocator().free_extent(pool, link.at));
                    self.records_capacity = records_capacity;
                    return Err(error);
                }
            }
        }
        for (number, link) in self.links.iter().enumerate().skip(before) {
            if self.is_continued {
                zero_durable(pool, link.at, link.capacity);
            }
            let head = Head { number: number as u32, nonce: self.nonce, capacity: link.capacity };
            pool.store_and_flush(link.at, &[&head.encode()]);
        }
        pool.fence_checked()
    }

    /// Continues a chain that was read and whose whole records end at `end`. On return, durably, no
    /// bytes of a record follow.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn continue_at(&mut self, pool: &Pool, end: u64) -> Result<()> {
        (self.end, self.is_continued) = (end, true);
        // The record that was cut off is invalidated first. Afterwards no mix of its wiped and its
        // old bytes is a valid record.
        if pool.has_fault(planted::MANIFEST_NOT_WIPED) {
            self.is_continued = false;
            return Ok(());
        }
        if let Some(word) = self.position_of(end) {
            pool.publish_u64(word, NO_RECORD_MAGIC);
            pool.flush(word, 8);
            pool.fence();
        }
        let (mut begin, from) = (0, end + WORD_BYTES as u64);
        for link in &self.links {
            let (first, last) = (from.max(begin), begin + link.records());
            if first < last {
                zero_durable(pool, link.at.add(HEADER_BYTES + first - begin), last - first);
            }
            begin = last;
        }
        pool.fence();
        pool.check()
    }

    /// Returns the position of the byte at offset `at` of the records, if the chain has space for
    /// it.
    fn position_of(&self, at: u64) -> Option<NvPtr> {
        let mut begin = 0;
        for link in &self.links {
            if at < begin + link.records() {
                return Some(link.at.add(HEADER_BYTES + at - begin));
            }
            begin += link.records();
        }
        None
    }

    /// Stores bytes after the records, extent by extent.
    fn store(&self, pool: &Pool, record: &[u8]) {
        let (mut begin, mut at, mut rest) = (0, self.end, record);
        for link in &self.links {
            let end = begin + link.records();
            if at < end && !rest.is_empty() {
                let (here, behind) = rest.split_at(rest.len().min((end - at) as usize));
                pool.store_and_flush(link.at.add(HEADER_BYTES + at - begin), &[here]);
                (at, rest) = (at + here.len() as u64, behind);
            }
            begin = end;
        }
        assert!(rest.is_empty(), "room was made for it");
    }

    /// Reads the chain that begins here. Returns it and all its bytes after the headers, records or
    /// not.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::NewerFormat`].
    pub(crate) fn read(pool: &Pool, first: NvPtr) -> Result<(Self, Vec<u8>)> {
        let (mut this, mut bytes, mut next) = (Self::default(), Vec::new(), first);
        while !next.is_null() {
            let number = this.links.len() as u32;
            let head = Self::head_at(pool, next, number)?;
            if number > 0 && head.nonce != this.nonce {
                return Err(wrong(number, "belongs to another manifest"));
            }
            this.nonce = head.nonce;
            let link = Link { at: next, capacity: head.capacity };
            let all = pool.bytes(next, head.capacity as usize).ok_or_else(|| wrong(number, "is outside the pool"))?;
            bytes.extend_from_slice(&all[EXTENT_HEADER_BYTES..]);
            this.records_capacity += link.records();
            this.links.push(link);
            this.linked += 1;
            next = NvPtr::from_raw(pool.load_u64(next.add(LINK_AT)));
        }
        Ok((this, bytes))
    }

    /// Returns the nonce of the chain that begins here, and the bytes after the headers of its
    /// remaining extents. An extent belongs to the chain by its header, whether a link leads to it
    /// or not. If the first extent's header is not whole, all extents found must belong to one
    /// chain.
    ///
    /// # Errors
    /// [`Error::NewerFormat`].
    pub(crate) fn salvage(pool: &Pool, first: Option<NvPtr>) -> Result<Option<(u64, Vec<u8>)>> {
        let mut heads = BTreeMap::new();
        for at in pool.allocator().extents_of(pool, KIND_MANIFEST).into_iter().chain(first) {
            match Head::decode(pool.bytes(at, EXTENT_HEADER_BYTES).unwrap_or_default()) {
                Ok(head) => heads.insert((head.nonce, head.number), (at, head.capacity)),
                Err(error @ Error::NewerFormat { .. }) => return Err(error),
                Err(_) => None,
            };
        }
        let named = heads.iter().find(|(_, (at, _))| Some(*at) == first).map(|((nonce, _), _)| *nonce);
        let mut nonces: Vec<u64> = heads.keys().map(|(nonce, _)| *nonce).collect();
        nonces.dedup();
        let Some(nonce) = named.or_else(|| nonces.first().copied().filter(|_| nonces.len() == 1)) else {
            return Ok(None);
        };
        let mut records = Vec::new();
        for (at, capacity) in heads.range((nonce, 0)..=(nonce, u32::MAX)).map(|(_, link)| *link) {
            let all = usize::try_from(capacity).ok().and_then(|capacity| pool.bytes(at, capacity));
            records.extend_from_slice(&all.unwrap_or(&[0; EXTENT_HEADER_BYTES])[EXTENT_HEADER_BYTES..]);
        }
        Ok(Some((nonce, records)))
    }

    fn head_at(pool: &Pool, at: NvPtr, number: u32) -> Result<Head> {
        let lies_there = pool.contains(at, EXTENT_HEADER_BYTES)
            && pool.layout(at.region()).is_some_and(|layout| at.offset() >= layout.chunks_offset);
        let bytes = pool.bytes(at, EXTENT_HEADER_BYTES).filter(|_| lies_there);
        let head = Head::decode(bytes.ok_or_else(|| wrong(number, "is outside the pool"))?)?;
        let is_there = usize::try_from(head.capacity).is_ok_and(|bytes| pool.contains(at, bytes))
            && pool.allocator().holds_extent(pool, at, head.capacity, KIND_MANIFEST);
        if head.number != number || !is_there {
            return Err(wrong(number, "does not belong to the manifest"));
        }
        Ok(head)
    }

    /// Flushes the headers, the links, and the records up to `end`, for an open that does not know
    /// which of them were flushed.
    pub(crate) fn flush(&self, pool: &Pool, end: u64) {
        let mut left = end;
        for link in &self.links {
            let here = left.min(link.records());
            pool.flush(link.at, (HEADER_BYTES + here) as usize);
            left -= here;
        }
    }
}

/// Stores zeros. Durable after the caller's fence.
fn zero_durable(pool: &Pool, at: NvPtr, bytes: u64) {
    pool.zero(at, bytes as usize);
    pool.flush(at, bytes as usize);
}

#[cold]
fn wrong(number: u32, what: &str) -> Error {
    Error::corrupt("manifest", format!("extent {number} {what}"))
}

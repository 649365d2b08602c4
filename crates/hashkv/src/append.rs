//! Appends values to their groups, or to the cold storage, in whole blocks.
//!
//! Persist order: the records, in blocks not yet written in this use of their segments; **sync**;
//! then the caller publishes the pointers, in a flush's manifest record or in records of the LSM's
//! log.

use lodestore_contract::{Error, Result};
use lodestore_media::Blocks;
use xxhash_rust::xxh3::xxh3_64;

use crate::layout::{Home, Pointer, Record, SegmentUse, encode_segment, record_len};
use crate::space::{Gain, PartBytes, SegmentLimits, SegmentPart, Space, SpaceRequest};
use crate::space_management::FUTILE_COLLECTIONS_MAX;
use crate::values::{Values, lock};

/// Number of segments that may fail to be written before an append fails.
const REFUSED_SEGMENTS_MAX: u32 = 4;

pub(crate) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// A value to append.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// The value goes to the cold storage instead of its group.
    pub(crate) cold: bool,
}

impl<'a> Item<'a> {
    pub(crate) fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        Self { hash: hash(key), key, value, cold: false }
    }

    pub(crate) fn len(&self) -> usize {
        record_len(self.key.len(), self.value.len())
    }

    fn belongs_to(&self, home: Home) -> bool {
        self.cold == (home == Home::Cold) && home.has(self.hash)
    }
}

/// Appended values. Their parts are not collected while this object exists: the LSM may not name
/// them yet.
pub(crate) struct Appended<'a> {
    values: &'a Values,
    parts: Vec<(SegmentPart, u64)>,
    durable: bool,
    /// Pointer of each value; `None` if no segment was available.
    pub(crate) pointers: Vec<Option<Pointer>>,
}

impl Appended<'_> {
    /// Passes the parts to the caller, which must end their writes.
    pub(crate) fn into_parts(mut self) -> (Vec<(SegmentPart, u64)>, Vec<Option<Pointer>>) {
        (std::mem::take(&mut self.parts), std::mem::take(&mut self.pointers))
    }
}

impl Drop for Appended<'_> {
    fn drop(&mut self) {
        let mut space = lock(&self.values.space);
        for (part, live) in &self.parts {
            space.end_write(part, if self.durable { *live } else { 0 });
        }
    }
}

/// A part's records as they were encoded.
struct EncodedPart {
    /// Number of records.
    count: usize,
    /// Bytes of the records.
    live: u64,
}

/// Encodes the bytes of a part: records in this order, while they are of the part's home and fit.
/// Sets their pointers.
fn encode_part(
    bytes: &mut Blocks,
    part: &SegmentPart,
    seed: u32,
    items: &[Item<'_>],
    order: &[usize],
    pointers: &mut [Option<Pointer>],
) -> EncodedPart {
    bytes.clear();
    if part.from == 0 {
        bytes.extend_from_slice(&encode_segment(
            SegmentUse { segment: part.segment, generation: part.generation },
            part.home,
        ));
    }
    let header = bytes.len();
    let mut count = 0;
    for index in order {
        let item = &items[*index];
        if !item.belongs_to(part.home) || bytes.len() + item.len() > part.len as usize {
            break;
        }
        let at = part.from + bytes.len() as u32;
        let pointer = Pointer { segment: part.segment, generation: part.generation, at, len: item.len() as u32 };
        Record::append(bytes, pointer.location(seed), item.key, item.value);
        pointers[*index] = Some(pointer);
        count += 1;
    }
    let live = (bytes.len() - header) as u64;
    bytes.resize(part.len as usize);
    EncodedPart { count, live }
}

impl Values {
    /// Appends values to their groups, durable on return. Skips values if only the last `spare`
    /// segments are free, or if the medium is full.
    ///
    /// # Errors
    /// [`Error::Io`] if several segments cannot be written; [`Error::Poisoned`]. On error no value
    /// counts as appended.
    #[track_caller]
    pub(crate) fn append(&self, items: &[Item<'_>], spare: u32) -> Result<Appended<'_>> {
        let most = Space::record_max(self.sizes.segment_bytes);
        let mut order: Vec<usize> = (0..items.len()).filter(|index| items[*index].len() <= most).collect();
        // A circular log has its values in key order.
        if !self.sizes.circular {
            order.sort_by_key(|index| (items[*index].cold, items[*index].hash));
        }
        let pointers = vec![None; items.len()];
        let mut appended = Appended { values: self, parts: Vec::new(), durable: false, pointers };
        let (mut tries, mut refused) = (FUTILE_COLLECTIONS_MAX, 0);
        let mut bytes = Blocks::new();
        let mut next = 0;
        while next < order.len() {
            let Some(part) = self.allocate_part(items, &order[next..], spare)? else {
                // More groups use segments than their bytes imply. Collections, with `spare` 0,
                // have the segments they need.
                if spare > 0 && tries > 0 {
                    tries -= 1;
                    self.collect_gain(&Gain::ONE_SEGMENT)?;
                    continue;
                }
                // No segment for this value; a group with an open tail may have space for another.
                next += 1;
                continue;
            };
            let rest = &order[next..];
            let encoded = encode_part(&mut bytes, &part, self.seed(), items, rest, &mut appended.pointers);
            // A new use hides expired records of the segment: the superblock records the latest
            // such expiry.
            let marked = if part.from == 0 { self.mark_freed_expiry() } else { Ok(()) };
            let at = self.offset(part.segment) + u64::from(part.from);
            let Err(error) = marked.and_then(|()| self.file.write(at, &bytes)) else {
                appended.parts.push((part, encoded.live));
                next += encoded.count;
                continue;
            };
            rest[..encoded.count].iter().for_each(|index| appended.pointers[*index] = None);
            lock(&self.space).fail_write(&part);
            match error {
                // Retry in another segment.
                Error::Io { .. } if refused < REFUSED_SEGMENTS_MAX => refused += 1,
                // Other users have filled the medium: nothing more fits.
                Error::Full { .. } => break,
                error => return Err(error),
            }
        }
        if !appended.parts.is_empty() {
            self.file.sync()?;
        }
        appended.durable = true;
        Ok(appended)
    }

    /// Allocates a part for the first of these items, which are in hash order, and for the
    /// following items of the same group.
    fn allocate_part(&self, items: &[Item<'_>], order: &[usize], spare: u32) -> Result<Option<SegmentPart>> {
        let Some(first) = order.first().map(|index| &items[*index]) else { return Ok(None) };
        let growth = self.segments_outside_reserve(self.reserved_bytes());
        let mut space = lock(&self.space);
        let owner = space.owner_of(first.hash, first.cold);
        let home = space.home(owner);
        let mut wanted = 0;
        for item in order.iter().map(|index| &items[*index]).take_while(|item| item.belongs_to(home)) {
            wanted += item.len();
            if wanted >= self.sizes.segment_bytes as usize {
                break;
            }
        }
        let mut failed = None;
        let mut more = |more: SpaceRequest| {
            self.find_space(more).unwrap_or_else(|error| {
                failed = Some(error);
                false
            })
        };
        let part = space.allocate_part(
            owner,
            PartBytes { first: first.len(), wanted },
            SegmentLimits { growth, spare },
            &mut more,
        );
        failed.map_or(Ok(part), Err)
    }

    /// Gets file space, with the lock of `space` held. Returns whether there was any besides the
    /// LSM's reserve.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`].
    fn find_space(&self, more: SpaceRequest) -> Result<bool> {
        let segment_bytes = u64::from(self.sizes.segment_bytes);
        let (at, bytes) = match more {
            SpaceRequest::Fill(hole) => (self.offset(hole), segment_bytes),
            SpaceRequest::Grow(count) => (self.file.len(), u64::from(count) * segment_bytes),
        };
        if !self.pool.take_beside(bytes, self.reserved_bytes()) {
            return Ok(false);
        }
        let done = match more {
            SpaceRequest::Fill(_) => self.file.reserve(at, bytes),
            SpaceRequest::Grow(_) => self.file.grow(at + bytes),
        };
        let Err(error) = done else { return Ok(true) };
        self.pool.give_beside(bytes);
        match error {
            Error::Full { .. } => Ok(false),
            other => Err(other),
        }
    }
}

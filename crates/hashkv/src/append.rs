//! Appending values to their groups, or to the cold storage, in whole blocks.
//!
//! Persist order: the records, in blocks that nobody wrote before in this use of their segments; **sync**; then whoever asked hands out the pointers, in a flush's manifest record or in records of the
//! LSM's log.

use lodestore_contract::{Error, Result};
use lodestore_media::{Blocks, Mutant};
use xxhash_rust::xxh3::xxh3_64;

use crate::layout::{Home, Pointer, Record, encode_segment, record_len};
use crate::room::TRIES;
use crate::space::{Gain, More, Part, Space};
use crate::values::{Values, lock};

/// Segments that may refuse to be written, one after the other, until appending fails.
const REFUSED: u32 = 4;

pub(crate) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// One value to append.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// It goes to the cold storage, not to its group.
    pub(crate) cold: bool,
}

impl<'a> Item<'a> {
    pub(crate) fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        Self { hash: hash(key), key, value, cold: false }
    }

    pub(crate) fn len(&self) -> usize {
        record_len(self.key.len(), self.value.len())
    }

    fn is_of(&self, home: Home) -> bool {
        self.cold == (home == Home::Cold) && home.has(self.hash)
    }
}

/// What was appended: parts that nobody collects while this lives, since the LSM may not name what is in them yet.
pub(crate) struct Appended<'a> {
    values: &'a Values,
    parts: Vec<(Part, u64)>,
    durable: bool,
    /// Where each value stands; none where there was no segment for it.
    pub(crate) pointers: Vec<Option<Pointer>>,
}

impl Appended<'_> {
    /// Leaves the parts to whoever ends them.
    pub(crate) fn keep(mut self) -> (Vec<(Part, u64)>, Vec<Option<Pointer>>) {
        (std::mem::take(&mut self.parts), std::mem::take(&mut self.pointers))
    }
}

impl Drop for Appended<'_> {
    fn drop(&mut self) {
        let mut space = lock(&self.values.space);
        for (part, live) in &self.parts {
            space.written(part, if self.durable { *live } else { 0 });
        }
    }
}

/// Makes the bytes of a part: the records of these items, in this order from the `next` one on, that are of its home and have room. The next one behind them, and bytes of records.
fn fill(
    bytes: &mut Blocks,
    part: &Part,
    seed: u32,
    (items, order): (&[Item<'_>], &[usize]),
    (mut next, pointers): (usize, &mut [Option<Pointer>]),
) -> (usize, u64) {
    bytes.clear();
    if part.from == 0 {
        bytes.extend_from_slice(&encode_segment((part.segment, part.generation), part.home));
    }
    let header = bytes.len();
    while let Some(index) = order.get(next) {
        let item = &items[*index];
        if !item.is_of(part.home) || bytes.len() + item.len() > part.len as usize {
            break;
        }
        let at = part.from + bytes.len() as u32;
        let pointer = Pointer { segment: part.segment, generation: part.generation, at, len: item.len() as u32 };
        Record::append(bytes, pointer.place(seed), item.key, item.value);
        pointers[*index] = Some(pointer);
        next += 1;
    }
    let live = (bytes.len() - header) as u64;
    bytes.resize(part.len as usize);
    (next, live)
}

impl Values {
    /// Appends these values to their groups, durable when this returns. Values for which there is no segment, but for the last `spare` ones, or no room on the medium, are left out. `unsynced` is the fault that leaves the sync out.
    ///
    /// # Errors
    /// [`Error::Io`] where several segments cannot be written, [`Error::Poisoned`]; nothing of it counts then.
    pub(crate) fn append(&self, items: &[Item<'_>], spare: u32, unsynced: Mutant) -> Result<Appended<'_>> {
        let most = Space::record_max(self.sizes.segment_bytes);
        let mut order: Vec<usize> = (0..items.len()).filter(|index| items[*index].len() <= most).collect();
        // A log has them in the order of their keys.
        if !self.sizes.circular {
            order.sort_by_key(|index| (items[*index].cold, items[*index].hash));
        }
        let pointers = vec![None; items.len()];
        let mut appended = Appended { values: self, parts: Vec::new(), durable: false, pointers };
        let (mut tries, mut refused) = (TRIES, 0);
        let mut bytes = Blocks::new();
        let mut next = 0;
        while next < order.len() {
            let Some(part) = self.take(items, &order[next..], spare)? else {
                // More groups take segments than their bytes say. Collections, which spare none, have what they need.
                if spare > 0 && tries > 0 {
                    tries -= 1;
                    self.gains(&Gain::ANY)?;
                    continue;
                }
                // No segment for this one; a group with an open tail may have room for another.
                next += 1;
                continue;
            };
            let before = next;
            let live;
            (next, live) = fill(&mut bytes, &part, self.seed(), (items, &order), (next, &mut appended.pointers));
            // A new use hides what expired in the segment: the superblock tells up to which expiry.
            let marked = if part.from == 0 { self.mark_freed_expiry() } else { Ok(()) };
            let at = self.offset(part.segment) + u64::from(part.from);
            let Err(error) = marked.and_then(|()| self.file.write(at, &bytes)) else {
                appended.parts.push((part, live));
                continue;
            };
            order[before..next].iter().for_each(|index| appended.pointers[*index] = None);
            lock(&self.space).refused(&part);
            match error {
                // Another segment takes what this place does not.
                Error::Io { .. } if refused < REFUSED => {
                    refused += 1;
                    next = before;
                }
                // Others have filled the medium: there is no room for more.
                Error::Full { .. } => break,
                error => return Err(error),
            }
        }
        if !appended.parts.is_empty() && !self.file.mutant(unsynced) {
            self.file.sync()?;
        }
        appended.durable = true;
        Ok(appended)
    }

    /// A part for the first of these, which are in the order of their hashes, and for those behind it of the same group.
    fn take(&self, items: &[Item<'_>], order: &[usize], spare: u32) -> Result<Option<Part>> {
        let Some(first) = order.first().map(|index| &items[*index]) else { return Ok(None) };
        let room = self.room_beside(self.leave());
        let mut space = lock(&self.space);
        let owner = space.owner_of(first.hash, first.cold);
        let home = space.home(owner);
        let mut wanted = 0;
        for item in order.iter().map(|index| &items[*index]).take_while(|item| item.is_of(home)) {
            wanted += item.len();
            if wanted >= self.sizes.segment_bytes as usize {
                break;
            }
        }
        let mut failed = None;
        let mut more = |more: More| {
            self.find_space(more).unwrap_or_else(|error| {
                failed = Some(error);
                false
            })
        };
        let part = space.take(owner, (first.len(), wanted), (room, spare), &mut more);
        failed.map_or(Ok(part), Err)
    }

    /// Gets space in the file, with the lock of `space` held; whether there was some beside what is the LSM's.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`].
    fn find_space(&self, more: More) -> Result<bool> {
        let segment_bytes = u64::from(self.sizes.segment_bytes);
        let (at, bytes) = match more {
            More::Fill(hole) => (self.offset(hole), segment_bytes),
            More::Grow(count) => (self.file.len(), u64::from(count) * segment_bytes),
        };
        if !self.pool.take_beside(bytes, self.leave()) {
            return Ok(false);
        }
        let done = match more {
            More::Fill(_) => self.file.reserve(at, bytes),
            More::Grow(_) => self.file.grow(at + bytes),
        };
        let Err(error) = done else { return Ok(true) };
        self.pool.give_beside(bytes);
        match error {
            Error::Full { .. } => Ok(false),
            other => Err(other),
        }
    }
}

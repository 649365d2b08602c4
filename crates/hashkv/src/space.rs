//! Segments and groups: who has which, and what of it is live. All of it is DRAM, rebuilt at an open from the LSM's pointers and the segments' headers.
//!
//! A group (HashKV, ATC 2018, section 3.2) is all keys whose hashes begin with its prefix; their values stand in its segments, the cold storage and what a split has left,
//! so that a victim's segments have many versions of the same keys. The paper's main segment and log segments are one kind here: a group takes one segment after the other from what all share.
//! Groups are split as they grow, when they are collected: what survives of the few segments that a collection takes goes to the halves, the others are orphans from then on.
//!
//! Invariants, under the lock of [`Space`]'s owner:
//! 1. A segment is free, a hole, of one group, an orphan, or waits; `free`, `holes`, `groups`, `orphans` and `waiting` name each once, but for a free one on its way to be a hole.
//!    A hole is free as well, and has given back its space.
//! 2. `directory` has a group for each value of the first `depth` bits of a hash, and every group's prefix is at most as deep.
//! 3. `live` of a segment says what to collect, and is mostly the bytes of its records that the LSM points to. A segment becomes free when a collection has moved all that is live
//!    there, or an open found none. Which records are, the LSM is asked of segments that an open has found; of others flushes have told, and it is not asked of those that were told dead.
//!    Of one in which not all can be read `live` says whether all was moved. So a record that [`Space::died`] is wrongly told of is a value lost.
//! 4. Nobody collects a segment to which somebody writes, or in which there is what the LSM does not name yet (`writers`). While readers of an older state may come to a segment, it waits.

mod opened;
mod victim;

use std::collections::VecDeque;

use lodestore_media::BlockFile;

use crate::layout::{Home, Pointer, Prefix, SEGMENT_HEADER};

pub(crate) use victim::{Gain, Outcome, Taken, Victim};

/// A value is old when this part of all segments was taken since it was written.
const OLD_PART: u32 = 16;

/// Segments that the file grows by at once, at most.
const GROWTH: u32 = 16;

/// Space that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    /// That of a segment that has given its own back.
    Fill(u32),
    /// That of so many segments more behind those that the file has.
    Grow(u32),
}

/// How many segments there are: in the file, and of these free with their space, free without, waiting, and damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentCounts {
    pub(crate) all: u32,
    pub(crate) free: u32,
    pub(crate) holes: u32,
    pub(crate) waiting: u32,
    /// Those of which something could not be read or written.
    pub(crate) damaged: u32,
}

/// One segment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segment {
    /// Bytes of live records, about; 0: a collection, or an open, has found nothing live.
    pub(crate) live: u64,
    /// Bytes from its beginning that were handed out.
    pub(crate) used: u32,
    /// Parts of it that are being written, or are not named yet.
    writers: u32,
    /// Which use of it this is.
    generation: u32,
    /// It is nobody's tail.
    sealed: bool,
    /// Where its dead records begin, in steps, in no order; and whether those are all, as of a use that began in this process.
    dead: Vec<u32>,
    told: bool,
    /// Where `live` comes from.
    census: Census,
    /// Something of it could not be read by a collection, or written, in this use of it.
    damaged: bool,
    /// That was the last time, and something may be live there yet: it is left alone until something there dies.
    left: bool,
    state: State,
}

impl Segment {
    /// Bytes that are live by the count: one is what nobody has looked at, mostly nothing. What nobody could count is looked at by a collection, which moves nothing of it.
    fn counted(&self) -> u64 {
        if self.census == Census::Counted { self.live.saturating_sub(1) } else { 0 }
    }
}

/// Where a count of live bytes comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Census {
    /// Each record was counted.
    #[default]
    Counted,
    /// Nobody could count: all may be live, and behind what is of this use there may be more of an earlier one.
    Guessed,
    /// As that, and which use this is, nobody knows.
    Nameless,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Free,
    Held,
    Collecting,
    Waiting,
}

/// One group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) prefix: Prefix,
    /// In the order in which they were taken; the last is the tail, unless that is sealed.
    segments: Vec<u32>,
    collecting: bool,
}

/// Whose segments are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The group of this number.
    Group(usize),
    /// All groups: the cold storage.
    Cold,
    /// Nobody: what a split left, or what lost its header.
    Orphans,
}

/// Where to write: a part of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) segment: u32,
    /// Bytes from its beginning, whole blocks; 0 with the header.
    pub(crate) from: u32,
    /// Bytes, whole blocks.
    pub(crate) len: u32,
    /// Whose it is, for the header.
    pub(crate) home: Home,
    pub(crate) generation: u32,
}

/// The account.
#[derive(Debug)]
pub(crate) struct Space {
    segment_bytes: u32,
    /// Most segments.
    limit: u32,
    /// Those that the file has.
    segments: Vec<Segment>,
    free: Vec<u32>,
    /// Free ones whose space went back.
    holes: Vec<u32>,
    groups: Vec<Group>,
    directory: Vec<u32>,
    depth: u8,
    /// Segments of values that no group's collection found updated.
    cold: Vec<u32>,
    /// Segments of groups that were split, or whose headers a crash took.
    orphans: Vec<u32>,
    /// Segments that were let go, with the moment, oldest first.
    waiting: VecDeque<(u64, u32)>,
    /// The last number that a use of a segment was given; 0: none was.
    generation: u32,
}

/// Whether a use began behind another: numbers begin anew, at 1, when there are no more. Of uses that are half of all numbers apart, or more, it cannot be told.
pub(crate) fn is_newer(one: u32, other: u32) -> bool {
    one != other && one.wrapping_sub(other) < 1 << 31
}

impl Space {
    /// Of a file with so many segments, all free, that may come to have `limit`.
    pub(crate) fn new(segment_bytes: u32, count: u32, limit: u32) -> Self {
        let group = Group { prefix: Prefix::ALL, segments: Vec::new(), collecting: false };
        Self {
            segment_bytes,
            limit: limit.max(count),
            segments: vec![Segment::default(); count as usize],
            free: (0..count).rev().collect(),
            holes: Vec::new(),
            groups: vec![group],
            directory: vec![0],
            depth: 0,
            cold: Vec::new(),
            orphans: Vec::new(),
            waiting: VecDeque::new(),
            generation: 0,
        }
    }

    pub(crate) fn group_of(&self, hash: u64) -> usize {
        let index = if self.depth == 0 { 0 } else { hash >> (64 - u32::from(self.depth)) };
        self.directory[index as usize] as usize
    }

    /// Where records of this hash go.
    pub(crate) fn owner_of(&self, hash: u64, cold: bool) -> Owner {
        if cold { Owner::Cold } else { Owner::Group(self.group_of(hash)) }
    }

    /// What the headers of an owner's segments say.
    ///
    /// # Panics
    /// Of orphans, which nobody writes.
    pub(crate) fn home(&self, owner: Owner) -> Home {
        match owner {
            Owner::Group(group) => Home::Group(self.groups[group].prefix),
            Owner::Cold => Home::Cold,
            Owner::Orphans => unreachable!("nobody writes to an orphan"),
        }
    }

    fn list(&mut self, owner: Owner) -> &mut Vec<u32> {
        match owner {
            Owner::Group(group) => &mut self.groups[group].segments,
            Owner::Cold => &mut self.cold,
            Owner::Orphans => &mut self.orphans,
        }
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The segments by what they are.
    pub(crate) fn counts(&self) -> SegmentCounts {
        let count = |list: usize| list as u32;
        SegmentCounts {
            all: count(self.segments.len()),
            free: count(self.free.len()),
            holes: count(self.holes.len()),
            waiting: count(self.waiting.len()),
            damaged: count(self.segments.iter().filter(|segment| segment.damaged).count()),
        }
    }

    /// Segments that have space: what the file takes of the capacity.
    pub(crate) fn with_space(&self) -> u32 {
        (self.segments.len() - self.holes.len()) as u32
    }

    /// Segments with something to which the LSM may point, or which nobody has looked at.
    pub(crate) fn in_use(&self) -> usize {
        self.segments.len() - self.free.len() - self.holes.len() - self.waiting.len()
    }

    /// Segments that may be taken, where there is room for `room` more than have space.
    pub(crate) fn available(&self, room: u32) -> u32 {
        let spaceless = self.holes.len() as u32 + self.limit.saturating_sub(self.segments.len() as u32);
        self.free.len() as u32 + room.min(spaceless)
    }

    /// Segments that there may be, where there is room for `room` more than have space.
    pub(crate) fn most(&self, room: u32) -> u32 {
        self.available(room) - self.free.len() as u32 + self.with_space()
    }

    /// DRAM that the account takes.
    pub(crate) fn dram_bytes(&self) -> u64 {
        let dead: usize = self.segments.iter().map(|segment| segment.dead.capacity() * size_of::<u32>()).sum();
        let lists = 2 * self.segments.len() * size_of::<u32>() + self.groups.len() * size_of::<Group>();
        (self.segments.capacity() * size_of::<Segment>() + dead + lists) as u64
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.live).sum()
    }

    /// Bytes of it that count as live.
    pub(crate) fn live_of(&self, segment: u32) -> u64 {
        self.segments[segment as usize].counted()
    }

    /// Longest record that a segment takes.
    pub(crate) fn record_max(segment_bytes: u32) -> usize {
        segment_bytes as usize - SEGMENT_HEADER
    }

    /// Takes a part of a group's tail for `wanted` bytes of records, or of a new segment where the tail has no room for the first of them, `first` bytes long. None where there is no
    /// segment but the last `spare` ones. `more` is asked for the space of segments that have none.
    pub(crate) fn take(
        &mut self,
        owner: Owner,
        (first, wanted): (usize, usize),
        (room, spare): (u32, u32),
        more: &mut dyn FnMut(More) -> bool,
    ) -> Option<Part> {
        let block = BlockFile::BLOCK as u32;
        let tail = self.list(owner).last().copied();
        let open = tail.filter(|tail| {
            let segment = &self.segments[*tail as usize];
            !segment.sealed && (self.segment_bytes - segment.used) as usize >= first
        });
        let segment = match open {
            Some(segment) => segment,
            None => self.take_segment(owner, (room, spare), more)?,
        };
        let home = self.home(owner);
        let held = &mut self.segments[segment as usize];
        let from = held.used;
        let header = if from == 0 { SEGMENT_HEADER } else { 0 };
        let room = (self.segment_bytes - from) as usize;
        let len = (header + wanted).next_multiple_of(block as usize).min(room) as u32;
        held.used += len;
        held.writers += 1;
        if held.used == self.segment_bytes {
            held.sealed = true;
        }
        Some(Part { segment, from, len, home, generation: held.generation })
    }

    fn take_segment(
        &mut self,
        owner: Owner,
        (room, spare): (u32, u32),
        more: &mut dyn FnMut(More) -> bool,
    ) -> Option<u32> {
        // The spare ones have their space: the LSM may take all else.
        while self.free.len() <= spare as usize && self.find_space(room, more) {}
        if self.free.len() <= spare as usize {
            return None;
        }
        let segment = self.free.pop()?;
        if let Some(tail) = self.list(owner).last().copied() {
            self.segments[tail as usize].sealed = true;
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        self.segments[segment as usize] =
            Segment { state: State::Held, generation: self.generation, told: true, ..Segment::default() };
        self.list(owner).push(segment);
        Some(segment)
    }

    /// Asks for space for a segment, or, at the end of the file, for some; whether there was any.
    fn find_space(&mut self, room: u32, more: &mut dyn FnMut(More) -> bool) -> bool {
        if let Some(hole) = self.holes.last().copied() {
            let found = more(More::Fill(hole));
            if found {
                self.holes.pop();
                self.free.push(hole);
            }
            return found;
        }
        let count = self.segments.len() as u32;
        let most = room.min(self.limit.saturating_sub(count)).min(GROWTH);
        // Where there is no room for so many there may be for one.
        let Some(new) = [most, 1].into_iter().find(|new| *new > 0 && *new <= most && more(More::Grow(*new))) else {
            return false;
        };
        self.segments.resize(self.segments.len() + new as usize, Segment::default());
        self.free.extend((count..count + new).rev());
        true
    }

    /// Takes free segments, but for `keep` of them, whose space is to go back: they are nobody's until [`Self::gave_back`].
    pub(crate) fn take_to_give_back(&mut self, keep: usize) -> Vec<u32> {
        // The last of the file.
        self.free.sort_unstable_by(|one, other| other.cmp(one));
        let count = self.free.len().saturating_sub(keep);
        self.free.drain(..count).collect()
    }

    /// These keep their space after all, and are free.
    pub(crate) fn keep_space(&mut self, segments: Vec<u32>) {
        self.free.extend(segments);
    }

    /// These have no space any more.
    pub(crate) fn gave_back(&mut self, holes: Vec<u32>) {
        self.holes.extend(holes);
    }

    /// A writer of a part has ended, with so many bytes of records that count as live.
    pub(crate) fn written(&mut self, part: &Part, live: u64) {
        let segment = &mut self.segments[part.segment as usize];
        assert!(segment.writers > 0, "a part is written once");
        segment.writers -= 1;
        // What failed is garbage, and is found to be.
        segment.live = (segment.live + live).max(1);
    }

    /// A part could not be written, and its writer has ended. Where it is all that its segment has, that is free again, and the last to be taken of those that are; else nobody writes behind it, and
    /// as long as something is live in its segment, and nothing dies there, that is not collected, to be written again.
    pub(crate) fn refused(&mut self, part: &Part) {
        self.written(part, 0);
        let segment = &mut self.segments[part.segment as usize];
        if part.from > 0 || segment.used > part.len || segment.state != State::Held {
            (segment.sealed, segment.damaged, segment.left) = (true, true, segment.counted() > 0);
            return;
        }
        *segment = Segment::default();
        // Its group may have been split meanwhile.
        let groups = self.groups.iter_mut().map(|group| &mut group.segments);
        groups
            .chain([&mut self.cold, &mut self.orphans])
            .for_each(|list| list.retain(|number| *number != part.segment));
        self.free.insert(0, part.segment);
    }

    /// A record is not live any more. One of an earlier use of its segment, which a collection has moved meanwhile, counts no more.
    ///
    /// The caller's duty is that this is so, for good: a collection drops what was told without asking the LSM for its key. What tells the record from those of other uses is the number of
    /// its use, which no later one may have while a pointer names it ([`Self::note_use`]).
    pub(crate) fn died(&mut self, pointer: Pointer) {
        let segment = self.segments.get_mut(pointer.segment as usize);
        if let Some(segment) = segment.filter(|one| one.live > 0 && one.generation == pointer.generation) {
            // What a collection has not looked at is not free.
            segment.live = segment.live.saturating_sub(u64::from(pointer.len)).max(1);
            segment.left = false;
            if segment.told {
                segment.dead.push(pointer.at);
            }
        }
    }

    /// Makes two groups of one; its segments become orphans.
    pub(crate) fn split(&mut self, group: usize) {
        let [low, high] = self.groups[group].prefix.halves();
        if low.depth > self.depth {
            self.directory = self.directory.iter().flat_map(|group| [*group; 2]).collect();
            self.depth = low.depth;
        }
        let segments = std::mem::take(&mut self.groups[group].segments);
        segments.iter().for_each(|number| self.segments[*number as usize].sealed = true);
        self.orphans.extend(segments);
        self.groups[group].prefix = low;
        let new = self.groups.len() as u32;
        self.groups.push(Group { prefix: high, segments: Vec::new(), collecting: false });
        let shift = 64 - u32::from(self.depth);
        let first = (high.bits >> shift) as usize;
        let count = 1usize << (self.depth - high.depth);
        self.directory[first..first + count].fill(new);
    }

    /// Whether that use of a segment began long ago.
    pub(crate) fn is_old(&self, generation: u32) -> bool {
        self.generation.wrapping_sub(generation) > self.with_space() / OLD_PART
    }
}

#[cfg(test)]
mod tests;

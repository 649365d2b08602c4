//! Segments and groups: which segments a group owns, and how many of their bytes are live. All
//! state is in DRAM. An open rebuilds it from the LSM's pointers and the segments' headers.
//!
//! A group (HashKV, ATC 2018, section 3.2) is all keys whose hashes begin with its prefix. Its
//! values are in its own segments, in the cold storage, and in segments left over from a split. A
//! victim's segments therefore hold many versions of the same keys. The paper's main segment and
//! log segments are one kind here: a group takes one segment after another from a shared pool. A
//! group that has grown is split when it is collected. Survivors of the few segments in that
//! collection go to the halves; the other segments become orphans.
//!
//! Invariants, under the lock of [`Space`]'s owner:
//! 1. A segment is free, a hole, owned by one group, an orphan, or waiting. `free`, `holes`,
//!    `groups`, `orphans` and `waiting` name each segment once, except a free segment that is about
//!    to become a hole. A hole is also free, but its space was released.
//! 2. `directory` has a group for each value of the first `depth` bits of a hash. No group's prefix
//!    is deeper.
//! 3. `live` of a segment decides what to collect. Usually `live` is the number of bytes of records
//!    that the LSM points to. A segment becomes free when a collection has moved all its live
//!    records, or when an open found none. For segments found by an open, collections ask the LSM
//!    which records are live. For other segments flushes report dead records, and the LSM is not
//!    asked about records reported dead. For a segment with unreadable records, `live` tells
//!    whether all live records were moved. A wrong call of [`Space::mark_dead`] therefore loses a
//!    value.
//! 4. A segment is not collected while it is being written or holds records that the LSM does not
//!    name yet (`writers`). A segment waits while readers of an older state may access it.

mod opened;
mod victim;

use std::collections::VecDeque;

use lodestore_media::BlockFile;

use crate::layout::{Home, Pointer, Prefix, SEGMENT_HEADER_BYTES};

pub(crate) use victim::{Gain, Outcome, Taken, Victim};

/// A value is old when 1/16 of all segments were allocated since it was written.
const OLD_AGE_DIVISOR: u32 = 16;

/// Maximum segments by which the file grows at once.
const GROWTH_SEGMENTS_MAX: u32 = 16;

/// A request for file space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpaceRequest {
    /// Space for this hole.
    Fill(u32),
    /// This number of new segments at the end of the file.
    Grow(u32),
}

/// The segments that an allocation may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentLimits {
    /// Number of segments without space that can get space.
    pub(crate) growth: u32,
    /// Number of free segments that the allocation must leave.
    pub(crate) spare: u32,
}

/// The bytes of records for which a part is allocated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartBytes {
    /// Bytes of the first record, which must fit.
    pub(crate) first: usize,
    /// Bytes of all records.
    pub(crate) wanted: usize,
}

/// Numbers of segments: all in the file, free with space, free without space (holes), waiting,
/// damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentCounts {
    pub(crate) all: u32,
    pub(crate) free: u32,
    pub(crate) holes: u32,
    pub(crate) waiting: u32,
    /// Segments with bytes that could not be read or written.
    pub(crate) damaged: u32,
}

/// A segment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segment {
    /// Approximate bytes of live records. 0: a collection or an open found nothing live.
    pub(crate) live: u64,
    /// Bytes allocated from the start of the segment.
    pub(crate) used: u32,
    /// Number of parts that are being written, or that the LSM does not name yet.
    writers: u32,
    /// Number of the current use of the segment.
    generation: u32,
    /// The segment accepts no more writes: it is not a tail.
    sealed: bool,
    /// Offsets of dead records in bytes, unordered.
    dead: Vec<u32>,
    /// `dead` is complete: this use of the segment began in this process.
    knows_dead: bool,
    /// Source of `live`.
    live_count: LiveCount,
    /// In this use of the segment, a collection could not read some bytes, or a write failed.
    damaged: bool,
    /// The last collection failed to read some bytes, and live records may remain. The segment is
    /// skipped until a record in it dies.
    has_unread: bool,
    state: State,
}

impl Segment {
    /// Returns the live bytes by the count. A count of 1 means "not examined", usually nothing.
    /// Uncounted segments return 0: a collection examines them but moves nothing.
    fn counted(&self) -> u64 {
        if self.live_count == LiveCount::Counted { self.live.saturating_sub(1) } else { 0 }
    }
}

/// Source of a count of live bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LiveCount {
    /// All records were counted.
    #[default]
    Counted,
    /// Counting failed. All bytes may be live, and records of an earlier use may follow those of
    /// this use.
    Guessed,
    /// As `Guessed`, and the generation is unknown.
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

/// A group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) prefix: Prefix,
    /// In the order of allocation. The last one is the tail unless sealed.
    segments: Vec<u32>,
    collecting: bool,
}

/// Owner of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The group with this index.
    Group(usize),
    /// All groups: the cold storage.
    Cold,
    /// No owner: segments left over from a split, or without a readable header.
    Orphans,
}

/// A part of a segment to write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentPart {
    pub(crate) segment: u32,
    /// Byte offset in the segment, at a block boundary. 0: the part includes the header.
    pub(crate) from: u32,
    /// Bytes, whole blocks.
    pub(crate) len: u32,
    /// Owner, for the header.
    pub(crate) home: Home,
    pub(crate) generation: u32,
}

/// The space account of the values file.
#[derive(Debug)]
pub(crate) struct Space {
    segment_bytes: u32,
    /// Maximum number of segments.
    limit: u32,
    /// All segments of the file.
    segments: Vec<Segment>,
    free: Vec<u32>,
    /// Free segments whose space was released.
    holes: Vec<u32>,
    groups: Vec<Group>,
    directory: Vec<u32>,
    depth: u8,
    /// Segments of values that were not updated between collections of their groups.
    cold: Vec<u32>,
    /// Segments of split groups, or with headers lost in a crash.
    orphans: Vec<u32>,
    /// Retired segments with the moment of retirement, oldest first.
    waiting: VecDeque<(u64, u32)>,
    /// Generation of the most recently allocated segment; 0: none.
    generation: u32,
}

/// Returns whether generation `one` is newer than `other`. Numbers wrap around to 1. The result is
/// undefined for generations that are 2^31 or more apart.
pub(crate) fn is_newer(one: u32, other: u32) -> bool {
    one != other && one.wrapping_sub(other) < 1 << 31
}

impl Space {
    /// Returns the account of a file with `count` free segments that may grow to `limit` segments.
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

    /// Returns the owner for records of this hash.
    pub(crate) fn owner_of(&self, hash: u64, cold: bool) -> Owner {
        if cold { Owner::Cold } else { Owner::Group(self.group_of(hash)) }
    }

    /// Returns the owner as segment headers name it.
    ///
    /// # Panics
    /// For orphans, which are never written.
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

    /// Returns the segments counted by state.
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

    /// Returns the number of segments with space: the file's share of the capacity.
    pub(crate) fn with_space(&self) -> u32 {
        (self.segments.len() - self.holes.len()) as u32
    }

    /// Returns the number of segments to which the LSM may point, or that were not examined yet.
    pub(crate) fn in_use(&self) -> usize {
        self.segments.len() - self.free.len() - self.holes.len() - self.waiting.len()
    }

    /// Returns the number of segments that can be allocated, if `room` segments without space can
    /// get space.
    pub(crate) fn available(&self, room: u32) -> u32 {
        let spaceless = self.holes.len() as u32 + self.limit.saturating_sub(self.segments.len() as u32);
        self.free.len() as u32 + room.min(spaceless)
    }

    /// Returns the maximum number of segments with space, if `room` segments without space can get
    /// space.
    pub(crate) fn segments_max(&self, room: u32) -> u32 {
        self.available(room) - self.free.len() as u32 + self.with_space()
    }

    /// Returns the DRAM bytes of the account.
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

    /// Returns the segment's live bytes by the count.
    pub(crate) fn live_of(&self, segment: u32) -> u64 {
        self.segments[segment as usize].counted()
    }

    /// Returns the maximum bytes of a record in a segment.
    pub(crate) fn record_max(segment_bytes: u32) -> usize {
        segment_bytes as usize - SEGMENT_HEADER_BYTES
    }

    /// Allocates a part of the owner's tail for records of these bytes. Allocates a new segment if
    /// the first record does not fit into the tail. Returns `None` if only the spare segments are
    /// free. Calls `more` to get space for segments that have none.
    pub(crate) fn allocate_part(
        &mut self,
        owner: Owner,
        bytes: PartBytes,
        limits: SegmentLimits,
        more: &mut dyn FnMut(SpaceRequest) -> bool,
    ) -> Option<SegmentPart> {
        let block = BlockFile::BLOCK as u32;
        let tail = self.list(owner).last().copied();
        let open = tail.filter(|tail| {
            let segment = &self.segments[*tail as usize];
            !segment.sealed && (self.segment_bytes - segment.used) as usize >= bytes.first
        });
        let segment = match open {
            Some(segment) => segment,
            None => self.allocate_segment(owner, limits, more)?,
        };
        let home = self.home(owner);
        let held = &mut self.segments[segment as usize];
        let from = held.used;
        let header = if from == 0 { SEGMENT_HEADER_BYTES } else { 0 };
        let room = (self.segment_bytes - from) as usize;
        let len = (header + bytes.wanted).next_multiple_of(block as usize).min(room) as u32;
        held.used += len;
        held.writers += 1;
        if held.used == self.segment_bytes {
            held.sealed = true;
        }
        Some(SegmentPart { segment, from, len, home, generation: held.generation })
    }

    fn allocate_segment(
        &mut self,
        owner: Owner,
        SegmentLimits { growth, spare }: SegmentLimits,
        more: &mut dyn FnMut(SpaceRequest) -> bool,
    ) -> Option<u32> {
        // The spare segments have their space already: the LSM may use all other space.
        while self.free.len() <= spare as usize && self.find_space(growth, more) {}
        if self.free.len() <= spare as usize {
            return None;
        }
        let segment = self.free.pop()?;
        if let Some(tail) = self.list(owner).last().copied() {
            self.segments[tail as usize].sealed = true;
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        self.segments[segment as usize] =
            Segment { state: State::Held, generation: self.generation, knows_dead: true, ..Segment::default() };
        self.list(owner).push(segment);
        Some(segment)
    }

    /// Requests space for a hole or, without holes, for new segments at the end of the file.
    /// Returns whether there was any.
    fn find_space(&mut self, growth: u32, more: &mut dyn FnMut(SpaceRequest) -> bool) -> bool {
        if let Some(hole) = self.holes.last().copied() {
            let found = more(SpaceRequest::Fill(hole));
            if found {
                self.holes.pop();
                self.free.push(hole);
            }
            return found;
        }
        let count = self.segments.len() as u32;
        let most = growth.min(self.limit.saturating_sub(count)).min(GROWTH_SEGMENTS_MAX);
        // If `most` segments do not fit, one may.
        let Some(new) = [most, 1].into_iter().find(|new| *new > 0 && *new <= most && more(SpaceRequest::Grow(*new)))
        else {
            return false;
        };
        self.segments.resize(self.segments.len() + new as usize, Segment::default());
        self.free.extend((count..count + new).rev());
        true
    }

    /// Removes all but `keep` free segments, to release their space. The caller owns them until
    /// [`Self::mark_holes`] or [`Self::keep_space`].
    pub(crate) fn take_for_release(&mut self, keep: usize) -> Vec<u32> {
        // The last segments of the file first.
        self.free.sort_unstable_by(|one, other| other.cmp(one));
        let count = self.free.len().saturating_sub(keep);
        self.free.drain(..count).collect()
    }

    /// Returns segments to the free list with their space.
    pub(crate) fn keep_space(&mut self, segments: Vec<u32>) {
        self.free.extend(segments);
    }

    /// Records that these segments have no space.
    pub(crate) fn mark_holes(&mut self, holes: Vec<u32>) {
        self.holes.extend(holes);
    }

    /// Ends a write to a part, with `live` bytes of live records.
    pub(crate) fn end_write(&mut self, part: &SegmentPart, live: u64) {
        let segment = &mut self.segments[part.segment as usize];
        assert!(segment.writers > 0, "a part is written once");
        segment.writers -= 1;
        // A failed part is garbage, and a collection will find it empty.
        segment.live = (segment.live + live).max(1);
    }

    /// Ends a failed write to a part. If the segment has no other part, the segment becomes free
    /// again, and is allocated last. Otherwise the segment is sealed. While it holds live bytes and
    /// no record in it dies, it is not collected and not written again.
    pub(crate) fn fail_write(&mut self, part: &SegmentPart) {
        self.end_write(part, 0);
        let segment = &mut self.segments[part.segment as usize];
        if part.from > 0 || segment.used > part.len || segment.state != State::Held {
            (segment.sealed, segment.damaged, segment.has_unread) = (true, true, segment.counted() > 0);
            return;
        }
        *segment = Segment::default();
        // The segment's group may have been split during the write.
        let groups = self.groups.iter_mut().map(|group| &mut group.segments);
        groups
            .chain([&mut self.cold, &mut self.orphans])
            .for_each(|list| list.retain(|number| *number != part.segment));
        self.free.insert(0, part.segment);
    }

    /// Records that a record is dead. Records of an earlier use of the segment are ignored: a
    /// collection has moved them.
    ///
    /// The record must be dead for good: a collection drops it without asking the LSM for its key.
    /// The generation distinguishes the record from records of other uses. No later use may have
    /// that number while a pointer names it ([`Self::note_use`]).
    pub(crate) fn mark_dead(&mut self, pointer: Pointer) {
        let segment = self.segments.get_mut(pointer.segment as usize);
        if let Some(segment) = segment.filter(|one| one.live > 0 && one.generation == pointer.generation) {
            // A segment is not free before a collection has examined it.
            segment.live = segment.live.saturating_sub(u64::from(pointer.len)).max(1);
            segment.has_unread = false;
            if segment.knows_dead {
                segment.dead.push(pointer.at);
            }
        }
    }

    /// Splits a group into two. Its segments become orphans.
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

    /// Returns whether that use of a segment began long ago.
    pub(crate) fn is_old(&self, generation: u32) -> bool {
        self.generation.wrapping_sub(generation) > self.with_space() / OLD_AGE_DIVISOR
    }
}

#[cfg(test)]
mod tests;

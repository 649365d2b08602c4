//! Rebuilds the space account at an open: the records that the LSM points to, and the owners of
//! segments.

use lodestore_media::BlockFile;

use crate::layout::{Home, Pointer, Prefix};
use crate::space::{LiveCount, Owner, Segment, Space, State, is_newer};

impl Space {
    /// Counts a record that the LSM points to, at an open.
    ///
    /// A log may hide a table's pointer, which may then be of an earlier, finished use of its
    /// segment. A pointer beyond the end of a file that was cut keeps its segment in use: after a
    /// later use an expiring key would count as expired.
    pub(crate) fn count(&mut self, pointer: Pointer) {
        let Pointer { segment, generation, at, len } = pointer;
        self.note_use(generation);
        let end = at.checked_add(len).filter(|end| *end <= self.segment_bytes);
        if segment < self.limit {
            self.hold_cut_off(segment);
        }
        let (Some(segment), Some(end)) = (self.segments.get_mut(segment as usize), end) else { return };
        if segment.state != State::Held || is_newer(generation, segment.generation) {
            let Segment { damaged, has_unread, .. } = *segment;
            let used_again = Segment { generation, damaged, has_unread, ..Segment::default() };
            *segment = Segment { sealed: true, state: State::Held, ..used_again };
        }
        if segment.generation == generation {
            segment.live += u64::from(len);
            segment.used = segment.used.max(end.next_multiple_of(BlockFile::BLOCK as u32));
        }
    }

    /// Adds the segments up to this one that a cut file does not have. Added segments are in use
    /// and damaged.
    fn hold_cut_off(&mut self, number: u32) {
        let cut_off =
            Segment { sealed: true, damaged: true, has_unread: true, state: State::Held, ..Segment::default() };
        let count = self.segments.len().max(number as usize + 1);
        self.segments.resize(count, cut_off);
    }

    /// Records that a generation exists: no later use gets its number. Expired records are not
    /// counted, but flushes report them dead when their keys are overwritten.
    pub(crate) fn note_use(&mut self, generation: u32) {
        // The first number is the newest because no other is known: all numbers may be in the upper
        // half of the range.
        if self.generation == 0 || is_newer(generation, self.generation) {
            self.generation = generation;
        }
    }

    /// Marks all segments as full and live, at an open that could not count them. Collections will
    /// count them.
    pub(crate) fn hold_all(&mut self) {
        let bytes = self.segment_bytes;
        for segment in &mut self.segments {
            *segment = Segment {
                live: u64::from(bytes),
                used: bytes,
                sealed: true,
                state: State::Held,
                live_count: LiveCount::Nameless,
                ..segment.clone()
            };
        }
    }

    /// Returns the segments with live records, after counting, at an open.
    pub(crate) fn counted(&self) -> Vec<u32> {
        (0..self.segments.len() as u32).filter(|number| self.segments[*number as usize].state == State::Held).collect()
    }

    /// Assigns segments with live records to the groups that their headers name, at an open. The
    /// deepest prefixes become groups; all other segments become orphans. A `circular` log is one
    /// group, regardless of groups left by another mode.
    pub(crate) fn arrange(&mut self, held: &[(u32, Option<(Home, u32)>)], circular: bool) {
        self.free = (0..self.segments.len() as u32)
            .rev()
            .filter(|number| self.segments[*number as usize].state == State::Free)
            .collect();
        let prefix_of = |header: &Option<(Home, u32)>| match header {
            Some((Home::Group(prefix), _)) => Some(*prefix),
            _ => None,
        };
        let mut prefixes: Vec<Prefix> = held.iter().filter_map(|(_, header)| prefix_of(header)).collect();
        prefixes.sort_unstable_by_key(|prefix| (prefix.depth, prefix.bits));
        prefixes.dedup();
        // A group's values are written together: in key order most would need a block of their own.
        if !circular {
            prefixes.into_iter().for_each(|prefix| self.deepen_to(prefix));
        }
        for (number, header) in held {
            let header = header.filter(|(_, generation)| self.names_use(*number, *generation));
            let owner = match header {
                Some((Home::Cold, _)) => Owner::Cold,
                Some((Home::Group(prefix), _)) => {
                    let group = self.group_of(prefix.bits);
                    if self.groups[group].prefix == prefix { Owner::Group(group) } else { Owner::Orphans }
                }
                None => Owner::Orphans,
            };
            self.list(owner).push(*number);
        }
    }

    /// Returns whether a header is of the same use as the pointers into its segment. If not all
    /// pointers could be read, the header defines the generation, unless a pointer has a newer one.
    fn names_use(&mut self, number: u32, generation: u32) -> bool {
        let segment = &mut self.segments[number as usize];
        if segment.live_count == LiveCount::Counted {
            return segment.generation == generation;
        }
        if segment.generation != 0 && is_newer(segment.generation, generation) {
            return false;
        }
        (segment.generation, segment.live_count) = (generation, LiveCount::Guessed);
        self.note_use(generation);
        true
    }

    /// Splits groups until a group with this prefix exists, or a deeper one.
    fn deepen_to(&mut self, prefix: Prefix) {
        loop {
            let group = self.group_of(prefix.bits);
            if self.groups[group].prefix.depth >= prefix.depth {
                return;
            }
            self.split(group);
        }
    }
}

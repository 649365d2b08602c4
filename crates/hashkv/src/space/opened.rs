//! The account of a store that is opened: what the LSM's pointers name, and whose the segments are.

use lodestore_media::BlockFile;

use crate::layout::{Home, Pointer, Prefix};
use crate::space::{Census, Owner, Segment, Space, State, is_newer};

impl Space {
    /// Counts a record that the LSM points to, at an open.
    ///
    /// A log may hide the pointer of a table, which may then be of an earlier use of its segment.
    /// That use is over. A pointer behind the end of a file that was cut keeps its segment in use:
    /// after a later use an expiring key would count as expired.
    pub(crate) fn count(&mut self, pointer: Pointer) {
        let Pointer { segment, generation, at, len } = pointer;
        self.note_use(generation);
        let end = at.checked_add(len).filter(|end| *end <= self.segment_bytes);
        if segment < self.limit {
            self.hold_cut_off(segment);
        }
        let (Some(segment), Some(end)) = (self.segments.get_mut(segment as usize), end) else { return };
        if segment.state != State::Held || is_newer(generation, segment.generation) {
            let Segment { damaged, left, .. } = *segment;
            let used_again = Segment { generation, damaged, left, ..Segment::default() };
            *segment = Segment { sealed: true, state: State::Held, ..used_again };
        }
        if segment.generation == generation {
            segment.live += u64::from(len);
            segment.used = segment.used.max(end.next_multiple_of(BlockFile::BLOCK as u32));
        }
    }

    /// Adds the segments up to this one that a cut file does not have. They are in use and damaged.
    fn hold_cut_off(&mut self, number: u32) {
        let cut_off = Segment { sealed: true, damaged: true, left: true, state: State::Held, ..Segment::default() };
        let count = self.segments.len().max(number as usize + 1);
        self.segments.resize(count, cut_off);
    }

    /// Knows of a use of some segment: no later use gets its number. What has expired counts for nothing, but flushes tell of it when it is written over.
    pub(crate) fn note_use(&mut self, generation: u32) {
        // With nothing to compare it with the first is the newest: numbers may all be beyond half of those that there are.
        if self.generation == 0 || is_newer(generation, self.generation) {
            self.generation = generation;
        }
    }

    /// Takes all segments for full of what is live, at an open that could not count it: a collection finds out.
    pub(crate) fn hold_all(&mut self) {
        let bytes = self.segment_bytes;
        for segment in &mut self.segments {
            *segment = Segment {
                live: u64::from(bytes),
                used: bytes,
                sealed: true,
                state: State::Held,
                census: Census::Nameless,
                ..segment.clone()
            };
        }
    }

    /// Segments with something live, at an open, when all is counted.
    pub(crate) fn counted(&self) -> Vec<u32> {
        (0..self.segments.len() as u32).filter(|number| self.segments[*number as usize].state == State::Held).collect()
    }

    /// Gives the segments with something live to the groups that their headers name, at an open: the deepest prefixes are groups, what is left are orphans.
    /// A `circular` log is one group, whatever others another mode has left.
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
        // A group's values are written together: in the order of their keys most would be a block of their own.
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

    /// Whether a header is of the use that the pointers into its segment are of. Where these could not all be read, it says which use that is, unless it is older than one of them.
    fn names_use(&mut self, number: u32, generation: u32) -> bool {
        let segment = &mut self.segments[number as usize];
        if segment.census == Census::Counted {
            return segment.generation == generation;
        }
        if segment.generation != 0 && is_newer(segment.generation, generation) {
            return false;
        }
        (segment.generation, segment.census) = (generation, Census::Guessed);
        self.note_use(generation);
        true
    }

    /// Splits groups until there is one of this prefix, unless there are deeper ones.
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

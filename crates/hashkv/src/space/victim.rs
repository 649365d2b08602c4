//! Victim selection for garbage collection, and the end of a collection.

use crate::layout::{Location, Prefix, SEGMENT_HEADER_BYTES};
use crate::space::{LiveCount, Owner, Segment, Space, State};

/// Bytes of one collection, which are all read into DRAM; and the minimum and maximum number of its
/// segments.
const VICTIM_BYTES: u32 = 3 << 20;
const VICTIM_SEGMENTS: (u32, u32) = (2, 48);
/// Maximum segments of a collection that exceeds `VICTIM_BYTES` because fewer would free none.
const EXTRA_SEGMENTS_MAX: usize = 8;

/// Minimum gain for a collection to begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gain {
    /// Minimum bytes to free, in segments.
    pub(crate) segments: u32,
    /// Minimum bytes freed per byte moved.
    pub(crate) benefit_min: f64,
}

impl Gain {
    /// At least one segment, at any cost.
    pub(crate) const ONE_SEGMENT: Self = Self { segments: 1, benefit_min: 0.0 };
    /// At least eight segments, at any cost: the first choice when free segments are short.
    pub(crate) const EIGHT_SEGMENTS: Self = Self { segments: 8, benefit_min: 0.0 };
}

/// Result of a collection.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Segments without live records.
    pub(crate) done: Vec<u32>,
    /// Segments with unreadable bytes in which records may be live.
    pub(crate) damaged: Vec<u32>,
    /// Segments that were uncounted before, with their live bytes.
    pub(crate) counted: Vec<(u32, u64)>,
    /// Segments whose count may be too low, with the live bytes found.
    pub(crate) found: Vec<(u32, u64)>,
}

/// A segment being collected.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) segment: u32,
    pub(crate) generation: u32,
    /// Used bytes of the segment.
    pub(crate) end: u32,
    /// Offsets of dead records, sorted. All other records are live, except records overwritten
    /// since the last flush. `None`: the LSM must be asked.
    pub(crate) dead: Option<Vec<u32>>,
    pub(crate) live_count: LiveCount,
    /// Live bytes by the count when the collection began.
    pub(crate) live: u64,
}

impl Taken {
    /// Returns the location of its first record, in the store with this seed.
    pub(crate) fn first_location(&self, seed: u32) -> Location {
        Location { seed, segment: self.segment, generation: self.generation, at: SEGMENT_HEADER_BYTES as u32 }
    }
}

/// The segments of one collection.
#[derive(Debug, Clone)]
pub(crate) struct Victim {
    owner: Owner,
    pub(crate) segments: Vec<Taken>,
}

impl Space {
    /// Chooses a victim. The candidate of an owner is its segments with the highest
    /// [`Self::benefit`]. Of the candidates, the one that frees most bytes per byte moved wins.
    ///
    /// That ratio is at least `gain.benefit_min`. The freed bytes equal at least `gain.segments`
    /// segments, or half of [`Self::victim_max`] if this is less. Survivors fit into `spare`
    /// segments. The victim belongs to the caller until [`Self::end_collection`].
    pub(crate) fn choose_victim(&mut self, gain: &Gain, spare: u32) -> Option<Victim> {
        let (segment_bytes, most) = (u64::from(self.segment_bytes), self.victim_max());
        let wanted = u64::from(gain.segments.min(most as u32 / 2)) * segment_bytes;
        let worth = |live: u64, count: usize| {
            let free = (count as u64 * segment_bytes).saturating_sub(live);
            let worth = free as f64 / (live + 1) as f64;
            (free >= wanted && worth >= gain.benefit_min).then_some(worth)
        };
        let room = self.room_of(spare);
        let mut best: Option<(f64, Owner, Vec<u32>)> = None;
        let groups = self.groups.iter().enumerate().filter(|(_, group)| !group.collecting);
        let groups = groups.map(|(index, group)| (Owner::Group(index), &group.segments));
        for (owner, segments) in groups.chain([(Owner::Cold, &self.cold), (Owner::Orphans, &self.orphans)]) {
            let mut idle: Vec<(f64, u32)> = segments
                .iter()
                .filter(|number| self.is_idle(**number))
                .map(|number| (self.benefit(*number), *number))
                .collect();
            let most_first = |one: &(f64, u32), other: &(f64, u32)| other.0.total_cmp(&one.0);
            let beyond = most.max(EXTRA_SEGMENTS_MAX);
            if idle.len() > beyond {
                idle.select_nth_unstable_by(beyond, most_first);
                idle.truncate(beyond);
            }
            idle.sort_unstable_by(most_first);
            let mut idle: Vec<u32> = idle.into_iter().map(|(_, number)| number).collect();
            // Survivors need free space before any segment is freed.
            let live_in = |number: &u32| self.segments[*number as usize].counted();
            let (mut live, mut free) = (0, 0);
            let fits = idle.iter().enumerate().take_while(|(index, number)| {
                if *index >= most && free >= wanted {
                    return false;
                }
                live += live_in(number);
                free += segment_bytes.saturating_sub(live_in(number));
                live <= room
            });
            let count = fits.count();
            idle.truncate(count);
            let live = idle.iter().map(live_in).sum();
            if let Some(worth) = worth(live, idle.len()).filter(|_| !idle.is_empty())
                && best.as_ref().is_none_or(|(known, ..)| worth > *known)
            {
                best = Some((worth, owner, idle));
            }
        }
        let (_, owner, segments) = best?;
        Some(self.begin(owner, segments))
    }

    /// Chooses the oldest segments of any owner whose survivors fit into `spare` segments: the next
    /// victim of a circular log.
    #[cfg(feature = "lab")]
    pub(crate) fn choose_oldest_segments(&mut self, spare: u32) -> Option<Victim> {
        let age = |number: u32| self.generation.wrapping_sub(self.segments[number as usize].generation);
        let idle = (0..self.segments.len() as u32).filter(|number| self.is_idle(*number));
        let mut idle: Vec<(u32, u32)> = idle.map(|number| (age(number), number)).collect();
        idle.sort_unstable_by(|one, other| other.cmp(one));
        let (room, mut live) = (self.room_of(spare), 0);
        let fits = idle.iter().take(self.victim_max()).take_while(|(_, number)| {
            live += self.segments[*number as usize].counted();
            live <= room
        });
        let chosen: Vec<u32> = fits.map(|(_, number)| *number).collect();
        // The segments may belong to the group, or may be orphans of a split.
        (!chosen.is_empty()).then(|| self.begin(Owner::Orphans, chosen))
    }

    /// Returns whether a segment may be collected.
    fn is_idle(&self, number: u32) -> bool {
        let segment = &self.segments[number as usize];
        segment.writers == 0 && segment.state == State::Held && !segment.has_unread
    }

    /// Returns the maximum segments of one collection, unless a few more are needed to free one.
    fn victim_max(&self) -> usize {
        (VICTIM_BYTES / self.segment_bytes).clamp(VICTIM_SEGMENTS.0, VICTIM_SEGMENTS.1) as usize
    }

    /// Returns the number of collections of the oldest segments that cover all segments.
    #[cfg(feature = "lab")]
    pub(crate) fn rounds(&self) -> u32 {
        (self.segments.len() / self.victim_max()) as u32 + 1
    }

    /// Returns the cost-benefit score of a segment: free bytes times age, over the cost to read it
    /// and rewrite survivors. The age predicts how long the space stays free (Rosenblum and
    /// Ousterhout, SOSP 1991, section 3.5).
    fn benefit(&self, number: u32) -> f64 {
        let segment = &self.segments[number as usize];
        let (bytes, live) = (f64::from(self.segment_bytes), segment.counted() as f64);
        let age = f64::from(self.generation.wrapping_sub(segment.generation)) + 1.0;
        (bytes - live).max(0.0) * age / (bytes + live)
    }

    /// Returns the bytes of survivors that fit into `spare` segments. Each segment loses some of
    /// its last block, and the group and the cold storage begin one segment each.
    fn room_of(&self, spare: u32) -> u64 {
        u64::from(spare.saturating_sub(2).max(spare.min(1))) * u64::from(self.segment_bytes) * 3 / 4
    }

    fn begin(&mut self, owner: Owner, segments: Vec<u32>) -> Victim {
        if let Owner::Group(group) = owner {
            self.groups[group].collecting = true;
        }
        let mut taken = Vec::with_capacity(segments.len());
        for number in segments {
            let segment = &mut self.segments[number as usize];
            (segment.state, segment.sealed) = (State::Collecting, true);
            // For damaged segments the LSM is asked before anything is copied.
            let dead = (segment.knows_dead && !segment.damaged).then(|| {
                let mut dead = segment.dead.clone();
                dead.sort_unstable();
                dead
            });
            taken.push(Taken {
                segment: number,
                generation: segment.generation,
                end: segment.used,
                dead,
                live_count: segment.live_count,
                live: segment.live,
            });
        }
        Victim { owner, segments: taken }
    }

    /// Ends a collection. Segments in `outcome.done` have no live records, regardless of the count,
    /// and wait from `moment` on. The others stay. Segments in `outcome.damaged` are not chosen
    /// again before a record in them dies.
    pub(crate) fn end_collection(&mut self, victim: &Victim, outcome: &Outcome, moment: u64) {
        for Taken { segment: number, live: before, .. } in &victim.segments {
            let segment = &mut self.segments[*number as usize];
            segment.state = State::Held;
            // Bytes that were reported dead during the collection.
            let died = before.saturating_sub(segment.live);
            segment.has_unread = outcome.damaged.contains(number);
            segment.damaged |= segment.has_unread;
            if let Some((_, live)) = outcome.counted.iter().find(|(counted, _)| counted == number) {
                (segment.live, segment.live_count) = (live.saturating_sub(died).max(1), LiveCount::Counted);
            }
            if let Some((_, live)) = outcome.found.iter().find(|(found, _)| found == number) {
                segment.live = segment.live.max(live.saturating_sub(died));
            }
            if outcome.done.contains(number) {
                segment.live = 0;
            }
        }
        if let Owner::Group(group) = victim.owner {
            self.groups[group].collecting = false;
        }
        self.retire_dead(moment);
    }

    /// Retires segments without live bytes.
    pub(crate) fn retire_dead(&mut self, moment: u64) {
        let Self { segments, groups, cold, orphans, waiting, .. } = self;
        let mut keep = |number: &u32| {
            let segment = &mut segments[*number as usize];
            let gone = segment.live == 0 && segment.sealed && segment.writers == 0 && segment.state == State::Held;
            if gone {
                segment.state = State::Waiting;
                waiting.push_back((moment, *number));
            }
            !gone
        };
        groups.iter_mut().filter(|group| !group.collecting).for_each(|group| group.segments.retain(&mut keep));
        cold.retain(&mut keep);
        orphans.retain(&mut keep);
    }

    /// Frees segments that were retired up to `moment`. Returns their number.
    pub(crate) fn release_until(&mut self, moment: u64) -> usize {
        let mut count = 0;
        while let Some((_, number)) = self.waiting.front().copied().filter(|(then, _)| *then <= moment) {
            self.waiting.pop_front();
            self.segments[number as usize] = Segment::default();
            self.free.push(number);
            count += 1;
        }
        count
    }

    /// Returns the victim's group if it must be split: its live bytes exceed `group_bytes`, and
    /// fewer than `groups_max` groups exist.
    pub(crate) fn should_split(&self, victim: &Victim, group_bytes: u64, groups_max: usize) -> Option<usize> {
        let Owner::Group(group) = victim.owner else { return None };
        let live = |number: &u32| self.segments[*number as usize].counted();
        let splits = self.groups[group].segments.iter().map(live).sum::<u64>() > group_bytes
            && self.groups.len() < groups_max
            && self.groups[group].prefix.depth < Prefix::DEPTH_MAX;
        splits.then_some(group)
    }
}

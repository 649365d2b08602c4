//! What becomes of the segments of a victim: which data may be destroyed.

use std::collections::HashSet;

use crate::space::{LiveCount, Outcome, Taken};

/// The findings of a collection about one segment that it has read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Findings {
    /// Bytes of the records that the LSM names.
    pub(super) live: u64,
    /// Live bytes by the account of flushes.
    pub(super) accounted: u64,
    pub(super) live_count: LiveCount,
    /// Some bytes are no intact record.
    pub(super) is_torn: bool,
    /// The LSM could not tell whether it names one of the records.
    pub(super) is_unclear: bool,
    /// Its live bytes were counted, and its records were not moved.
    pub(super) is_counted: bool,
    /// The live records of the segments that were not only counted were moved.
    pub(super) is_moved: bool,
}

/// What becomes of a segment after a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Its space may be used again.
    Free,
    /// It stays: live records are still in it.
    Keep,
    /// It stays and is not collected again: unreadable bytes may be live.
    Damaged,
}

impl Findings {
    /// Decides whether the data of a segment may be destroyed. The rules, in this order:
    /// 1. A live record that was not moved keeps its segment.
    /// 2. A segment that was only counted and has no live record is free. All intact records of its
    ///    use were found. Its other bytes are of an earlier use, or damaged; reads report damage.
    /// 3. A record of unknown liveness keeps its segment.
    /// 4. Unreadable bytes keep their segment, unless as many bytes were moved as the account has.
    /// 5. Otherwise every live record was moved, and the segment is free.
    fn verdict(&self) -> Verdict {
        let is_accounted = self.live_count == LiveCount::Counted && self.live >= self.accounted;
        if self.live > 0 && (self.is_counted || !self.is_moved) {
            Verdict::Keep
        } else if self.is_counted {
            Verdict::Free
        } else if self.is_unclear || (self.is_torn && !is_accounted) {
            Verdict::Damaged
        } else {
            Verdict::Free
        }
    }
}

impl Outcome {
    /// Adds the result for a segment.
    pub(super) fn add(&mut self, taken: &Taken, findings: &Findings) {
        let segment = taken.segment;
        if findings.is_counted {
            self.counted.push((segment, findings.live));
        }
        match findings.verdict() {
            Verdict::Free => self.done.push(segment),
            Verdict::Damaged => self.damaged.push(segment),
            // For segments found by an open, a death may be reported after a collection's count
            // left the record out. Store the live bytes found, or the segment would look empty in
            // each later collection.
            Verdict::Keep if !findings.is_counted && taken.dead.is_none() => self.found.push((segment, findings.live)),
            Verdict::Keep => {}
        }
    }
}

/// Returns whether the live bytes of a segment are counted now, and its records not moved.
pub(super) fn needs_count(taken: &Taken, torn: &HashSet<u32>) -> bool {
    match taken.live_count {
        LiveCount::Counted => false,
        LiveCount::Guessed => true,
        LiveCount::Nameless => !torn.contains(&taken.segment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each rule of [`Findings::verdict`], with the findings that come nearest to another verdict.
    #[test]
    fn a_segment_is_freed_only_if_all_its_live_records_were_moved() {
        let moved = Findings {
            live: 100,
            accounted: 100,
            live_count: LiveCount::Counted,
            is_torn: false,
            is_unclear: false,
            is_counted: false,
            is_moved: true,
        };
        assert_eq!(moved.verdict(), Verdict::Free);
        assert_eq!(Findings { is_moved: false, ..moved }.verdict(), Verdict::Keep);
        assert_eq!(Findings { is_moved: false, live: 0, ..moved }.verdict(), Verdict::Free);
        assert_eq!(Findings { is_unclear: true, ..moved }.verdict(), Verdict::Damaged);
        let torn = Findings { is_torn: true, ..moved };
        assert_eq!(torn.verdict(), Verdict::Free);
        assert_eq!(Findings { live: 99, ..torn }.verdict(), Verdict::Damaged);
        assert_eq!(Findings { live_count: LiveCount::Guessed, ..torn }.verdict(), Verdict::Damaged);
        let counted = Findings { live_count: LiveCount::Guessed, is_counted: true, is_torn: true, ..moved };
        assert_eq!(counted.verdict(), Verdict::Keep);
        assert_eq!(Findings { live: 0, ..counted }.verdict(), Verdict::Free);
    }
}

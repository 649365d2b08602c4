//! The steps of a simulated pool on its medium.

use std::fmt;
use std::panic::Location;

/// Kinds of steps, for choosing call sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Bytes stored.
    Store,
    /// A range flushed.
    Flush,
    /// A fence, or a sync of the values file.
    Fence,
    /// A region added, or the values file grown or shortened.
    Region,
    /// A label of a test.
    Mark,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// At most 8 bytes of one aligned word.
    Word {
        /// Region, or [`VALUES`](crate::sim::VALUES).
        region: u16,
        /// Byte offset of the word in its region, a multiple of 8.
        offset: u64,
        /// The word's bytes, little-endian; bytes outside `mask` are undefined.
        value: u64,
        /// Bit i: byte i is stored.
        mask: u8,
        /// Part of the same bulk store as the event before: no order between the two. In the values
        /// file: of the same write.
        bulk: bool,
    },
    /// The stores so far to these bytes' lines are durable after the thread's next fence.
    Flush {
        /// Region.
        region: u16,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The thread that flushed.
        thread: u16,
    },
    /// This thread's flushes are durable now.
    Fence {
        /// The thread.
        thread: u16,
    },
    /// A fence of this thread failed: its flushed stores are pending like the rest, and its next
    /// fence does not cover them.
    FailedFence {
        /// The thread.
        thread: u16,
    },
    /// A region of zeros exists from now on; it replaces a region that an earlier run created but
    /// never named.
    Region {
        /// Region index: at most the number of regions before it.
        region: u16,
        /// Length in bytes.
        len: u64,
    },
    /// The values file has this length from now on; durably after its next sync.
    Size {
        /// Length in bytes.
        len: u64,
    },
    /// A sync of the values file: everything written to it so far is durable now.
    Sync {
        /// False for a failed sync, which makes nothing durable.
        holds: bool,
    },
    /// A label of a test, such as an acknowledgement.
    Mark(u64),
}

/// One step, with its call site in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The step.
    pub what: What,
    /// The caller, as far up as the verbs are `#[track_caller]`.
    pub site: &'static Location<'static>,
}

impl Event {
    /// Returns the kind of the step.
    pub fn verb(&self) -> Verb {
        match self.what {
            What::Word { .. } => Verb::Store,
            What::Flush { .. } => Verb::Flush,
            What::Fence { .. } | What::FailedFence { .. } | What::Sync { .. } => Verb::Fence,
            What::Region { .. } | What::Size { .. } => Verb::Region,
            What::Mark(_) => Verb::Mark,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Word { region, offset, value, mask, bulk } => {
                write!(f, "store {region}:{offset:#x} = {value:#018x}")?;
                if mask != u8::MAX {
                    write!(f, " mask {mask:#04x}")?;
                }
                if bulk {
                    f.write_str(" (bulk)")?;
                }
            }
            What::Flush { region, offset, len, thread } => write!(f, "flush {region}:{offset:#x} +{len} by {thread}")?,
            What::Fence { thread } => write!(f, "fence by {thread}")?,
            What::FailedFence { thread } => write!(f, "fence by {thread}, which fails")?,
            What::Region { region, len } => write!(f, "region {region} of {len} bytes")?,
            What::Size { len } => write!(f, "values file of {len} bytes")?,
            What::Sync { holds } => write!(f, "sync of the values file{}", if holds { "" } else { ", which fails" })?,
            What::Mark(label) => write!(f, "mark {label}")?,
        }
        write!(f, "  at {}:{}", self.site.file(), self.site.line())
    }
}

/// Events in the order in which they took effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The events.
    pub events: Vec<Event>,
}

impl Trace {
    /// Returns how many events from `at` on are one bulk store.
    fn bulk_run(&self, at: usize) -> usize {
        let is_word = |event: &Event| matches!(event.what, What::Word { .. });
        let continues_run = |event: &&Event| matches!(event.what, What::Word { bulk: true, .. });
        if is_word(&self.events[at]) { 1 + self.events[at + 1..].iter().take_while(continues_run).count() } else { 1 }
    }
}

/// One line per event; a bulk store shows its first words and its length.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_WORDS: usize = 4;
        let mut at = 0;
        while at < self.events.len() {
            let run = self.bulk_run(at);
            for (index, event) in self.events[at..].iter().enumerate().take(run.min(SHOWN_WORDS)) {
                writeln!(f, "{:5}  {event}", at + index)?;
            }
            if run > SHOWN_WORDS {
                writeln!(f, "       and {} words more of this bulk store", run - SHOWN_WORDS)?;
            }
            at += run;
        }
        Ok(())
    }
}

//! The workloads by name, and their turns. The operations of a workload are defined in `stream.rs`.

pub(crate) mod dist;
pub(crate) mod keys;
pub(crate) mod open_loop;
pub(crate) mod sizes;
pub(crate) mod stream;

use clap::ValueEnum;

/// A named workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Workload {
    /// Put every record once, in random key order.
    Load,
    /// Read records chosen uniformly.
    Get,
    /// Read records chosen uniformly, several in one call.
    Multiget,
    /// Replace the values of records chosen uniformly, by the store's update. An engine first
    /// checks whether the record is present; a peer without an update (RocksDB, LevelDB, fjall,
    /// Berkeley DB) puts.
    Update,
    /// Delete records, each once, in random order.
    Delete,
    /// Scan records in key order from one chosen uniformly.
    Scan,
    /// Put records chosen uniformly, at full speed for `--seconds`, every call timed.
    Overload,
    /// YCSB A: 50 % reads, 50 % updates, zipfian.
    A,
    /// YCSB B: 95 % reads, 5 % updates, zipfian.
    B,
    /// YCSB C: reads, zipfian.
    C,
    /// YCSB D: 95 % reads of the latest records, 5 % inserts.
    D,
    /// YCSB E: 95 % scans of 1 to 100 records, zipfian, 5 % inserts.
    E,
    /// YCSB F: 50 % reads, 50 % reads followed by a write of the same record, zipfian.
    F,
    /// Put records chosen uniformly, all present: the update of several papers (such as FluidKV's).
    /// No store checks first.
    // After the others, because the streams of a workload derive from its position here.
    Overwrite,
    /// Nothing, for `--seconds`: measures a store without requests.
    Idle,
    /// Put records, all present. The record of rank r is chosen in proportion to 1 / r^0.99, and
    /// the hot records are scattered over the keys: an update phase of the HashKV paper. No store
    /// checks first. In YCSB's A half of all draws are almost uniform, because it has ten billion
    /// ranks for any number of records.
    Zipfput,
    /// Get keys that were never put, chosen uniformly; there are as many as records.
    Absent,
}

impl Workload {
    /// Returns its name on the command line and in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Get => "get",
            Self::Multiget => "multiget",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Scan => "scan",
            Self::Overload => "overload",
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::Overwrite => "overwrite",
            Self::Idle => "idle",
            Self::Zipfput => "zipfput",
            Self::Absent => "absent",
        }
    }
}

impl Workload {
    /// Returns whether it scans records in key order.
    pub(crate) fn scans(self) -> bool {
        matches!(self, Self::Scan | Self::E)
    }

    /// Returns whether any number of its operations leaves the store in the same state, so that it
    /// can be warmed up and extended. Workloads that insert, delete or load cannot. In overwrite
    /// and zipfput, which represent phases of puts, the number of operations is part of the
    /// workload.
    pub(crate) fn can_go_on(self) -> bool {
        use Workload::{A, Absent, B, C, F, Get, Multiget, Scan, Update};
        matches!(self, Get | Multiget | Absent | Update | Scan | A | B | C | F)
    }

    /// Returns whether it lasts for `--seconds`.
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Self::Overload | Self::Idle)
    }
}

/// A workload at its position in the run. A repeated workload runs on other records in another
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The workload.
    pub(crate) workload: Workload,
    /// Number of earlier turns of the same workload.
    pub(crate) before: u32,
}

impl Turn {
    /// Returns the turns of workloads in the order given. The load has one turn, however often it
    /// is named.
    pub(crate) fn all(workloads: &[Workload]) -> Vec<Self> {
        let turn = |(at, workload): (usize, &Workload)| {
            let before = workloads[..at].iter().filter(|other| *other == workload).count() as u32;
            (before == 0 || *workload != Workload::Load).then_some(Self { workload: *workload, before })
        };
        workloads.iter().enumerate().filter_map(turn).collect()
    }

    /// Returns the turn of the load.
    pub(crate) fn load() -> Self {
        Self { workload: Workload::Load, before: 0 }
    }

    /// Returns its name in the output: the workload's, and a number from its second turn on.
    pub(crate) fn name(self) -> String {
        match self.before {
            0 => self.workload.name().into(),
            before => format!("{}-{}", self.workload.name(), before + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_that_is_named_again_has_another_turn_and_the_load_has_one() {
        use Workload::{Get, Idle, Load};
        let names = |workloads: &[Workload]| Turn::all(workloads).iter().map(|turn| turn.name()).collect::<Vec<_>>();
        assert_eq!(names(&[Get, Load, Get, Idle, Load, Get]), ["get", "load", "get-2", "idle", "get-3"]);
    }
}

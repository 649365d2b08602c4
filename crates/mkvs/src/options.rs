//! Options of a matrix.

use std::path::PathBuf;
use std::time::Duration;

use lodestore_contract::{Durability, Error, OptionSpec, OptionTable, Options, Result};

use crate::events::Relay;
use crate::planted::Planted;

/// When a write is acknowledged. The setting decides what a write survives; readers see the same
/// with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acks {
    /// When one device has it (the paper's rule): a write survives no loss of a device.
    One,
    /// When most devices of its group have it: a write survives the loss of fewer than half of
    /// them.
    #[default]
    Majority,
    /// When all active devices of its group have it: a write survives the loss of all but one of
    /// them.
    All,
}

impl Acks {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        [Self::One, Self::Majority, Self::All].into_iter().find(|acks| *acks as u8 == byte)
    }

    /// Returns the number of devices that must have a write, in a group with `members` devices of
    /// which `active` are active.
    pub(crate) fn needed(self, members: usize, active: usize) -> usize {
        match self {
            Self::One => 1,
            Self::Majority => members / 2 + 1,
            Self::All => active.max(1),
        }
    }

    /// Returns the word in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Majority => "majority",
            Self::All => "all",
        }
    }
}

/// Which devices of a group are queried for a value (the paper's competition, section 4.3). Reads
/// are linearizable with each setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reads {
    /// The device with the shortest queue; another one after the 95th percentile of reads, for at
    /// most `hedge_percent` of the reads. The first answer counts.
    #[default]
    Hedged,
    /// All devices; the first answer counts (the paper's rule).
    RaceAll,
    /// Only the device with the shortest queue (the paper's MKVS-GEKV).
    Single,
}

/// Whether a caller's thread executes the commands of an idle device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inline {
    /// If the device's medium is memory: its answers need less time than waking a thread.
    #[default]
    Auto,
    /// Always: no system call in normal operation.
    On,
    /// Never: each device's own thread executes everything. Its waits delay no caller that can do
    /// without the device.
    Off,
}

/// Whether the groups have filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Filtering {
    /// If querying a device takes longer than a filter lookup: its medium is not memory, or its own
    /// thread answers.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

lodestore_contract::options! {
    /// The options to create or open a matrix.
    #[derive(Clone)]
    pub struct MkvsOptions {
        /// Capacity of all groups together, in bytes. Each device uses this divided by the number
        /// of groups, plus its log.
        pub capacity: u64 = 8 << 30,
        /// The losses that an acknowledged write survives on each device.
        pub durability: Durability = Durability::Process,
        /// Seed of the keys' hashes; `None` draws one when a matrix is created.
        pub hash_seed: Option<u64> = None,
        /// Opens with fewer devices than acknowledged writes may need, and keeps their data.
        pub salvage: bool = false,
        /// Whether the matrix has threads of its own. Without threads, callers do all work. A
        /// caller executes a write on as many devices of the group as required, in an order that
        /// changes every two operations. The others execute it when they are next used.
        /// `wait_recovered` and `settle` do the keepers' work.
        pub threads: bool = true,
        /// Determines the other random values of a new matrix: its ids, and the seed of the keys'
        /// hashes if `hash_seed` is `None`.
        pub seed: Option<u64> = None,
        /// A planted fault, for the crash explorer.
        pub planted: Planted = Planted::default(),
        /// Delivers events to the owner. The devices' stores use its [`sink`](Relay::sink).
        pub relay: Option<Relay> = None,
    }

    /// Options of a matrix that were set.
    pub settings MkvsSettings {
        /// Groups that share the keys. Groups may be added later.
        fixed groups: usize = "1", number(1, 16), as "groups";
        /// Devices of each group, which hold the same pairs.
        fixed devices: usize = "1", number(1, 5), as "devices";
        /// A directory for each device, group by group; empty: directories below the store's own.
        fixed paths: Vec<PathBuf> = "", paths(), as "paths";
        /// Devices that have a write before it is acknowledged.
        fixed acks: Acks = "majority", one_of("one" => Acks::One, "majority" => Acks::Majority, "all" => Acks::All), as "acks";
        /// Which devices are asked for a value.
        tunable reads: Reads = "hedged", one_of(
            "hedged" => Reads::Hedged, "race-all" => Reads::RaceAll, "single" => Reads::Single
        ), as "reads";
        /// Whether callers do the work of idle devices; auto: where the medium is memory.
        tunable inline: Inline = "auto", one_of("on" => Inline::On, "off" => Inline::Off, "auto" => Inline::Auto), as "inline";
        /// Reads of a hundred that further devices may do as well, with reads=hedged.
        tunable hedge_percent: u32 = "5", number(0, 100), as "hedge-percent";
        /// Whether each group has a counting Bloom filter, which answers for absent keys; auto:
        /// where asking a device takes long, as its medium is no memory or inline is off.
        tunable filter: Filtering = "auto", one_of(
            "on" => Filtering::On, "off" => Filtering::Off, "auto" => Filtering::Auto
        ), as "filter";
        /// Keys that a group's filter is made for at first. The filter is rebuilt for twice as many
        /// keys as there are when there are half as many again.
        tunable filter_keys: u64 = "65536", number(1024, 4294967296), as "filter-keys";
        /// Commands, reads among them, that may wait for a device before it is asked for values
        /// only where no other is left; auto: 1024, or hard-lag where that is less.
        tunable soft_lag: Option<u64> = "auto", word_or("auto", number(1)), as "soft-lag";
        /// Commands that may wait for a device before it counts as behind and has to catch up, from
        /// soft-lag to half of log-ops; auto: 8192, or soft-lag where that is more, but at most
        /// half of log-ops.
        tunable hard_lag: Option<u64> = "auto", word_or("auto", number(1)), as "hard-lag";
        /// Operations that a device's log keeps.
        fixed log_ops: u64 = "65536", power_of_two(1024, 16777216), as "log-ops";
        /// Bytes that a device's log keeps, about.
        fixed log_bytes: u64 = "64M", size("1M"), as "log-bytes";
        /// Bytes a second of a full copy of a device, of which each group has one at a time; 0: no
        /// limit.
        tunable copy_rate: u64 = "0", size(), as "copy-rate";
        /// Milliseconds that a device may take for one operation before it counts as failed;
        /// nothing is written to it then.
        tunable timeout: Duration = "10000", millis(10), as "timeout-ms";
    }
}

/// Default lags, if they are not set and nothing else bounds them.
const SOFT_LAG_DEFAULT: u64 = 1024;
const HARD_LAG_DEFAULT: u64 = 8192;
/// Bounds that only apply to options given as text. Programs may go below them for small matrices.
const BOUNDS_OF_TEXT: [&str; 4] = ["log-ops", "log-bytes", "filter-keys", "timeout-ms"];

impl MkvsOptions {
    /// Returns the engine's own options, as text.
    pub fn specs() -> &'static [OptionSpec] {
        Self::SPECS
    }

    /// Returns these options, changed by `set`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn with(mut self, set: &Options) -> Result<Self> {
        set.check_names(crate::ENGINE, Self::SPECS)?;
        self.read_from(set)?;
        self.check()?;
        Ok(self)
    }

    /// Returns how many commands may wait for a device that is still queried for values. Above, it
    /// is queried only if no other device is left.
    #[inline]
    pub(crate) fn soft_lag(&self) -> u64 {
        self.soft_lag.unwrap_or_else(|| SOFT_LAG_DEFAULT.min(self.hard_lag()))
    }

    /// Returns how many commands may wait for a device before it counts as behind.
    #[inline]
    pub(crate) fn hard_lag(&self) -> u64 {
        self.hard_lag.unwrap_or_else(|| HARD_LAG_DEFAULT.max(self.soft_lag.unwrap_or(0)).min(self.log_ops / 2))
    }

    /// Refuses lags that contradict each other or the logs' size. To be called on options that have
    /// the matrix's log sizes.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(crate) fn check_lags(&self) -> Result<()> {
        let (soft, hard, max) = (self.soft_lag(), self.hard_lag(), self.log_ops / 2);
        let (name, value) = match self.hard_lag {
            _ if soft <= hard && hard <= max => return Ok(()),
            Some(hard) => ("hard-lag", hard),
            None => ("soft-lag", soft),
        };
        let why = format!(
            "soft-lag is hard-lag at most, and that half of the {} operations of the logs (log-ops)",
            self.log_ops
        );
        Err(Error::InvalidOption { name: name.into(), value: value.to_string(), why })
    }

    /// Refuses an invalid shape or durability. Does not check what [`check_lags`](Self::check_lags)
    /// checks.
    ///
    /// # Errors
    /// [`Error::InvalidOption`]; [`Error::DurabilityRefused`].
    pub(crate) fn check(&self) -> Result<()> {
        let refuse =
            |name: &str, value: String, why: String| Err(Error::InvalidOption { name: name.into(), value, why });
        self.check_bounds_of(|name| !BOUNDS_OF_TEXT.contains(&name))?;
        let (given, devices) = (self.paths.len(), self.groups * self.devices);
        if given != 0 && given != devices {
            let why = format!(
                "{} groups of {} devices take {devices} directories, and it names {given}",
                self.groups, self.devices
            );
            return refuse("paths", format!("{:?}", self.paths), why);
        }
        if !self.log_ops.is_power_of_two() || self.log_ops < 2 {
            return refuse("log-ops", self.log_ops.to_string(), "it takes a power of two from 2".into());
        }
        if matches!(self.durability, Durability::Interval(_)) {
            return Err(Error::DurabilityRefused {
                asked: self.durability,
                medium: "a matrix of devices".into(),
                instead: "ask for process or power".into(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::options::check_declaration;

    use super::*;

    #[test]
    fn each_option_accepts_its_default_and_bounds_and_refuses_values_outside() {
        assert_eq!(check_declaration::<MkvsOptions>(), Ok(()));
    }

    #[test]
    fn acks_have_the_same_name_in_options_and_reports() {
        for acks in [Acks::One, Acks::Majority, Acks::All] {
            let options = MkvsOptions { acks, ..MkvsOptions::default() };
            assert_eq!(options.text_of("acks").as_deref(), Some(acks.name()));
        }
    }

    #[test]
    fn a_list_of_paths_that_has_no_text_is_refused() {
        let settings = MkvsSettings::new().devices(2).paths(vec!["a,b".into(), "c".into()]);
        assert!(MkvsOptions::default().with(settings.options()).is_err());
        let settings = MkvsSettings::new().devices(2).paths(vec!["a".into(), "c".into()]);
        assert_eq!(MkvsOptions::default().with(settings.options()).expect("valid").paths.len(), 2);
    }
}

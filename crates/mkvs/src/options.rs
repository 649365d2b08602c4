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
        /// Directories of the devices, group by group; empty: directories below the store's
        /// directory.
        fixed paths: Vec<PathBuf> = "", paths(), as "paths";
        /// Devices that must have a write before it is acknowledged.
        fixed acks: Acks = "majority", one_of("one" => Acks::One, "majority" => Acks::Majority, "all" => Acks::All), as "acks";
        /// Which devices read a value: a second device if the first is late (hedged), all
        /// (race-all), or one (single).
        tunable reads: Reads = "hedged", one_of(
            "hedged" => Reads::Hedged, "race-all" => Reads::RaceAll, "single" => Reads::Single
        ), as "reads";
        /// Whether callers do the work of idle devices; auto: if the medium is memory.
        tunable inline: Inline = "auto", one_of("on" => Inline::On, "off" => Inline::Off, "auto" => Inline::Auto), as "inline";
        /// Maximum percentage of reads that a second device may also do, with reads=hedged.
        tunable hedge_percent: u32 = "5", number(0, 100), as "hedge-percent";
        /// Whether each group has a counting Bloom filter, which detects absent keys; auto: if the
        /// medium is not memory, or inline is off.
        tunable filter: Filtering = "auto", one_of(
            "on" => Filtering::On, "off" => Filtering::Off, "auto" => Filtering::Auto
        ), as "filter";
        /// Initial number of keys of a group's filter. At one and a half times this number of keys,
        /// the filter is rebuilt for twice the present number.
        tunable filter_keys: u64 = "65536", number(1024, 4294967296), as "filter-keys";
        /// Maximum waiting commands of a device, including reads. Above, the device reads values
        /// only if no other device can. auto: 1024, or hard-lag if that is less.
        tunable soft_lag: Option<u64> = "auto", word_or("auto", number(1)), as "soft-lag";
        /// Maximum waiting commands of a device, from soft-lag to half of log-ops. Above, the
        /// device counts as behind and must catch up. auto: 8192, or soft-lag if that is more, but
        /// at most half of log-ops.
        tunable hard_lag: Option<u64> = "auto", word_or("auto", number(1)), as "hard-lag";
        /// Number of operations in a device's log.
        fixed log_ops: u64 = "65536", power_of_two(1024, 16777216), as "log-ops";
        /// Approximate bytes of a device's log.
        fixed log_bytes: u64 = "64M", size("1M"), as "log-bytes";
        /// Bytes per second of a full copy of a device; 0: no limit. Each group makes one copy at a
        /// time.
        tunable copy_rate: u64 = "0", size(), as "copy-rate";
        /// Maximum milliseconds of an operation on a device. Then the device counts as failed, and
        /// gets no more writes.
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
            "soft-lag must be at most hard-lag, and hard-lag at most half of the {} operations of a log (log-ops)",
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
                "{} groups of {} devices need {devices} directories, and the option names {given}",
                self.groups, self.devices
            );
            return refuse("paths", format!("{:?}", self.paths), why);
        }
        if !self.log_ops.is_power_of_two() || self.log_ops < 2 {
            return refuse("log-ops", self.log_ops.to_string(), "the value must be a power of two from 2".into());
        }
        if matches!(self.durability, Durability::Interval(_)) {
            return Err(Error::DurabilityRefused {
                asked: self.durability,
                medium: "a matrix of devices".into(),
                instead: "use process or power".into(),
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

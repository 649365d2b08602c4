//! Options of a matrix.

use std::path::PathBuf;
use std::time::Duration;

use lodestore_contract::{Durability, Error, OptionSpec, Options, Result};

use crate::events::Relay;
use crate::layout::Matrix;
use crate::planted::Planted;

/// When a write is acknowledged. It decides what a write survives; what readers see is the same with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acks {
    /// When one device has it (the paper's rule): a write survives no loss of a device.
    One,
    /// When most devices of its group have it: it survives the loss of fewer than half of them.
    #[default]
    Majority,
    /// When all devices of its group that are active have it: it survives the loss of all but one of them.
    All,
}

impl Acks {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        [Self::One, Self::Majority, Self::All].into_iter().find(|acks| *acks as u8 == byte)
    }

    /// Devices that must have a write, of `members` in the group of which `active` are active.
    pub(crate) fn needed(self, members: usize, active: usize) -> usize {
        match self {
            Self::One => 1,
            Self::Majority => members / 2 + 1,
            Self::All => active.max(1),
        }
    }

    /// The word of options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Majority => "majority",
            Self::All => "all",
        }
    }
}

/// Which devices of a group are asked for a value (the paper's competition, section 3.3). Every answer is linearizable with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reads {
    /// The one with the shortest queue; a second one where it takes longer than 95 of 100 reads did, for one read in twenty at most. The first answer counts.
    #[default]
    Hedged,
    /// All of them; the first answer counts (the paper's rule).
    RaceAll,
    /// The one with the shortest queue alone (the paper's MKVS-GEKV).
    Single,
}

/// Whether a caller's thread does a device's work where the device is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inline {
    /// Where the device's medium is memory, whose answers take less time than waking a thread.
    #[default]
    Auto,
    /// Always: no system call while all is well.
    On,
    /// Never: each device's own thread does everything, and what it waits for delays nobody who can do without it.
    Off,
}

/// Whether the groups have filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Filtering {
    /// Where asking a device takes longer than a look into a filter: where its medium is no memory, or its own thread answers.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// How a matrix is made and opened.
#[derive(Clone)]
pub struct MkvsOptions {
    /// Groups, 1 to 16. Fixed when a matrix is made, but for groups that are added.
    pub groups: usize,
    /// Devices of each group, 1 to 5. Fixed when a matrix is made.
    pub devices: usize,
    /// A directory for each device, group by group; empty: directories beside the matrix's own description.
    pub paths: Vec<PathBuf>,
    /// Bytes of all groups together: a device takes this much for each group that there is, and its log beside.
    pub capacity: u64,
    /// What an acknowledged write survives on each device.
    pub durability: Durability,
    /// How many devices must have a write before it is acknowledged. Fixed when a matrix is made.
    pub acks: Acks,
    /// Who is asked for a value.
    pub reads: Reads,
    /// Who does the work.
    pub inline: Inline,
    /// Reads of a hundred that further devices may do as well, with [`Reads::Hedged`].
    pub hedge_percent: u32,
    /// Which groups have a counting Bloom filter.
    pub filter: Filtering,
    /// Keys that a group's filter is made for at first; it is made anew, for twice as many as there are, when there are half as many again.
    pub filter_keys: u64,
    /// Commands, reads among them, that may wait for a device before it is asked for values only where no other is left. `None`: 1024, or `hard_lag` where that is less.
    pub soft_lag: Option<u64>,
    /// Commands that may wait for it before it counts as behind: they are dropped, and it catches up from another's log. Half of the matrix's `log_ops` at most. `None`: 8192, or `soft_lag`
    /// where that is more, or that most where it is less.
    pub hard_lag: Option<u64>,
    /// Operations that a device's log keeps, a power of two.
    pub log_ops: u64,
    /// Bytes that it keeps, about.
    pub log_bytes: u64,
    /// Bytes a second of a full copy, of which each group has one at a time; 0: no limit.
    pub copy_rate: u64,
    /// What a device may take for one operation before it counts as failed; nothing is written to it then.
    pub timeout: Duration,
    /// Seed of the keys' hashes; `None` draws one when a matrix is made.
    pub hash_seed: Option<u64>,
    /// Open with fewer devices than what was acknowledged may need, and keep what they have.
    pub salvage: bool,
    /// Whether it has threads of its own. Without, callers do all work: of a group's devices as many as a write takes do it at once, in an order that is another one for each few
    /// writes, and the others when they are next asked. What the keepers do, `wait_recovered` and `settle` do.
    pub threads: bool,
    /// Decides what else is drawn at random when a matrix is made: its ids, and the seed of the keys' hashes.
    pub seed: Option<u64>,
    /// A fault, for the crash explorer.
    pub planted: Planted,
    /// Tells the owner what happens; the devices' stores are given its [`sink`](Relay::sink).
    pub relay: Option<Relay>,
}

impl Default for MkvsOptions {
    fn default() -> Self {
        Self {
            groups: 1,
            devices: 1,
            paths: Vec::new(),
            capacity: 8 << 30,
            durability: Durability::Process,
            acks: Acks::Majority,
            reads: Reads::Hedged,
            inline: Inline::Auto,
            hedge_percent: 5,
            filter: Filtering::Auto,
            filter_keys: 65_536,
            soft_lag: None,
            hard_lag: None,
            log_ops: 65_536,
            log_bytes: 64 << 20,
            copy_rate: 0,
            timeout: Duration::from_secs(10),
            hash_seed: None,
            salvage: false,
            threads: true,
            seed: None,
            planted: Planted::default(),
            relay: None,
        }
    }
}

macro_rules! spec {
    ($name:literal, $default:literal, $fixed:literal, $help:literal) => {
        OptionSpec { name: $name, default: $default, help: $help, fixed: $fixed }
    };
}

/// The lags where they are not given and nothing else bounds them.
const SOFT_LAG: u64 = 1024;
const HARD_LAG: u64 = 8192;
/// Fewest bytes of a log; programs may ask for less.
const LOG_BYTES_MIN: u64 = 1 << 20;

/// The engine's own options by name.
const SPECS: &[OptionSpec] = &[
    spec!("groups", "1", true, "groups that share the keys, 1 to 16"),
    spec!("devices", "1", true, "devices of each group, which hold the same pairs, 1 to 5"),
    spec!(
        "paths",
        "",
        true,
        "a directory for each device, group by group, separated by commas; none: below the store's own"
    ),
    spec!("acks", "majority", true, "devices that have a write before it is acknowledged: one, majority or all"),
    spec!("reads", "hedged", false, "who is asked for a value: hedged, race-all or single"),
    spec!(
        "inline",
        "auto",
        false,
        "whether callers do the work of idle devices: on, off, or auto (where the medium is memory)"
    ),
    spec!("hedge-percent", "5", false, "reads of a hundred that further devices may do as well, 0 to 100"),
    spec!(
        "filter",
        "auto",
        false,
        "a counting Bloom filter for each group, which answers for absent keys: on, off, or auto (where asking a device takes long: its medium is no memory, or inline is off)"
    ),
    spec!("filter-keys", "65536", false, "keys that a group's filter is made for at first, 1024 to 4294967296"),
    spec!(
        "soft-lag",
        "1024",
        false,
        "commands, reads among them, that may wait for a device before it is asked for values only where no other is left, from 1 (where it is not given, hard-lag at most)"
    ),
    spec!(
        "hard-lag",
        "8192",
        false,
        "commands that may wait for it before it has to catch up, from soft-lag to half of log-ops (where it is not given, it keeps to both)"
    ),
    spec!("log-ops", "65536", true, "operations that a device's log keeps, a power of two from 1024 to 16777216"),
    spec!("log-bytes", "64M", true, "bytes that it keeps, about, from 1M"),
    spec!("copy-rate", "0", false, "bytes a second of a full copy of a device, in each group; 0: no limit"),
    spec!("timeout-ms", "10000", false, "milliseconds that a device may take before it counts as failed, from 10"),
];

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn between<T: std::str::FromStr + PartialOrd>(least: T, most: T) -> impl Fn(&str) -> Option<T> {
    move |text| text.parse().ok().filter(|number| (&least..=&most).contains(&number))
}

impl MkvsOptions {
    /// The engine's own options, as text.
    pub fn specs() -> &'static [OptionSpec] {
        SPECS
    }

    /// These options with what `set` says.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn with(self, set: &Options) -> Result<Self> {
        set.check_names(SPECS)?;
        let named = |acks: Acks| move |text: &str| (text == acks.name()).then_some(acks);
        let read_acks =
            |text: &str| [Acks::One, Acks::Majority, Acks::All].into_iter().find_map(|acks| named(acks)(text));
        let read_reads = |text: &str| match text {
            "hedged" => Some(Reads::Hedged),
            "race-all" => Some(Reads::RaceAll),
            "single" => Some(Reads::Single),
            _ => None,
        };
        let read_inline = |text: &str| match text {
            "auto" => Some(Inline::Auto),
            _ => switch(text).map(|on| if on { Inline::On } else { Inline::Off }),
        };
        let read_filter = |text: &str| match text {
            "auto" => Some(Filtering::Auto),
            _ => switch(text).map(|on| if on { Filtering::On } else { Filtering::Off }),
        };
        let paths = |text: &str| Some(text.split(',').filter(|path| !path.is_empty()).map(PathBuf::from).collect());
        let lag = |text: &str| between(1, u64::MAX)(text).map(Some);
        let power = |text: &str| between(1024, 1 << 24)(text).filter(|ops: &u64| ops.is_power_of_two());
        let options = Self {
            groups: set.read("groups", self.groups, "1 to 16", between(1, Matrix::GROUPS_MAX))?,
            devices: set.read("devices", self.devices, "1 to 5", between(1, Matrix::MEMBERS_MAX))?,
            paths: set.read("paths", self.paths, "directories separated by commas", paths)?,
            acks: set.read("acks", self.acks, "one, majority or all", read_acks)?,
            reads: set.read("reads", self.reads, "hedged, race-all or single", read_reads)?,
            inline: set.read("inline", self.inline, "on, off or auto", read_inline)?,
            hedge_percent: set.read("hedge-percent", self.hedge_percent, "0 to 100", between(0, 100))?,
            filter: set.read("filter", self.filter, "on, off or auto", read_filter)?,
            filter_keys: set.read("filter-keys", self.filter_keys, "1024 to 4294967296", between(1024, 1 << 32))?,
            soft_lag: set.read("soft-lag", self.soft_lag, "a number from 1", lag)?,
            hard_lag: set.read("hard-lag", self.hard_lag, "a number from 1", lag)?,
            log_ops: set.read("log-ops", self.log_ops, "a power of two from 1024 to 16777216", power)?,
            log_bytes: set.read_size("log-bytes", self.log_bytes)?,
            copy_rate: set.read_size("copy-rate", self.copy_rate)?,
            timeout: set
                .read("timeout-ms", self.timeout.as_millis() as u64, "milliseconds from 10", between(10, u64::MAX))
                .map(Duration::from_millis)?,
            ..self
        };
        if options.log_bytes < LOG_BYTES_MIN {
            let why = "it takes 1M or more".into();
            return Err(Error::InvalidOption { name: "log-bytes".into(), value: options.log_bytes.to_string(), why });
        }
        options.check()?;
        Ok(options)
    }

    /// Commands that may wait for a device before it is asked for values only where no other is left.
    #[inline]
    pub(crate) fn soft_lag(&self) -> u64 {
        self.soft_lag.unwrap_or_else(|| SOFT_LAG.min(self.hard_lag()))
    }

    /// Commands that may wait for a device before it counts as behind.
    #[inline]
    pub(crate) fn hard_lag(&self) -> u64 {
        self.hard_lag.unwrap_or_else(|| HARD_LAG.max(self.soft_lag.unwrap_or(0)).min(self.log_ops / 2))
    }

    /// Refuses lags that do not go with each other, or with the logs' operations: for options that have those of the matrix.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(crate) fn check_lags(&self) -> Result<()> {
        let (soft, hard, most) = (self.soft_lag(), self.hard_lag(), self.log_ops / 2);
        let (name, value) = match self.hard_lag {
            _ if soft <= hard && hard <= most => return Ok(()),
            Some(hard) => ("hard-lag", hard),
            None => ("soft-lag", soft),
        };
        let why = format!(
            "soft-lag is hard-lag at most, and that half of the {} operations of the logs (log-ops)",
            self.log_ops
        );
        Err(Error::InvalidOption { name: name.into(), value: value.to_string(), why })
    }

    /// Refuses a shape that there is not, and a durability; what [`check_lags`](Self::check_lags) looks at is not looked at.
    ///
    /// # Errors
    /// [`Error::InvalidOption`]; [`Error::DurabilityRefused`].
    pub(crate) fn check(&self) -> Result<()> {
        let refuse =
            |name: &str, value: String, why: String| Err(Error::InvalidOption { name: name.into(), value, why });
        let given = self.paths.len();
        let devices = self.groups * self.devices;
        if !(1..=Matrix::GROUPS_MAX).contains(&self.groups) {
            return refuse("groups", self.groups.to_string(), "it takes 1 to 16".into());
        }
        if !(1..=Matrix::MEMBERS_MAX).contains(&self.devices) {
            return refuse("devices", self.devices.to_string(), "it takes 1 to 5".into());
        }
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

//! What the options of these engines have in common.

use lodestore_contract::{Durability, Error, OptionSpec, Options, Result};
use lodestore_media::PoolOptions;

/// Most threads of a recovery.
pub const RECOVERY_THREADS_MAX: usize = 64;
/// Longest pause between sweeps, in milliseconds: a day.
pub const SWEEP_MS_MAX: u64 = 24 * 3600 * 1000;

/// The seed of the hash.
pub const HASH_SEED: OptionSpec =
    OptionSpec { name: "hash-seed", default: "random", help: "seed of the key hash", fixed: true };
/// Whether a read compares the record's checksum.
pub const VERIFY_READS: OptionSpec = OptionSpec {
    name: "verify-reads",
    default: "on",
    help: "whether a read compares the record's checksum: on or off; index entries are compared with their records in any case",
    fixed: false,
};
/// The budget of DRAM.
pub const DRAM_BUDGET: OptionSpec = OptionSpec {
    name: "dram-budget",
    default: "0",
    help: "most bytes of DRAM, over which new keys are refused; 0 for no limit",
    fixed: false,
};

/// On or off.
pub fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// A number.
///
/// # Errors
/// [`Error::InvalidOption`] where it is none.
pub fn number<T: std::str::FromStr>(options: &Options, name: &'static str, default: T, what: &str) -> Result<T> {
    options.read(name, default, what, |text| text.parse().ok())
}

/// The refusal of a value.
///
/// # Errors
/// [`Error::InvalidOption`], always.
pub fn refuse<T>(name: &str, value: impl ToString, why: &str) -> Result<T> {
    Err(Error::InvalidOption { name: name.into(), value: value.to_string(), why: why.into() })
}

/// Refuses a value that is not from `least` to `most`.
///
/// # Errors
/// [`Error::InvalidOption`].
pub fn check_within(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) { Ok(()) } else { refuse(name, value, &format!("it takes {least} to {most}")) }
}

/// Refuses what no engine of this kind can do: too many threads of a recovery, too long a pause
/// between sweeps, durability by intervals.
///
/// # Errors
/// [`Error::InvalidOption`], [`Error::Unsupported`].
pub fn check_common(engine: &'static str, pool: &PoolOptions, recovery_threads: usize, sweep_ms: u64) -> Result<()> {
    check_within("recovery-threads", recovery_threads as u64, 0, RECOVERY_THREADS_MAX as u64)?;
    check_within("sweep-ms", sweep_ms, 0, SWEEP_MS_MAX)?;
    if [Some(pool.durability), pool.raise].iter().any(|level| matches!(level, Some(Durability::Interval(_)))) {
        return Err(Error::Unsupported {
            engine,
            what: "durability interval, since it changes data in place and has no log to cut at a prefix".into(),
            instead: "use process or power",
        });
    }
    Ok(())
}

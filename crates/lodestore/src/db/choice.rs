//! The choice of engine and durability of a new store.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use lodestore_contract::{Durability, Options, Result};
use lodestore_media::{MediumKind, MediumReport, probe};

use crate::built;
use crate::doctor::nearest_directory;
#[cfg(feature = "fluidkv")]
use crate::options::FluidkvSettings;
#[cfg(feature = "hashkv")]
use crate::options::HashkvSettings;
#[cfg(feature = "hikv")]
use crate::options::HikvSettings;
#[cfg(feature = "mkvs")]
use crate::options::MkvsSettings;
#[cfg(feature = "nvht")]
use crate::options::NvhtSettings;
use crate::options::{AUTO_ENGINE, CreateOptions};
use crate::{choice_file, engines};

/// The maximum age of writes that an `interval` store on a file may lose to a power failure.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

/// The engine of a store, with the options that are set for it. A variant exists if the feature of
/// its engine is enabled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Engine {
    /// Chosen by the medium: `hikv` on memory, `fluidkv` on files. If that engine is not compiled
    /// in, the best other engine of the build is chosen, with an order if there is one. An existing
    /// store keeps its engine.
    #[default]
    Auto,
    /// A hash index on the medium and an ordered tree in DRAM.
    #[cfg(feature = "hikv")]
    Hikv(HikvSettings),
    /// One hash table on the medium, without order.
    #[cfg(feature = "nvht")]
    Nvht(NvhtSettings),
    /// Logs and sorted tables.
    #[cfg(feature = "fluidkv")]
    Fluidkv(FluidkvSettings),
    /// Logs and sorted tables, with large values in a separate file.
    #[cfg(feature = "hashkv")]
    Hashkv(HashkvSettings),
    /// A matrix of devices with stores of another engine
    /// ([`Builder::device_engine`](super::Builder::device_engine)).
    #[cfg(feature = "mkvs")]
    Mkvs(MkvsSettings),
}

impl Engine {
    /// Returns the engine `hikv` with its defaults.
    #[cfg(feature = "hikv")]
    pub const fn hikv() -> Self {
        Self::Hikv(HikvSettings::new())
    }

    /// Returns the engine `nvht` with its defaults.
    #[cfg(feature = "nvht")]
    pub const fn nvht() -> Self {
        Self::Nvht(NvhtSettings::new())
    }

    /// Returns the engine `fluidkv` with its defaults.
    #[cfg(feature = "fluidkv")]
    pub const fn fluidkv() -> Self {
        Self::Fluidkv(FluidkvSettings::new())
    }

    /// Returns the engine `hashkv` with its defaults.
    #[cfg(feature = "hashkv")]
    pub const fn hashkv() -> Self {
        Self::Hashkv(HashkvSettings::new())
    }

    /// Returns the engine `mkvs` with its defaults.
    #[cfg(feature = "mkvs")]
    pub const fn mkvs() -> Self {
        Self::Mkvs(MkvsSettings::new())
    }

    /// Returns the engine's name; `None` for [`Engine::Auto`].
    pub const fn name(&self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            #[cfg(feature = "hikv")]
            Self::Hikv(_) => Some("hikv"),
            #[cfg(feature = "nvht")]
            Self::Nvht(_) => Some("nvht"),
            #[cfg(feature = "fluidkv")]
            Self::Fluidkv(_) => Some("fluidkv"),
            #[cfg(feature = "hashkv")]
            Self::Hashkv(_) => Some("hashkv"),
            #[cfg(feature = "mkvs")]
            Self::Mkvs(_) => Some("mkvs"),
        }
    }

    /// Returns the set options as text.
    pub(super) fn options(&self) -> Option<&Options> {
        match self {
            Self::Auto => None,
            #[cfg(feature = "hikv")]
            Self::Hikv(options) => Some(options.options()),
            #[cfg(feature = "nvht")]
            Self::Nvht(options) => Some(options.options()),
            #[cfg(feature = "fluidkv")]
            Self::Fluidkv(options) => Some(options.options()),
            #[cfg(feature = "hashkv")]
            Self::Hashkv(options) => Some(options.options()),
            #[cfg(feature = "mkvs")]
            Self::Mkvs(options) => Some(options.options()),
        }
    }
}

#[cfg(feature = "hikv")]
impl From<HikvSettings> for Engine {
    fn from(options: HikvSettings) -> Self {
        Self::Hikv(options)
    }
}

#[cfg(feature = "nvht")]
impl From<NvhtSettings> for Engine {
    fn from(options: NvhtSettings) -> Self {
        Self::Nvht(options)
    }
}

#[cfg(feature = "fluidkv")]
impl From<FluidkvSettings> for Engine {
    fn from(options: FluidkvSettings) -> Self {
        Self::Fluidkv(options)
    }
}

#[cfg(feature = "hashkv")]
impl From<HashkvSettings> for Engine {
    fn from(options: HashkvSettings) -> Self {
        Self::Hashkv(options)
    }
}

#[cfg(feature = "mkvs")]
impl From<MkvsSettings> for Engine {
    fn from(options: MkvsSettings) -> Self {
        Self::Mkvs(options)
    }
}

/// The engine and durability of a store, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The engine's name.
    pub engine: &'static str,
    /// The failure that an acknowledged write survives.
    pub durability: Durability,
    /// The reason, in one line.
    pub reason: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "engine {}, durability {}: {}", self.engine, self.durability, self.reason)
    }
}

impl Choice {
    /// Returns the record of the creation of the store at `path`; `None` if the record is missing
    /// or damaged. The durability of a store may have been raised since.
    pub fn recorded(path: impl AsRef<Path>) -> Option<Self> {
        choice_file::read(path.as_ref()).map(|record| record.choice)
    }

    /// Chooses for a new store at `path`. A setting of the caller is kept.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the medium cannot be probed.
    pub(super) fn for_new(path: &Path, engine: Option<&'static str>, durability: Option<Durability>) -> Result<Self> {
        let report = probe(&nearest_directory(path))?;
        Ok(Self::for_medium(&report, engine, durability))
    }

    /// Returns the choice for a creation with `options`.
    ///
    /// # Errors
    ///
    /// As [`CreateOptions::choice`].
    pub(crate) fn of_creation(path: &Path, options: &CreateOptions) -> Result<Self> {
        if options.engine == AUTO_ENGINE {
            return Self::for_new(path, None, options.durability);
        }
        let engine = engines::by_name(&options.engine)?.name;
        let Some(durability) = options.durability else { return Self::for_new(path, Some(engine), None) };
        let reason = options.reason.clone().unwrap_or_else(|| "engine and durability were asked for".into());
        Ok(Self { engine, durability, reason })
    }

    fn for_medium(report: &MediumReport, asked_engine: Option<&'static str>, asked: Option<Durability>) -> Self {
        let gives = |level: Durability| {
            report
                .durability
                .iter()
                .any(|(known, kept)| std::mem::discriminant(known) == std::mem::discriminant(&level) && kept.is_ok())
        };
        let is_memory = matches!(report.medium, MediumKind::Dax | MediumKind::Shm);
        let wants_interval = matches!(asked, Some(Durability::Interval(_)));
        let wanted = if is_memory && !wants_interval { &built::FOR_MEMORY } else { &built::FOR_FILES };
        let engine = asked_engine.unwrap_or_else(|| built::first_built(wanted));
        let interval = Durability::Interval(INTERVAL_DEFAULT);
        let durability = asked.unwrap_or(match report.medium {
            MediumKind::Dax => Durability::Power,
            _ if engine == "fluidkv" && gives(interval) => interval,
            _ if gives(Durability::Power) => Durability::Power,
            _ => Durability::Process,
        });
        let medium = match report.medium {
            MediumKind::Dax => "persistent memory",
            MediumKind::Shm => "memory that outlives the process, not the machine",
            MediumKind::File | MediumKind::Sim if gives(Durability::Power) => "an ordinary file",
            MediumKind::File | MediumKind::Sim => "a file whose syncs are no promise",
        };
        let given = match (asked_engine, asked) {
            (Some(_), Some(_)) => "engine and durability were asked for; ",
            (Some(_), None) => "the engine was asked for; ",
            (None, Some(_)) => "the durability was asked for; ",
            (None, None) => "",
        };
        let instead = match asked_engine {
            None if engine != wanted[0] => format!(", and {} is not compiled into this build", wanted[0]),
            _ => String::new(),
        };
        Self { engine, durability, reason: format!("{given}the medium is {medium} ({}){instead}", report.file_system) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::engines;

    fn report(medium: MediumKind, gives_power: bool) -> MediumReport {
        let kept = |given: bool| if given { Ok(String::new()) } else { Err(String::new()) };
        MediumReport {
            medium,
            durability: vec![
                (Durability::Process, kept(true)),
                (Durability::Power, kept(gives_power)),
                (Durability::Interval(Duration::from_millis(100)), kept(gives_power)),
            ],
            ..probe(Path::new(".")).expect("a medium")
        }
    }

    #[test]
    fn the_medium_decides_if_nothing_is_requested() {
        let interval = Durability::Interval(INTERVAL_DEFAULT);
        for (medium, gives_power, engine, durability) in [
            (MediumKind::Dax, true, "hikv", Durability::Power),
            (MediumKind::Shm, false, "hikv", Durability::Process),
            (MediumKind::File, true, "fluidkv", interval),
            (MediumKind::File, false, "fluidkv", Durability::Process),
        ] {
            if !built::is_built(engine) {
                continue;
            }
            let choice = Choice::for_medium(&report(medium, gives_power), None, None);
            assert!(!choice.reason.contains("build"), "{choice}");
            assert_eq!((choice.engine, choice.durability), (engine, durability), "{medium}");
        }
    }

    #[test]
    fn another_engine_is_chosen_with_a_reason_if_the_best_one_is_not_built() {
        for (medium, best) in [(MediumKind::Shm, "hikv"), (MediumKind::File, "fluidkv")] {
            let choice = Choice::for_medium(&report(medium, true), None, None);
            let says_so = choice.reason.contains(&format!("{best} is not compiled into this build"));
            assert_eq!(says_so, choice.engine != best, "{choice}");
            assert!(built::is_built(choice.engine) || engines().is_empty(), "{choice}");
            // The choice has a key order if any engine of the build has one.
            let has_order = ["hikv", "fluidkv", "hashkv"].into_iter().any(built::is_built);
            assert_eq!(choice.engine == built::NVHT, !has_order && !engines().is_empty(), "{choice}");
            let asked = Choice::for_medium(&report(medium, true), Some("nvht"), None);
            assert!(!asked.reason.contains("build"), "{asked}");
        }
    }

    #[cfg(feature = "fluidkv")]
    #[test]
    fn requests_are_kept_and_defaults_on_a_file_survive_a_power_failure() {
        let file = report(MediumKind::File, true);
        let asked = Choice::for_medium(&file, Some("nvht"), None);
        assert_eq!((asked.engine, asked.durability), ("nvht", Durability::Power));
        let asked = Choice::for_medium(&file, None, Some(Durability::Process));
        assert_eq!((asked.engine, asked.durability), ("fluidkv", Durability::Process));
        let interval = Durability::Interval(Duration::from_millis(5));
        let asked = Choice::for_medium(&report(MediumKind::Dax, true), None, Some(interval));
        assert_eq!((asked.engine, asked.durability), ("fluidkv", interval));
    }
}

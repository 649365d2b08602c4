//! The choice of engine and durability of a new store, and its record.

pub(crate) mod file;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use lodestore_contract::{Durability, Result};
use lodestore_media::{MediumKind, MediumReport, probe};

use crate::made::nearest_directory;
use crate::options::{AUTO_ENGINE, CreateOptions};
use crate::{built, engines};

/// The maximum age of writes that an `interval` store on a file may lose to a power failure.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

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
        file::read(path.as_ref()).map(|record| record.choice)
    }

    /// Chooses for a new store at `path`. A setting of the caller is kept.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the medium cannot be probed.
    pub(crate) fn for_new(path: &Path, engine: Option<&'static str>, durability: Option<Durability>) -> Result<Self> {
        let report = probe(&nearest_directory(path))?;
        Ok(Self::for_medium(&report, engine, durability))
    }

    /// Returns the choice for a creation with `options`.
    ///
    /// # Errors
    ///
    /// As [`CreateOptions::choice`].
    fn of_creation(path: &Path, options: &CreateOptions) -> Result<Self> {
        if options.engine == AUTO_ENGINE {
            return Self::for_new(path, None, options.durability);
        }
        let engine = engines::by_name(&options.engine)?.name;
        let Some(durability) = options.durability else { return Self::for_new(path, Some(engine), None) };
        let reason = options.reason.clone().unwrap_or_else(|| "engine and durability were requested".into());
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
            MediumKind::Shm => "memory that survives the process, but not the machine",
            MediumKind::File | MediumKind::Sim if gives(Durability::Power) => "an ordinary file",
            MediumKind::File | MediumKind::Sim => "a file whose syncs may not reach a device",
        };
        let given = match (asked_engine, asked) {
            (Some(_), Some(_)) => "engine and durability were requested; ",
            (Some(_), None) => "the engine was requested; ",
            (None, Some(_)) => "the durability was requested; ",
            (None, None) => "",
        };
        let instead = match asked_engine {
            None if engine != wanted[0] => format!(", and {} is not compiled into this build", wanted[0]),
            _ => String::new(),
        };
        Self { engine, durability, reason: format!("{given}the medium is {medium} ({}){instead}", report.file_system) }
    }
}

/// The choice of a creation.
impl CreateOptions {
    /// Returns the engine and durability of a store created at `path`, with the reason.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) if there is no such engine;
    /// [`Error::Io`](crate::Error::Io) if the medium cannot be probed.
    pub fn choice(&self, path: impl AsRef<Path>) -> Result<Choice> {
        Choice::of_creation(path.as_ref(), self)
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

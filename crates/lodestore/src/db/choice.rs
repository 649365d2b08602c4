//! Which engine and durability a new store gets.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use lodestore_contract::{Durability, Result};
use lodestore_media::{MediumKind, MediumReport, probe};

use crate::doctor::nearest_directory;

/// The newest writes that an `interval` store on a file may lose to a power failure.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

/// The engine of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Engine {
    /// Chosen by the medium: `hikv` on memory, `fluidkv` on files. A store that exists keeps its
    /// engine.
    #[default]
    Auto,
    /// A hash index on the medium and an ordered tree in DRAM.
    Hikv,
    /// One hash table on the medium, without order.
    Nvht,
    /// Logs and sorted tables.
    Fluidkv,
    /// Logs and sorted tables, with large values in a file of their own.
    Hashkv,
    /// A matrix of devices with stores of another engine.
    Mkvs,
}

impl Engine {
    /// Returns the engine's name; `None` for [`Engine::Auto`].
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Hikv => Some("hikv"),
            Self::Nvht => Some("nvht"),
            Self::Fluidkv => Some("fluidkv"),
            Self::Hashkv => Some("hashkv"),
            Self::Mkvs => Some("mkvs"),
        }
    }
}

/// The engine and durability of a store, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The engine's name.
    pub engine: &'static str,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Why, in one line.
    pub reason: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "engine {}, durability {}: {}", self.engine, self.durability, self.reason)
    }
}

impl Choice {
    /// Chooses for a new store at `path`. A setting of the caller is kept.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the medium cannot be probed.
    pub(super) fn for_new(path: &Path, engine: Engine, durability: Option<Durability>) -> Result<Self> {
        let report = probe(&nearest_directory(path))?;
        Ok(Self::for_medium(&report, engine, durability))
    }

    fn for_medium(report: &MediumReport, engine: Engine, asked: Option<Durability>) -> Self {
        let gives = |level: Durability| {
            report
                .durability
                .iter()
                .any(|(known, kept)| std::mem::discriminant(known) == std::mem::discriminant(&level) && kept.is_ok())
        };
        let is_memory = matches!(report.medium, MediumKind::Dax | MediumKind::Shm);
        let wants_interval = matches!(asked, Some(Durability::Interval(_)));
        let automatic = if is_memory && !wants_interval { "hikv" } else { "fluidkv" };
        let engine = engine.name().unwrap_or(automatic);
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
        Self { engine, durability, reason: format!("the medium is {medium} ({})", report.file_system) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_medium_decides_where_nothing_is_asked() {
        let interval = Durability::Interval(INTERVAL_DEFAULT);
        for (medium, gives_power, engine, durability) in [
            (MediumKind::Dax, true, "hikv", Durability::Power),
            (MediumKind::Shm, false, "hikv", Durability::Process),
            (MediumKind::File, true, "fluidkv", interval),
            (MediumKind::File, false, "fluidkv", Durability::Process),
        ] {
            let choice = Choice::for_medium(&report(medium, gives_power), Engine::Auto, None);
            assert_eq!((choice.engine, choice.durability), (engine, durability), "{medium}");
        }
    }

    #[test]
    fn what_is_asked_is_kept_and_no_default_on_a_file_is_lost_to_a_power_failure() {
        let file = report(MediumKind::File, true);
        let asked = Choice::for_medium(&file, Engine::Nvht, None);
        assert_eq!((asked.engine, asked.durability), ("nvht", Durability::Power));
        let asked = Choice::for_medium(&file, Engine::Auto, Some(Durability::Process));
        assert_eq!((asked.engine, asked.durability), ("fluidkv", Durability::Process));
        let interval = Durability::Interval(Duration::from_millis(5));
        let asked = Choice::for_medium(&report(MediumKind::Dax, true), Engine::Auto, Some(interval));
        assert_eq!((asked.engine, asked.durability), ("fluidkv", interval));
    }
}

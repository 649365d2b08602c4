//! The names of stores.
//!
//! An engine's name may be followed by options that apply only there, as in
//! `hashkv:separate-from=0`. A run can therefore have an engine in several settings.

use lodestore_contract::{Error, OptionSpec, Result};

/// Returns the engine or peer at the beginning of a store's name.
pub(crate) fn base(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

/// Returns whether a store is an engine of this workspace, with any settings.
pub(crate) fn is_engine(name: &str) -> bool {
    engine(name).is_some()
}

/// Returns the options that a store's name sets, each as name=value.
pub(crate) fn own(name: &str) -> impl Iterator<Item = &str> {
    name.split(':').skip(1)
}

/// Refuses options in a store's name that it does not have.
///
/// # Errors
/// [`Error::InvalidOption`].
pub(crate) fn check_own(name: &str) -> Result<()> {
    let unknown = |text: &&str| text.split_once('=').is_none_or(|(option, _)| !has(name, option));
    let Some(text) = own(name).find(unknown) else { return Ok(()) };
    let why = match specs(name) {
        [] => "a peer takes none".to_string(),
        specs => format!("give name=value of {}", specs.iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ")),
    };
    Err(Error::InvalidOption { name: base(name).into(), value: text.into(), why })
}

/// Returns whether this store has this option, and its own name does not set it.
pub(crate) fn takes(name: &str, option: &str) -> bool {
    has(name, option) && own(name).all(|text| text.split('=').next() != Some(option))
}

/// Returns the options of the engine at the beginning of a store's name; none if it is not an
/// engine.
pub(crate) fn specs(name: &str) -> &'static [OptionSpec] {
    engine(name).map_or(&[][..], |engine| engine.options())
}

/// Returns whether this store has this option.
pub(crate) fn has(name: &str, option: &str) -> bool {
    engine(name).is_some_and(|engine| engine.takes(option))
}

/// Returns the engine at the beginning of a store's name.
pub(crate) fn engine(name: &str) -> Option<&'static lodestore::engines::EngineInfo> {
    lodestore::engines().iter().find(|known| known.name == base(name))
}

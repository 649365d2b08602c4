//! The stores of a run: their settings, creation, and reopening.
//!
//! An engine's name may be followed by options that apply only there, as in
//! `hashkv:separate-from=0`. A run can therefore have an engine in several settings.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use lodestore_contract::{Durability, Error, OptionSpec, Result};

use crate::args::Args;
use crate::peers::{self, Asked};
use crate::run::cell::Cell;
use crate::run::control_group;
use crate::run::target::{Facts, StoreTarget, Target};

/// The engine option for the DRAM budget.
const BUDGET: &str = "dram-budget";
/// The engine option for the size of the write buffer.
const WRITE_BUFFER: &str = "memtable-bytes";

/// Returns the engine or peer at the beginning of a store's name.
pub(crate) fn base(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

/// Returns whether a store is an engine of this workspace, with any settings.
pub(crate) fn is_engine(name: &str) -> bool {
    engine(name).is_some()
}

/// Returns the options that a store's name sets, each as name=value.
fn own(name: &str) -> impl Iterator<Item = &str> {
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
fn specs(name: &str) -> &'static [OptionSpec] {
    engine(name).map_or(&[][..], |engine| engine.options())
}

/// Returns whether this store has this option.
pub(crate) fn has(name: &str, option: &str) -> bool {
    engine(name).is_some_and(|engine| engine.takes(option))
}

/// Returns the settings of an engine: its DRAM budget and its write buffer if it accepts them, then
/// the options set by name, then the options in its own name. Later settings take precedence.
fn texts(args: &Args, engine: &str) -> Vec<String> {
    let sizes = [(BUDGET, args.budget), (WRITE_BUFFER, args.write_buffer)];
    let given = sizes.into_iter().filter(|(name, _)| has(engine, name));
    let given = given.filter_map(|(name, size)| size.map(|bytes| format!("{name}={bytes}")));
    given.chain(args.set.iter().cloned()).chain(own(engine).map(String::from)).collect()
}

/// Returns every setting of an engine: the defaults of its options, overridden by the options set.
pub(crate) fn settings(args: &Args, engine: &str) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> =
        specs(engine).iter().map(|spec| (spec.name.to_string(), spec.default.to_string())).collect();
    all.insert("persist-ns".into(), args.persist_ns.to_string());
    all.extend(
        texts(args, engine)
            .iter()
            .filter_map(|text| text.split_once('='))
            .map(|(name, value)| (name.into(), value.into())),
    );
    all.insert("size".into(), args.capacity().to_string());
    all.insert("emulate-dax".into(), args.emulate_dax.to_string());
    all
}

/// Returns the engine at the beginning of a store's name.
fn engine(name: &str) -> Option<&'static lodestore::engines::EngineInfo> {
    lodestore::engines().iter().find(|known| known.name == base(name))
}

/// Returns the options to create an engine's store with this durability.
fn create_options(args: &Args, engine: &str, durability: Durability) -> Result<lodestore::options::CreateOptions> {
    let mut options = lodestore::options::CreateOptions::new()
        .engine(base(engine))
        .size(args.capacity())
        .durability(durability)
        .emulate_dax(args.emulate_dax)
        .persist_ns(args.persist_ns);
    for text in &texts(args, engine) {
        options = options.set_text(text)?;
    }
    Ok(options)
}

/// Refuses an option value that the store does not accept. Limits of the medium or the capacity are
/// detected only at its creation.
///
/// # Errors
/// [`Error::InvalidOption`].
pub(crate) fn check_options(args: &Args, name: &str) -> Result<()> {
    let Some(engine) = engine(name) else { return Ok(()) };
    match engine.check(&create_options(args, name, args.durability.unwrap_or_default())?) {
        Err(refused @ Error::InvalidOption { .. }) => Err(refused),
        _ => Ok(()),
    }
}

/// Returns whether a store keeps its keys in order, and so supports scans.
pub(crate) fn keeps_order(args: &Args, name: &str) -> bool {
    let options = || create_options(args, name, args.durability.unwrap_or_default()).ok();
    let of_engine =
        |engine: &lodestore::engines::EngineInfo| options().is_none_or(|options| engine.keeps_order(&options));
    engine(name).map_or_else(|| peers::is_ordered(name), of_engine)
}

/// Creates an engine's store with this durability at `path`.
///
/// # Errors
/// Those of [`lodestore::store::create`].
pub(crate) fn create(args: &Args, engine: &str, path: &Path, durability: Durability) -> Result<StoreTarget> {
    let options = create_options(args, engine, durability)?;
    Ok(StoreTarget::new(lodestore::store::create(path, &options)?, settings(args, engine)))
}

/// Returns the options to reopen an engine's store: as at creation, without the fixed options.
///
/// # Errors
/// [`Error::InvalidOption`] for a text that sets nothing.
pub(crate) fn open_options(args: &Args, engine: &str) -> Result<lodestore::options::OpenOptions> {
    let mut options = lodestore::options::OpenOptions::new().engine(base(engine)).persist_ns(args.persist_ns);
    for text in &texts(args, engine) {
        let name = text.split('=').next().unwrap_or_default();
        if !specs(engine).iter().any(|spec| spec.fixed && spec.name == name) {
            options = options.set_text(text)?;
        }
    }
    Ok(options)
}

/// Creates the store that is loaded.
///
/// # Errors
/// Errors of the store.
pub(crate) fn make(args: &Args, cell: &Cell) -> Result<Box<dyn Target>> {
    let level = args.load_durability.or(args.durability).unwrap_or_default();
    if !peers::is_peer(&cell.target) {
        let made = create(args, &cell.target, &cell.path, level);
        return Ok(Box::new(made.map_err(|error| of_reserve(error, args))?));
    }
    let name =
        args.load_durability.map_or_else(|| Ok(cell.target.clone()), |level| peers::for_load(&cell.target, level));
    peers::open(&name?, &cell.path, &asked(args, false))
}

/// Reports the error of a too small capacity under the name of the argument from which it derives.
fn of_reserve(error: Error, args: &Args) -> Error {
    match (error, args.reserve) {
        (Error::InvalidOption { name, value, .. }, Some(percent)) if name == "capacity" => Error::InvalidOption {
            name: "reserve".into(),
            value: percent.to_string(),
            why: format!(
                "an empty store of these options does not fit into the {value} that it comes to: give a larger --reserve, or load more"
            ),
        },
        (error, _) => error,
    }
}

/// Opens the loaded store, for the workloads after the load.
///
/// # Errors
/// Errors of the store.
pub(crate) fn open_loaded(args: &Args, cell: &Cell) -> Result<Box<dyn Target>> {
    if peers::is_peer(&cell.target) {
        return peers::open(&cell.target, &cell.path, &asked(args, true));
    }
    let options = open_options(args, &cell.target)?.durability(args.durability.unwrap_or_default());
    let store = lodestore::store::open(&cell.path, &options)?;
    store.wait_recovered()?;
    Ok(Box::new(StoreTarget::new(store, settings(args, &cell.target))))
}

/// Opens a store that another process left, without waiting for background recovery. Returns the
/// store and the duration of its own open.
///
/// # Errors
/// Errors of the store.
pub(crate) fn open_again(args: &Args, cell: &Cell) -> Result<(Box<dyn Target>, Duration)> {
    if peers::is_peer(&cell.target) {
        let start = Instant::now();
        let target = peers::open(&cell.target, &cell.path, &asked(args, true))?;
        let took = target.opening().unwrap_or_else(|| start.elapsed());
        return Ok((target, took));
    }
    let (options, settings) = (open_options(args, &cell.target)?, settings(args, &cell.target));
    let start = Instant::now();
    let store = lodestore::store::open(&cell.path, &options)?;
    let took = start.elapsed();
    Ok((Box::new(StoreTarget::new(store, settings)), took))
}

/// Returns the requests to a peer.
fn asked(args: &Args, there: bool) -> Asked {
    Asked { budget: args.budget, write_buffer: args.write_buffer, there, threads: args.threads }
}

/// Returns the store's description, whether it received the budget and the write buffer, and the
/// limit on its process's memory.
pub(crate) fn facts(args: &Args, cell: &Cell, target: &dyn Target) -> Facts {
    let mut facts = target.facts();
    let name = cell.target.as_str();
    let given = |size: u64, taken: bool| if taken { size.to_string() } else { "not taken".into() };
    if let Some(budget) = args.budget {
        let taken = peers::takes_budget(name) || has(name, BUDGET);
        facts.settings.insert("budget".into(), given(budget, taken));
    }
    if let Some(buffer) = args.write_buffer {
        let taken = peers::takes_write_buffer(name) || has(name, WRITE_BUFFER);
        // A peer that has a write buffer of fixed size reports its size.
        facts.settings.entry("write-buffer".into()).or_insert_with(|| given(buffer, taken));
    }
    if args.memory.is_some() {
        facts.settings.insert("memory".into(), control_group::own_limit());
    }
    facts
}

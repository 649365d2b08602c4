//! The stores of a run: their creation, and reopening.

use std::path::Path;
use std::time::{Duration, Instant};

use lodestore_contract::{Durability, Error, Result};

use crate::args::Args;
use crate::args::settings::{BUDGET, WRITE_BUFFER, create_options, open_options, settings};
use crate::peers::{self, Asked};
use crate::run::cell::Cell;
use crate::run::control_group;
use crate::store_name::has;
use crate::target::{Facts, StoreTarget, Target};

/// Creates an engine's store with this durability at `path`.
///
/// # Errors
/// Those of [`lodestore::store::create`].
pub(crate) fn create(args: &Args, engine: &str, path: &Path, durability: Durability) -> Result<StoreTarget> {
    let options = create_options(args, engine, durability)?;
    Ok(StoreTarget::new(lodestore::store::create(path, &options)?, settings(args, engine)))
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

//! The settings of a store, from the arguments and its name.

use std::collections::BTreeMap;

use lodestore_contract::{Durability, Error, Result};

use crate::args::Args;
use crate::peers;
use crate::store_name::{base, engine, has, own, specs};

/// The engine option for the DRAM budget.
pub(crate) const BUDGET: &str = "dram-budget";
/// The engine option for the size of the write buffer.
pub(crate) const WRITE_BUFFER: &str = "memtable-bytes";

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

/// Returns the options to create an engine's store with this durability.
pub(crate) fn create_options(
    args: &Args,
    engine: &str,
    durability: Durability,
) -> Result<lodestore::options::CreateOptions> {
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

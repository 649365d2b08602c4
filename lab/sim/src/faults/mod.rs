//! The planted faults of each engine.
//!
//! A fault that loses a flush, fence, sync or check names the statement by its text
//! (`lodestore_media::sim::Site`); the product has no line for it. A fault of the logic is named
//! in `planted.rs` of its crate, and the code that it changes asks for it.

pub mod allocator;
pub mod fluidkv;
pub mod hashkv;
pub mod hikv;
pub mod inplace;
pub mod media;
pub mod mkvs;
pub mod nvht;
pub mod toy;

use lodestore_media::PlantedFault;

use crate::subject::Engine;

/// Returns all planted faults of an engine.
pub fn of(engine: &dyn Engine) -> impl Iterator<Item = PlantedFault> {
    let lists = [engine.mutants(), engine.mutants_of_threads(), engine.damage_mutants(), engine.other_mutants()];
    lists.into_iter().flatten().copied()
}

/// Returns the planted fault of an engine, or of the pool, with this name.
pub fn named(engine: &dyn Engine, name: &str) -> Option<PlantedFault> {
    of(engine).chain(media::ALL.iter().copied()).find(|fault| fault.name() == name)
}

#[cfg(test)]
mod tests;

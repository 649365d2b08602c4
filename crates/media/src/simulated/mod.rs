//! The parts of a pool that the crash simulator replaces: the observer of the verbs, and the memory
//! of the regions. `not_simulated.rs` replaces this module without the feature `sim`. Its methods
//! only call the closures that they receive.

mod heap;
mod observer;

pub(crate) use heap::Heap;
pub(crate) use observer::Observer;

//! The parts of a pool that the crash simulator replaces: the observer of the verbs, and the memory
//! of the regions. `not_simulated.rs` has the same names without the feature `sim`; nothing there
//! does anything, and only one of both is compiled.

mod heap;
mod observer;

pub(crate) use heap::Heap;
pub(crate) use observer::Observer;

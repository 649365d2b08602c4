//! The build without the feature `sim`. `site.rs` has the same name.

/// The change of a step of the recorder: there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {}

//! Versions: the ranges with their tables, the immutable view that readers share, and the manifest
//! that records each change.

pub(crate) mod cursor;
pub(crate) mod known;
pub(crate) mod manifest;
pub(crate) mod publish;
pub(crate) mod range;
pub(crate) mod tables;
pub(crate) mod view;

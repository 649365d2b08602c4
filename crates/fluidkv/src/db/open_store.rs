//! The state that all operations of an open store share.

use std::ops::Deref;

use lodestore_contract::scrub::Scrub;

use crate::background::scheduler::Background;
use crate::db::recover::Recovery;

/// An open store. Dereferences to its background work, which dereferences to its tree.
pub(crate) struct Inner {
    pub(crate) background: Background,
    pub(crate) recovery: Recovery,
    pub(crate) scrub: Scrub,
    /// Opened read-only because its structure is damaged: the pool accepts no writes.
    pub(crate) read_only: bool,
}

impl Deref for Inner {
    type Target = Background;

    fn deref(&self) -> &Background {
        &self.background
    }
}

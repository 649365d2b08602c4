//! The handle of an open store.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use lodestore_contract::{Result, Scan, ScanRange, Store};

/// An open store of any engine. Clones share it; its operations are those of [`Store`].
///
/// Call [`Store::close`] at the end, so that the next open is fast. A store that is dropped without
/// it is as after a crash: nothing acknowledged is lost, and the next open recovers.
#[derive(Clone)]
pub struct Lodestore {
    store: Arc<dyn Store>,
}

/// The name of an open store in signatures.
pub type Handle = Lodestore;

impl Lodestore {
    /// Returns an owned walk over `range`, as [`Store::scan`]. The walk keeps the store open.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn scan(&self, range: &ScanRange) -> Result<Scan> {
        let walk = self.store.scan(range)?;
        let store = self.clone();
        Ok(Box::new(walk.inspect(move |_| {
            let _open = &store;
        })))
    }

    /// Returns a handle of this store.
    pub(crate) fn of(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Returns the store of the handle, which then keeps it open.
    pub fn into_store(self) -> Arc<dyn Store> {
        self.store
    }
}

impl Deref for Lodestore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl fmt::Debug for Lodestore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lodestore").field("engine", &self.store.engine()).finish_non_exhaustive()
    }
}

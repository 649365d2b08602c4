//! Walks over a device's store by pages, between which it may change.

use std::ops::Bound;

use lodestore_contract::{Result, ScanRange, Store, Visit};

/// Keys of a page.
pub(crate) const PAGE: usize = 128;

/// The next keys behind `after`, in their order; fewer than [`PAGE`] at the end. Of a store with order.
///
/// # Errors
/// The store's.
pub(crate) fn page(store: &dyn Store, after: Option<&[u8]>) -> Result<Vec<Vec<u8>>> {
    let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec()));
    let mut keys = Vec::with_capacity(PAGE);
    store.scan_each(&ScanRange { from, limit: PAGE, ..ScanRange::all() }, &mut |key, _| {
        keys.push(key.to_vec());
        Visit::More
    })?;
    Ok(keys)
}

/// Calls `each` for every key that is in the store from the beginning to the end of the walk, and outside of any call of the store.
///
/// # Errors
/// The store's; those of `each`.
pub(crate) fn each_key(store: &dyn Store, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    if store.capabilities().scan {
        let mut last: Option<Vec<u8>> = None;
        loop {
            let keys = page(store, last.as_deref())?;
            keys.iter().try_for_each(|key| each(key))?;
            if keys.len() < PAGE {
                return Ok(());
            }
            last = keys.into_iter().next_back();
        }
    }
    // Without order there is no place to go on from.
    let mut keys = Vec::new();
    store.for_each(&mut |key, _| {
        keys.push(key.to_vec());
        Visit::More
    })?;
    keys.iter().try_for_each(|key| each(key))
}

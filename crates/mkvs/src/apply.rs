//! An operation, done to one store.

use lodestore_contract::{Change, Error, Expiry, Lifetime, Result, Store};

use crate::operation::Mutation;

/// Whether this refuses one write and says nothing of the device.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Full { .. } | Error::DramBudget { .. } | Error::IndexFull { .. })
}

/// Gives `key` this value; whether it was there.
///
/// # Errors
/// The store's.
pub(crate) fn put_told(
    store: &dyn Store,
    key: &[u8],
    value: &[u8],
    expiry: Option<Expiry>,
    is_new: bool,
) -> Result<bool> {
    if expiry.is_some() {
        let mut was_there = false;
        store.update_with(key, &mut |old, _| {
            was_there = old.is_some();
            Change::Put(value.to_vec(), expiry.into())
        })?;
        return Ok(was_there);
    }
    if is_new && store.insert(key, value, Lifetime::Forever)? {
        return Ok(false);
    }
    // Nobody else writes this key, but what expires goes by itself.
    loop {
        if store.update(key, value, Lifetime::Forever)? {
            return Ok(true);
        }
        if store.insert(key, value, Lifetime::Forever)? {
            return Ok(false);
        }
    }
}

/// Does to `store` what `mutation` says; whether the key was there.
///
/// # Errors
/// The store's.
pub(crate) fn apply(store: &dyn Store, key: &[u8], mutation: &Mutation, is_new: bool) -> Result<bool> {
    match mutation {
        Mutation::Put { value, expiry } | Mutation::Restore { value: Some((value, expiry)), .. } => {
            put_told(store, key, value, *expiry, is_new)
        }
        Mutation::Delete | Mutation::Restore { value: None, .. } => store.delete(key),
        Mutation::Lacking => Ok(false),
    }
}

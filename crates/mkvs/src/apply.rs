//! Applies an operation to one store.

use lodestore_contract::{Change, Error, Expiry, Lifetime, Result, Store};

use crate::operation::Mutation;

/// Returns whether the error refuses one write and does not mean that the device is broken.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Full { .. } | Error::DramBudget { .. } | Error::IndexFull { .. })
}

/// Sets the value of `key`. Returns whether the key existed.
///
/// # Errors
/// Errors of the store.
pub(crate) fn put_reporting_presence(
    store: &dyn Store,
    key: &[u8],
    value: &[u8],
    expiry: Option<Expiry>,
    is_new: bool,
) -> Result<bool> {
    if expiry.is_some() {
        let mut was_present = false;
        store.update_with(key, &mut |old, _| {
            was_present = old.is_some();
            Change::Put(value.to_vec(), expiry.into())
        })?;
        return Ok(was_present);
    }
    if is_new && store.insert(key, value, Lifetime::Forever)? {
        return Ok(false);
    }
    // No other thread writes this key, but it may expire.
    loop {
        if store.update(key, value, Lifetime::Forever)? {
            return Ok(true);
        }
        if store.insert(key, value, Lifetime::Forever)? {
            return Ok(false);
        }
    }
}

/// Applies `mutation` to `store`. Returns whether the key existed.
///
/// # Errors
/// Errors of the store.
pub(crate) fn apply(store: &dyn Store, key: &[u8], mutation: &Mutation, is_new: bool) -> Result<bool> {
    match mutation {
        Mutation::Put { value, expiry } | Mutation::Restore { value: Some((value, expiry)), .. } => {
            put_reporting_presence(store, key, value, *expiry, is_new)
        }
        Mutation::Delete | Mutation::Restore { value: None, .. } => store.delete(key),
        Mutation::Lacking => Ok(false),
    }
}

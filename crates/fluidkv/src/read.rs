//! Reading single keys. No lock is taken: the view is loaded once, and everything it names stays while it is held.

use std::sync::atomic::Ordering;

use lodestore_contract::limits::{KEY_MAX, KEY_MIN};
use lodestore_contract::{Error, Expiry, Result};

use crate::inner::Inner;
use crate::table::hash;
use crate::view::{Known, View};

/// Refuses keys that no store takes.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    lodestore_contract::limits::check_key(key)
}

const _: () = assert!(KEY_MIN == 1 && KEY_MAX <= 1 << 16);

impl Inner {
    /// What is known of a key, waiting where a batch that may hold it is half in the index.
    #[inline]
    pub(crate) fn known<'v>(&self, view: &'v View, key: &[u8], hash: u64) -> Result<Option<Known<'v>>> {
        if self.batches.load(Ordering::SeqCst) > 0 {
            // The batch holds the stripes of all its keys until it is whole.
            drop(self.order.lock(hash));
        }
        view.find(key, hash, u64::MAX, self.reads)
    }

    /// Calls `with` for the live value of a key.
    #[inline]
    pub(crate) fn with_value<T>(&self, key: &[u8], with: impl FnOnce(Option<(&[u8], Option<u64>)>) -> T) -> Result<T> {
        check_key(key)?;
        let _guard = self.enter()?;
        let hash = hash(key);
        let view = self.view.load();
        let known = self.known(&view, key, hash).inspect_err(|error| self.corrupt(error))?;
        Ok(with(known.and_then(Known::live)))
    }

    #[cold]
    pub(crate) fn corrupt(&self, error: &Error) {
        if let Error::Corrupt { place, what } = error {
            self.tell(&lodestore_contract::Event::Corruption { place: place.clone(), what: what.clone() });
        }
    }

    pub(crate) fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.with_value(key, |found| {
            value.clear();
            found.is_some_and(|(bytes, _)| {
                value.extend_from_slice(bytes);
                true
            })
        })
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        self.with_value(key, |found| found.is_some())
    }

    pub(crate) fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.with_value(key, |found| found.map(|(_, expiry)| expiry.map(Expiry::at_millis)))
    }

    pub(crate) fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let _guard = self.enter()?;
        for (index, key) in keys.iter().enumerate() {
            let view = self.view.load();
            let known = self.known(&view, key, hash(key)).inspect_err(|error| self.corrupt(error))?;
            each(index, known.and_then(Known::live).map(|(value, _)| value));
        }
        Ok(())
    }
}

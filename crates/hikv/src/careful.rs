//! The state of careful mode, and the first damage to the index found in this open. `damage.rs` has
//! the rules.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use lodestore_contract::Error;
use lodestore_inplace::lock;

/// The state of careful mode. The mode stays on once damage was found.
pub(crate) struct CarefulMode {
    is_on: AtomicBool,
    first_damage: Mutex<Option<FirstDamage>>,
}

/// The first damage found: the fields of its [`Error::Corrupt`].
#[derive(Clone)]
pub(crate) struct FirstDamage {
    pub(crate) place: String,
    pub(crate) what: String,
}

impl CarefulMode {
    /// Creates the state for a store. `is_whole`: the index is known to be whole.
    pub(crate) fn new(is_whole: bool) -> Self {
        Self { is_on: AtomicBool::new(!is_whole), first_damage: Mutex::new(None) }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Notes damage, and turns the mode on for the rest of this open. Ignores other errors.
    #[cold]
    pub(crate) fn note_damage(&self, error: &Error) {
        let Error::Corrupt { place, what, .. } = error else { return };
        let mut first = lock(&self.first_damage);
        first.get_or_insert_with(|| FirstDamage { place: place.clone(), what: what.clone() });
        self.is_on.store(true, Ordering::Release);
    }

    /// Turns the mode off, unless damage was found.
    pub(crate) fn end(&self) {
        let first = lock(&self.first_damage);
        if first.is_none() {
            self.is_on.store(false, Ordering::Release);
        }
    }

    /// Returns the first damage, if there is any.
    pub(crate) fn first_damage(&self) -> Option<FirstDamage> {
        lock(&self.first_damage).clone()
    }
}

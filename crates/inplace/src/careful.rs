//! The state of careful mode, and the first damage to the index found in this open.
//!
//! In careful mode a miss checks everything that may have held the key. In `nvht` a hit also checks
//! the line of its slot. The mode is on after a crash until recovery has checked the index, and for
//! the rest of the open if damage is found.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use lodestore_contract::Error;
use lodestore_contract::threads::lock;

/// The state of careful mode. The mode stays on once damage was found.
pub struct CarefulMode {
    is_on: AtomicBool,
    first_damage: Mutex<Option<FirstDamage>>,
}

/// The first damage found: the fields of its [`Error::Corrupt`].
#[derive(Clone)]
pub struct FirstDamage {
    /// The place.
    pub place: String,
    /// The damage.
    pub what: String,
}

impl CarefulMode {
    /// Creates the state for a store. `is_on`: the index is not known to be whole.
    pub fn new(is_on: bool) -> Self {
        Self { is_on: AtomicBool::new(is_on), first_damage: Mutex::new(None) }
    }

    /// Returns whether a miss has to be checked.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Notes damage to the index, and turns the mode on for the rest of this open. Ignores other
    /// errors.
    #[cold]
    pub fn note_damage(&self, error: &Error) {
        let Error::Corrupt { place, what, .. } = error else { return };
        let mut first = lock(&self.first_damage);
        first.get_or_insert_with(|| FirstDamage { place: place.clone(), what: what.clone() });
        self.is_on.store(true, Ordering::Release);
    }

    /// Turns the mode off, unless damage was found.
    pub fn end(&self) {
        let first = lock(&self.first_damage);
        if first.is_none() {
            self.is_on.store(false, Ordering::Release);
        }
    }

    /// Returns the first damage, if there is any.
    pub fn first_damage(&self) -> Option<FirstDamage> {
        lock(&self.first_damage).clone()
    }
}

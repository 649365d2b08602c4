//! Writes of single keys.
//!
//! [`put`], [`change`] and [`delete`] write for all in-place engines. Each holds the key's stripe
//! from before it reads the index until the change is durable. The stores, flushes and fences of a
//! change are in [`Writes::publish`] and [`Writes::unlink`] of each engine, whose `write.rs` states
//! their order.

use std::borrow::Cow;

use lodestore_contract::limits::check_value;
use lodestore_contract::{Error, Expiry, PutWhen, Result};

use crate::base::{BoxedResult, Stored};
use crate::index::{FoundIn, Index, TargetOf};
use crate::stripe::Held;

/// The step to perform on a key, given its present value and expiry.
pub(crate) enum Step<'v> {
    /// Change nothing.
    Keep,
    /// Set this value and this expiry.
    Put(Cow<'v, [u8]>, Option<Expiry>),
    /// Delete it.
    Delete,
}

/// Returns the step for the present value and expiry of a key. The expiry is `None` if the key is
/// absent, has expired, or does not expire.
pub(crate) type Decide<'d, 'v> = dyn FnMut(Option<&[u8]>, Option<Expiry>) -> Step<'v> + 'd;

/// A key whose stripe a writer holds.
pub struct Locked<'a, E: Writes> {
    /// The key.
    pub target: TargetOf<'a, E>,
    /// Its stripe.
    pub held: Held<'a, E::Stripe>,
    /// The part of the index that the key belongs to.
    pub table: E::Table,
}

/// An engine's writes. The errors of all methods are the contract's.
pub trait Writes: Index {
    /// The part of the index that a key belongs to while its stripe is held.
    type Table;
    /// What a writer read of the index under the stripe.
    type Probe;

    /// Counts a write, and times it until the result is dropped.
    #[inline]
    fn time_write(&self) -> impl Sized {}

    /// Starts to load the key's place in the index.
    fn prefetch_index(&self, hash: Self::Hash);

    /// Returns the part of the index that a key belongs to, under the key's stripe. Makes durable
    /// what a killed process left unflushed at the key's place.
    fn durable_table(&self, hash: Self::Hash) -> BoxedResult<Self::Table>;

    /// Reads the key's place in the index.
    fn probe(&self, locked: &Locked<'_, Self>) -> Self::Probe;

    /// Starts to load the record that the key may have. Returns false if it has none.
    fn prefetch_old(&self, locked: &Locked<'_, Self>, probe: &Self::Probe) -> bool;

    /// Stores a record out of place. The record is durable after the next fence.
    fn store_held(&self, locked: &mut Locked<'_, Self>, value: &[u8], expiry: Option<Expiry>) -> Result<Stored>;

    /// Returns the key's entry, expired or not. Reports nothing.
    fn find_old(&self, locked: &Locked<'_, Self>, probe: &Self::Probe) -> Result<Option<FoundIn<'_, Self>>>;

    /// Checks that a key without an entry is absent, if [`Self::find_old`] has not checked it.
    /// Reports damage.
    #[inline]
    fn check_miss(&self, _locked: &Locked<'_, Self>) -> Result<()> {
        Ok(())
    }

    /// Handles an error of [`Self::find_old`] in a put or a delete. Returns whether the damaged
    /// entries of the key were removed. If not, a put adds an entry, and a delete fails.
    fn clear_damage(&self, locked: &Locked<'_, Self>, probe: &Self::Probe, error: &Error, is_put: bool) -> bool;

    /// Makes a stored record the durable value of its key, and frees the stripe. Returns false if
    /// the index had no free space for the key: the space exists now, the record is freed, and the
    /// write restarts. After an error the record is freed, and the error was reported.
    fn publish(
        &self,
        locked: Locked<'_, Self>,
        probe: Self::Probe,
        old: Option<FoundIn<'_, Self>>,
        new: Stored,
    ) -> BoxedResult<bool>;

    /// Removes a key's entry durably.
    #[track_caller]
    fn unlink(&self, locked: &mut Locked<'_, Self>, found: &FoundIn<'_, Self>);

    /// Removes a key whose entry `is_same` and whose record has expired. Returns the number of
    /// removed keys. A damaged record stays, and `verify` reports it: the damage may be in its
    /// expiry.
    fn remove_expired(&self, key: &[u8], is_same: impl Fn(&FoundIn<'_, Self>) -> bool) -> Result<u64> {
        let _guard = self.enter_write()?;
        let mut locked = lock_key(self, self.target(key)).map_err(|error| *error)?;
        let probe = self.probe(&locked);
        match self.find_old(&locked, &probe) {
            Ok(Some(found)) if is_same(&found) && matches!(found.is_live(), Ok(false)) => {
                self.unlink(&mut locked, &found);
                Ok(1)
            }
            Ok(_) | Err(Error::Corrupt { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// Acquires a key's stripe, and records the key for a copy of the store in progress. The caller
/// holds a guard and no stripe.
#[inline]
fn lock_key<'a, E: Writes>(engine: &'a E, target: TargetOf<'a, E>) -> BoxedResult<Locked<'a, E>> {
    engine.prefetch_index(target.hash);
    let mut held = engine.stripes().lock(E::stripe_of(target.hash));
    if engine.changes.is_active() {
        held = record_change(engine, target, held);
    }
    Ok(Locked { target, held, table: engine.durable_table(target.hash)? })
}

/// Records a key that is about to be written. May wait for the copier, and then acquires the stripe
/// again.
#[cold]
fn record_change<'a, E: Writes>(
    engine: &'a E,
    target: TargetOf<'_, E>,
    mut held: Held<'a, E::Stripe>,
) -> Held<'a, E::Stripe> {
    if engine.changes.is_crowded() {
        drop(held);
        engine.changes.wait_for_copier();
        held = engine.stripes().lock(E::stripe_of(target.hash));
    }
    engine.changes.record(target.key);
    held
}

/// Puts, inserts or updates a key of valid size. Returns whether it did.
#[inline]
pub(crate) fn put<E: Writes>(
    engine: &E,
    key: &[u8],
    value: &[u8],
    expiry: Option<Expiry>,
    when: PutWhen,
) -> BoxedResult<bool> {
    let _timer = engine.time_write();
    let _guard = engine.enter_write()?;
    let target = engine.target(key);
    loop {
        let mut locked = lock_key(engine, target)?;
        // A record that is certainly needed is stored while the index is loaded. A record that is
        // probably needed is stored while the old record is loaded.
        let mut stored = None;
        if when == PutWhen::Always {
            stored = Some(engine.store_held(&mut locked, value, expiry)?);
        }
        let probe = engine.probe(&locked);
        if when == PutWhen::Present && engine.prefetch_old(&locked, &probe) {
            stored = Some(engine.store_held(&mut locked, value, expiry)?);
        }
        let old = match engine.find_old(&locked, &probe) {
            Ok(old) => old,
            Err(error) if when == PutWhen::Always => {
                if engine.clear_damage(&locked, &probe, &error, true) {
                    engine.free_stored(stored);
                    continue;
                }
                None
            }
            Err(error) => return Err(engine.discard_stored(stored, error)),
        };
        // A put replaces any old record.
        if when != PutWhen::Always {
            let present = match old.as_ref().map_or(Ok(false), |old| old.is_live()) {
                Ok(present) => present,
                Err(error) => return Err(engine.discard_stored(stored, error)),
            };
            if old.is_none()
                && let Err(error) = engine.check_miss(&locked)
            {
                engine.free_stored(stored);
                return Err(error.into());
            }
            if present == (when == PutWhen::Absent) {
                engine.free_stored(stored);
                return Ok(false);
            }
        }
        let new = match stored {
            Some(stored) => stored,
            None => engine.store_held(&mut locked, value, expiry)?,
        };
        if engine.publish(locked, probe, old, new)? {
            break;
        }
    }
    engine.pool.check()?;
    Ok(true)
}

/// Changes a key by the step that `decide` returns for its present value and expiry. `decide` runs
/// again if the write must restart.
pub(crate) fn change<E: Writes>(engine: &E, key: &[u8], decide: &mut Decide<'_, '_>) -> BoxedResult<()> {
    let _timer = engine.time_write();
    let _guard = engine.enter_write()?;
    let target = engine.target(key);
    loop {
        let mut locked = lock_key(engine, target)?;
        let probe = engine.probe(&locked);
        let old = engine.find_old(&locked, &probe).inspect_err(|error| engine.report_corruption(error))?;
        if old.is_none() {
            engine.check_miss(&locked)?;
        }
        let is_present = old.as_ref().map_or(Ok(false), |old| old.is_live())?;
        let live = old.as_ref().filter(|_| is_present);
        if let Some(found) = live
            && engine.verifies_reads()
        {
            found.record.check(found.record_at).inspect_err(|error| engine.report_corruption(error))?;
        }
        let (value, expiry) =
            match decide(live.map(|found| found.record.value()), live.and_then(|found| found.record.expiry())) {
                Step::Keep => return Ok(()),
                Step::Delete => {
                    if let Some(found) = live {
                        engine.unlink(&mut locked, found);
                    }
                    break;
                }
                Step::Put(value, expiry) => (value, expiry),
            };
        check_value(&value)?;
        let new = engine.store_held(&mut locked, &value, expiry)?;
        if engine.publish(locked, probe, old, new)? {
            break;
        }
    }
    engine.pool.check()?;
    Ok(())
}

/// Deletes a key of valid size. Returns whether a reader would have found it.
#[inline]
pub(crate) fn delete<E: Writes>(engine: &E, key: &[u8]) -> BoxedResult<bool> {
    let _timer = engine.time_write();
    let _guard = engine.enter_write()?;
    let mut locked = lock_key(engine, engine.target(key))?;
    let probe = engine.probe(&locked);
    let deleted = match engine.find_old(&locked, &probe) {
        // A damaged record is removed as well.
        Ok(Some(found)) if !matches!(found.is_live(), Ok(false)) => {
            engine.unlink(&mut locked, &found);
            true
        }
        Ok(Some(_)) => false,
        Ok(None) => {
            engine.check_miss(&locked)?;
            false
        }
        Err(error) if engine.clear_damage(&locked, &probe, &error, false) => true,
        Err(error) => return Err(engine.discard_stored(None, error)),
    };
    drop(locked);
    engine.pool.check()?;
    Ok(deleted)
}

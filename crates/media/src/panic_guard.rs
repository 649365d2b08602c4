//! A guard that poisons a pool if its thread panics in the middle of work.

use lodestore_contract::PoisonReason;

use crate::pool::Pool;

/// Poisons the pool if the guard is dropped by a panic: the work that it guards is half done, and
/// no other thread would finish it.
#[derive(Debug)]
pub struct PoisonOnPanic<'a> {
    pool: &'a Pool,
    cause: &'static str,
}

impl<'a> PoisonOnPanic<'a> {
    /// Guards work on `pool` until the guard is dropped. `cause` is the failure that refused writes
    /// name.
    pub fn new(pool: &'a Pool, cause: &'static str) -> Self {
        Self { pool, cause }
    }
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.pool.poison(PoisonReason::Panic, self.cause);
        }
    }
}

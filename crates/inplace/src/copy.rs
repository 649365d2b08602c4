//! Index-independent parts of copies of a whole store ([`lodestore_contract::copy`]).

use crate::base::Operation;

/// Stripes of type `H` that an operation of the copier holds.
pub struct HeldStripes<'a, H> {
    // Freed before the operation ends.
    _stripes: Vec<H>,
    _operation: Operation<'a>,
}

impl<'a, H> HeldStripes<'a, H> {
    /// Keeps stripes that were acquired after `operation` began.
    pub fn new(operation: Operation<'a>, stripes: impl IntoIterator<Item = H>) -> Self {
        Self { _stripes: stripes.into_iter().collect(), _operation: operation }
    }
}

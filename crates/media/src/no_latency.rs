//! The build without the feature `lab`: no latency is added.

use crate::options::PoolOptions;

/// No latency.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency;

impl Latency {
    pub(crate) fn of(_: &PoolOptions) -> Self {
        Self
    }

    #[inline]
    pub(crate) fn persisted(&self, _blocks: u64) {}

    #[inline]
    pub(crate) fn first_read(&self) {}
}

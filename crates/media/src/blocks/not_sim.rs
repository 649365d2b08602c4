//! The build without the feature `sim`. `sim.rs` has the same names.

use std::convert::Infallible;
use std::io;

use crate::pool::Pool;

/// The values file of a simulated pool: there is none.
#[derive(Debug)]
pub(super) struct SimFile(Infallible);

impl SimFile {
    pub(super) fn open(_pool: &Pool) -> Option<(Self, u64)> {
        None
    }

    pub(super) fn read(&self, _pool: &Pool, _at: u64, _into: &mut [u8]) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn write(&self, _pool: &Pool, _at: u64, _bytes: &[u8]) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn reserve(&self, _pool: &Pool) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn grow(&self, _pool: &Pool, _len: u64) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn shrink(&self, _pool: &Pool, _len: u64) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn punch(&self, _pool: &Pool, _at: u64, _len: u64) {
        match self.0 {}
    }

    pub(super) fn sync(&self, _pool: &Pool) -> io::Result<()> {
        match self.0 {}
    }
}

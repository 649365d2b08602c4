//! The build without the feature `sim`, in which no pool is simulated: see `simulated/mod.rs`.
//!
//! The methods do nothing of their own, so the compiler removes their calls. A type without values
//! stands for what only a simulated pool has.

use std::convert::Infallible;
use std::panic::Location;

use crate::fault::PlantedFault;
use crate::nvptr::NvPtr;

/// Observes nothing.
#[derive(Debug)]
pub(crate) struct Observer;

#[expect(clippy::unused_self, reason = "the observer of a simulated pool has state")]
impl Observer {
    pub(crate) const fn none() -> Self {
        Self
    }

    #[inline]
    pub(crate) fn is_simulated(&self) -> bool {
        false
    }

    #[inline]
    pub(crate) fn has_fault(&self, _fault: PlantedFault) -> bool {
        false
    }

    #[inline]
    pub(crate) fn is_unchecked(&self, _site: &Location<'_>) -> bool {
        false
    }

    #[inline]
    pub(crate) fn persists_sectors(&self) -> Option<bool> {
        None
    }

    #[inline]
    pub(crate) fn medium_bytes(&self) -> Option<u64> {
        None
    }

    #[inline]
    pub(crate) fn record_region(&self, _index: u16, _len: u64) {}

    #[inline]
    pub(crate) fn record_store(&self, _at: NvPtr, _bytes: &[u8]) {}

    #[inline]
    pub(crate) fn record_parts(&self, _at: NvPtr, _parts: &[&[u8]]) {}

    #[inline]
    pub(crate) fn record_zeros(&self, _at: NvPtr, _len: usize) {}

    #[inline]
    pub(crate) fn flush(&self, _at: NvPtr, _len: usize) -> Option<u64> {
        None
    }

    #[inline]
    pub(crate) fn fence(&self) -> bool {
        true
    }

    #[inline]
    pub(crate) fn change_word(&self, _at: NvPtr, _value: u64, change: impl FnOnce() -> bool) {
        change();
    }

    #[inline]
    pub(crate) fn change_pair(&self, _at: NvPtr, _pair: (u64, u64), change: impl FnOnce() -> bool) {
        change();
    }
}

/// The memory of a simulated region: there is none.
#[derive(Debug)]
pub(crate) struct Heap(Infallible);

impl Heap {
    pub(crate) fn new(_len: u64, _image: Option<&[u8]>) -> Option<Self> {
        None
    }

    pub(crate) fn base(&self) -> *mut u8 {
        match self.0 {}
    }

    pub(crate) fn len(&self) -> usize {
        match self.0 {}
    }
}

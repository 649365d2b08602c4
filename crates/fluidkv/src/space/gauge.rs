//! Counts the DRAM of tables.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::space::sizes::TABLE_BUILD_FACTOR;

/// Counts bytes of DRAM.
#[derive(Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts a table as being built while this value lives.
pub(crate) struct Building<'a>(&'a Gauge, u64);

impl<'a> Building<'a> {
    pub(crate) fn new(gauge: &'a Gauge, table_bytes: usize) -> Self {
        let bytes = TABLE_BUILD_FACTOR * table_bytes as u64;
        gauge.add(bytes);
        Self(gauge, bytes)
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.0.sub(self.1);
    }
}

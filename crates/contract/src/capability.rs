//! The optional capabilities of an engine.

/// The optional parts of the contract that an engine supports.
///
/// An operation whose capability is missing returns
/// [`Error::Unsupported`](crate::Error::Unsupported), whose text names an engine that supports the
/// operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Ordered `scan`, forward and backward.
    pub scan: bool,
    /// Atomic [`write(batch)`](crate::Store::write).
    pub batch: bool,
    /// Conditions on ranges of keys: [`write_if_ranges`](crate::Store::write_if_ranges).
    pub range_conditions: bool,
    /// Point-in-time `snapshot`.
    pub snapshot: bool,
    /// Per-key expiry.
    pub expiry: bool,
    /// `Durability::Power` on media that support it.
    pub power: bool,
    /// `Durability::Interval`.
    pub interval: bool,
    /// [`Stats::keys`](crate::Stats::keys) is an estimate, and
    /// [`VerifyReport::records`](crate::VerifyReport::records) also counts overwritten versions,
    /// because the engine writes without checking whether a key is present.
    /// [`Store::len`](crate::Store::len) is exact nevertheless.
    pub estimates: bool,
}

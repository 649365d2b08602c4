//! What an engine can do beyond the common core, named instead of guessed.

/// The optional parts of the contract that an engine offers.
///
/// An operation behind a capability that is not named here answers
/// [`Error::Unsupported`](crate::Error::Unsupported), whose text names an engine that has it.
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
    /// `Durability::Power` on media that can give it.
    pub power: bool,
    /// `Durability::Interval`.
    pub interval: bool,
    /// [`Stats::keys`](crate::Stats::keys) is an estimate, and [`VerifyReport::records`](crate::VerifyReport::records) counts versions that were
    /// overwritten as well: the engine writes without looking whether a key is there. [`Store::len`](crate::Store::len) counts exactly all the same.
    pub estimates: bool,
}

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
    /// Point-in-time `snapshot`.
    pub snapshot: bool,
    /// Per-key expiry.
    pub expiry: bool,
    /// `Durability::Power` on media that can give it.
    pub power: bool,
    /// `Durability::Interval`.
    pub interval: bool,
}

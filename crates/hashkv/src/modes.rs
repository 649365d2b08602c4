//! The baselines of the paper's evaluation, in builds with the feature `lab`.

/// Placement of values and selection of garbage: the paper's design and its baselines. A store may
/// be opened with another mode each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Values go to groups of segments by the hash of their keys. Groups with most garbage are
    /// collected (HashKV, ATC 2018).
    #[default]
    Hash,
    /// Values go to one circular log. The oldest segments are collected, whatever their garbage
    /// (vLog: WiscKey, FAST 2016).
    Vlog,
    /// Values are not separated: keys and values are in the LSM.
    Nosep,
}

//! Sizes of the nodes, chosen by measurement (docs/results/index.md).

/// Entries in a leaf. 64 * 12 bytes fill 12 cache lines; the header fills one.
pub(crate) const LEAF_ENTRIES_MAX: usize = 64;
/// Separators in an inner node.
pub(crate) const INNER_SEPARATORS_MAX: usize = 128;
/// Bytes of separators (shared prefix not counted) above which an inner node is split as well.
pub(crate) const INNER_TAIL_BYTES_MAX: usize = 64 << 10;
/// A shrinking leaf looks for a neighbour to merge with when its count is a multiple of this.
pub(crate) const LEAF_MERGE_STEP_ENTRIES: usize = 4;

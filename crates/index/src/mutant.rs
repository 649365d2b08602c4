//! Names of the faults that the models plant (see `sync`).

/// A planted fault. The models must fail when it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A reader trusts the data without validating the version.
    ReadUnvalidated,
    /// A writer unlocks a latch without a new version.
    VersionKept,
    /// A writer's data stores may become visible before its lock.
    LockUnfenced,
    /// A descent does not check that the parent is still live after it read the leaf's version.
    ParentUnchecked,
    /// A split unlocks the leaf before the old parent is marked.
    LeafUnlockedEarly,
    /// A merge unlocks the emptied leaf without marking it, and leaves its parent live.
    MergedParentKept,
    /// A new inner node can be locked before the node that it replaces is marked.
    NewNodeUnlockedEarly,
    /// The node that a merge creates can be locked before the two that it replaces are marked.
    JoinedNodeUnlockedEarly,
    /// A scan that must descend again starts at the leaf's upper bound.
    ScanSkipsLeaf,
}

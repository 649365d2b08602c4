//! Names of the faults that the models plant (see `sync`).

/// One planted fault each; the models must fail when it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A reader believes what it read without looking at the version again.
    ReadUnvalidated,
    /// A writer lets go of a latch without a new version.
    VersionKept,
    /// A writer's data stores may be seen before its lock.
    LockUnfenced,
    /// A descent does not look whether the parent still stands after it took the leaf's version.
    ParentUnchecked,
    /// A split lets go of the leaf before the old parent is marked.
    LeafFreedEarly,
    /// A merge lets go of the emptied leaf without marking it, and its parent stands.
    MergedParentStands,
    /// A new inner node can be locked before the node that it replaces is marked.
    NewNodeUnlockedEarly,
    /// The node that a merge makes can be locked before the two that it replaces are marked.
    JoinedNodeUnlockedEarly,
    /// A scan that must descend again starts at the leaf's upper bound.
    ScanSkipsLeaf,
}

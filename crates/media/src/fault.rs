//! The name of a planted fault: an error built in for tests, which the explorers must detect.
//!
//! A crate with faults in its own logic lists their names in its `planted.rs`. The code that a
//! fault changes asks [`Pool::has_fault`](crate::Pool::has_fault), which is a constant `false`
//! without the feature `sim`. A fault that drops a flush, a fence, a sync or a check needs no such
//! code: the simulator finds the statement by its text (`fault/site.rs`).

#[cfg_attr(not(feature = "sim"), path = "fault/no_site.rs")]
pub(crate) mod site;

use std::fmt;

use site::Change;

/// A planted fault. Two faults of one name are the same fault.
#[derive(Clone, Copy)]
pub struct PlantedFault {
    name: &'static str,
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "only the recorder reads it"))]
    changes: &'static [Change],
}

impl PlantedFault {
    /// Returns the fault with this name, which changes the code that asks for it.
    pub const fn new(name: &'static str) -> Self {
        Self { name, changes: &[] }
    }

    /// Returns the fault with this name, which also changes steps of the recorder.
    #[cfg(feature = "sim")]
    pub const fn at(name: &'static str, changes: &'static [Change]) -> Self {
        Self { name, changes }
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns the changed steps of the recorder.
    #[cfg(feature = "sim")]
    pub const fn changes(self) -> &'static [Change] {
        self.changes
    }
}

impl PartialEq for PlantedFault {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for PlantedFault {}

impl fmt::Debug for PlantedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

//! Faults of a server, planted from outside, that the checks must find.

use std::fs;
use std::path::PathBuf;

use super::{Plan, run};

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A kill loses the acknowledged writes of its round.
    OlderStore,
    /// One of two keys of a `MULTI` is written alone.
    HalfTransaction,
    /// An acknowledged field of a large hash is lost.
    LostField,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 3] = [Self::OlderStore, Self::HalfTransaction, Self::LostField];

    /// Whether a violation is the one that the fault causes.
    fn explains(self, violation: &str) -> bool {
        match self {
            Self::OlderStore => violation.contains("is acknowledged") || violation.contains("linearization"),
            Self::HalfTransaction => violation.contains("a pair has"),
            Self::LostField => violation.contains("hash, field") && violation.contains("is acknowledged"),
        }
    }
}

/// Runs a plan with a fault. Returns the violation that the checks found, or `None` if they found
/// nothing. The directory is removed.
///
/// # Errors
///
/// A violation that the fault does not explain.
pub fn is_seen(plan: &Plan, fault: Fault) -> Result<Option<String>, String> {
    let result = run(&Plan { fault: Some(fault), ..plan.clone() });
    if let Err(violation) = &result
        && !fault.explains(violation)
    {
        return result.map(|_| None);
    }
    if plan.dir.exists() {
        fs::remove_dir_all(&plan.dir).map_err(|error| format!("{}: {error}", plan.dir.display()))?;
    }
    Ok(result.err())
}

fn directories(plan: &Plan) -> [PathBuf; 2] {
    ["store", "older"].map(|name| plan.dir.join(name))
}

/// Copies the store as a round finds it.
pub(super) fn copy_store(plan: &Plan) -> Result<(), String> {
    let [store, older] = directories(plan);
    let copy = || -> std::io::Result<()> {
        fs::create_dir(&older)?;
        for file in fs::read_dir(&store)? {
            let file = file?;
            fs::copy(file.path(), older.join(file.file_name()))?;
        }
        Ok(())
    };
    copy().map_err(|error| format!("{}: {error}", older.display()))
}

/// Replaces the store by the copy.
pub(super) fn put_back_store(plan: &Plan) -> Result<(), String> {
    let [store, older] = directories(plan);
    let put_back = || fs::remove_dir_all(&store).and_then(|()| fs::rename(&older, &store));
    put_back().map_err(|error| format!("{}: {error}", store.display()))
}

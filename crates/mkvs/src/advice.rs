//! Advice for a matrix whose own store is lost. The stores of its devices hold the pairs.

use std::path::{Path, PathBuf};

use lodestore_contract::Error;

use crate::places::Part;

/// Returns the default directory of a device, relative to the matrix's.
pub(crate) fn default_path(group: usize, index: usize) -> PathBuf {
    PathBuf::from(format!("group{group}.device{index}"))
}

/// Returns the advice to read the devices' own stores.
pub(crate) fn export_devices(root: &Path) -> String {
    let device = first_device(root).join(Part::Device.directory());
    format!(
        "export the store of one device of each group (`Db::builder(\"{}\").salvage(true)`) and import the exports \
         into a new store",
        device.display()
    )
}

/// Adds advice about the devices' stores to the error of a damaged or missing host's store.
#[must_use]
pub fn explain_host(root: &Path, error: Error) -> Error {
    match error {
        Error::Corrupt { place, what, hidden } => {
            let what = format!(
                "{what}. This is the matrix's own store; the stores of its devices have the pairs. Restore it from a \
                 copy; without a copy, {}",
                export_devices(root)
            );
            Error::hiding(format!("{}: {place}", root.join(Part::Host.directory()).display()), what, hidden)
        }
        other => other,
    }
}

/// Returns the default directory of the first device of the first group.
#[must_use]
pub fn first_device(root: &Path) -> PathBuf {
    root.join(default_path(0, 0))
}

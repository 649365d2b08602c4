//! The names of the files in a store's directory: `LOCK`, `pool.0000`, `pool.0001`, ...,
//! `values.0000`, and the notes of the layers above.
//!
//! `files.rs` says what each name means for a creation, an open and a removal.

/// The lock file of a store.
pub(crate) const LOCK_FILE: &str = "LOCK";
/// The values file of a store.
pub(crate) const VALUES_FILE: &str = "values.0000";
/// Files that the layers above add to the directory of a store. No open of a pool needs them.
pub const NOTE_FILES: [&str; 3] = ["CHOICE", "CHOICE.new", "BACKUP"];

/// Returns the name of the file of region `index`.
pub(crate) fn region_name(index: u16) -> String {
    format!("pool.{index:04}")
}

/// Returns the name of the file of region `index` before it is whole.
pub(crate) fn unfinished_name(index: u16) -> String {
    format!("pool.{index:04}.new")
}

/// Returns the index in the name of an unfinished region.
pub(crate) fn unfinished_index(name: &str) -> Option<u16> {
    let digits = name.strip_prefix("pool.")?.strip_suffix(".new")?;
    let index = digits.parse().ok()?;
    (format!("{index:04}") == digits).then_some(index)
}

/// Returns the index in the name of a region.
pub(crate) fn region_index(name: &str) -> Option<u16> {
    let index = name.strip_prefix("pool.")?.parse().ok()?;
    (region_name(index) == name).then_some(index)
}

/// Returns whether a store has a file of this name.
pub(crate) fn is_data_file(name: &str) -> bool {
    name == VALUES_FILE || region_index(name).is_some()
}

/// Returns whether a file of this name may be in the directory of a store.
pub(crate) fn is_file_of_store(name: &str) -> bool {
    name == LOCK_FILE || is_data_file(name) || unfinished_index(name).is_some() || NOTE_FILES.contains(&name)
}

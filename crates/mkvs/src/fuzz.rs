//! The parsers of this crate, bytes in, for `fuzz/` and its tests. No part of the interface: built with the feature `fuzz` only.

use crate::filter::Filter;
use crate::label::Label;
use crate::layout::{CleanRecord, DeviceRecord, Matrix, VERSION};
use crate::operation::Operation;

/// Reads bytes as each value that a matrix has in stores, as they are and with a right version. What is read must be what would be written. How many were read.
///
/// # Panics
/// If it is not.
pub fn parts(bytes: &[u8]) -> usize {
    let mut known = bytes.to_vec();
    known.splice(..known.len().min(2), VERSION.to_le_bytes());
    [bytes, &known].into_iter().map(|bytes| records(bytes) + operation(bytes) + filter(bytes) + label(bytes)).sum()
}

fn records(bytes: &[u8]) -> usize {
    let matrix = Matrix::decode(bytes).map(|matrix| assert_eq!(Matrix::decode(&matrix.encode()).ok(), Some(matrix)));
    let clean = CleanRecord::decode(bytes).map(|clean| assert_eq!(clean.encode(), bytes, "what a clean stop leaves"));
    let device =
        DeviceRecord::decode(bytes).map(|device| assert_eq!(DeviceRecord::decode(&device.encode()).ok(), Some(device)));
    [matrix.is_ok(), clean.is_ok(), device.is_ok()].into_iter().filter(|read| *read).count()
}

/// Of an entry whose value stands apart, the end of the bytes is taken for that.
fn operation(bytes: &[u8]) -> usize {
    let Ok(operation) = Operation::decode(bytes, || Ok(Some(bytes[bytes.len() / 2..].to_vec()))) else { return 0 };
    assert_eq!(Operation::seq_of(bytes).ok(), Some(operation.seq), "its number by itself");
    assert_eq!(Operation::epoch_of(bytes).ok(), Some(operation.epoch), "its epoch by itself");
    let (entry, apart) = operation.encode();
    let again = Operation::decode(&entry, || Ok(apart.map(<[u8]>::to_vec)));
    assert_eq!(again.ok(), Some(operation), "an operation");
    1
}

/// The first bytes, as they are.
fn label(bytes: &[u8]) -> usize {
    let Some(label) = Label::decode(&bytes[..bytes.len().min(48)]) else { return 0 };
    assert_eq!(label.encode()[..], bytes[..48], "a label");
    1
}

/// A filter of as many keys as the first bytes say, whose counters are the others.
fn filter(bytes: &[u8]) -> usize {
    let keys = u64::from(bytes.first().copied().unwrap_or(0)) * 16;
    let Some(filter) = Filter::from_bytes(keys, bytes) else { return 0 };
    assert_eq!(filter.to_bytes(), bytes, "a filter");
    1
}

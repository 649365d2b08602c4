//! The parsers of this crate with bytes as input, for `fuzz/` and its tests. Not part of the
//! interface: built only with the feature `fuzz`.

use crate::codec::VERSION;
use crate::filter::Filter;
use crate::label::Label;
use crate::layout::{CleanRecord, DeviceRecord, Matrix};
use crate::operation::Operation;

/// Decodes bytes as each value that a matrix stores, unchanged and with a valid version. Each
/// decoded value must encode to the same bytes or decode equally again. Returns the number of
/// decoded values.
///
/// # Panics
/// If a value does not.
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

/// For an entry with a separate value, the second half of the bytes is the value.
fn operation(bytes: &[u8]) -> usize {
    let Ok(operation) = Operation::decode(bytes, || Ok(Some(bytes[bytes.len() / 2..].to_vec()))) else { return 0 };
    assert_eq!(Operation::seq_of(bytes).ok(), Some(operation.seq), "its number by itself");
    assert_eq!(Operation::epoch_of(bytes).ok(), Some(operation.epoch), "its epoch by itself");
    let (entry, separate) = operation.encode();
    let again = Operation::decode(&entry, || Ok(separate.map(<[u8]>::to_vec)));
    assert_eq!(again.ok(), Some(operation), "an operation");
    1
}

/// The first 48 bytes, unchanged.
fn label(bytes: &[u8]) -> usize {
    let Some(label) = Label::decode(&bytes[..bytes.len().min(48)]) else { return 0 };
    assert_eq!(label.encode()[..], bytes[..48], "a label");
    1
}

/// A filter for 16 keys per unit of the first byte; all bytes are its counters.
fn filter(bytes: &[u8]) -> usize {
    let keys = u64::from(bytes.first().copied().unwrap_or(0)) * 16;
    let Some(filter) = Filter::from_bytes(keys, bytes) else { return 0 };
    assert_eq!(filter.to_bytes(), bytes, "a filter");
    1
}

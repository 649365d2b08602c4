//! Target of `mkvs`: the values that a matrix has in stores of other engines, whose own targets have the rest.

/// The description, a device's record, what a clean stop leaves, a log's entry, a filter: each by itself. How many of these were read.
pub fn parts(data: &[u8]) -> usize {
    lodestore_mkvs::fuzz::parts(data)
}

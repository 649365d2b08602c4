//! Target of `mkvs`: the values of a matrix in stores of other engines. The other engines' own
//! targets cover the rest.

/// Parses the description, a device's record, the record of a clean stop, a log's entry, and a
/// filter, each separately. Returns the number of parsed ones.
pub fn parts(data: &[u8]) -> usize {
    lodestore_mkvs::fuzz::parts(data)
}

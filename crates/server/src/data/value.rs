//! A value with its type, as the store holds it.
//!
//! ```text
//! byte 0      type: 0 string, 1 small hash, 2 large hash
//! byte 1..    the string, or the hash (module `hash`)
//! ```
//!
//! Types 3 to 255 are free for other collections. A server that does not know a type refuses
//! commands on the key and changes nothing.

/// Type byte of a string.
const STRING_TYPE_ID: u8 = 0;

/// Type byte of a hash that is one record.
pub(crate) const SMALL_HASH_TYPE_ID: u8 = 1;

/// Type byte of a hash whose fields are separate records.
pub(crate) const LARGE_HASH_TYPE_ID: u8 = 2;

/// A value as the store holds it, by its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored<'a> {
    /// A string.
    String(&'a [u8]),
    /// The whole record of a hash, for [`HashRecord::parse`](super::hash::HashRecord::parse).
    Hash(&'a [u8]),
    /// A type that this version does not know, or a value without a type.
    Unknown,
}

impl<'a> Stored<'a> {
    /// Reads the type of a value.
    pub(crate) fn parse(stored: &'a [u8]) -> Self {
        match stored {
            [STRING_TYPE_ID, string @ ..] => Self::String(string),
            [SMALL_HASH_TYPE_ID | LARGE_HASH_TYPE_ID, ..] => Self::Hash(stored),
            _ => Self::Unknown,
        }
    }

    /// Returns the name that `TYPE` answers.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::Hash(_) => "hash",
            Self::Unknown => "unknown",
        }
    }
}

/// Returns the bytes that the store holds for a string.
pub(crate) fn encode_string(string: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(1 + string.len());
    stored.push(STRING_TYPE_ID);
    stored.extend_from_slice(string);
    stored
}

/// Longest string in bytes that the server stores. Redis has the same bound.
pub(crate) const STRING_BYTES_MAX: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_read_as_it_was_written() {
        for string in [&b""[..], b"a", b"\0\xff"] {
            assert_eq!(Stored::parse(&encode_string(string)), Stored::String(string));
        }
    }

    #[test]
    fn other_bytes_have_no_known_type() {
        for stored in [&b""[..], b"\x80abc", b"abc"] {
            assert_eq!(Stored::parse(stored), Stored::Unknown);
        }
    }
}

//! The names of the keys of all keyspaces, and of the keyspaces themselves, in one ordered map, the
//! model.
//!
//! ```text
//! 01 "keyspace " name 00 key    a key of a named keyspace
//! 02 "keyspace "                the next id; from the first creation on
//! 02 "keyspace " name           a keyspace that exists; the value is its id
//! any other key                 a key of the default keyspace
//! ```

/// Bytes before a name and a key.
const NAMED: &[u8] = b"\x01keyspace ";
/// Bytes before the name of a keyspace that exists.
const EXISTS: &[u8] = b"\x02keyspace ";
/// The key of the model for the next id.
pub const NEXT_ID: &[u8] = EXISTS;
/// The id of the first named keyspace.
pub const FIRST_ID: u32 = 2;

/// The meaning of a key of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// A key of the default keyspace.
    Default(&'a [u8]),
    /// A key of the keyspace of this name.
    Named(&'a str, &'a [u8]),
    /// The keyspace of this name.
    Exists(&'a str),
    /// The next id.
    NextId,
}

/// Returns the key of the model for a keyspace.
pub fn exists(name: &str) -> Vec<u8> {
    [EXISTS, name.as_bytes()].concat()
}

/// Returns the key of the model for a key of a named keyspace.
pub fn key_in(name: &str, key: &[u8]) -> Vec<u8> {
    [NAMED, name.as_bytes(), b"\0", key].concat()
}

/// Returns the meaning of a key of the model.
pub fn place(key: &[u8]) -> Place<'_> {
    if key == NEXT_ID {
        return Place::NextId;
    }
    if let Some(name) = key.strip_prefix(EXISTS) {
        return std::str::from_utf8(name).map_or(Place::Default(key), Place::Exists);
    }
    let named = key.strip_prefix(NAMED).and_then(|rest| {
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some((std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]))
    });
    named.map_or(Place::Default(key), |(name, key)| Place::Named(name, key))
}

/// Returns whether a key of the model is a key of the store.
pub fn is_stored(key: &[u8]) -> bool {
    matches!(place(key), Place::Default(_) | Place::Named(..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_as_they_were_made() {
        assert_eq!(place(&key_in("a", b"k\0")), Place::Named("a", b"k\0"));
        assert_eq!(place(&exists("a")), Place::Exists("a"));
        assert_eq!(place(NEXT_ID), Place::NextId);
        assert_eq!(place(b"\xff\xff\x02k"), Place::Default(b"\xff\xff\x02k"));
        let sorted =
            [key_in("a", b"\xff"), key_in("ab", b""), NEXT_ID.to_vec(), exists("a"), exists("b"), b"a".to_vec()];
        assert!(sorted.is_sorted(), "names, then keyspaces, then the default keyspace");
    }
}

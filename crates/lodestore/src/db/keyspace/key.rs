//! The mapping of the keys of all keyspaces to the keys of one store.
//!
//! ```text
//! default keyspace, key does not begin with FF FF     key
//! default keyspace, key begins with FF FF             FF FF 01 key
//! keyspace with an id of 2 or more                    FF FF id key
//! catalogue                                           FF FF 00 kind ...
//!
//! id    00..F7              one byte, the id itself
//!       F7+n  b1 .. bn      n bytes (1 to 4), most significant first; b1 is not 00
//! ```
//!
//! 1. Encoded ids are prefix-free, and sort as the ids do. No stored key begins with FF FF FC or
//!    more.
//! 2. The stored keys of one keyspace sort as the user's keys do. A named keyspace is one
//!    range of the store. The default keyspace is two ranges: below FF FF, and FF FF 01.
//! 3. A user's key has one stored key, and a stored key belongs to one keyspace.
//!
//! See docs/format/keyspaces.md.

use std::ops::{Bound, Deref};

use lodestore_contract::limits::{KEY_MAX, KEY_MIN};
use lodestore_contract::{Error, Result, ScanRange};

/// The first bytes of all stored keys that are not plain keys of the default keyspace.
pub(in crate::db) const RESERVED: [u8; 2] = [0xFF, 0xFF];
/// The id of the catalogue.
pub(in crate::db) const CATALOGUE_ID: u32 = 0;
/// The id of the default keyspace.
const DEFAULT_ID: u32 = 1;
/// The smallest id of a named keyspace.
pub(in crate::db) const NAMED_ID_MIN: u32 = 2;

/// The largest id that is encoded in one byte.
const ONE_BYTE_ID_MAX: u8 = 0xF7;
/// Maximum bytes of an encoded id.
const ID_BYTES_MAX: usize = 1 + size_of::<u32>();
/// Maximum bytes before the user's key.
const PREFIX_BYTES_MAX: usize = RESERVED.len() + ID_BYTES_MAX;
/// Maximum bytes of a key that is stored with a prefix.
const PREFIXED_KEY_MAX: usize = KEY_MAX - PREFIX_BYTES_MAX;
/// Stored keys of at most this many bytes are built without an allocation.
const SHORT_KEY_BYTES_MAX: usize = 120;

/// The bytes before the user's key in a stored key.
#[derive(Clone, Copy)]
struct Prefix {
    bytes: [u8; PREFIX_BYTES_MAX],
    len: usize,
}

impl Prefix {
    fn of(id: u32) -> Self {
        let mut prefix = Self { bytes: [0; PREFIX_BYTES_MAX], len: 0 };
        RESERVED.into_iter().for_each(|byte| prefix.push(byte));
        match u8::try_from(id) {
            Ok(byte) if byte <= ONE_BYTE_ID_MAX => prefix.push(byte),
            _ => {
                let bytes = u32::BITS.div_ceil(8) - id.leading_zeros() / 8;
                prefix.push(ONE_BYTE_ID_MAX + bytes as u8);
                (0..bytes).rev().for_each(|byte| prefix.push((id >> (8 * byte)) as u8));
            }
        }
        prefix
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }
}

impl Deref for Prefix {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the prefix of all stored keys of a keyspace with this id, except plain keys.
pub(in crate::db) fn prefix_of(id: u32) -> Vec<u8> {
    Prefix::of(id).to_vec()
}

/// Returns the id in a stored key; `None` for a plain key of the default keyspace, and for a key
/// that this module does not make.
pub(in crate::db) fn id_of(stored: &[u8]) -> Option<u32> {
    let rest = stored.strip_prefix(&RESERVED)?;
    let (&first, rest) = rest.split_first()?;
    if first <= ONE_BYTE_ID_MAX {
        return Some(u32::from(first));
    }
    let digits = rest.get(..usize::from(first - ONE_BYTE_ID_MAX)).filter(|digits| digits.len() <= size_of::<u32>())?;
    let id = digits.iter().fold(0, |id, digit| id << 8 | u32::from(*digit));
    stored.starts_with(&Prefix::of(id)).then_some(id)
}

/// A stored key.
pub(in crate::db) enum StoredKey<'a> {
    /// The user's key itself.
    Plain(&'a [u8]),
    /// A key with a prefix.
    Short { bytes: [u8; SHORT_KEY_BYTES_MAX], len: usize },
    /// A key with a prefix that is too long for [`StoredKey::Short`].
    Long(Vec<u8>),
}

impl StoredKey<'_> {
    fn joined(prefix: &[u8], key: &[u8]) -> Self {
        let len = prefix.len() + key.len();
        if len > SHORT_KEY_BYTES_MAX {
            return Self::Long([prefix, key].concat());
        }
        let mut bytes = [0; SHORT_KEY_BYTES_MAX];
        bytes[..prefix.len()].copy_from_slice(prefix);
        bytes[prefix.len()..len].copy_from_slice(key);
        Self::Short { bytes, len }
    }
}

impl Deref for StoredKey<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Plain(key) => key,
            Self::Short { bytes, len } => &bytes[..*len],
            Self::Long(bytes) => bytes,
        }
    }
}

/// A part of a user's range that is one range of the store.
#[derive(Clone)]
pub(in crate::db) struct StoredRange {
    /// The range of stored keys.
    pub(in crate::db) range: ScanRange,
    /// The bytes before the user's key in each of them.
    pub(in crate::db) prefix_len: usize,
}

/// The mapping between the user's keys of one keyspace and stored keys.
#[derive(Clone, Copy)]
pub(in crate::db) struct KeyMap {
    prefix: Prefix,
    /// Whether keys that do not begin with [`RESERVED`] are stored without the prefix.
    has_plain_keys: bool,
}

impl KeyMap {
    /// Returns the mapping of the default keyspace.
    pub(in crate::db) fn of_default() -> Self {
        Self { prefix: Prefix::of(DEFAULT_ID), has_plain_keys: true }
    }

    /// Returns the mapping of a named keyspace.
    pub(in crate::db) fn of_named(id: u32) -> Self {
        Self { prefix: Prefix::of(id), has_plain_keys: false }
    }

    /// Returns whether `key` is stored unchanged.
    #[inline]
    pub(in crate::db) fn is_plain(&self, key: &[u8]) -> bool {
        self.has_plain_keys && !key.starts_with(&RESERVED)
    }

    /// Returns the stored key of the user's `key`.
    ///
    /// # Errors
    /// [`Error::KeyLength`]. The engine checks plain keys.
    #[inline]
    pub(in crate::db) fn encode_key<'a>(&self, key: &'a [u8]) -> Result<StoredKey<'a>> {
        if self.is_plain(key) {
            return Ok(StoredKey::Plain(key));
        }
        // The bound is the same for all ids, so that no later keyspace refuses a key.
        if !(KEY_MIN..=PREFIXED_KEY_MAX).contains(&key.len()) {
            return Err(Error::KeyLength { len: key.len(), max: PREFIXED_KEY_MAX });
        }
        Ok(StoredKey::joined(&self.prefix, key))
    }

    /// Returns the user's key of a stored key; `None` if the key belongs to another keyspace.
    #[inline]
    pub(in crate::db) fn decode_key<'a>(&self, stored: &'a [u8]) -> Option<&'a [u8]> {
        if self.is_plain(stored) { Some(stored) } else { stored.strip_prefix(&*self.prefix) }
    }

    /// Returns the ranges of stored keys of the user's range, in the order of their keys. They keep
    /// its direction and its limit. A part that excludes all keys is left out.
    pub(in crate::db) fn split_range(&self, range: &ScanRange) -> Vec<StoredRange> {
        let of = |from, to| ScanRange { from, to, direction: range.direction, limit: range.limit };
        let mut parts = Vec::with_capacity(2);
        if self.has_plain_keys {
            parts.push(StoredRange { range: of(range.from.clone(), below_reserved(&range.to)), prefix_len: 0 });
        }
        let from_reserved = match &range.from {
            Bound::Included(key) | Bound::Excluded(key) if self.is_plain(key) => &Bound::Unbounded,
            from => from,
        };
        let ends_before = matches!(&range.to, Bound::Included(key) | Bound::Excluded(key) if self.is_plain(key));
        if !ends_before {
            let whole = ScanRange::prefix(&self.prefix);
            let prefixed = |bound: &Bound<Vec<u8>>, open: Bound<Vec<u8>>| match bound {
                Bound::Included(key) => Bound::Included([&self.prefix, &key[..]].concat()),
                Bound::Excluded(key) => Bound::Excluded([&self.prefix, &key[..]].concat()),
                Bound::Unbounded => open,
            };
            let (from, to) = (prefixed(from_reserved, whole.from), prefixed(&range.to, whole.to));
            parts.push(StoredRange { range: of(from, to), prefix_len: self.prefix.len() });
        }
        parts.retain(|part| !part.range.excludes_all());
        parts
    }
}

/// Returns the lower one of `to` and the end of all plain keys.
fn below_reserved(to: &Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match to {
        Bound::Included(key) | Bound::Excluded(key) if !key.starts_with(&RESERVED) => to.clone(),
        _ => Bound::Excluded(RESERVED.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;

    /// Ids around each change of the encoded length, in order.
    const IDS: [u32; 14] =
        [0, 1, 2, 0x7F, 0x80, 0xF7, 0xF8, 0xFF, 0x100, 0xFFFF, 0x1_0000, 0xFF_FFFF, 0x100_0000, u32::MAX];

    #[test]
    fn ids_are_decoded_and_their_prefixes_sort_as_they_do_and_are_prefix_free() {
        for pair in IDS.windows(2) {
            let (low, high) = (prefix_of(pair[0]), prefix_of(pair[1]));
            assert!(low < high && !high.starts_with(&low), "{low:?} {high:?}");
        }
        for id in IDS {
            assert_eq!(id_of(&prefix_of(id)), Some(id));
            assert_eq!(id_of(&[&prefix_of(id)[..], b"\0key"].concat()), Some(id));
        }
        assert_eq!(prefix_of(u32::MAX), [0xFF, 0xFF, 0xFB, 0xFF, 0xFF, 0xFF, 0xFF]);
    }

    #[test]
    fn keys_that_no_keyspace_has_have_no_id() {
        for odd in [
            &b"\xff\xff"[..],
            b"\xff",
            b"",
            b"ab",
            b"\xff\xff\xfc\x01\x01\x01\x01\x01",
            b"\xff\xff\xf8",
            b"\xff\xff\xf8\x05",
        ] {
            assert_eq!(id_of(odd), None, "{odd:?}");
        }
        assert_eq!(id_of(b"\xff\xff\xf9\0\xf8"), None, "an id with a leading zero");
    }

    #[test]
    fn keys_are_decoded_only_by_their_own_keyspace_and_keep_their_order() {
        let keys: [&[u8]; 9] = [
            b"\0",
            b"a",
            b"\xfe\xff",
            b"\xff",
            b"\xff\xfe\xff",
            b"\xff\xff",
            b"\xff\xff\0",
            b"\xff\xff\x01a",
            b"\xff\xff\xff",
        ];
        let maps = [KeyMap::of_default(), KeyMap::of_named(2), KeyMap::of_named(0x1234)];
        for (at, map) in maps.iter().enumerate() {
            let stored = keys.map(|key| map.encode_key(key).expect("a key").to_vec());
            assert!(stored.is_sorted());
            for (key, stored) in keys.iter().zip(&stored) {
                for (other, map) in maps.iter().enumerate() {
                    assert_eq!(map.decode_key(stored), (other == at).then_some(*key));
                }
            }
        }
        assert_eq!(&*KeyMap::of_default().encode_key(b"\xff\xff\x02").expect("a key"), b"\xff\xff\x01\xff\xff\x02");
    }

    #[test]
    fn keys_have_the_same_bound_in_all_keyspaces() {
        let named = KeyMap::of_named(2);
        for map in [named, KeyMap::of_named(u32::MAX)] {
            assert!(map.encode_key(&vec![0; 65_529]).is_ok());
        }
        let refused = |map: KeyMap, key: &[u8]| match map.encode_key(key) {
            Err(Error::KeyLength { len, max: 65_529 }) => len,
            _ => panic!("a key of {} bytes", key.len()),
        };
        assert_eq!(refused(named, &vec![0; 65_530]), 65_530);
        assert_eq!(refused(KeyMap::of_default(), &vec![0xFF; KEY_MAX]), KEY_MAX);
        assert_eq!(refused(named, b""), 0);
    }

    #[test]
    fn the_parts_of_a_range_hold_the_stored_keys_of_its_keys_and_no_others() {
        let keys: Vec<Vec<u8>> =
            [&b"\0"[..], b"\xfe", b"\xff", b"\xff\xfe", b"\xff\xff", b"\xff\xff\0", b"\xff\xff\x01", b"\xff\xff\xff"]
                .iter()
                .map(|key| key.to_vec())
                .collect();
        let bounds: Vec<Bound<Vec<u8>>> = keys
            .iter()
            .flat_map(|key| [Bound::Included(key.clone()), Bound::Excluded(key.clone())])
            .chain([Bound::Unbounded])
            .collect();
        let maps = [KeyMap::of_default(), KeyMap::of_named(2), KeyMap::of_named(3)];
        for (from, to) in bounds.iter().flat_map(|from| bounds.iter().map(move |to| (from, to))) {
            let range = ScanRange { from: from.clone(), to: to.clone(), ..ScanRange::all() };
            for (at, map) in maps.iter().enumerate() {
                let parts = map.split_range(&range);
                for (other, stored) in maps.iter().enumerate() {
                    for key in &keys {
                        let stored = stored.encode_key(key).expect("a key");
                        let holds = parts.iter().filter(|part| part.range.contains(&stored));
                        let shown: Vec<&[u8]> = holds.map(|part| &stored[part.prefix_len..]).collect();
                        let is_in = other == at && range.contains(key) && !range.excludes_all();
                        assert_eq!(shown, if is_in { vec![&key[..]] } else { vec![] }, "{range:?} {key:?}");
                    }
                }
            }
        }
    }
}

//! The records of hashes.
//!
//! A small hash is one record, with its fields in the order of their first writes. A large hash is
//! one element per field (module `collections`), and a record that names the elements. All bytes
//! are described in `docs/format/server.md`.
//!
//! ```text
//! small hash                              large hash
//! byte 0      type: 1                     byte 0       type: 2
//! byte 1..    number of fields n, varint  bytes 1..9   number of the collection, u64
//! then n times                            bytes 9..17  number of fields, u64
//!             length of the field, varint
//!             field
//!             length of the value, varint
//!             value
//! ```
//!
//! A hash becomes large when it has more than [`SMALL_FIELDS_MAX`] fields or its record has more
//! than [`SMALL_BYTES_MAX`] bytes. The bounds keep the cost of a change of a small hash below a few
//! microseconds, since each change writes the whole record. A large hash stays large.

use super::collections::CollectionId;
use super::value::{LARGE_HASH_TYPE_ID, SMALL_HASH_TYPE_ID};

/// Most fields of a small hash. Redis changes its own encoding at the same number.
pub(crate) const SMALL_FIELDS_MAX: usize = 128;

/// Most bytes of the record of a small hash.
pub(crate) const SMALL_BYTES_MAX: usize = 8 << 10;

/// Bytes of the record of a large hash.
const LARGE_RECORD_BYTES: usize = 17;

/// Most bytes of an encoded length: 7 bits each, for 32 bits.
const VARINT_BYTES_MAX: usize = 5;

/// A record of a hash whose bytes do not fit the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The record of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HashRecord<'a> {
    Small(SmallHash<'a>),
    Large(LargeHash),
}

/// The fields of a small hash. Their bytes are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SmallHash<'a> {
    count: usize,
    pairs: &'a [u8],
}

/// The location of the fields of a large hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LargeHash {
    /// The collection that has the fields.
    pub(crate) id: CollectionId,
    /// Number of fields.
    pub(crate) count: u64,
}

impl<'a> HashRecord<'a> {
    /// Reads a record, and checks all of its bytes.
    ///
    /// # Errors
    ///
    /// [`Malformed`].
    pub(crate) fn parse(stored: &'a [u8]) -> Result<Self, Malformed> {
        match stored {
            [SMALL_HASH_TYPE_ID, rest @ ..] => SmallHash::parse(rest).map(Self::Small),
            [LARGE_HASH_TYPE_ID, ..] => LargeHash::parse(stored).map(Self::Large),
            _ => Err(Malformed),
        }
    }
}

impl<'a> SmallHash<'a> {
    fn parse(mut rest: &'a [u8]) -> Result<Self, Malformed> {
        let count = read_length(&mut rest).filter(|count| *count > 0).ok_or(Malformed)?;
        let pairs = rest;
        for _ in 0..count {
            read_pair(&mut rest).ok_or(Malformed)?;
        }
        if rest.is_empty() { Ok(Self { count, pairs }) } else { Err(Malformed) }
    }

    /// Returns the number of fields.
    pub(crate) fn len(self) -> usize {
        self.count
    }

    /// Iterates over the fields and their values, in the order of their first writes.
    pub(crate) fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.pairs;
        std::iter::from_fn(move || read_pair(&mut rest))
    }

    /// Returns the value of a field.
    pub(crate) fn get(self, field: &[u8]) -> Option<&'a [u8]> {
        self.pairs().find(|(name, _)| *name == field).map(|(_, value)| value)
    }
}

impl LargeHash {
    fn parse(stored: &[u8]) -> Result<Self, Malformed> {
        let stored: &[u8; LARGE_RECORD_BYTES] = stored.try_into().map_err(|_| Malformed)?;
        let number = |at: usize| stored[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (id, count) = (CollectionId(number(1)), number(9));
        if count > 0 { Ok(Self { id, count }) } else { Err(Malformed) }
    }

    /// Returns the bytes of the record.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut record = Vec::with_capacity(LARGE_RECORD_BYTES);
        record.push(LARGE_HASH_TYPE_ID);
        record.extend_from_slice(&self.id.0.to_le_bytes());
        record.extend_from_slice(&self.count.to_le_bytes());
        record
    }
}

/// Returns the bytes of the record of a small hash. The fields differ from each other.
pub(crate) fn encode_small<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Vec<u8> {
    let (count, bytes) = pairs.clone().fold((0, 0), |(count, bytes), (field, value)| {
        (count + 1, bytes + field.len() + value.len() + 2 * VARINT_BYTES_MAX)
    });
    let mut record = Vec::with_capacity(1 + VARINT_BYTES_MAX + bytes);
    record.push(SMALL_HASH_TYPE_ID);
    write_length(&mut record, count);
    for (field, value) in pairs {
        for text in [field, value] {
            write_length(&mut record, text.len());
            record.extend_from_slice(text);
        }
    }
    record
}

fn read_pair<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    Some((read_text(rest)?, read_text(rest)?))
}

fn read_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = read_length(rest)?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(text)
}

/// Reads a length: 7 bits a byte, least significant first, bit 7 set in all bytes but the last.
/// Each length has one encoding, the shortest one.
fn read_length(rest: &mut &[u8]) -> Option<usize> {
    let mut length: u64 = 0;
    for index in 0..VARINT_BYTES_MAX {
        let byte = *rest.get(index)?;
        length |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let is_shortest = byte != 0 || index == 0;
            *rest = &rest[index + 1..];
            return u32::try_from(length).ok().filter(|_| is_shortest).map(|length| length as usize);
        }
    }
    None
}

fn write_length(record: &mut Vec<u8>, mut length: usize) {
    while length > 0x7F {
        // The low 7 bits, and the mark that bytes follow.
        record.push((length & 0x7F) as u8 | 0x80);
        length >>= 7;
    }
    record.push(length as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(stored: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        match HashRecord::parse(stored) {
            Ok(HashRecord::Small(hash)) => hash.pairs().map(|(field, value)| (field.into(), value.into())).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_small_hash_is_read_as_it_was_written() {
        let long = vec![b'x'; 20_000];
        let pairs: [(&[u8], &[u8]); 4] = [(b"b", b"1"), (b"", b""), (b"a", &long), (&long, b"2")];
        let record = encode_small(pairs.iter().copied());
        let expected: Vec<(Vec<u8>, Vec<u8>)> = pairs.iter().map(|(a, b)| (a.to_vec(), b.to_vec())).collect();
        assert_eq!(small(&record), expected);
        let Ok(HashRecord::Small(hash)) = HashRecord::parse(&record) else { panic!("a small hash") };
        assert_eq!((hash.len(), hash.get(b"a"), hash.get(b"c")), (4, Some(&long[..]), None));
    }

    #[test]
    fn a_large_hash_is_read_as_it_was_written() {
        let large = LargeHash { id: CollectionId(7), count: 300 };
        assert_eq!(HashRecord::parse(&large.encode()), Ok(HashRecord::Large(large)));
    }

    #[test]
    fn each_cut_and_each_added_byte_is_malformed() {
        let small = encode_small([(&b"field"[..], &b"value"[..]), (b"f", b"v")].into_iter());
        let large = LargeHash { id: CollectionId(7), count: 300 }.encode();
        for record in [small, large] {
            for length in 0..record.len() {
                assert_eq!(HashRecord::parse(&record[..length]), Err(Malformed), "{length}");
            }
            let longer = [&record[..], &[0]].concat();
            assert_eq!(HashRecord::parse(&longer), Err(Malformed));
        }
        let no_fields = LargeHash { id: CollectionId(7), count: 0 }.encode();
        for record in [
            &no_fields[..],
            &[SMALL_HASH_TYPE_ID, 0],
            &[SMALL_HASH_TYPE_ID, 0x81, 0, 0, 0],
            &[SMALL_HASH_TYPE_ID, 0xFF, 0xFF],
        ] {
            assert_eq!(HashRecord::parse(record), Err(Malformed), "{record:?}");
        }
    }

    #[test]
    fn changed_bytes_never_panic() {
        let record = encode_small([(&b"field"[..], &b"value"[..]), (b"f", b"v")].into_iter());
        for at in 0..record.len() {
            for byte in 0..=u8::MAX {
                let mut changed = record.clone();
                changed[at] = byte;
                if let Ok(HashRecord::Small(hash)) = HashRecord::parse(&changed) {
                    assert_eq!(hash.pairs().count(), hash.len());
                }
            }
        }
    }
}

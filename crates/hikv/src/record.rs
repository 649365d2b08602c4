//! A key with its value on the medium (HiKV, ATC 2017, section 3.4: the KV item).
//!
//! ```text
//!  0       4       8               16  18 19 20      24
//! | crc32c | vlen  | sequence      |klen|fl|ve| zero  | [expiry: 8] | key | value |
//! ```
//! `lodestore_inplace::Record` describes the fields. The sequence is the engine's own.

/// Set in the tag of a position whose record has an expiry: sweeps read no other record.
pub(crate) const EXPIRY_TAG_FLAG: u8 = 1;

/// A record on the medium. The engine's own field is the sequence.
pub(crate) type Record<'a> = lodestore_inplace::Record<'a, u64>;

const _: () = assert!(Record::HEADER == 24);

//! The bytes of the value log: a segment's header, its records, and the pointers to them. Nothing
//! here accesses a pool.
//!
//! ```text
//! segment   | LVAL | crc32c | version | id | bytes: u64 | 0 ... 64 | copy ... 128 | records ...
//! record    | crc32c | crc32c of the value | value length | key length | key | value | padding |
//! pointer   | id | offset in steps of 8 | value length | crc32c of the value |
//! ```
//! Numbers have 4 bytes unless noted. Padding reaches to the next multiple of 8. A record's crc32c
//! covers the segment's id, the record's offset in steps of 8, the rest of its header, and the key.
//! The value has its own checksum, which the pointer repeats, so that no byte is checksummed twice.
//! Ids are never reused: bytes left from an older use of the space have another id, and are no
//! record.

use lodestore_contract::limits::{KEY_MAX, KEY_MIN};
use lodestore_contract::{Error, Result};
use lodestore_media::{crc32c, u32_at, u64_at};

use crate::layout::STORED_MAX;
use crate::wal::entry::POINTER_BYTES;

/// Bytes of a segment's header, with both copies.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 2 * HEADER_COPY_BYTES as u64;
pub(crate) const VALUE_LOG_VERSION: u32 = 1;
/// Bytes of one header copy.
const HEADER_COPY_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"LVAL";
const RECORD_HEADER_BYTES: usize = 16;
/// Records begin at multiples of this.
const RECORD_ALIGN_BYTES: u64 = 8;

/// The location of a large value. Never an address: only the segment's id identifies its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) id: u32,
    /// Offset of the record in the segment, in steps of 8 bytes.
    step: u32,
    pub(crate) len: u32,
    pub(crate) crc: u32,
}

impl Pointer {
    /// Returns the bytes that an entry or an item stores.
    pub(crate) fn encode(self) -> [u8; POINTER_BYTES] {
        let mut bytes = [0; POINTER_BYTES];
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip([self.id, self.step, self.len, self.crc]) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; POINTER_BYTES]) -> Self {
        let word = |at: usize| u32_at(bytes, at);
        Self { id: word(0), step: word(4), len: word(8), crc: word(12) }
    }

    /// Returns where the record begins, in bytes from the segment's start.
    pub(crate) fn offset(self) -> u64 {
        u64::from(self.step) * RECORD_ALIGN_BYTES
    }

    /// Returns where the value of a key of this length is, in bytes from the segment's start.
    pub(crate) fn value_offset(self, key_len: usize) -> u64 {
        self.offset() + (RECORD_HEADER_BYTES + key_len) as u64
    }

    /// Returns the bytes of the record, for a key of this length.
    pub(crate) fn record_len(self, key_len: usize) -> u64 {
        record_len(key_len, self.len as usize)
    }
}

/// Returns the bytes of a record, a multiple of 8.
pub(crate) fn record_len(key: usize, value: usize) -> u64 {
    (RECORD_HEADER_BYTES as u64 + key as u64 + value as u64).next_multiple_of(RECORD_ALIGN_BYTES)
}

/// Encodes the header of a segment with its id and bytes.
pub(crate) fn encode_segment(id: u32, bytes: u64) -> [u8; SEGMENT_HEADER_BYTES as usize] {
    let mut copy = [0; HEADER_COPY_BYTES];
    copy[..4].copy_from_slice(&MAGIC);
    copy[8..12].copy_from_slice(&VALUE_LOG_VERSION.to_le_bytes());
    copy[12..16].copy_from_slice(&id.to_le_bytes());
    copy[16..24].copy_from_slice(&bytes.to_le_bytes());
    let crc = crc32c(&[&copy[8..]]);
    copy[4..8].copy_from_slice(&crc.to_le_bytes());
    let mut header = [0; SEGMENT_HEADER_BYTES as usize];
    header.as_chunks_mut::<HEADER_COPY_BYTES>().0.fill(copy);
    header
}

/// Returns a whole copy of a segment's header, if there is one.
fn whole_copy(bytes: &[u8]) -> Option<&[u8; HEADER_COPY_BYTES]> {
    let copies = bytes.get(..SEGMENT_HEADER_BYTES as usize).unwrap_or_default().as_chunks::<HEADER_COPY_BYTES>().0;
    let whole = |copy: &&[u8; HEADER_COPY_BYTES]| copy[..4] == MAGIC && crc32c(&[&copy[8..]]) == u32_at(&copy[..], 4);
    copies.iter().find(whole)
}

/// Returns the id and the bytes of the segment that begins here, from its header.
pub(crate) fn find_segment(bytes: &[u8]) -> Option<(u32, u64)> {
    let copy = whole_copy(bytes).filter(|copy| u32_at(&copy[..], 8) == VALUE_LOG_VERSION)?;
    Some((u32_at(copy, 12), u64_at(copy, 16)))
}

/// Checks that a segment begins with a whole header of this id and length. A single whole copy
/// suffices.
///
/// # Errors
/// [`Error::NewerFormat`]; [`Error::Corrupt`].
pub(crate) fn check_segment(bytes: &[u8], id: u32, capacity: u64) -> Result<()> {
    let wrong = |what| Err(Error::corrupt(name_of(id), what));
    let Some(copy) = whole_copy(bytes) else { return wrong("the header is damaged") };
    let found = u32_at(copy, 8);
    if found > VALUE_LOG_VERSION {
        return Err(Error::NewerFormat { part: "fluidkv value log".into(), found, known: VALUE_LOG_VERSION });
    }
    let right = found == VALUE_LOG_VERSION && u32_at(copy, 12) == id && u64_at(copy, 16) == capacity;
    if right { Ok(()) } else { wrong("the header belongs to another segment") }
}

/// Returns the name of a segment, for errors.
pub(crate) fn name_of(id: u32) -> String {
    format!("value segment {id}")
}

fn checksum(id: u32, offset: u64, head: &[u8], key: &[u8]) -> u32 {
    let mut first = [0; 8];
    first[..4].copy_from_slice(&id.to_le_bytes());
    first[4..].copy_from_slice(&((offset / RECORD_ALIGN_BYTES) as u32).to_le_bytes());
    crc32c(&[&first, head, key])
}

/// Encodes the header of a record at this offset, and the pointer to it. The record is stored as
/// `[header, key, value]`; padding is not written. Key and value are within the contract's limits.
pub(crate) fn encode_record(id: u32, offset: u64, key: &[u8], value: &[u8]) -> ([u8; RECORD_HEADER_BYTES], Pointer) {
    debug_assert!(offset.is_multiple_of(RECORD_ALIGN_BYTES) && offset / RECORD_ALIGN_BYTES <= u64::from(u32::MAX));
    let crc = crc32c(&[value]);
    let mut head = [0; RECORD_HEADER_BYTES];
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    head[8..12].copy_from_slice(&(value.len() as u32).to_le_bytes());
    head[12..].copy_from_slice(&(key.len() as u32).to_le_bytes());
    let own = checksum(id, offset, &head[4..], key);
    head[..4].copy_from_slice(&own.to_le_bytes());
    (head, Pointer { id, step: (offset / RECORD_ALIGN_BYTES) as u32, len: value.len() as u32, crc })
}

/// A record whose header and key are whole. Its value may be damaged: [`Record::is_whole`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) pointer: Pointer,
}

impl<'a> Record<'a> {
    /// Returns the record at an offset of a segment's bytes; `None` if there is none.
    pub(crate) fn read(segment: &'a [u8], id: u32, offset: u64) -> Option<Self> {
        let bytes = segment.get(usize::try_from(offset).ok()?..)?;
        let step =
            u32::try_from(offset / RECORD_ALIGN_BYTES).ok().filter(|_| offset.is_multiple_of(RECORD_ALIGN_BYTES))?;
        let head = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
        let (len, key_len) = (u32_at(head, 8) as usize, u32_at(head, 12) as usize);
        if len > STORED_MAX || !(KEY_MIN..=KEY_MAX).contains(&key_len) {
            return None;
        }
        let key = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + key_len)?;
        let value = bytes.get(RECORD_HEADER_BYTES + key_len..RECORD_HEADER_BYTES + key_len + len)?;
        let right = checksum(id, offset, &head[4..], key) == u32_at(head, 0);
        let pointer = Pointer { id, step, len: len as u32, crc: u32_at(head, 4) };
        right.then_some(Self { key, value, pointer })
    }

    /// Returns whether the value matches its checksum.
    pub(crate) fn is_whole(&self) -> bool {
        crc32c(&[self.value]) == self.pointer.crc
    }

    /// Returns its bytes, a multiple of 8.
    pub(crate) fn len(&self) -> u64 {
        record_len(self.key.len(), self.value.len())
    }
}

/// The records of a segment from an offset on, up to the first that is not whole.
pub(crate) struct Records<'a> {
    segment: &'a [u8],
    id: u32,
    /// Where the next record would begin.
    pub(crate) at: u64,
}

impl<'a> Records<'a> {
    /// Iterates over the records between `from`, where a record begins or would, and `to`.
    pub(crate) fn new(segment: &'a [u8], id: u32, from: u64, to: u64) -> Self {
        let to = usize::try_from(to).unwrap_or(usize::MAX).min(segment.len());
        Self { segment: &segment[..to], id, at: from.max(SEGMENT_HEADER_BYTES) }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = Record::read(self.segment, self.id, self.at)?;
        self.at += record.len();
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::conformance::{Rng, seed};

    use super::*;

    /// Key, value, and the pointer to them.
    type Written = (Vec<u8>, Vec<u8>, Pointer);

    /// Returns a segment of random records, the records, and their end.
    fn filled(rng: &mut Rng, id: u32) -> (Vec<u8>, Vec<Written>, u64) {
        let mut segment = vec![0; 4096];
        segment[..SEGMENT_HEADER_BYTES as usize].copy_from_slice(&encode_segment(id, 4096));
        let (mut end, mut records) = (SEGMENT_HEADER_BYTES, Vec::new());
        loop {
            let (key_len, value_len) = (1 + rng.below(40), rng.below(300));
            let (key, value) = (rng.bytes(key_len), rng.bytes(value_len));
            if end + record_len(key.len(), value.len()) > segment.len() as u64 {
                return (segment, records, end);
            }
            let (head, pointer) = encode_record(id, end, &key, &value);
            let bytes = [&head[..], &key, &value].concat();
            segment[end as usize..end as usize + bytes.len()].copy_from_slice(&bytes);
            end += record_len(key.len(), value.len());
            records.push((key, value, pointer));
        }
    }

    fn rng() -> Rng {
        let seed = seed();
        println!("seed {seed:#x}");
        Rng::new(seed)
    }

    #[test]
    fn records_are_read_as_written_and_each_pointer_names_its_own() {
        let mut rng = rng();
        for id in 0..50 {
            let (segment, records, end) = filled(&mut rng, id);
            check_segment(&segment, id, 4096).expect("its own header");
            let mut walk = Records::new(&segment, id, 0, u64::MAX);
            for (key, value, pointer) in &records {
                let found = walk.next().expect("a record");
                assert_eq!((found.key, found.value, found.pointer), (&key[..], &value[..], *pointer));
                assert!(found.is_whole());
                assert_eq!(Pointer::decode(&pointer.encode()), *pointer);
                let at = pointer.value_offset(key.len()) as usize;
                assert_eq!(&segment[at..at + pointer.len as usize], &value[..]);
            }
            assert!(walk.next().is_none() && walk.at == end, "the walk ends where the writer did");
        }
    }

    #[test]
    fn a_flipped_bit_is_detected_by_the_record_or_by_its_value() {
        let mut rng = rng();
        let (segment, records, end) = filled(&mut rng, 7);
        for bit in SEGMENT_HEADER_BYTES as usize * 8..end as usize * 8 {
            let mut bytes = segment.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            for (key, value, pointer) in &records {
                if let Some(found) = Record::read(&bytes, 7, pointer.offset())
                    && found.is_whole()
                {
                    assert_eq!((found.key, found.value), (&key[..], &value[..]), "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn bytes_of_an_earlier_segment_are_no_record_and_no_header() {
        let mut rng = rng();
        let (segment, records, _) = filled(&mut rng, 3);
        assert!(Records::new(&segment, 4, 0, u64::MAX).next().is_none());
        assert!(check_segment(&segment, 4, 4096).is_err() && check_segment(&segment, 3, 4088).is_err());
        let moved = [&segment[..8], &segment[..]].concat();
        let found = records.iter().any(|(.., pointer)| Record::read(&moved, 3, pointer.offset() + 8).is_some());
        assert!(!found, "a record at another place");
    }

    #[test]
    fn one_damaged_header_copy_is_harmless_and_no_bytes_make_a_reader_panic() {
        let mut rng = rng();
        let header = encode_segment(9, 4096);
        for copy in 0..2 {
            let mut damaged = header;
            damaged[copy * HEADER_COPY_BYTES..(copy + 1) * HEADER_COPY_BYTES].fill(0xff);
            check_segment(&damaged, 9, 4096).expect("the other copy");
        }
        check_segment(&[0xff; 128], 9, 4096).expect_err("neither copy");
        for len in 0..300 {
            let noise = rng.bytes(len);
            let _ = check_segment(&noise, 9, 4096);
            assert_eq!(Records::new(&noise, 9, 0, u64::MAX).count(), 0);
        }
    }
}

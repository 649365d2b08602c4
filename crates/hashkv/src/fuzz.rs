//! The parsers of this crate, from bytes, for `fuzz/` and its tests. Not part of the interface:
//! built with the feature `fuzz` only.

use lodestore_media::crc32c;

use crate::layout::{
    Location, Record, SEGMENT_HEADER_BYTES, SUPERBLOCK_SUMMED_BYTES, SegmentUse, Stored, Superblock, VERSION,
    decode_segment, each_record, encode_segment,
};

/// The segment number under which bytes are read.
const SEGMENT_ID: u32 = 9;
/// Seed of the checksums of the segment's records.
const SEED: u32 = 5;
/// Generation of the segment if no header has one.
const GENERATION_DEFAULT: u32 = 3;

/// Reads bytes as each structure of the values file and of the index, both unchanged and with valid
/// checksums. Each structure that is read must equal its encoding. Returns the number of structures
/// read.
///
/// # Panics
/// If one does not.
pub fn parts(bytes: &[u8]) -> usize {
    stored(bytes)
        + [bytes.to_vec(), sealed(bytes)].iter().map(|bytes| superblock(bytes) + segment(bytes)).sum::<usize>()
}

/// Reads the end of the bytes as a pointer and as a value.
fn stored(bytes: &[u8]) -> usize {
    let mut tagged = bytes[bytes.len().saturating_sub(15)..].to_vec();
    let mut read = 0;
    for tag in 0..3 {
        if let Some(last) = tagged.last_mut() {
            *last = tag;
        }
        match Stored::read(&tagged) {
            Ok(Stored::Pointer(pointer)) => {
                assert_eq!(*pointer.stored(), *tagged, "a pointer");
                read += 1;
            }
            Ok(Stored::Value(value)) => assert_eq!([value, &[0]].concat(), tagged, "a value"),
            Err(_) => {}
        }
    }
    read
}

fn superblock(bytes: &[u8]) -> usize {
    let Ok(superblock) = Superblock::decode(bytes) else { return 0 };
    assert_eq!(Superblock::decode(&superblock.encode()).expect("as it was written"), superblock);
    assert!(
        superblock.segment_bytes.is_power_of_two(),
        "a superblock of segments of {} bytes",
        superblock.segment_bytes
    );
    1
}

/// Reads a header and the records after it. Records follow one another, inside the bytes.
fn segment(bytes: &[u8]) -> usize {
    let header = decode_segment(bytes, SEGMENT_ID);
    if let Some((home, generation)) = header {
        assert!(bytes.starts_with(&encode_segment(SegmentUse { segment: SEGMENT_ID, generation }, home)), "a header");
    }
    let generation = header.map_or(GENERATION_DEFAULT, |(_, generation)| generation);
    let first = Location { seed: SEED, segment: SEGMENT_ID, generation, at: SEGMENT_HEADER_BYTES as u32 };
    let (mut end, mut read) = (SEGMENT_HEADER_BYTES, usize::from(header.is_some()));
    each_record(bytes, first, |pointer, record| {
        let at = pointer.at as usize;
        assert!(at >= end && at + record.key.len() + record.value.len() <= bytes.len(), "a record's place");
        assert_eq!((pointer.segment, pointer.generation), (SEGMENT_ID, generation), "a record's use of the segment");
        assert_eq!(Record::read(&bytes[at..], pointer.location(SEED)), Some(record), "a record by its pointer");
        (end, read) = (at + pointer.len as usize, read + 1);
    });
    read
}

/// Returns the bytes with valid magic numbers and checksums. The first byte selects a superblock,
/// or a segment with a record.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let (Some((how, rest)), mut sealed) = (bytes.split_first(), bytes.to_vec()) else { return Vec::new() };
    let put = |to: &mut Vec<u8>, at: usize, with: &[u8]| {
        to.resize(to.len().max(at + with.len()), 0);
        to[at..at + with.len()].copy_from_slice(with);
    };
    if how % 2 == 0 {
        put(&mut sealed, 0, b"LSHASHKV");
        put(&mut sealed, 8, &VERSION.to_le_bytes());
        if let Some(power) = rest.first().filter(|_| how % 8 != 2) {
            let more = if how % 8 == 6 { 4096 } else { 0 };
            put(&mut sealed, 12, &((1u32 << (power % 32)) + more).to_le_bytes());
        }
        put(&mut sealed, SUPERBLOCK_SUMMED_BYTES, &[]);
        let sum = crc32c(&[&sealed[..SUPERBLOCK_SUMMED_BYTES]]);
        put(&mut sealed, SUPERBLOCK_SUMMED_BYTES, &sum.to_le_bytes());
        return sealed;
    }
    put(&mut sealed, 0, b"SHSG");
    put(&mut sealed, 4, &SEGMENT_ID.to_le_bytes());
    // Usually as many prefix bits as its depth, and no more.
    if how % 8 == 1 {
        put(&mut sealed, SEGMENT_HEADER_BYTES, &[]);
        let kind = [sealed[16] % 22, sealed[17] % 2];
        put(&mut sealed, 16, &kind);
    } else {
        let depth = rest.first().map_or(0, |depth| depth % 22);
        let bits = u64::MAX.checked_shl(64 - u32::from(depth)).unwrap_or_default();
        put(&mut sealed, 8, &(bits * u64::from(depth <= 20)).to_le_bytes());
        put(&mut sealed, 16, &[depth, 0, 0, 0]);
        put(&mut sealed, 24, &[0; 4]);
    }
    put(&mut sealed, SEGMENT_HEADER_BYTES, &[]);
    let sum = crc32c(&[&sealed[..28]]);
    put(&mut sealed, 28, &sum.to_le_bytes());
    let generation = decode_segment(&sealed, SEGMENT_ID).map_or(GENERATION_DEFAULT, |(_, generation)| generation);
    let location = Location { seed: SEED, segment: SEGMENT_ID, generation, at: SEGMENT_HEADER_BYTES as u32 };
    Record::seal(&mut sealed[SEGMENT_HEADER_BYTES..], location);
    sealed
}

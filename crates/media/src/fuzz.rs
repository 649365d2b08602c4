//! Entry points for `fuzz/` and its tests: the parsers of this crate, with bytes as input. Not part
//! of the interface; built with the feature `sim` only.

use crate::alloc;
use crate::header::PoolHeader;
use crate::region_header::{HeaderCopies, RegionHeader};

/// Parses bytes as the start of region 0. A parsed header must encode to itself.
///
/// # Panics
/// If it does not.
pub fn pool_header(bytes: &[u8]) {
    if let Ok(header) = PoolHeader::newest(bytes, "fuzz", false) {
        let encoded = [header.encode().as_slice(), &[0; 3072]].concat();
        assert_eq!(PoolHeader::newest(&encoded, "fuzz", false).ok().as_ref(), Some(&header));
        let copies = HeaderCopies::of_region(bytes);
        let as_region = RegionHeader::check(copies, "fuzz", &header, 1, bytes.len() as u64);
        assert!(as_region.is_err(), "a pool header is no region header");
    }
    for index in [0, 1] {
        let _ = crate::header::is_unfinished(bytes, index);
    }
}

/// Parses bytes as the start of a region of the pool whose header copies come first.
pub fn region_header(pool: &[u8], bytes: &[u8], index: u16, len: u64) {
    let Ok(header) = PoolHeader::newest(pool, "fuzz", false) else { return };
    let own = RegionHeader {
        pool_id: header.pool_id,
        index,
        chunk_bytes: header.chunk_bytes,
        bytes: len,
        generation: header.generation,
        table_seal: 0,
    };
    if let Ok(found) = RegionHeader::check(HeaderCopies::of_region(bytes), "fuzz", &header, index, len) {
        let encoded = found.header.encode();
        let copies = HeaderCopies { first: &encoded, last: &encoded };
        let read = RegionHeader::check(copies, "fuzz", &header, index, len);
        assert!(read.is_ok_and(|read| read.header == found.header), "what is read can be written");
    }
    let _ = own.is_all_but_generation_of(bytes);
}

/// Returns the identity of the pool whose region 0 begins with these bytes. `None` without a valid
/// header.
pub fn pool_identity(bytes: &[u8]) -> Option<u64> {
    let header = PoolHeader::newest(bytes, "fuzz", false).ok()?;
    Some(crate::pool::mix_pool_id(header.pool_id))
}

/// Returns a valid word of the extent table, for damage that a checksum does not detect.
pub fn extent_word(kind: u8, class: u16, chunks: u32, region: u16, chunk: u32) -> u64 {
    alloc::extent_word(kind.max(1), class, chunks.max(1), region, chunk)
}

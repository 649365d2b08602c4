//! Targets of `media`: headers as bytes, and whole pools.

use std::sync::LazyLock;

use lodestore_contract::VerifyReport;
use lodestore_media::sim::{LineModel, SimImage, SimSpec};
use lodestore_media::{ExtentKind, Pool, PoolOptions, fuzz};

use super::damage::Base;

/// Bytes of a chunk of the pools here.
pub const CHUNK: u32 = 512;

/// Returns the specification of the pools here.
pub fn spec(record: bool) -> SimSpec {
    SimSpec { stores_persist: true, record, ..SimSpec::default() }
}

/// Returns the present contents of the medium.
pub fn image(pool: &Pool) -> SimImage {
    let mut model = LineModel::new(SimImage { spec: spec(false), ..SimImage::default() });
    for event in &pool.recorder().expect("a simulated pool").take().events {
        model.apply(event);
    }
    model.newest()
}

fn options() -> PoolOptions {
    PoolOptions { capacity: 256 << 10, region_bytes: 64 << 10, chunk_bytes: CHUNK, ..PoolOptions::default() }
}

/// A pool of two regions with slabs, large records and extents, stopped cleanly.
static POOL: LazyLock<Base> = LazyLock::new(|| {
    let (pool, _) = Pool::create_sim(&spec(true), "fuzz", 1, options()).expect("a pool");
    for len in [16, 40, 300, 1000, 5000, 20_000, 30_000] {
        for _ in 0..3 {
            if let Ok(at) = pool.allocator().alloc(&pool, len) {
                pool.store(at, &vec![0x5a; len]);
            }
        }
    }
    pool.allocator().alloc_extent(&pool, 2000, ExtentKind(16)).expect("room");
    pool.mark_created().expect("marked");
    pool.close(true).expect("closes");
    Base::new(image(&pool), CHUNK)
});

/// Parses the start of region 0 unchanged, and edits of a whole pool.
pub fn pool_header(data: &[u8]) {
    fuzz::pool_header(data);
    let (image, _) = POOL.damaged(data);
    fuzz::pool_header(image.regions.first().map_or(&[], Vec::as_slice));
}

/// Parses the start of another region.
pub fn region_header(data: &[u8]) {
    let (image, _) = POOL.damaged(data);
    let [pool, region, ..] = image.regions.as_slice() else { return };
    fuzz::region_header(pool, region, 1, region.len() as u64);
    fuzz::region_header(pool, data, 1, data.len() as u64);
}

/// Opens a whole pool: extent tables, occupancy, wear. The pool works, or the open fails with a
/// reason.
pub fn pool(data: &[u8]) {
    let (mut image, _) = POOL.damaged(data);
    for _again in 0..2 {
        let Ok((pool, _)) = Pool::open_sim(&image, "fuzz", 1, options()) else { return };
        pool.recorder().expect("simulated").set_recording(false);
        let mut report = VerifyReport::default();
        pool.allocator().verify(&pool, &mut report);
        if pool.allocator().is_recovering() {
            pool.allocator().finish_recovery(&pool);
        }
        for len in [16, 300, 5000] {
            if let Ok(at) = pool.allocator().alloc(&pool, len) {
                pool.store(at, &vec![0xa5; len]);
                assert_eq!(pool.bytes(at, len), Some(vec![0xa5; len].as_slice()), "what was handed out is there");
                pool.allocator().free(&pool, at, len);
            }
        }
        let _ = pool.close(data.len().is_multiple_of(2));
        image = regions(&pool);
    }
}

/// Returns the bytes of all regions.
pub fn regions(pool: &Pool) -> SimImage {
    let whole = |region: u16| {
        let len = pool.layout(region).expect("there").region_bytes;
        // Position 0 is none, so the first bytes are read as a word.
        let head = pool.load_u64(lodestore_media::NvPtr::new(region, 0)).to_le_bytes();
        let rest = pool.bytes(lodestore_media::NvPtr::new(region, 8), len as usize - 8).expect("in the region");
        [&head[..], rest].concat()
    };
    let values = pool.recorder().expect("a simulated pool").values();
    SimImage { regions: (0..pool.regions()).map(whole).collect(), values, spec: spec(false) }
}

/// Returns the number of checksum kinds in the pool to be damaged.
pub fn kinds() -> usize {
    POOL.kinds()
}

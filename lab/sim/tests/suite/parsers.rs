//! The fuzz targets of `fuzz/`, run on bytes of seeded generators. `LODESTORE_FUZZ_ROUNDS` makes
//! the runs longer.

#[path = "../../../../fuzz/src/damage.rs"]
mod damage;
#[path = "../../../../fuzz/src/fluidkv.rs"]
mod fluidkv;
#[path = "../../../../fuzz/src/hashkv.rs"]
mod hashkv;
#[path = "../../../../fuzz/src/hikv.rs"]
mod hikv;
#[path = "../../../../fuzz/src/media.rs"]
mod media;
#[path = "../../../../fuzz/src/mkvs.rs"]
mod mkvs;
#[path = "../../../../fuzz/src/nvht.rs"]
mod nvht;
#[path = "../../../../fuzz/src/store.rs"]
mod store;

use lodestore_media::sim::Rng;

/// Runs a target. If it panics, prints the seed.
fn run(name: &str, rounds: u64, target: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let rounds = std::env::var("LODESTORE_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(rounds);
    for seed in 0..rounds {
        let mut rng = Rng::new(seed);
        let most = 1 << rng.index(6);
        let edits = 1 + rng.index(most);
        let mut data = vec![0; 1 + 8 * edits];
        data.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
        if let Err(panic) = std::panic::catch_unwind(|| target(&data)) {
            println!("target {name}, seed {seed}, bytes {data:02x?}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn all_checksums_of_the_format_are_found_to_be_forged() {
    assert_eq!(media::kinds(), 3, "pool and region headers, occupancy");
    assert_eq!(hikv::TARGETS.kinds(), 7, "pool header, occupancy, superblock, segment, run, record, batch log");
    assert_eq!(
        fluidkv::TARGETS.kinds(),
        12,
        "pool header, occupancy, superblock, log segment, its first record, manifest, its checkpoint, how far it reaches, table, its index, filter and keys"
    );
    assert_eq!(hashkv::TARGETS.kinds(), 15, "those of fluidkv, and the values file's superblock, segment and record");
    assert_eq!(nvht::TARGETS.kinds(), 8, "pool header, occupancy, superblock, table, cursor, keys, record, batch log");
}

#[test]
fn any_bytes_are_read_as_headers_or_refused() {
    run("pool_header", 4000, media::pool_header);
    run("region_header", 4000, media::region_header);
    run("hashkv_parts", 4000, |data| {
        hashkv::parts(data);
    });
    run("mkvs_parts", 4000, |data| {
        mkvs::parts(data);
    });
}

#[test]
fn parts_of_a_values_file_are_read_where_their_checksums_are_right() {
    let read = |first: u8, second: u8| hashkv::parts(&[&[first, second][..], &[0; 126]].concat());
    assert_eq!(read(2, 0), 1, "a pointer; no superblock of such segments");
    assert_eq!(read(0, 16), 2, "a pointer, a superblock");
    assert_eq!(read(3, 5), 3, "a pointer, a segment's header and a record");
}

#[test]
fn values_of_a_matrix_are_read_where_they_are_whole() {
    // Each value is parsed unchanged, and with the current version.
    let read = |begins: &[u8], len: usize| mkvs::parts(&[begins, &vec![0; len - begins.len()]].concat());
    assert_eq!(read(&[4], 36), 2, "a device's record");
    assert_eq!(read(&[4], 4), 2, "what a clean stop leaves of no group");
    assert_eq!(read(&[4, 0, 1], 40), 2, "an entry of a delete");
    assert_eq!(read(&[9, 0, 1], 40), 1, "an entry of another version");
}

#[test]
fn any_damaged_pool_opens_and_works_or_is_refused() {
    run("pool", 3000, media::pool);
}

#[test]
fn any_damaged_store_that_was_stopped_opens_and_works_or_is_refused() {
    run("hikv_clean", 1000, |data| hikv::TARGETS.clean(data));
    run("nvht_clean", 1000, |data| nvht::TARGETS.clean(data));
    run("fluidkv_clean", 1000, |data| fluidkv::TARGETS.clean(data));
    run("hashkv_clean", 1000, |data| hashkv::TARGETS.clean(data));
}

/// A forged count of keys, smaller than the number of later deletes: the count went below zero, and
/// the clean stop panicked.
#[test]
fn a_forged_count_of_keys_is_not_kept() {
    nvht::TARGETS.clean(&[0x9d, 0xe8, 0xc4, 0x73, 0xac, 0x89, 0xa9, 0x2d, 0x8d]);
}

/// Numbers of a damaged header are added to others.
#[test]
fn a_forged_capacity_of_a_pool_and_a_forged_length_of_segments_overflow_nothing() {
    for bytes in 0..8 {
        // The same number of low bytes of the capacity, in both copies of the header.
        let edits = [[8, 0, 96, 0, 0, 0, bytes, 0], [8, 1, 96, 0, 0, 0, bytes, 0]];
        hashkv::TARGETS.clean(&[&[1], edits.as_flattened()].concat());
        hashkv::TARGETS.killed(&[&[1], edits.as_flattened()].concat());
    }
    for bit in 0..24 {
        let edits = [[4 | 1 << 5, 7, 13 + bit / 8, 0, 0, 0, 1 << (bit % 8), 0]];
        hashkv::TARGETS.clean(&[&[1], edits.as_flattened()].concat());
        hashkv::TARGETS.killed(&[&[1], edits.as_flattened()].concat());
    }
}

/// A block's description with keys of 6 bytes instead of 7: the items are whole, in an order that
/// no table has. A merge considered this its own bug.
#[test]
fn a_table_whose_index_is_forged_is_refused_by_a_merge() {
    let edit = [0x22, 0x85, 0x2f, 0x58, 0x3c, 0x80, 0xf8, 0xbb];
    let data = [&[1][..], &edit].concat();
    fluidkv::TARGETS.clean(&data);
    fluidkv::TARGETS.killed(&data);
}

#[test]
fn any_damaged_store_that_was_killed_opens_and_works_or_is_refused() {
    run("hikv_killed", 1000, |data| hikv::TARGETS.killed(data));
    run("nvht_killed", 1000, |data| nvht::TARGETS.killed(data));
    run("fluidkv_killed", 1000, |data| fluidkv::TARGETS.killed(data));
    run("hashkv_killed", 1000, |data| hashkv::TARGETS.killed(data));
}

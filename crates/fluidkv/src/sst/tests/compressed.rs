//! Tables with compressed blocks: their size, their versions, and forged lengths.

use lodestore_contract::Error;
use lodestore_media::u32_at;

use super::super::compress::PLAIN_MAX;
use super::super::format::{FILTER_CRC_AT, INDEX_PART_ID, KEYS_CRC_AT, part_crc};
use super::super::{Built, Cursor, ItemKind, Reads, Slot, TableMeta, TableOptions, hash, verify};
use super::{IDENTITY, Model, Rng, build, is_item};

const OPTIONS: TableOptions = TableOptions { block_bytes: 4096, table_bytes: 1 << 20, filter_bits: 10, compress: true };

/// Keys of 16 bytes with values of 100 bytes, of which `random` are random.
fn model(items: usize, random: usize) -> Model {
    let mut rng = Rng(5);
    let mut model = Model::new();
    while model.len() < items {
        let value = [rng.bytes(random, 256), vec![b' '; 100 - random]].concat();
        model.insert(rng.bytes(16, 256), (ItemKind::Value, None, value));
    }
    model
}

fn version(built: &Built) -> u32 {
    u32_at(&built.bytes, 8)
}

#[test]
fn compressed_blocks_make_a_table_smaller_and_change_its_version() {
    let model = model(3000, 10);
    let plain = build(&model, &TableOptions { compress: false, ..OPTIONS });
    let built = build(&model, &OPTIONS);
    assert!(built.bytes.len() * 2 < plain.bytes.len(), "{} of {}", built.bytes.len(), plain.bytes.len());
    assert_eq!((version(&plain), version(&built)), (3, 4));
    assert_eq!((plain.meta.is_compressed(), built.meta.is_compressed()), (false, true));
    let (stored, bytes) = built.meta.block_bytes();
    assert_eq!(bytes, plain.meta.block_bytes().1, "the same items in both");
    assert!(stored * 2 < bytes);
}

#[test]
fn incompressible_blocks_are_stored_plain() {
    let model = model(500, 100);
    let built = build(&model, &OPTIONS);
    assert_eq!(version(&built), 3);
    assert!(!built.meta.is_compressed());
    let half: Model = model.iter().take(250).chain(&self::model(250, 0)).map(|(k, r)| (k.clone(), r.clone())).collect();
    let (mut blocks, built) = ([0, 0], build(&half, &OPTIONS));
    let table = built.meta.table(&built.bytes).expect("whole");
    for number in 0..built.meta.blocks() as usize {
        blocks[usize::from(table.block(number).expect("sound").is_compressed())] += 1;
    }
    assert_eq!(version(&built), 4);
    assert!(blocks[1] > 0, "{blocks:?}");
}

/// Returns the table with the word at `at` of the description of block `number` set to `word`, and
/// right checksums.
fn forged(built: &Built, number: usize, at: usize, word: u32) -> (Vec<u8>, TableMeta) {
    let (mut bytes, meta) = (built.bytes.clone(), built.meta);
    let at = meta.descriptions_at() + 12 * number + at;
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    let index_crc = part_crc(IDENTITY, INDEX_PART_ID, &bytes[meta.part(INDEX_PART_ID)]);
    let header = meta.encode(index_crc, u32_at(&bytes, FILTER_CRC_AT), u32_at(&bytes, KEYS_CRC_AT));
    bytes[..header.len()].copy_from_slice(&header);
    let meta = TableMeta::open(&bytes, IDENTITY).expect("its checksums are right");
    (bytes, meta)
}

#[test]
fn a_forged_plain_length_is_refused_by_every_reader() {
    let model = model(400, 10);
    let built = build(&model, &OPTIONS);
    let right = u32_at(&built.bytes, built.meta.descriptions_at() + 12 * 3 + 8);
    let stored = built.meta.table(&built.bytes).expect("whole").block(3).expect("sound").range().len() as u32;
    assert!(right > stored && stored > 0, "block 3 is compressed");
    for length in
        [1, stored - 1, stored, right - 1, right + 1, PLAIN_MAX as u32, PLAIN_MAX as u32 + 1, 1 << 30, u32::MAX]
    {
        let (bytes, meta) = forged(&built, 3, 8, length);
        let table = meta.table(&bytes).expect("whole");
        for reads in [Reads::Trusted, Reads::Verified] {
            let (mut refused, mut found) = (0, 0);
            for (key, rest) in &model {
                let slot = Slot::new();
                match table.get(key, hash(key), reads, &slot) {
                    Ok(item) => found += usize::from(is_item(&item.expect("there"), key, rest)),
                    Err(error) => refused += usize::from(matches!(error, Error::Corrupt { .. })),
                }
            }
            assert!(refused > 0 && refused + found == model.len(), "{length}: {refused} refused, {found} found");
            let (mut cursor, mut wrong, mut items) = (Cursor::new(table, reads), 0, 0);
            loop {
                match cursor.next() {
                    Ok(None) => break,
                    Ok(Some(item)) => items += usize::from(model.contains_key(item.key)),
                    Err(error) => wrong += usize::from(matches!(error, Error::Corrupt { .. })),
                }
            }
            assert_eq!((wrong, items), (1, found), "{length}");
        }
        let mut findings = 0;
        verify(&bytes, IDENTITY, &mut |_| findings += 1);
        assert!(findings > 0, "{length}");
    }
}

/// Sets the word for "not compressed" on a compressed block, and vice versa.
#[test]
fn a_block_read_as_another_kind_is_refused_or_empty() {
    let model = model(400, 10);
    let built = build(&model, &OPTIONS);
    let (bytes, meta) = forged(&built, 2, 8, 0);
    let table = meta.table(&bytes).expect("whole");
    for (key, rest) in &model {
        for reads in [Reads::Trusted, Reads::Verified] {
            let slot = Slot::new();
            if let Ok(Some(item)) = table.get(key, hash(key), reads, &slot) {
                assert!(is_item(&item, key, rest), "{key:?}");
            }
        }
    }
    let mut findings = 0;
    verify(&bytes, IDENTITY, &mut |_| findings += 1);
    assert!(findings > 0);
}

#[test]
fn a_header_of_one_version_with_the_numbers_of_the_other_is_refused() {
    let built = build(&model(100, 10), &OPTIONS);
    for version in [0, 3] {
        let mut bytes = built.bytes.clone();
        bytes[8] = version;
        assert!(matches!(TableMeta::open(&bytes, IDENTITY), Err(Error::Corrupt { .. })), "{version}");
    }
}

#[test]
fn blocks_longer_than_the_limit_are_not_compressed() {
    let mut large = Model::new();
    for (at, len) in [1000, PLAIN_MAX - 100, PLAIN_MAX, 1 << 20].into_iter().enumerate() {
        large.insert(vec![at as u8; 4], (ItemKind::Value, None, vec![7; len]));
    }
    let built = build(&large, &OPTIONS);
    let table = built.meta.table(&built.bytes).expect("whole");
    let compressed = |number| table.block(number).expect("sound").is_compressed();
    assert_eq!((0..4).map(compressed).collect::<Vec<_>>(), [true, true, false, false]);
    for (key, rest) in &large {
        let slot = Slot::new();
        let item = table.get(key, hash(key), Reads::Verified, &slot).expect("sound").expect("there");
        assert!(is_item(&item, key, rest));
    }
}

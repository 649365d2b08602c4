//! Damaged, foreign and incomplete bytes.

use lodestore_contract::Error;

use super::super::{Built, Cursor, Reads, SeekPosition, Slot, Table, TableMeta, hash, verify};
use super::{IDENTITY, Model, Rng, build, is_item, probes, random_model, random_options};

fn damage(bytes: &mut [u8], rng: &mut Rng) {
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len());
        match rng.below(3) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.next() as u8,
            _ => {
                let end = (at + rng.below(200)).min(bytes.len());
                bytes[at..end].fill(rng.of([0, 0xff]) as u8);
            }
        }
    }
}

/// Reads everything in every way. With verified reads, a result is right or an error.
fn read_all(table: &Table<'_, '_>, model: &Model, reads: Reads, seed: u64) {
    let right =
        |found: &super::super::Item<'_>| model.get(found.key).is_some_and(|rest| is_item(found, found.key, rest));
    for key in model.keys().step_by(1 + model.len() / 100) {
        let slot = Slot::new();
        match table.get(key, hash(key), reads, &slot) {
            Ok(found) => assert!(
                reads == Reads::Trusted || found.as_ref().is_some_and(right),
                "seed {seed}: {key:?} is {found:?}"
            ),
            Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "seed {seed}: {error}"),
        }
        let mut cursor = Cursor::new(*table, reads);
        for position in [SeekPosition::Before(key), SeekPosition::After(key)] {
            let _ = cursor.seek(position);
            let _ = (cursor.next().is_ok(), cursor.prev().is_ok(), cursor.prev().is_ok());
        }
    }
    let mut cursor = Cursor::new(*table, reads);
    let mut steps = 0;
    loop {
        steps += 1;
        assert!(steps <= 100_000, "seed {seed}: a walk ends");
        match cursor.next() {
            Ok(None) => break,
            Ok(Some(item)) => assert!(reads == Reads::Trusted || right(&item), "seed {seed}: {item:?}"),
            Err(_) => {}
        }
    }
    while !matches!(cursor.prev(), Ok(None)) {
        steps += 1;
        assert!(steps <= 200_000, "seed {seed}: a walk back ends");
    }
}

fn findings(bytes: &[u8]) -> Vec<Error> {
    let mut findings = Vec::new();
    verify(bytes, IDENTITY, &mut |finding| findings.push(finding));
    findings
}

/// Damages only blocks in half of the cases, so that the table opens.
fn damaged(built: &Built, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = built.bytes.clone();
    if rng.below(2) == 0 {
        damage(&mut bytes, rng);
    } else {
        let from = built.meta.data_at as usize;
        damage(&mut bytes[from..from + built.meta.data_len as usize], rng);
    }
    bytes
}

#[test]
fn damage_is_refused_or_harmless_and_never_panics() {
    for seed in 1000..1400 {
        let mut rng = Rng(seed);
        let model = random_model(&mut rng);
        let built = build(&model, &random_options(&mut rng));
        let bytes = damaged(&built, &mut rng);
        let found = findings(&bytes);
        if let Ok(meta) = TableMeta::open(&bytes, IDENTITY) {
            let table = meta.table(&bytes).expect("as long as before");
            read_all(&table, &model, Reads::Verified, seed);
            read_all(&table, &model, Reads::Trusted, seed);
            let data = built.meta.data_at as usize..(built.meta.data_at + built.meta.data_len) as usize;
            assert_eq!(found.is_empty(), bytes[data.clone()] == built.bytes[data], "seed {seed}: {found:?}");
        } else {
            assert!(!found.is_empty(), "seed {seed}");
        }
    }
}

/// Reads keys that the table may not have, and walks from each: a result without an error is right.
fn read_around(table: &Table<'_, '_>, model: &Model, rng: &mut Rng, seed: u64) {
    let mut cursor = Cursor::new(*table, Reads::Verified);
    for key in &probes(model, rng) {
        let slot = Slot::new();
        if let Ok(found) = table.get(key, hash(key), Reads::Verified, &slot) {
            assert_eq!(found.is_some(), model.contains_key(key), "seed {seed}: get of {key:?}");
        }
        let (mut next, mut prev) = (model.range::<Vec<u8>, _>(key..), model.range::<Vec<u8>, _>(..key).rev());
        if cursor.seek(SeekPosition::Before(key)).is_ok() {
            for _ in 0..3 {
                let Ok(found) = cursor.next() else { break };
                assert_eq!(found.map(|item| item.key), next.next().map(|(key, _)| key.as_slice()), "seed {seed}");
            }
        }
        if cursor.seek(SeekPosition::Before(key)).is_ok() {
            for _ in 0..3 {
                let Ok(found) = cursor.prev() else { break };
                assert_eq!(found.map(|item| item.key), prev.next().map(|(key, _)| key.as_slice()), "seed {seed}");
            }
        }
    }
}

#[test]
fn damage_after_the_open_is_refused_or_harmless_and_hides_no_item() {
    for seed in 2000..2600 {
        let mut rng = Rng(seed);
        let model = random_model(&mut rng);
        let built = build(&model, &random_options(&mut rng));
        let mut bytes = built.bytes.clone();
        for _ in 0..=rng.below(4) {
            if rng.below(2) == 0 {
                damage(&mut bytes, &mut rng);
            } else {
                let from = built.meta.index_at as usize;
                damage(&mut bytes[from..], &mut rng);
            }
        }
        let table = built.meta.table(&bytes).expect("as long as before");
        read_all(&table, &model, Reads::Verified, seed);
        read_around(&table, &model, &mut rng, seed);
    }
}

/// A line, a block or the whole index of an earlier table at the same place.
#[test]
fn a_part_of_an_earlier_table_at_the_same_place_hides_no_item() {
    for seed in 3000..3200 {
        let mut rng = Rng(seed);
        let model = random_model(&mut rng);
        let options = random_options(&mut rng);
        let older: Model = model
            .iter()
            .filter(|_| rng.below(4) > 0)
            .map(|(key, (kind, expiry, value))| (key.clone(), (*kind, *expiry, vec![3; value.len()])))
            .collect();
        if older.is_empty() {
            continue;
        }
        let mut builder = super::TableBuilder::new(&options, IDENTITY - 1);
        for (key, (kind, expiry, value)) in &older {
            builder.add(&super::Item { key, kind: *kind, expiry: *expiry, value }, hash(key));
        }
        let (mine, older) = (build(&model, &options), builder.finish());
        let mut bytes = mine.bytes.clone();
        let len = bytes.len().min(older.bytes.len());
        let from = rng.below(len) / 64 * 64;
        let end = (from + rng.of([64, 1024, 4096])).min(len);
        bytes[from..end].copy_from_slice(&older.bytes[from..end]);
        let table = mine.meta.table(&bytes).expect("as long as before");
        read_all(&table, &model, Reads::Verified, seed);
        read_around(&table, &model, &mut rng, seed);
    }
}

#[test]
fn damage_after_the_open_never_panics() {
    for seed in 2000..2200 {
        let mut rng = Rng(seed);
        let model = random_model(&mut rng);
        let built = build(&model, &random_options(&mut rng));
        let mut bytes = built.bytes.clone();
        for _ in 0..10 {
            damage(&mut bytes, &mut rng);
        }
        let table = built.meta.table(&bytes).expect("as long as before");
        read_all(&table, &model, Reads::Trusted, seed);
    }
}

#[test]
fn a_foreign_an_unfinished_and_a_cut_table_are_refused() {
    let mut rng = Rng(7);
    let built = build(&random_model(&mut rng), &random_options(&mut rng));
    assert!(TableMeta::open(&built.bytes, IDENTITY).is_ok());
    assert!(matches!(TableMeta::open(&built.bytes, IDENTITY + 1), Err(Error::Corrupt { .. })));
    for len in [0, 1, 127, 128, built.bytes.len() - 1] {
        assert!(matches!(TableMeta::open(&built.bytes[..len], IDENTITY), Err(Error::Corrupt { .. })), "{len}");
        assert!(built.meta.table(&built.bytes[..len]).is_err(), "{len}");
    }
    let mut unfinished = built.bytes.clone();
    unfinished[..128].fill(0);
    assert!(matches!(TableMeta::open(&unfinished, IDENTITY), Err(Error::Corrupt { .. })));
    let mut newer = built.bytes.clone();
    newer[8] = 5;
    assert!(matches!(TableMeta::open(&newer, IDENTITY), Err(Error::NewerFormat { found: 5, .. })));
}

#[test]
fn a_block_of_an_earlier_table_at_the_same_place_is_refused() {
    let mut rng = Rng(9);
    let mut model = Model::new();
    while model.len() < 400 {
        model.insert(rng.bytes(8, 256), (super::ItemKind::Value, None, rng.bytes(8, 256)));
    }
    let options = super::TableOptions { block_bytes: 512, ..super::TableOptions::default() };
    let mut other = super::TableBuilder::new(&options, IDENTITY + 1);
    for (key, (kind, expiry, value)) in &model {
        other.add(&super::Item { key, kind: *kind, expiry: *expiry, value }, hash(key));
    }
    // The same items under another identity: every checksum and every item check differs.
    let (mine, other) = (build(&model, &options), other.finish());
    let mut bytes = mine.bytes.clone();
    let blocks = mine.meta.part(super::super::format::INDEX_PART_ID).start;
    bytes[mine.meta.data_at as usize..blocks].copy_from_slice(&other.bytes[mine.meta.data_at as usize..blocks]);
    let table = mine.meta.table(&bytes).expect("as long as before");
    for key in model.keys() {
        let slot = Slot::new();
        let refused = table.get(key, hash(key), Reads::Verified, &slot).expect_err("not this table's").to_string();
        assert!(refused.contains("block") && refused.contains("at byte") && refused.contains("checksum"), "{refused}");
    }
    assert!(findings(&bytes).len() >= mine.meta.blocks() as usize);
}

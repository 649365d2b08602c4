//! Sizes, limits and what the builder rejects.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lodestore_contract::limits::KEY_MAX;

use super::super::{Item, ItemKind, Reads, Slot, TableBuilder, TableMeta, TableOptions, hash};
use super::{IDENTITY, Model, Rng, build, is_item};

fn filled(key_len: usize, value_len: usize) -> (usize, usize) {
    let mut rng = Rng(1);
    let mut model = Model::new();
    for _ in 0..(1 << 20) / (key_len + value_len + 2) {
        model.insert(rng.bytes(key_len, 256), (ItemKind::Value, None, vec![0; value_len]));
    }
    (build(&model, &TableOptions::default()).bytes.len(), model.len())
}

#[test]
fn small_items_have_little_overhead() {
    let (bytes, items) = filled(8, 8);
    assert!(bytes as f64 <= 21.6 * items as f64, "{bytes} for {items}");
    let (bytes, items) = filled(16, 64);
    assert!(bytes as f64 <= 86.7 * items as f64, "{bytes} for {items}");
}

#[test]
fn items_as_large_as_the_contract_allows_have_blocks_of_their_own() {
    let mut model = Model::new();
    for at in 0..6u8 {
        let key = if at % 2 == 0 { vec![at; KEY_MAX] } else { vec![at] };
        let len = [0, 5 << 20, 65_535, 65_536][usize::from(at) % 4];
        model.insert(key, (ItemKind::Value, None, vec![at; len]));
    }
    let built = build(&model, &TableOptions { block_bytes: 256, ..TableOptions::default() });
    let meta = TableMeta::open(&built.bytes, IDENTITY).expect("sound");
    let table = meta.table(&built.bytes).expect("whole");
    for (key, rest) in &model {
        let slot = Slot::new();
        let item = table.get(key, hash(key), Reads::Verified, &slot).expect("sound").expect("there");
        assert!(is_item(&item, key, rest));
    }
}

#[test]
fn a_builder_is_full_at_the_size_asked_for() {
    let options = TableOptions { table_bytes: 64 << 10, ..TableOptions::default() };
    let mut builder = TableBuilder::new(&options, IDENTITY);
    let mut n = 0u64;
    while !builder.is_full() {
        let key = n.swap_bytes().to_le_bytes();
        builder.add(&Item { key: &key, kind: ItemKind::Value, expiry: None, value: b"12345678" }, hash(&key));
        n += 1;
    }
    let len = builder.finish().bytes.len();
    assert!(((63 << 10) - 256..=64 << 10).contains(&len), "{len}");
}

#[test]
fn a_builder_refuses_unordered_keys_and_invalid_items() {
    let refuses = |items: &[Item<'_>]| {
        let add_all = || {
            let mut builder = TableBuilder::new(&TableOptions::default(), IDENTITY);
            items.iter().for_each(|item| builder.add(item, hash(item.key)));
        };
        catch_unwind(AssertUnwindSafe(add_all)).is_err()
    };
    let item = |key| Item { key, kind: ItemKind::Value, expiry: None, value: b"v" };
    assert!(!refuses(&[item(b"a"), item(b"b")]));
    assert!(refuses(&[item(b"b"), item(b"a")]));
    assert!(refuses(&[item(b"a"), item(b"a")]));
    assert!(refuses(&[item(b"")]));
    assert!(refuses(&[item(&[0; KEY_MAX + 1])]));
    assert!(refuses(&[Item { kind: ItemKind::Tombstone, ..item(b"a") }]));
}

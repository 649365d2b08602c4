//! The filter's false positives.

use super::super::{Reads, TableMeta, hash};
use super::{IDENTITY, ItemKind, Model, Rng, TableOptions, build};

fn filtered(filter_bits: u8, items: usize) -> (Model, Vec<u8>) {
    let mut rng = Rng(u64::from(filter_bits));
    let mut model = Model::new();
    while model.len() < items {
        model.insert(rng.bytes(8, 256), (ItemKind::Value, None, vec![1; 8]));
    }
    let built = build(&model, &TableOptions { filter_bits, ..TableOptions::default() });
    (model, built.bytes)
}

#[test]
fn a_filter_has_every_key_and_few_others() {
    // A filter whose bits are anywhere has a rate of 0.62 ^ bits; unevenly filled lines add up to a
    // half.
    for (bits, most) in [(6, 0.09), (8, 0.034), (10, 0.0135), (12, 0.006), (16, 0.003)] {
        let (model, bytes) = filtered(bits, 20_000);
        let meta = TableMeta::open(&bytes, IDENTITY).expect("sound");
        let table = meta.table(&bytes).expect("whole");
        assert!(model.keys().all(|key| table.may_have(hash(key), Reads::Verified)));
        let mut rng = Rng(99);
        let asked = 100_000;
        let passed = (0..asked).filter(|_| table.may_have(hash(&rng.bytes(9, 256)), Reads::Verified)).count();
        let share = passed as f64 / f64::from(asked);
        assert!(share <= most, "{bits} bits a key: {share} of other keys pass");
    }
}

#[test]
fn without_a_filter_every_key_may_be_present() {
    let (_, bytes) = filtered(0, 100);
    let meta = TableMeta::open(&bytes, IDENTITY).expect("sound");
    let table = meta.table(&bytes).expect("whole");
    assert!(
        table.may_have(0, Reads::Verified)
            && table.may_have(u64::MAX, Reads::Verified)
            && table.filter_range(5).is_empty()
    );
}

//! The behaviour of tables, compared with a `BTreeMap`.

mod compressed;
mod damage;
mod filter;
mod reads;
mod shapes;

use std::collections::BTreeMap;

use super::{Built, Item, ItemKind, TableBuilder, TableOptions, hash};

/// The version of a key: kind, expiry, value.
type Rest = (ItemKind, Option<u64>, Vec<u8>);
/// The expected contents of a table.
type Model = BTreeMap<Vec<u8>, Rest>;

/// Numbers from a seed (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns one of the choices.
    fn of<const N: usize>(&mut self, choices: [usize; N]) -> usize {
        choices[self.below(N)]
    }

    fn bytes(&mut self, len: usize, alphabet: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(alphabet) as u8).collect()
    }
}

const IDENTITY: u64 = 0x1234_5678_9abc;

fn build(model: &Model, options: &TableOptions) -> Built {
    let mut builder = TableBuilder::new(options, IDENTITY);
    for (key, (kind, expiry, value)) in model {
        builder.add(&Item { key, kind: *kind, expiry: *expiry, value }, hash(key));
    }
    let (foretold, blocks) = (builder.bytes(), builder.items());
    let built = builder.finish();
    // The length of a compressed block is known only when it is closed.
    let more = 600 + 8 * blocks + if options.compress { options.block_bytes } else { 0 };
    assert!(built.bytes.len() <= foretold && foretold <= built.bytes.len() + more, "bytes are foretold");
    built
}

fn is_item(item: &Item<'_>, key: &[u8], rest: &Rest) -> bool {
    item.key == key && (item.kind, item.expiry, item.value) == (rest.0, rest.1, rest.2.as_slice())
}

/// Returns a model of one of several kinds of contents: fixed lengths, mixed lengths, long shared
/// prefixes, few distinct bytes, long keys.
fn random_model(rng: &mut Rng) -> Model {
    let contents = rng.below(7);
    let most_items = rng.of([1, 30, 800]);
    let items = 1 + rng.below(most_items);
    let prefix_len = rng.of([0, 3, 40]);
    let prefix = rng.bytes(prefix_len, 256);
    // Values of few different bytes compress.
    let alphabet = rng.of([256, 256, 3, 1]);
    let mut model = Model::new();
    for _ in 0..items {
        let short = 1 + rng.below(20);
        let tail = match contents {
            0 | 1 => rng.bytes(8, 256),
            2 => (rng.next() >> (rng.below(8) * 8)).swap_bytes().to_le_bytes().to_vec(),
            3 => [&[1; 12][..], &rng.bytes(4, 4)].concat(),
            4 => rng.bytes(1 + short % 5, 2),
            5 => [&[9; 9][..rng.below(10)], &rng.bytes(short, 3)].concat(),
            _ => {
                let len = if rng.below(60) == 0 { 65_536 - prefix.len() } else { 1 + rng.below(300) };
                rng.bytes(len, 256)
            }
        };
        let mut rest = (ItemKind::Value, None, rng.bytes(8, alphabet));
        if contents > 1 || rng.below(200) == 0 {
            rest = match rng.below(8) {
                0 => (ItemKind::Tombstone, None, Vec::new()),
                1 => (ItemKind::Pointer, None, rng.bytes(12, alphabet)),
                2 => (ItemKind::Value, Some(rng.next()), rng.bytes(3, alphabet)),
                3 => (ItemKind::Value, None, Vec::new()),
                4 | 5 if rng.below(4) == 0 => {
                    let len = rng.below(400);
                    (ItemKind::Value, None, rng.bytes(len, alphabet))
                }
                4 if rng.below(40) == 0 => (ItemKind::Value, None, rng.bytes(70_000, 256)),
                _ => rest,
            };
        }
        model.insert([prefix.as_slice(), &tail].concat(), rest);
    }
    model
}

fn random_options(rng: &mut Rng) -> TableOptions {
    TableOptions {
        block_bytes: rng.of([256, 300, 1024, 4096, 65_536]),
        table_bytes: 1 << 20,
        filter_bits: rng.of([0, 1, 8, 10, 16]) as u8,
        compress: rng.below(2) == 0,
    }
}

/// Returns keys to read: those of the model, their neighbours, others with the same prefix, and
/// unrelated ones.
fn probes(model: &Model, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut probes = vec![vec![0], vec![0xff; 9], vec![0; 70]];
    let step = 1 + model.len() / 60;
    for key in model.keys().step_by(step).chain(model.keys().next_back()) {
        let mut cut = key.clone();
        cut.pop();
        let mut changed = key.clone();
        let at = rng.below(changed.len());
        changed[at] = changed[at].wrapping_add(1 + rng.below(255) as u8);
        probes.extend([key.clone(), [key.as_slice(), &[0]].concat(), changed]);
        probes.extend((!cut.is_empty()).then_some(cut));
    }
    probes
}

//! Both copies of a word of the extent table are zero after a kill, so an extent in use looks free.
//! Regression: the space of its records was given away while entries still named them. A later put
//! of such a key freed the space of another record.

use lodestore_media::{RegionLayout, u64_at};
use lodestore_sim::damage::base::{self, End, History};
use lodestore_sim::damage::fault::{Fault, Place};
use lodestore_sim::damage::oracle::Effort;
use lodestore_sim::damage::{Case, run_case, scripts, spec};
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::subject::Engine;

/// Seeds of the histories and of their bytes.
const SCRIPT_SEED: u64 = 77;
const HISTORY_SEED: u64 = 5;
/// Operations after the open, for each seed modulo 3.
const OPS: [usize; 3] = [40, 100, 160];

/// Zeroes each word of the extent tables of this history, and continues with the operations of each
/// seed. Returns the number of words.
fn zero_each_word(engine: &dyn Engine, index: u64, seeds: impl Iterator<Item = u64> + Clone) -> u32 {
    let history = History { end: End::Kill, ..scripts::history(engine, SCRIPT_SEED, index, None) };
    let base = base::build(engine, &spec(None), &history, HISTORY_SEED).expect("an undamaged store");
    let mut words = 0;
    for (region, bytes) in base.image.regions.iter().enumerate() {
        let layout = RegionLayout::new(region as u16, bytes.len() as u64, history.shape.chunk_bytes).expect("a region");
        for at in (0..u64::from(layout.chunks) * 8).step_by(8) {
            let copies = [layout.extent_table + at, layout.extent_table_copy + at];
            if u64_at(bytes, copies[0] as usize) == 0 {
                continue;
            }
            words += 1;
            for seed in seeds.clone() {
                let zero = |offset| Fault::Zero { at: Place { file: region as u16, offset, len: 8 } };
                let effort = Effort { again: false, ops: OPS[(seed % 3) as usize], seed };
                let faults = copies.map(zero).to_vec();
                let case = Case { history: history.clone(), history_seed: HISTORY_SEED, faults, effort };
                let judged = run_case(engine, &case, None);
                assert!(judged.is_ok(), "{}: history {index}, word {at}, seed {seed}: {judged:?}", engine.name());
            }
        }
    }
    words
}

#[test]
fn a_zeroed_extent_word_of_hikv_gives_no_record_away() {
    let words: u32 = [2, 8, 10, 39, 41].map(|index| zero_each_word(&HiKvEngine, index, 0..7)).iter().sum();
    assert!(words > 50, "{words} words");
}

#[test]
fn a_zeroed_extent_word_of_nvht_gives_no_record_away() {
    let words: u32 = [11, 12, 18].map(|index| zero_each_word(&NvhtEngine, index, [2, 5, 8].into_iter())).iter().sum();
    assert!(words > 30, "{words} words");
}

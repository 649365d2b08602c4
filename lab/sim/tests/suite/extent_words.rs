//! Both copies of a word of the extent table zeroed, in a killed store.

use lodestore_media::sim::SimSpec;
use lodestore_sim::damage::base::{self, End, History};
use lodestore_sim::damage::fault::{Fault, Place, bytes_at};
use lodestore_sim::damage::judge::{Class, Effort};
use lodestore_sim::damage::{Case, map, run_case, scripts};
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::hashkv::HashEngine;
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::subject::Engine;

/// Histories of each engine.
const HISTORY_COUNT: u64 = 24;
const WORD_BYTES: u64 = 8;

/// Returns the two copies of each word of an extent.
fn words(history: &History, engine: &dyn Engine) -> Vec<[Place; 2]> {
    let base = base::build(engine, &SimSpec::default(), history, 1).expect("no damage yet");
    let parts = map::map_of(&base.image, engine.name());
    let tables: Vec<Place> = parts.iter().filter(|part| part.name == "extent table").map(|part| part.at).collect();
    let copies = tables.chunks(2).flat_map(|copies| {
        let word = |copy: usize, at: u64| Place { offset: copies[copy].offset + at, len: WORD_BYTES, ..copies[copy] };
        (0..copies[0].len).step_by(WORD_BYTES as usize).map(move |at| [word(0, at), word(1, at)])
    });
    copies.filter(|copies| bytes_at(&base.image, copies[0]).iter().any(|byte| *byte != 0)).collect()
}

/// Zeroes both copies of each word in turn. Returns the words, those whose loss is reported or
/// refused, and descriptions of the violations.
fn zero_each_word(engine: &dyn Engine) -> (usize, usize, Vec<String>) {
    let (mut tried, mut told, mut wrong) = (0, 0, Vec::new());
    for index in 0..HISTORY_COUNT {
        let history = History { end: End::Kill, ..scripts::history(engine, 77, index, None) };
        for copies in words(&history, engine) {
            let faults = copies.map(|at| Fault::Zero { at }).to_vec();
            let effort = Effort { again: index % 2 == 0, ops: 60, seed: index };
            let case = Case { history: history.clone(), history_seed: 1, faults, effort };
            tried += 1;
            match run_case(engine, &case, None) {
                Ok(class) => told += usize::from(class.is_some_and(|class| class != Class::Correct)),
                Err(violation) => wrong.push(format!("history {index}, {:?}: {violation:?}", copies[0])),
            }
        }
    }
    (tried, told, wrong)
}

#[test]
fn zeros_in_both_copies_of_an_extent_word_lose_no_key_silently() {
    let engines: [&dyn Engine; 4] = [&HiKvEngine, &NvhtEngine, &FluidEngine, &HashEngine];
    for engine in engines {
        let (tried, told, wrong) = zero_each_word(engine);
        println!("{}: {told} of {tried} words are missed, {} break the rule", engine.name(), wrong.len());
        assert!(
            tried > 100 && told > tried / 4 && wrong.is_empty(),
            "{}: {told} of {tried}, {wrong:#?}",
            engine.name()
        );
    }
}

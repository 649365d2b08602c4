//! Damage of single lines of the store's files.

#[path = "../../../fluidkv/tests/lines/each.rs"]
mod each;

use crate::common;
use lodestore_hashkv::{HashKv, HashKvOptions, Mode};

/// Regression: the end of a log, and the word of its extent, were zeroed without a report.
#[test]
fn no_damaged_line_gives_a_wrong_value_or_hides_a_key() {
    for mode in [Mode::Hash, Mode::Vlog, Mode::Nosep] {
        let options = HashKvOptions { mode, ..common::tiny(8 << 20, 0) };
        each::check_each_line(
            |scratch| HashKv::create(&scratch.store(), &options).expect("create"),
            |scratch| HashKv::open(&scratch.store(), &options),
        );
    }
}

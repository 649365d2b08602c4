//! The contract's suite over matrices of devices.

use crate::common::Matrix;
use lodestore_mkvs::{Acks, Filtering, Inline, Reads};

fn one_by_one() -> Matrix {
    Matrix::new("1x1", 1, 1)
}

fn two_by_two() -> Matrix {
    Matrix::new("2x2", 2, 2)
}

fn three_by_three() -> Matrix {
    Matrix::new("3x3", 3, 3)
}

/// Each device's own thread executes everything.
fn queued() -> Matrix {
    Matrix::new("1x3, no inline", 1, 3).with(|options| options.inline = Inline::Off)
}

fn race_all() -> Matrix {
    Matrix::new("1x3, acks=one, reads=race-all", 1, 3).with(|options| {
        options.acks = Acks::One;
        options.reads = Reads::RaceAll;
    })
}

fn all() -> Matrix {
    Matrix::new("2x3, acks=all, reads=single, no filter", 2, 3).with(|options| {
        options.acks = Acks::All;
        options.reads = Reads::Single;
        options.filter = Filtering::Off;
    })
}

lodestore_contract::conformance! { over one_by_one two_by_two three_by_three queued race_all all }

//! `import` from a RocksDB directory in a program without the feature `peers`.

use crate::args::ImportArgs;
use crate::failure::{Failure, Outcome};

/// Refuses the import.
///
/// # Errors
/// [`Failure::Usage`].
pub fn run(args: &ImportArgs) -> Outcome {
    Err(Failure::Usage(format!(
        "{} needs support for RocksDB, which is not in this build: build the program with `cargo build --release -p \
         lodestore-cli --features peers` (or cargo install lodestore-cli --features peers), and install RocksDB's \
         library (scripts/peers.sh)",
        args.file.display()
    )))
}

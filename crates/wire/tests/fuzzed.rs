//! The fuzz targets of the codec (`fuzz/`), on bytes of a seeded generator.
//!
//! `LODESTORE_FUZZ_SECONDS=3600 cargo test --release -p lodestore-wire --test fuzzed` runs longer.

#[path = "../../../fuzz/src/recipe.rs"]
mod recipe;
#[path = "../../../fuzz/src/rounds.rs"]
mod rounds;
#[path = "../../../fuzz/src/wire.rs"]
mod wire;

#[test]
fn any_bytes_in_any_pieces_are_the_same_commands() {
    rounds::run("wire_requests", 20_000, wire::requests);
}

#[test]
fn any_bytes_are_a_reply_or_refused() {
    rounds::run("wire_replies", 20_000, wire::replies);
}

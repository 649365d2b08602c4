//! The fuzz target of the server (`fuzz/`), on bytes of a seeded generator.
//!
//! `LODESTORE_FUZZ_SECONDS=3600 cargo test --release -p lodestore-server --lib fuzzed` runs longer.

#[path = "../../../fuzz/src/dispatch.rs"]
mod dispatch;
#[path = "../../../fuzz/src/recipe.rs"]
mod recipe;
#[path = "../../../fuzz/src/rounds.rs"]
mod rounds;

use crate::loop_server::{self, LoopServer};

#[test]
fn any_commands_of_several_clients_have_one_reply_each_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let create = || LoopServer::create(&dir.path().join("store")).unwrap();
    rounds::run("server_dispatch", 400, |data| dispatch::dispatch(data, create));
}

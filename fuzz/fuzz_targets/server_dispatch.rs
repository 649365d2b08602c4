//! Fuzzes the server: commands of several clients over one event loop.
#![no_main]

use std::sync::LazyLock;

use lodestore_server::loop_server::LoopServer;

/// The directory of the store, removed with the process.
static DIRECTORY: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a directory"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lodestore_fuzz::dispatch::dispatch(data, || LoopServer::create(&DIRECTORY.path().join("store")).expect("a store"));
});

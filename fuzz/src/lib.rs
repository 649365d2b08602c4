//! Fuzz targets on whole pools, stores and servers, as functions of bytes.
//!
//! `lab/sim/tests/suite/parsers.rs` runs the same functions in ordinary tests. `README.md` lists
//! the targets.
//!
//! # Guarantees
//! * Every input is valid: a target reads its bytes as decisions and edits.
//! * A target panics only if the property of its row in `README.md` fails.
//!
//! # Modules
//! * [`recipe`]: bytes of a fuzzer, read as decisions.
//! * [`damage`]: damage to a store's image, encoded as bytes.
//! * [`media`]: headers as bytes, and whole pools.
//! * [`store`]: whole stores of any engine, damaged and opened.
//! * [`hikv`], [`nvht`], [`fluidkv`], [`hashkv`], [`mkvs`]: targets of each engine.
//! * [`wire`]: requests and replies in any pieces.
//! * [`dispatch`]: commands of several clients over one event loop.
//! * `lines`, `lmdb`, `rdb`: import formats, included by the program's tests.
//! * `rounds`: runs without libFuzzer, included by tests of other crates.
#![forbid(unsafe_code)]

pub mod damage;
pub mod dispatch;
pub mod fluidkv;
pub mod hashkv;
pub mod hikv;
pub mod media;
pub mod mkvs;
pub mod nvht;
pub mod recipe;
pub mod store;
pub mod wire;

use lodestore_server::loop_server;

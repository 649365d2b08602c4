//! Fuzz targets on whole pools and stores, as functions of bytes. `crates/sim/tests/suite/parsers.rs`
//! runs the same functions in ordinary tests.
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

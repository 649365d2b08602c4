//! Tests of the server over loopback connections.

mod commands;
mod common;
mod protocol;
mod transactions;

//! Tests of the server over loopback connections.

mod commands;
mod common;
mod groups;
mod protocol;
mod transactions;

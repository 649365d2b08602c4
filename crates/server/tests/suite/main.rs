//! Tests of the server over loopback connections.

mod acl;
mod commands;
mod common;
mod configuration;
mod docs;
mod groups;
mod hash_kill;
mod hash_model;
mod hashes;
mod http;
mod objects;
mod protocol;
mod stopping;
mod transactions;

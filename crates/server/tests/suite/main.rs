//! Tests of the server over loopback connections.

mod acl;
mod commands;
mod common;
mod groups;
mod hash_kill;
mod hash_model;
mod hashes;
mod objects;
mod protocol;
mod transactions;

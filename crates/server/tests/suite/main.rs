//! Tests of the server over loopback connections.

mod abuse;
mod acl;
mod clients;
mod commands;
mod common;
mod configuration;
mod counters;
mod damage;
mod docs;
mod groups;
mod hash_kill;
mod hash_model;
mod hashes;
mod http;
mod info;
mod kills;
mod objects;
mod observe;
mod pause;
mod protocol;
mod pubsub;
mod stopping;
#[cfg(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tls;
mod tracking;
mod transactions;
mod unix_socket;

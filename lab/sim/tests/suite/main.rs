//! Tests of the explorers and checkers, as one binary.
//!
//! One binary needs one link, and the tests of all files share the cores. Tests that change or
//! measure the whole process are binaries of their own.

/// Returns a source file's path as a watch of the recorder sees it. A file that was renamed does
/// not compile, so a test cannot wait for a call site that no longer exists.
macro_rules! source_path {
    ($path:literal) => {{
        const _: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../", $path));
        $path
    }};
}

#[path = "../common/mod.rs"]
mod common;
mod damage_cases;
mod damage_engines;
mod damage_explorer;
mod damage_printed;
mod damage_table;
mod durable;
mod explore_allocator;
mod explore_fluidkv;
mod explore_hashkv;
mod explore_hikv;
mod explore_keyspaces;
mod explore_mkvs;
mod explore_nvht;
mod explore_toy;
mod extent_words;
mod failed_sync;
mod fluidkv_full;
mod fluidkv_order;
mod growth_nvht;
mod hashkv_damage;
mod hashkv_faults;
mod hashkv_faults_lasting;
mod hashkv_order;
mod hikv_splits;
mod histories;
mod log_ends;
mod nvht_order;
mod parsers;
mod transactions;

//! Whole-store tests: crash exploration, damage, linearizability, kill -9.
//!
//! [`explore`] runs scripts of operations on a simulated medium. For each crash point it takes the
//! images that the crash may leave, opens each, and judges its contents ([`oracle`]). [`mutation`]
//! plants faults and reports which oracle detects each.
//!
//! Layer 5. The programs in `src/bin` run longer explorations than the tests.
//!
//! # Guarantees
//! * A seed reproduces every exploration of scripts or of damage.
//! * A failing image is a file that `explore --replay` opens again.
//! * A panic inside an engine is a finding, not the end of an exploration.
//! * Explorations cover power failures on simulated media. [`kill9`] and [`served`] cover the death
//!   of a real process.
//!
//! # Modules
//! * [`config`], [`counts`]: bounds and counts of an exploration.
//! * [`panics`]: panics inside an engine as findings.
//! * [`history`], [`scans`]: linearization of concurrent operations; scans during them.
//! * [`op`], [`script`]: operations with a model; scripts that cover an engine.
//! * [`shape`]: sizes and modes of simulated stores.
//! * [`subject`], [`pool_subject`]: interface to an engine; stores on a simulated pool.
//! * [`hikv`], [`nvht`], [`fluidkv`], [`hashkv`], [`mkvs`]: the engines on simulated media.
//! * [`keyspaces`]: keyspaces over an engine on simulated media.
//! * [`keyspace_keys`]: names of keyspaces and of their keys in the model.
//! * [`allocator`], [`toy`]: the allocator alone; a minimal engine with faults.
//! * [`oracle`]: requirements for a recovered store.
//! * [`failure`]: failing images as files.
//! * [`explore`]: scripts on worker threads, with crashes.
//! * [`concurrent`], [`transactions`]: histories of threads; strict serializability of
//!   transactions.
//! * [`damage`]: stores whose files are damaged.
//! * [`faults`], [`mutation`]: planted faults of the engines; whether the explorer detects them.
//! * [`kill9`]: a process under load, killed by SIGKILL.
//! * [`served`]: a server under load, killed by SIGKILL.
#![forbid(unsafe_code)]

pub mod allocator;
pub mod concurrent;
pub mod config;
pub mod counts;
pub mod damage;
pub mod explore;
pub mod failure;
pub mod faults;
pub mod fluidkv;
pub mod hashkv;
pub mod hikv;
pub mod history;
pub mod keyspace_keys;
pub mod keyspaces;
pub mod kill9;
pub mod mkvs;
pub mod mutation;
pub mod nvht;
pub mod op;
pub mod oracle;
pub mod panics;
pub mod pool_subject;
pub mod scans;
pub mod script;
pub mod served;
pub mod shape;
pub mod subject;
pub mod toy;
pub mod transactions;

//! Pages of the bench's results, from files alone.
//!
//! `lodestore-bench evaluate` leaves rows (NAME.jsonl) and their description (`runs.json`) in a
//! directory. This crate makes the pages of that directory. The bench does not use this crate.
//!
//! # Guarantees
//! * The same files give the same pages, on every machine.
//! * A page is written under another name first, so an interruption leaves no partial page.
//!
//! # Modules
//! * `row`, `record`: the files of the bench.
//! * `metric`: the measures that compare stores.
//! * `store`: names of stores.
//! * `text`: numbers as text.
//! * `pages`: pages of experiments, and their index.
#![forbid(unsafe_code)]

mod metric;
mod pages;
mod record;
mod row;
mod store;
mod text;

pub use pages::{Made, pages};

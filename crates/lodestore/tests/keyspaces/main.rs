//! Named keyspaces as their user sees them, in every engine, in memory and on disk.

mod batches;
mod catalogue;
mod drops;
mod kills;
mod maps;
mod model;
mod setup;

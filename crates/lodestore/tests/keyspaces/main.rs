//! Named keyspaces from the user's point of view, in every engine, in memory and on disk.

mod batches;
mod catalogue;
mod drops;
mod kills;
mod maps;
mod model;
mod setup;

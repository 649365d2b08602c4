//! The statistics of a store and of each engine, and the report of a verification.
//!
//! [`Stats`] holds the struct of the store's engine in its field [`engine_counters`].
//! [`Stats::to_openmetrics`] renders all numbers as OpenMetrics text.
//!
//! [`engine_counters`]: Stats::engine_counters
//!
//! ```
//! # fn main() -> lodestore::Result<()> {
//! # #[cfg(feature = "fluidkv")] {
//! # let dir = lodestore_contract::testing::Scratch::on_disk();
//! # let path = dir.path().join("state");
//! # let builder = lodestore::Db::builder(&path).engine(lodestore::db::Engine::fluidkv());
//! # let db = builder.capacity(64 << 20).open()?;
//! use lodestore::stats::FluidkvStats;
//!
//! let stats = db.stats();
//! if let Some(fluidkv) = stats.engine_counters.of::<FluidkvStats>() {
//!     assert_eq!(fluidkv.compactions, 0);
//! }
//! print!("{}", stats.to_openmetrics("/var/lib/state"));
//! # }
//! # Ok(())
//! # }
//! ```

pub use lodestore_contract::{
    EngineCounters, EngineStatistics, Finding, MediumUse, Metric, MetricKind, OPENMETRICS_TYPE, Progress,
    RecoveryState, ScrubStats, SegmentWear, Stats, StoreStats, Unit, VerifyReport, Wear, format_size, openmetrics,
    parse_size,
};
#[cfg(feature = "fluidkv")]
pub use lodestore_fluidkv::FluidkvStats;
#[cfg(feature = "hashkv")]
pub use lodestore_hashkv::HashkvStats;
#[cfg(feature = "hikv")]
pub use lodestore_hikv::HikvStats;
#[cfg(feature = "mkvs")]
pub use lodestore_mkvs::MkvsStats;
#[cfg(feature = "nvht")]
pub use lodestore_nvht::NvhtStats;

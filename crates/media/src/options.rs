//! How a pool is made and opened.
//!
//! The rule for an open: what shapes the store (`capacity`, `region_bytes`, `chunk_bytes`, `durability`, `emulate_dax`)
//! was stored at its creation and is taken from there; what shapes only this run (all other options) is taken from the
//! options given. [`Pool::options`](crate::Pool::options) tells the result. One exception: an open may raise the durability (`raise`).

use std::fmt;

use lodestore_contract::{Durability, Error, EventSink, Result};

use crate::region::{HUGE_BYTES, MAX_REGIONS};
use crate::region_layout::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, PAGE_BYTES, REGION_BYTES_MAX, REGION_BYTES_MIN};

/// Longest name of an engine, in bytes.
pub const ENGINE_NAME_MAX: usize = 31;
/// Bytes of the first regions, where nothing else is asked for and `region_bytes` is not less.
pub const FIRST_REGION_BYTES: u64 = 32 << 20;
/// The next region has this part of what the regions have together, from [`FIRST_REGION_BYTES`] to `region_bytes`.
const GROWTH_PART: u64 = 4;
/// How many regions more than `capacity / region_bytes` there may be, since the first ones are short: those that it takes to come to
/// `GROWTH_PART` times the longest `region_bytes`.
const SHORT_REGIONS: usize = 64;
/// Most nanoseconds of an emulated latency: a second.
pub const LATENCY_NS_MAX: u64 = 1_000_000_000;

/// Whether a background thread does the work of first touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefault {
    /// The next region is made and touched before it is needed; at an open the mapping is filled behind the caller.
    #[default]
    Ahead,
    /// No background thread: regions are made when they are needed, pages are touched when they are used.
    None,
}

/// Options of a pool; see the module for which of them an open takes from the store.
#[derive(Clone)]
pub struct PoolOptions {
    /// Most bytes of all regions together.
    pub capacity: u64,
    /// Most bytes of one region, unless a longer extent needs more. A store takes space as it grows: its first regions have 32 MiB, later
    /// ones a quarter of what there is. A smaller capacity makes one region of that size.
    pub region_bytes: u64,
    /// Bytes of region 0 of a new store, however many `region_bytes` are: what is known to be needed is made, and touched, at once. None: 32 MiB, or
    /// `region_bytes` where that is less.
    pub first_bytes: Option<u64>,
    /// Unit of extents in bytes, a power of two; slab extents are 16 of them.
    pub chunk_bytes: u32,
    /// What an acknowledged write shall survive.
    pub durability: Durability,
    /// At an open of a store that was stopped cleanly: the durability that it has from then on, no lower than that which it has. A creation
    /// does not look at it.
    pub raise: Option<Durability>,
    /// Treat the mapping as DAX, whatever it is: every flush and fence is executed. For evaluation; on `Shm` and
    /// `File` it does not make writes survive power loss.
    pub emulate_dax: bool,
    /// Nanoseconds to spin after each fence that persists something.
    pub persist_ns: u64,
    /// Spin `persist_ns` for each 256-byte block flushed since the last fence, in place of once.
    pub persist_per_block: bool,
    /// Nanoseconds to spin at each first read of a record.
    pub read_ns: u64,
    /// Ask for huge pages where the medium has them.
    pub huge_pages: bool,
    /// Whether a background thread touches pages ahead.
    pub prefault: Prefault,
    /// Place extents by the write counts of the medium's segments.
    pub wear_aware: bool,
    /// Accept a process-durable store whose machine restarted.
    pub salvage: bool,
    /// Receives what the pool does on its own, and what its engine tells it: behind the thread's [`Quiet`](crate::Quiet) moment.
    pub events: Option<EventSink>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            capacity: 8 << 30,
            region_bytes: 256 << 20,
            first_bytes: None,
            chunk_bytes: 4096,
            durability: Durability::Process,
            raise: None,
            emulate_dax: false,
            persist_ns: 0,
            persist_per_block: false,
            read_ns: 0,
            huge_pages: true,
            prefault: Prefault::Ahead,
            wear_aware: true,
            salvage: false,
            events: None,
        }
    }
}

impl fmt::Debug for PoolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolOptions")
            .field("capacity", &self.capacity)
            .field("region_bytes", &self.region_bytes)
            .field("first_bytes", &self.first_bytes)
            .field("chunk_bytes", &self.chunk_bytes)
            .field("durability", &self.durability)
            .field("raise", &self.raise)
            .field("emulate_dax", &self.emulate_dax)
            .field("persist_ns", &self.persist_ns)
            .field("persist_per_block", &self.persist_per_block)
            .field("read_ns", &self.read_ns)
            .field("huge_pages", &self.huge_pages)
            .field("prefault", &self.prefault)
            .field("wear_aware", &self.wear_aware)
            .field("salvage", &self.salvage)
            .finish_non_exhaustive()
    }
}

fn refuse(name: &str, value: impl fmt::Display, why: String) -> Error {
    Error::InvalidOption { name: name.into(), value: value.to_string(), why }
}

impl PoolOptions {
    /// Refuses numbers that no pool can have, and an engine name that the header cannot hold.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check(&self, engine: &str) -> Result<()> {
        if engine.is_empty() || engine.len() > ENGINE_NAME_MAX || engine.contains('\0') {
            return Err(refuse("engine", engine, format!("give a name of 1 to {ENGINE_NAME_MAX} bytes")));
        }
        if self.capacity < REGION_BYTES_MIN {
            return Err(refuse("capacity", self.capacity, format!("give at least {REGION_BYTES_MIN} bytes")));
        }
        for (name, bytes) in [("region_bytes", Some(self.region_bytes)), ("first_bytes", self.first_bytes)] {
            let fits =
                |bytes: &u64| (REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(bytes) && bytes.is_multiple_of(PAGE_BYTES);
            if let Some(bytes) = bytes.filter(|bytes| !fits(bytes)) {
                let why = format!("give a multiple of {PAGE_BYTES} from {REGION_BYTES_MIN} to {REGION_BYTES_MAX}");
                return Err(refuse(name, bytes, why));
            }
        }
        let regions = if self.region_bytes > FIRST_REGION_BYTES { MAX_REGIONS - SHORT_REGIONS } else { MAX_REGIONS };
        let most = self.region_bytes.saturating_mul(regions as u64);
        if self.capacity > most {
            let why =
                format!("{regions} regions of {} bytes hold {most}: give less, or larger regions", self.region_bytes);
            return Err(refuse("capacity", self.capacity, why));
        }
        self.check_latency()?;
        if !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&self.chunk_bytes) || !self.chunk_bytes.is_power_of_two() {
            let why = format!("give a power of two from {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX}");
            return Err(refuse("chunk_bytes", self.chunk_bytes, why));
        }
        if u64::from(self.chunk_bytes) > self.first_region_bytes() / 8 {
            let why = "give at most an eighth of a region".into();
            return Err(refuse("chunk_bytes", self.chunk_bytes, why));
        }
        Ok(())
    }

    /// Refuses latencies that no medium has, which would only look like a hang.
    pub(crate) fn check_latency(&self) -> Result<()> {
        for (name, value) in [("persist-ns", self.persist_ns), ("read-ns", self.read_ns)] {
            if value > LATENCY_NS_MAX {
                return Err(refuse(name, value, format!("give at most {LATENCY_NS_MAX}")));
            }
        }
        Ok(())
    }

    /// Bytes of region 0.
    pub(crate) fn first_region_bytes(&self) -> u64 {
        self.first_bytes.unwrap_or_else(|| self.usual_region_bytes(0)).min(self.capacity / PAGE_BYTES * PAGE_BYTES)
    }

    /// Bytes of the region that is added where the regions have `total` together, room and extents permitting.
    pub(crate) fn usual_region_bytes(&self, total: u64) -> u64 {
        let grown = (total / GROWTH_PART).max(FIRST_REGION_BYTES).next_multiple_of(HUGE_BYTES);
        self.region_bytes.min(grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_pool_can_have_are_refused() {
        let good = PoolOptions::default();
        assert!(good.check("hikv").is_ok());
        assert!(good.check("").is_err());
        assert!(good.check(&"x".repeat(32)).is_err());
        for bad in [
            PoolOptions { capacity: 1000, ..good.clone() },
            PoolOptions { region_bytes: 0, ..good.clone() },
            PoolOptions { region_bytes: (1 << 20) + 1, ..good.clone() },
            PoolOptions { region_bytes: 2 << 40, ..good.clone() },
            PoolOptions { first_bytes: Some(0), ..good.clone() },
            PoolOptions { first_bytes: Some((1 << 20) + 1), ..good.clone() },
            PoolOptions { first_bytes: Some(2 << 40), ..good.clone() },
            PoolOptions { chunk_bytes: 0, ..good.clone() },
            PoolOptions { chunk_bytes: 3000, ..good.clone() },
            PoolOptions { chunk_bytes: 65536, region_bytes: 65536, ..good.clone() },
            PoolOptions { capacity: 1 << 50, ..good.clone() },
            PoolOptions { persist_ns: u64::MAX, ..good.clone() },
            PoolOptions { read_ns: LATENCY_NS_MAX + 1, ..good.clone() },
        ] {
            assert!(matches!(bad.check("hikv"), Err(Error::InvalidOption { .. })), "{bad:?}");
        }
        let small = PoolOptions { capacity: 100_000, ..good };
        assert_eq!(small.first_region_bytes(), 24 * 4096);
    }

    /// The first regions of a store are short, whatever the longest: a store of a few records would take all of that.
    #[test]
    fn regions_grow_with_the_store() {
        let opts = PoolOptions::default();
        let mut lengths = vec![opts.first_region_bytes()];
        while lengths.last() != Some(&opts.region_bytes) {
            lengths.push(opts.usual_region_bytes(lengths.iter().sum()));
        }
        let mib: Vec<u64> = lengths.iter().map(|len| len >> 20).collect();
        assert_eq!(mib, [32, 32, 32, 32, 32, 40, 50, 64, 80, 100, 124, 156, 194, 242, 256]);
        let short = PoolOptions { region_bytes: 1 << 20, ..PoolOptions::default() };
        assert_eq!((short.first_region_bytes(), short.usual_region_bytes(1 << 40)), (1 << 20, 1 << 20));
        let asked = PoolOptions { first_bytes: Some(4 << 30), ..short };
        assert_eq!((asked.first_region_bytes(), asked.usual_region_bytes(4 << 30)), (4 << 30, 1 << 20));
    }

    /// However long the longest, the short ones before it leave room for as many as the capacity takes.
    #[test]
    fn the_largest_capacity_fits_the_regions() {
        for region_bytes in [FIRST_REGION_BYTES + PAGE_BYTES, 256 << 20, 4 << 30, REGION_BYTES_MAX] {
            let opts = PoolOptions { region_bytes, ..PoolOptions::default() };
            let most = region_bytes * (MAX_REGIONS - SHORT_REGIONS) as u64;
            assert!(PoolOptions { capacity: most, ..opts.clone() }.check("hikv").is_ok());
            assert!(PoolOptions { capacity: most + PAGE_BYTES, ..opts.clone() }.check("hikv").is_err());
            let (mut total, mut regions) = (opts.first_region_bytes(), 1);
            while total < most {
                total += opts.usual_region_bytes(total);
                regions += 1;
            }
            assert!(regions <= MAX_REGIONS, "{regions} regions of {region_bytes}");
        }
    }
}

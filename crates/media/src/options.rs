//! Options for creating and opening a pool.
//!
//! The rule for an open: options that shape the store (`capacity`, `region_bytes`, `chunk_bytes`,
//! `durability`, `emulate_dax`) were stored at its creation, and the stored values count. All other
//! options shape only this run, and the given values count. [`Pool::options`](crate::Pool::options)
//! returns the result. One exception: an open may raise the durability (`raise`).

use std::fmt;

use lodestore_contract::{Durability, Error, EventSink, OptionTable, Result, format_size};

use crate::region::HUGE_PAGE_BYTES;
use crate::region_layout::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, MAX_REGIONS, PAGE_BYTES, REGION_BYTES_MAX, REGION_BYTES_MIN,
};

/// Maximum length of an engine's name, in bytes.
pub const ENGINE_NAME_MAX: usize = 31;
/// Bytes of the first regions, unless another length is requested or `region_bytes` is less.
pub const FIRST_REGION_BYTES: u64 = 32 << 20;
/// The next region's length is the total of all regions divided by this, limited to
/// [`FIRST_REGION_BYTES`] to `region_bytes`.
const GROWTH_DIVISOR: u64 = 4;
/// Regions allowed beyond `capacity / region_bytes`, since the first ones are short. Enough to
/// reach `GROWTH_DIVISOR` times the maximum `region_bytes`.
const SHORT_REGION_COUNT: usize = 64;
/// Minimum chunks of a region.
const CHUNKS_MIN: u64 = 8;
/// A region length that a refusal advises is a multiple of this.
const ADVISED_REGION_STEP_BYTES: u64 = 1 << 20;
/// Maximum emulated latency in nanoseconds: a second.
pub const LATENCY_NS_MAX: u64 = 1_000_000_000;

/// Limits the length of the regions of a store by the space that the store can use. This is its
/// capacity, or its medium if the medium is smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionShare {
    /// A region has at most `1/divisor` of the space.
    pub divisor: u64,
    /// The limit is never below this length.
    pub bytes_min: u64,
}

impl RegionShare {
    /// Returns the length limit of a region in a store that can use `total` bytes.
    pub fn limit(self, total: u64) -> u64 {
        (total / self.divisor).max(self.bytes_min)
    }
}

/// Whether a background thread does first touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefault {
    /// The next region is created and touched before it is needed; at an open the mapping is filled
    /// in the background.
    #[default]
    Ahead,
    /// No background thread: regions are created when they are needed, pages are touched when they
    /// are used.
    None,
}

// The code relies on the declared bounds.
const _: () = assert!(REGION_BYTES_MIN == 32 << 10 && REGION_BYTES_MAX == 1 << 40 && PAGE_BYTES == 4096);
const _: () = assert!(CHUNK_BYTES_MIN == 64 && CHUNK_BYTES_MAX == 1 << 20 && LATENCY_NS_MAX == 1000000000);

lodestore_contract::options! {
    /// Options of a pool. The module says which of them an open reads from the store.
    #[derive(Clone)]
    pub struct PoolOptions {
        /// Maximum bytes of all regions together.
        pub capacity: u64 = 8 << 30,
        /// The failure that an acknowledged write survives.
        pub durability: Durability = Durability::Process,
        /// At an open after a clean stop: the durability that the store has from then on, no lower
        /// than its present one. Ignored by a creation.
        pub raise: Option<Durability> = None,
        /// Treats any mapping as DAX: every flush and fence is executed. For evaluation; on `Shm`
        /// and `File` writes still do not survive power loss.
        pub emulate_dax: bool = false,
        /// Accepts a process-durable store whose machine restarted.
        pub salvage: bool = false,
        /// Limits new regions on a medium that is smaller than `capacity`. `None`: no limit.
        pub region_share: Option<RegionShare> = None,
        /// Receives the events of the pool and of its engine, after the thread's
        /// [`Quiet`](crate::Quiet) scope.
        pub events: Option<EventSink> = None,
    }

    /// Options of a pool that were set.
    pub settings PoolSettings {
        /// Maximum bytes of one region, unless a longer extent needs more. The store grows by a
        /// quarter of its bytes, and by 32 MiB to this size at once. A smaller capacity creates one
        /// region of that size.
        fixed region_bytes: u64 = "256M", size("32K", "1T", multiple of "4K"), as "region";
        /// Bytes that a new store allocates at once, independent of the option region; 0: 32 MiB,
        /// or the option region if that is less.
        fixed first_bytes: Option<u64> = "0", zero_is_none(size("32K", "1T", multiple of "4K")), as "first-region";
        /// Bytes of a chunk, the allocator's smallest extent; slab extents have 16 chunks.
        fixed chunk_bytes: u32 = "4K", size("64", "1M", power of two), as "chunk";
        /// Whether the store requests huge pages if the medium has them.
        tunable huge_pages: bool = "on", switch(), as "huge-pages";
        /// Whether a background thread creates regions and touches their pages before they are
        /// needed (ahead).
        tunable prefault: Prefault = "ahead", one_of("ahead" => Prefault::Ahead, "none" => Prefault::None), as "prefault";
        /// Whether the allocator prefers the least-written space of the medium.
        tunable wear_aware: bool = "on", switch(), as "wear-aware";
        /// Nanoseconds added to each persist while the store is open, for measurements.
        #[cfg(feature = "lab")]
        tunable persist_ns: u64 = "0", nanos(0, 1000000000), as "persist-ns";
        /// Unit of the latency of a persist: each fence, or each block of 256 bytes that was
        /// flushed since the last fence.
        #[cfg(feature = "lab")]
        tunable persist_per_block: bool = "fence", one_of("fence" => false, "block" => true), as "persist-per";
        /// Nanoseconds added to the first read of a record, for measurements.
        #[cfg(feature = "lab")]
        tunable read_ns: u64 = "0", nanos(0, 1000000000), as "read-ns";
    }
}

impl fmt::Debug for PoolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PoolOptions");
        #[cfg(feature = "lab")]
        shown
            .field("persist_ns", &self.persist_ns)
            .field("persist_per_block", &self.persist_per_block)
            .field("read_ns", &self.read_ns);
        shown
            .field("capacity", &self.capacity)
            .field("region_bytes", &self.region_bytes)
            .field("first_bytes", &self.first_bytes)
            .field("chunk_bytes", &self.chunk_bytes)
            .field("region_share", &self.region_share)
            .field("durability", &self.durability)
            .field("raise", &self.raise)
            .field("emulate_dax", &self.emulate_dax)
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
            return Err(refuse("engine", engine, format!("use a name of 1 to {ENGINE_NAME_MAX} bytes")));
        }
        if self.capacity < REGION_BYTES_MIN {
            return Err(refuse("capacity", self.capacity, format!("use at least {REGION_BYTES_MIN} bytes")));
        }
        self.check_bounds()?;
        let regions =
            if self.region_bytes > FIRST_REGION_BYTES { MAX_REGIONS - SHORT_REGION_COUNT } else { MAX_REGIONS };
        let capacity_max = self.region_bytes.saturating_mul(regions as u64);
        if self.capacity > capacity_max {
            let region_min = self.capacity.div_ceil((MAX_REGIONS - SHORT_REGION_COUNT) as u64);
            let region_min = region_min.max(FIRST_REGION_BYTES + 1).checked_next_multiple_of(ADVISED_REGION_STEP_BYTES);
            let larger = match region_min.filter(|bytes| *bytes <= REGION_BYTES_MAX) {
                Some(bytes) => {
                    format!(", or regions of at least {} (`Builder::set(\"region\", ..)`)", format_size(bytes))
                }
                None => String::new(),
            };
            let why = format!(
                "{regions} regions of {} have {capacity_max} bytes: use at most {capacity_max}{larger}",
                format_size(self.region_bytes)
            );
            return Err(refuse("capacity", self.capacity, why));
        }
        if u64::from(self.chunk_bytes) > self.first_region_bytes() / CHUNKS_MIN {
            let why = "use at most an eighth of a region".into();
            return Err(refuse("chunk", self.chunk_bytes, why));
        }
        Ok(())
    }

    /// Refuses latencies that no medium has, which would only look like a hang.
    pub(crate) fn check_latency(&self) -> Result<()> {
        self.check_bounds_of(|name| matches!(name, "persist-ns" | "read-ns"))
    }

    pub(crate) fn first_region_bytes(&self) -> u64 {
        self.first_bytes.unwrap_or_else(|| self.usual_region_bytes(0)).min(self.capacity / PAGE_BYTES * PAGE_BYTES)
    }

    /// Limits the first region by the free bytes of the medium, unless its length was set.
    pub(crate) fn limit_first_region(&mut self, medium_free: u64) {
        if self.first_bytes.is_none() {
            self.first_bytes = Some(self.first_region_bytes().min(self.region_limit(medium_free)));
        }
    }

    /// Returns the length limit of a new region in a store that can use `reachable` bytes of its
    /// capacity. The limit is a power of two, so that small changes of the free space do not change
    /// it.
    pub(crate) fn region_limit(&self, reachable: u64) -> u64 {
        match self.region_share {
            Some(share) if reachable < self.capacity => {
                let chunks = CHUNKS_MIN * u64::from(self.chunk_bytes);
                1 << share.limit(reachable).max(chunks).max(REGION_BYTES_MIN).ilog2()
            }
            _ => u64::MAX,
        }
    }

    /// Returns the bytes of a new region when the regions have `total` bytes together, unless the
    /// capacity or an extent changes it.
    pub(crate) fn usual_region_bytes(&self, total: u64) -> u64 {
        let grown = (total / GROWTH_DIVISOR).max(FIRST_REGION_BYTES).next_multiple_of(HUGE_PAGE_BYTES);
        self.region_bytes.min(grown)
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::options::check_declaration;

    use super::*;

    #[test]
    fn each_option_accepts_its_default_and_its_bounds_and_refuses_values_just_outside() {
        assert_eq!(check_declaration::<PoolOptions>(), Ok(()));
    }

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

    /// The first regions of a store are short, whatever the maximum: a store of a few records would
    /// otherwise use one maximum region.
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

    #[test]
    fn a_region_share_limits_regions_only_on_a_medium_below_the_capacity() {
        let share = RegionShare { divisor: 128, bytes_min: 256 << 10 };
        let opts = PoolOptions { region_share: Some(share), ..PoolOptions::default() };
        assert_eq!(opts.region_limit(opts.capacity), u64::MAX);
        assert_eq!(opts.region_limit(128 << 20), 1 << 20);
        assert_eq!(opts.region_limit((128 << 20) - 1), 512 << 10);
        assert_eq!(opts.region_limit(1 << 20), 256 << 10);
        let coarse = PoolOptions { chunk_bytes: 1 << 20, ..opts.clone() };
        assert_eq!(coarse.region_limit(1 << 20), 8 << 20);
        let first_bytes = |mut opts: PoolOptions, free| {
            opts.limit_first_region(free);
            opts.first_region_bytes()
        };
        assert_eq!(first_bytes(opts.clone(), 64 << 20), 512 << 10);
        assert_eq!(first_bytes(opts.clone(), 1 << 40), FIRST_REGION_BYTES);
        assert_eq!(first_bytes(PoolOptions { first_bytes: Some(1 << 20), ..opts }, 64 << 20), 1 << 20);
        assert_eq!(first_bytes(PoolOptions::default(), 64 << 20), FIRST_REGION_BYTES);
    }

    /// The short first regions leave enough regions for the largest capacity, whatever the maximum
    /// length.
    #[test]
    fn the_largest_capacity_fits_the_regions() {
        for region_bytes in [FIRST_REGION_BYTES + PAGE_BYTES, 256 << 20, 4 << 30, REGION_BYTES_MAX] {
            let opts = PoolOptions { region_bytes, ..PoolOptions::default() };
            let capacity_max = region_bytes * (MAX_REGIONS - SHORT_REGION_COUNT) as u64;
            assert!(PoolOptions { capacity: capacity_max, ..opts.clone() }.check("hikv").is_ok());
            assert!(PoolOptions { capacity: capacity_max + PAGE_BYTES, ..opts.clone() }.check("hikv").is_err());
            let (mut total, mut regions) = (opts.first_region_bytes(), 1);
            while total < capacity_max {
                total += opts.usual_region_bytes(total);
                regions += 1;
            }
            assert!(regions <= MAX_REGIONS, "{regions} regions of {region_bytes}");
        }
    }
}

//! From a pool to an open store: created, or read.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use lodestore_contract::scrub::Scrub;
use lodestore_contract::{Error, PoisonReason, Result};
use lodestore_media::{OpenReport, Pool};

use crate::background::scheduler::{Background, Scheduler};
use crate::db::open_store::Inner;
use crate::db::recover::{self, EXPORT, Recovery, RecoveryOptions};
use crate::layout::store_superblock;
use crate::memtable::{Memtable, MemtableLimits, MemtableOptions};
use crate::options::FluidOptions;
use crate::space::dram::{Dram, budget_min, memtable_limit, pool_dram};
use crate::space::gauge::Gauge;
use crate::space::reserve::Reserve;
use crate::space::sizes::Sizes;
use crate::tree::Tree;
use crate::tree::counts::Counts;
use crate::tree::group_commit::SharedLog;
use crate::tree::sequence::{Order, STRIPES};
use crate::values::ValueLog;
use crate::values::segment::Hold;
use crate::version::manifest::state::ManifestState;
use crate::version::publish::Publisher;
use crate::version::tables::Identities;
use crate::version::view::View;

struct Parts {
    order: Order,
    publisher: Publisher,
    values: Arc<ValueLog>,
    recovery: Recovery,
    replayed: Option<Arc<Memtable>>,
    /// The newest existing generation.
    generation: u64,
    read_only: bool,
    gauge: Arc<Gauge>,
}

fn reserve_of(pool: &Pool, options: &FluidOptions) -> Arc<Reserve> {
    Arc::new(Reserve::new(pool, &Sizes::of(options, pool.reachable_bytes())))
}

/// The common part of both ways to an open store.
fn assemble(pool: Arc<Pool>, options: &FluidOptions, parts: Parts, reserve: Arc<Reserve>, seed: u64) -> Inner {
    let sizes = Sizes::of(options, pool.reachable_bytes());
    let Parts { order, publisher, values, recovery, replayed, generation, read_only, gauge } = parts;
    let background = sizes.background_dram(options.workers);
    let dram = Dram::new(options.dram_budget, background, &gauge);
    let own = pool_dram(&pool) + publisher.dram_bytes();
    let limits = MemtableLimits {
        log_bytes: sizes.memtable_log_bytes(publisher.table_bytes()),
        dram_bytes: memtable_limit(dram.budget, background + gauge.bytes() + own),
    };
    let memtable_options = MemtableOptions::new(&sizes, generation + 1, order.last(), seed, limits);
    let frozen: Vec<_> = replayed.into_iter().collect();
    let count = frozen.len();
    let active = Arc::new(Memtable::new(&pool, &memtable_options));
    frozen.iter().chain([&active]).for_each(|memtable| dram.add(Arc::clone(memtable) as _));
    let hold = Arc::clone(&publisher.hold);
    let view = View { active, frozen, ranges: publisher.ranges(), hold };
    let scheduler = Scheduler::new(options.workers);
    scheduler.set_frozen(count);
    let tree = Tree {
        log: SharedLog::of(&pool, order.last(), STRIPES),
        identities: Identities::above(publisher.state.ranges().iter().flat_map(|range| range.tables()), pool.opening()),
        view: ArcSwap::from_pointee(view),
        publisher: Mutex::new(publisher),
        reads: options.verify_reads.reads(),
        options: options.clone(),
        counts: Counts::default(),
        values,
        batches: AtomicU64::new(0),
        absent: AtomicU32::new(0),
        open: pool.new_state(),
        reserve,
        dram,
        separator: None,
        death_reports: Mutex::default(),
        pool,
        sizes,
        order,
        seed,
    };
    let scrub = Scrub::new(options.scrub_rate);
    Inner { background: Background { tree, scheduler }, recovery, scrub, read_only }
}

/// Writes a new store. The superblock is last: without it, and before the pool's header records
/// that creation finished, the store is created again.
pub(super) fn make(pool: Arc<Pool>, options: &FluidOptions) -> Result<Inner> {
    // Extents left by an interrupted creation.
    if pool.allocator().is_recovering() {
        pool.allocator().finish_recovery(&pool);
    }
    let seed = seed_of(&pool);
    let reserve = reserve_of(&pool, options);
    let values = ValueLog::new(&pool, Vec::new());
    let publisher = Publisher::new(&pool, &reserve, ManifestState::new(), Vec::new(), Hold::new(&values), seed)?;
    store_superblock(&pool);
    pool.fence();
    pool.check()?;
    let recovery = Recovery::default();
    let (order, gauge) = (Order::new(0), Arc::default());
    let made = Parts { order, publisher, values, recovery, replayed: None, generation: 0, read_only: false, gauge };
    Ok(assemble(pool, options, made, reserve, seed))
}

/// Rejects a budget with which a new store could accept no writes.
pub(super) fn check_budget(pool: &Pool, options: &FluidOptions) -> Result<()> {
    let needed = |budget: u64| {
        let options = FluidOptions { dram_budget: budget, ..options.clone() }.within_budget();
        let background = Sizes::of(&options, pool.reachable_bytes()).background_dram(options.workers);
        budget_min(background + pool_dram(pool))
    };
    let mut least = options.dram_budget;
    // More DRAM allows more work at a time, which needs less than half of the addition.
    while needed(least) > least {
        least = needed(least);
    }
    if least == options.dram_budget {
        return Ok(());
    }
    let why = format!("a store of this capacity, with these workers and tables, needs at least {least}");
    Err(Error::InvalidOption { name: "dram-budget".into(), value: options.dram_budget.to_string(), why })
}

pub(super) fn open(pool: Arc<Pool>, report: &OpenReport, options: &FluidOptions) -> Result<Inner> {
    let seed = seed_of(&pool);
    let recovery = Recovery::default();
    let how = RecoveryOptions {
        clean: report.clean,
        settled: report.settled,
        salvage: options.pool.salvage,
        threads: options.workers,
        sizes: Sizes::of(options, pool.reachable_bytes()),
        seed,
        gauge: Arc::default(),
        memtable_dram: memtable_limit(options.dram_budget, 0),
    };
    let found = recover::read(&pool, &how, &recovery)?;
    let reserve = reserve_of(&pool, options);
    let values = ValueLog::new(&pool, found.values.clone());
    if let Some(replayed) = &found.replayed {
        values.note_dead(&replayed.dead());
        reserve.note_logs(replayed.log_bytes());
    }
    if !found.values.is_empty() {
        reserve.note_values();
    }
    let (state, handles) = (found.state.clone(), found.handles.clone());
    let hold = Hold::new(&values);
    let reading = |cause: &str| {
        pool.poison(PoisonReason::Damage, cause);
        Publisher::read_only(&reserve, found.state.clone(), found.handles.clone(), Arc::clone(&hold), seed)
    };
    let (publisher, read_only) = if let Some(cause) = &found.read_only {
        (reading(cause), true)
    } else {
        match Publisher::continued(&pool, &reserve, (state, found.manifest), handles, Arc::clone(&hold), seed) {
            Err(Error::Full { .. }) if how.salvage => {
                (reading(&format!("the store is full, and a part of the manifest is damaged: {EXPORT}")), true)
            }
            made => (made?, false),
        }
    };
    let (damage, generation) = (found.damage, found.generation);
    let (order, replayed, gauge) = (found.order, found.replayed, how.gauge);
    let parts = Parts { order, publisher, values, recovery, replayed, generation, read_only, gauge };
    let inner = assemble(pool, options, parts, reserve, seed);
    damage.iter().for_each(|error| inner.report_corruption(error));
    Ok(inner)
}

/// Returns the seed of the nonces: no other opening of the store has it.
fn seed_of(pool: &Pool) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&pool.opening().to_le_bytes())
}

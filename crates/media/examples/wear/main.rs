//! Measures how evenly the medium is written, with and without wear-aware placement: the size mix
//! of the NVHT paper's own simulator (JPDC 2018).
//!
//! `cargo run --release -p lodestore-media --example wear -- [--seed N] [--plot FILE.svg] [--only
//! N]`
//!
//! Sizes of 128, 512, 1 K, 32 K and 128 K bytes at random, each freed some time later; the heap is
//! kept half full. This program counts the writes by position, not the allocator. In a scenario
//! with cold data a quarter of the heap is written once and stays.
#![expect(clippy::print_stdout, reason = "an example that prints a table")]

mod chart;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use lodestore_media::region_layout::RegionLayout;
use lodestore_media::{NvPtr, Pool, PoolOptions, Prefault};

const SIZES: [usize; 5] = [128, 512, 1 << 10, 32 << 10, 128 << 10];
/// Bytes of the pieces that a plot shows.
const PIECE_BYTES: u64 = 64 << 10;

/// The heap and workload of one run.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    heap: u64,
    /// Share of the heap that is written once.
    cold: f64,
    /// Only these sizes.
    sizes: &'static [usize],
    /// Bytes written, as a multiple of the heap's bytes.
    overwrites: u64,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario { name: "10 MiB, the paper's mix", heap: 10 << 20, cold: 0.0, sizes: &SIZES, overwrites: 400 },
    Scenario { name: "10 MiB, a quarter cold", heap: 10 << 20, cold: 0.25, sizes: &SIZES, overwrites: 400 },
    Scenario { name: "128 MiB, a quarter cold", heap: 128 << 20, cold: 0.25, sizes: &SIZES, overwrites: 100 },
    Scenario { name: "10 MiB, ten records of 128 B", heap: 10 << 20, cold: 0.25, sizes: &[128], overwrites: 100 },
];

/// A small built-in generator: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

/// Bytes written, by position.
struct Counts {
    unit: u64,
    first: u64,
    by_unit: Vec<u64>,
}

impl Counts {
    fn new(layout: &RegionLayout, unit: u64) -> Self {
        let units = usize::try_from(layout.usable_bytes() / unit).expect("a small heap");
        Self { unit, first: layout.chunks_offset, by_unit: vec![0; units] }
    }

    fn wrote(&mut self, at: NvPtr, len: usize) {
        let (mut from, end) = (at.offset() - self.first, at.offset() - self.first + len as u64);
        while from < end {
            let unit = from / self.unit;
            let to = end.min((unit + 1) * self.unit);
            // The last unit, cut short by the heap's end, is left out.
            if let Some(count) = usize::try_from(unit).ok().and_then(|unit| self.by_unit.get_mut(unit)) {
                *count += to - from;
            }
            from = to;
        }
    }

    fn spread(&self) -> Spread {
        let count = self.by_unit.len() as f64;
        let of = |bytes: u64| bytes as f64 / self.unit as f64;
        let mean = of(self.by_unit.iter().sum()) / count;
        let squares: f64 = self.by_unit.iter().map(|bytes| (of(*bytes) - mean).powi(2)).sum();
        let ends = (self.by_unit.iter().copied().min(), self.by_unit.iter().copied().max());
        Spread {
            units: self.by_unit.len(),
            mean,
            deviation: (squares / count).sqrt(),
            min: of(ends.0.unwrap_or(0)),
            max: of(ends.1.unwrap_or(0)),
        }
    }
}

/// Overwrites of a unit: bytes written to it divided by its length.
struct Spread {
    units: usize,
    mean: f64,
    deviation: f64,
    min: f64,
    max: f64,
}

struct Run {
    by_segment: Counts,
    by_piece: Counts,
    by_chunk: Counts,
}

fn run(dir: &Path, scenario: &Scenario, seed: u64, wear_aware: bool) -> Run {
    let opts = PoolOptions {
        capacity: scenario.heap,
        region_bytes: scenario.heap,
        wear_aware,
        prefault: Prefault::None,
        ..PoolOptions::default()
    };
    let (pool, _) = Pool::create(dir, "example", 1, opts).expect("a new store");
    let layout = pool.layout(0).expect("region 0");
    let unit = layout.wear_segment_bytes / u64::from(layout.chunk_bytes);
    let unit = (1 << unit.ilog2()) * u64::from(layout.chunk_bytes);
    let mut run = Run {
        by_segment: Counts::new(&layout, unit),
        by_piece: Counts::new(&layout, PIECE_BYTES),
        by_chunk: Counts::new(&layout, 4096),
    };
    let mut take = |pool: &Pool, len: usize| {
        let at = pool.allocator().alloc(pool, len).expect("room");
        for counts in [&mut run.by_segment, &mut run.by_piece, &mut run.by_chunk] {
            counts.wrote(at, len);
        }
        at
    };
    let mut random = Random(seed);
    let mut cold = 0;
    while cold < (scenario.heap as f64 * scenario.cold) as usize {
        let len = SIZES[random.below(SIZES.len())];
        take(&pool, len);
        cold += len;
    }
    let (mut waiting, mut live): (VecDeque<(NvPtr, usize)>, usize) = (VecDeque::new(), 0);
    let (mut written, all) = (0, scenario.heap * scenario.overwrites);
    // One size: few records, like one or two hot keys. The mix: as many as fill a share of the
    // heap.
    let most = if scenario.sizes.len() == 1 { 10 * scenario.sizes[0] } else { (scenario.heap / 2) as usize - cold };
    while written < all {
        let len = scenario.sizes[random.below(scenario.sizes.len())];
        while live + len > most {
            let pick = random.below(waiting.len().min(16));
            let (at, len) = waiting.swap_remove_front(pick).expect("it is there");
            pool.allocator().free(&pool, at, len);
            live -= len;
        }
        waiting.push_back((take(&pool, len), len));
        live += len;
        written += len as u64;
    }
    let created = pool.created_in(dir);
    drop(pool);
    created.remove();
    run
}

fn row(scenario: &Scenario, unit: &str, wear_aware: bool, counts: &Counts) {
    let Spread { units, mean, deviation, min, max } = counts.spread();
    let choice = if wear_aware { "with" } else { "without" };
    println!(
        "| {} | {unit} | {choice} | {units} | {mean:.1} | {max:.1} | {min:.1} | {deviation:.1} | {:.2} | {:.2} |",
        scenario.name,
        max / mean,
        deviation / mean
    );
}

fn main() {
    let (mut seed, mut plot, mut only) = (1, None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        match name.as_str() {
            "--seed" => seed = value.parse().expect("a number"),
            "--plot" => plot = Some(PathBuf::from(value)),
            "--only" => only = Some(value.parse::<usize>().expect("the number of a scenario")),
            other => panic!("unknown argument {other:?}: --seed N, --plot FILE, --only N"),
        }
    }
    let dir = std::env::temp_dir().join(format!("lodestore-wear-{}", std::process::id()));
    println!("seed {seed}; overwrites: bytes written to a place by its length");
    println!("| heap | place | wear-aware | places | mean | max | min | deviation | max/mean | deviation/mean |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut panels = Vec::new();
    for (_, scenario) in SCENARIOS.iter().enumerate().filter(|(index, _)| only.is_none_or(|only| only == *index)) {
        let mut lines = Vec::new();
        for wear_aware in [false, true] {
            let run = run(&dir, scenario, seed, wear_aware);
            for (unit, counts) in [("segment", &run.by_segment), ("64 KiB", &run.by_piece), ("4 KiB", &run.by_chunk)] {
                row(scenario, unit, wear_aware, counts);
            }
            let pieces = run.by_piece.by_unit.iter().map(|bytes| *bytes as f64 / PIECE_BYTES as f64).collect();
            lines.push(pieces);
        }
        panels.push((scenario.name, lines));
    }
    if let Some(file) = plot {
        std::fs::write(&file, chart::svg(&panels)).expect("the plot is written");
    }
}

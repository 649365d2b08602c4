//! Histories of stores to be damaged.

use lodestore_contract::Lifetime;
use lodestore_media::sim::Rng;

use super::base::{End, History};
use super::fault::PAGE_BYTES;
use crate::explore::script_of;
use crate::hashkv::{CHANGING_MODE_FLAG, NOSEP_MODE_FLAG, VLOG_MODE_FLAG};
use crate::mkvs::LOSSES_MODE_FLAG;
use crate::op::Op;
use crate::script::{future, key, put};
use crate::shape::Shape;
use crate::subject::Engine;

/// Maximum operations of a history of the crash explorer.
const OPS_MAX: usize = 160;

/// Returns the history of base `index`. Half of the histories are scripts of the crash explorer,
/// cut at a random step.
pub fn history(engine: &dyn Engine, seed: u64, index: u64, mode: Option<u32>) -> History {
    let mut rng = Rng::part(seed ^ 0xda3a_6ed0, index);
    let (mut shape, mut ops) = if index % 2 == 1 {
        let script = script_of(engine, seed, index / 2);
        let most = script.ops.len().min(OPS_MAX) as u64;
        let len = 1 + rng.below(most.max(1));
        (script.shape, script.ops.into_iter().take(len as usize).collect())
    } else {
        own(&mut rng)
    };
    if let Some(mode) = mode {
        shape.mode = mode;
    }
    if mode.is_none() && index.is_multiple_of(2) && engine.name() == lodestore_hashkv::ENGINE {
        shape.mode = [0, VLOG_MODE_FLAG, CHANGING_MODE_FLAG, NOSEP_MODE_FLAG][shape.mode as usize % 4];
    }
    if engine.name() == lodestore_mkvs::ENGINE {
        // The damaged bytes must not choose the missing device.
        shape.mode &= !LOSSES_MODE_FLAG;
        shape.region_bytes = shape.capacity;
    }
    let end = match rng.below(5) {
        0 | 1 => End::Clean,
        2 | 3 => End::Kill,
        _ => End::Crash(rng.next_u64()),
    };
    if ops.is_empty() {
        ops.push(Op::Sync);
    }
    if has_pages_of_logs(engine) && rng.one_in(2) {
        // As in real stores: a page holds no two structures, and no whole log.
        let scale = PAGE_BYTES / u64::from(shape.chunk_bytes);
        shape.chunk_bytes = PAGE_BYTES as u32;
        shape.capacity *= scale;
        shape.region_bytes *= scale;
    }
    History { shape, ops, end }
}

/// Whether the engine protects each page of its logs by words in other pages. With chunks of 512
/// bytes a page holds several structures, so such a store is damaged by chunks instead.
fn has_pages_of_logs(engine: &dyn Engine) -> bool {
    [lodestore_fluidkv::ENGINE, lodestore_hashkv::ENGINE].contains(&engine.name())
}

/// Returns the number of bytes that are damaged as a page in a store of this shape.
pub fn page_bytes(engine: &dyn Engine, shape: Shape) -> u64 {
    if has_pages_of_logs(engine) { u64::from(shape.chunk_bytes).min(PAGE_BYTES) } else { PAGE_BYTES }
}

/// Returns operations that write keys, rewrite some and delete some, with a clean stop at a random
/// moment.
fn own(rng: &mut Rng) -> (Shape, Vec<Op>) {
    let count = 8 + rng.below(60);
    let first = rng.below(3) * 100;
    let most = [20, 90, 400][rng.index(3)];
    let bytes = |rng: &mut Rng, mark: u64| vec![mark as u8; 1 + rng.below(most) as usize];
    let mut ops: Vec<Op> = (0..count).map(|index| put(first + index, bytes(rng, index))).collect();
    if rng.one_in(2) {
        ops.push(Op::Reopen);
    }
    for mark in 0..count {
        let index = first + rng.below(count);
        let value = bytes(rng, 100 + mark);
        ops.push(match rng.below(10) {
            0 => Op::Delete { key: key(index) },
            1 => Op::Put { key: key(index), value, expiry: Some(future()) },
            2 if rng.one_in(4) => Op::Sweep,
            2 => Op::Insert { key: key(index), value, lifetime: Lifetime::Forever },
            3 if rng.one_in(4) => [Op::Reopen, Op::Kill][rng.index(2)].clone(),
            _ => put(index, value),
        });
    }
    let partitions = 1 + rng.below(2) as u32;
    let mode = if rng.one_in(2) { 0 } else { rng.below(16) as u32 };
    // One region, or several by growth.
    let regions = Shape { capacity: 256 << 10, region_bytes: 64 << 10, ..Shape::default() };
    let base = if rng.one_in(3) { regions } else { Shape::default() };
    (Shape { partitions, mode, ..base }, ops)
}

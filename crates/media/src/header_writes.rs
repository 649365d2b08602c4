//! Writes the headers of a pool and of its regions. `header.rs` and `region_header.rs` have their
//! formats; `pool.rs` has the persist order.

use lodestore_contract::Durability;

use crate::header::{HEADER_USED_BYTES, POOL_MAGIC, PoolHeader};
use crate::memory::Memory;
use crate::nvptr::NvPtr;
use crate::options::PoolOptions;
use crate::planted;
use crate::region_header::{REGION_HEADER_USED_BYTES, RegionHeader};
use crate::region_layout::{HEADER_BYTES, RegionLayout};

/// Returns the header of a new pool.
pub(crate) fn first_header(
    engine: &str,
    engine_format: u32,
    opts: &PoolOptions,
    (pool_id, boot_id): ([u8; 16], [u8; 16]),
) -> PoolHeader {
    PoolHeader {
        sequence: 0,
        pool_id,
        boot_id,
        engine: engine.into(),
        engine_format,
        clean: false,
        emulate_dax: opts.emulate_dax,
        engine_created: false,
        capacity: opts.capacity,
        region_bytes: opts.region_bytes,
        chunk_bytes: opts.chunk_bytes,
        regions: 1,
        durability: opts.durability,
        region0_bytes: opts.first_region_bytes(),
        generation: 1,
        is_raising: false,
        is_damaged: false,
        table_seal: 0,
        mark: 0,
    }
}

/// Stores both copies without their magic, then the magic of one, then of the other. A crash leaves
/// no header or a whole one.
pub(crate) fn write_first_header(memory: &Memory, mut header: PoolHeader) -> PoolHeader {
    assert!(header.sequence == 0, "a new pool");
    let mut positions = [NvPtr::NULL; 2];
    for position in &mut positions {
        header.sequence += 1;
        *position = NvPtr::new(0, header.sequence % 2 * HEADER_BYTES);
        let bytes = header.encode();
        memory.store(position.add(8), &bytes[8..]);
        memory.flush(*position, HEADER_USED_BYTES);
    }
    memory.fence();
    for position in positions {
        memory.publish_u64(position, POOL_MAGIC);
        memory.flush(position, 8);
        memory.fence();
    }
    header
}

/// Writes both header copies, each with the next sequence number, each durable before the next. The
/// newest copy is never overwritten first.
pub(crate) fn write_header(memory: &Memory, header: &mut PoolHeader) {
    let at = |header: &PoolHeader| NvPtr::new(0, header.sequence % 2 * HEADER_BYTES);
    for _copy in 0..2 {
        header.sequence += 1;
        memory.store(at(header), &header.encode());
        memory.flush(at(header), HEADER_USED_BYTES);
        memory.fence();
        if memory.is_poisoned() {
            // The content of this copy is unknown now: the other copy stays as it is.
            return;
        }
    }
}

/// Raises the generation, clears the clean flag, and stores the boot and the durability in force.
/// Nothing else is stored before that.
pub(crate) fn mark_open(memory: &Memory, header: &mut PoolHeader, (durability, stale): (Durability, &[u16])) {
    if memory.has_fault(planted::CLEAN_FLAG_KEPT) {
        return;
    }
    header.clean = false;
    header.boot_id = memory.boot_id();
    header.durability = durability;
    // A killed process may have left its last copy unflushed: that copy must be whole before the
    // other is changed.
    memory.flush(NvPtr::new(0, 0), 2 * HEADER_BYTES as usize);
    memory.fence();
    raise_generation(memory, header, stale, &[]);
    write_header(memory, header);
}

/// Raises the generation in every region header, durably, and in `header`, which the caller writes
/// next. `stale` regions keep theirs. `seals` are the extent tables' seals by region, for a clean
/// stop.
///
/// 1. The pool header says that the generation is being raised. Fence for each copy.
/// 2. Flush of both copies of every region header: a killed process may have left a whole copy
///    unflushed. Fence.
/// 3. In each region the copy that is torn, damaged or older. Fence.
/// 4. The other copy. Fence.
/// 5. The caller writes the pool header without the mark. Nothing else is stored before that.
///
/// The next open finishes a raise that a crash interrupted. A copy may be torn then: the whole copy
/// must stay until the other one is whole. A pool of one region skips steps 1 to 4.
pub(crate) fn raise_generation(memory: &Memory, header: &mut PoolHeader, stale: &[u16], seals: &[u32]) {
    if !header.is_raising {
        header.generation += 1;
    }
    header.table_seal = seals.first().copied().unwrap_or(0);
    if header.regions > 1 {
        header.is_raising = true;
        write_header(memory, header);
        flush_region_headers(memory, header);
        memory.fence();
        let first = choose_first_copies(memory, header);
        for pass in 0..2 {
            if memory.is_poisoned() {
                return;
            }
            let copies: Vec<usize> = first.iter().map(|copy| copy ^ pass).collect();
            write_region_copies(memory, header, (stale, seals), &copies);
            memory.fence();
        }
    }
    header.is_raising = false;
}

/// Returns the layouts of all regions that have a region header.
fn layouts_with_header<'a>(memory: &'a Memory, header: &'a PoolHeader) -> impl Iterator<Item = RegionLayout> + 'a {
    (1..header.regions as u16)
        .filter_map(|index| RegionLayout::new(index, memory.regions.len_of(index), header.chunk_bytes))
}

/// Flushes both copies of every region header.
fn flush_region_headers(memory: &Memory, header: &PoolHeader) {
    let copies = layouts_with_header(memory, header).flat_map(|layout| layout.header_copies());
    copies.for_each(|copy| memory.flush(copy, REGION_HEADER_USED_BYTES));
}

/// Returns for each region, from region 0 on, the copy of its header that may be overwritten while
/// the other one counts: a torn or damaged one, or the older one.
fn choose_first_copies(memory: &Memory, header: &PoolHeader) -> Vec<usize> {
    let mut first = vec![0; header.regions as usize];
    for layout in layouts_with_header(memory, header) {
        let bytes = layout.header_copies().map(|copy| memory.bytes(copy, REGION_HEADER_USED_BYTES).unwrap_or_default());
        let generations = bytes.map(|bytes| RegionHeader::generation_in_pool(bytes, header.pool_id));
        first[usize::from(layout.index)] = usize::from(generations[0] > generations[1]);
    }
    first
}

/// Stores and flushes one copy of every region header: `copies` has its number for each region.
fn write_region_copies(memory: &Memory, header: &PoolHeader, (stale, seals): (&[u16], &[u32]), copies: &[usize]) {
    for layout in layouts_with_header(memory, header).filter(|layout| !stale.contains(&layout.index)) {
        let (index, bytes) = (layout.index, layout.region_bytes);
        let region = RegionHeader {
            pool_id: header.pool_id,
            index,
            chunk_bytes: header.chunk_bytes,
            bytes,
            generation: header.generation,
            table_seal: seals.get(usize::from(index)).copied().unwrap_or(0),
        };
        let at = layout.header_copies()[copies[usize::from(index)]];
        memory.store(at, &region.encode());
        memory.flush(at, REGION_HEADER_USED_BYTES);
    }
}

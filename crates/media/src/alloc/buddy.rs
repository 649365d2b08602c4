//! PFBA: the array-encoded buddy tree of one region (NVHT, JPDC 2018, section 3), with wear-aware
//! placement.
//!
//! The tree is a complete binary tree in an array of bytes, without pointers, addresses or lists.
//! Node 1 is the root, the children of `i` are `2i` and `2i + 1`, chunk `c` is node `leaves + c`. A
//! node's byte is the order plus one of the longest free aligned run under it, or 0 without a free
//! chunk.
//!
//! Differences from the paper:
//! * The tree is in DRAM and is rebuilt from the extent table, so none of its words needs an undo
//!   log.
//! * Every node is always exact, even below an extent in use. Any range can be allocated or freed,
//!   and a length that is not a power of two is not rounded up.
//! * The region's length need not be a power of two (the missing chunks count as allocated).
//! * Wear counts bytes written and is kept over restarts; the paper counts allocations since the
//!   start.
//!
//! Wear. Choosing by the mean of a subtree would direct every allocation to a subtree of mostly
//! cold data, whose few free chunks then wear out. Choosing by the maximum would let one hot
//! segment hide its cold neighbours. Each node above a segment therefore stores the wear of its
//! *least worn segment with space for a slab*. Following the smaller of two children leads to the
//! least worn usable segment of all. The search goes right only if this saves more than `lead`
//! bytes of wear, about one overwrite of a segment. Below that, filling from the left keeps data
//! together.
//!
//! For a run of another length, the nodes of that length (or of a segment, if longer) are compared
//! one by one. Each counts with the mean of its segments. Within a segment all chunks count as
//! equally worn. The child with the shorter sufficient run is chosen there (best fit), and equal
//! children alternate.
//!
//! Not thread-safe: the allocator's space lock protects it.

/// Wear of a block without enough space.
pub(super) const FULL_BLOCK_WEAR_BYTES: u64 = u64::MAX;

/// Maximum blocks compared one by one for a run that is not a slab; 8 GiB of blocks.
const SCANNED_BLOCKS: usize = 4096;

/// The tree of one region.
pub(super) struct Buddy {
    /// Chunks that exist.
    chunks: u32,
    /// Chunks that are free.
    free: u32,
    /// log2 of the leaves.
    order: u32,
    nodes: Box<[u8]>,
    /// log2 of the chunks of a block: the unit of wear, about a segment.
    block_order: u32,
    /// A block has space if it has a run of this order.
    slab_order: u32,
    /// Runs allocated from each block.
    alloc_counts: Box<[u32]>,
    /// Bytes written, by block.
    wear: Box<[u64]>,
    /// Minimum wear of a block with space under this node; numbered like `nodes`, down to the
    /// blocks.
    min_wear: Box<[u64]>,
}

impl Buddy {
    /// Builds a tree with all of `chunks` chunks free except the ranges `taken` (start, length).
    /// `block_order` is log2 of the chunks that share a wear count, `slab_order` is log2 of the
    /// chunks of a slab. Returns `None` if two ranges overlap, one leaves the region, or the region
    /// has more than 2^31 chunks.
    pub(super) fn new(
        chunks: u32,
        block_order: u32,
        slab_order: u32,
        taken: impl Iterator<Item = (u32, u32)>,
    ) -> Option<Self> {
        if chunks == 0 || chunks > 1 << 31 {
            return None;
        }
        let order = chunks.next_power_of_two().ilog2();
        let leaves = 1usize << order;
        let mut taken: Vec<(usize, usize)> =
            taken.map(|(start, len)| (start as usize, start as usize + len as usize)).collect();
        taken.sort_unstable();
        // The chunks missing to a power of two count as allocated.
        taken.push((chunks as usize, leaves));
        if taken.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return None;
        }
        // Adjacent ranges are joined, so that a full region is filled quickly.
        taken.dedup_by(|next, kept| {
            let joins = kept.1 == next.0;
            kept.1 = if joins { next.1 } else { kept.1 };
            joins
        });
        let free = leaves - taken.iter().map(|(start, end)| end - start).sum::<usize>();
        let mut nodes = vec![0u8; 2 * leaves].into_boxed_slice();
        fill(&mut nodes, 1, (0, order), &taken);
        let free = u32::try_from(free).ok()?;
        let block_order = block_order.min(order);
        let blocks = 1usize << (order - block_order);
        let mut tree = Self {
            chunks,
            free,
            order,
            nodes,
            block_order,
            slab_order: slab_order.min(block_order),
            alloc_counts: vec![0; blocks].into(),
            wear: vec![0; blocks].into(),
            min_wear: vec![FULL_BLOCK_WEAR_BYTES; 2 * blocks].into(),
        };
        tree.refresh_min_wear(0, blocks - 1);
        Some(tree)
    }

    pub(super) fn free_chunks(&self) -> u32 {
        self.free
    }

    pub(super) fn block_order(&self) -> u32 {
        self.block_order
    }

    pub(super) fn wear(&self) -> &[u64] {
        &self.wear
    }

    pub(super) fn add_block_wear(&mut self, block: usize, bytes: u64) {
        self.wear[block] = self.wear[block].saturating_add(bytes).min(FULL_BLOCK_WEAR_BYTES - 1);
        self.refresh_min_wear(block, block);
    }

    /// Returns the wear of the least worn block with space for a slab.
    pub(super) fn min_wear(&self) -> u64 {
        self.min_wear[1]
    }

    /// Returns whether an aligned run of 2^`order` chunks is free.
    fn fits(&self, order: u32) -> bool {
        u32::from(self.nodes[1]) > order
    }

    /// Returns whether [`Self::alloc`] would find `len` chunks; 2^`order` is the next power of two.
    pub(super) fn can_alloc(&self, len: u32, order: u32) -> bool {
        self.fits(order) || len <= self.chunks && self.free == self.chunks
    }

    /// Allocates `len` chunks and returns the first. Searches an aligned run of the next power of
    /// two and leaves its tail free. `lead` is the wear in bytes that a choice farther right must
    /// save; `None` ignores wear.
    pub(super) fn alloc(&mut self, len: u32, lead: Option<u64>) -> Option<u32> {
        let order = len.checked_next_power_of_two()?.ilog2();
        let start = if len > 0 && self.fits(order) {
            self.find(order, lead)
        } else if len > 0 && len <= self.chunks && self.free == self.chunks {
            // A region created for one long extent is not a power of two long.
            0
        } else {
            return None;
        };
        self.set(start, len, false);
        Some(start)
    }

    /// Allocates the first run of `len` free chunks, aligned or not. The last resort before growth,
    /// O(chunks).
    pub(super) fn alloc_unaligned(&mut self, len: u32) -> Option<u32> {
        // If the longest aligned run has 2^r chunks, a run has at most 2^(r+2) - 2. A longer one
        // would contain an aligned run of 2^(r+1).
        let too_long = if self.nodes[1] == 0 { 1 } else { 1u64 << (self.nodes[1] + 1) };
        if len == 0 || u64::from(len) >= too_long {
            return None;
        }
        let leaves = 1usize << self.order;
        let mut run = 0;
        for chunk in 0..self.chunks {
            run = if self.nodes[leaves + chunk as usize] == 1 { run + 1 } else { 0 };
            if run == len {
                let start = chunk + 1 - len;
                self.set(start, len, false);
                return Some(start);
            }
        }
        None
    }

    /// Frees a range. Returns false, and changes nothing, if any of it is already free or outside
    /// the region.
    #[must_use]
    pub(super) fn free_range(&mut self, start: u32, len: u32) -> bool {
        let leaves = 1usize << self.order;
        let Some(end) = start.checked_add(len).filter(|end| len > 0 && *end <= self.chunks) else { return false };
        if self.nodes[leaves + start as usize..leaves + end as usize].contains(&1) {
            return false;
        }
        self.set(start, len, true);
        true
    }

    pub(super) fn is_free(&self, chunk: u32) -> bool {
        chunk < self.chunks && self.nodes[(1usize << self.order) + chunk as usize] == 1
    }

    /// Returns whether every node matches its children, and the count of free chunks is right.
    pub(super) fn is_consistent(&self) -> bool {
        let leaves = 1usize << self.order;
        let counted = self.nodes[leaves..].iter().filter(|leaf| **leaf == 1).count();
        let bounded = self.nodes[leaves..].iter().all(|leaf| *leaf <= 1)
            && self.nodes[leaves + self.chunks as usize..].iter().all(|leaf| *leaf == 0);
        let merged_right = (1..=self.order).all(|height| {
            let first = 1usize << (self.order - height);
            (first..2 * first).all(|node| self.nodes[node] == merged(&self.nodes, node, height))
        });
        let blocks = self.wear.len();
        let wear_right = (0..blocks).all(|block| self.min_wear[blocks + block] == self.block_min_wear(block))
            && (1..blocks).all(|node| self.min_wear[node] == self.min_wear[2 * node].min(self.min_wear[2 * node + 1]));
        bounded && merged_right && wear_right && counted == self.free as usize
    }

    pub(super) fn dram_bytes(&self) -> usize {
        size_of::<Self>()
            + self.nodes.len()
            + size_of_val(&*self.alloc_counts)
            + size_of_val(&*self.wear)
            + size_of_val(&*self.min_wear)
    }

    fn find(&mut self, order: u32, lead: Option<u64>) -> u32 {
        let (mut node, mut top) = (1usize, self.order);
        if let Some(lead) = lead.filter(|_| order != self.slab_order && self.wear.len() <= SCANNED_BLOCKS) {
            (node, top) = self.least_worn(order, lead);
        }
        for height in (order..top).rev() {
            let (left, right) = (2 * node, 2 * node + 1);
            let (run_left, run_right) = (u32::from(self.nodes[left]), u32::from(self.nodes[right]));
            node = if run_left <= order {
                right
            } else if run_right <= order {
                left
            } else if let Some(lead) = lead.filter(|_| height >= self.block_order) {
                if self.min_wear[right].saturating_add(lead) < self.min_wear[left] { right } else { left }
            } else if run_right < run_left {
                right
            } else if run_left == run_right && lead.is_some() {
                // Alternates by the bits of the block's count: each chunk of the block is chosen
                // equally often.
                let block = (node >> (self.block_order - height - 1)) - self.wear.len();
                left + (self.alloc_counts[block] >> (self.block_order - 1 - height) & 1) as usize
            } else {
                left
            };
        }
        let found = (node << order) - (1usize << self.order);
        let alloc_counts = &mut self.alloc_counts[found >> self.block_order];
        *alloc_counts = alloc_counts.wrapping_add(1);
        u32::try_from(found).expect("a chunk's number fits 32 bits")
    }

    /// Returns the least worn node of at least a block that has a free aligned run of 2^`order`
    /// chunks, and its order. A node farther right must save more than `lead` bytes of wear,
    /// averaged over its blocks. `min_wear` covers only blocks with space for a slab, so it cannot
    /// serve here.
    fn least_worn(&self, order: u32, lead: u64) -> (usize, u32) {
        let height = order.max(self.block_order);
        let (first, share) = (1usize << (self.order - height), 1usize << (height - self.block_order));
        let mut best: Option<(usize, u64)> = None;
        for node in (first..2 * first).filter(|node| u32::from(self.nodes[*node]) > order) {
            let blocks = (node - first) * share..(node - first + 1) * share;
            let wear = self.wear[blocks].iter().fold(0, |sum: u64, wear| sum.saturating_add(*wear)) / share as u64;
            if best.is_none_or(|(_, min_wear)| wear.saturating_add(lead) < min_wear) {
                best = Some((node, wear));
            }
        }
        best.map_or((1, self.order), |(node, _)| (node, height))
    }

    fn set(&mut self, start: u32, len: u32, free: bool) {
        let (mut low, mut high) = (start as usize, (start + len - 1) as usize);
        let leaves = 1usize << self.order;
        self.nodes[leaves + low..=leaves + high].fill(u8::from(free));
        for height in 1..=self.order {
            let first = 1usize << (self.order - height);
            (low, high) = (low >> 1, high >> 1);
            if high > low + 1 {
                // Nodes between the two ends are covered entirely.
                let full = u8::try_from(height + 1).expect("orders are small");
                self.nodes[first + low + 1..first + high].fill(if free { full } else { 0 });
            }
            self.nodes[first + low] = merged(&self.nodes, first + low, height);
            self.nodes[first + high] = merged(&self.nodes, first + high, height);
        }
        self.free = if free { self.free + len } else { self.free - len };
        self.refresh_min_wear((start >> self.block_order) as usize, ((start + len - 1) >> self.block_order) as usize);
    }

    fn block_min_wear(&self, block: usize) -> u64 {
        let run = u32::from(self.nodes[self.wear.len() + block]);
        if run > self.slab_order { self.wear[block] } else { FULL_BLOCK_WEAR_BYTES }
    }

    fn refresh_min_wear(&mut self, mut low: usize, mut high: usize) {
        let mut first = self.wear.len();
        for block in low..=high {
            self.min_wear[first + block] = self.block_min_wear(block);
        }
        while first > 1 {
            (first, low, high) = (first / 2, low / 2, high / 2);
            for node in first + low..=first + high {
                self.min_wear[node] = self.min_wear[2 * node].min(self.min_wear[2 * node + 1]);
            }
        }
    }
}

/// Builds the subtree under `node` in a zeroed tree. The subtree has 2^`height` chunks from `low`
/// on, of which `taken` (start, end; ascending) are not free. Subtrees that are entirely allocated
/// or free are not traversed.
fn fill(nodes: &mut [u8], node: usize, (low, height): (usize, u32), taken: &[(usize, usize)]) {
    let high = low + (1 << height);
    let inside = taken.partition_point(|(_, end)| *end <= low)..taken.partition_point(|(start, _)| *start < high);
    match &taken[inside] {
        [] => {
            for below in (0..=height).rev() {
                let first = node << (height - below);
                let full = u8::try_from(below + 1).expect("orders are small");
                nodes[first..first + (1 << (height - below))].fill(full);
            }
        }
        [(start, end)] if *start <= low && high <= *end => {}
        some => {
            let half = 1 << (height - 1);
            fill(nodes, 2 * node, (low, height - 1), some);
            fill(nodes, 2 * node + 1, (low + half, height - 1), some);
            nodes[node] = merged(nodes, node, height);
        }
    }
}

/// Computes the value of `node` (of order `height`) from its children.
#[inline]
fn merged(nodes: &[u8], node: usize, height: u32) -> u8 {
    let (left, right) = (nodes[2 * node], nodes[2 * node + 1]);
    // A child that is free entirely has its own order plus one, which is `height`.
    let whole = u32::from(left) == height && u32::from(right) == height;
    if whole { left + 1 } else { left.max(right) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(chunks: u32) -> Buddy {
        Buddy::new(chunks, 4, 2, std::iter::empty()).expect("nothing overlaps")
    }

    #[test]
    fn a_region_need_not_be_a_power_of_two() {
        for chunks in [1, 2, 3, 7, 100, 511, 512, 513] {
            let mut tree = empty(chunks);
            let mut allocated: Vec<u32> = (0..chunks).map(|_| tree.alloc(1, Some(0)).expect("room")).collect();
            assert_eq!(tree.alloc(1, None), None);
            allocated.sort_unstable();
            assert_eq!(allocated, (0..chunks).collect::<Vec<_>>());
            assert!(allocated.iter().all(|chunk| tree.free_range(*chunk, 1)));
            assert!(tree.is_consistent());
            assert_eq!(tree.alloc_unaligned(chunks), Some(0), "one run again");
        }
    }

    #[test]
    fn a_freed_tail_coalesces() {
        let mut tree = empty(64);
        assert_eq!(tree.alloc(5, None), Some(0));
        assert_eq!(tree.free_chunks(), 59);
        assert_eq!(tree.alloc(1, None), Some(5), "best fit: the tail's odd chunk");
        assert_eq!(tree.alloc(2, None), Some(6));
        assert_eq!(tree.alloc(33, None), None, "no aligned run of 64");
        assert_eq!(empty(40).alloc(33, None), Some(0), "but a region that is free wholly");
        assert_eq!(tree.alloc_unaligned(33), Some(8));
        assert!(tree.free_range(6, 2) && tree.free_range(0, 5) && tree.free_range(8, 33) && tree.free_range(5, 1));
        assert!(tree.is_consistent() && tree.fits(6));
    }

    #[test]
    fn a_free_range_cannot_be_freed() {
        let mut tree = empty(40);
        assert_eq!(tree.alloc(8, None), Some(32), "best fit: the short end first");
        assert!(
            !tree.free_range(0, 1)
                && !tree.free_range(31, 2)
                && !tree.free_range(32, 9)
                && !tree.free_range(40, 1)
                && !tree.free_range(u32::MAX, 2)
        );
        assert!(tree.free_range(32, 8) && !tree.free_range(32, 8));
        assert!(Buddy::new(40, 4, 2, [(0, 4), (3, 1)].into_iter()).is_none());
        assert!(Buddy::new(40, 4, 2, [(38, 3)].into_iter()).is_none());
    }

    #[test]
    fn a_less_worn_block_is_chosen_only_beyond_the_lead() {
        let mut tree = empty(64);
        assert_eq!(tree.alloc(4, Some(100)), Some(0));
        tree.add_block_wear(0, 100);
        assert_eq!(tree.alloc(4, Some(100)), Some(4), "a lead of 100 is not beaten");
        tree.add_block_wear(0, 1);
        let block = |tree: &mut Buddy, len: u32| tree.alloc(len, Some(100)).map(|start| start / 16);
        assert_eq!(block(&mut tree, 4), Some(1));
        tree.add_block_wear(1, 500);
        tree.add_block_wear(2, 300);
        assert_eq!(block(&mut tree, 4), Some(3), "the least worn of all four");
        assert_eq!(block(&mut tree, 12), Some(2), "the last has no room for so many");
        assert!(tree.is_consistent());
    }

    #[test]
    fn equal_chunks_of_a_block_are_allocated_alternately() {
        let mut tree = empty(64);
        let mut taken = [0; 16];
        for _ in 0..64 {
            let start = tree.alloc(1, Some(1 << 40)).expect("room");
            taken[start as usize] += 1;
            assert!(tree.free_range(start, 1));
        }
        assert_eq!(taken, [4; 16], "each chunk of the first block as often as the others");
        assert_eq!((tree.alloc(1, None), tree.alloc(1, None)), (Some(0), Some(1)), "without wear the left is filled");
    }

    #[test]
    fn a_tree_rebuilt_from_ranges_is_the_same() {
        let mut tree = empty(300);
        let ranges: Vec<(u32, u32)> =
            [1, 16, 5, 40, 3].into_iter().map(|len| (tree.alloc(len, None).expect("room"), len)).collect();
        let rebuilt = Buddy::new(300, 4, 2, ranges.into_iter()).expect("nothing overlaps");
        assert_eq!((&rebuilt.nodes, rebuilt.free), (&tree.nodes, tree.free));
    }
}

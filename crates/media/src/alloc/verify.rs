//! Checks that the trees, the extent tables and the slabs agree.

use std::sync::atomic::Ordering;

use lodestore_contract::VerifyReport;

use super::medium_access::MediumAccess;
use super::region::Region;
use super::shard::Shard;
use super::slab::{HELD_FLAG, KEPT_FLAG, LISTED_FLAG, NO_CLASS_ID, OLD_FLAG};
use super::space::Ranges;
use super::{Allocator, ChunkPosition, ExtentKind, lock};
use crate::region_layout::RegionLayout;

impl Allocator {
    /// See [`Allocator::verify`](Self::verify).
    pub(crate) fn verify_on<G: MediumAccess>(&self, medium: &G, report: &mut VerifyReport) {
        // All shards in ascending order, then space: the only code that holds more than one shard.
        let shards: Vec<_> = (0..self.shards.len()).map(|index| self.shard(index)).collect();
        let space = lock(&self.space);
        report.findings.extend(lock(&self.findings).iter().cloned());
        let mut extent_bytes = 0;
        for (region, ranges) in self.known_regions().zip(&space.regions) {
            extent_bytes += self.verify_region(medium, region, ranges, report);
        }
        let counted = self.extent_bytes.load(Ordering::Relaxed);
        if !self.is_recovering() && counted != extent_bytes {
            report.find(
                "allocator",
                format!("the allocator counts {counted} bytes of extents, and the tables have {extent_bytes}"),
            );
        }
        for (index, shard) in shards.iter().enumerate() {
            self.verify_shard(index, shard, report);
        }
        let misfrees = self.misfrees.load(Ordering::Relaxed);
        if misfrees > 0 {
            report.find("allocator", format!("{misfrees} frees were of space that was already free"));
        }
    }

    /// Checks a region; returns the bytes of extents that are not slabs.
    fn verify_region<G: MediumAccess>(
        &self,
        medium: &G,
        region: &Region,
        ranges: &Ranges,
        report: &mut VerifyReport,
    ) -> u64 {
        let name = |chunk: u32| format!("region {} chunk {chunk}", region.layout.index);
        if !ranges.tree.is_consistent() {
            report.find(name(0), "the buddy tree is inconsistent");
        }
        let read = self.read_table(medium, &region.layout, None);
        // If the copies differ, the medium changed under the open store, and the next open repairs
        // the words.
        for (chunk, _) in &read.rewrites {
            report.find(name(*chunk), "the two copies of a word of the extent table differ");
        }
        let mut in_use = vec![false; region.layout.chunks as usize];
        let mut slabs = 0;
        let mut extent_bytes = 0;
        for (chunk, word) in &read.extents {
            in_use[*chunk as usize..(*chunk + word.chunks) as usize].fill(true);
            if word.kind == ExtentKind::SLAB {
                slabs += 1;
                let found = region.slab_at(*chunk).map_or(NO_CLASS_ID, super::slab::Slab::class);
                if found != word.class {
                    report.find(
                        name(*chunk),
                        format!("the table has a slab of class {}, and memory has class {found}", word.class),
                    );
                }
            } else {
                extent_bytes += u64::from(word.chunks) * u64::from(region.layout.chunk_bytes);
            }
        }
        for (start, len) in &ranges.quarantine {
            // The open's findings name them.
            in_use[*start as usize..(*start + *len) as usize].fill(true);
        }
        check_buddy_tree(&region.layout, ranges, &in_use, report);
        let known = region.slabs().filter(|(_, slab)| slab.class() != NO_CLASS_ID).count();
        if known != slabs {
            report.find(name(0), format!("the table has {slabs} slabs, and memory has {known}"));
        }
        for (chunk, slab) in region.slabs() {
            let Some(class) = self.classes.get(slab.class()).filter(|_| !slab.has_flag(OLD_FLAG)) else { continue };
            let (free, taken) = (slab.free_slots(), slab.used_slots(class));
            if free + taken != class.slots {
                report.find(
                    name(chunk),
                    format!("a slab of {} slots counts {free} free slots and {taken} used slots", class.slots),
                );
            }
            if free > 0 && !slab.has_flag(HELD_FLAG) && !slab.has_flag(LISTED_FLAG) {
                report.find(name(chunk), "a slab with free slots is in no list");
            }
        }
        extent_bytes
    }

    fn verify_shard(&self, index: usize, shard: &Shard, report: &mut VerifyReport) {
        for (number, slabs) in (0u16..).zip(&shard.classes) {
            let is_own_with = |position: &ChunkPosition, flag: u8| {
                self.slab(*position).is_some_and(|slab| {
                    slab.class() == number && usize::from(slab.owner()) == index && slab.has_flag(flag)
                })
            };
            let name = || format!("shard {index} class {number}");
            if slabs.current.is_some_and(|position| !is_own_with(&position, HELD_FLAG)) {
                report.find(name(), "the current slab of the shard has another owner");
            }
            let mut kept: Vec<ChunkPosition> =
                slabs.partial.iter().copied().filter(|position| is_own_with(position, KEPT_FLAG)).collect();
            kept.sort_unstable();
            kept.dedup();
            if kept.len() != slabs.kept as usize {
                report.find(name(), format!("{} empty slabs are kept, and {} are counted", kept.len(), slabs.kept));
            }
        }
    }
}

/// Checks that the buddy tree has exactly the chunks as free that are not in use.
fn check_buddy_tree(layout: &RegionLayout, ranges: &Ranges, in_use: &[bool], report: &mut VerifyReport) {
    for (used, chunk) in in_use.iter().zip(0u32..) {
        if *used == ranges.tree.is_free(chunk) {
            let what = if *used {
                "the chunk is in an extent, and free in the buddy tree"
            } else {
                "the chunk is in no extent, and not free in the buddy tree"
            };
            report.find(format!("region {} chunk {chunk}", layout.index), what);
        }
    }
}

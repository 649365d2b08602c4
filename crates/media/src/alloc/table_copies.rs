//! Reads a region's extent table from its two copies.
//!
//! [`Pair::resolve`] resolves each word. After a clean stop the region's seal (a CRC32C over the
//! nonzero words) decides first: a copy that matches the seal counts alone. Overlapping extents
//! cannot all be in use; an extent in both copies precedes one in a single copy.
//!
//! Nothing here writes to the medium. `docs/crash.md`, "The pool", proves which pairs a crash
//! leaves.

use std::collections::BTreeMap;

use lodestore_contract::{Error, Finding};

use super::Allocator;
use super::medium_access::MediumAccess;
use super::table::{self, Found, Pair, Resolved, Word};
use crate::crc32c;
use crate::region_layout::RegionLayout;

/// Advice for damage that the open cannot repair.
const RESTORE_OR_SALVAGE: &str = "restore the store from a backup, or open it with salvage and export the readable \
                                  pairs (`Builder::salvage(true)`, `Db::for_each`)";

/// The content of one region's table.
#[derive(Debug, Default)]
pub(super) struct TableRead {
    /// Extents by ascending first chunk; no two overlap.
    pub(super) extents: Vec<(u32, Word)>,
    /// Chunks whose two words differ from the table's content, with the word that both shall hold.
    pub(super) rewrites: Vec<(u32, u64)>,
    /// Chunks under unreadable words (start, length), up to the next extent.
    pub(super) quarantine: Vec<(u32, u32)>,
    /// Damage that the other copy repairs.
    pub(super) repaired: Option<Finding>,
    /// Damage that may have destroyed the word of an extent.
    pub(super) lost: Option<Finding>,
}

impl TableRead {
    /// Returns the error of an open that tolerates no damage.
    pub(super) fn refusal(&self) -> Option<Error> {
        let lost = self.lost.as_ref()?;
        Some(Error::corrupt(lost.place.clone(), format!("{}: {RESTORE_OR_SALVAGE}", lost.what)))
    }
}

/// Both words of a chunk with a nonzero word, and their meaning.
#[derive(Debug, Clone, Copy)]
struct Entry {
    chunk: u32,
    pair: Pair,
    resolved: Resolved,
}

impl Entry {
    fn extent(&self) -> Option<Word> {
        if let Found::Extent(word) = self.resolved.found { Some(word) } else { None }
    }

    fn is_one_copy_bad(&self) -> bool {
        self.resolved.found != Found::Bad && self.pair.found.contains(&Found::Bad)
    }
}

/// The nonzero words of one copy, by ascending chunk.
type Words = Vec<(u32, u64)>;

fn nonzero_words<G: MediumAccess>(medium: &G, layout: &RegionLayout, copy: usize) -> Words {
    let mut words = Vec::new();
    let mut chunk = 0;
    while chunk < layout.chunks {
        let at = layout.extent_words(chunk)[copy];
        chunk += medium.zero_words(at, (layout.chunks - chunk) as usize) as u32;
        if chunk < layout.chunks {
            // Another thread may have cleared the word meanwhile.
            let raw = medium.load(layout.extent_words(chunk)[copy]);
            words.extend((raw != 0).then_some((chunk, raw)));
            chunk += 1;
        }
    }
    words
}

fn seal_of(words: &[(u32, u64)]) -> u32 {
    let bytes = |(chunk, raw): &(u32, u64)| [u64::from(*chunk).to_le_bytes(), raw.to_le_bytes()].concat();
    crc32c(&[&words.iter().flat_map(bytes).collect::<Vec<u8>>()])
}

/// Pairs the words of both copies.
fn pairs(a: &Words, b: &Words) -> Vec<(u32, [u64; 2])> {
    let mut by_chunk: Vec<(u32, [u64; 2])> = Vec::with_capacity(a.len().max(b.len()));
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let chunk = match (a.peek(), b.peek()) {
            (None, None) => return by_chunk,
            (Some((chunk, _)), None) | (None, Some((chunk, _))) => *chunk,
            (Some((left, _)), Some((right, _))) => *left.min(right),
        };
        let next = |words: &mut std::iter::Peekable<std::slice::Iter<'_, (u32, u64)>>| {
            words.next_if(|(at, _)| *at == chunk).map_or(0, |(_, raw)| *raw)
        };
        let raw = [next(&mut a), next(&mut b)];
        by_chunk.push((chunk, raw));
    }
}

impl Allocator {
    /// Returns the seal of a region's table, whose copies are equal: a CRC32C over its nonzero
    /// words.
    pub(super) fn table_seal<G: MediumAccess>(medium: &G, layout: &RegionLayout) -> u32 {
        seal_of(&nonzero_words(medium, layout, 0))
    }

    /// Reads one region's table. `seal` is the table's seal after a clean stop.
    pub(super) fn read_table<G: MediumAccess>(
        &self,
        medium: &G,
        layout: &RegionLayout,
        seal: Option<u32>,
    ) -> TableRead {
        let copies = [0, 1].map(|copy| nonzero_words(medium, layout, copy));
        let sealed_copy = seal.and_then(|seal| copies.iter().position(|words| seal_of(words) == seal));
        let mut entries: Vec<Entry> = pairs(&copies[0], &copies[1])
            .into_iter()
            .map(|(chunk, raw)| self.entry(medium, layout, (chunk, raw, sealed_copy)))
            .collect();
        let dropped = drop_overlaps(&mut entries, medium.stamp());
        drop_bad_inside(&mut entries);
        let mut read = TableRead::default();
        quarantine_bad(&entries, layout.chunks, &mut read.quarantine);
        read.extents.extend(entries.iter().filter_map(|entry| Some((entry.chunk, entry.extent()?))));
        let wanted = |entry: &&Entry| entry.resolved.found != Found::Bad && entry.pair.raw != [entry.resolved.raw; 2];
        read.rewrites.extend(entries.iter().filter(wanted).map(|entry| (entry.chunk, entry.resolved.raw)));
        self.note_damage(layout, &entries, (seal, sealed_copy, dropped), &mut read);
        read
    }

    fn entry<G: MediumAccess>(
        &self,
        medium: &G,
        layout: &RegionLayout,
        (chunk, raw, sealed_copy): (u32, [u64; 2], Option<usize>),
    ) -> Entry {
        let found = |raw| self.check_slab_word(table::decode(raw, layout.index, chunk, layout.chunks), chunk);
        let pair = Pair { raw, found: raw.map(found) };
        let resolved = match sealed_copy {
            Some(copy) => Pair { raw: [raw[copy]; 2], found: [pair.found[copy]; 2] }.resolve(medium.stamp()),
            None => pair.resolve(medium.stamp()),
        };
        Entry { chunk, pair, resolved }
    }

    /// Records the damage: with a seal, every difference from it; without one, everything that no
    /// crash leaves.
    fn note_damage(
        &self,
        layout: &RegionLayout,
        entries: &[Entry],
        (seal, sealed_copy, dropped): (Option<u32>, Option<usize>, usize),
        read: &mut TableRead,
    ) {
        let finding =
            |chunk: u32, what: String| Some(Finding { place: format!("region {} chunk {chunk}", layout.index), what });
        let damaged =
            |entry: &&Entry| entry.is_one_copy_bad() || seal.is_some() && entry.pair.raw[0] != entry.pair.raw[1];
        let count = entries.iter().filter(damaged).count();
        if let Some(first) = entries.iter().find(damaged) {
            let what = format!(
                "one copy of the extent table has {count} damaged words, which were repaired from the other copy"
            );
            read.repaired = finding(first.chunk, what);
        }
        if let Some((start, len)) = read.quarantine.first() {
            let words = read.quarantine.len();
            let what = format!(
                "both copies of a word of the extent table are damaged: {len} chunks are quarantined ({words} such \
                 runs)"
            );
            read.lost = finding(*start, what);
        } else if let Some(seal) = seal.filter(|_| sealed_copy.is_none()) {
            let merged: Words = entries
                .iter()
                .filter(|entry| entry.resolved.raw != 0)
                .map(|entry| (entry.chunk, entry.resolved.raw))
                .collect();
            if dropped > 0 || seal_of(&merged) != seal {
                read.lost = finding(0, "the extent table differs from that of the last clean stop".into());
            }
        }
    }

    /// Also checks that a slab's word fits the pool's slabs.
    pub(super) fn check_slab_word(&self, found: Found, chunk: u32) -> Found {
        match found {
            Found::Extent(word) if word.kind == super::ExtentKind::SLAB => {
                let fits = word.chunks == self.slab_chunks
                    && chunk.is_multiple_of(self.slab_chunks)
                    && self.classes.get(word.class).is_some();
                if fits { found } else { Found::Bad }
            }
            other => other,
        }
    }
}

/// Turns overlapping extents into free words and returns their number. Extents in both copies have
/// precedence, then those of the latest generation, then those at the lowest chunk.
fn drop_overlaps(entries: &mut [Entry], now: u8) -> usize {
    let mut end = 0;
    let overlap = |entry: &Entry, end: &mut u32| {
        let Some(word) = entry.extent() else { return false };
        let begins_inside = entry.chunk < *end;
        *end = (*end).max(entry.chunk + word.chunks);
        begins_inside
    };
    if !entries.iter().any(|entry| overlap(entry, &mut end)) {
        return 0;
    }
    let mut order: Vec<usize> = (0..entries.len()).filter(|index| entries[*index].extent().is_some()).collect();
    let age = |entry: &Entry| now.wrapping_sub(table::stamp_of(entry.resolved.raw));
    order.sort_by_key(|index| {
        let entry = &entries[*index];
        (std::cmp::Reverse(entry.resolved.copies), age(entry), entry.chunk)
    });
    let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
    let mut dropped = 0;
    for index in order {
        let entry = &mut entries[index];
        let Found::Extent(word) = entry.resolved.found else { continue };
        let end = entry.chunk + word.chunks;
        if taken.range(..end).next_back().is_some_and(|(_, other_end)| *other_end > entry.chunk) {
            entry.resolved = Resolved { found: Found::Free, raw: 0, copies: 0 };
            dropped += 1;
        } else {
            taken.insert(entry.chunk, end);
        }
    }
    dropped
}

/// Turns bad words inside an extent into free ones: no extent in use begins inside another.
fn drop_bad_inside(entries: &mut [Entry]) {
    let mut end = 0;
    for entry in entries {
        if let Some(word) = entry.extent() {
            end = entry.chunk + word.chunks;
        } else if entry.resolved.found == Found::Bad && entry.chunk < end {
            entry.resolved = Resolved { found: Found::Free, raw: 0, copies: 0 };
        }
    }
}

/// Quarantines the chunks from each run of bad words to the next extent.
fn quarantine_bad(entries: &[Entry], chunks: u32, quarantine: &mut Vec<(u32, u32)>) {
    let mut bad_since = None;
    for entry in entries {
        if entry.resolved.found == Found::Bad {
            bad_since = bad_since.or(Some(entry.chunk));
        } else if entry.extent().is_some()
            && let Some(since) = bad_since.take()
        {
            quarantine.push((since, entry.chunk - since));
        }
    }
    quarantine.extend(bad_since.map(|since: u32| (since, chunks - since)));
}

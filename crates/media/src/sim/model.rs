//! The images that a crash may leave: lines with their pending stores.
//!
//! Invariants, between two calls:
//! 1. `image` is the durable state, which every crash keeps.
//! 2. `lines` holds a line exactly if it has pending stores; the list is in the order of the
//!    stores.
//! 3. A line's cover by a thread counts the leading pending stores that this thread has flushed but
//!    not fenced.
//! 4. `hash` is the hash of `image`, updated word by word.
//! 5. `sizes` holds the lengths that the values file had since its last sync, in order.
//!    `image.values` has the durable length. A line of the file beyond that is durably zero.
//!
//! One thread owns a model.

use std::collections::BTreeMap;

use crate::sim::crash_set::{Choice, CrashSet, LineChoices};
use crate::sim::event::{Event, What};
use crate::sim::file::VALUES;
use crate::sim::image::SimImage;
use crate::sim::rng::mix;

/// Pending stores of a line above which older ones are merged, so that a line that is never flushed
/// stays small.
const PENDING_MAX: usize = 512;
/// Pending writes to a line of the values file above which older ones are merged.
const WRITES_MAX: usize = 16;
/// Pending lengths of the values file above which the oldest is dropped.
const SIZES_MAX: usize = 64;
/// An untouched line of the longest grain.
static ZEROS: [u8; 4096] = [0; 4096];

/// A store that is not durable yet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    /// Index of the word in its line.
    word: u16,
    mask: u8,
    /// No order between this store and the one before.
    bulk: bool,
    /// Merged with the one before: a crash keeps both or neither.
    merged: bool,
    value: u64,
}

#[derive(Debug, Clone, Default)]
struct Line {
    pending: Vec<Pending>,
    /// A thread and the number of pending stores that its flushes cover.
    covers: Vec<(u16, usize)>,
}

/// The state of a simulated medium: durable bytes and pending stores.
#[derive(Debug, Clone)]
pub struct LineModel {
    image: SimImage,
    lines: BTreeMap<(u16, u64), Line>,
    /// Lines with a cover, by thread.
    flushed: Vec<(u16, (u16, u64))>,
    sizes: Vec<u64>,
    hash: u64,
}

/// Returns the contribution of one word to the hash of an image.
#[inline]
pub(super) fn word_hash(region: u16, offset: u64, value: u64) -> u64 {
    if value == 0 { 0 } else { mix(mix(u64::from(region) << 48 | offset) ^ value) }
}

/// Returns the contribution of a region's existence; 0 for an empty values file.
pub(super) fn region_hash(region: u16, len: u64) -> u64 {
    if region == VALUES && len == 0 { 0 } else { mix(mix(u64::from(region)) ^ len) }
}

/// Returns the contributions of all words from `from` on.
pub(super) fn words_hash(region: u16, bytes: &[u8], from: usize) -> u64 {
    let word = |at: usize| word_hash(region, at as u64, u64::from_le_bytes(word_at(bytes, at)));
    (from..bytes.len()).step_by(8).fold(0, |hash, at| hash ^ word(at))
}

/// Returns the contribution of a region: its existence and its words.
fn bytes_hash(region: u16, bytes: &[u8]) -> u64 {
    region_hash(region, bytes.len() as u64) ^ words_hash(region, bytes, 0)
}

/// Returns the bytes of a word, with those of `mask` replaced.
fn merge_word(old: [u8; 8], value: u64, mask: u8) -> [u8; 8] {
    let new = value.to_le_bytes();
    std::array::from_fn(|byte| if mask >> byte & 1 == 1 { new[byte] } else { old[byte] })
}

fn word_at(bytes: &[u8], at: usize) -> [u8; 8] {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    word
}

fn put(line: &mut [u8], store: &Pending) {
    let at = usize::from(store.word) * 8;
    let merged = merge_word(word_at(line, at), store.value, store.mask);
    line[at..at + 8].copy_from_slice(&merged);
}

impl LineModel {
    /// Creates a medium that holds `image` durably. Regions must be whole lines.
    pub fn new(image: SimImage) -> Self {
        let grain = image.spec.grain;
        assert!(grain.is_power_of_two() && (16..=4096).contains(&grain), "a grain of {grain} bytes");
        let mut hash = 0;
        for (region, bytes) in image.regions.iter().enumerate() {
            assert!(bytes.len().is_multiple_of(grain as usize), "region {region} is not whole lines");
            hash ^= bytes_hash(region as u16, bytes);
        }
        assert!(image.values.len().is_multiple_of(grain as usize), "the values file is not whole lines");
        hash ^= bytes_hash(VALUES, &image.values);
        Self { image, lines: BTreeMap::new(), flushed: Vec::new(), sizes: Vec::new(), hash }
    }

    /// Returns the durable state.
    pub fn durable(&self) -> &SimImage {
        &self.image
    }

    /// Returns the number of lines with pending stores.
    pub fn dirty_lines(&self) -> usize {
        self.lines.len()
    }

    fn grain(&self) -> u64 {
        u64::from(self.image.spec.grain)
    }

    fn pending_max(&self, region: u16) -> usize {
        if region == VALUES { WRITES_MAX * (self.grain() / 8) as usize } else { PENDING_MAX }
    }

    /// Applies the next step of a trace.
    ///
    /// # Panics
    /// On a store outside a region or the values file: the pool that recorded the trace is wrong.
    pub fn apply(&mut self, event: &Event) {
        match event.what {
            What::Word { region, offset, value, mask, bulk } => self.store(region, offset, value, mask, bulk),
            What::Flush { region, offset, len, thread } => self.flush(region, offset, len, thread),
            What::Fence { thread } => self.fence(thread),
            What::FailedFence { thread } => self.forget_flushes_of(thread),
            What::Region { region, len } => self.add_region(region, len),
            What::Size { len } => self.resize_values(len),
            What::Sync { holds } => {
                if holds {
                    self.sync_values();
                }
            }
            What::Mark(_) => {}
        }
    }

    /// Recreates a region that exists but that no header named when the pool was opened.
    fn add_region(&mut self, region: u16, len: u64) {
        let index = usize::from(region);
        assert!(index <= self.image.regions.len(), "regions are added in order");
        assert!(len.is_multiple_of(self.grain()), "region {region} is not whole lines");
        if let Some(old) = self.image.regions.get(index) {
            self.hash ^= bytes_hash(region, old);
            self.lines.retain(|key, _| key.0 != region);
            self.image.regions[index] = vec![0; len as usize];
        } else {
            self.image.regions.push(vec![0; len as usize]);
        }
        self.hash ^= region_hash(region, len);
    }

    fn store(&mut self, region: u16, offset: u64, value: u64, mask: u8, bulk: bool) {
        let of_file = region == VALUES;
        let len = if of_file { self.values_len() } else { self.image.bytes(region).len() as u64 };
        assert!(offset.is_multiple_of(8) && offset + 8 <= len, "store at {region}:{offset:#x}");
        let start = offset & !(self.grain() - 1);
        // A write to the file reaches the medium by whole lines.
        let (bulk, merged) = (bulk && !of_file, bulk && of_file && offset > start);
        let store = Pending { word: ((offset - start) / 8) as u16, mask, bulk, merged, value };
        if self.image.spec.stores_persist {
            self.make_durable((region, start), &[store]);
            return;
        }
        let stores_max = self.pending_max(region);
        let line = self.lines.entry((region, start)).or_default();
        // A bulk store that crosses lines begins again in each.
        line.pending.push(Pending { bulk: bulk && !line.pending.is_empty(), ..store });
        line.limit(stores_max);
    }

    fn flush(&mut self, region: u16, offset: u64, len: u64, thread: u16) {
        if len == 0 {
            return;
        }
        let first = offset & !(self.grain() - 1);
        for (key, line) in self.lines.range_mut((region, first)..(region, offset + len)) {
            match line.covers.iter_mut().find(|cover| cover.0 == thread) {
                Some(cover) => cover.1 = line.pending.len(),
                None => {
                    line.covers.push((thread, line.pending.len()));
                    self.flushed.push((thread, *key));
                }
            }
        }
    }

    fn fence(&mut self, thread: u16) {
        let mut index = 0;
        while index < self.flushed.len() {
            let (by, key) = self.flushed[index];
            if by != thread {
                index += 1;
                continue;
            }
            self.flushed.swap_remove(index);
            // Another thread's fence may have emptied the line, and a later store created it again.
            let Some(line) = self.lines.get_mut(&key) else { continue };
            let Some(position) = line.covers.iter().position(|cover| cover.0 == thread) else { continue };
            let (_, count) = line.covers.swap_remove(position);
            let durable: Vec<Pending> = line.pending.drain(..count).collect();
            for cover in &mut line.covers {
                cover.1 = cover.1.saturating_sub(count);
            }
            if let Some(next) = line.pending.first_mut() {
                next.bulk = false;
                next.merged = false;
            } else {
                self.lines.remove(&key);
            }
            self.make_durable(key, &durable);
        }
    }

    /// Makes flushed, unfenced stores pending like the rest: the process that flushed them is dead.
    pub fn forget_flushes(&mut self) {
        self.flushed.clear();
        self.lines.values_mut().for_each(|line| line.covers.clear());
    }

    fn forget_flushes_of(&mut self, thread: u16) {
        self.flushed.retain(|(by, _)| *by != thread);
        self.lines.values_mut().for_each(|line| line.covers.retain(|cover| cover.0 != thread));
    }

    fn make_durable(&mut self, (region, start): (u16, u64), stores: &[Pending]) {
        let grain = self.grain() as usize;
        let line = &mut self.image.bytes_mut(region)[start as usize..start as usize + grain];
        for store in stores {
            let at = usize::from(store.word) * 8;
            let offset = start + at as u64;
            self.hash ^= word_hash(region, offset, u64::from_le_bytes(word_at(line, at)));
            put(line, store);
            self.hash ^= word_hash(region, offset, u64::from_le_bytes(word_at(line, at)));
        }
    }

    fn durable_line(&self, (region, start): (u16, u64)) -> &[u8] {
        let (start, grain) = (start as usize, self.grain() as usize);
        self.image.bytes(region).get(start..start + grain).unwrap_or(&ZEROS[..grain])
    }

    // ---- the values file ----

    /// Returns the length of the file with all pending changes.
    fn values_len(&self) -> u64 {
        self.sizes.last().copied().unwrap_or(self.image.values.len() as u64)
    }

    fn resize_values(&mut self, len: u64) {
        assert!(len.is_multiple_of(self.grain()), "the values file is not whole lines");
        if self.image.spec.stores_persist {
            return self.set_durable_len(len);
        }
        for start in (len..self.values_len()).step_by(self.grain() as usize) {
            self.cut_off(start);
        }
        if self.sizes.len() == SIZES_MAX {
            self.sizes.remove(0);
        }
        self.sizes.push(len);
    }

    /// Records that the file ends before this line: it is zero if the file becomes as long again.
    fn cut_off(&mut self, start: u64) {
        let key = (VALUES, start);
        if self.lines.contains_key(&key) || self.durable_line(key).iter().any(|byte| *byte != 0) {
            let stores_max = self.pending_max(VALUES);
            let words = 0..(self.grain() / 8) as u16;
            let zero = |word| Pending { word, mask: u8::MAX, bulk: false, merged: word > 0, value: 0 };
            let line = self.lines.entry(key).or_default();
            line.pending.extend(words.map(zero));
            line.limit(stores_max);
        }
    }

    fn set_durable_len(&mut self, len: u64) {
        if len == self.image.values.len() as u64 {
            return;
        }
        self.hash ^= bytes_hash(VALUES, &self.image.values);
        self.image.values.resize(len as usize, 0);
        self.hash ^= bytes_hash(VALUES, &self.image.values);
    }

    fn sync_values(&mut self) {
        let len = self.values_len();
        let longest = self.sizes.iter().copied().fold(self.image.values.len() as u64, u64::max);
        self.set_durable_len(longest);
        // No region has an index above the file's.
        for (key, line) in self.lines.split_off(&(VALUES, 0)) {
            if key.1 < longest {
                self.make_durable(key, &line.pending);
            }
        }
        self.set_durable_len(len);
        self.sizes.clear();
    }

    /// Returns the images that a crash now may leave.
    pub fn crash_set(&self) -> CrashSet {
        let mut set = CrashSet::new(self.hash, &self.image.values, &self.sizes);
        for (&(region, start), line) in &self.lines {
            let durable = self.durable_line((region, start));
            let mut choices = LineChoices::new(region, start, durable);
            line.each_content(durable, &mut |content| choices.add(content));
            let mut newest = durable.to_vec();
            line.pending.iter().for_each(|store| put(&mut newest, store));
            choices.add_newest(&newest);
            set.push(choices);
        }
        set
    }

    /// Calls `inspect` with the image that `choice` of `set` gives. `set` must be of the current
    /// state.
    pub fn with_image<R>(&mut self, set: &CrashSet, choice: &Choice, inspect: impl FnOnce(&SimImage) -> R) -> R {
        assert_eq!(set.base_hash(), self.hash, "a crash set of another moment");
        let cut = set.apply(choice, &mut self.image);
        let result = inspect(&self.image);
        set.revert(choice, &mut self.image, cut);
        result
    }

    /// Returns the image in which every store so far is durable.
    pub fn newest(&self) -> SimImage {
        let grain = self.grain() as usize;
        let mut image = self.image.clone();
        image.values.resize(self.values_len() as usize, 0);
        for (&(region, start), line) in &self.lines {
            // Lines of the file that were cut off are in no image.
            let found = image.bytes_mut(region).get_mut(start as usize..start as usize + grain);
            let Some(bytes) = found else { continue };
            line.pending.iter().for_each(|store| put(bytes, store));
        }
        image
    }
}

impl Line {
    /// Keeps the list at `stores_max` stores.
    fn limit(&mut self, stores_max: usize) {
        if self.pending.len() > stores_max && self.covers.is_empty() {
            self.merge_older_half();
        }
    }

    /// Merges the older half of the list into one step that holds the last bytes of each word.
    fn merge_older_half(&mut self) {
        let newer = self.pending.split_off(self.pending.len() / 2);
        let mut words: BTreeMap<u16, (u64, u8)> = BTreeMap::new();
        for store in &self.pending {
            let (value, mask) = words.entry(store.word).or_default();
            *value = u64::from_le_bytes(merge_word(value.to_le_bytes(), store.value, store.mask));
            *mask |= store.mask;
        }
        self.pending.clear();
        for (word, (value, mask)) in words {
            let merged = !self.pending.is_empty();
            self.pending.push(Pending { word, mask, bulk: false, merged, value });
        }
        self.pending.extend(newer);
    }

    /// Calls `each` for every possible content of the line: each prefix of the list, and for each
    /// bulk store its words from the end.
    fn each_content(&self, durable: &[u8], each: &mut dyn FnMut(&[u8])) {
        let mut content = durable.to_vec();
        each(&content);
        let mut from = 0;
        while from < self.pending.len() {
            let run = self.pending[from + 1..].iter().take_while(|store| store.bulk).count() + 1;
            let stores = &self.pending[from..from + run];
            if run > 1 {
                let mut backward = content.clone();
                for store in stores[1..].iter().rev() {
                    put(&mut backward, store);
                    each(&backward);
                }
            }
            for (index, store) in stores.iter().enumerate() {
                put(&mut content, store);
                let next_is_merged = self.pending.get(from + index + 1).is_some_and(|next| next.merged);
                if !next_is_merged {
                    each(&content);
                }
            }
            from += run;
        }
    }
}

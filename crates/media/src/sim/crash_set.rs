//! The images of one crash point: a choice of content for each line, and of a length for the values
//! file.

use std::collections::HashSet;

use crate::sim::file::VALUES;
use crate::sim::image::SimImage;
use crate::sim::model::{region_hash, word_hash, words_hash};
use crate::sim::rng::{Rng, mix};

/// Maximum distinct contents kept of one line; beyond it the list is thinned evenly (old and new
/// always stay).
const CONTENTS_MAX: usize = 256;

/// The chosen content of each line of a [`CrashSet`], in its order, then the chosen length of the
/// values file if it is open. 0 is the old one.
pub type Choice = Box<[u16]>;

/// The possible contents of one line after a crash.
#[derive(Debug, Clone)]
pub struct LineChoices {
    region: u16,
    offset: u64,
    grain: usize,
    /// Distinct contents one after another; the first is the durable one.
    contents: Vec<u8>,
    /// Change of the image's hash, by content.
    deltas: Vec<u64>,
    /// Index of the content with all stores applied.
    newest: u16,
}

/// A possible length of the values file after a crash.
#[derive(Debug, Clone, Copy)]
struct Size {
    len: u64,
    /// Change of the image's hash by this length.
    delta: u64,
}

/// The possible contents of all lines after a crash at one moment. Lines are independent of each
/// other; lines of the values file beyond its length do not exist.
#[derive(Debug, Clone)]
pub struct CrashSet {
    base_hash: u64,
    lines: Vec<LineChoices>,
    /// Distinct lengths of the values file; the first is the durable one.
    sizes: Vec<Size>,
    /// Index of the current length.
    newest_size: u16,
}

/// Bytes that a choice has cut off the values file, to be restored.
#[derive(Debug)]
pub(super) struct Cut(Vec<u8>);

impl LineChoices {
    pub(super) fn new(region: u16, offset: u64, durable: &[u8]) -> Self {
        Self { region, offset, grain: durable.len(), contents: durable.to_vec(), deltas: vec![0], newest: 0 }
    }

    fn delta(&self, content: &[u8]) -> u64 {
        let mut delta = 0;
        for at in (0..self.grain).step_by(8) {
            let (old, new) = (&self.contents[at..at + 8], &content[at..at + 8]);
            if old != new {
                let offset = self.offset + at as u64;
                let word = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
                delta ^= word_hash(self.region, offset, word(old)) ^ word_hash(self.region, offset, word(new));
            }
        }
        delta
    }

    fn position(&self, content: &[u8], delta: u64) -> Option<usize> {
        (0..self.deltas.len()).find(|index| self.deltas[*index] == delta && self.content(*index) == content)
    }

    /// Adds a content, unless it is present or the list is full.
    pub(super) fn add(&mut self, content: &[u8]) {
        assert_eq!(content.len(), self.grain);
        let delta = self.delta(content);
        if self.deltas.len() < CONTENTS_MAX - 1 && self.position(content, delta).is_none() {
            self.contents.extend_from_slice(content);
            self.deltas.push(delta);
        }
    }

    /// Adds the newest content and stores its index.
    pub(super) fn add_newest(&mut self, content: &[u8]) {
        let delta = self.delta(content);
        self.newest = self.position(content, delta).unwrap_or_else(|| {
            self.contents.extend_from_slice(content);
            self.deltas.push(delta);
            self.deltas.len() - 1
        }) as u16;
    }

    /// Returns the region of the line, or [`VALUES`].
    pub fn region(&self) -> u16 {
        self.region
    }

    /// Returns the offset of the line's first byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of distinct contents, the durable one included.
    pub fn count(&self) -> usize {
        self.deltas.len()
    }

    /// Returns one of the contents.
    pub fn content(&self, index: usize) -> &[u8] {
        &self.contents[index * self.grain..(index + 1) * self.grain]
    }
}

impl CrashSet {
    /// Creates the set for a values file that durably holds `values` and had these lengths since.
    pub(super) fn new(base_hash: u64, values: &[u8], pending: &[u64]) -> Self {
        let durable = values.len() as u64;
        let mut sizes = vec![Size { len: durable, delta: 0 }];
        let mut newest_size = 0;
        for &len in pending {
            newest_size = sizes.iter().position(|size| size.len == len).unwrap_or_else(|| {
                let cut_hash = words_hash(VALUES, values, values.len().min(len as usize));
                let delta = region_hash(VALUES, durable) ^ region_hash(VALUES, len) ^ cut_hash;
                sizes.push(Size { len, delta });
                sizes.len() - 1
            });
        }
        Self { base_hash, lines: Vec::new(), sizes, newest_size: newest_size as u16 }
    }

    pub(super) fn push(&mut self, line: LineChoices) {
        if line.count() > 1 {
            self.lines.push(line);
        }
    }

    pub(super) fn base_hash(&self) -> u64 {
        self.base_hash
    }

    /// Returns the lines that may differ from the durable state.
    pub fn lines(&self) -> &[LineChoices] {
        &self.lines
    }

    /// Returns the number of distinct images, saturated at `u64::MAX`; an upper bound if the length
    /// of the values file is open.
    pub fn combinations(&self) -> u64 {
        (0..self.digits()).fold(1u64, |product, digit| product.saturating_mul(self.count(digit) as u64))
    }

    /// Returns the number of digits of a choice: one per line, and one for the length of the values
    /// file if it is open.
    fn digits(&self) -> usize {
        self.lines.len() + usize::from(self.sizes.len() > 1)
    }

    /// Returns the number of options for this digit.
    fn count(&self, digit: usize) -> usize {
        self.lines.get(digit).map_or(self.sizes.len(), LineChoices::count)
    }

    fn newest(&self, digit: usize) -> u16 {
        self.lines.get(digit).map_or(self.newest_size, |line| line.newest)
    }

    fn size(&self, choice: &Choice) -> Size {
        self.sizes[choice.get(self.lines.len()).copied().map_or(0, usize::from)]
    }

    fn durable_len(&self) -> u64 {
        self.sizes[0].len
    }

    /// Returns the hash of a choice's image: equal images have equal hashes, at any crash point.
    pub fn hash(&self, choice: &Choice) -> u64 {
        let size = self.size(choice);
        let existing = self.lines.iter().zip(choice).filter(|(line, _)| line.is_before(size.len));
        existing.fold(self.base_hash ^ size.delta, |hash, (line, index)| hash ^ line.deltas[usize::from(*index)])
    }

    pub(super) fn apply(&self, choice: &Choice, image: &mut SimImage) -> Cut {
        assert_eq!(choice.len(), self.digits(), "a choice of another set");
        let len = self.size(choice).len;
        let cut = image.values.split_off(image.values.len().min(len as usize));
        image.values.resize(len as usize, 0);
        for (line, index) in self.lines.iter().zip(choice).filter(|(line, _)| line.is_before(len)) {
            line.write(usize::from(*index), image);
        }
        Cut(cut)
    }

    pub(super) fn revert(&self, choice: &Choice, image: &mut SimImage, cut: Cut) {
        image.values.truncate(self.durable_len() as usize);
        image.values.extend(cut.0);
        let changed = self.lines.iter().zip(choice).filter(|(_, index)| **index != 0);
        for (line, _) in changed.filter(|(line, _)| line.is_before(self.durable_len())) {
            line.write(0, image);
        }
    }

    /// Returns the choice that keeps no pending store.
    pub fn all_old(&self) -> Choice {
        (0..self.digits()).map(|_| 0).collect()
    }

    /// Returns the choice that keeps every pending store.
    pub fn all_new(&self) -> Choice {
        (0..self.digits()).map(|digit| self.newest(digit)).collect()
    }

    /// Returns all choices if there are at most `limit`. Otherwise returns `limit` of them: all
    /// old, all new, each line alone new, each line alone old, and random ones. The lines alone are
    /// a seeded share if they would fill the limit. No image occurs twice.
    pub fn select(&self, limit: usize, rng: &mut Rng) -> Vec<Choice> {
        if self.combinations() <= limit as u64 { self.enumerate() } else { self.sample(limit, rng) }
    }

    fn enumerate(&self) -> Vec<Choice> {
        let mut choice = self.all_old();
        let mut all = vec![choice.clone()];
        // Counts up; the first line is the lowest digit.
        while let Some(digit) = (0..choice.len()).find(|at| usize::from(choice[*at]) + 1 < self.count(*at)) {
            choice[..digit].fill(0);
            choice[digit] += 1;
            all.push(choice.clone());
        }
        // With a shorter file, lines beyond its end make no difference.
        if self.sizes.len() > 1 {
            let mut seen = HashSet::new();
            all.retain(|choice| seen.insert(self.hash(choice)));
        }
        all
    }

    fn sample(&self, limit: usize, rng: &mut Rng) -> Vec<Choice> {
        let mut picked = Picked { set: self, limit, seen: HashSet::new(), choices: Vec::new() };
        picked.add(self.all_old());
        picked.add(self.all_new());
        let alone = self.alone_choices(limit.saturating_sub(2) * 3 / 4, rng);
        alone.into_iter().for_each(|choice| picked.add(choice));
        // There are more images than the limit, but a run of duplicates must end as well.
        for _ in 0..limit * 8 {
            if picked.choices.len() >= limit {
                break;
            }
            picked.add(self.random(rng));
        }
        picked.choices
    }

    /// Returns the choices with each line (and the length) alone new and alone old; at most
    /// `count_max` of them, chosen by `rng`.
    fn alone_choices(&self, count_max: usize, rng: &mut Rng) -> Vec<Choice> {
        let count = self.digits() * 2;
        let mut order: Vec<usize> = (0..count).collect();
        for at in 0..count_max.min(count) {
            let other = at + rng.index(count - at);
            order.swap(at, other);
        }
        order.truncate(count_max);
        let build = |index: usize| {
            let line = index / 2;
            let mut choice = if index.is_multiple_of(2) { self.all_old() } else { self.all_new() };
            choice[line] = if index.is_multiple_of(2) { self.newest(line) } else { 0 };
            choice
        };
        order.into_iter().map(build).collect()
    }

    /// Returns a choice with each line old, new, or random, with equal probability.
    fn random(&self, rng: &mut Rng) -> Choice {
        let one = |digit| match rng.below(3) {
            0 => 0,
            1 => self.newest(digit),
            _ => rng.index(self.count(digit)) as u16,
        };
        (0..self.digits()).map(one).collect()
    }
}

impl LineChoices {
    /// Returns whether the line exists in a values file of length `len`.
    fn is_before(&self, len: u64) -> bool {
        self.region != VALUES || self.offset < len
    }

    fn write(&self, index: usize, image: &mut SimImage) {
        let start = self.offset as usize;
        image.bytes_mut(self.region)[start..start + self.grain].copy_from_slice(self.content(index));
    }
}

struct Picked<'a> {
    set: &'a CrashSet,
    limit: usize,
    seen: HashSet<u64>,
    choices: Vec<Choice>,
}

impl Picked<'_> {
    fn add(&mut self, choice: Choice) {
        if self.choices.len() < self.limit && self.seen.insert(mix(self.set.hash(&choice))) {
            self.choices.push(choice);
        }
    }
}

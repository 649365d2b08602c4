//! The images of one crash point: a choice of content for each line.

use std::collections::HashSet;

use crate::sim::model::word_hash;
use crate::sim::rng::{Rng, mix};

/// Distinct contents kept of one line; beyond it the list is thinned evenly (old and new always stay).
const CONTENTS_MAX: usize = 256;

/// Which content each line of a [`CrashSet`] has, in its order. 0 is the old one.
pub type Choice = Box<[u16]>;

/// What one line may hold after a crash.
#[derive(Debug, Clone)]
pub struct LineChoices {
    region: u16,
    offset: u64,
    grain: usize,
    /// Distinct contents one after another; the first is the durable one.
    contents: Vec<u8>,
    /// Change of the image's hash, by content.
    deltas: Vec<u64>,
    /// The content with all stores done.
    newest: u16,
}

/// What all lines may hold after a crash at one moment. Lines are independent of each other.
#[derive(Debug, Clone)]
pub struct CrashSet {
    base_hash: u64,
    lines: Vec<LineChoices>,
}

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

    /// Adds a content, unless it is there or the list is full.
    pub(super) fn add(&mut self, content: &[u8]) {
        assert_eq!(content.len(), self.grain);
        let delta = self.delta(content);
        if self.deltas.len() < CONTENTS_MAX - 1 && self.position(content, delta).is_none() {
            self.contents.extend_from_slice(content);
            self.deltas.push(delta);
        }
    }

    /// Adds the newest content and remembers which it is.
    pub(super) fn add_newest(&mut self, content: &[u8]) {
        let delta = self.delta(content);
        self.newest = self.position(content, delta).unwrap_or_else(|| {
            self.contents.extend_from_slice(content);
            self.deltas.push(delta);
            self.deltas.len() - 1
        }) as u16;
    }

    /// Region of the line.
    pub fn region(&self) -> u16 {
        self.region
    }

    /// Its first byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many distinct contents it may have, the durable one included.
    pub fn count(&self) -> usize {
        self.deltas.len()
    }

    /// One of them.
    pub fn content(&self, index: usize) -> &[u8] {
        &self.contents[index * self.grain..(index + 1) * self.grain]
    }
}

impl CrashSet {
    pub(super) fn new(base_hash: u64) -> Self {
        Self { base_hash, lines: Vec::new() }
    }

    pub(super) fn push(&mut self, line: LineChoices) {
        if line.count() > 1 {
            self.lines.push(line);
        }
    }

    pub(super) fn base_hash(&self) -> u64 {
        self.base_hash
    }

    /// Lines that may differ from what is durable.
    pub fn lines(&self) -> &[LineChoices] {
        &self.lines
    }

    /// How many distinct images there are; `u64::MAX` for that many or more.
    pub fn combinations(&self) -> u64 {
        self.lines.iter().fold(1u64, |product, line| product.saturating_mul(line.count() as u64))
    }

    /// Hash of the image of a choice: equal images have equal hashes, at whatever crash point.
    pub fn hash(&self, choice: &Choice) -> u64 {
        self.lines
            .iter()
            .zip(choice)
            .fold(self.base_hash, |hash, (line, index)| hash ^ line.deltas[usize::from(*index)])
    }

    pub(super) fn apply(&self, choice: &Choice, regions: &mut [Vec<u8>]) {
        assert_eq!(choice.len(), self.lines.len(), "a choice of another set");
        for (line, index) in self.lines.iter().zip(choice) {
            line.write(usize::from(*index), regions);
        }
    }

    pub(super) fn revert(&self, choice: &Choice, regions: &mut [Vec<u8>]) {
        for (line, _) in self.lines.iter().zip(choice).filter(|(_, index)| **index != 0) {
            line.write(0, regions);
        }
    }

    /// No pending store kept.
    pub fn all_old(&self) -> Choice {
        self.lines.iter().map(|_| 0).collect()
    }

    /// Every pending store kept.
    pub fn all_new(&self) -> Choice {
        self.lines.iter().map(|line| line.newest).collect()
    }

    /// All choices if there are at most `limit`; else `limit` of them: all old, all new, each line alone new, each line alone
    /// old (a seeded share of these where they alone would fill the limit), and random ones. No image occurs twice.
    pub fn select(&self, limit: usize, rng: &mut Rng) -> Vec<Choice> {
        if self.combinations() <= limit as u64 { self.enumerate() } else { self.sample(limit, rng) }
    }

    fn enumerate(&self) -> Vec<Choice> {
        let mut choice = self.all_old();
        let mut all = vec![choice.clone()];
        loop {
            // Counts up, the first line being the lowest digit.
            let Some(digit) = (0..choice.len()).find(|at| usize::from(choice[*at]) + 1 < self.lines[*at].count())
            else {
                return all;
            };
            choice[..digit].fill(0);
            choice[digit] += 1;
            all.push(choice.clone());
        }
    }

    fn sample(&self, limit: usize, rng: &mut Rng) -> Vec<Choice> {
        let mut picked = Picked { set: self, limit, seen: HashSet::new(), choices: Vec::new() };
        picked.add(self.all_old());
        picked.add(self.all_new());
        let alone = self.alone_choices(limit.saturating_sub(2) * 3 / 4, rng);
        alone.into_iter().for_each(|choice| picked.add(choice));
        // There are more images than the limit, but a run of bad luck must end as well.
        for _ in 0..limit * 8 {
            if picked.choices.len() >= limit {
                break;
            }
            picked.add(self.random(rng));
        }
        picked.choices
    }

    /// Each line alone new and alone old; `most` of them, chosen by `rng`, where there are more.
    fn alone_choices(&self, most: usize, rng: &mut Rng) -> Vec<Choice> {
        let count = self.lines.len() * 2;
        let mut order: Vec<usize> = (0..count).collect();
        for at in 0..most.min(count) {
            let other = at + rng.index(count - at);
            order.swap(at, other);
        }
        order.truncate(most);
        let build = |index: usize| {
            let line = index / 2;
            let mut choice = if index.is_multiple_of(2) { self.all_old() } else { self.all_new() };
            choice[line] = if index.is_multiple_of(2) { self.lines[line].newest } else { 0 };
            choice
        };
        order.into_iter().map(build).collect()
    }

    /// Each line old, new, or anything, with equal chance.
    fn random(&self, rng: &mut Rng) -> Choice {
        let one = |line: &LineChoices| match rng.below(3) {
            0 => 0,
            1 => line.newest,
            _ => rng.index(line.count()) as u16,
        };
        self.lines.iter().map(one).collect()
    }
}

impl LineChoices {
    fn write(&self, index: usize, regions: &mut [Vec<u8>]) {
        let start = self.offset as usize;
        regions[usize::from(self.region)][start..start + self.grain].copy_from_slice(self.content(index));
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

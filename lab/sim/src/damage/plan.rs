//! The choice of damage for an image.

use lodestore_media::sim::{Rng, SimImage, VALUES};

use super::base::Base;
use super::fault::{Fault, Kind, LINE_BYTES, PAGE_BYTES, Place, bytes_at, content, kind_of};
use super::map::Part;

/// Bytes of a disk sector.
const SECTOR_BYTES: u64 = 512;
/// Attempts to find a damage that changes bytes.
const ATTEMPTS: usize = 40;

/// Chooses damage for images of one base.
pub struct Planner<'a> {
    base: &'a Base,
    /// Non-empty lines of each structure.
    parts: Vec<(&'a str, Vec<Place>)>,
    /// Every non-empty line.
    lines: Vec<Place>,
    /// Bytes that are damaged as a page.
    page: u64,
}

fn lines_of(image: &SimImage, at: Place) -> impl Iterator<Item = Place> + '_ {
    let first = at.offset / LINE_BYTES * LINE_BYTES;
    let lines = (first..at.offset + at.len).step_by(LINE_BYTES as usize);
    lines
        .map(move |offset| Place { file: at.file, offset, len: LINE_BYTES })
        .filter(|line| bytes_at(image, *line).iter().any(|byte| *byte != 0))
}

impl<'a> Planner<'a> {
    /// Returns the planner for images of `base` with the structures `parts` and pages of `page`
    /// bytes.
    pub fn new(base: &'a Base, parts: &'a [Part], page: u64) -> Self {
        let mut by_name: Vec<(&str, Vec<Place>)> = Vec::new();
        for part in parts {
            let lines = lines_of(&base.image, part.at);
            match by_name.iter_mut().find(|(name, _)| *name == part.name) {
                Some((_, known)) => known.extend(lines),
                None => by_name.push((&part.name, lines.collect())),
            }
        }
        by_name.retain(|(_, lines)| !lines.is_empty());
        let regions = 0..base.image.regions.len() as u16;
        let whole = |file: u16| Place { file, offset: 0, len: content(&base.image, file).len() as u64 };
        let lines = regions.chain([VALUES]).flat_map(|file| lines_of(&base.image, whole(file))).collect();
        Self { base, parts: by_name, lines, page }
    }

    /// Returns a line: of a random structure, or any that is not empty.
    fn line(&self, rng: &mut Rng) -> Place {
        if self.parts.is_empty() || rng.one_in(4) {
            return self.lines[rng.index(self.lines.len())];
        }
        let (_, lines) = &self.parts[rng.index(self.parts.len())];
        lines[rng.index(lines.len())]
    }

    fn file_len(&self, file: u16) -> u64 {
        content(&self.base.image, file).len() as u64
    }

    /// Returns damage that changes the image, with the damaged image; of the kind `only` if given.
    pub fn damage(&self, rng: &mut Rng, only: Option<Kind>) -> Option<(Vec<Fault>, SimImage)> {
        let attempts = if only.is_some() { ATTEMPTS * Kind::ALL.len() } else { ATTEMPTS };
        for _ in 0..attempts {
            let faults = self.choose(rng);
            if only.is_some_and(|only| only != kind_of(&faults)) {
                continue;
            }
            let mut image = self.base.image.clone();
            faults.iter().for_each(|fault| fault.apply(&mut image, &self.base.moments));
            if (&image.regions, &image.values) != (&self.base.image.regions, &self.base.image.values) {
                return Some((faults, image));
            }
        }
        None
    }

    fn choose(&self, rng: &mut Rng) -> Vec<Fault> {
        match rng.below(20) {
            0..=4 => vec![self.flip(rng)],
            5 | 6 => self.flips(rng),
            7..=9 => vec![Fault::Zero { at: self.line(rng) }],
            10 => {
                let len = [SECTOR_BYTES, self.page][rng.index(2)];
                vec![Fault::Zero { at: self.aligned(rng, len) }]
            }
            11..=13 => vec![self.stale(rng, LINE_BYTES)],
            14 => vec![self.stale(rng, self.page)],
            15 => vec![self.stale_file(rng)],
            16 => vec![self.misplaced(rng)],
            17 => {
                let len = [LINE_BYTES, SECTOR_BYTES, self.page][rng.index(3)];
                vec![Fault::Garbage { at: self.aligned(rng, len), seed: rng.next_u64() }]
            }
            18 => vec![self.of_files(rng)],
            _ => (0..2 + rng.below(2)).map(|_| self.small(rng)).collect(),
        }
    }

    fn small(&self, rng: &mut Rng) -> Fault {
        match rng.below(4) {
            0 => self.flip(rng),
            1 => Fault::Zero { at: self.line(rng) },
            2 => self.stale(rng, LINE_BYTES),
            _ => Fault::Zero { at: self.aligned(rng, self.page) },
        }
    }

    fn flip(&self, rng: &mut Rng) -> Fault {
        let line = self.line(rng);
        let offset = line.offset + rng.below(LINE_BYTES);
        Fault::Flip { at: Place { offset, len: 1, ..line }, bit: rng.below(8) as u8 }
    }

    /// Returns flips in one line, in several lines of one structure, or anywhere.
    fn flips(&self, rng: &mut Rng) -> Vec<Fault> {
        let count = 2 + rng.below(3);
        let line = self.line(rng);
        match rng.below(3) {
            0 => (0..count)
                .map(|_| {
                    let offset = line.offset + rng.below(LINE_BYTES);
                    Fault::Flip { at: Place { offset, len: 1, ..line }, bit: rng.below(8) as u8 }
                })
                .collect(),
            1 if !self.parts.is_empty() => {
                let (_, lines) = &self.parts[rng.index(self.parts.len())];
                let flip = |rng: &mut Rng| {
                    let line = lines[rng.index(lines.len())];
                    let offset = line.offset + rng.below(LINE_BYTES);
                    Fault::Flip { at: Place { offset, len: 1, ..line }, bit: rng.below(8) as u8 }
                };
                (0..count).map(|_| flip(rng)).collect()
            }
            _ => (0..count).map(|_| self.flip(rng)).collect(),
        }
    }

    fn aligned(&self, rng: &mut Rng, len: u64) -> Place {
        let line = self.line(rng);
        Place { offset: line.offset / len * len, len, ..line }
    }

    fn moment(&self, rng: &mut Rng) -> usize {
        match self.base.last_clean {
            Some(clean) if rng.one_in(2) => clean,
            _ => rng.index(self.base.moments.len().max(1)),
        }
    }

    fn stale(&self, rng: &mut Rng, len: u64) -> Fault {
        let at = self.aligned(rng, len);
        Fault::Stale { at, moment: self.moment(rng) }
    }

    fn stale_file(&self, rng: &mut Rng) -> Fault {
        let line = self.line(rng);
        let at = Place { offset: 0, len: self.file_len(line.file).max(2 * PAGE_BYTES), ..line };
        Fault::Stale { at, moment: self.moment(rng) }
    }

    fn misplaced(&self, rng: &mut Rng) -> Fault {
        let len = [LINE_BYTES, self.page, self.page][rng.index(3)];
        let (at, from) = (self.aligned(rng, len), self.aligned(rng, len));
        Fault::Misplaced { at, from_file: from.file, from_offset: from.offset }
    }

    fn of_files(&self, rng: &mut Rng) -> Fault {
        let file = self.line(rng).file;
        let other = self.line(rng).file;
        if file != other && self.file_len(file) == self.file_len(other) && file != VALUES && other != VALUES {
            return Fault::Swapped { at: Place { file, offset: 0, len: self.file_len(file) }, other };
        }
        let pages = self.file_len(file) / PAGE_BYTES;
        let offset = if rng.one_in(2) { 0 } else { rng.below(pages.max(1)) * PAGE_BYTES };
        Fault::Truncated { at: Place { file, offset, len: self.file_len(file).max(1) } }
    }
}

//! A failing image, as a value and as a text file that can be replayed.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use lodestore_media::PlantedFault;
use lodestore_media::sim::{SimImage, SimSpec};

use crate::op::{Held, State};
use crate::oracle::Wrong;
use crate::shape::Shape;

/// First line of the file.
const MAGIC: &str = "lodestore crash image 1";
/// Bytes of a row of an image in the file; rows of zeros are omitted.
const ROW_BYTES: usize = 64;

/// A failure with everything needed to reproduce it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The engine's name.
    pub engine: String,
    /// Seed of the exploration.
    pub seed: u64,
    /// Script, operation and crash point, as text.
    pub place: String,
    /// Number of crashes before the failing open.
    pub depth: usize,
    /// The judgement.
    pub wrong: Wrong,
    /// The store's size.
    pub shape: Shape,
    /// The image whose recovery failed; `None` if the live run did.
    pub image: Option<SimImage>,
    /// The states that it was allowed to hold.
    pub allowed: Vec<State>,
    /// Whether a missing store is allowed (during creation).
    pub may_be_missing: bool,
    /// Keys that are looked up.
    pub universe: Vec<Vec<u8>>,
    /// The operation's stores, flushes and fences.
    pub trace: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "engine {}, seed {}, {}, crash {}: {} oracle: {}",
            self.engine, self.seed, self.place, self.depth, self.wrong.oracle, self.wrong.what
        )
    }
}

/// The data that a replay needs.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    /// The engine's name.
    pub engine: String,
    /// Seed of the exploration.
    pub seed: u64,
    /// Number of crashes before the failing open.
    pub depth: usize,
    /// The whole judgement, as text.
    pub text: String,
    /// The store's size.
    pub shape: Shape,
    /// The name of the planted fault.
    pub fault: Option<String>,
    /// The image, without the planted fault.
    pub image: SimImage,
    /// The states that it may hold.
    pub allowed: Vec<State>,
    /// Whether `open` may return that there is no store.
    pub may_be_missing: bool,
    /// Keys that are looked up.
    pub universe: Vec<Vec<u8>>,
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    digits
        .filter(|digits| digits.len().is_multiple_of(2))
        .map(|digits| digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect())
}

impl Failure {
    /// The file's text.
    pub fn to_text(&self) -> String {
        let mut out = format!("{MAGIC}\n# {}\n", self.to_string().replace('\n', " "));
        for line in self.trace.lines() {
            let _ = writeln!(out, "# {line}");
        }
        let shape = &self.shape;
        let _ = writeln!(out, "engine {}", self.engine);
        let _ = writeln!(out, "seed {}", self.seed);
        let _ = writeln!(out, "depth {}", self.depth);
        let _ = writeln!(
            out,
            "shape {} {} {} {} {}",
            shape.capacity, shape.region_bytes, shape.chunk_bytes, shape.partitions, shape.mode
        );
        let _ = writeln!(out, "missing {}", u8::from(self.may_be_missing));
        for key in &self.universe {
            let _ = writeln!(out, "key {}", hex(key));
        }
        for state in &self.allowed {
            out.push_str("state\n");
            for (key, held) in state.all() {
                let expiry = held.expiry.map_or_else(|| "-".into(), |at| at.to_string());
                let _ = writeln!(out, "pair {} {} {expiry}", hex(key), hex(&held.value));
            }
        }
        if let Some(image) = &self.image {
            let spec = &image.spec;
            let mutant = spec.mutant.map_or("-", PlantedFault::name);
            let _ = writeln!(out, "spec {} {} {mutant}", spec.grain, u8::from(spec.stores_persist));
            let regions = image.regions.iter().map(|bytes| ("region", bytes));
            let values = Some(("values", &image.values)).filter(|_| !image.values.is_empty());
            for (what, bytes) in regions.chain(values) {
                let _ = writeln!(out, "{what} {}", bytes.len());
                for (row, bytes) in
                    bytes.chunks(ROW_BYTES).enumerate().filter(|(_, row)| row.iter().any(|byte| *byte != 0))
                {
                    let _ = writeln!(out, "row {} {}", row * ROW_BYTES, hex(bytes));
                }
            }
        }
        out
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        fs::write(path, self.to_text())
    }
}

impl Saved {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The line that is wrong.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line != MAGIC) {
            return Err(format!("not a crash image: the first line is not {MAGIC:?}"));
        }
        let mut saved = Self::default();
        for (number, line) in lines {
            if let Some(text) = line.strip_prefix("# ") {
                if saved.text.is_empty() {
                    saved.text = text.into();
                }
                continue;
            }
            let fields: Vec<&str> = line.split(' ').collect();
            saved.field(&fields).ok_or_else(|| format!("line {}: cannot read {line:?}", number + 1))?;
        }
        Ok(saved)
    }

    fn field(&mut self, fields: &[&str]) -> Option<()> {
        match *fields {
            ["engine", name] => self.engine = name.into(),
            ["seed", seed] => self.seed = seed.parse().ok()?,
            ["depth", depth] => self.depth = depth.parse().ok()?,
            ["shape", capacity, region, chunk, partitions, mode] => {
                self.shape = Shape {
                    capacity: capacity.parse().ok()?,
                    region_bytes: region.parse().ok()?,
                    chunk_bytes: chunk.parse().ok()?,
                    partitions: partitions.parse().ok()?,
                    mode: mode.parse().ok()?,
                };
            }
            ["missing", flag] => self.may_be_missing = flag == "1",
            ["key", key] => self.universe.push(unhex(key)?),
            ["state"] => self.allowed.push(State::default()),
            ["pair", key, value, expiry] => {
                let expiry = if expiry == "-" { None } else { Some(expiry.parse().ok()?) };
                self.allowed.last_mut()?.set(unhex(key)?, Held { value: unhex(value)?, expiry });
            }
            ["spec", grain, persist, mutant] => {
                self.fault = Some(mutant).filter(|name| *name != "-").map(Into::into);
                self.image.spec =
                    SimSpec { grain: grain.parse().ok()?, stores_persist: persist == "1", ..SimSpec::default() };
            }
            ["region", len] => self.image.regions.push(vec![0; len.parse().ok()?]),
            // The values file follows all regions.
            ["values", len] => self.image.values = vec![0; len.parse().ok()?],
            ["row", offset, bytes] => {
                let (offset, bytes): (usize, _) = (offset.parse().ok()?, unhex(bytes)?);
                let of_file = !self.image.values.is_empty();
                let place = if of_file { &mut self.image.values } else { self.image.regions.last_mut()? };
                place.get_mut(offset..offset + bytes.len())?.copy_from_slice(&bytes);
            }
            _ => return None,
        }
        Some(())
    }
}

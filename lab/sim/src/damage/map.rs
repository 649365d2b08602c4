//! The location of each structure of a store, read from its image by the documented pool format.

use lodestore_media::RegionLayout;
use lodestore_media::sim::{SimImage, VALUES};
use lodestore_media::{u32_at, u64_at};

use super::fault::{LINE_BYTES, PAGE_BYTES, Place, content};

/// Mask of an extent's length in its word, shifted down.
const EXTENT_CHUNKS_MASK: u32 = (1 << 30) - 1;
/// Offsets of the fields of the pool header.
const REGION_BYTES_AT: usize = 104;
const CHUNK_BYTES_AT: usize = 112;
/// Offset of the chunk length in a region header.
const REGION_CHUNK_BYTES_AT: usize = 36;
const POOL_MAGIC: &[u8] = b"LODEPOOL";
/// Bytes of the values file before its segments.
const VALUES_HEAD_BYTES: u64 = 4096;

/// A structure and one place of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Name of the structure.
    pub name: String,
    /// The place.
    pub at: Place,
}

/// Returns the name of an extent's kind in the stores of `engine`.
fn extent_name(engine: &str, kind: u8) -> &'static str {
    match (engine, kind) {
        (_, 1) => "records",
        (_, 2) => "large records",
        (_, 3) => "occupancy",
        ("hikv", 16) => "index segment",
        ("hikv" | "mkvs", 17) => "directory",
        ("hikv" | "mkvs", 18) => "sorted run",
        ("hikv" | "mkvs", 19) => "write-ahead log",
        ("hikv" | "mkvs", 20) => "batch log",
        ("nvht", 16) => "hash table",
        ("hikv", 21) | ("nvht", 18) => "seal",
        ("nvht", 17) => "batch log",
        ("mkvs", 16) => "index segment or hash table",
        ("fluidkv" | "hashkv", 16) => "log segment",
        ("fluidkv" | "hashkv", 17) => "sorted table",
        ("fluidkv" | "hashkv", 18) => "manifest",
        ("fluidkv" | "hashkv", 19) => "space reserve",
        ("fluidkv" | "hashkv", 20) => "value segment",
        _ => "another extent",
    }
}

/// Structures that are no extent, and rows of more than one structure.
const OTHERS: [&str; 11] = [
    "pool header",
    "engine root",
    "region header",
    "extent table",
    "wear table",
    "values file",
    "free space",
    "a whole file",
    "several structures",
    "none",
    "another extent",
];

/// Returns every structure name, without the mark of a head, that a table of `engine` may have.
pub fn structure_names(engine: &str) -> Vec<&'static str> {
    (0..=u8::MAX).map(|kind| extent_name(engine, kind)).chain(OTHERS).collect()
}

/// Whether extents of this structure have their own head, with a separate name.
fn has_head(name: &str) -> bool {
    !matches!(name, "records" | "large records" | "occupancy" | "space reserve")
}

struct Map<'a> {
    image: &'a SimImage,
    engine: &'a str,
    parts: Vec<Part>,
}

impl Map<'_> {
    fn add(&mut self, name: impl Into<String>, file: u16, offset: u64, len: u64) {
        let bytes = content(self.image, file).len() as u64;
        let len = len.min(bytes.saturating_sub(offset));
        if len > 0 {
            self.parts.push(Part { name: name.into(), at: Place { file, offset, len } });
        }
    }

    fn region(&mut self, file: u16, index: u16, chunk_bytes: u32) {
        let bytes = &self.image.regions[usize::from(file)];
        let Some(layout) = RegionLayout::new(index, bytes.len() as u64, chunk_bytes) else { return };
        if index == 0 {
            self.add("pool header", file, 0, 2 * PAGE_BYTES);
            self.add("engine root", file, 2 * PAGE_BYTES, PAGE_BYTES);
        } else {
            self.add("region header", file, 0, layout.extent_table);
            self.add("region header", file, layout.header_copies()[1].offset(), LINE_BYTES);
        }
        let table_bytes = u64::from(layout.chunks) * 8;
        let tables = layout.wear_table - layout.extent_table;
        self.add("extent table", file, layout.extent_table, tables);
        self.add("extent table", file, layout.extent_table_copy, tables);
        self.add("wear table", file, layout.wear_table, u64::from(layout.wear_segments) * 8);
        let bytes = &self.image.regions[usize::from(file)];
        let table = &bytes[layout.extent_table as usize..(layout.extent_table + table_bytes) as usize];
        let mut chunk = 0;
        while chunk < layout.chunks {
            let word = u64_at(table, chunk as usize * 8);
            let (kind, chunks) = (word as u8, (word >> 24) as u32 & EXTENT_CHUNKS_MASK);
            if kind == 0 || chunks == 0 {
                chunk += 1;
                continue;
            }
            let (offset, len) = (layout.chunk(chunk).offset(), u64::from(chunks) * u64::from(chunk_bytes));
            self.extent(extent_name(self.engine, kind), file, offset, len);
            chunk = chunk.saturating_add(chunks);
        }
    }

    fn extent(&mut self, name: &str, file: u16, offset: u64, len: u64) {
        // The lines of a hash table begin after a header of one line.
        let head = if name == "hash table" { LINE_BYTES } else { 2 * LINE_BYTES };
        if has_head(name) && len > head {
            self.add(format!("{name}: head"), file, offset, head);
            self.add(name, file, offset + head, len - head);
        } else {
            self.add(name, file, offset, len);
        }
    }
}

/// Returns every structure of an image.
pub fn map_of(image: &SimImage, engine: &str) -> Vec<Part> {
    let mut map = Map { image, engine, parts: Vec::new() };
    let (mut first, mut chunk_bytes) = (0, 0);
    for file in 0..image.regions.len() as u16 {
        let bytes = &image.regions[usize::from(file)];
        if bytes.starts_with(POOL_MAGIC) && u64_at(bytes, REGION_BYTES_AT) > 0 {
            // A matrix has one pool per device, per log and for the host.
            first = file;
            chunk_bytes = u32_at(bytes, CHUNK_BYTES_AT);
        } else if bytes.len() > REGION_CHUNK_BYTES_AT + 4 {
            chunk_bytes = u32_at(bytes, REGION_CHUNK_BYTES_AT);
        }
        map.region(file, file - first, chunk_bytes);
    }
    map.add("values file: head", VALUES, 0, VALUES_HEAD_BYTES);
    map.add("values file", VALUES, VALUES_HEAD_BYTES, u64::MAX / 2);
    map.parts
}

/// Returns the structure that a place is in.
pub fn name_of(parts: &[Part], at: Place) -> &str {
    let is_in = |part: &&Part| {
        let (start, end) = (part.at.offset, part.at.offset + part.at.len);
        part.at.file == at.file && (start..end).contains(&at.offset)
    };
    parts.iter().find(is_in).map_or("free space", |part| part.name.as_str())
}

//! Damage to the image of a store, encoded as bytes: edits, and optionally recomputed checksums
//! over them, so that code after a checksum is reached too.

use std::collections::HashSet;
use std::ops::Range;

use lodestore_media::sim::SimImage;
use lodestore_media::{NvPtr, RegionLayout, crc32c, crc32c_seeded, fuzz};

/// Maximum edits of one run.
const EDITS_MAX: usize = 64;
/// Bytes of one edit.
const EDIT: usize = 8;

/// The values file, among the regions.
const VALUES: usize = usize::MAX;
/// Bytes before its segments, and of each segment.
const SEGMENTS: (usize, usize) = (4096, 8192);

/// Structures with a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sealed {
    PoolHeader,
    RegionHeader,
    Superblock,
    /// A segment of `hikv`, a table of `nvht`.
    Segment,
    Run,
    Record,
    NvhtRecord,
    /// The upper halves of words of the root of partition 0 of `nvht`.
    NvhtCursor,
    NvhtKeys,
    BatchLog,
    Occupancy,
    /// A copy of the header of a log segment of `fluidkv`.
    LogSegment,
    LogRecord,
    Manifest,
    Checkpoint,
    /// The mark of a manifest's minimum end in `fluidkv`.
    Reach,
    TableIndex,
    TableFilter,
    TableKeys,
    /// The superblock of the values file of `hashkv`.
    ValuesSuperblock,
    /// The header of a segment of the values file.
    ValuesSegment,
    /// The header of a table of `fluidkv`, which has the checksums of its parts: recomputed
    /// directly after them.
    TableHeader,
}

/// The location that a checksum covers in addition to its bytes.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The identity of the pool.
    identity: u64,
    /// The position. `None` in the values file, which has no such checksums.
    at: Option<NvPtr>,
}

impl Place {
    fn new(identity: u64, region: usize, at: usize) -> Self {
        let at = (region != VALUES).then(|| NvPtr::new(region as u16, at as u64));
        Self { identity, at }
    }

    /// Returns the seed of the checksum of a record, a segment header or a seal.
    fn seed(self) -> Option<u32> {
        Some(((self.at?.raw() ^ self.identity).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32)
    }
}

/// An undamaged image with the locations of its checksums.
pub struct Base {
    image: SimImage,
    sealed: Vec<(usize, usize, Sealed)>,
    /// The identity of the pool.
    identity: u64,
    /// Offsets of the records of `hashkv` in the values file: their checksums cover these.
    records: Vec<usize>,
    chunk_bytes: u32,
}

impl Base {
    /// Returns the base of an image whose pool has chunks of this size.
    pub fn new(image: SimImage, chunk_bytes: u32) -> Self {
        const KINDS: [Sealed; 22] = [
            Sealed::PoolHeader,
            Sealed::RegionHeader,
            Sealed::Superblock,
            Sealed::Segment,
            Sealed::Run,
            Sealed::Record,
            Sealed::NvhtRecord,
            Sealed::NvhtCursor,
            Sealed::NvhtKeys,
            Sealed::BatchLog,
            Sealed::Occupancy,
            Sealed::LogSegment,
            Sealed::LogRecord,
            Sealed::Manifest,
            Sealed::Checkpoint,
            Sealed::Reach,
            Sealed::TableIndex,
            Sealed::TableFilter,
            Sealed::TableKeys,
            Sealed::TableHeader,
            Sealed::ValuesSuperblock,
            Sealed::ValuesSegment,
        ];
        let identity = fuzz::pool_identity(&image.regions[0]).expect("the header of an undamaged pool");
        let mut sealed = Vec::new();
        let regions = image.regions.iter().enumerate();
        for (region, bytes) in regions.chain([(VALUES, &image.values)]) {
            for at in (0..bytes.len()).step_by(16) {
                let here = |kind: &Sealed| {
                    let sum = kind.sum(&bytes[at..], Place::new(identity, region, at));
                    // A disarmed record of a batch log has no valid checksum.
                    sum.is_some_and(|(place, sum)| *kind == Sealed::BatchLog || read(bytes, at + place) == Some(sum))
                };
                sealed.extend(KINDS.iter().filter(|kind| here(kind)).map(|kind| (region, at, *kind)));
            }
        }
        let records = (SEGMENTS.0..image.values.len()).step_by(8);
        let is_record = |at: &usize| {
            values_record(&image.values, *at, identity).is_some_and(|sum| read(&image.values, *at) == Some(sum))
        };
        let records: Vec<_> = records.filter(is_record).collect();
        Self { image, sealed, identity, records, chunk_bytes }
    }

    /// Returns the number of checksum kinds, for a test that all are found.
    pub fn kinds(&self) -> usize {
        let kinds: HashSet<_> = self.sealed.iter().map(|(.., kind)| std::mem::discriminant(kind)).collect();
        kinds.len() + usize::from(!self.records.is_empty())
    }

    /// Returns the image with the damage in `data`, and whether checksums were recomputed.
    pub fn damaged(&self, data: &[u8]) -> (SimImage, bool) {
        let mut image = self.image.clone();
        let Some((flags, edits)) = data.split_first() else { return (image, false) };
        for edit in edits.chunks_exact(EDIT).take(EDITS_MAX) {
            self.edit(&mut image, edit);
        }
        let reseal = flags & 1 == 1;
        if reseal {
            for (region, at, kind) in &self.sealed {
                let Some(bytes) = part(&mut image, *region) else { continue };
                if let Some((place, sum)) =
                    bytes.get(*at..).and_then(|bytes| kind.sum(bytes, Place::new(self.identity, *region, *at)))
                {
                    write(bytes, at + place, &sum.to_le_bytes());
                }
            }
            for at in &self.records {
                if let Some(sum) = values_record(&image.values, *at, self.identity) {
                    write(&mut image.values, *at, &sum.to_le_bytes());
                }
            }
        }
        (image, reseal)
    }

    fn edit(&self, image: &mut SimImage, edit: &[u8]) {
        let number = u32::from_le_bytes([edit[2], edit[3], edit[4], edit[5]]) as usize;
        let value = u16::from_le_bytes([edit[6], edit[7]]);
        let regions = image.regions.len().min(self.image.regions.len());
        let parts = regions + usize::from(!self.image.values.is_empty());
        let region = Some(usize::from(edit[0] >> 5) % parts).filter(|region| *region < regions).unwrap_or(VALUES);
        let at = self.place(image, region, edit[1], number);
        let Some(bytes) = part(image, region) else { return };
        match edit[0] & 15 {
            0..=3 => flip(bytes, at, 1 << (value & 7)),
            4 => flip(bytes, at, value as u8),
            5 => write(bytes, at, &value.to_le_bytes()),
            6 => write(bytes, at & !3, &u32::from(value).to_le_bytes()),
            7 => write(bytes, at & !7, &u64::from(value).to_le_bytes()),
            8 => write(bytes, at & !7, &u64::MAX.to_le_bytes()[..usize::from(value & 7) + 1]),
            9 => write(bytes, at & !63, &[0; 64]),
            10 => write(bytes, at & !4095, &[0; 4096]),
            11 => {
                let from = usize::from(value) * 64 % bytes.len().max(1);
                let copied = bytes[from..bytes.len().min(from + 64)].to_vec();
                write(bytes, at & !63, &copied);
            }
            12 => self.extent_word(bytes, region, number, value),
            13 => bytes.truncate(at & !4095),
            14 => bytes.resize(bytes.len() + 4096, 0),
            _ => image.regions.truncate(region.max(1)),
        }
    }

    /// Returns the location of an edit: usually bytes with a meaning.
    fn place(&self, image: &SimImage, region: usize, hint: u8, number: usize) -> usize {
        let bytes = image.regions.get(region).unwrap_or(&image.values);
        let len = bytes.len().max(1);
        let tables = self.layout(region);
        let table_at = tables.map_or(0, |layout| layout.extent_words(0)[usize::from(hint >> 7)].offset() as usize);
        let at = match hint & 7 {
            0 => number % 160,
            1 => 4096 + number % 160,
            2 => 8192 + number % 192,
            3 => table_at + number % 2048,
            4 => {
                let mine: Vec<_> = self.sealed.iter().filter(|(other, ..)| *other == region).collect();
                mine.get(number % mine.len().max(1)).map_or(number, |(_, at, _)| at + usize::from(hint >> 3))
            }
            5 | 6 => {
                // The next byte that is not zero.
                let from = number % len;
                bytes.iter().skip(from).position(|byte| *byte != 0).map_or(from, |further| from + further)
            }
            _ => number,
        };
        at % len
    }

    /// Returns `None` for the values file.
    fn layout(&self, region: usize) -> Option<RegionLayout> {
        let bytes = self.image.regions.get(region)?;
        RegionLayout::new(region as u16, bytes.len() as u64, self.chunk_bytes)
    }

    /// Stores a word in the extent table with a valid check, in one copy or in both.
    fn extent_word(&self, bytes: &mut [u8], region: usize, number: usize, value: u16) {
        let Some(layout) = self.layout(region) else { return };
        let chunk = number as u32 % layout.chunks;
        let (kind, class, chunks) = ((value & 31) as u8, value >> 5 & 63, u32::from(value >> 11));
        let word = fuzz::extent_word(kind, class, chunks, region as u16, chunk);
        let copies = layout.extent_words(chunk);
        let copies = if value & 0x400 == 0 { &copies[..] } else { &copies[number & 1..][..1] };
        copies.iter().for_each(|copy| write(bytes, copy.offset() as usize, &word.to_le_bytes()));
    }
}

impl Sealed {
    /// Returns the offset and the right value of the checksum of a structure of this kind that
    /// begins here; `None` if none begins here.
    fn sum(self, bytes: &[u8], place: Place) -> Option<(usize, u32)> {
        let one = |part: Range<usize>| Some(crc32c(&[bytes.get(part)?]));
        let two = |part: Range<usize>, more: Range<usize>| Some(crc32c(&[bytes.get(part)?, bytes.get(more)?]));
        let is = |magic: &[u8]| bytes.starts_with(magic);
        match self {
            Self::PoolHeader if is(b"LODEPOOL") => Some((12, two(8..12, 16..1024)?)),
            Self::RegionHeader if is(b"LODEREGN") => Some((12, two(8..12, 16..64)?)),
            Self::Superblock if is(b"LSHIKV") => Some((32, one(0..32)?)),
            Self::Superblock if is(b"LSNVHT") => Some((44, one(0..44)?)),
            Self::Superblock if is(b"LFLUID1") => Some((56, one(0..56)?)),
            Self::ValuesSuperblock if is(b"LSHASHKV") => Some((24, one(0..24)?)),
            Self::ValuesSegment if is(b"SHSG") => Some((28, one(0..28)?)),
            Self::Reach if is(b"LFREACH\0") => Some((8, one(12..64)?)),
            Self::LogSegment if is(b"LLOG") => Some((4, one(8..56)?)),
            Self::Manifest if is(b"LMAN") => Some((4, one(8..32)?)),
            Self::LogRecord if is(b"LLOG") => first_log_record(bytes),
            Self::Checkpoint if is(b"LMAN") => {
                let words = usize::try_from(read(bytes, 68)?).ok()?;
                Some((64, two(16..24, 68..88 + words * 8)?))
            }
            Self::TableIndex | Self::TableFilter | Self::TableKeys | Self::TableHeader if is(b"LSTABLE\x01") => {
                self.table_part(bytes)
            }
            Self::Segment if is(b"LSEG") => {
                // The depth of the last split has its own check.
                Some((12, crc32c_seeded(place.seed()?, &[bytes.get(..12)?, bytes.get(16..24)?, bytes.get(32..128)?])))
            }
            Self::Segment if is(b"LTAB") => {
                let place = [place.identity, place.at?.raw()].map(u64::to_le_bytes);
                Some((12, crc32c(&[bytes.get(..12)?, bytes.get(16..24)?, place.as_flattened()])))
            }
            Self::Run if is(b"LRUN") => {
                let count = usize::try_from(read(bytes, 16)?).ok()?;
                Some((4, one(8..24 + count * 8)?))
            }
            Self::Record => {
                let (value, key) =
                    (read(bytes, 4)? as usize, usize::from(*bytes.get(16)?) + 256 * usize::from(*bytes.get(17)?) + 1);
                let expiry = if bytes.get(18)? & 1 == 1 { 8 } else { 0 };
                (*bytes.get(19)? == 2).then_some(())?;
                let record = bytes.get(4..24 + expiry + key + value)?;
                Some((0, crc32c_seeded(place.seed()?, &[record])))
            }
            Self::NvhtRecord => {
                let key = usize::from(*bytes.get(12)?) + 256 * usize::from(*bytes.get(13)?) + 1;
                let expiry = if bytes.get(14)? & 1 == 1 { 8 } else { 0 };
                (*bytes.get(15)? == 2).then_some(())?;
                let record = bytes.get(4..16 + expiry + key + read(bytes, 4)? as usize)?;
                Some((0, crc32c_seeded(place.seed()?, &[record])))
            }
            Self::NvhtCursor | Self::NvhtKeys => {
                let at = if self == Self::NvhtCursor { 16 } else { 24 };
                let (low, high) = (read(bytes, at)?, *bytes.get(at + 4)?);
                (read(bytes, 0)? != 0 && (low != 0 || high != 0)).then_some(())?;
                let number = u64::from(high) << 32 | u64::from(low);
                // The partition between identity and number is 0.
                let check = crc32c(&[&place.identity.to_le_bytes(), &[0; 4], &number.to_le_bytes()]);
                Some((at + 4, (check >> 8 | 1) << 8 | u32::from(high)))
            }
            Self::BatchLog if bytes.get(8..12)? == b"LBT1" => {
                let words = usize::try_from(read(bytes, 16)?).ok()?;
                Some((12, two(0..12, 16..32 + words * 8)?))
            }
            Self::Occupancy if is(b"lodeOCC2") => {
                let words = usize::try_from(read(bytes, 8)?).ok()?;
                Some((8 * (words + 1), one(0..8 * (words + 1))?))
            }
            _ => None,
        }
    }
}

impl Sealed {
    /// Returns a checksum of a table of `fluidkv`, over its identity, the part's number and the
    /// part.
    fn table_part(self, bytes: &[u8]) -> Option<(usize, u32)> {
        let word = |at: usize| read(bytes, at).map(|word| word as usize);
        let (number, place, part) = match self {
            Self::TableIndex => {
                // Padding of less than a line is between index and filter: the length of the index
                // follows from the blocks.
                let (blocks, uniform) = (word(44)?, word(84)? & 0xffff != 0);
                let tops = if blocks > 32 { blocks.div_ceil(32) * 8 } else { 0 };
                let compressed = word(8)? > 3;
                let len = blocks.checked_mul(if uniform { 12 } else { 20 + 4 * usize::from(compressed) })? + tops;
                (u32::MAX, 112, bytes.get(word(56)?..word(56)?.checked_add(len)?)?)
            }
            Self::TableFilter => {
                let len = word(64)?.checked_mul(64)?;
                (u32::MAX - 1, 116, bytes.get(word(60)?..word(60)?.checked_add(len)?)?)
            }
            Self::TableKeys => {
                let len = word(72)?.checked_add(word(76)?)?;
                (u32::MAX - 2, 120, bytes.get(word(68)?..word(68)?.checked_add(len)?)?)
            }
            _ => {
                let sum =
                    crc32c(&[bytes.get(16..24)?, &(u32::MAX - 3).to_le_bytes(), bytes.get(..12)?, bytes.get(16..128)?]);
                return Some((12, sum));
            }
        };
        Some((place, crc32c(&[bytes.get(16..24)?, &number.to_le_bytes(), part])))
    }
}

/// Returns the checksum of the first record of a log segment of `fluidkv`, if it is a single write:
/// over the segment's nonce, its offset in steps of 8 bytes, and the record.
fn first_log_record(bytes: &[u8]) -> Option<(usize, u32)> {
    const AT: usize = 128;
    let value = (read(bytes, AT + 4)? & 0x7fff_ffff) as usize;
    let key = usize::from(*bytes.get(AT + 8)?) + 256 * usize::from(*bytes.get(AT + 9)?) + 1;
    let expiry = if bytes.get(AT + 10)? & 2 == 2 { 8 } else { 0 };
    let record = bytes.get(AT + 4..(AT + 16).checked_add(expiry + key + value)?)?;
    Some((AT, crc32c(&[bytes.get(32..40)?, &((AT / 8) as u32).to_le_bytes(), record])))
}

/// Returns the right checksum of a record of `hashkv` at this offset of the values file. The
/// checksum covers the low half of the pool's identity, the segment, the generation in the
/// segment's header, the offset in the segment, and the record.
fn values_record(bytes: &[u8], at: usize, identity: u64) -> Option<u32> {
    let (segment, place) = ((at - SEGMENTS.0) / SEGMENTS.1, (at - SEGMENTS.0) % SEGMENTS.1);
    let generation = read(bytes, at - place + 20)?;
    let key = usize::from(*bytes.get(at + 6)?) + 256 * usize::from(*bytes.get(at + 7)?) + 1;
    (*bytes.get(at + 4)? == 1).then_some(())?;
    let record = bytes.get(at + 4..(at + 16 + key).checked_add(read(bytes, at + 8)? as usize)?)?;
    let place = [identity as u32, segment as u32, generation, place as u32].map(u32::to_le_bytes);
    Some(crc32c(&[place.as_flattened(), record]))
}

fn part(image: &mut SimImage, region: usize) -> Option<&mut Vec<u8>> {
    if region == VALUES { Some(&mut image.values) } else { image.regions.get_mut(region) }
}

fn read(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn write(bytes: &mut [u8], at: usize, part: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(part) {
        *byte = *new;
    }
}

fn flip(bytes: &mut [u8], at: usize, bits: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= bits;
    }
}

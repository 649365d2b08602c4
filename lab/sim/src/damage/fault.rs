//! Damage to the bytes of a store's files.

use std::fmt;

use lodestore_media::sim::{SimImage, VALUES};

/// Bytes of a page of the medium.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;

/// A range of one file. The file is the index of a region, or [`VALUES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: u16,
    /// First byte.
    pub offset: u64,
    /// Length, in bytes.
    pub len: u64,
}

/// One damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Inverts one bit of `at`; `bit` counts from its first byte.
    Flip {
        /// The byte.
        at: Place,
        /// The bit in it.
        bit: u8,
    },
    /// The bytes are zero.
    Zero {
        /// The bytes.
        at: Place,
    },
    /// The bytes are pseudo-random.
    Garbage {
        /// The bytes.
        at: Place,
        /// Seed of the new content.
        seed: u64,
    },
    /// The bytes have their content of an earlier moment.
    Stale {
        /// The bytes.
        at: Place,
        /// Index of the moment.
        moment: usize,
    },
    /// The bytes have the content of another place.
    Misplaced {
        /// The bytes.
        at: Place,
        /// First byte of the copied content, in the file `from_file`.
        from_offset: u64,
        /// File of the copied content.
        from_file: u16,
    },
    /// The file ends at this offset; at 0 it is empty or missing.
    Truncated {
        /// The file; `offset` is the new length.
        at: Place,
    },
    /// Two files of one length have each other's content.
    Swapped {
        /// One whole file.
        at: Place,
        /// The other.
        other: u16,
    },
}

/// The kinds of damage, as rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One flipped bit.
    Flip,
    /// Several flipped bits.
    Flips,
    /// A zeroed line.
    ZeroLine,
    /// A zeroed sector of 512 bytes, or a page.
    ZeroPage,
    /// Random bytes in a line or page.
    Garbage,
    /// A line with older content.
    StaleLine,
    /// A page with older content.
    StalePage,
    /// A whole file with older content.
    StaleFile,
    /// A line or page with the content of another place.
    Misplaced,
    /// A file that is cut short, emptied or missing.
    Truncated,
    /// Two files swapped.
    Swapped,
    /// Several damages of different kinds.
    Mixed,
}

impl Kind {
    /// Every kind, in the order of the table.
    pub const ALL: [Self; 12] = [
        Self::Flip,
        Self::Flips,
        Self::ZeroLine,
        Self::ZeroPage,
        Self::Garbage,
        Self::StaleLine,
        Self::StalePage,
        Self::StaleFile,
        Self::Misplaced,
        Self::Truncated,
        Self::Swapped,
        Self::Mixed,
    ];

    /// Whether the damaged bytes are older content of the same store.
    pub fn is_stale(self) -> bool {
        matches!(self, Self::StaleLine | Self::StalePage | Self::StaleFile)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Flip => "one bit flipped",
            Self::Flips => "several bits flipped",
            Self::ZeroLine => "line zeroed",
            Self::ZeroPage => "page zeroed",
            Self::Garbage => "random bytes",
            Self::StaleLine => "line stale",
            Self::StalePage => "page stale",
            Self::StaleFile => "file stale",
            Self::Misplaced => "misplaced content",
            Self::Truncated => "file truncated or missing",
            Self::Swapped => "files swapped",
            Self::Mixed => "several damages",
        })
    }
}

/// Returns the content of a file of an image.
pub fn content(image: &SimImage, file: u16) -> &[u8] {
    if file == VALUES { &image.values } else { image.regions.get(usize::from(file)).map_or(&[], Vec::as_slice) }
}

fn content_mut(image: &mut SimImage, file: u16) -> Option<&mut Vec<u8>> {
    if file == VALUES { Some(&mut image.values) } else { image.regions.get_mut(usize::from(file)) }
}

fn range(bytes: &[u8], offset: u64, len: u64) -> &[u8] {
    let start = (offset as usize).min(bytes.len());
    let end = ((offset + len) as usize).min(bytes.len());
    &bytes[start..end]
}

/// Returns the bytes of a range, cut at the file's end.
pub fn bytes_at(image: &SimImage, at: Place) -> &[u8] {
    range(content(image, at.file), at.offset, at.len)
}

fn overwrite(image: &mut SimImage, at: Place, new: &[u8]) {
    let Some(bytes) = content_mut(image, at.file) else { return };
    let start = (at.offset as usize).min(bytes.len());
    let len = new.len().min(at.len as usize).min(bytes.len() - start);
    bytes[start..start + len].copy_from_slice(&new[..len]);
}

impl Fault {
    /// Returns the damaged place.
    pub fn place(&self) -> Place {
        match *self {
            Self::Flip { at, .. }
            | Self::Zero { at }
            | Self::Garbage { at, .. }
            | Self::Stale { at, .. }
            | Self::Misplaced { at, .. }
            | Self::Truncated { at }
            | Self::Swapped { at, .. } => at,
        }
    }

    /// Returns its kind.
    pub fn kind(&self) -> Kind {
        match *self {
            Self::Flip { .. } => Kind::Flip,
            Self::Zero { at } if at.len <= LINE_BYTES => Kind::ZeroLine,
            Self::Zero { .. } => Kind::ZeroPage,
            Self::Garbage { .. } => Kind::Garbage,
            Self::Stale { at, .. } if at.len <= LINE_BYTES => Kind::StaleLine,
            Self::Stale { at, .. } if at.len <= PAGE_BYTES => Kind::StalePage,
            Self::Stale { .. } => Kind::StaleFile,
            Self::Misplaced { .. } => Kind::Misplaced,
            Self::Truncated { .. } => Kind::Truncated,
            Self::Swapped { .. } => Kind::Swapped,
        }
    }

    /// Damages `image`; `moments` are the earlier images of the same store.
    pub fn apply(&self, image: &mut SimImage, moments: &[SimImage]) {
        match *self {
            Self::Flip { at, bit } => {
                let flipped: Vec<u8> = bytes_at(image, at).iter().take(1).map(|byte| byte ^ (1 << bit)).collect();
                overwrite(image, at, &flipped);
            }
            Self::Zero { at } => overwrite(image, at, &vec![0; at.len as usize]),
            Self::Garbage { at, seed } => {
                let mut rng = lodestore_media::sim::Rng::new(seed);
                let bytes: Vec<u8> = (0..at.len).map(|_| rng.next_u64() as u8).collect();
                overwrite(image, at, &bytes);
            }
            Self::Stale { at, moment } => {
                let Some(moment) = moments.get(moment) else { return };
                if at.file == VALUES && at.len > PAGE_BYTES {
                    image.values.clone_from(&moment.values);
                    return;
                }
                let older = bytes_at(moment, at).to_vec();
                overwrite(image, at, &older);
            }
            Self::Misplaced { at, from_file, from_offset } => {
                let from = Place { file: from_file, offset: from_offset, len: at.len };
                let bytes = bytes_at(image, from).to_vec();
                overwrite(image, at, &bytes);
            }
            Self::Truncated { at } => {
                let is_last = usize::from(at.file) + 1 == image.regions.len();
                if at.offset == 0 && is_last && at.file > 0 {
                    image.regions.pop();
                } else if let Some(bytes) = content_mut(image, at.file) {
                    bytes.truncate(at.offset as usize);
                }
            }
            Self::Swapped { at, other } => {
                let (first, second) = (content(image, at.file).to_vec(), content(image, other).to_vec());
                if let Some(bytes) = content_mut(image, at.file) {
                    *bytes = second;
                }
                if let Some(bytes) = content_mut(image, other) {
                    *bytes = first;
                }
            }
        }
    }
}

/// Returns the kind of several combined damages.
pub fn kind_of(faults: &[Fault]) -> Kind {
    let mut kinds: Vec<Kind> = faults.iter().map(Fault::kind).collect();
    kinds.dedup();
    match *kinds {
        [Kind::Flip] if faults.len() > 1 => Kind::Flips,
        [kind] => kind,
        _ => Kind::Mixed,
    }
}

fn file_name(file: u16) -> String {
    if file == VALUES { "values".into() } else { format!("region {file}") }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, offset, len } = self.place();
        let file = file_name(file);
        match *self {
            Self::Flip { bit, .. } => write!(f, "bit {bit} of byte {offset} of {file} flipped"),
            Self::Zero { .. } => write!(f, "{len} bytes at {offset} of {file} zeroed"),
            Self::Garbage { .. } => write!(f, "{len} bytes at {offset} of {file} random"),
            Self::Stale { moment, .. } => write!(f, "{len} bytes at {offset} of {file} as at moment {moment}"),
            Self::Misplaced { from_file, from_offset, .. } => {
                write!(f, "{len} bytes at {offset} of {file} copied from {from_offset} of {}", file_name(from_file))
            }
            Self::Truncated { .. } => write!(f, "{file} truncated to {offset} bytes"),
            Self::Swapped { other, .. } => write!(f, "{file} and {} swapped", file_name(other)),
        }
    }
}

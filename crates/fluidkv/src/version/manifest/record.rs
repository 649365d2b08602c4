//! The records of the manifest and their replay.
//!
//! ```text
//!  0      4        8          16    17      24
//! | crc32c | words | number   | kind | zero | body, padded with zeros to whole words
//! ```
//! `words` is the body's length in words of 8 bytes. `crc32c` covers the chain's nonce and
//! everything after the checksum, so that no record of an older use of the space counts.
//!
//! A reader continues to the first record that is not whole. If no whole record follows, that
//! record was cut off or is damaged. A mark in the root area (`layout.rs`) and the logs distinguish
//! the two (`db/recover/reach.rs`).
//!
//! The records are stored in a chain of extents (`chain.rs`). Each extent begins with 64 bytes:
//! magic `LMAN`, crc32c of the 24 bytes after it, version u32, number in the chain u32, nonce u64,
//! bytes u64. Then follow the word that names the next extent, u64, and zeros.

use lodestore_contract::{Error, Result};
use lodestore_media::{crc32c, u32_at, u64_at};

use super::Edit;
pub(crate) use super::codec::range_bytes;
use super::codec::{Kind, Sink, Source, state_bytes};
use super::state::ManifestState;

/// Bytes of the header of a manifest's extent. The records follow.
pub(crate) const EXTENT_HEADER_BYTES: usize = 64;
/// Offset in an extent of the word that names the next extent; 0: none.
pub(crate) const LINK_AT: u64 = 32;
/// Version of the manifest's format. Versions below 3 used a single extent, and are refused.
pub(crate) const MANIFEST_VERSION: u32 = 3;
const MAGIC: [u8; 4] = *b"LMAN";
/// Bytes of a record's header.
pub(super) const RECORD_HEADER_BYTES: usize = 24;
/// Bytes of a word.
pub(super) const WORD_BYTES: usize = 8;
/// The first word of a region without a record: its length field exceeds every extent.
pub(super) const NO_RECORD_MAGIC: u64 = u64::MAX;
/// Bytes that the search for a later record may sum in vain, in addition to four times the bytes
/// that it searches.
const SEARCH_BYTES: usize = 64 << 10;

/// The header of a manifest's extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its position in the chain, from 0.
    pub(crate) number: u32,
    /// The nonce of the chain. No other use of the space may have had it.
    pub(crate) nonce: u64,
    /// Bytes of the extent, header included.
    pub(crate) capacity: u64,
}

impl Head {
    /// Returns the bytes to store. The word that names the next extent is 0.
    pub(crate) fn encode(&self) -> [u8; EXTENT_HEADER_BYTES] {
        let mut bytes = [0; EXTENT_HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&MANIFEST_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.capacity.to_le_bytes());
        let crc = crc32c(&[&bytes[8..LINK_AT as usize]]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the header of the extent that begins with these bytes.
    ///
    /// # Errors
    /// [`Error::NewerFormat`]; [`Error::Corrupt`] if it is no manifest: only whole extents are ever
    /// named.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let head = bytes.first_chunk::<EXTENT_HEADER_BYTES>();
        let is_whole = |head: &&[u8; EXTENT_HEADER_BYTES]| {
            head[..4] == MAGIC && crc32c(&[&head[8..LINK_AT as usize]]) == u32_at(&head[..], 4)
        };
        let Some(head) = head.filter(is_whole) else {
            return Err(Error::corrupt("manifest", "the header is damaged"));
        };
        let found = u32_at(head, 8);
        if found > MANIFEST_VERSION {
            return Err(Error::NewerFormat { part: "fluidkv manifest".into(), found, known: MANIFEST_VERSION });
        }
        if found < MANIFEST_VERSION {
            return Err(Error::corrupt("manifest", format!("version {found} was never released")));
        }
        let this = Self { number: u32_at(head, 12), nonce: u64_at(head, 16), capacity: u64_at(head, 24) };
        let zeros = head[LINK_AT as usize + 8..].iter().all(|byte| *byte == 0);
        if this.capacity < EXTENT_HEADER_BYTES as u64 || !zeros {
            return Err(Error::corrupt("manifest", "the header is complete but invalid"));
        }
        Ok(this)
    }
}

/// Encodes the record of an edit, a multiple of 8 bytes. The record is stored after the one with
/// the number before `number`.
pub(crate) fn encode(edit: &Edit, nonce: u64, number: u64) -> Vec<u8> {
    sealed(nonce, number, |sink| sink.edit(edit))
}

/// Encodes the record of a whole state, which is the first record of a chain.
pub(crate) fn encode_checkpoint(state: &ManifestState, nonce: u64, number: u64) -> Vec<u8> {
    sealed(nonce, number, |sink| {
        sink.state(state);
        Kind::Checkpoint
    })
}

/// Returns the bytes of [`encode_checkpoint`], given the bytes of the state's ranges
/// ([`range_bytes`]) and the number of its value segments.
pub(crate) fn checkpoint_bytes(ranges: u64, values: u64) -> u64 {
    RECORD_HEADER_BYTES as u64 + state_bytes(ranges, values).next_multiple_of(WORD_BYTES as u64)
}

fn sealed(nonce: u64, number: u64, body: impl FnOnce(&mut Sink<'_>) -> Kind) -> Vec<u8> {
    let mut bytes = vec![0; RECORD_HEADER_BYTES];
    let kind = body(&mut Sink(&mut bytes));
    bytes.resize(bytes.len().next_multiple_of(WORD_BYTES), 0);
    let words = ((bytes.len() - RECORD_HEADER_BYTES) / WORD_BYTES) as u32;
    bytes[4..8].copy_from_slice(&words.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes[16] = kind as u8;
    let crc = crc32c(&[&nonce.to_le_bytes(), &bytes[4..]]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A record whose end is within the available bytes.
pub(super) struct Found<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) number: u64,
}

impl<'a> Found<'a> {
    /// Judges by the length alone.
    fn likely(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
        let len = RECORD_HEADER_BYTES + u32_at(head, 4) as usize * WORD_BYTES;
        Some(Self { bytes: bytes.get(..len)?, number: u64_at(head, 8) })
    }

    fn is_whole(&self, nonce: u64) -> bool {
        crc32c(&[&nonce.to_le_bytes(), &self.bytes[4..]]) == u32_at(self.bytes, 0)
    }

    pub(super) fn whole(bytes: &'a [u8], nonce: u64) -> Option<Self> {
        Self::likely(bytes).filter(|found| found.is_whole(nonce))
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        Kind::of(self.bytes[16]).filter(|_| self.bytes[17..RECORD_HEADER_BYTES].iter().all(|byte| *byte == 0))
    }

    pub(super) fn body(&self) -> Source<'a> {
        Source(&self.bytes[RECORD_HEADER_BYTES..])
    }
}

/// The result of the replay of a manifest's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// The state.
    pub(crate) state: ManifestState,
    /// Bytes of the checkpoint, the first record.
    pub(crate) checkpoint: usize,
    /// End of the last whole record in the given bytes.
    pub(crate) end: usize,
    /// The number of the next record.
    pub(crate) next_number: u64,
    /// Whether nonzero bytes follow: a record that was cut off, or an older use of the space. These
    /// bytes are wiped before the next edit, or the state is checkpointed into a new chain.
    pub(crate) torn: bool,
}

/// Replays the records at the start of `bytes` (after the extent's header) up to the first record
/// that is not whole. The manifest ends there, because no record is begun before the one before it
/// is durable.
///
/// # Errors
/// [`Error::Corrupt`] if the checkpoint is not whole or a record does not follow from the earlier
/// ones. The same if a whole record is found after a record that is not whole.
pub(crate) fn replay(bytes: &[u8], nonce: u64) -> Result<Replayed> {
    let mut replayed = Replayed::begin(bytes, nonce)?;
    loop {
        let rest = &bytes[replayed.end..];
        let Some(found) = Found::whole(rest, nonce) else { break };
        replayed.apply_record(&found)?;
    }
    let rest = &bytes[replayed.end..];
    if let Some(later) = later_record(rest, nonce, replayed.next_number) {
        return Err(wrong(replayed.next_number, format!("the record is damaged, and record {later} is complete")));
    }
    replayed.torn = rest.iter().take(RECORD_HEADER_BYTES).any(|byte| *byte != 0);
    Ok(replayed)
}

impl Replayed {
    /// Begins with the checkpoint, which was durable before anything named it.
    fn begin(bytes: &[u8], nonce: u64) -> Result<Self> {
        let Some(first) = Found::whole(bytes, nonce) else {
            return Err(Error::corrupt("manifest", "the checkpoint is damaged"));
        };
        let is_checkpoint = first.kind() == Some(Kind::Checkpoint);
        let Some(state) = first.body().state().filter(|_| is_checkpoint) else {
            return Err(wrong(first.number, "the checkpoint is complete but invalid"));
        };
        let (end, next_number) = (first.bytes.len(), first.number.wrapping_add(1));
        Ok(Self { state, checkpoint: end, end, next_number, torn: false })
    }

    /// Applies a whole record.
    fn apply_record(&mut self, found: &Found<'_>) -> Result<()> {
        if found.number != self.next_number {
            return Err(wrong(found.number, format!("record {} must be at this position", self.next_number)));
        }
        let Some(edit) = found.kind().and_then(|kind| found.body().edit(kind)) else {
            return Err(wrong(found.number, "the edit is complete but invalid"));
        };
        self.state
            .apply(&edit)
            .map_err(|refused| wrong(found.number, format!("the edit does not fit the previous state: {refused}")))?;
        (self.end, self.next_number) = (self.end + found.bytes.len(), self.next_number.wrapping_add(1));
        Ok(())
    }
}

/// Returns the number of a whole record that follows `number`, somewhere in `rest`. No whole record
/// is at the start of `rest`.
fn later_record(rest: &[u8], nonce: u64, number: u64) -> Option<u64> {
    later(rest, nonce, number).map(|(_, found)| found.number)
}

/// Returns the first such record and its offset. Gives up if too many bytes look like records but
/// are not.
pub(super) fn later(rest: &[u8], nonce: u64, number: u64) -> Option<(usize, Found<'_>)> {
    let mut budget = rest.len().saturating_mul(4).saturating_add(SEARCH_BYTES);
    // Each record in between uses at least a header.
    let most = (rest.len() / RECORD_HEADER_BYTES) as u64;
    for at in (WORD_BYTES..rest.len()).step_by(WORD_BYTES) {
        let Some(found) = Found::likely(&rest[at..]) else { continue };
        if found.number.wrapping_sub(number) > most {
            continue;
        }
        if found.is_whole(nonce) {
            return Some((at, found));
        }
        budget = budget.checked_sub(found.bytes.len())?;
    }
    None
}

#[cold]
fn wrong(number: u64, what: impl Into<String>) -> Error {
    Error::corrupt(format!("manifest record {number}"), what)
}

//! Bytes that outlive the reference store: a header and checksummed records.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use lodestore_contract::{Error, Expiry, Finding, Result};

use super::{Flaw, Record};

const MAGIC: &[u8; 8] = b"refstore";
/// Magic, capacity, count of records, checksum.
const HEADER_BYTES: usize = 32;
/// Checksum, lengths, expiry.
const RECORD_HEADER_BYTES: usize = 32;

#[derive(Default)]
struct Image {
    /// `None`: there is no store.
    bytes: Option<Vec<u8>>,
    open: bool,
}

#[derive(Default)]
pub struct Disk {
    image: Mutex<Image>,
}

type Loaded = (BTreeMap<Vec<u8>, Record>, Vec<Finding>, u64);

impl Disk {
    fn image(&self) -> MutexGuard<'_, Image> {
        self.image.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn claim_empty(&self) -> Result<()> {
        if self.image().bytes.is_some() { Err(Error::exists(PathBuf::from("memory"))) } else { Ok(()) }
    }

    pub fn store_open(&self, capacity: u64) {
        *self.image() = Image { bytes: Some(head(capacity, 0)), open: true };
    }

    pub fn store(&self, map: &BTreeMap<Vec<u8>, Record>, capacity: u64) {
        let mut image = self.image();
        if image.bytes.is_some() {
            let mut bytes = head(capacity, map.len() as u64);
            map.iter().for_each(|(key, record)| write(&mut bytes, key, record));
            *image = Image { bytes: Some(bytes), open: false };
        }
    }

    pub fn clear(&self) {
        *self.image() = Image::default();
    }

    pub fn alter(&self, change: &mut dyn FnMut(&mut Vec<u8>)) {
        change(self.image().bytes.get_or_insert_default());
    }

    pub fn load(&self, flaw: Option<Flaw>) -> Result<Loaded> {
        let mut image = self.image();
        let path = PathBuf::from("memory");
        let Some(bytes) = &image.bytes else { return Err(Error::missing(path)) };
        if image.open && flaw != Some(Flaw::OpensTwice) {
            return Err(Error::Locked { path, holder: "this process".into() });
        }
        let loaded = parse(bytes, flaw)?;
        image.open = true;
        Ok(loaded)
    }
}

fn head(capacity: u64, count: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&capacity.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
    bytes
}

fn write(bytes: &mut Vec<u8>, key: &[u8], record: &Record) {
    let mut body = (key.len() as u64).to_le_bytes().to_vec();
    body.extend_from_slice(&(record.value.len() as u64).to_le_bytes());
    // Zero means no expiry: an expiry of 0 and of 1 ms are both long past.
    body.extend_from_slice(&record.expiry.map_or(0, |expiry| expiry.millis().max(1)).to_le_bytes());
    body.extend_from_slice(key);
    body.extend_from_slice(&record.value);
    bytes.extend_from_slice(&checksum(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
}

fn parse(bytes: &[u8], flaw: Option<Flaw>) -> Result<Loaded> {
    let word = |at: usize| {
        let eight = bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(eight.try_into().expect("eight bytes")))
    };
    let corrupt = |what: &str| Error::corrupt("the head of the image", what);
    if bytes.len() < HEADER_BYTES || bytes[..8] != *MAGIC || word(24) != Some(checksum(&bytes[..24])) {
        return Err(corrupt("no such head was written"));
    }
    let (capacity, count) = (word(8).expect("in the head"), word(16).expect("in the head"));
    let (mut map, mut findings, mut at) = (BTreeMap::new(), Vec::new(), HEADER_BYTES);
    for number in 0..count {
        let sizes = (word(at), word(at + 8), word(at + 16), word(at + 24));
        let (Some(sum), Some(key_len), Some(value_len), Some(expiry)) = sizes else {
            findings.push(Finding { place: format!("record {number}"), what: "beyond the end".into() });
            break;
        };
        let rest = &bytes[at + RECORD_HEADER_BYTES..];
        let total = usize::try_from(key_len.saturating_add(value_len)).unwrap_or(usize::MAX);
        if total > rest.len() {
            findings.push(Finding { place: format!("record {number}"), what: "its lengths leave the image".into() });
            break;
        }
        let (key, value) = rest[..total].split_at(usize::try_from(key_len).expect("within the image"));
        if flaw == Some(Flaw::ChecksumUnchecked) || sum == checksum(&bytes[at + 8..at + RECORD_HEADER_BYTES + total]) {
            let expiry = (expiry != 0).then(|| Expiry::at_millis(expiry));
            map.insert(key.to_vec(), Record { value: value.to_vec(), expiry });
        } else if flaw == Some(Flaw::CorruptionPanics) {
            panic!("record {number} is corrupt");
        } else if flaw != Some(Flaw::CorruptionUnreported) {
            findings.push(Finding { place: format!("record {number}"), what: "the checksum differs".into() });
        }
        at += RECORD_HEADER_BYTES + total;
    }
    Ok((map, findings, capacity))
}

/// FNV-1a over words, with the length: enough for a test.
fn checksum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(mix(sum, bytes.len() as u64), |sum, byte| mix(sum, u64::from(*byte)))
}

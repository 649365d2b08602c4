//! A record of the manifest of which one bit is wrong, set right.
//!
//! The checksum says which bit: it is linear, so what is stored and what the bytes come to differ by the checksum of the one bit alone, which depends on
//! the bit's distance from the end and on nothing else. A bit of the length moves the end, so the lengths that one bit makes are tried. What is mended must have
//! the number that comes there; whoever reads it asks for all rules of the state besides.
//!
//! To have the record is right either way: it is damage, or it was cut off in its last bit.

use lodestore_media::{crc32c, u32_at, u64_at};

use super::record::{HEADER, WORD};

/// Longest record that is mended, in bytes. What is wrong in more bits looks like one bit wrong in one case in 2^29 for each byte of it.
const LEN_MAX: usize = 32 << 10;
/// The polynomial of crc32c, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The record that stands at the start of `bytes`, which is not whole there, with one bit set right. Of any number where none is given.
pub(super) fn mend(bytes: &[u8], nonce: u64, number: Option<u64>) -> Option<Vec<u8>> {
    let words = u32_at(bytes.first_chunk::<HEADER>()?, 4);
    let lengths = std::iter::once(words).chain((0..u32::BITS).map(|bit| words ^ 1 << bit));
    let mut mended = lengths.filter_map(|other| {
        let len = (other as usize).checked_mul(WORD)?.checked_add(HEADER)?;
        let mut record = bytes.get(..len).filter(|_| len <= LEN_MAX)?.to_vec();
        record[4..8].copy_from_slice(&other.to_le_bytes());
        let wrong = u32_at(&record, 0) ^ crc32c(&[&nonce.to_le_bytes(), &record[4..]]);
        (if other == words { set_right(&mut record, wrong) } else { wrong == 0 }).then_some(record)
    });
    mended.find(|record| number.is_none_or(|number| u64_at(record, 8) == number))
}

/// Sets the bit right that makes the checksum differ by this; false where no single bit does.
fn set_right(record: &mut [u8], wrong: u32) -> bool {
    if wrong.is_power_of_two() {
        let stored = u32_at(record, 0) ^ wrong;
        record[..4].copy_from_slice(&stored.to_le_bytes());
        return true;
    }
    let mut sum = POLYNOMIAL;
    for byte in record[8..].iter_mut().rev() {
        for bit in (0..8).rev() {
            if sum == wrong {
                *byte ^= 1 << bit;
                return true;
            }
            sum = sum >> 1 ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 };
        }
    }
    false
}

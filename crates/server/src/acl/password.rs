//! Passwords: stored as SHA-256 hashes in hexadecimal digits, compared in constant time.

use std::fmt::Write as _;
use std::io::Read as _;

use sha2::{Digest as _, Sha256};

/// Digits of a hash.
pub(crate) const HASH_DIGIT_COUNT: usize = 64;

/// Returns the hash of a password in lower-case hexadecimal digits.
pub(crate) fn hash(password: &[u8]) -> String {
    hexadecimal(&Sha256::digest(password))
}

/// Whether a text has the form of a hash.
pub(crate) fn is_hash(text: &[u8]) -> bool {
    text.len() == HASH_DIGIT_COUNT && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a hash is among others. The time depends on the number of hashes only.
pub(crate) fn contains(hashes: &[String], hash: &str) -> bool {
    let is_equal = |expected: &String| {
        let pairs = expected.bytes().zip(hash.bytes());
        let differences = pairs.fold(0, |differences, (left, right)| differences | (left ^ right));
        std::hint::black_box(differences) == 0 && expected.len() == hash.len()
    };
    // No early end: each hash is compared.
    hashes.iter().fold(false, |is_found, expected| is_equal(expected) | is_found)
}

/// Returns a random password with `bits` bits of entropy, rounded up to 4, in hexadecimal digits.
///
/// # Errors
///
/// If the system has no source of random bytes.
pub(crate) fn generate(bits: usize) -> std::io::Result<String> {
    let digits = bits.div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let mut text = hexadecimal(&random);
    text.truncate(digits);
    Ok(text)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_sha_256() {
        assert_eq!(hash(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(is_hash(hash(b"").as_bytes()));
        assert!(contains(&[hash(b"a"), hash(b"b")], &hash(b"b")));
        assert!(!contains(&[hash(b"a"), hash(b"b")], &hash(b"c")));
    }

    #[test]
    fn generated_passwords_differ_and_have_the_asked_length() {
        for bits in [1, 4, 5, 8, 256, 4096] {
            assert_eq!(generate(bits).map(|text| text.len()).ok(), Some(bits.div_ceil(4)));
        }
        assert_ne!(generate(256).ok(), generate(256).ok());
    }
}

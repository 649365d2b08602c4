//! Base64 with padding (RFC 4648 section 4).

use std::fmt;

/// The characters of the 64 values.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const PADDING: char = '=';
/// The value of a character outside of the alphabet: all bits, which an OR with other values keeps.
const INVALID_MASK: u8 = 0xFF;
/// The values of all characters.
static VALUES: [u8; 256] = values();

const fn values() -> [u8; 256] {
    let mut values = [INVALID_MASK; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        values[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    values
}

/// The reason why a text is not base64.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The length is not a multiple of 4.
    Length,
    /// The four characters from this offset on encode no bytes.
    Group(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => write!(f, "the length is not a multiple of 4"),
            Self::Group(at) => write!(f, "invalid characters at {at}"),
        }
    }
}

/// Returns the text of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    let character = |value: u32| char::from(ALPHABET[value as usize % ALPHABET.len()]);
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            text.push(if at <= part.len() { character(bits >> shift) } else { PADDING });
        }
    }
    text
}

/// Returns the bytes that `text` encodes. Texts that end with padding may follow each other.
///
/// # Errors
/// [`DecodeError`]; also for unused bits that are not zero.
pub fn decode(text: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let (groups, rest) = text.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(DecodeError::Length);
    }
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for (at, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|byte| char::from(**byte) == PADDING).count().min(2);
        let (mut bits, mut all) = (0u32, 0);
        for byte in &group[..4 - padding] {
            let value = VALUES[usize::from(*byte)];
            bits = bits << 6 | u32::from(value);
            all |= value;
        }
        let bits = bits << (6 * padding);
        let decoded = [bits >> 16, bits >> 8, bits].map(|bits| bits as u8);
        let (decoded, unused) = decoded.split_at(3 - padding);
        if all == INVALID_MASK || unused.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::Group(4 * at));
        }
        bytes.extend_from_slice(decoded);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_have_the_text_of_another_encoder(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let text = encode(&bytes);
            prop_assert_eq!(&text, &data_encoding::BASE64.encode(&bytes));
            prop_assert_eq!(decode(text.as_bytes()), Ok(bytes));
        }

        #[test]
        fn any_text_is_decoded_or_refused_as_by_another_decoder(text in "[A-D=/+a \u{e9}]{0,9}") {
            prop_assert_eq!(decode(text.as_bytes()).ok(), data_encoding::BASE64.decode(text.as_bytes()).ok(), "{}", text);
        }
    }

    #[test]
    fn a_refused_text_is_reported_with_the_offset() {
        assert_eq!(decode(b"AAA"), Err(DecodeError::Length));
        for text in [b"AAAAAA\xff=", b"AAAA====", b"AAAAA=AA", b"AAAAAAB=", b"AAAAAB==", b"AAAA A=="] {
            assert_eq!(decode(text), Err(DecodeError::Group(4)), "{}", text.escape_ascii());
        }
    }
}

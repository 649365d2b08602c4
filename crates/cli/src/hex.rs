//! Hexadecimal text.

/// The reason why a text is not hexadecimal.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The number of digits is odd.
    Length,
    /// The character at this offset is no digit.
    Digit(usize),
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length => write!(f, "the number of digits is odd"),
            Self::Digit(at) => write!(f, "invalid digit at {at}"),
        }
    }
}

/// Adds the lower-case digits of `bytes` to `out`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend(bytes.iter().flat_map(|byte| [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)])));
}

/// Returns the bytes that digits of either case encode.
///
/// # Errors
/// [`DecodeError`].
pub fn decode(text: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(DecodeError::Length);
    }
    let digit = |at: usize| match char::from(text[at]).to_digit(16) {
        Some(digit) => Ok(digit as u8),
        None => Err(DecodeError::Digit(at)),
    };
    (0..pairs.len()).map(|at| Ok(digit(2 * at)? << 4 | digit(2 * at + 1)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_both_cases_are_read_and_others_are_refused_with_their_offset() {
        assert_eq!(decode(b"00fFA9"), Ok(vec![0, 0xFF, 0xA9]));
        assert_eq!(decode(b"0"), Err(DecodeError::Length));
        assert_eq!(decode(b"000g"), Err(DecodeError::Digit(3)));
        assert_eq!(decode(b"+1"), Err(DecodeError::Digit(0)));
        let mut text = Vec::new();
        encode(&[0, 0xFF, 0xA9], &mut text);
        assert_eq!(text, b"00ffa9");
    }
}

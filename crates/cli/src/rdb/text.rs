//! Lengths and strings of a snapshot.

use std::io::Read;

use lodestore::store::limits;

use super::{Halt, Source};

/// A length, or the encoding of a string that has none.
enum Prefix {
    Len(u64),
    Encoding(u8),
}

impl<R: Read> Source<R> {
    fn read_prefix<E>(&mut self) -> Result<Prefix, Halt<E>> {
        let first = self.read_byte()?;
        let low = first & 0x3f;
        Ok(match first >> 6 {
            0 => Prefix::Len(u64::from(low)),
            1 => Prefix::Len(u64::from(low) << 8 | u64::from(self.read_byte()?)),
            2 if first == 0x80 => Prefix::Len(big_endian(&self.read_array::<4, E>()?)),
            2 if first == 0x81 => Prefix::Len(big_endian(&self.read_array::<8, E>()?)),
            2 => return self.fail(format!("{first:#04x} is not the first byte of a length")),
            _ => Prefix::Encoding(low),
        })
    }

    /// Reads a length.
    pub(super) fn read_len<E>(&mut self) -> Result<u64, Halt<E>> {
        match self.read_prefix()? {
            Prefix::Len(len) => Ok(len),
            Prefix::Encoding(_) => self.fail("a string is at the place of a length"),
        }
    }

    /// Reads a string of any encoding. Numbers become their decimal digits.
    pub(super) fn read_string<E>(&mut self) -> Result<Vec<u8>, Halt<E>> {
        let encoding = match self.read_prefix()? {
            Prefix::Len(len) => return self.read_bytes(len),
            Prefix::Encoding(encoding) => encoding,
        };
        let number = match encoding {
            0 => i32::from(i8::from_le_bytes(self.read_array()?)),
            1 => i32::from(i16::from_le_bytes(self.read_array()?)),
            2 => i32::from_le_bytes(self.read_array()?),
            3 => return self.read_compressed(),
            _ => return self.fail(format!("string encoding {encoding} is unknown")),
        };
        Ok(number.to_string().into_bytes())
    }

    fn read_compressed<E>(&mut self) -> Result<Vec<u8>, Halt<E>> {
        let (packed_len, len) = (self.read_len()?, self.read_len()?);
        if len > limits::VALUE_MAX as u64 {
            return self.fail(format!("a string has {len} bytes, which is longer than any value"));
        }
        let packed = self.read_bytes(packed_len)?;
        decompress(&packed, len as usize).or_else(|what| self.fail(format!("a compressed string is damaged: {what}")))
    }
}

/// Returns the number of these bytes, most significant first.
fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Decompresses LZF: runs of literal bytes, and copies of earlier output.
///
/// ```text
/// 000LLLLL  bytes ..                      L + 1 literal bytes
/// LLLooooo  oooooooo                      copy of L + 2 bytes from o + 1 bytes back, L of 1 to 6
/// 111ooooo  LLLLLLLL  oooooooo            copy of L + 9 bytes
/// ```
///
/// # Errors
/// The fault. Memory grows with the output, at most `len` bytes.
pub(super) fn decompress(packed: &[u8], len: usize) -> Result<Vec<u8>, &'static str> {
    const ENDS_TOO_EARLY: &str = "the data is truncated";
    let mut out: Vec<u8> = Vec::new();
    let mut rest = packed;
    let next = |rest: &mut &[u8]| -> Result<usize, &'static str> {
        let (first, after) = rest.split_first().ok_or(ENDS_TOO_EARLY)?;
        *rest = after;
        Ok(usize::from(*first))
    };
    while !rest.is_empty() {
        let control = next(&mut rest)?;
        let count = if control < 32 {
            let (literal, after) = rest.split_at_checked(control + 1).ok_or(ENDS_TOO_EARLY)?;
            out.extend_from_slice(literal);
            rest = after;
            0
        } else {
            let long = if control >> 5 == 7 { next(&mut rest)? } else { 0 };
            (control >> 5) + long + 2
        };
        if out.len() + count > len {
            return Err("the data is longer than its length");
        }
        if count > 0 {
            let distance = (control & 0x1f) << 8 | next(&mut rest)?;
            let from = out.len().checked_sub(distance + 1).ok_or("a copy begins before the data")?;
            // The copy may read its own output.
            (from..from + count).for_each(|at| out.push(out[at]));
        }
    }
    if out.len() == len { Ok(out) } else { Err("the data is shorter than its length") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_copies_are_decompressed() {
        assert_eq!(decompress(&[2, b'a', b'b', b'c'], 3).as_deref(), Ok(&b"abc"[..]));
        assert_eq!(decompress(&[0, b'a', 0xe0, 1, 0], 11).as_deref(), Ok(&b"aaaaaaaaaaa"[..]));
        assert_eq!(decompress(&[1, b'a', b'b', 0x20, 1], 5).as_deref(), Ok(&b"ababa"[..]));
    }

    #[test]
    fn damage_is_refused() {
        for (packed, len) in [
            (&[2, b'a'][..], 3),
            (&[0x20], 3),
            (&[0x20, 0], 3),
            (&[0, b'a', 0x20, 1], 4),
            (&[0, b'a'], 2),
            (&[0, b'a'], 0),
        ] {
            assert!(decompress(packed, len).is_err(), "{packed:?}");
        }
    }
}

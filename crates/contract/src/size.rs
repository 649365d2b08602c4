//! Sizes as text: `8G`, `512M`, `64K`, `4096`.

/// The units, largest first: each is a power of 1024.
const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Parses a size in bytes: digits, then nothing or one of K, M, G, T (powers of 1024, either case),
/// which `B` or `iB` may follow.
///
/// # Errors
/// If `text` is anything else or does not fit 64 bits. The error describes the accepted texts.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let refuse = || {
        format!(
            "{text:?} is not a size: give a number of bytes, or a number with K, M, G or T (powers of 1024), such as \
             512M"
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refuse())?;
    let mut letters = unit.chars();
    let shift = match letters.next().map(|letter| letter.to_ascii_uppercase()) {
        None => return Ok(number),
        Some('B') if unit.len() == 1 => return Ok(number),
        Some(letter) => UNITS.iter().find(|(name, _)| *name == letter).ok_or_else(refuse)?.1,
    };
    if !matches!(letters.as_str(), "" | "B" | "b" | "iB") {
        return Err(refuse());
    }
    number.checked_mul(1 << shift).ok_or_else(refuse)
}

/// Formats `bytes` in the largest unit of [`parse_size`] that leaves at least 1, to one decimal:
/// `1.5G`, `640`.
pub fn format_size(bytes: u64) -> String {
    for (name, shift) in UNITS {
        let unit = 1u64 << shift;
        if bytes >= unit {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            return match tenths % 10 {
                0 => format!("{}{name}", tenths / 10),
                rest => format!("{}.{rest}{name}", tenths / 10),
            };
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("64K", 64 << 10),
            ("512M", 512 << 20),
            ("8G", 8 << 30),
            ("1TiB", 1 << 40),
            ("3gb", 3 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "G", "-1", "1.5G", "8X", "8 G", "8Gx", "8GiBs", "17179869184T", "99999999999999999999", "é"] {
            assert!(parse_size(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit() {
        for (bytes, text) in
            [(0, "0"), (1023, "1023"), (1024, "1K"), (1536, "1.5K"), (8 << 30, "8G"), (u64::MAX, "16777215.9T")]
        {
            assert_eq!(format_size(bytes), text);
        }
    }
}

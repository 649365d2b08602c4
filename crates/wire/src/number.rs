//! Decimal numbers, read as strictly as Redis reads them.

/// Most bytes of a decimal `i64`: 19 digits and a sign.
pub const DECIMAL_BYTES_MAX: usize = 20;

/// Reads a decimal `i64`.
///
/// Redis accepts exactly one text for each number: no `+`, no leading zero, no space, no `-0`.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if text.len() <= DECIMAL_BYTES_MAX => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if is_negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Writes the decimal text of `number` to the end of `buffer` and returns it.
pub fn format_integer(number: i64, buffer: &mut [u8; DECIMAL_BYTES_MAX]) -> &[u8] {
    let mut magnitude = number.unsigned_abs();
    let mut start = buffer.len();
    loop {
        start -= 1;
        // A remainder of 10 fits one byte.
        buffer[start] = b'0' + (magnitude % 10) as u8;
        magnitude /= 10;
        if magnitude == 0 {
            break;
        }
    }
    if number < 0 {
        start -= 1;
        buffer[start] = b'-';
    }
    &buffer[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_names_each_number() {
        for number in [0, 1, -1, 9, 10, -10, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            let mut buffer = [0; DECIMAL_BYTES_MAX];
            let text = format_integer(number, &mut buffer);
            assert_eq!(text, number.to_string().as_bytes());
            assert_eq!(parse_integer(text), Some(number));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let texts =
            ["", "-", "+1", "01", "-0", "-01", " 1", "1 ", "1a", "0x1", "00", "--1", "1.0", "9223372036854775808"];
        let longer = ["-9223372036854775809", "99999999999999999999", "-99999999999999999999", "123456789012345678901"];
        for text in texts.iter().chain(&longer) {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
        }
    }
}

//! The arithmetic of `INCRBYFLOAT`.
//!
//! Redis adds numbers of 64 bits of precision and writes 17 digits after the point, without zeros
//! at the end. A sum of decimal fractions is computed exactly here, which writes the same text.
//! Numbers that are too large for that are added as `f64`.

/// Digits after the point.
const FRACTION_DIGIT_COUNT: u32 = 17;

/// 1 in the unit of the exact sum.
const SCALE_FACTOR: i128 = 10_i128.pow(FRACTION_DIGIT_COUNT);

/// A sum that cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SumError {
    /// A text is no number.
    NotANumber,
    /// The sum is infinite.
    Infinite,
}

/// Returns the text of the sum of two decimal numbers.
pub(crate) fn add(first: &[u8], second: &[u8]) -> Result<String, SumError> {
    let first_float = parse_float(first).ok_or(SumError::NotANumber)?;
    let second_float = parse_float(second).ok_or(SumError::NotANumber)?;
    if let (Some(first), Some(second)) = (parse_exact(first), parse_exact(second))
        && let Some(sum) = first.checked_add(second)
    {
        return Ok(format_exact(sum));
    }
    let sum = first_float + second_float;
    if !sum.is_finite() {
        return Err(SumError::Infinite);
    }
    let text = format!("{sum:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    // A sum that is too small for 17 digits is written as 0, without a sign.
    Ok(if text == "-0" { "0" } else { text }.to_string())
}

/// Reads a finite or infinite number. No spaces are allowed.
pub(crate) fn parse_float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: f64 = text.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Reads a decimal number with an exponent, if it has at most 17 digits after the point.
fn parse_exact(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (is_negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut number: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number = number.checked_mul(10)?.checked_add(i128::from(digit))?;
    }
    let shift = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?.checked_add(FRACTION_DIGIT_COUNT as i32)?;
    let power = 10_i128.checked_pow(shift.unsigned_abs())?;
    let scaled = if shift >= 0 { number.checked_mul(power)? } else { exact_quotient(number, power)? };
    Some(if is_negative { -scaled } else { scaled })
}

fn exact_quotient(number: i128, divisor: i128) -> Option<i128> {
    (number % divisor == 0).then_some(number / divisor)
}

fn format_exact(number: i128) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let (whole, fraction) =
        (number.unsigned_abs() / SCALE_FACTOR as u128, number.unsigned_abs() % SCALE_FACTOR as u128);
    if fraction == 0 {
        return format!("{sign}{whole}");
    }
    let fraction = format!("{fraction:017}");
    format!("{sign}{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_the_texts_of_redis() {
        let cases = [
            ("10.50", "0.1", "10.6"),
            ("0.1", "0.2", "0.3"),
            ("5.0e3", "2.0e2", "5200"),
            ("-1", "1", "0"),
            ("-0.5", "0.25", "-0.25"),
            ("3", "-5", "-2"),
            ("1e20", "1", "100000000000000000001"),
            ("0", "1e-17", "0.00000000000000001"),
        ];
        for (first, second, sum) in cases {
            assert_eq!(add(first.as_bytes(), second.as_bytes()).as_deref(), Ok(sum), "{first} {second}");
        }
    }

    #[test]
    fn texts_that_are_no_numbers_are_refused() {
        for text in ["", " 1", "1 ", "abc", "nan", "1e", "--1", "0x10"] {
            assert_eq!(add(text.as_bytes(), b"1"), Err(SumError::NotANumber), "{text}");
        }
        assert_eq!(add(b"inf", b"1"), Err(SumError::Infinite));
        assert_eq!(add(b"1e308", b"1e308").map(|_| ()), Err(SumError::Infinite));
    }
}

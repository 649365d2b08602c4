//! Numbers of plots as text.

/// The unit of a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A count, or a count per second.
    Count,
    /// Nanoseconds.
    Nanos,
    /// Bytes, or a multiple of a number of bytes.
    Plain,
}

impl Unit {
    /// Formats a number with up to three digits.
    pub(crate) fn text(self, number: f64) -> String {
        match self {
            Self::Nanos if number < 1e3 => format!("{number:.0} ns"),
            Self::Nanos if number < 1e6 => format!("{} us", three_digits(number / 1e3)),
            Self::Nanos if number < 1e9 => format!("{} ms", three_digits(number / 1e6)),
            Self::Nanos => format!("{} s", three_digits(number / 1e9)),
            Self::Count if number >= 1e9 => format!("{} G", three_digits(number / 1e9)),
            Self::Count if number >= 1e6 => format!("{} M", three_digits(number / 1e6)),
            Self::Count if number >= 1e4 => format!("{} k", three_digits(number / 1e3)),
            Self::Count | Self::Plain => three_digits(number),
        }
    }
}

/// Formats a number with three digits, without zeros at its end.
fn three_digits(number: f64) -> String {
    let digits = match number.abs() {
        number if number >= 100.0 => 0,
        number if number >= 10.0 => 1,
        number if number >= 1.0 || number == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_short() {
        let texts = [0.0, 7.5, 420.0, 12_345.0, 2e6, 1.5e10].map(|number| Unit::Count.text(number));
        assert_eq!(texts, ["0", "7.5", "420", "12.3 k", "2 M", "15 G"]);
        let texts = [170.0, 12_345.0, 5e6, 2e9].map(|number| Unit::Nanos.text(number));
        assert_eq!(texts, ["170 ns", "12.3 us", "5 ms", "2 s"]);
        assert_eq!([0.25, 1234.0].map(|number| Unit::Plain.text(number)), ["0.25", "1234"]);
    }
}

//! The sample data set: every named character of Unicode, as keys and values of mixed length.
//!
//! The key is the character's name. The value has its code point, the character itself, its bytes
//! in UTF-8, its number, its class and, if they exist, its other cases. Names come from the Unicode
//! character database, in the crate `unicode_names2`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::args::SampleArgs;
use crate::failure::{Outcome, file_failure};
use crate::format::Format;
use crate::out::{Out, thousands};

/// Writes the data set.
pub fn run(args: &SampleArgs) -> Outcome {
    let format = Format::of(args.format, &args.file);
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut out = Out::new();
    if args.file == Path::new("-") {
        out.with(|out| write(out, format, limit).map(|_| ()))?;
        return out.flush();
    }
    let failed = file_failure("writing", &args.file);
    let mut file = BufWriter::with_capacity(256 << 10, File::create(&args.file).map_err(&failed)?);
    let records =
        write(&mut file, format, limit).and_then(|records| file.flush().map(|()| records)).map_err(&failed)?;
    out.line(format!("wrote {} records to {}", thousands(records), args.file.display()))?;
    out.flush()
}

/// Writes at most `limit` records. Returns their number.
fn write(out: &mut dyn Write, format: Format, limit: usize) -> io::Result<u64> {
    let mut records = 0;
    for (key, value) in records_of_unicode().take(limit) {
        format.write(out, key.as_bytes(), value.as_bytes(), None)?;
        records += 1;
    }
    Ok(records)
}

/// Returns names and their values, in the order of code points.
fn records_of_unicode() -> impl Iterator<Item = (String, String)> {
    (char::MIN..=char::MAX).filter_map(|c| unicode_names2::name(c).map(|name| (name.to_string(), describe(c))))
}

/// Returns the value of a character.
fn describe(c: char) -> String {
    let mut utf8 = [0; 4];
    let bytes: Vec<_> = c.encode_utf8(&mut utf8).bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut text =
        format!("U+{:04X} {c} utf-8 {} decimal {} {}", u32::from(c), bytes.join(" "), u32::from(c), class(c));
    let (upper, lower) = (c.to_uppercase(), c.to_lowercase());
    for (what, other) in [("uppercase", upper.to_string()), ("lowercase", lower.to_string())] {
        if !other.chars().eq([c]) {
            let _ = write!(text, ", {what} {other}");
            let mut chars = other.chars();
            if let (Some(name), None) = (chars.next().and_then(unicode_names2::name), chars.next()) {
                let _ = write!(text, " ({name})");
            }
        }
    }
    text
}

/// Returns the class of a character, in one word or two.
fn class(c: char) -> &'static str {
    match c {
        _ if c.is_uppercase() => "uppercase letter",
        _ if c.is_lowercase() => "lowercase letter",
        _ if c.is_alphabetic() => "letter",
        _ if c.is_numeric() => "number",
        _ if c.is_whitespace() => "space",
        _ if c.is_ascii_punctuation() => "ascii punctuation",
        _ => "mark or symbol",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn there_are_at_least_100_000_records_and_no_key_twice() {
        let keys: Vec<_> = records_of_unicode().map(|(key, _)| key).collect();
        assert!(keys.len() >= 100_000, "{}", keys.len());
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    }

    #[test]
    fn keys_and_values_are_of_mixed_length() {
        let lengths = |of: fn((String, String)) -> usize| records_of_unicode().map(of).collect::<HashSet<_>>().len();
        assert!(lengths(|(key, _)| key.len()) > 50);
        assert!(lengths(|(_, value)| value.len()) > 50);
    }

    #[test]
    fn a_letter_is_described_with_its_other_case() {
        assert_eq!(
            describe('α'),
            "U+03B1 α utf-8 ce b1 decimal 945 lowercase letter, uppercase Α (GREEK CAPITAL LETTER ALPHA)"
        );
    }
}

//! The target of the formats of `import`. The program's own tests include it too, so it refers to
//! the program's modules by their names there.

use crate::format::{Format, Pair};

/// Parses lines in the format that the first byte selects. A parsed line is written and parsed
/// again unchanged.
pub fn lines(data: &[u8]) {
    let Some((format, lines)) = data.split_first() else { return };
    let format = if format & 1 == 0 { Format::Jsonl } else { Format::Tsv };
    for line in lines.split(|byte| *byte == b'\n') {
        let Ok(record) = format.parse(line) else { continue };
        let mut out = Vec::new();
        let pair = Pair { key: &record.key, value: &record.value, expiry: record.expiry };
        format.write_in(&mut out, record.keyspace.as_deref(), pair).expect("writes to memory");
        assert_eq!(out.pop(), Some(b'\n'));
        assert!(!out.contains(&b'\n') && std::str::from_utf8(&out).is_ok(), "one line of text: {out:?}");
        assert_eq!(format.parse(&out), Ok(record));
    }
}

//! The formats of records in files, and their common parts.

pub mod jsonl;
pub mod tsv;

use std::io::{self, Write};
use std::path::Path;

use lodestore::store::limits;
use lodestore::{Error, Expiry};

/// A format of `import`, `export` and `sample`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object per line.
    Jsonl,
    /// Tab-separated fields.
    Tsv,
}

/// A record of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The expiry, if any.
    pub expiry: Option<Expiry>,
    /// The name of its keyspace; `None` for the keyspace of the command.
    pub keyspace: Option<String>,
}

/// Bytes of a line next to the key and the value: names, quotes, an expiry.
const LINE_OVERHEAD_BYTES_MAX: usize = 1024;

/// A key with its value and expiry, to be written.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The expiry, if any.
    pub expiry: Option<Expiry>,
}

impl Record {
    /// Checks the lengths of the key and the value.
    ///
    /// # Errors
    /// The limit that is exceeded.
    pub fn check(&self) -> Result<(), String> {
        let checked = limits::check_key(&self.key).and_then(|()| limits::check_value(&self.value));
        let named = checked.and_then(|()| match self.keyspace.as_ref().map_or(1, String::len) {
            1..=255 => Ok(()),
            len => Err(Error::KeyspaceName { len }),
        });
        named.map_err(|error| error.to_string())
    }
}

impl Format {
    /// Returns the requested format, or the one of the file's name, or jsonl.
    pub fn of(requested: Option<Self>, file: &Path) -> Self {
        let extension = file.extension().and_then(|extension| extension.to_str());
        requested.unwrap_or(match extension {
            Some("tsv" | "txt") => Self::Tsv,
            _ => Self::Jsonl,
        })
    }

    /// Writes one record as a line.
    pub fn write(self, out: &mut dyn Write, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> io::Result<()> {
        match self {
            Self::Jsonl => jsonl::write(out, None, key, Some(value), expiry),
            Self::Tsv => tsv::write(out, key, value, expiry),
        }
    }

    /// Writes one record as a line, with the name of its keyspace.
    ///
    /// # Errors
    /// Errors of the output; `InvalidInput` if the format has no field for the name.
    pub fn write_in(self, out: &mut dyn Write, keyspace: Option<&str>, record: Pair<'_>) -> io::Result<()> {
        let Pair { key, value, expiry } = record;
        match (self, keyspace) {
            (_, None) => self.write(out, key, value, expiry),
            (Self::Jsonl, _) => jsonl::write(out, keyspace, key, Some(value), expiry),
            (Self::Tsv, _) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "the format tsv has no keyspaces: use jsonl"))
            }
        }
    }

    /// Reads one line, without its newline. Returns the fault of an invalid line.
    pub fn parse(self, line: &[u8]) -> Result<Record, String> {
        let record = match self {
            Self::Jsonl => jsonl::parse(line),
            Self::Tsv => tsv::parse(line),
        }?;
        record.check()?;
        Ok(record)
    }

    /// Returns the length of the longest line: the largest record with every byte in its
    /// longest escape sequence.
    pub fn line_bytes_max(self) -> usize {
        // \u0001 and \x01.
        let escape_bytes = match self {
            Self::Jsonl => 6,
            Self::Tsv => 4,
        };
        escape_bytes * (limits::KEY_MAX + limits::VALUE_MAX) + LINE_OVERHEAD_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(format: Format, record: &Record) {
        let mut line = Vec::new();
        let pair = Pair { key: &record.key, value: &record.value, expiry: record.expiry };
        format.write_in(&mut line, record.keyspace.as_deref(), pair).expect("writes to memory");
        assert_eq!(line.pop(), Some(b'\n'));
        assert!(!line.contains(&b'\n') && std::str::from_utf8(&line).is_ok(), "one line of text: {line:?}");
        assert_eq!(format.parse(&line).as_ref(), Ok(record));
    }

    /// Bytes of any kind, most often those that need escapes.
    fn bytes(least: usize) -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![any::<u8>(), prop::sample::select(b"\t\n\r\\x\"\0\x7f\xc3\xa9\xff{}".to_vec())];
        prop::collection::vec(byte, least..40)
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_in_both_formats(key in bytes(1), value in bytes(0), millis in any::<Option<u64>>()) {
            let record = Record { key, value, expiry: millis.map(Expiry::at_millis), keyspace: None };
            round_trip(Format::Jsonl, &record);
            round_trip(Format::Tsv, &record);
            round_trip(Format::Jsonl, &Record { keyspace: Some("größe \" \n".into()), ..record });
        }

        #[test]
        fn any_line_is_read_or_refused_without_a_panic(line in bytes(0)) {
            for format in [Format::Jsonl, Format::Tsv] {
                let _ = format.parse(&line);
            }
        }
    }

    #[test]
    fn text_stays_readable() {
        let mut out = Vec::new();
        Format::Tsv.write(&mut out, "größe".as_bytes(), b"a\tb\\c\x00\xff", None).expect("writes to memory");
        assert_eq!(out, "größe\ta\\tb\\\\c\\x00\\xff\n".as_bytes());
        out.clear();
        Format::Jsonl
            .write(&mut out, "größe".as_bytes(), b"\xff", Some(Expiry::at_millis(7)))
            .expect("writes to memory");
        assert_eq!(out, "{\"key\":\"größe\",\"value_b64\":\"/w==\",\"expires_at_ms\":7}\n".as_bytes());
    }

    #[test]
    fn bad_lines_are_refused_with_their_fault() {
        for (format, line, says) in [
            (Format::Tsv, "key only", "no tab"),
            (Format::Tsv, "", "no tab"),
            (Format::Tsv, "\tvalue", "key has 0 bytes"),
            (Format::Tsv, "k\t\\q", "backslash"),
            (Format::Tsv, "k\t\\", "backslash"),
            (Format::Tsv, "k\t\\x0", "two hexadecimal"),
            (Format::Tsv, "k\t\\xzz", "two hexadecimal"),
            (Format::Tsv, "k\tv\tsoon", "third field"),
            (Format::Tsv, "k\tv\t1\t2", "more than three"),
            (Format::Jsonl, "", "EOF"),
            (Format::Jsonl, "{\"key\":\"k\"", "EOF"),
            (Format::Jsonl, "{\"key\":\"k\"}", "neither \"value\""),
            (Format::Jsonl, "{\"key\":\"\",\"value\":\"\"}", "key has 0 bytes"),
            (Format::Jsonl, "{\"key\":\"k\",\"key_b64\":\"aw==\",\"value\":\"\"}", "not both"),
            (Format::Jsonl, "{\"key\":\"k\",\"value_b64\":\"!\"}", "not base64"),
            (Format::Jsonl, "{\"key\":\"k\",\"value\":\"v\",\"ttl\":1}", "unknown field"),
            (Format::Jsonl, "{\"key\":\"k\",\"value\":\"v\",\"keyspace\":\"\"}", "keyspace name has 0 bytes"),
            (Format::Jsonl, "{\"key\":1,\"value\":\"v\"}", "invalid type"),
        ] {
            let what = format.parse(line.as_bytes()).expect_err(line);
            assert!(what.contains(says), "{line:?}: {what}");
        }
    }

    #[test]
    fn a_carriage_return_before_the_newline_is_no_data() {
        let record = Format::Tsv.parse(b"k\tv\r").expect("a good line");
        assert_eq!(record, Record { key: b"k".to_vec(), value: b"v".to_vec(), expiry: None, keyspace: None });
    }

    #[test]
    fn the_name_of_a_file_selects_its_format() {
        for (file, format) in
            [("a.tsv", Format::Tsv), ("a.txt", Format::Tsv), ("a.jsonl", Format::Jsonl), ("-", Format::Jsonl)]
        {
            assert_eq!(Format::of(None, Path::new(file)), format);
        }
        assert_eq!(Format::of(Some(Format::Tsv), Path::new("a.jsonl")), Format::Tsv);
    }
}

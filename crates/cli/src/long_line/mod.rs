//! A line of an import that is decoded piece by piece, without keeping its text.
//!
//! A line may be six times as long as its record of 1 GiB. Only the decoded key and value are kept,
//! each up to its limit, in memory whose allocation can fail with an error of the line.
//! [`Format::parse`] reads short lines; both accept the same lines (a test compares them).

mod bounded;
mod json;
mod tsv;

use json::Json;
use tsv::Tsv;

use crate::format::{Format, Record};

/// The part of a long line read so far.
#[derive(Debug)]
pub struct LongLine {
    decoder: Decoder,
    bytes_read: usize,
    bytes_max: usize,
}

#[derive(Debug)]
enum Decoder {
    Jsonl(Box<Json>),
    Tsv(Box<Tsv>),
}

impl LongLine {
    pub fn new(format: Format) -> Self {
        let decoder = match format {
            Format::Jsonl => Decoder::Jsonl(Box::new(Json::new())),
            Format::Tsv => Decoder::Tsv(Box::new(Tsv::new())),
        };
        Self { decoder, bytes_read: 0, bytes_max: format.line_bytes_max() }
    }

    /// Reads more of the line, without its newline.
    ///
    /// # Errors
    /// The line's fault.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.bytes_read = self.bytes_read.saturating_add(bytes.len());
        if self.bytes_read > self.bytes_max {
            return Err("the line is longer than any record: a newline may be missing".into());
        }
        match &mut self.decoder {
            Decoder::Jsonl(json) => json.feed(bytes),
            Decoder::Tsv(tsv) => tsv.feed(bytes),
        }
    }

    /// Returns the record at the end of the line.
    ///
    /// # Errors
    /// The line's fault.
    pub fn finish(self) -> Result<Record, String> {
        let record = match self.decoder {
            Decoder::Jsonl(json) => json.finish(),
            Decoder::Tsv(tsv) => tsv.finish(),
        }?;
        record.check()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use lodestore::Expiry;
    use lodestore::store::limits;
    use proptest::prelude::*;

    use super::*;

    /// Reads a line in pieces of these lengths.
    fn in_pieces(format: Format, line: &[u8], cuts: &[usize]) -> Result<Record, String> {
        let (mut long, mut rest) = (LongLine::new(format), line);
        for cut in cuts {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            long.feed(piece)?;
            rest = after;
        }
        long.feed(rest)?;
        long.finish()
    }

    /// Pieces of lines, valid and invalid.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        const WORDS: [&str; 42] = [
            "{",
            "}",
            "\"key\":",
            "\"key_b64\":",
            "\"value\":",
            "\"value_b64\":",
            "\"expires_at_ms\":",
            "\"keyspace\":",
            "\"keyspace\":\"users\",",
            ",",
            " ",
            "\t",
            "\"k\"",
            "\"aw==\"",
            "\"aw==aw==\"",
            "\"a\"",
            "\"",
            "null",
            "7",
            "-1",
            "01",
            "0",
            "18446744073709551615",
            "18446744073709551616",
            "1.5",
            "1e3",
            "\\",
            "\\u00e9",
            "\"\\ud83d\\ude00\"",
            "\"\\ud83d\"",
            "\"\\udc00\"",
            "\"\\u006bey\":",
            "\\n",
            "\\x41",
            "\\xg",
            "\r",
            "\"\u{7f}é\"",
            "\"\\/\\b\\f\"",
            "\"ttl\":",
            "\u{1}",
            "k",
            "v",
        ];
        let word = prop::sample::select(WORDS.to_vec()).prop_map(|word| word.as_bytes().to_vec());
        prop_oneof![8 => word, 1 => prop::collection::vec(any::<u8>(), 0..4)]
    }

    /// Whole lines, mostly valid.
    fn line() -> impl Strategy<Value = Vec<u8>> {
        const STARTS: [&str; 6] = [
            "{\"key\":\"k\",\"value\":",
            "{\"value_b64\":\"/w==\" , \"key_b64\":",
            "{\"key\":\"k\",\"value\":\"v\",\"expires_at_ms\":",
            "{\"key\":null,\"key_b64\":\"aw==\",\"value\":\"",
            "k\t",
            "k\\x00\tv\t",
        ];
        let start = prop::sample::select(STARTS.to_vec()).prop_map(|start| start.as_bytes().to_vec());
        (prop_oneof![start, Just(Vec::new())], prop::collection::vec(piece(), 0..10)).prop_map(|(start, pieces)| {
            let mut line = [start, pieces.concat()].concat();
            line.retain(|byte| *byte != b'\n');
            line
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]
        #[test]
        fn a_line_read_in_pieces_gives_the_record_of_the_whole_line(
            line in line(),
            cuts in prop::collection::vec(0..6usize, 0..12),
        ) {
            for format in [Format::Jsonl, Format::Tsv] {
                let (whole, pieces) = (format.parse(&line), in_pieces(format, &line, &cuts));
                prop_assert_eq!(whole.as_ref().ok(), pieces.as_ref().ok(), "{:?} {:?} {:?}", format, &whole, &pieces);
            }
        }

        #[test]
        fn any_record_is_read_in_pieces(
            key in prop::collection::vec(any::<u8>(), 1..40),
            value in prop::collection::vec(any::<u8>(), 0..100),
            millis in any::<Option<u64>>(),
            cuts in prop::collection::vec(0..30usize, 0..12),
        ) {
            let record = Record { key, value, expiry: millis.map(Expiry::at_millis), keyspace: None };
            for format in [Format::Jsonl, Format::Tsv] {
                let mut line = Vec::new();
                format.write(&mut line, &record.key, &record.value, record.expiry).expect("writes to memory");
                line.pop();
                prop_assert_eq!(in_pieces(format, &line, &cuts), Ok(record.clone()));
            }
        }
    }

    #[test]
    fn base64_that_is_longer_than_a_chunk_is_decoded_and_checked() {
        let value: Vec<u8> = (0..200_000u32).map(|at| (at * 7) as u8).collect();
        let mut line = Vec::new();
        Format::Jsonl.write(&mut line, b"k", &value, None).expect("writes to memory");
        line.pop();
        assert_eq!(in_pieces(Format::Jsonl, &line, &[10_000, 3, 70_001]).map(|record| record.value), Ok(value));
        line[150_000] = b'!';
        let what = in_pieces(Format::Jsonl, &line, &[5]).expect_err("no base64");
        assert!(what.contains("value_b64 is not base64"), "{what}");
    }

    #[test]
    fn a_key_beyond_its_limit_is_refused_before_its_end() {
        let key = vec![b'k'; limits::KEY_MAX + 1];
        for (format, start) in [(Format::Tsv, ""), (Format::Jsonl, "{\"key\":\"")] {
            let mut long = LongLine::new(format);
            long.feed(start.as_bytes()).and_then(|()| long.feed(&key[1..])).expect("within the limit");
            let what = long.feed(&key[..1]).expect_err("beyond it");
            assert!(what.contains("more than 65536 bytes") && what.contains("newline"), "{what}");
        }
    }
}

//! The fuzz target of the formats of records (`fuzz/`), on bytes of a seeded generator.

use proptest::prelude::*;

#[path = "../../../fuzz/src/lines.rs"]
mod target;

/// Pieces of lines, right and wrong.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: [&[u8]; 21] = [
        b"{\"key\":\"k\",\"value\":\"v\"}",
        b"{\"key_b64\":\"aw==\",\"value\":\"",
        b"\"expires_at_ms\":",
        b"\"keyspace\":\"users\",",
        b"18446744073709551615",
        b"\\u0000",
        b"\\ud800",
        b"key\tvalue",
        b"\t",
        b"\n",
        b"\r\n",
        b"\\x0",
        b"\\x7f",
        b"\\\\",
        b"\\",
        b"\"",
        b"}",
        b",",
        b"\xff",
        b"\xc3\xa9",
        b"-1",
    ];
    prop_oneof![prop::sample::select(WORDS.to_vec()).prop_map(<[u8]>::to_vec), prop::collection::vec(any::<u8>(), 0..8)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn any_lines_are_read_or_refused_and_stay_as_they_are(format in any::<u8>(), pieces in prop::collection::vec(piece(), 0..12)) {
        let mut data = vec![format];
        data.extend(pieces.concat());
        target::lines(&data);
    }
}

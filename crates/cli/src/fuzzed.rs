//! The fuzz targets of the formats of `import` (`fuzz/`), on bytes of a seeded generator.

use proptest::prelude::*;

#[path = "../../../fuzz/src/lmdb.rs"]
mod lmdb_target;
#[path = "../../../fuzz/src/rdb.rs"]
mod rdb_target;
#[path = "../../../fuzz/src/lines.rs"]
mod target;

/// Pieces of lines, valid and invalid.
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

/// Pieces of snapshots of Redis: opcodes, types, lengths and strings.
fn rdb_piece() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&[u8]; 16] = [
        b"\x00\x01k\x01v",
        b"\x04\x01h\x02\x01a\x01b",
        b"\x10\x01h\x0d\x0d\0\0\0\x02\0\x81a\x02\x05\x01\xff",
        b"\x0d\x01h",
        b"\x18\x01h",
        b"\x19\x01h",
        b"\x15\x01s",
        b"\xfe\x02",
        b"\xfc\0\0\0\0\0\0\0\x01",
        b"\xc3\x05\x0b\0a\xe0\x01\0",
        b"\xc3\x80\0\xff\xff\xff\x80\x3f\xff\xff\xff",
        b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\xf7\x01\x02\x01\x05\x01a\0",
        b"\xc0\x85",
        b"\x09\x01z\x09\x01\x01a\x01\x01x.\xff\xff",
        b"\xff",
    ];
    let piece = prop::sample::select(PIECES.to_vec()).prop_map(<[u8]>::to_vec);
    prop_oneof![2 => piece, 1 => prop::collection::vec(any::<u8>(), 0..8)]
}

/// Pages of LMDB after their numbers: flags, number of nodes, offsets of nodes, and nodes.
fn lmdb_page() -> impl Strategy<Value = Vec<u8>> {
    let node = (0..6u16, prop::sample::select(vec![0u16, 0, 1, 2, 4]), 0..4u16, any::<u16>());
    (prop::sample::select(vec![1u16, 2, 2, 4]), prop::collection::vec(node, 0..6)).prop_map(|(kind, nodes)| {
        let mut page = vec![0; 256 - 8];
        page[2..4].copy_from_slice(&kind.to_le_bytes());
        page[4..6].copy_from_slice(&(16 + 2 * nodes.len() as u16).to_le_bytes());
        for (at, (low, flags, key_len, data)) in nodes.into_iter().enumerate() {
            let offset = 100 + 24 * at;
            page[8 + 2 * at..10 + 2 * at].copy_from_slice(&(offset as u16).to_le_bytes());
            let node = [low, 0, flags, key_len, data % 6, 0].map(u16::to_le_bytes).concat();
            page[offset - 8..offset - 8 + node.len()].copy_from_slice(&node);
        }
        page
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn any_lines_are_read_or_refused_and_stay_as_they_are(format in any::<u8>(), pieces in prop::collection::vec(piece(), 0..12)) {
        let mut data = vec![format];
        data.extend(pieces.concat());
        target::lines(&data);
    }
    #[test]
    fn any_snapshot_of_redis_is_read_or_refused(pieces in prop::collection::vec(rdb_piece(), 0..8)) {
        rdb_target::rdb(&pieces.concat());
    }

    #[test]
    fn any_data_file_of_lmdb_is_read_or_refused(
        depth in 0..5u8,
        root in 0..6u8,
        pages in prop::collection::vec(lmdb_page(), 0..5),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let mut data = [vec![depth, root], pages.concat()].concat();
        for (at, byte) in damage {
            let at = at.index(data.len());
            data[at] = byte;
        }
        lmdb_target::lmdb(&data);
    }
}

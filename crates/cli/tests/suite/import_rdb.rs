//! `import` of Redis snapshots. The files are written here, from the description of the format.

use crate::common::{Sandbox, text};

/// CRC-64 of Redis (Jones), bit by bit.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |mut crc: u64, byte| {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x95ac_9329_ac4b_c9b5 } else { 0 };
        }
        crc
    })
}

/// A snapshot under construction.
struct Rdb(Vec<u8>);

impl Rdb {
    fn new(version: u32) -> Self {
        Self(format!("REDIS{version:04}").into_bytes())
            .raw(&[0xfa])
            .string(b"redis-ver")
            .string(b"7.4.0")
            .raw(&[0xfe, 0, 0xfb, 9, 1])
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn len(self, len: usize) -> Self {
        match len {
            0..64 => self.raw(&[len as u8]),
            64..16384 => self.raw(&[0x40 | (len >> 8) as u8, len as u8]),
            _ => self.raw(&[0x80]).raw(&[(len >> 24) as u8, (len >> 16) as u8, (len >> 8) as u8, len as u8]),
        }
    }

    fn string(self, bytes: &[u8]) -> Self {
        self.len(bytes.len()).raw(bytes)
    }

    fn key(self, kind: u8, key: &[u8]) -> Self {
        self.raw(&[kind]).string(key)
    }

    fn expiry_ms(self, millis: u64) -> Self {
        self.raw(&[0xfc]).raw(&millis.to_le_bytes())
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(0xff);
        let sum = crc64(&self.0);
        self.raw(&sum.to_le_bytes()).0
    }
}

/// An item of a listpack.
fn listpack_item(item: &[u8]) -> Vec<u8> {
    let mut bytes = match item.len() {
        0..64 => vec![0x80 | item.len() as u8],
        64..4096 => vec![0xe0 | (item.len() >> 8) as u8, item.len() as u8],
        len => [&[0xf0][..], &(len as u32).to_le_bytes()].concat(),
    };
    bytes.extend_from_slice(item);
    with_back_len(bytes)
}

fn with_back_len(mut bytes: Vec<u8>) -> Vec<u8> {
    let len = bytes.len();
    match len {
        ..128 => bytes.push(len as u8),
        _ => bytes.extend([(len >> 7) as u8, 0x80 | (len & 0x7f) as u8]),
    }
    bytes
}

fn listpack(items: &[Vec<u8>]) -> Vec<u8> {
    let body = items.concat();
    let total = (body.len() + 7) as u32;
    [&total.to_le_bytes()[..], &(items.len() as u16).to_le_bytes(), &body, &[0xff]].concat()
}

fn ziplist(items: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut before = 0;
    for item in items {
        let begin = body.len();
        body.push(before as u8);
        body.extend_from_slice(item);
        before = body.len() - begin;
    }
    let total = (body.len() + 11) as u32;
    let tail = 10 + body.len() - before;
    let head = [total.to_le_bytes(), (tail as u32).to_le_bytes()].concat();
    [&head[..], &(items.len() as u16).to_le_bytes(), &body, &[0xff]].concat()
}

fn imported(sandbox: &Sandbox, file: &str, more: &[&str]) -> (String, String) {
    let args = [&["import", "store", file][..], more].concat();
    let output = sandbox.run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn strings_of_all_encodings_and_databases_are_imported() {
    for version in 9..=12 {
        let sandbox = Sandbox::with_store();
        let long = vec![b'x'; 20_000];
        let rdb = Rdb::new(version)
            .key(0, b"raw")
            .string(b"value")
            .key(0, b"int8")
            .raw(&[0xc0, 0x85])
            .key(0, b"int16")
            .raw(&[0xc1, 0x39, 0x30])
            .key(0, b"int32")
            .raw(&[0xc2])
            .raw(&(-123_456i32).to_le_bytes())
            .key(0, b"lzf")
            .raw(&[0xc3, 5, 11, 0, b'a', 0xe0, 1, 0])
            .raw(&[0xf8, 7])
            .key(0, b"idle")
            .string(b"")
            .raw(&[0xf9, 9])
            .key(0, b"long")
            .string(&long)
            .expiry_ms(4_102_444_800_000)
            .key(0, b"until 2100")
            .string(b"v")
            .raw(&[0xfd])
            .raw(&4_000_000_000u32.to_le_bytes())
            .key(0, b"seconds")
            .string(b"v")
            .expiry_ms(1000)
            .key(0, b"expired")
            .string(b"v")
            .raw(&[0xfe, 3])
            .key(0, b"raw")
            .string(b"of database 3");
        sandbox.write("dump", rdb.end());
        let (printed, notes) = imported(&sandbox, "dump", &[]);
        assert!(printed.starts_with("imported 11 records"), "{printed}");
        assert_eq!(notes, "");
        let exported = sandbox.ok(&["export", "store", "--format", "tsv"]);
        let expected = format!(
            "idle\t\nint16\t12345\nint32\t-123456\nint8\t-123\nlong\t{}\nlzf\taaaaaaaaaaa\nraw\tvalue\n\
             seconds\tv\t4000000000000\nuntil 2100\tv\t4102444800000\n",
            text(&long)
        );
        assert_eq!(exported, expected, "version {version}");
        assert_eq!(sandbox.ok(&["scan", "store", "--keyspace", "db3"]), "raw\tof database 3\n");
    }
}

/// A hash as a listpack, with strings and numbers of all lengths.
fn hash_listpack(long: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| with_back_len(bytes.to_vec());
    listpack(&[
        listpack_item(b"name"),
        listpack_item(b"Ada"),
        listpack_item(b"u7"),
        number(&[100]),
        listpack_item(b"i13"),
        number(&[0xdf, 0xff]),
        listpack_item(b"i16"),
        number(&[0xf1, 0x00, 0x80]),
        listpack_item(b"i24"),
        number(&[0xf2, 0x01, 0x00, 0x80]),
        listpack_item(b"i32"),
        number(&[0xf3, 1, 0, 0, 0]),
        listpack_item(b"i64"),
        number(&[0xf4, 0, 0, 0, 0, 0, 0, 0, 0x80]),
        listpack_item(b"long"),
        listpack_item(long),
    ])
}

/// A hash as a ziplist, with strings and numbers of all lengths.
fn hash_ziplist() -> Vec<u8> {
    ziplist(&[
        b"\x01a",
        b"\x40\x02bc",
        b"\x01b",
        b"\xc0\xff\xff",
        b"\x01c",
        b"\xd0\x02\0\0\0",
        b"\x01d",
        b"\xf0\xfe\xff\xff",
        b"\x01e",
        b"\xfe\x80",
        b"\x01f",
        b"\xf1",
        b"\x01g",
        b"\xfd",
        b"\x01h",
        b"\x80\0\0\0\x01z",
    ])
}

#[test]
fn hashes_of_all_encodings_become_a_record_for_each_field() {
    let sandbox = Sandbox::with_store();
    let number = |bytes: &[u8]| with_back_len(bytes.to_vec());
    let long = vec![b'y'; 300];
    let (packed, zip) = (hash_listpack(&long), hash_ziplist());
    let far = 4_102_444_800_000u64;
    let rdb = Rdb::new(12)
        .expiry_ms(far)
        .key(4, b"plain")
        .len(2)
        .string(b"a")
        .string(b"1")
        .string(b"b")
        .raw(&[0xc0, 2])
        .key(16, b"lp")
        .string(&packed)
        .key(13, b"zl")
        .string(&zip)
        .key(9, b"zm")
        .string(b"\x02\x01a\x02\x01xy.\x01b\x00\x00\xff")
        .key(24, b"meta")
        .raw(&far.to_le_bytes())
        .len(3)
        .len(0)
        .string(b"a")
        .string(b"1")
        .len(1)
        .string(b"b")
        .string(b"2")
        .len(6)
        .string(b"c")
        .string(b"3")
        .key(25, b"ex")
        .raw(&far.to_le_bytes())
        .string(&listpack(&[
            listpack_item(b"a"),
            listpack_item(b"1"),
            number(&[0]),
            listpack_item(b"b"),
            listpack_item(b"2"),
            number(&[&[0xf4][..], &(far + 7).to_le_bytes()].concat()),
        ]));
    sandbox.write("dump.rdb", rdb.end());
    imported(&sandbox, "dump.rdb", &["--hash-separator", "/", "--keyspace", "redis"]);
    let exported = sandbox.ok(&["export", "store", "--format", "tsv", "--keyspace", "redis"]);
    let expected = format!(
        "ex/a\t1\nex/b\t2\t4102444800007\n\
         lp/i13\t-1\nlp/i16\t-32768\nlp/i24\t-8388607\nlp/i32\t1\nlp/i64\t-9223372036854775808\nlp/long\t{}\nlp/name\tAda\nlp/u7\t100\n\
         meta/a\t1\nmeta/b\t2\t4102444800000\nmeta/c\t3\t4102444800005\n\
         plain/a\t1\t4102444800000\nplain/b\t2\t4102444800000\n\
         zl/a\tbc\nzl/b\t-1\nzl/c\t2\nzl/d\t-2\nzl/e\t-128\nzl/f\t0\nzl/g\t12\nzl/h\tz\n\
         zm/a\txy\nzm/b\t\n",
        text(&long)
    );
    assert_eq!(exported, expected);
}

/// A snapshot with values of skipped types.
fn with_others() -> Vec<u8> {
    Rdb::new(11)
        .key(0, b"a")
        .string(b"1")
        .key(1, b"list")
        .len(2)
        .string(b"x")
        .raw(&[0xc0, 1])
        .key(18, b"quick")
        .len(1)
        .len(2)
        .string(b"packed")
        .key(2, b"set")
        .len(1)
        .string(b"x")
        .key(11, b"ints")
        .string(b"packed")
        .key(3, b"scores")
        .len(2)
        .string(b"x")
        .raw(b"\x031.5")
        .string(b"y")
        .raw(&[0xfe])
        .key(5, b"zset")
        .len(1)
        .string(b"x")
        .raw(&1.5f64.to_le_bytes())
        .key(7, b"module")
        .raw(&[0x81, 0, 0, 0, 0, 0, 0, 0, 1])
        .len(2)
        .len(9)
        .len(5)
        .string(b"s")
        .len(4)
        .raw(&[0; 8])
        .len(0)
        .key(21, b"stream")
        .len(1)
        .string(&[0; 16])
        .string(b"packed")
        .raw(&[1, 1, 1, 1, 1, 0, 0, 1])
        .len(1)
        .string(b"group")
        .raw(&[1, 1, 1])
        .len(1)
        .raw(&[0; 24])
        .len(1)
        .len(1)
        .string(b"consumer")
        .raw(&[0; 16])
        .len(1)
        .raw(&[0; 16])
        .raw(&[0xf5])
        .string(b"#!lua name=lib")
        .raw(&[0xf7])
        .len(9)
        .len(2)
        .len(1)
        .len(5)
        .string(b"aux")
        .len(0)
        .key(0, b"z")
        .string(b"2")
        .end()
}

#[test]
fn other_types_are_left_out_with_a_note_or_refused() {
    let sandbox = Sandbox::with_store();
    sandbox.write("dump", with_others());
    let refused = ["import", "store", "dump", "--strict"];
    sandbox.fails(&refused, 10, "1 functions, 2 lists, 2 sets, 2 sorted sets, 1 streams, 1 values of modules");
    assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
    let (printed, notes) = imported(&sandbox, "dump", &["--json"]);
    assert!(printed.contains("\"imported\":2,") && printed.contains("\"skipped\":9"), "{printed}");
    assert!(notes.starts_with("lodestore: not imported: 1 functions, 2 lists"), "{notes}");
    assert_eq!(sandbox.ok(&["scan", "store"]), "a\t1\nz\t2\n");
}

#[test]
fn nothing_of_a_damaged_file_is_imported() {
    let sandbox = Sandbox::with_store();
    let whole = Rdb::new(11).key(0, b"a").string(b"one").key(0, b"b").string(b"two").end();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        sandbox.write("dump", damaged);
        let output = sandbox.run(&["import", "store", "dump", "--format", "rdb"]);
        assert_eq!(output.status.code(), Some(10), "byte {at}: {}", text(&output.stderr));
        sandbox.write("dump", &whole[..at]);
        let output = sandbox.run(&["import", "store", "dump", "--format", "rdb"]);
        assert_eq!(output.status.code(), Some(10), "{at} bytes: {}", text(&output.stderr));
    }
    assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
    sandbox.write("dump", [&whole[..], b"x"].concat());
    sandbox.fails(&["import", "store", "dump"], 10, "bytes after its end");
    let unsummed = [&whole[..whole.len() - 8], &[0; 8]].concat();
    sandbox.write("dump", unsummed);
    imported(&sandbox, "dump", &[]);
    assert_eq!(sandbox.ok(&["count", "store"]), "2\n");
}

#[test]
fn records_with_the_same_key_are_refused_and_nothing_is_imported() {
    let sandbox = Sandbox::with_store();
    let hash = |rdb: Rdb, key: &[u8], field: &[u8]| {
        rdb.key(16, key).string(&listpack(&[listpack_item(field), listpack_item(b"v")]))
    };
    sandbox.write("field", hash(Rdb::new(11).key(0, b"user:1").string(b"Ada"), b"user", b"1").end());
    sandbox.write("split", hash(hash(Rdb::new(11), b"a", b"b:c"), b"a:b", b"c").end());
    for file in ["field", "split"] {
        sandbox.fails(&["import", "store", file, "--format", "rdb"], 10, "--hash-separator");
    }
    assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
    imported(&sandbox, "field", &["--format", "rdb", "--hash-separator", "/"]);
    assert_eq!(sandbox.ok(&["scan", "store"]), "user/1\tv\nuser:1\tAda\n");
    let two = Rdb::new(11).key(0, b"k").string(b"0").raw(&[0xfe, 1]).key(0, b"k").string(b"1").end();
    sandbox.write("two", two);
    sandbox.fails(&["import", "store", "two", "--format", "rdb", "--keyspace", "db1"], 10, "--keyspace");
    imported(&sandbox, "two", &["--format", "rdb", "--keyspace", "other"]);
}

#[test]
fn hostile_lengths_are_refused() {
    let sandbox = Sandbox::with_store();
    let huge = [0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    for (rdb, says) in [
        (Rdb::new(11).key(0, b"k").raw(&huge), "longer than any value"),
        (Rdb::new(11).key(0, b"k").raw(&[0x80, 0x30, 0, 0, 0]), "is truncated"),
        (Rdb::new(11).key(4, b"k").raw(&huge), "encoding 63"),
        (Rdb::new(11).key(0, b"k").raw(&[0xc3, 1]).raw(&huge).raw(&[0]), "longer than any value"),
        (Rdb::new(11).key(16, b"k").string(&[7, 0, 0, 0, 9, 0, 0xff, 1]), "the length differs"),
        (Rdb::new(11).key(16, b"k").string(&[12, 0, 0, 0, 9, 0, 0xf0, 255, 255, 255, 255, 0xff]), "is truncated"),
        (Rdb::new(11).key(99, b"k").string(b"v"), "type 99"),
        (Rdb::new(13), "RDB version 13"),
        (Rdb::new(8), "RDB version 8"),
    ] {
        sandbox.write("dump", rdb.end());
        sandbox.fails(&["import", "store", "dump"], 10, says);
    }
    sandbox.fails(&["import", "store", "-", "--format", "rdb"], 2, "standard input");
    sandbox.fails(&["import", "store", "none", "--format", "rdb"], 8, "opening none");
}

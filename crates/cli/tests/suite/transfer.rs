//! `import`, `export` and `sample`.

use crate::common::{Sandbox, failed, text};
use proptest::prelude::*;

fn export(sandbox: &Sandbox, store: &str, format: &str) -> Vec<u8> {
    let output = sandbox.run(&["export", store, "--format", format]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output.stdout
}

/// The lines of a jsonl file with these pairs.
fn jsonl(pairs: &[(Vec<u8>, Vec<u8>)]) -> String {
    let base64 = |bytes: &[u8]| data_encoding::BASE64.encode(bytes);
    pairs.iter().map(|(k, v)| format!("{{\"key_b64\":\"{}\",\"value_b64\":\"{}\"}}\n", base64(k), base64(v))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]
    #[test]
    fn any_bytes_are_exported_and_imported_unchanged(
        pairs in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 1..30), prop::collection::vec(any::<u8>(), 0..300)),
            1..60,
        ),
    ) {
        let sandbox = Sandbox::with_store();
        sandbox.write("in.jsonl", jsonl(&pairs));
        sandbox.ok(&["import", "store", "in.jsonl"]);
        let first = export(&sandbox, "store", "jsonl");
        for format in ["tsv", "jsonl"] {
            let other = format!("of-{format}");
            sandbox.ok(&["create", &other, "--size", "64M"]);
            let input = export(&sandbox, "store", format);
            let output = sandbox.feed(&["import", &other, "-", "--format", format], &input);
            prop_assert_eq!(output.status.code(), Some(0));
            prop_assert_eq!(&export(&sandbox, &other, "jsonl"), &first);
        }
        let (key, value) = pairs.last().expect("at least one");
        let hex = data_encoding::HEXLOWER.encode(key);
        let got = sandbox.ok(&["get", "store", "--hex", &hex]);
        prop_assert_eq!(got.trim_end(), data_encoding::HEXLOWER.encode(value));
    }
}

#[test]
fn export_is_in_the_order_of_keys_and_keeps_expiry() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "b", "2"]);
    sandbox.ok(&["put", "store", "a", "1", "--ttl", "1000"]);
    let lines = text(&export(&sandbox, "store", "tsv"));
    let fields: Vec<Vec<&str>> = lines.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((fields.len(), &fields[0][..2], &fields[1][..]), (2, &["a", "1"][..], &["b", "2"][..]));
    sandbox.write("out.tsv", &lines);
    sandbox.ok(&["create", "other", "--size", "64M"]);
    sandbox.ok(&["import", "other", "out.tsv"]);
    assert_eq!(text(&export(&sandbox, "other", "tsv")), lines);
    let json = text(&export(&sandbox, "other", "jsonl"));
    assert!(
        json.starts_with(&format!("{{\"key\":\"a\",\"value\":\"1\",\"expires_at_ms\":{}}}", fields[0][2])),
        "{json}"
    );
}

#[test]
fn a_bad_line_stops_the_import_and_reports_the_imported_records() {
    let sandbox = Sandbox::with_store();
    sandbox.write("in.tsv", "a\t1\nb\t2\nno tab here\nc\t3\n");
    let wrote = sandbox.fails(&["import", "store", "in.tsv"], 10, "line 3 of in.tsv: the line has no tab");
    assert!(wrote.starts_with("imported 2 records"), "{wrote}");
    assert_eq!(sandbox.ok(&["scan", "store"]), "a\t1\nb\t2\n");
    sandbox.write("in.jsonl", "{\"key\":\"c\",\"value\":\"3\"}\n{\"key\":\"d\"}\n");
    let wrote = sandbox.fails(
        &["import", "store", "in.jsonl", "--json"],
        10,
        "line 2 of in.jsonl: the record has neither \
             \"value\"",
    );
    assert!(wrote.contains("\"imported\":1,\"lines\":2,") && wrote.contains("\"complete\":false"), "{wrote}");
    assert_eq!(sandbox.ok(&["count", "store"]), "3\n");
    // serde accepts an array as the fields in their order.
    sandbox.write("in.jsonl", " [\"k1\",null,\"v1\",null,null]\n");
    sandbox.fails(&["import", "store", "in.jsonl"], 10, "line 1 of in.jsonl: a record must be an object");
    assert_eq!(sandbox.ok(&["count", "store"]), "3\n");
}

#[test]
fn a_last_line_needs_no_newline_and_a_later_line_wins() {
    let sandbox = Sandbox::with_store();
    let output = sandbox.feed(&["import", "store", "-", "--format", "tsv", "--json"], b"k\told\r\nk\tnew");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("\"imported\":2,\"lines\":2,\"bytes\":8,"), "{}", text(&output.stdout));
    assert_eq!(sandbox.ok(&["scan", "store"]), "k\tnew\n");
}

#[test]
fn an_empty_file_is_no_error() {
    let sandbox = Sandbox::with_store();
    sandbox.write("in.tsv", "");
    assert!(sandbox.ok(&["import", "store", "in.tsv", "--acks"]).starts_with("imported 0 records"));
    assert_eq!(export(&sandbox, "store", "jsonl"), b"");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let sandbox = Sandbox::with_store();
    sandbox.fails(&["import", "store", "absent.tsv"], 8, "opening absent.tsv");
    std::fs::create_dir(sandbox.path("dir")).expect("a directory");
    sandbox.fails(&["import", "store", "dir"], 8, "opening dir");
}

#[test]
fn acknowledgements_come_at_every_10_000_records_and_at_the_end() {
    let sandbox = Sandbox::with_store();
    let lines: String = (0..25_000).map(|n| format!("k{n}\tv\n")).collect();
    sandbox.write("in.tsv", lines);
    let wrote = sandbox.ok(&["import", "store", "in.tsv", "--acks"]);
    let acks: Vec<_> = wrote.lines().filter_map(|line| line.strip_prefix("acknowledged ")).collect();
    assert!(acks.contains(&"10000") && acks.contains(&"20000") && acks.last() == Some(&"25000"), "{acks:?}");
    let wrote = sandbox.ok(&["import", "store", "in.tsv", "--acks", "--json"]);
    assert!(wrote.contains("{\"acknowledged\":25000}\n"), "{wrote}");
}

#[test]
fn a_reader_of_acknowledgements_that_leaves_ends_the_import_with_an_error() {
    let sandbox = Sandbox::with_store();
    let mut importer = sandbox.importer();
    importer.send("a\t1\n");
    assert_eq!(importer.acknowledged(1), 1);
    let ended = importer.leave("b\t2\n");
    failed(&ended, 8, "after 2 imported records", &["import"]);
    assert_eq!(sandbox.ok(&["count", "store"]), "2\n");
}

#[test]
fn the_sample_is_the_same_in_both_formats_and_from_every_run() {
    let sandbox = Sandbox::with_store();
    assert_eq!(sandbox.ok(&["sample", "s.tsv", "--limit", "2000"]), "wrote 2,000 records to s.tsv\n");
    sandbox.ok(&["sample", "s.jsonl", "--limit", "2000"]);
    let printed = sandbox.ok(&["sample", "-", "--format", "tsv", "--limit", "2000"]);
    assert_eq!(std::fs::read_to_string(sandbox.path("s.tsv")).expect("the file"), printed);
    sandbox.ok(&["create", "other", "--size", "64M"]);
    sandbox.ok(&["import", "store", "s.tsv"]);
    sandbox.ok(&["import", "other", "s.jsonl"]);
    assert_eq!(export(&sandbox, "store", "tsv"), export(&sandbox, "other", "tsv"));
    assert_eq!(sandbox.ok(&["count", "store"]), "2000\n");
    sandbox.fails(&["sample", "absent/s.tsv"], 8, "writing absent/s.tsv");
}

/// Imports a line that begins with `start` and never ends, in a process limited to 700,000 KiB of
/// addresses.
fn import_endless(start: &str, piece: &[u8], format: &str) -> std::process::Output {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let sandbox = Sandbox::with_store();
    let script = "ulimit -v 700000; exec \"$0\" import store - --format \"$1\"";
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_lodestore"), format])
        .current_dir(sandbox.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh starts");
    let mut input = child.stdin.take().expect("a pipe");
    // The program ends, and with it the pipe, long before 8 GiB.
    let _ = input.write_all(b"first\t1\n".get(..if format == "tsv" { 8 } else { 0 }).expect("a prefix"));
    let mut written = input.write_all(start.as_bytes()).map(|()| 0);
    while let Ok(bytes) = written
        && bytes < 8 << 30
    {
        written = input.write_all(piece).map(|()| bytes + piece.len());
    }
    assert!(written.is_err(), "the import read 8 GiB of one line");
    drop(input);
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_line_that_never_ends_is_refused_within_a_memory_limit() {
    let args = ["import", "store", "-"];
    // A key that never ends is refused at its limit.
    let output = import_endless("", &[b'k'; 1 << 16], "tsv");
    failed(&output, 10, "line 2 of -: the key has more than 65536 bytes", &args);
    let output = import_endless("{\"key\":\"", &[b'k'; 1 << 16], "jsonl");
    failed(&output, 10, "line 1 of -: the key has more than 65536 bytes", &args);
    // A value that never ends is refused where the memory ends.
    let output = import_endless("{\"key\":\"k\",\"value\":\"", &[b'v'; 1 << 16], "jsonl");
    failed(&output, 10, "line 1 of -: there is not enough memory for a value of more than ", &args);
    let output = import_endless("k\t", &[b'v'; 1 << 16], "tsv");
    failed(&output, 10, "line 2 of -: there is not enough memory for a value of more than ", &args);
}

#[test]
fn a_long_line_of_escapes_is_imported_within_a_memory_limit_below_its_length() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--size", "256M"]);
    // 32 MiB as 192 MiB of JSON.
    let value = "\\u0001".repeat(32 << 20);
    sandbox.write("long.jsonl", format!("{{\"key\":\"k\",\"value\":\"{value}\"}}\n"));
    let script = "ulimit -v \"$1\"; exec \"$0\" import store long.jsonl";
    // The mapped store and the threads use 400,000 KiB of addresses. The text alone would use
    // 260,000 KiB more.
    let output = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_lodestore"), "700000"])
        .current_dir(sandbox.path(""))
        .output()
        .expect("sh starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let got = sandbox.run(&["get", "store", "k", "--raw"]).stdout;
    assert!(got.len() == 32 << 20 && got.iter().all(|byte| *byte == 1), "{}", got.len());
}

//! `export` of a store that was stopped cleanly and damaged afterwards.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::common::{Sandbox, text};

const KEYS: usize = 3000;
const LINE: usize = 64;
const PAGE: usize = 4096;

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Offsets of the lines with slots in the tables of a store of NVHT (docs/format/nvht.md).
fn table_lines(bytes: &[u8]) -> Vec<usize> {
    let tables = (0..bytes.len()).step_by(LINE).filter(|at| bytes[*at..].starts_with(b"LTAB"));
    let lines = tables.flat_map(|at| (1..=u64_at(bytes, at + 16) as usize).map(move |line| at + line * LINE));
    let is_used = |at: &usize| bytes[at + 8..at + LINE].iter().any(|byte| *byte != 0);
    lines.filter(is_used).collect()
}

/// The sorted lines: NVHT has no key order.
fn sorted(exported: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(exported).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// 209 of 5,000 records were missing, and the program exited with 0 and without a message.
#[test]
fn an_export_of_a_damaged_table_of_nvht_fails_or_has_all_records() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--engine", "nvht", "--size", "64M"]);
    let lines: String = (0..KEYS).map(|index| format!("key{index:05}\tvalue of {index}\n")).collect();
    sandbox.write("in.tsv", &lines);
    sandbox.ok(&["import", "store", "in.tsv"]);
    let records = sorted(lines.as_bytes());
    let path = sandbox.path("store/pool.0000");
    let bytes = std::fs::read(&path).expect("the store's file");
    let table_lines = table_lines(&bytes);
    assert!(table_lines.len() > KEYS / 7, "{} lines", table_lines.len());
    let file = File::options().write(true).open(&path).expect("the store's file");
    let some_lines = table_lines.iter().step_by(table_lines.len() / 12).map(|at| *at..at + LINE);
    let some_pages = table_lines.iter().step_by(table_lines.len() / 6).map(|at| at / PAGE * PAGE);
    let mut failed = 0;
    for damaged in some_lines.chain(some_pages.map(|at| at..at + PAGE)) {
        file.write_all_at(&bytes[damaged.clone()].iter().map(|_| 0).collect::<Vec<u8>>(), damaged.start as u64)
            .expect("damaged");
        let output = sandbox.run(&["export", "store", "--format", "tsv"]);
        let (code, message) = (output.status.code(), text(&output.stderr));
        if code == Some(0) && message.is_empty() {
            assert!(sorted(&output.stdout) == records, "{damaged:?}: records are missing without a message");
        } else {
            assert!(code != Some(0) && message.contains("corrupt"), "{damaged:?}: {code:?}, {message}");
            failed += 1;
        }
        file.write_all_at(&bytes[damaged.clone()], damaged.start as u64).expect("repaired");
    }
    assert!(failed > 0, "no damage is reported");
    let output = sandbox.run(&["export", "store", "--format", "tsv"]);
    assert_eq!((output.status.code(), sorted(&output.stdout)), (Some(0), records), "the undamaged store");
}

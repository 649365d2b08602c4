//! The target of the reader of Redis snapshots. The program's own tests include it too, so it
//! refers to the program's modules by their names there.

use crate::rdb::{self, Halt, Summary};

/// Reads the bytes as a file, and as the entries of a file without a checksum. Each delivered
/// record must have a key and a value that a store accepts.
pub fn rdb(data: &[u8]) {
    read(data);
    read(&[b"REDIS0012", data, b"\xff", &[0; 8]].concat());
}

fn read(file: &[u8]) {
    let mut records = 0;
    let found: Result<Summary, Halt<String>> = rdb::read(file, b":", &mut |record| {
        records += 1;
        record.check()
    });
    match found {
        Ok(summary) => assert_eq!(summary.records, records),
        Err(Halt::Bad { at, .. }) => assert!(at <= file.len() as u64),
        Err(stopped) => panic!("{stopped:?}"),
    }
}

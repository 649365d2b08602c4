//! The target of the reader of LMDB data files. The program's own tests include it too, so it
//! refers to the program's modules by their names there.

use std::io;

use crate::lmdb::{self, Bytes, Halt, Summary};

/// Page size of the files.
const PAGE_BYTES: usize = 256;

struct Slice<'a>(&'a [u8]);

impl Bytes for Slice<'_> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let from = self.0.get(offset as usize..).and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Reads the bytes as a file, and as the pages after two meta pages. The first two bytes choose the
/// depth and the root of the tree. Each delivered record must have a key and a value that a store
/// accepts.
pub fn lmdb(data: &[u8]) {
    read(data);
    let [depth, root, pages @ ..] = data else { return };
    let mut file = Vec::new();
    for page in 0..2u8 {
        let mut meta = [0; PAGE_BYTES];
        meta[0] = page;
        meta[16..20].copy_from_slice(&0xbeef_c0deu32.to_le_bytes());
        meta[20] = 1;
        meta[40..44].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        meta[94] = *depth;
        meta[128] = *root;
        file.extend_from_slice(&meta);
    }
    for (at, page) in pages.chunks(PAGE_BYTES - 8).enumerate() {
        file.extend_from_slice(&(at as u64 + 2).to_le_bytes());
        file.extend_from_slice(page);
    }
    file.resize(file.len().next_multiple_of(PAGE_BYTES), 0);
    read(&file);
}

fn read(file: &[u8]) {
    let (mut records, mut bytes) = (0, 0);
    let found: Result<Summary, Halt<String>> = lmdb::read(&Slice(file), None, &mut |record| {
        records += 1;
        bytes += record.value.len();
        record.check()
    });
    // Each page is in the tree at most once.
    assert!(bytes <= file.len(), "{bytes} bytes of values in a file of {} bytes", file.len());
    match found {
        Ok(summary) => assert_eq!(summary.records, records),
        Err(Halt::Bad { .. }) => {}
        Err(stopped) => panic!("{stopped:?}"),
    }
}

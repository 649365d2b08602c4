//! The values file of a simulated pool. The recorder holds its bytes and steps (`sim/file.rs` has
//! the model).

use std::io;

use crate::blocks::BlockFile;
use crate::pool::Pool;
use crate::sim::{FileCall, Recorder};

/// A handle without state: the pool's recorder holds the file, so that later opens find it.
#[derive(Debug)]
pub(super) struct SimFile;

impl SimFile {
    /// Opens the file of a simulated pool; returns it with its length.
    pub(super) fn open(pool: &Pool) -> Option<(Self, u64)> {
        pool.recorder().map(|recorder| (Self, recorder.values_len()))
    }

    fn recorder<'a>(&self, pool: &'a Pool) -> &'a Recorder {
        match pool.recorder() {
            Some(recorder) => recorder,
            None => unreachable!("only simulated pools have such a file"),
        }
    }

    pub(super) fn read(&self, pool: &Pool, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.recorder(pool).read_values(at, into)
    }

    #[track_caller]
    pub(super) fn write(&self, pool: &Pool, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.recorder(pool).write_values(at, bytes, BlockFile::BLOCK as usize)
    }

    pub(super) fn reserve(&self, pool: &Pool) -> io::Result<()> {
        self.recorder(pool).check_space(FileCall::Reserve)
    }

    #[track_caller]
    pub(super) fn grow(&self, pool: &Pool, len: u64) -> io::Result<()> {
        self.recorder(pool).check_space(FileCall::Grow)?;
        self.recorder(pool).resize_values(len);
        Ok(())
    }

    #[track_caller]
    pub(super) fn shrink(&self, pool: &Pool, len: u64) -> io::Result<()> {
        self.recorder(pool).resize_values(len);
        Ok(())
    }

    #[track_caller]
    pub(super) fn punch(&self, pool: &Pool, at: u64, len: u64) {
        self.recorder(pool).punch_values(at, len);
    }

    #[track_caller]
    pub(super) fn sync(&self, pool: &Pool) -> io::Result<()> {
        self.recorder(pool).sync_values()
    }
}

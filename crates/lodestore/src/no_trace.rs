//! Replaces `trace.rs` in a build without the feature `tracing`: calls only do their work.

use std::path::Path;

use lodestore_contract::{Result, Store, VerifyReport};

use crate::options::{CreateOptions, OpenOptions};

pub(crate) fn create<T>(
    _path: &Path,
    options: &CreateOptions,
    make: impl FnOnce(&CreateOptions) -> Result<T>,
) -> Result<T> {
    make(options)
}

pub(crate) fn open<T>(_path: &Path, options: &OpenOptions, load: impl FnOnce(&OpenOptions) -> Result<T>) -> Result<T> {
    load(options)
}

pub(crate) fn close(_store: &dyn Store, work: impl FnOnce() -> Result<()>) -> Result<()> {
    work()
}

pub(crate) fn sync(_store: &dyn Store, work: impl FnOnce() -> Result<()>) -> Result<()> {
    work()
}

pub(crate) fn settle(_store: &dyn Store, work: impl FnOnce() -> Result<()>) -> Result<()> {
    work()
}

pub(crate) fn verify(_store: &dyn Store, work: impl FnOnce() -> Result<VerifyReport>) -> Result<VerifyReport> {
    work()
}

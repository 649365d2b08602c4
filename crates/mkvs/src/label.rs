//! Labels: which device a directory belongs to. A label is written into a device's directory before
//! its stores are created, and another one next to its pairs. Stores that changed places are
//! therefore refused, and the remains of an interrupted addition are recognized and recreated.
//! Layout: docs/format/mkvs.md.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};
use lodestore_media::StoreDir;
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::VERSION;

const NAME: &str = "label";
/// The label is written under this name, then renamed.
pub(crate) const UNFINISHED: &str = "label.new";
const MAGIC: [u8; 8] = *b"LODELABL";
const LABEL_BYTES: usize = 48;

/// The contents of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) matrix: u64,
    pub(crate) id: u64,
    /// The stamp of the clean stop that wrote it, in a group of one device; 0 for none.
    pub(crate) stamp: u64,
    /// The description does not name the device yet.
    pub(crate) is_pending: bool,
}

impl Label {
    pub(crate) fn encode(&self) -> [u8; LABEL_BYTES] {
        let mut bytes = [0; LABEL_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&u16::from(self.is_pending).to_le_bytes());
        for (at, word) in [(16, self.matrix), (24, self.id), (32, self.stamp)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64(&bytes[..40]);
        bytes[40..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns `None` if the bytes are not a complete label of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LABEL_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().ok().map(u64::from_le_bytes);
        let is_pending = match bytes[10..12] {
            [0, 0] => false,
            [1, 0] => true,
            _ => return None,
        };
        let label = Self { matrix: word(16)?, id: word(24)?, stamp: word(32)?, is_pending };
        (label.encode() == *bytes).then_some(label)
    }

    /// Returns whether the label belongs to this device.
    pub(crate) fn is_of(&self, matrix: u64, id: u64) -> bool {
        (self.matrix, self.id) == (matrix, id)
    }

    /// Returns the label in a directory, or `None` if it is missing or damaged.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>> {
        match fs::read(directory.join(NAME)) {
            Ok(bytes) => Ok(Self::decode(&bytes)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(Error::io("reading", directory.join(NAME), error)),
        }
    }

    /// Writes the label into a directory, durably, and replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        self.write_in(&StoreDir::open_existing(directory)?)
    }

    /// As [`Self::write`], in an open directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn write_in(&self, directory: &StoreDir) -> Result<()> {
        directory.replace_file(NAME, UNFINISHED, &self.encode())
    }

    /// Removes the label of a directory, if there is one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn remove(directory: &Path) -> Result<()> {
        let path = directory.join(NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", path, error)),
            _ => Ok(()),
        }
    }
}

/// A directory that is being created for a device.
pub(crate) struct Labelled {
    pub(crate) directory: PathBuf,
    pub(crate) label: Label,
    /// The directories that did not exist before: this one and its parents, the deepest first.
    created: Vec<PathBuf>,
}

impl Labelled {
    /// Creates the directory and its parents, if missing, and writes a label into it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn begin(directory: &Path, label: Label) -> Result<Self> {
        let missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
        let created = directory.ancestors().take_while(missing).map(PathBuf::from).collect();
        let labelled = Self { directory: directory.into(), label, created };
        let created = fs::create_dir_all(directory).map_err(|error| Error::io("creating", directory, error));
        match created.and_then(|()| label.write(directory)) {
            Ok(()) => Ok(labelled),
            Err(error) => {
                labelled.remove_created();
                Err(error)
            }
        }
    }

    /// Removes what [`begin`](Self::begin) created, after a failure.
    pub(crate) fn remove_created(&self) {
        // The causing error is reported; a label that stays marks the directory as unfinished.
        let _ = Label::remove(&self.directory);
        // A directory that is not empty stays.
        self.created.iter().for_each(|created| drop(fs::remove_dir(created)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: Label = Label { matrix: 7, id: 9, stamp: 11, is_pending: true };

    #[test]
    fn a_label_is_read_back_and_a_damaged_one_is_ignored() {
        let bytes = LABEL.encode();
        assert_eq!(Label::decode(&bytes), Some(LABEL));
        for bit in 0..LABEL_BYTES * 8 {
            let mut hurt = bytes;
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Label::decode(&hurt), None, "bit {bit}");
        }
        (0..LABEL_BYTES).for_each(|len| assert_eq!(Label::decode(&bytes[..len]), None));
    }

    #[test]
    fn a_label_is_written_read_replaced_and_removed() {
        let dir = lodestore_contract::testing::Scratch::on_disk();
        assert_eq!(Label::read(dir.path()).expect("read"), None);
        LABEL.write(dir.path()).expect("left");
        assert_eq!(Label::read(dir.path()).expect("read"), Some(LABEL));
        let other = Label { is_pending: false, ..LABEL };
        other.write(dir.path()).expect("left");
        assert_eq!(Label::read(dir.path()).expect("read"), Some(other));
        Label::remove(dir.path()).expect("removed");
        Label::remove(dir.path()).expect("nothing to remove");
        assert_eq!(Label::read(dir.path()).expect("read"), None);
        assert_eq!(Label::read(&dir.path().join("none")).expect("read"), None);
    }
}

//! Labels: whose device a directory is. One lies in the device's directory from before its stores are made, and one beside its pairs; so stores that changed places are refused, and what a
//! stop in the middle left of a device that came to nothing is known for that, and made anew. Layout: docs/format/mkvs.md.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lodestore_contract::{Error, Result};
use lodestore_media::StoreDir;
use xxhash_rust::xxh3::xxh3_64;

use crate::layout::VERSION;

const NAME: &str = "label";
/// Under this name it is written, and then renamed.
pub(crate) const UNFINISHED: &str = "label.new";
const MAGIC: [u8; 8] = *b"LODELABL";
const BYTES: usize = 48;

/// What a label says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) matrix: u64,
    pub(crate) id: u64,
    /// Of the clean stop that left it, where the device is alone in its group; 0 of none.
    pub(crate) stamp: u64,
    /// The description does not name it yet.
    pub(crate) is_coming: bool,
}

impl Label {
    pub(crate) fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&u16::from(self.is_coming).to_le_bytes());
        for (at, word) in [(16, self.matrix), (24, self.id), (32, self.stamp)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64(&bytes[..40]);
        bytes[40..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` where these bytes are no whole label of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().ok().map(u64::from_le_bytes);
        let is_coming = match bytes[10..12] {
            [0, 0] => false,
            [1, 0] => true,
            _ => return None,
        };
        let label = Self { matrix: word(16)?, id: word(24)?, stamp: word(32)?, is_coming };
        (label.encode() == *bytes).then_some(label)
    }

    /// Whether it is of this device.
    pub(crate) fn is_of(&self, matrix: u64, id: u64) -> bool {
        (self.matrix, self.id) == (matrix, id)
    }

    /// The label in a directory. `None` where there is none, or one that is damaged: it says nothing then.
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

    /// Leaves it in a directory, durably, in the place of one that is there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn leave(&self, directory: &Path) -> Result<()> {
        self.leave_in(&StoreDir::open_existing(directory)?)
    }

    /// As [`Self::leave`], in a directory that is open.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn leave_in(&self, directory: &StoreDir) -> Result<()> {
        directory.replace_file(NAME, UNFINISHED, &self.encode())
    }

    /// Takes the label of a directory away, if there is one.
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

/// A directory that is being made for a device.
pub(crate) struct Labelled {
    pub(crate) directory: PathBuf,
    pub(crate) label: Label,
    /// What was not there before of it and of the directories above it, itself first.
    made: Vec<PathBuf>,
}

impl Labelled {
    /// Makes the directory, and those above it, if it is not there, and leaves a label in it that says for whom it is.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn begin(directory: &Path, label: Label) -> Result<Self> {
        let missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
        let made = directory.ancestors().take_while(missing).map(PathBuf::from).collect();
        let labelled = Self { directory: directory.into(), label, made };
        let created = fs::create_dir_all(directory).map_err(|error| Error::io("creating", directory, error));
        match created.and_then(|()| label.leave(directory)) {
            Ok(()) => Ok(labelled),
            Err(error) => {
                labelled.undo();
                Err(error)
            }
        }
    }

    /// Takes away what [`begin`](Self::begin) made: nothing came of it.
    pub(crate) fn undo(&self) {
        // Why nothing came of it is told; what is left says itself that it is.
        let _ = Label::remove(&self.directory);
        // Not where somebody put something into it.
        self.made.iter().for_each(|made| drop(fs::remove_dir(made)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: Label = Label { matrix: 7, id: 9, stamp: 11, is_coming: true };

    #[test]
    fn a_label_comes_back_and_a_damaged_one_says_nothing() {
        let bytes = LABEL.encode();
        assert_eq!(Label::decode(&bytes), Some(LABEL));
        for bit in 0..BYTES * 8 {
            let mut hurt = bytes;
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Label::decode(&hurt), None, "bit {bit}");
        }
        (0..BYTES).for_each(|len| assert_eq!(Label::decode(&bytes[..len]), None));
    }

    #[test]
    fn a_label_is_left_read_replaced_and_taken_away() {
        let dir = lodestore_contract::testing::Scratch::on_disk();
        assert_eq!(Label::read(dir.path()).expect("read"), None);
        LABEL.leave(dir.path()).expect("left");
        assert_eq!(Label::read(dir.path()).expect("read"), Some(LABEL));
        let other = Label { is_coming: false, ..LABEL };
        other.leave(dir.path()).expect("left");
        assert_eq!(Label::read(dir.path()).expect("read"), Some(other));
        Label::remove(dir.path()).expect("removed");
        Label::remove(dir.path()).expect("nothing to remove");
        assert_eq!(Label::read(dir.path()).expect("read"), None);
        assert_eq!(Label::read(&dir.path().join("none")).expect("read"), None);
    }
}

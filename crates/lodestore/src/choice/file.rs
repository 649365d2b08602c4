//! The record of a store's creation: engine, durability, the reason, and the given options.
//!
//! The file `CHOICE` in the store's directory is advisory. No open needs it: `stats` shows it, and
//! an option that is fixed at the creation is compared with it. A record that is missing or damaged
//! counts as unknown.
//!
//! Layout: lines of UTF-8 text. The last line has the CRC-32C of all bytes before it.
//!
//! ```text
//! lodestore choice 1
//! engine fluidkv
//! durability interval:1000
//! reason the medium is an ordinary file (ext4)
//! set region=64M
//! check 0a1b2c3d
//! ```

use std::fs::File;
use std::io::Read;
use std::path::Path;

use lodestore_contract::{Options, parse_size};
use lodestore_media::{StoreDir, crc32c};

use super::Choice;
use crate::engines;

const FILE_NAME: &str = "CHOICE";
/// The name while the file is being written.
const UNFINISHED_FILE_NAME: &str = "CHOICE.new";
const FIRST_LINE: &str = "lodestore choice 1";
const CHECK_PREFIX: &str = "check ";
/// A longer file is invalid.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The record of a store's creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) choice: Choice,
    /// The options that were set, by name.
    pub(crate) set: Options,
}

/// Writes the record of the store in `path`. A store without it works, so errors are ignored.
pub(crate) fn write(path: &Path, choice: &Choice, set: &Options) {
    let record = Record { choice: choice.clone(), set: set.clone() };
    let written = StoreDir::open_existing(path)
        .and_then(|dir| dir.replace_file(FILE_NAME, UNFINISHED_FILE_NAME, record.encode().as_bytes()));
    if written.is_err() {
        let _ = std::fs::remove_file(path.join(UNFINISHED_FILE_NAME));
    }
}

/// Removes the record of the store in `path`. A store without it works, so errors are ignored.
pub(crate) fn remove(path: &Path) {
    let _ = std::fs::remove_file(path.join(FILE_NAME));
}

/// Reads the record of the store in `path`; `None` if it is missing or damaged.
pub(crate) fn read(path: &Path) -> Option<Record> {
    let path = path.join(FILE_NAME);
    // A pipe would block the open.
    let metadata = std::fs::symlink_metadata(&path).ok()?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return None;
    }
    let mut text = String::new();
    File::open(&path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Record::decode(&text)
}

impl Record {
    fn encode(&self) -> String {
        let Choice { engine, durability, reason } = &self.choice;
        let mut text = format!("{FIRST_LINE}\nengine {engine}\ndurability {durability}\nreason {}\n", one_line(reason));
        // A value of several lines is not recorded, and counts as unknown.
        for (name, value) in self.set.iter().filter(|(name, value)| !is_multiline(name) && !is_multiline(value)) {
            text.push_str(&format!("set {name}={value}\n"));
        }
        let check = crc32c(&[text.as_bytes()]);
        format!("{text}{CHECK_PREFIX}{check:08x}\n")
    }

    fn decode(text: &str) -> Option<Self> {
        let (body, check) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let body_bytes = &text.as_bytes()[..=body.len()];
        if check.strip_prefix(CHECK_PREFIX)? != format!("{:08x}", crc32c(&[body_bytes])) {
            return None;
        }
        let mut lines = body.split('\n');
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let engine = engines::by_name(lines.next()?.strip_prefix("engine ")?).ok()?.name;
        let durability = lines.next()?.strip_prefix("durability ")?.parse().ok()?;
        let reason = lines.next()?.strip_prefix("reason ")?.into();
        let mut set = Options::new();
        for line in lines {
            set.set_text(line.strip_prefix("set ")?).ok()?;
        }
        Some(Self { choice: Choice { engine, durability, reason }, set })
    }
}

fn is_multiline(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Returns whether two texts of an option are the same value, as `64K` and `65536` are.
pub(crate) fn is_same_value(one: &str, other: &str) -> bool {
    let as_size = |text: &str| parse_size(text).ok();
    let as_share = |text: &str| text.parse::<f64>().ok();
    one == other
        || as_size(one).is_some_and(|one| as_size(other) == Some(one))
        || as_share(one).is_some_and(|one| as_share(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use lodestore_contract::Durability;
    use lodestore_contract::testing::Scratch;

    use super::*;

    fn record() -> Record {
        let mut set = Options::new();
        set.set("region", "64M").set("paths", "a,b").set("odd", "two\nlines");
        let choice = Choice { engine: "fluidkv", durability: Durability::Power, reason: "a file\n(ext4)".into() };
        Record { choice, set }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_without_values_of_several_lines() {
        let dir = Scratch::on_disk();
        assert_eq!(read(dir.path()), None);
        write(dir.path(), &record().choice, &record().set);
        let found = read(dir.path()).expect("a record");
        assert_eq!((found.choice.engine, found.choice.reason.as_str()), ("fluidkv", "a file (ext4)"));
        assert_eq!(found.set.iter().collect::<Vec<_>>(), [("paths", "a,b"), ("region", "64M")]);
    }

    #[test]
    fn a_record_with_any_changed_byte_is_unknown() {
        let whole = record().encode();
        for at in 0..whole.len() {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).expect("ASCII stays ASCII");
            assert_eq!(Record::decode(&changed), None, "byte {at}");
            assert_eq!(Record::decode(&whole[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn values_are_compared_as_sizes_and_shares() {
        assert!(is_same_value("64K", "65536") && is_same_value("0.8", "0.80") && is_same_value("on", "on"));
        assert!(!is_same_value("64K", "64M") && !is_same_value("random", "7") && !is_same_value("on", "off"));
    }
}

//! The file `BACKUP` of a backup: docs/format/backup.md.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use lodestore_contract::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::account::{Account, Sum};

/// The name of the file.
pub(crate) const BACKUP_FILE: &str = "BACKUP";
/// The version of its format.
const FORMAT_VERSION: u32 = 1;
/// The start of its first line.
const TITLE: &str = "lodestore backup";
/// Maximum length of the file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The contents of a backup, its time and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// The engine of the store.
    pub engine: String,
    /// The number that distinguishes the source from other stores; `None` if its engine has none.
    pub source: Option<u64>,
    /// The start of the backup, in milliseconds since the Unix epoch.
    pub time_millis: u64,
    /// The version of the library that made the backup.
    pub version: String,
    /// Pairs of the backup.
    pub pairs: u64,
}

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BackupFile {
    pub(super) info: BackupInfo,
    pub(super) account: Account,
}

/// Makes the error of a backup.
pub(super) fn refusal(path: &Path, what: impl Into<String>) -> Error {
    Error::Backup { path: path.into(), what: what.into() }
}

impl BackupFile {
    pub(super) fn encode(&self) -> String {
        let BackupInfo { engine, source, time_millis, version, pairs } = &self.info;
        let source = source.map_or("-".into(), |source| format!("{source:016x}"));
        let lasting = &self.account.lasting;
        let mut text = format!(
            "{TITLE} {FORMAT_VERSION}\nversion {version}\nengine {engine}\nsource {source}\ntime {time_millis}\n\
             pairs {pairs}\nlasting {} {:032x}\n",
            lasting.pairs, lasting.hash
        );
        for (group, sum) in &self.account.expiring {
            // Writing to a string does not fail.
            let _ = writeln!(text, "expiring {group} {} {:032x}", sum.pairs, sum.hash);
        }
        let _ = writeln!(text, "checksum {:016x}", xxh3_64(text.as_bytes()));
        text
    }

    /// Reads the file of the backup in directory `dir`.
    ///
    /// # Errors
    /// [`Error::Missing`]; [`Error::Backup`] if there is no such file, or it is damaged;
    /// [`Error::NewerFormat`]; [`Error::Io`].
    pub(super) fn load(dir: &Path) -> Result<Self> {
        let path = dir.join(BACKUP_FILE);
        match fs::metadata(&path) {
            Ok(found) if found.is_file() && found.len() <= FILE_BYTES_MAX => {}
            Ok(_) => return Err(damaged_file(dir)),
            Err(error) if error.kind() == ErrorKind::NotFound && !dir.exists() => {
                return Err(Error::missing(dir));
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(refusal(
                    dir,
                    "the directory has no file BACKUP, so it is not a complete backup: use the directory of a \
                     complete backup",
                ));
            }
            Err(error) => return Err(Error::io("reading the attributes of", path, error)),
        }
        let bytes = fs::read(&path).map_err(|error| Error::io("reading", &path, error))?;
        let text = String::from_utf8(bytes).map_err(|_| damaged_file(dir))?;
        let format = text.lines().next().and_then(|title| title.strip_prefix(TITLE)?.trim().parse::<u32>().ok());
        match format {
            Some(FORMAT_VERSION) => Self::decode(&text).ok_or_else(|| damaged_file(dir)),
            Some(newer) if newer > FORMAT_VERSION => {
                Err(Error::NewerFormat { part: "backup".into(), found: newer, known: FORMAT_VERSION })
            }
            _ => Err(damaged_file(dir)),
        }
    }

    /// Reads a text whose first line is right.
    fn decode(text: &str) -> Option<Self> {
        let (covered, checksum) = text.trim_end_matches('\n').rsplit_once('\n')?;
        let covered = text.get(..=covered.len())?;
        let checksum = u64::from_str_radix(checksum.strip_prefix("checksum ")?, 16).ok()?;
        if xxh3_64(covered.as_bytes()) != checksum {
            return None;
        }
        let mut lines = covered.lines().skip(1);
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        let version = field("version")?;
        let engine = field("engine")?;
        let source = match field("source")?.as_str() {
            "-" => None,
            digits => Some(u64::from_str_radix(digits, 16).ok()?),
        };
        let time_millis = field("time")?.parse().ok()?;
        let pairs = field("pairs")?.parse().ok()?;
        let mut account = Account::begin_at(time_millis);
        account.lasting = parse_sum(&field("lasting")?)?;
        for line in lines {
            let (group, rest) = line.strip_prefix("expiring ")?.split_once(' ')?;
            account.expiring.insert(group.parse().ok()?, parse_sum(rest)?);
        }
        Some(Self { info: BackupInfo { engine, source, time_millis, version, pairs }, account })
    }
}

fn parse_sum(text: &str) -> Option<Sum> {
    let (pairs, hash) = text.split_once(' ')?;
    Some(Sum { pairs: pairs.parse().ok()?, hash: u128::from_str_radix(hash, 16).ok()? })
}

fn damaged_file(dir: &Path) -> Error {
    refusal(dir, "the file BACKUP is damaged: use another backup, or open the directory as a store and verify it")
}

#[cfg(test)]
mod tests {
    use lodestore_contract::testing::Scratch;

    use super::*;

    fn example() -> BackupFile {
        let mut account = Account::begin_at(1234);
        account.lasting = Sum { pairs: 5, hash: u128::MAX - 7 };
        account.expiring.insert(17, Sum { pairs: 2, hash: 3 });
        let info = BackupInfo {
            engine: "hikv".into(),
            source: Some(0xabc),
            time_millis: 1234,
            version: "0.2.0".into(),
            pairs: 7,
        };
        BackupFile { info, account }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let with_source = example();
        let mut without = example();
        without.info.source = None;
        without.account.expiring.clear();
        for file in [with_source, without] {
            let dir = Scratch::on_disk();
            fs::write(dir.path().join(BACKUP_FILE), file.encode()).expect("a file");
            assert_eq!(BackupFile::load(dir.path()).expect("a whole file"), file);
        }
    }

    #[test]
    fn every_changed_or_missing_byte_is_found() {
        let dir = Scratch::on_disk();
        let whole = example().encode().into_bytes();
        let load = |bytes: &[u8]| {
            fs::write(dir.path().join(BACKUP_FILE), bytes).expect("a file");
            BackupFile::load(dir.path())
        };
        for at in 0..whole.len() {
            for flip in [1, 4, 0x80] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                let found = load(&bytes);
                assert!(matches!(found, Err(Error::Backup { .. } | Error::NewerFormat { .. })), "{at}: {found:?}");
            }
            // Without the end of its last line the text has the same meaning.
            if at + 1 < whole.len() {
                assert!(load(&whole[..at]).is_err(), "cut at {at}");
            }
        }
        assert!(matches!(load(b"lodestore backup 2\n"), Err(Error::NewerFormat { found: 2, known: 1, .. })));
    }

    #[test]
    fn a_directory_without_the_file_is_no_backup() {
        let dir = Scratch::on_disk();
        assert!(matches!(BackupFile::load(dir.path()), Err(Error::Backup { .. })));
        let missing = dir.path().join("missing");
        assert!(matches!(BackupFile::load(&missing), Err(Error::Missing { .. })));
    }
}

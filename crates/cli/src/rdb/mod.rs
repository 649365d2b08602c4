//! A reader of Redis snapshots (RDB files), versions 9 to 12.
//!
//! ```text
//! REDIS  version (4 digits)  [opcode | type, key, value] ..  FF  CRC-64
//! ```
//!
//! The reader trusts no length: memory grows with the bytes that are there, and each loop ends with
//! the input. Strings and hashes become records. A hash becomes a record for each field, with the
//! key, a separator and the field as its key. Values of other types are read over and counted.
//! Format: rdb.h and rdb.c of Redis 7.4.

mod crc64;
mod packed;
mod skip;
mod text;

use std::collections::BTreeMap;
use std::io::{self, Read};

use lodestore::Expiry;
use lodestore::store::limits;

use crate::format::Record;

/// The first bytes of a file.
const MAGIC: &[u8; 5] = b"REDIS";
const HEAD_BYTES: usize = 9;
const VERSION_MIN: u32 = 9;
const VERSION_MAX: u32 = 12;
/// The smallest opcode. Smaller bytes are types of values.
const OPCODE_MIN: u8 = 244;
/// The prefix of the keyspaces of databases other than 0.
const KEYSPACE_PREFIX: &str = "db";

/// Returns whether a file with these first bytes is a snapshot of Redis: the magic, four digits and
/// a byte that no text of a record has at this offset.
pub fn is_magic(start: &[u8]) -> bool {
    let digits = start.get(MAGIC.len()..HEAD_BYTES).is_some_and(|digits| digits.iter().all(u8::is_ascii_digit));
    start.starts_with(MAGIC) && digits && start.get(HEAD_BYTES).is_some_and(|next| *next >= OPCODE_MIN || *next < 9)
}

/// The reason why a reader stopped.
#[derive(Debug)]
pub enum Halt<E> {
    /// The bytes at this offset are not a snapshot.
    Bad {
        /// The offset in bytes.
        at: u64,
        /// The fault.
        what: String,
    },
    /// The input could not be read.
    Io(io::Error),
    /// The caller stopped.
    Caller(E),
}

/// The contents of a whole snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Delivered records.
    pub records: u64,
    /// Keys with values of other types, by the name of the type.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Whether the file has a checksum. Redis may be configured to write none.
    pub has_checksum: bool,
}

/// The input, with the checksum of the bytes that were read.
struct Source<R> {
    input: R,
    sum: crc64::Crc64,
    at: u64,
}

impl<R: Read> Source<R> {
    fn fail<T, E>(&self, what: impl Into<String>) -> Result<T, Halt<E>> {
        Err(Halt::Bad { at: self.at, what: what.into() })
    }

    fn read_array<const N: usize, E>(&mut self) -> Result<[u8; N], Halt<E>> {
        let mut bytes = [0; N];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return self.fail("the file is truncated"),
            Err(error) => return Err(Halt::Io(error)),
        }
        self.sum.update(&bytes);
        self.at += N as u64;
        Ok(bytes)
    }

    fn read_byte<E>(&mut self) -> Result<u8, Halt<E>> {
        let [byte] = self.read_array()?;
        Ok(byte)
    }

    /// Reads `len` bytes. Memory grows with the bytes that are there.
    fn read_bytes<E>(&mut self, len: u64) -> Result<Vec<u8>, Halt<E>> {
        if len > limits::VALUE_MAX as u64 {
            return self.fail(format!("a string has {len} bytes, which is longer than any value"));
        }
        let mut bytes = Vec::new();
        (&mut self.input).take(len).read_to_end(&mut bytes).map_err(Halt::Io)?;
        if (bytes.len() as u64) < len {
            return self.fail("the file is truncated");
        }
        self.sum.update(&bytes);
        self.at += len;
        Ok(bytes)
    }
}

/// Reads a whole snapshot, and calls `each` with every record.
///
/// # Errors
///
/// [`Halt`]. Records delivered before may belong to a damaged file: the checksum is at its end.
/// Read a file twice, the first time without effect.
pub fn read<E>(
    input: impl Read,
    separator: &[u8],
    each: &mut dyn FnMut(Record) -> Result<(), E>,
) -> Result<Summary, Halt<E>> {
    let mut source = Source { input, sum: crc64::Crc64::default(), at: 0 };
    let head: [u8; HEAD_BYTES] = source.read_array()?;
    let digits = std::str::from_utf8(&head[MAGIC.len()..]).ok().filter(|_| head.starts_with(MAGIC));
    match digits.and_then(|digits| digits.parse().ok()) {
        None => return source.fail("the file is not an RDB file of Redis"),
        Some(version) if !(VERSION_MIN..=VERSION_MAX).contains(&version) => {
            let what =
                format!("RDB version {version} is not supported: use a file of version {VERSION_MIN} to {VERSION_MAX}");
            return source.fail(what);
        }
        Some(_) => {}
    }
    let mut body = Body { source, separator, each, keyspace: None, expiry: None, summary: Summary::default() };
    while body.read_entry()? {}
    body.check_end()
}

/// The entries of a snapshot.
struct Body<'a, R, E> {
    source: Source<R>,
    separator: &'a [u8],
    each: &'a mut dyn FnMut(Record) -> Result<(), E>,
    /// The keyspace of the present database.
    keyspace: Option<String>,
    /// The expiry of the next key.
    expiry: Option<Expiry>,
    summary: Summary,
}

impl<R: Read, E> Body<'_, R, E> {
    /// Reads an opcode with its data, or a key with its value. Returns whether more follows.
    fn read_entry(&mut self) -> Result<bool, Halt<E>> {
        let source = &mut self.source;
        match source.read_byte()? {
            255 => return Ok(false),
            254 => {
                let number = source.read_len()?;
                self.keyspace = (number > 0).then(|| format!("{KEYSPACE_PREFIX}{number}"));
            }
            253 => self.expiry = Some(Expiry::at_millis(u64::from(u32::from_le_bytes(source.read_array()?)) * 1000)),
            252 => self.expiry = Some(Expiry::at_millis(u64::from_le_bytes(source.read_array()?))),
            251 => {
                source.read_len()?;
                source.read_len()?;
            }
            250 => {
                source.read_string()?;
                source.read_string()?;
            }
            249 => {
                source.read_byte()?;
            }
            248 => {
                source.read_len()?;
            }
            247 => source.skip_module_aux()?,
            246 => return source.fail("the file has a function of a preview of Redis 7.0, whose format is not stable"),
            245 => {
                source.read_string()?;
                *self.summary.skipped.entry("functions").or_default() += 1;
            }
            244 => {
                for _ in 0..3 {
                    source.read_len()?;
                }
            }
            kind => self.read_pair(kind)?,
        }
        Ok(true)
    }

    /// Reads a key and its value.
    fn read_pair(&mut self, kind: u8) -> Result<(), Halt<E>> {
        let key = self.source.read_string()?;
        let expiry = self.expiry.take();
        match kind {
            0 => {
                let value = self.source.read_string()?;
                self.deliver_record(key, value, expiry)
            }
            4 => {
                for _ in 0..self.source.read_len()? {
                    let (field, value) = (self.source.read_string()?, self.source.read_string()?);
                    self.deliver_field(&key, Field { field, value, expiry: None }, expiry)?;
                }
                Ok(())
            }
            22 | 24 => self.read_hash_with_expiries(&key, kind == 24, expiry),
            9 | 13 | 16 | 23 | 25 => self.read_packed_hash(&key, kind, expiry),
            _ => {
                let name = self.source.skip_value(kind)?;
                *self.summary.skipped.entry(name).or_default() += 1;
                Ok(())
            }
        }
    }

    /// Reads a hash whose fields may expire. A relative expiry is one more than the distance to the
    /// minimum expiry of all fields, or 0 for none.
    fn read_hash_with_expiries(
        &mut self,
        key: &[u8],
        is_relative: bool,
        expiry: Option<Expiry>,
    ) -> Result<(), Halt<E>> {
        let expiry_min = if is_relative { u64::from_le_bytes(self.source.read_array()?) } else { 0 };
        for _ in 0..self.source.read_len()? {
            let field_expiry = match self.source.read_len()? {
                0 => None,
                distance if is_relative => Some(Expiry::at_millis(expiry_min.saturating_add(distance - 1))),
                millis => Some(Expiry::at_millis(millis)),
            };
            let (field, value) = (self.source.read_string()?, self.source.read_string()?);
            self.deliver_field(key, Field { field, value, expiry: field_expiry }, expiry)?;
        }
        Ok(())
    }

    /// Reads a hash in one string.
    fn read_packed_hash(&mut self, key: &[u8], kind: u8, expiry: Option<Expiry>) -> Result<(), Halt<E>> {
        if kind == 25 {
            // The minimum expiry of all fields, which are absolute here.
            self.source.read_array::<8, E>()?;
        }
        let bytes = self.source.read_string()?;
        let items = match kind {
            9 => packed::read_zipmap(&bytes),
            13 => packed::read_ziplist(&bytes),
            _ => packed::read_listpack(&bytes),
        };
        let has_expiries = matches!(kind, 23 | 25);
        let items = items.or_else(|what| self.source.fail(format!("a packed hash is damaged: {what}")))?;
        let width = if has_expiries { 3 } else { 2 };
        if !items.len().is_multiple_of(width) {
            return self
                .source
                .fail(format!("a packed hash has {} items, which is not a multiple of {width}", items.len()));
        }
        let mut items = items.into_iter();
        while let (Some(field), Some(value)) = (items.next(), items.next()) {
            let text = if has_expiries { items.next() } else { None };
            let field_expiry = match text {
                None => None,
                Some(text) => match std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()) {
                    Some(0) => None,
                    Some(millis) => Some(Expiry::at_millis(millis)),
                    None => return self.source.fail("the expiry of a field is not a number"),
                },
            };
            self.deliver_field(key, Field { field, value, expiry: field_expiry }, expiry)?;
        }
        Ok(())
    }

    /// Delivers a field of a hash. The field expires with the hash, or before.
    fn deliver_field(&mut self, key: &[u8], field: Field, hash_expiry: Option<Expiry>) -> Result<(), Halt<E>> {
        let expiry = field.expiry.into_iter().chain(hash_expiry).min_by_key(|expiry| expiry.millis());
        self.deliver_record([key, self.separator, &field.field].concat(), field.value, expiry)
    }

    fn deliver_record(&mut self, key: Vec<u8>, value: Vec<u8>, expiry: Option<Expiry>) -> Result<(), Halt<E>> {
        let record = Record { key, value, expiry, keyspace: self.keyspace.clone() };
        if let Err(what) = record.check() {
            return self.source.fail(what);
        }
        self.summary.records += 1;
        (self.each)(record).map_err(Halt::Caller)
    }

    /// Compares the checksum, after the last opcode.
    fn check_end(mut self) -> Result<Summary, Halt<E>> {
        let sum = self.source.sum.value();
        let stored = u64::from_le_bytes(self.source.read_array()?);
        if stored != 0 && stored != sum {
            return self.source.fail("the checksum differs, so the file is damaged: use another copy");
        }
        match self.source.input.read(&mut [0]) {
            Ok(0) => {}
            Ok(_) => return self.source.fail("the file has bytes after its end"),
            Err(error) => return Err(Halt::Io(error)),
        }
        Ok(Summary { has_checksum: stored != 0, ..self.summary })
    }
}

/// A field of a hash.
struct Field {
    field: Vec<u8>,
    value: Vec<u8>,
    expiry: Option<Expiry>,
}

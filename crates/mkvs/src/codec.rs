//! Reading and writing of values by fields, little-endian. Each value begins with its version.

use lodestore_contract::{Error, Result};

/// Version of all formats of a matrix.
pub(crate) const VERSION: u16 = 4;

pub(crate) fn format_error(what: &'static str) -> Error {
    Error::corrupt("mkvs", what)
}

/// Reads a value field by field.
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) what: &'static str,
}

impl<'a> Reader<'a> {
    /// Starts after the version, which must be known.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Result<Self> {
        let mut reader = Self { bytes, what };
        let found = u32::from(reader.u16()?);
        let known = u32::from(VERSION);
        match found {
            _ if found > known => Err(Error::NewerFormat { part: "mkvs".into(), found, known }),
            _ if found < known => Err(Error::OlderFormat { part: "mkvs".into(), found, oldest: known }),
            _ => Ok(reader),
        }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or_else(|| format_error(self.what))?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let what = self.what;
        self.take(N)?.try_into().map_err(|_| format_error(what))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        let len = self.u16()?;
        let bytes = self.take(usize::from(len))?;
        String::from_utf8(bytes.to_vec()).map_err(|_| format_error(self.what))
    }

    pub(crate) fn count(&mut self, max: usize) -> Result<usize> {
        let count = usize::from(self.u16()?);
        if count > max { Err(format_error(self.what)) } else { Ok(count) }
    }

    pub(crate) fn end(self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { Err(format_error(self.what)) }
    }
}

pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    // Names and paths: the kernel accepts at most 4096 bytes.
    let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
    bytes.extend(len.to_le_bytes());
    bytes.extend(&text.as_bytes()[..usize::from(len)]);
}

pub(crate) fn put_words(bytes: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
}

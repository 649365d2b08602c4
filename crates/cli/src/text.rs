//! Bytes as text: on the command line, in messages and in JSON. Each encoding preserves all bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value};

use crate::args::CodingArgs;
use crate::failure::Failure;
use crate::format::tsv;
use crate::{base64, hex};

/// The encoding of keys and values on the command line and in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Unencoded.
    Plain,
    /// Hexadecimal.
    Hex,
    /// Base64 with padding.
    Base64,
}

impl From<CodingArgs> for Coding {
    fn from(args: CodingArgs) -> Self {
        match args {
            CodingArgs { hex: true, .. } => Self::Hex,
            CodingArgs { base64: true, .. } => Self::Base64,
            _ => Self::Plain,
        }
    }
}

impl Coding {
    /// Returns the bytes that an argument encodes.
    pub fn decode(self, what: &str, text: &OsStr) -> Result<Vec<u8>, Failure> {
        let bytes = text.as_bytes();
        let refuse = |error: &dyn std::fmt::Display, name: &str| {
            Failure::Usage(format!("{what} {:?} is not {name}: {error}", text.to_string_lossy()))
        };
        match self {
            Self::Plain => Ok(bytes.to_vec()),
            Self::Hex => hex::decode(bytes).map_err(|error| refuse(&error, "hexadecimal")),
            Self::Base64 => base64::decode(bytes).map_err(|error| refuse(&error, "base64")),
        }
    }

    /// Adds the text of `bytes` to `out`. Plain bytes are escaped as in tsv, so that a line stays a
    /// line.
    pub fn encode(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Plain => tsv::escape(bytes, out),
            Self::Hex => hex::encode(bytes, out),
            Self::Base64 => out.extend_from_slice(base64::encode(bytes).as_bytes()),
        }
    }
}

/// Maximum bytes of a key that a message shows.
const SHOWN_BYTES_MAX: usize = 80;

/// Returns a key for a message: escaped, and truncated if long.
pub fn display_key(key: &[u8]) -> String {
    let mut out = Vec::new();
    tsv::escape(&key[..key.len().min(SHOWN_BYTES_MAX)], &mut out);
    let dots = if key.len() > SHOWN_BYTES_MAX { "..." } else { "" };
    format!("{}{dots}", String::from_utf8_lossy(&out))
}

/// Sets `name` to these bytes in a JSON object: as a string, or as base64 under `name_b64` if they
/// are not UTF-8.
pub fn set_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), text.into()),
        Err(_) => object.insert(format!("{name}_b64"), base64::encode(bytes).into()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_coding_decodes_its_own_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        for coding in [Coding::Hex, Coding::Base64] {
            let mut text = Vec::new();
            coding.encode(&bytes, &mut text);
            assert_eq!(coding.decode("KEY", OsStr::from_bytes(&text)).expect("own text"), bytes);
        }
    }

    #[test]
    fn bad_text_is_a_usage_error_that_names_it() {
        for (coding, text) in [(Coding::Hex, "0g"), (Coding::Hex, "abc"), (Coding::Base64, "a")] {
            let failure = coding.decode("KEY", OsStr::new(text)).expect_err("bad text");
            assert_eq!(failure.code(), 2);
            assert!(failure.to_string().contains(text), "{failure}");
        }
    }
}

//! Records as lines of JSON: `{"key":"...","value":"..."}`.
//!
//! Bytes that are not UTF-8 are base64 under `key_b64` or `value_b64`, so all bytes are preserved.
//! A key that expires has `expires_at_ms`, milliseconds since the Unix epoch. A record of a named
//! keyspace may have `keyspace`. Other names are refused.

use std::fmt;
use std::io::{self, Write};

use lodestore::Expiry;
use serde_core::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::Record;
use crate::base64;

/// The names of the fields, in the order of a written line.
const FIELDS: [&str; 6] = ["keyspace", "key", "key_b64", "value", "value_b64", "expires_at_ms"];

/// A parsed line.
#[derive(Default)]
struct Line {
    key: Option<String>,
    key_b64: Option<String>,
    value: Option<String>,
    value_b64: Option<String>,
    expires_at_ms: Option<u64>,
    keyspace: Option<String>,
}

// Written by hand, since the crate that derives it compiles longer than the rest of serde.
impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LineVisitor)
    }
}

struct LineVisitor;

impl<'de> Visitor<'de> for LineVisitor {
    type Value = Line;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object, such as {\"key\":\"k\",\"value\":\"v\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
        let mut line = Line::default();
        let mut seen = [false; FIELDS.len()];
        while let Some(name) = map.next_key::<String>()? {
            let Some(index) = FIELDS.iter().position(|field| *field == name) else {
                return Err(A::Error::unknown_field(&name, &FIELDS));
            };
            if std::mem::replace(&mut seen[index], true) {
                return Err(A::Error::duplicate_field(FIELDS[index]));
            }
            match FIELDS[index] {
                "expires_at_ms" => line.expires_at_ms = map.next_value()?,
                "key" => line.key = map.next_value()?,
                "key_b64" => line.key_b64 = map.next_value()?,
                "value" => line.value = map.next_value()?,
                "value_b64" => line.value_b64 = map.next_value()?,
                _ => line.keyspace = map.next_value()?,
            }
        }
        Ok(line)
    }
}

/// Writes one line; without `value` only the key.
pub fn write(
    out: &mut dyn Write,
    keyspace: Option<&str>,
    key: &[u8],
    value: Option<&[u8]>,
    expiry: Option<Expiry>,
) -> io::Result<()> {
    let mut separator = "{";
    let texts = [("keyspace", keyspace.map(str::as_bytes)), ("key", Some(key)), ("value", value)];
    for (name, bytes) in texts.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))) {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                write!(out, "{separator}\"{name}\":")?;
                serde_json::to_writer(&mut *out, text).map_err(io::Error::from)?;
            }
            Err(_) => write!(out, "{separator}\"{name}_b64\":\"{}\"", base64::encode(bytes))?,
        }
        separator = ",";
    }
    if let Some(expiry) = expiry {
        write!(out, "{separator}\"expires_at_ms\":{}", expiry.millis())?;
    }
    out.write_all(b"}\n")
}

/// Reads one line, without its newline.
pub fn parse(line: &[u8]) -> Result<Record, String> {
    if line.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err("a record must be an object, such as {\"key\":\"k\",\"value\":\"v\"}, and not an array".into());
    }
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string().replace(" at line 1", " at"))?;
    Ok(Record {
        key: bytes("key", line.key, line.key_b64)?,
        value: bytes("value", line.value, line.value_b64)?,
        expiry: line.expires_at_ms.map(Expiry::at_millis),
        keyspace: line.keyspace,
    })
}

fn bytes(name: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => {
            base64::decode(base64.as_bytes()).map_err(|error| format!("{name}_b64 is not base64: {error}"))
        }
        (None, None) => Err(format!("the record has neither \"{name}\" nor \"{name}_b64\"")),
        (Some(_), Some(_)) => Err(format!("use \"{name}\" or \"{name}_b64\", not both")),
    }
}

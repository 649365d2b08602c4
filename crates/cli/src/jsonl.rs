//! Records as lines of JSON: `{"key":"...","value":"..."}`.
//!
//! Bytes that are no UTF-8 are base64 under `key_b64` or `value_b64`, so that any bytes go through
//! unchanged. A key that expires has `expires_at_ms`, milliseconds since the Unix epoch. A record
//! of a named keyspace may have `keyspace`. Other names are refused.

use std::io::{self, Write};

use lodestore::Expiry;
use serde::{Deserialize, Serialize};

use crate::base64;
use crate::format::Record;

#[derive(Serialize)]
struct LineOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    keyspace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineIn {
    key: Option<String>,
    key_b64: Option<String>,
    value: Option<String>,
    value_b64: Option<String>,
    expires_at_ms: Option<u64>,
    keyspace: Option<String>,
}

/// Writes one line; without `value` only the key.
pub fn write(
    out: &mut dyn Write,
    keyspace: Option<&str>,
    key: &[u8],
    value: Option<&[u8]>,
    expiry: Option<Expiry>,
) -> io::Result<()> {
    let (key, key_b64) = text_or_base64(Some(key));
    let (value, value_b64) = text_or_base64(value);
    let line = LineOut { keyspace, key, key_b64, value, value_b64, expires_at_ms: expiry.map(Expiry::millis) };
    serde_json::to_writer(&mut *out, &line).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

fn text_or_base64(bytes: Option<&[u8]>) -> (Option<&str>, Option<String>) {
    match bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| base64::encode(bytes))) {
        None => (None, None),
        Some(Ok(text)) => (Some(text), None),
        Some(Err(base64)) => (None, Some(base64)),
    }
}

/// Reads one line, without its newline.
pub fn parse(line: &[u8]) -> Result<Record, String> {
    // The derived reader takes an array for the fields in their order.
    if line.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err("a record is an object, such as {\"key\":\"k\",\"value\":\"v\"}, and no array".into());
    }
    let line: LineIn = serde_json::from_slice(line).map_err(|error| error.to_string().replace(" at line 1", " at"))?;
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
            base64::decode(base64.as_bytes()).map_err(|error| format!("{name}_b64 is no base64: {error}"))
        }
        (None, None) => Err(format!("there is no \"{name}\" and no \"{name}_b64\"")),
        (Some(_), Some(_)) => Err(format!("give \"{name}\" or \"{name}_b64\", not both")),
    }
}

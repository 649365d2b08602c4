//! A JSON object of an import that is decoded piece by piece.

use lodestore::Expiry;

use super::bounded::BoundedBytes;
use crate::base64;
use crate::format::Record;

/// Longest kept name in the object; all known names are shorter.
const NAME_BYTES_MAX: usize = 64;
/// Longest kept number or word.
const WORD_BYTES_MAX: usize = 64;
/// Bytes of base64 that are decoded at once: a multiple of 4.
const BASE64_CHUNK_BYTES: usize = 16 << 10;
/// Texts are at even indexes, and their base64 after them.
const NAMES: [&str; 6] = ["key", "key_b64", "value", "value_b64", "keyspace", "expires_at_ms"];
/// Indexes of fields in [`NAMES`].
const KEYSPACE_INDEX: usize = 4;
const EXPIRY_INDEX: usize = 5;
/// Maximum bytes of a kept name of a keyspace.
const KEYSPACE_BYTES_MAX: usize = 64 << 10;

/// The next expected token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Start,
    NameOrEnd,
    Name,
    InName,
    Colon,
    Value,
    InText,
    InWord,
    CommaOrEnd,
    End,
}

/// The part of the object read so far.
#[derive(Debug)]
pub struct Json {
    expected: Expected,
    string: StringDecoder,
    name: BoundedBytes,
    /// The field being read, an index into [`NAMES`].
    field: usize,
    seen: [bool; NAMES.len()],
    /// The key, the value and the keyspace, whichever of their fields they come from.
    texts: [Option<Text>; 3],
    word: BoundedBytes,
    millis: Option<u64>,
}

/// A key or a value.
#[derive(Debug)]
struct Text {
    decoded: BoundedBytes,
    /// For base64, the characters that are not decoded yet.
    base64: Option<Vec<u8>>,
}

impl Json {
    pub fn new() -> Self {
        Self {
            expected: Expected::Start,
            string: StringDecoder::default(),
            name: BoundedBytes::new("name", NAME_BYTES_MAX),
            field: 0,
            seen: [false; NAMES.len()],
            texts: [None, None, None],
            word: BoundedBytes::new("number", WORD_BYTES_MAX),
            millis: None,
        }
    }

    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = match self.expected {
                Expected::InName => self.read_name(rest)?,
                Expected::InText => self.read_text(rest)?,
                Expected::InWord => self.read_word(rest)?,
                _ => {
                    self.read_punctuation(rest[0])?;
                    usize::from(self.expected != Expected::InWord)
                }
            };
            rest = &rest[used..];
        }
        Ok(())
    }

    /// Reads a byte between names and values.
    fn read_punctuation(&mut self, byte: u8) -> Result<(), String> {
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            return Ok(());
        }
        self.expected = match (self.expected, byte) {
            (Expected::Start, b'{') => Expected::NameOrEnd,
            (Expected::NameOrEnd | Expected::Name, b'"') => Expected::InName,
            (Expected::NameOrEnd | Expected::CommaOrEnd, b'}') => Expected::End,
            (Expected::Colon, b':') => Expected::Value,
            (Expected::Value, b'"') => {
                self.begin_text()?;
                Expected::InText
            }
            (Expected::Value, b'0'..=b'9' | b'-' | b'a'..=b'z') => Expected::InWord,
            (Expected::CommaOrEnd, b',') => Expected::Name,
            (at, _) => {
                let expected = match at {
                    Expected::Start => "an object",
                    Expected::NameOrEnd | Expected::Name => "a name",
                    Expected::Colon => "a colon",
                    Expected::CommaOrEnd => "a comma or the end of the object",
                    Expected::End => "nothing after the object",
                    _ => "a string, a number or null",
                };
                return Err(format!("{:?} is not part of a record: {expected} is expected", char::from(byte)));
            }
        };
        Ok(())
    }

    fn read_name(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let name = &mut self.name;
        let (used, ended) = self.string.read(bytes, &mut |decoded| name.extend(decoded))?;
        if ended {
            let name = String::from_utf8_lossy(self.name.as_bytes()).into_owned();
            let known = NAMES.iter().position(|known| *known == name);
            self.field = known.ok_or_else(|| format!("unknown field {name:?}, use {}", NAMES.join(", ")))?;
            if std::mem::replace(&mut self.seen[self.field], true) {
                return Err(format!("the record has {name:?} twice"));
            }
            self.name.clear();
            self.expected = Expected::Colon;
        }
        Ok(used)
    }

    fn begin_text(&mut self) -> Result<(), String> {
        if self.field == EXPIRY_INDEX {
            return Err("\"expires_at_ms\" is not a number of milliseconds".into());
        }
        let text = &mut self.texts[self.field / 2];
        if text.is_some() {
            let name = NAMES[self.field / 2 * 2];
            return Err(format!("use \"{name}\" or \"{name}_b64\", not both"));
        }
        let decoded = match self.field {
            0 | 1 => BoundedBytes::key(),
            KEYSPACE_INDEX => BoundedBytes::new("keyspace", KEYSPACE_BYTES_MAX),
            _ => BoundedBytes::value(),
        };
        *text = Some(Text { decoded, base64: (self.field % 2 == 1).then(Vec::new) });
        Ok(())
    }

    fn read_text(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let name = NAMES[self.field];
        let text = self.texts[self.field / 2].as_mut().ok_or("the field does not exist")?;
        let (used, ended) = self.string.read(bytes, &mut |decoded| text.extend(name, decoded))?;
        if ended {
            text.end(name)?;
            self.expected = Expected::CommaOrEnd;
        }
        Ok(used)
    }

    fn read_word(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let ends = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b'}');
        let end = bytes.iter().position(ends);
        let used = end.unwrap_or(bytes.len());
        self.word.extend(&bytes[..used])?;
        if end.is_some() {
            let word = String::from_utf8_lossy(self.word.as_bytes()).into_owned();
            self.word.clear();
            self.expected = Expected::CommaOrEnd;
            if word != "null" {
                let digits = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
                let millis = word.parse().ok().filter(|_| digits && self.field == EXPIRY_INDEX);
                let what = || format!("invalid type: {word} is not a {}", NAMES[self.field]);
                self.millis = Some(millis.ok_or_else(what)?);
            }
        }
        Ok(used)
    }

    pub fn finish(self) -> Result<Record, String> {
        if self.expected != Expected::End {
            return Err("EOF: the line ends before the end of its object".into());
        }
        let [key, value, keyspace] = self.texts;
        let bytes = |text: Option<Text>, name: &str| {
            let text = text.ok_or_else(|| format!("the record has neither \"{name}\" nor \"{name}_b64\""))?;
            Ok::<_, String>(text.decoded.into_bytes())
        };
        Ok(Record {
            key: bytes(key, "key")?,
            value: bytes(value, "value")?,
            expiry: self.millis.map(Expiry::at_millis),
            keyspace: keyspace
                .map(|text| String::from_utf8(text.decoded.into_bytes()).map_err(|_| "\"keyspace\" is not UTF-8"))
                .transpose()?,
        })
    }
}

impl Text {
    fn extend(&mut self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let Some(pending) = &mut self.base64 else { return self.decoded.extend(bytes) };
        // Appending by chunks keeps the undecoded text short.
        for part in bytes.chunks(BASE64_CHUNK_BYTES) {
            pending.extend_from_slice(part);
            if pending.len() >= BASE64_CHUNK_BYTES {
                let rest = pending.split_off(pending.len() / 4 * 4);
                let whole = std::mem::replace(pending, rest);
                decode(name, &whole, &mut self.decoded)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, name: &str) -> Result<(), String> {
        match self.base64.take() {
            Some(pending) => decode(name, &pending, &mut self.decoded),
            None => std::str::from_utf8(self.decoded.as_bytes())
                .map(drop)
                .map_err(|_| format!("\"{name}\" is not UTF-8: use \"{name}_b64\"")),
        }
    }
}

fn decode(name: &str, text: &[u8], decoded: &mut BoundedBytes) -> Result<(), String> {
    let bytes = base64::decode(text).map_err(|error| format!("{name} is not base64: {error}"))?;
    decoded.extend(&bytes)
}

/// The state of a string of JSON after its opening quote.
#[derive(Debug, Default)]
struct StringDecoder {
    escape: Escape,
    /// The first half of a surrogate pair.
    high_surrogate: Option<u16>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Escape {
    #[default]
    No,
    Backslash,
    Unicode {
        digits: u8,
        unit: u16,
    },
}

impl StringDecoder {
    /// Decodes `bytes` up to the closing quote. Returns the number of bytes used, and whether the
    /// quote was among them.
    fn read(
        &mut self,
        bytes: &[u8],
        out: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(usize, bool), String> {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            match self.escape {
                Escape::No => {
                    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
                    let (run, after) = rest.split_at(rest.iter().position(special).unwrap_or(rest.len()));
                    if self.high_surrogate.is_some() && (!run.is_empty() || byte != b'\\') {
                        return Err("half of a surrogate pair is not a character".into());
                    }
                    out(run)?;
                    rest = after;
                    let Some((&byte, after)) = rest.split_first() else { break };
                    rest = after;
                    match byte {
                        b'"' => return Ok((bytes.len() - rest.len(), true)),
                        b'\\' => self.escape = Escape::Backslash,
                        _ => return Err("a control character in a string must be escaped".into()),
                    }
                }
                Escape::Backslash => {
                    rest = &rest[1..];
                    self.read_escaped(byte, out)?;
                }
                Escape::Unicode { digits, unit } => {
                    rest = &rest[1..];
                    self.read_digit(byte, (digits, unit), out)?;
                }
            }
        }
        Ok((bytes.len(), false))
    }

    fn read_escaped(&mut self, byte: u8, out: &mut dyn FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
        if byte == b'u' {
            self.escape = Escape::Unicode { digits: 0, unit: 0 };
            return Ok(());
        }
        if self.high_surrogate.is_some() {
            return Err("half of a surrogate pair is not a character".into());
        }
        self.escape = Escape::No;
        out(match byte {
            b'"' => b"\"",
            b'\\' => b"\\",
            b'/' => b"/",
            b'b' => b"\x08",
            b'f' => b"\x0c",
            b'n' => b"\n",
            b'r' => b"\r",
            b't' => b"\t",
            _ => return Err(format!("\\{} is not an escape sequence", char::from(byte))),
        })
    }

    fn read_digit(
        &mut self,
        byte: u8,
        (digits, unit): (u8, u16),
        out: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let digit = char::from(byte).to_digit(16).ok_or("\\u needs four hexadecimal digits")?;
        let unit = unit << 4 | digit as u16;
        if digits < 3 {
            self.escape = Escape::Unicode { digits: digits + 1, unit };
            return Ok(());
        }
        self.escape = Escape::No;
        let units = match (self.high_surrogate.take(), unit) {
            (None, 0xd800..0xdc00) => {
                self.high_surrogate = Some(unit);
                return Ok(());
            }
            (None, _) => [unit].to_vec(),
            (Some(high_surrogate), _) => [high_surrogate, unit].to_vec(),
        };
        let text = String::from_utf16(&units).map_err(|_| "half of a surrogate pair is not a character")?;
        out(text.as_bytes())
    }
}

//! A JSON document that is written from front to back.

use std::fmt::Write as _;

/// Writes one JSON document. Commas are inserted between the parts.
#[derive(Debug, Default)]
pub(super) struct JsonWriter(String);

impl JsonWriter {
    /// Writes an object, whose fields `write` adds.
    pub(super) fn object(&mut self, write: impl FnOnce(&mut Self)) {
        self.enclose(['{', '}'], write);
    }

    /// Writes an array, whose elements `write` adds.
    pub(super) fn array(&mut self, write: impl FnOnce(&mut Self)) {
        self.enclose(['[', ']'], write);
    }

    /// Writes the name of a field. Its value follows.
    pub(super) fn name(&mut self, name: &str) -> &mut Self {
        self.text(name);
        self.0.push(':');
        self
    }

    pub(super) fn number(&mut self, number: u64) {
        self.separate();
        // Writing to a string does not fail.
        let _ = write!(self.0, "{number}");
    }

    pub(super) fn text(&mut self, text: &str) {
        self.separate();
        self.0.push('"');
        for character in text.chars() {
            match character {
                '"' | '\\' => self.0.extend(['\\', character]),
                control if control.is_control() => {
                    let _ = write!(self.0, "\\u{:04x}", u32::from(control));
                }
                other => self.0.push(other),
            }
        }
        self.0.push('"');
    }

    /// Returns the document as one line.
    pub(super) fn finish(mut self) -> String {
        self.0.push('\n');
        self.0
    }

    fn enclose(&mut self, [open, close]: [char; 2], write: impl FnOnce(&mut Self)) {
        self.separate();
        self.0.push(open);
        write(self);
        self.0.push(close);
    }

    /// Writes the comma before a part that follows another one.
    fn separate(&mut self) {
        if !matches!(self.0.chars().next_back(), None | Some('{' | '[' | ':')) {
            self.0.push(',');
        }
    }
}

/// Characters that change the direction of the text around them.
const DIRECTION_CONTROLS: [char; 12] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}',
    '\u{2067}', '\u{2068}', '\u{2069}',
];

/// Returns bytes of a client as text. Bytes and characters that cannot be shown become escapes.
pub(super) fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                text.extend(character.escape_default());
            } else if DIRECTION_CONTROLS.contains(&character) {
                text.extend(character.escape_unicode());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_separated_and_texts_are_escaped() {
        let mut json = JsonWriter::default();
        json.object(|json| {
            json.name("a").number(1);
            json.name("b").text("\"\\\n\u{e9}{");
            json.name("c").array(|json| {
                json.array(|json| (1..=2).for_each(|number| json.number(number)));
                json.object(|_| {});
                json.text("[");
                json.text("");
            });
        });
        assert_eq!(json.finish(), "{\"a\":1,\"b\":\"\\\"\\\\\\u000a\u{e9}{\",\"c\":[[1,2],{},\"[\",\"\"]}\n");
    }

    #[test]
    fn bytes_that_cannot_be_shown_are_escaped() {
        assert_eq!(printable("a<b>\u{e9}".as_bytes()), "a<b>\u{e9}");
        assert_eq!(printable(b"\x00\n\xff\xe2\x80x"), "\\u{0}\\n\\xff\\xe2\\x80x");
        assert_eq!(printable("\u{202e}gpj".as_bytes()), "\\u{202e}gpj");
    }
}

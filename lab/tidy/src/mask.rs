//! Source text of Rust, split into code and comments.

/// A source file with its comments apart from its code.
#[derive(Debug)]
pub struct Masked {
    /// The code: comments, and the content of strings and characters, are spaces. Lines stay.
    pub code: String,
    /// Whole-line comments in the order of the file.
    pub comments: Vec<Comment>,
    /// Number of lines of the file.
    pub line_count: usize,
}

/// A comment that fills one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// Line number, starting at 1.
    pub line: usize,
    /// Columns of the whole line, in characters.
    pub columns: usize,
    /// `//`, `///` or `//!`.
    pub marker: &'static str,
    /// The text after the marker, without the space that follows the marker.
    pub text: String,
}

/// State of the scanner between two characters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text,
    RawText { hashes: usize },
}

impl Masked {
    /// Splits the text of a Rust file.
    pub fn new(text: &str) -> Self {
        let (code, begins_in_text) = mask_code(text);
        let mut comments = Vec::new();
        for (index, (line, masked)) in text.lines().zip(code.lines()).enumerate() {
            let trimmed = line.trim_start();
            // A line inside a string or a block comment may begin with slashes.
            if !trimmed.starts_with("//") || !masked.trim().is_empty() || begins_in_text[index] {
                continue;
            }
            let marker = if trimmed.starts_with("//!") {
                "//!"
            } else if trimmed.starts_with("///") {
                "///"
            } else {
                "//"
            };
            let rest = &trimmed[marker.len()..];
            comments.push(Comment {
                line: index + 1,
                columns: line.chars().count(),
                marker,
                text: rest.strip_prefix(' ').unwrap_or(rest).to_owned(),
            });
        }
        Self { code, comments, line_count: text.lines().count() }
    }
}

/// Replaces comments and the content of strings and characters by spaces. Returns for each line
/// whether it begins outside of code as well.
fn mask_code(text: &str) -> (String, Vec<bool>) {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut begins_in_text = vec![false];
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        let (next, written) = step(&chars, at, &mut state);
        for (offset, original) in chars[at..next].iter().enumerate() {
            let keep = written.is_some_and(|(from, to)| offset >= from && offset < to);
            out.push(if keep || *original == '\n' { *original } else { ' ' });
            if *original == '\n' {
                begins_in_text.push(!matches!(state, State::Code | State::LineComment));
            }
        }
        at = next;
    }
    (out, begins_in_text)
}

/// Consumes at least one character. Returns the next position and the kept range of offsets.
fn step(chars: &[char], at: usize, state: &mut State) -> (usize, Option<(usize, usize)>) {
    let char_at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    match *state {
        State::Code => step_code(chars, at, state),
        State::LineComment => {
            if char_at(at) == '\n' {
                *state = State::Code;
            }
            (at + 1, None)
        }
        State::BlockComment { depth } => {
            if char_at(at) == '*' && char_at(at + 1) == '/' {
                let outer = State::BlockComment { depth: depth.saturating_sub(1) };
                *state = if depth == 1 { State::Code } else { outer };
                return (at + 2, None);
            }
            if char_at(at) == '/' && char_at(at + 1) == '*' {
                *state = State::BlockComment { depth: depth + 1 };
                return (at + 2, None);
            }
            (at + 1, None)
        }
        State::Text => match char_at(at) {
            '\\' => ((at + 2).min(chars.len()), None),
            '"' => {
                *state = State::Code;
                (at + 1, Some((0, 1)))
            }
            _ => (at + 1, None),
        },
        State::RawText { hashes } => {
            if char_at(at) == '"' && (1..=hashes).all(|offset| char_at(at + offset) == '#') {
                *state = State::Code;
                return (at + 1 + hashes, Some((0, 1)));
            }
            (at + 1, None)
        }
    }
}

/// One step in code.
fn step_code(chars: &[char], at: usize, state: &mut State) -> (usize, Option<(usize, usize)>) {
    let char_at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let current = char_at(at);
    if current == '/' && char_at(at + 1) == '/' {
        *state = State::LineComment;
        return (at + 2, None);
    }
    if current == '/' && char_at(at + 1) == '*' {
        *state = State::BlockComment { depth: 1 };
        return (at + 2, None);
    }
    if current == '"' {
        *state = State::Text;
        return (at + 1, Some((0, 1)));
    }
    let after_name = at > 0 && (char_at(at - 1).is_alphanumeric() || char_at(at - 1) == '_');
    let is_raw = current == 'r' && (!after_name || char_at(at - 1) == 'b' || char_at(at - 1) == 'c');
    if is_raw {
        let hashes = (1..).take_while(|offset| char_at(at + offset) == '#').count();
        if char_at(at + 1 + hashes) == '"' {
            *state = State::RawText { hashes };
            return (at + 2 + hashes, Some((1 + hashes, 2 + hashes)));
        }
    }
    if current == '\'' {
        // A character literal ends with a quote; a lifetime does not.
        if char_at(at + 1) == '\\' {
            let end = (at + 3..chars.len()).find(|index| char_at(*index) == '\'').unwrap_or(at + 2);
            return (end + 1, None);
        }
        if char_at(at + 2) == '\'' {
            return (at + 3, None);
        }
    }
    (at + 1, Some((0, 1)))
}

/// Returns the identifiers and numbers of a text.
pub fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::Masked;

    #[test]
    fn strings_and_comments_are_no_code_and_lines_stay() {
        let masked =
            Masked::new("let a = \"// no { comment\"; // unsafe\nlet b = '{'; let c: &'a str = r#\"unsafe\"#;\n");
        assert!(!masked.code.contains("unsafe") && !masked.code.contains('{'), "{}", masked.code);
        assert!(masked.code.contains("let c: &'a str"), "{}", masked.code);
        assert_eq!(masked.code.lines().count(), 2);
    }

    #[test]
    fn a_line_of_a_string_that_begins_with_slashes_is_no_comment() {
        let masked = Masked::new("let a = \"\n// text\n\";\n// comment\n/* block */\n");
        let lines: Vec<usize> = masked.comments.iter().map(|comment| comment.line).collect();
        assert_eq!(lines, [4]);
    }
}

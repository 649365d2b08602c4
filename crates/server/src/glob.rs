//! Patterns of `KEYS`, `SCAN` and `CONFIG GET`, as Redis matches them.
//!
//! `*` matches any bytes, `?` one byte, `[a-c]` one byte of a set, `[^a-c]` one byte outside of
//! it, and `\` the next byte itself.

/// Whether `text` matches `pattern`. The time is at most the product of both lengths.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern_at, mut text_at) = (0, 0);
    // The position to continue at if the bytes after the last `*` do not match.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(pattern_at) == Some(&b'*') {
            pattern_at += 1;
            retry = Some((pattern_at, text_at));
            continue;
        }
        if text_at == text.len() {
            return pattern_at == pattern.len();
        }
        match match_byte(&pattern[pattern_at..], text[text_at]) {
            Some(length) => {
                pattern_at += length;
                text_at += 1;
            }
            None => match &mut retry {
                Some((after_star, from)) => {
                    *from += 1;
                    (pattern_at, text_at) = (*after_star, *from);
                }
                None => return false,
            },
        }
    }
}

/// Whether a pattern has no special byte, so that only one text matches it.
pub(crate) fn is_literal(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"*?[\\".contains(byte))
}

/// Returns the bytes at the begin of each text that matches `pattern`.
pub(crate) fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    &pattern[..end.unwrap_or(pattern.len())]
}

/// Returns the length of the first element of `pattern` if it matches `byte`.
fn match_byte(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', set @ ..] => {
            let (is_member, length) = match_set(set, byte);
            is_member.then_some(1 + length)
        }
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// Returns whether `byte` is in the set, and the set's length with its `]`. A set without `]` ends
/// with the pattern.
fn match_set(set: &[u8], byte: u8) -> (bool, usize) {
    let is_negated = set.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut is_member = false;
    loop {
        match &set[at.min(set.len())..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                is_member |= *escaped == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                is_member |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                is_member |= *literal == byte;
                at += 1;
            }
        }
    }
    (is_member != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases = [
            ("*", "", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbbd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("[ab", "a", true),
            ("**a**", "xxaxx", true),
            ("*a*b*c", "aabbcc", true),
            ("a\\", "a\\", true),
            ("", "", true),
            ("", "a", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_is_matched_in_bounded_time() {
        let pattern = b"*a".repeat(1000);
        assert!(!matches(&pattern, &b"a".repeat(999)));
        assert!(matches(&pattern, &b"a".repeat(1000)));
    }
}

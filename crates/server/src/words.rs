//! Words of the protocol, which have no case.

/// Whether an argument is this word, in any case of letters.
pub(crate) fn is_word(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

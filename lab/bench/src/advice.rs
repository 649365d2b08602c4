//! Translates the library calls in an error text into the flags of this program.

/// The library call that sets an option: the parts before and after the option's name.
const SET_CALL: (&str, &str) = ("`Builder::set(\"", "\", ..)`");

/// Replaces the library's calls in a text by this program's flags.
#[must_use]
pub fn translate(text: &str) -> String {
    let (begin, end) = SET_CALL;
    let mut translated = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(begin)
        && let Some((option, behind)) = after.split_once(end)
    {
        translated += &format!("{before}--set {option}=VALUE");
        rest = behind;
    }
    (translated + rest).replace("`Builder::capacity`", "--size SIZE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_set_an_option_are_flags() {
        let text = "more `Builder::set(\"segment\", ..)`, or `Builder::set(\"partitions\", ..)`; `Builder::capacity`.";
        assert_eq!(translate(text), "more --set segment=VALUE, or --set partitions=VALUE; --size SIZE.");
        assert_eq!(translate("`Builder::set(\"cut"), "`Builder::set(\"cut");
    }
}

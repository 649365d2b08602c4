//! The TOML file.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{OptionError, Origin, Setting};

/// Longest file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Vec<Setting>, OptionError> {
    let unreadable = |what: String| OptionError::Unreadable { path: path.into(), what };
    let bytes = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(unreadable(format!("the file has {bytes} bytes, and the maximum is {FILE_BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Setting>, OptionError> {
    let table = DeTable::parse(text).map_err(|error| OptionError::File {
        path: path.into(),
        line: line_of(text, error.span()),
        what: error.message().lines().collect::<Vec<_>>().join("; "),
    })?;
    let mut found: Vec<(usize, Setting)> = Vec::new();
    for (key, value) in table.get_ref() {
        let (name, line) = (key.get_ref().to_string(), line_of(text, Some(key.span())));
        let origin = Origin::File { path: path.into(), line, key: name.clone() };
        match values_of(value) {
            Ok(values) => found.push((line, Setting { name, values, origin })),
            Err(what) => return Err(OptionError::Value { origin, what }),
        }
    }
    // The table has the order of the keys. Errors name the first line.
    found.sort_by_key(|(line, _)| *line);
    Ok(found.into_iter().map(|(_, setting)| setting).collect())
}

/// Returns the line of a byte, from 1.
fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let start = span.map_or(0, |span| span.start).min(text.len());
    text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn values_of(value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, String> {
    match value.get_ref() {
        DeValue::Array(values) => values.iter().map(|value| text_of(value.get_ref())).collect(),
        value => Ok(vec![text_of(value)?]),
    }
}

fn text_of(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.as_ref().to_owned()),
        DeValue::Boolean(is_true) => Ok(if *is_true { "yes" } else { "no" }.into()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| "the number is too long".into()),
        DeValue::Table(_) => Err("the file has no tables: write each option as NAME = VALUE".into()),
        _ => Err("use a text, a whole number, true or false, or a list of these".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(Path::new("a.toml"), text).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn keys_and_values_are_read_in_the_order_of_lines() {
        let text = "# comment\nlisten = [\"127.0.0.1:1\", \"[::1]:1\"]\nmaxclients = 0x10\ncreate = true\n\
                    requirepass = \"secret\"\nappendonly = \"no\"\n";
        let found = parse(Path::new("a.toml"), text).expect("options");
        let shown = found.iter().map(|setting| format!("{} {}", setting.values.join(","), setting.origin));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "127.0.0.1:1,[::1]:1 a.toml, line 2, listen",
                "16 a.toml, line 3, maxclients",
                "yes a.toml, line 4, create",
                "secret a.toml, line 5, requirepass",
                "no a.toml, line 6, appendonly",
            ]
        );
    }

    #[test]
    fn errors_name_file_line_and_key() {
        for (text, expected) in [
            (
                "timeout = 1.5\n",
                "a.toml, line 1, timeout: use a text, a whole number, true or false, or a list of these",
            ),
            ("\n\n[server]\ntimeout = 1\n", "a.toml, line 3, server: the file has no tables"),
            ("timeout = \n", "a.toml, line 1: "),
            ("timeout = 1\ntimeout = 2\n", "a.toml, line 2: duplicate key"),
        ] {
            let error = refused(text);
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn unknown_names_wrong_constants_and_names_of_the_same_option_are_refused() {
        for (text, expected) in [
            ("\nmaxclient = 1\n", "a.toml, line 2, maxclient: there is no such option; did you mean maxclients?"),
            ("appendonly = true\n", "a.toml, line 1, appendonly: the only value is \"no\""),
            (
                "password = \"a\"\nrequirepass = \"b\"\n",
                "a.toml, line 2, requirepass: the option is set twice; the other setting is a.toml, line 1, password",
            ),
        ] {
            let settings = parse(Path::new("a.toml"), text).expect("settings");
            let mut resolved = crate::options::resolve(None, [], &[]).expect("a configuration");
            let error = resolved.apply(settings).expect_err("a refusal").to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}

//! The TOML file.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Given, OptionError, OptionSpec, Origin, constants, find};

/// Longest file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Vec<Given>, OptionError> {
    let unreadable = |what: String| OptionError::Unreadable { path: path.into(), what };
    let bytes = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(unreadable(format!("it has {bytes} bytes, and at most {FILE_BYTES_MAX} are read")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Given>, OptionError> {
    let refused = |line, what| OptionError::File { path: path.into(), line, what };
    let table = DeTable::parse(text).map_err(|error| {
        refused(line_of(text, error.span()), error.message().lines().collect::<Vec<_>>().join("; "))
    })?;
    let mut found: Vec<Given> = Vec::new();
    for (key, value) in table.get_ref() {
        let (name, line) = (key.get_ref().as_ref(), line_of(text, Some(key.span())));
        let values = values_of(value).map_err(|what| refused(line, format!("{name}: {what}")))?;
        let Some(option) = find(name) else {
            check_constant(name, &values).map_err(|what| refused(line, what))?;
            continue;
        };
        if let Some(other) = found.iter().find(|other| std::ptr::eq(other.option, option)) {
            return Err(refused(line, format!("{name}: the option is set twice, also by {}", other.origin)));
        }
        found.push(given(option, values, Origin::File { path: path.into(), line, key: name.into() }));
    }
    Ok(found)
}

fn given(option: &'static OptionSpec, values: Vec<String>, origin: Origin) -> Given {
    Given { option, values, origin }
}

/// Accepts a parameter of Redis that has one value here, if the file has this value.
fn check_constant(name: &str, values: &[String]) -> Result<(), String> {
    match constants().iter().find(|(known, _)| *known == name) {
        Some((_, value)) if values.concat() == *value => Ok(()),
        Some((_, value)) => Err(format!("{name}: the only value is {value:?}")),
        None => Err(format!("{name}: there is no such option, see `lodestore config show`")),
    }
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
        _ => Err("give a text, a whole number, true or false, or a list of these".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(Path::new("a.toml"), text).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn keys_of_lodestore_and_of_redis_are_read() {
        let text = "# comment\nlisten = [\"127.0.0.1:1\", \"[::1]:1\"]\nmaxclients = 0x10\ncreate = true\n\
                    requirepass = \"secret\"\nappendonly = \"no\"\n";
        let found = parse(Path::new("a.toml"), text).expect("options");
        let mut shown: Vec<String> = found
            .iter()
            .map(|given| format!("{} {} {}", given.option.name, given.values.join(","), given.origin))
            .collect();
        shown.sort();
        assert_eq!(
            shown,
            [
                "create yes a.toml, line 4, create",
                "listen 127.0.0.1:1,[::1]:1 a.toml, line 2, listen",
                "maxclients 16 a.toml, line 3, maxclients",
                "password secret a.toml, line 5, requirepass",
            ]
        );
    }

    #[test]
    fn errors_name_file_line_and_key() {
        for (text, expected) in [
            ("\nmaxclient = 1\n", "a.toml, line 2: maxclient: there is no such option, see `lodestore config show`"),
            (
                "timeout = 1.5\n",
                "a.toml, line 1: timeout: give a text, a whole number, true or false, or a list of these",
            ),
            ("\n\n[server]\ntimeout = 1\n", "a.toml, line 3: server: give a text"),
            ("appendonly = true\n", "a.toml, line 1: appendonly: the only value is \"no\""),
            (
                "password = \"a\"\nrequirepass = \"b\"\n",
                "line 2: requirepass: the option is set twice, also by a.toml, line 1",
            ),
            ("timeout = \n", "a.toml, line 1: "),
            ("timeout = 1\ntimeout = 2\n", "a.toml, line 2: duplicate key"),
        ] {
            let error = refused(text);
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}

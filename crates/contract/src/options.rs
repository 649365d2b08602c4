//! Engine options as text, `name=value`, with their specification.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::size::parse_size;

/// One option that an engine knows.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Its name, as in `--set name=value`.
    pub name: &'static str,
    /// Its default, as text.
    pub default: &'static str,
    /// What it does and which values it takes, one line.
    pub help: &'static str,
    /// Whether it shapes the store when it is made, so that an open refuses it.
    pub fixed: bool,
}

/// Options of an engine: name to value, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    values: BTreeMap<String, String>,
}

impl Options {
    /// No option set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets one; a later value replaces an earlier one.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.values.insert(name.into(), value.into());
        self
    }

    /// Reads one `name=value`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where there is no `=`, or no name before it.
    pub fn set_text(&mut self, text: &str) -> Result<&mut Self> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(self.set(name, value)),
            _ => Err(Error::InvalidOption {
                name: text.into(),
                value: String::new(),
                why: "give it as name=value".into(),
            }),
        }
    }

    /// The value set, if any.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// All that is set, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Refuses names that are in none of `specs`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] naming the options there are.
    pub fn check_names(&self, specs: &[OptionSpec]) -> Result<()> {
        for (name, value) in self.iter() {
            if !specs.iter().any(|spec| spec.name == name) {
                let known: Vec<_> = specs.iter().map(|spec| spec.name).collect();
                return Err(Error::InvalidOption {
                    name: name.into(),
                    value: value.into(),
                    why: format!("no such option; there are {}", known.join(", ")),
                });
            }
        }
        Ok(())
    }

    /// Refuses options that count at creation only: for an open.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check_open(&self, specs: &[OptionSpec]) -> Result<()> {
        for (name, value) in self.iter() {
            if specs.iter().any(|spec| spec.fixed && spec.name == name) {
                return Err(Error::InvalidOption {
                    name: name.into(),
                    value: value.into(),
                    why: "it is fixed when a store is created; leave it out, or create a new store with it".into(),
                });
            }
        }
        Ok(())
    }

    /// The value of `name`, a size in bytes such as `4096` or `64M` ([`parse_size`]), or `default` where it is not set.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where it is none.
    pub fn read_size<T: TryFrom<u64>>(&self, name: &str, default: T) -> Result<T> {
        let parse = |text: &str| parse_size(text).ok().and_then(|bytes| T::try_from(bytes).ok());
        self.read(name, default, "a size such as 4096 or 64M", parse)
    }

    /// The value of `name`, read by `parse`, or `default` where it is not set.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] saying `takes` where `parse` refuses it.
    pub fn read<T>(&self, name: &str, default: T, takes: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        match self.get(name) {
            None => Ok(default),
            Some(value) => parse(value).ok_or_else(|| Error::InvalidOption {
                name: name.into(),
                value: value.into(),
                why: format!("it takes {takes}"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec { name: "size", default: "8", help: "a number", fixed: true },
        OptionSpec { name: "mode", default: "fast", help: "fast or safe", fixed: false },
    ];

    #[test]
    fn text_sets_one_option_and_later_text_replaces_it() {
        let mut options = Options::new();
        options.set_text("size=3").expect("valid").set_text("mode=a=b").expect("the first = counts");
        options.set_text("size=").expect("an empty value is a value");
        assert_eq!(options.iter().collect::<Vec<_>>(), [("mode", "a=b"), ("size", "")]);
        assert_eq!((options.get("size"), options.get("other")), (Some(""), None));
    }

    #[test]
    fn text_without_a_name_or_an_equals_sign_is_refused() {
        for text in ["", "size", "=3"] {
            let refused = Options::new().set_text(text).err();
            assert!(matches!(refused, Some(Error::InvalidOption { .. })), "{text:?}: {refused:?}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let mut options = Options::new();
        options.set("size", "1").check_names(SPECS).expect("known");
        let refused = options.set("sise", "1").check_names(SPECS).expect_err("unknown").to_string();
        assert!(refused.contains("sise=1") && refused.contains("size, mode"), "{refused}");
        Options::new().check_names(&[]).expect("nothing set is never wrong");
    }

    #[test]
    fn a_value_is_read_or_defaulted_or_refused_with_what_it_takes() {
        let mut options = Options::new();
        let read = |options: &Options| options.read("size", 8, "a number", |text| text.parse::<u32>().ok());
        assert_eq!(read(&options).expect("default"), 8);
        assert_eq!(read(options.set("size", "5")).expect("set"), 5);
        let refused = read(options.set("size", "five")).expect_err("no number").to_string();
        assert_eq!(refused, "option size=five: it takes a number");
    }

    #[test]
    fn a_size_is_read_with_or_without_its_unit_and_refused_where_it_does_not_fit() {
        let mut options = Options::new();
        let read = |options: &Options| options.read_size("size", 8u32);
        assert_eq!(read(&options).expect("default"), 8);
        assert_eq!(read(options.set("size", "4096")).expect("bytes"), 4096);
        assert_eq!(read(options.set("size", "64K")).expect("with a unit"), 65536);
        for wrong in ["4G", "-1", "1.5M", "much"] {
            let refused = read(options.set("size", wrong)).expect_err("no size, or too large for 32 bits").to_string();
            assert!(refused.starts_with(&format!("option size={wrong}: it takes a size")), "{refused}");
        }
    }
}

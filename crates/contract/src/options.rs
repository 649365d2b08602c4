//! Engine options as text, `name=value`, and the macro that declares the options of an engine.

mod kind;
mod table;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use crate::durability::Durability;
use crate::error::{Error, Result};

pub use kind::{
    AnyText, CoresOr, Millis, OneOf, OptionEdges, OptionKind, Paths, Share, Whole, WordOr, ZeroIsNone, ZeroOr,
};
pub use table::{OptionRow, OptionTable, options_table};
#[doc(hidden)]
pub use table::{check_declaration, declared_default};

/// An option of an engine.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Its name in a text `name=value`.
    pub name: &'static str,
    /// Its default, as text.
    pub default: &'static str,
    /// Description of the accepted values.
    pub takes: &'static str,
    /// Description in one line.
    pub help: &'static str,
    /// Whether the option is fixed when a store is created, so that an open refuses it.
    pub fixed: bool,
    /// The cargo feature that adds the option. `None`: every build has the option.
    pub feature: Option<&'static str>,
    /// Whether this build has the option. Otherwise only the default is accepted.
    pub is_built: bool,
}

impl OptionSpec {
    /// Returns the error for a value that the option does not accept.
    pub fn refusal(&self, value: &str) -> Error {
        let why = match self.feature {
            Some(feature) if !self.is_built => format!(
                "this build accepts only {}: with the feature `{feature}` of the crate lodestore, the value may be {}",
                self.default, self.takes
            ),
            _ => format!("the value must be {}", self.takes),
        };
        Error::InvalidOption { name: self.name.into(), value: value.into(), why }
    }
}

/// Options of an engine: name to value, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    values: BTreeMap<String, String>,
}

impl Options {
    /// Returns options with nothing set.
    pub const fn new() -> Self {
        Self { values: BTreeMap::new() }
    }

    /// Sets all options of `other`, replacing options that are set.
    pub fn set_all(&mut self, other: &Self) -> &mut Self {
        self.values.extend(other.iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Sets an option. A later value replaces an earlier one.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.values.insert(name.into(), value.into());
        self
    }

    /// Parses and sets one `name=value`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is no `=`, or no name before it.
    pub fn set_text(&mut self, text: &str) -> Result<&mut Self> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(self.set(name, value)),
            _ => Err(Error::InvalidOption {
                name: text.into(),
                value: String::new(),
                why: "write the option as name=value".into(),
            }),
        }
    }

    /// Returns the value of an option, if it is set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Returns all options that are set, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Refuses names that are not in `specs`, the options of `engine`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], which names the engine and its options.
    pub fn check_names(&self, engine: &str, specs: &[OptionSpec]) -> Result<()> {
        for (name, value) in self.iter() {
            if !specs.iter().any(|spec| spec.name == name) {
                let known: Vec<_> = specs.iter().filter(|spec| spec.is_built).map(|spec| spec.name).collect();
                return Err(Error::InvalidOption {
                    name: name.into(),
                    value: value.into(),
                    why: format!("engine {engine} has no such option; its options are {}", known.join(", ")),
                });
            }
        }
        Ok(())
    }

    /// Refuses options that are fixed at creation; for an open.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check_open(&self, specs: &[OptionSpec]) -> Result<()> {
        for (name, value) in self.iter() {
            if specs.iter().any(|spec| spec.fixed && spec.name == name) {
                return Err(Error::InvalidOption {
                    name: name.into(),
                    value: value.into(),
                    why: "the option is fixed when a store is created; leave it out, or create a new store with this \
                          value"
                        .into(),
                });
            }
        }
        Ok(())
    }
}

impl FromStr for Durability {
    type Err = Error;

    /// Reads `process`, `power` or `interval:MS`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "process" => Ok(Self::Process),
            "power" => Ok(Self::Power),
            _ => text
                .strip_prefix("interval:")
                .and_then(|ms| ms.parse::<u64>().ok())
                .filter(|ms| *ms > 0)
                .map(|ms| Self::Interval(Duration::from_millis(ms)))
                .ok_or_else(|| Error::InvalidOption {
                    name: "durability".into(),
                    value: text.into(),
                    why: "use process, power or interval:MS with MS of at least 1".into(),
                }),
        }
    }
}

#[cfg(test)]
#[path = "options/tests.rs"]
mod table_tests;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: OptionSpec = OptionSpec {
        name: "size",
        default: "8",
        takes: "a number",
        help: "a size",
        fixed: true,
        feature: None,
        is_built: true,
    };
    const SPECS: &[OptionSpec] = &[
        SIZE,
        OptionSpec { name: "mode", default: "fast", takes: "fast or safe", help: "a mode", fixed: false, ..SIZE },
        OptionSpec { name: "slow", default: "0", feature: Some("lab"), is_built: false, ..SIZE },
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
    fn unknown_names_are_refused_with_the_engine_and_the_known_ones() {
        let mut options = Options::new();
        options.set("size", "1").check_names("hikv", SPECS).expect("known");
        let refused = options.set("sise", "1").check_names("hikv", SPECS).expect_err("unknown").to_string();
        assert_eq!(refused, "option sise=1: engine hikv has no such option; its options are size, mode");
        Options::new().check_names("hikv", &[]).expect("nothing set is never wrong");
    }

    #[test]
    fn a_refusal_of_an_option_of_another_build_names_the_feature() {
        Options::new().set("slow", "0").check_names("hikv", SPECS).expect("the name is known");
        assert_eq!(
            SPECS[2].refusal("5").to_string(),
            "option slow=5: this build accepts only 0: with the feature `lab` of the crate lodestore, the value may \
             be a number"
        );
        let built = OptionSpec { is_built: true, ..SPECS[2] };
        assert_eq!(built.refusal("x").to_string(), "option slow=x: the value must be a number");
    }
}

//! The options of a server, in one table.
//!
//! Flags, environment, the TOML file, `CONFIG GET`, `CONFIG SET`, `lodestore config` and the
//! documentation follow from the table. A new option is a field of [`Config`] and an entry of the
//! table. The module `runtime` has the options that change while the server runs.
//!
//! A flag counts more than the environment, the environment more than the file, and the file more
//! than the default.

mod file;
mod kinds;
mod messaging;
mod redis;
mod table;
mod tls;

use std::fmt;
use std::path::{Path, PathBuf};

pub use table::OPTIONS;

pub(crate) use redis::constants;

use crate::config::{Config, ConfigError};

/// When an option may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// At the start of the server only.
    Start,
    /// Also while the server runs, by `CONFIG SET`.
    Runtime,
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Name of the flag, without its dashes, and key in the file.
    pub name: &'static str,
    /// Redis' name, which the file and `CONFIG` take too.
    pub redis: Option<&'static str>,
    /// Kind of value, in a word.
    pub takes: &'static str,
    /// Which values are accepted; empty: all of the kind.
    pub bounds: &'static str,
    /// Whether the option has several values.
    pub is_list: bool,
    /// Whether the flag needs no value.
    pub is_switch: bool,
    /// Whether the value is not shown.
    pub is_secret: bool,
    /// Whether the option only changes a part of another one.
    pub is_derived: bool,
    /// When the option may change.
    pub change: Change,
    /// What the option does.
    pub help: &'static str,
    get: fn(&Config) -> Vec<String>,
    set: fn(&mut Config, &[String]) -> Result<(), String>,
}

impl OptionSpec {
    /// Returns the values in a configuration. A value that is not set has none.
    pub fn values(&self, config: &Config) -> Vec<String> {
        (self.get)(config)
    }

    /// Returns the value as one text, as `CONFIG GET` does.
    pub fn value(&self, config: &Config) -> String {
        self.values(config).join(" ")
    }

    /// Changes a configuration.
    ///
    /// # Errors
    ///
    /// A text that says why the values are refused.
    pub fn set(&self, config: &mut Config, values: &[String]) -> Result<(), String> {
        (self.set)(config, values)
    }

    /// Returns the name of the variable in the environment.
    pub fn variable(&self) -> String {
        format!("LODESTORE_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }

    /// Returns the name that `CONFIG GET` shows: that of Redis, if there is one.
    pub(crate) fn shown_name(&self) -> &'static str {
        self.redis.unwrap_or(self.name)
    }
}

/// Returns the option of a name or of a name of Redis.
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|option| option.name == name || option.redis == Some(name))
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody set the option.
    Default,
    /// A key of the file.
    File {
        /// The file.
        path: PathBuf,
        /// The line of the key, from 1.
        line: usize,
        /// The key as the file has it.
        key: String,
    },
    /// A variable of the environment.
    Environment {
        /// Its name.
        variable: String,
    },
    /// A flag.
    Flag {
        /// Its name, without its dashes.
        name: &'static str,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, key } => write!(f, "{}, line {line}, {key}", path.display()),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag { name } => write!(f, "--{name}"),
        }
    }
}

/// Options that are refused.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's own word.
        what: String,
    },
    /// The file is not TOML, or has a key that is not an option.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The fault.
        what: String,
    },
    /// A value is refused.
    Value {
        /// Where the value comes from.
        origin: Origin,
        /// The fault of the value.
        what: String,
    },
    /// All values are accepted, and their combination is not.
    Config(ConfigError),
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, what } => write!(f, "cannot read the configuration {}: {what}", path.display()),
            Self::File { path, line, what } => write!(f, "{}, line {line}: {what}", path.display()),
            Self::Value { origin, what } => write!(f, "{origin}: {what}"),
            Self::Config(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OptionError {}

/// The values that one source has for an option.
struct Given {
    option: &'static OptionSpec,
    values: Vec<String>,
    origin: Origin,
}

/// A configuration, and where each of its values comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The configuration.
    pub config: Config,
    /// The origin of each entry of [`OPTIONS`].
    pub origins: Vec<Origin>,
}

impl Resolved {
    fn apply(&mut self, given: Vec<Given>) -> Result<(), OptionError> {
        for (option, origin) in OPTIONS.iter().zip(&mut self.origins) {
            for given in given.iter().filter(|given| std::ptr::eq(given.option, option)) {
                option
                    .set(&mut self.config, &given.values)
                    .map_err(|what| OptionError::Value { origin: given.origin.clone(), what })?;
                *origin = given.origin.clone();
            }
        }
        Ok(())
    }
}

/// Combines all sources: the file `file`, the environment, and `flags`, which are names of options
/// with their values. The combination is not checked.
///
/// # Errors
///
/// [`OptionError`], which names the source.
pub fn resolve(
    file: Option<&Path>,
    environment: impl Fn(&str) -> Option<String>,
    flags: &[(&'static str, Vec<String>)],
) -> Result<Resolved, OptionError> {
    let config = Config { file: file.map(Path::to_path_buf), ..Config::default() };
    let mut resolved = Resolved { config, origins: vec![Origin::Default; OPTIONS.len()] };
    if let Some(path) = file {
        resolved.apply(file::read(path)?)?;
    }
    resolved.apply(from_environment(environment))?;
    let flags = flags.iter().filter_map(|(name, values)| {
        let origin = Origin::Flag { name };
        find(name).map(|option| Given { option, values: values.clone(), origin })
    });
    resolved.apply(flags.collect())?;
    Ok(resolved)
}

/// Returns what the environment sets. A list is separated by commas.
fn from_environment(environment: impl Fn(&str) -> Option<String>) -> Vec<Given> {
    let mut found = Vec::new();
    for option in OPTIONS {
        let variable = option.variable();
        if let Some(text) = environment(&variable) {
            let values = match option.is_list {
                true => text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect(),
                false => vec![text],
            };
            found.push(Given { option, values, origin: Origin::Environment { variable } });
        }
    }
    found
}

/// Returns the options as a table in Markdown.
pub fn markdown() -> String {
    use std::fmt::Write as _;
    let default = Config::default();
    let mut text =
        String::from("| Option | Redis | Default | Values | Changes | Meaning |\n|---|---|---|---|---|---|\n");
    for option in OPTIONS {
        let redis = option.redis.map(|name| format!("`{name}`")).unwrap_or_default();
        let value = option.value(&default);
        let value = if value.is_empty() { String::new() } else { format!("`{value}`") };
        let takes = option.takes.replace('|', " or ");
        let bounds = match option.bounds {
            "" => takes,
            bounds => format!("{takes}: {bounds}"),
        };
        let change = if option.change == Change::Runtime { "while running" } else { "at a start" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "| `{}` | {redis} | {value} | {bounds} | {change} | {} |", option.name, option.help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(flags: &[(&'static str, &[&str])], environment: &[(&str, &str)]) -> Result<Resolved, OptionError> {
        let flags: Vec<_> =
            flags.iter().map(|(name, values)| (*name, values.iter().map(|v| (*v).to_owned()).collect())).collect();
        let variable = |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned());
        resolve(None, variable, &flags)
    }

    #[test]
    fn names_of_options_are_unique() {
        for (index, option) in OPTIONS.iter().enumerate() {
            assert!(std::ptr::eq(find(option.name).expect("known"), option), "{}", option.name);
            assert!(option.redis.is_none_or(|name| std::ptr::eq(find(name).expect("known"), option)));
            assert!(OPTIONS[index + 1..].iter().all(|other| other.name != option.name));
        }
    }

    #[test]
    fn each_value_is_accepted_as_it_is_shown() {
        let mut config = Config::default();
        for option in OPTIONS.iter().filter(|option| !option.values(&Config::default()).is_empty()) {
            let values = option.values(&config);
            option.set(&mut config, &values).unwrap_or_else(|error| panic!("{}: {error}", option.name));
        }
        assert_eq!(config, Config::default());
    }

    #[test]
    fn the_environment_counts_less_than_a_flag() {
        let environment = [("LODESTORE_MAXCLIENTS", "7"), ("LODESTORE_LISTEN", "127.0.0.1:1, [::1]:2")];
        let found = resolved(&[("maxclients", &["9"])], &environment).expect("a configuration");
        assert_eq!((found.config.clients_max, found.config.listen.len()), (9, 2));
        let bad = resolved(&[], &[("LODESTORE_TIMEOUT", "soon")]).expect_err("refused");
        assert_eq!(bad.to_string(), "LODESTORE_TIMEOUT: argument couldn't be parsed into an integer");
    }

    #[test]
    fn a_port_changes_the_addresses_and_0_removes_them() {
        let listen = |flags| resolved(flags, &[]).expect("a configuration").config.listen;
        let text = |flags| listen(flags).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(text(&[("port", &["7000"])]), "127.0.0.1:7000");
        assert_eq!(text(&[("port", &["7000"]), ("bind", &["127.0.0.1 ::1"])]), "127.0.0.1:7000 [::1]:7000");
        assert_eq!(text(&[("port", &["0"])]), "");
        assert_eq!(text(&[("listen", &["none"])]), "");
    }
}

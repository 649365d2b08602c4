//! The options of a server, in one table.
//!
//! Flags, environment, the TOML file, `CONFIG GET`, `CONFIG SET`, `lodestore config` and the
//! documentation follow from the table. A new option is a field of [`Config`] and an entry of the
//! table. The module `runtime` has the options that change while the server runs.
//!
//! A flag counts more than the environment, the environment more than the file, and the file more
//! than the default.

mod environment;
mod file;
mod kinds;
mod messaging;
mod names;
mod redis;
mod setters;
mod table;
mod tls;
mod value_error;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

pub use names::find;
pub use redis::constants;
pub use table::OPTIONS;
pub use value_error::ValueError;

use crate::config::{Config, ConfigError};

/// Variable of the environment that names the file.
pub const FILE_VARIABLE: &str = "LODESTORE_CONFIG";

/// Name of the option that an argument sets instead of a flag.
const STORE: &str = "store";

/// When an option may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// At the start of the server only.
    Start,
    /// Also while the server runs, by `CONFIG SET`.
    Runtime,
}

/// An option.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Name of the flag, without its dashes, and key in the file.
    pub name: &'static str,
    /// Redis' name, which flags, variables, the file and `CONFIG` accept too.
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
    /// The option of which this one only changes a part.
    pub part_of: Option<&'static str>,
    /// When the option may change.
    pub change: Change,
    /// The help text.
    pub help: &'static str,
    get: fn(&Config) -> Vec<String>,
    set: fn(&mut Config, &[String]) -> Result<(), ValueError>,
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
    /// [`ValueError`], which says why the values are refused.
    pub fn set(&self, config: &mut Config, values: &[String]) -> Result<(), ValueError> {
        (self.set)(config, values)
    }

    /// Returns the name of the variable in the environment.
    pub fn variable(&self) -> String {
        environment::variable_of(self.name)
    }

    /// Returns the name, and then the name of Redis if it is another one.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.redis.filter(|name| *name != self.name))
    }

    /// Returns the name that `CONFIG GET` shows: that of Redis, if there is one.
    pub(crate) fn shown_name(&self) -> &'static str {
        self.redis.unwrap_or(self.name)
    }
}

/// The source of a value.
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
            Self::Flag { name: STORE } => f.write_str("STORE"),
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
    /// The file is not TOML.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The fault.
        what: String,
    },
    /// A name is unknown, or a value is refused.
    Value {
        /// The source of name and value.
        origin: Origin,
        /// The fault.
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

/// A name with its values, as one source has them.
#[derive(Debug)]
struct Setting {
    name: String,
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
    /// Applies the settings of one source, in the order of [`OPTIONS`].
    fn apply(&mut self, settings: Vec<Setting>) -> Result<(), OptionError> {
        let mut found: Vec<Option<Setting>> = OPTIONS.iter().map(|_| None).collect();
        for setting in settings {
            let index = OPTIONS.iter().position(|option| option.names().any(|name| name == setting.name));
            match index.map(|index| &mut found[index]) {
                None => check_constant(&setting)?,
                Some(Some(other)) => {
                    let what = format!("the option is set twice; the other setting is {}", other.origin);
                    return Err(OptionError::Value { origin: setting.origin, what });
                }
                Some(known) => *known = Some(setting),
            }
        }
        for (index, setting) in found.into_iter().enumerate() {
            let Some(Setting { values, origin, .. }) = setting else { continue };
            if let Err(error) = OPTIONS[index].set(&mut self.config, &values) {
                return Err(OptionError::Value { origin, what: error.to_string() });
            }
            self.forget_parts(OPTIONS[index].name);
            self.origins[index] = origin;
        }
        Ok(())
    }

    /// Forgets where the parts of an option came from, because a value replaced all of them.
    fn forget_parts(&mut self, name: &str) {
        for (option, origin) in OPTIONS.iter().zip(&mut self.origins) {
            if option.part_of == Some(name) {
                *origin = Origin::Default;
            }
        }
    }

    /// Returns where the value of an option comes from, as a text: the origin of the option, and
    /// those of the options that changed a part of its value.
    pub fn origin(&self, option: &OptionSpec) -> String {
        let pairs = || OPTIONS.iter().zip(&self.origins);
        let own = pairs().filter(|(other, _)| other.name == option.name);
        let parts = pairs().filter(|(other, _)| other.part_of == Some(option.name));
        let set: Vec<String> = own
            .chain(parts)
            .filter(|(_, origin)| **origin != Origin::Default)
            .map(|(_, origin)| origin.to_string())
            .collect();
        if set.is_empty() { Origin::Default.to_string() } else { set.join("; ") }
    }
}

/// Accepts a parameter of Redis that has one value here, if the setting has this value.
fn check_constant(setting: &Setting) -> Result<(), OptionError> {
    let what = match names::constant(&setting.name) {
        Some(only) if setting.values.concat() == only => return Ok(()),
        Some(only) => format!("the only value is {only:?}"),
        None => names::unknown(&setting.name),
    };
    Err(OptionError::Value { origin: setting.origin.clone(), what })
}

/// Combines all sources: the file `file`, the variables of the environment, and `flags`, which are
/// names with their values. The combination is not checked.
///
/// # Errors
///
/// [`OptionError`], which names the source.
pub fn resolve(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &[(&'static str, Vec<String>)],
) -> Result<Resolved, OptionError> {
    let config = Config { file: file.map(Path::to_path_buf), ..Config::default() };
    let mut resolved = Resolved { config, origins: vec![Origin::Default; OPTIONS.len()] };
    if let Some(path) = file {
        resolved.apply(file::read(path)?)?;
    }
    resolved.apply(environment::read(environment)?)?;
    let flag = |(name, values): &(&'static str, Vec<String>)| {
        let origin = Origin::Flag { name };
        Setting { name: (*name).into(), values: values.clone(), origin }
    };
    resolved.apply(flags.iter().map(flag).collect())?;
    Ok(resolved)
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
        let change = if option.change == Change::Runtime { "while running" } else { "at start" };
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
        resolve(None, environment.iter().map(|(name, value)| (name.into(), value.into())), &flags)
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
    fn a_flag_overrides_the_environment() {
        let environment = [("LODESTORE_MAXCLIENTS", "7"), ("LODESTORE_LISTEN", "127.0.0.1:1, [::1]:2")];
        let found = resolved(&[("maxclients", &["9"])], &environment).expect("a configuration");
        assert_eq!((found.config.clients_max, found.config.listen.len()), (9, 2));
        let bad = resolved(&[], &[("LODESTORE_TIMEOUT", "soon")]).expect_err("refused");
        assert_eq!(bad.to_string(), "LODESTORE_TIMEOUT: \"soon\" is not a whole number from 0 to 2147483647");
    }

    #[test]
    fn a_port_changes_the_addresses_and_0_removes_them() {
        let listen = |flags| resolved(flags, &[]).expect("a configuration").config.listen;
        let text = |flags| listen(flags).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(text(&[("port", &["7000"])]), "127.0.0.1:7000");
        assert_eq!(text(&[("port", &["7000"]), ("bind", &["127.0.0.1 ::1"])]), "127.0.0.1:7000 [::1]:7000");
        assert_eq!(text(&[("port", &["0"])]), "");
        let tls = [("port", &["0"][..]), ("bind", &["127.0.0.2"]), ("tls-port", &["7001"])];
        let tls = resolved(&tls, &[]).expect("a configuration").config.tls.expect("TLS").listen;
        assert_eq!(tls, [([127, 0, 0, 2], 7001).into()], "port 0 leaves the addresses of TLS");
        assert_eq!(text(&[("listen", &["none"])]), "");
    }
}

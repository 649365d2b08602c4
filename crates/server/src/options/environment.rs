//! Variables of the environment.
//!
//! A variable that begins with [`PREFIX`] sets an option. A mistyped name would leave the option at
//! its default, so an unknown name is refused. These variables are ignored:
//!
//! * variables of the project's tests and scripts ([`TOOLS`], [`TOOL_PREFIXES`]);
//! * variables that Kubernetes and Docker set for a service whose name begins with `lodestore`.

use std::ffi::OsString;

use super::names::{advise, constant, find, nearest};
use super::{FILE_VARIABLE, OPTIONS, OptionError, OptionSpec, Origin, Setting};

/// Begin of the names of all variables.
pub(super) const PREFIX: &str = "LODESTORE_";

/// Variables of tests and scripts, without [`PREFIX`].
const TOOLS: [&str; 10] = [
    "CLIENTS_CACHE",
    "KILL_SECONDS",
    "LARGE",
    "PROGRAM",
    "REDIS_SERVER",
    "SEED",
    "SHAPE",
    "TIMES",
    "UPDATE",
    "WRITE_DOCS",
];

/// Begins of other variables of tests and scripts, without [`PREFIX`].
const TOOL_PREFIXES: [&str; 6] = ["BENCH_", "FUZZ_", "SERVER_TEST_", "SIM_", "TEST_", "TIDY_"];

/// Returns the name of the variable of an option or of a name of Redis.
pub(super) fn variable_of(name: &str) -> String {
    format!("{PREFIX}{}", name.replace('-', "_").to_ascii_uppercase())
}

/// Reads the variables. A list is separated by commas.
pub(super) fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Vec<Setting>, OptionError> {
    let mut found = Vec::new();
    for (variable, value) in variables {
        let Some(variable) = variable.to_str().filter(|variable| variable.starts_with(PREFIX)) else { continue };
        let origin = Origin::Environment { variable: variable.into() };
        if variable == FILE_VARIABLE || is_ignored(variable, &value.to_string_lossy()) {
            continue;
        }
        let name = variable[PREFIX.len()..].to_ascii_lowercase().replace('_', "-");
        let is_upper_case = variable_of(&name) == variable;
        let option = find(&name).filter(|_| is_upper_case);
        if option.is_none() && (constant(&name).is_none() || !is_upper_case) {
            let what = unknown(variable);
            return Err(OptionError::Value { origin, what });
        }
        let Ok(text) = value.into_string() else {
            return Err(OptionError::Value { origin, what: "the value is not UTF-8: use a text in UTF-8".into() });
        };
        let values = match option {
            Some(option) if option.is_list => {
                text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
            }
            _ => vec![text],
        };
        found.push(Setting { name, values, origin });
    }
    // The environment has no order.
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Returns the error for an unknown variable.
fn unknown(variable: &str) -> String {
    let name = variable[PREFIX.len()..].to_ascii_lowercase().replace('_', "-");
    let known = OPTIONS.iter().flat_map(OptionSpec::names).chain(["config"]);
    advise(nearest(&name, known).map(variable_of))
}

/// Whether a variable belongs to tests, scripts, or the environment of a container.
fn is_ignored(variable: &str, value: &str) -> bool {
    let name = &variable[PREFIX.len()..];
    TOOLS.contains(&name) || TOOL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || is_of_service(name, value)
}

/// Whether Kubernetes or Docker sets the variable for a service: `SERVICE_HOST`,
/// `SERVICE_PORT_REDIS`, `PORT=tcp://10.0.0.1:6379` or `PORT_6379_TCP_ADDR`, after the rest of the
/// name of the service.
fn is_of_service(name: &str, value: &str) -> bool {
    // Also for a service with a longer name, such as `lodestore-cache`.
    let name = format!("_{name}");
    let follows =
        |word: &str, check: fn(&str) -> bool| name.find(word).is_some_and(|at| check(&name[at + word.len()..]));
    name.ends_with("_SERVICE_HOST")
        || follows("_SERVICE_PORT", |rest| rest.is_empty() || rest.starts_with('_'))
        || follows("_PORT_", |rest| rest.starts_with(|character: char| character.is_ascii_digit()))
        || (name.ends_with("_PORT") && value.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn read_one(name: &str, value: &str) -> Result<Vec<String>, String> {
        let settings = read([(format!("{PREFIX}{name}").into(), value.into())]).map_err(|error| error.to_string())?;
        Ok(settings.into_iter().map(|setting| format!("{}={}", setting.name, setting.values.join("|"))).collect())
    }

    #[test]
    fn names_of_options_and_of_redis_are_read() {
        for (name, value, expected) in [
            ("MAXCLIENTS", "7", "maxclients=7"),
            ("REQUIREPASS", "a,b", "requirepass=a,b"),
            ("UNIX_PERMISSIONS", "770", "unix-permissions=770"),
            ("LISTEN", "127.0.0.1:1, [::1]:2", "listen=127.0.0.1:1|[::1]:2"),
            ("APPENDONLY", "no", "appendonly=no"),
        ] {
            assert_eq!(read_one(name, value), Ok(vec![expected.to_owned()]));
        }
        for name in ["MAXCLINTS", "maxclients", "UNIX-PERMISSIONS", ""] {
            assert!(read_one(name, "7").is_err_and(|error| error.contains("there is no such option")), "{name}");
        }
    }

    #[test]
    fn variables_of_services_are_ignored() {
        for (name, value) in [
            ("SERVICE_HOST", "10.0.0.1"),
            ("SERVICE_PORT", "6379"),
            ("SERVICE_PORT_REDIS", "6379"),
            ("PORT", "tcp://10.0.0.1:6379"),
            ("PORT_6379_TCP", "tcp://10.0.0.1:6379"),
            ("CACHE_SERVICE_HOST", "10.0.0.1"),
            ("CACHE_PORT_6379_TCP_PROTO", "tcp"),
        ] {
            assert_eq!(read_one(name, value), Ok(Vec::new()), "{name}");
        }
        assert_eq!(read_one("PORT", "7000"), Ok(vec!["port=7000".to_owned()]));
        assert_eq!(read_one("TLS_PORT", "7000"), Ok(vec!["tls-port=7000".to_owned()]));
    }

    /// Returns the files of a directory of the project.
    fn files_of(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && name != "target" && name != "results" => files_of(&path, found),
                Ok(kind) if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }

    #[test]
    fn the_project_uses_no_variable_that_is_refused() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        for name in ["crates", "lab", "docs", "fuzz", "packaging", "scripts", "demo", ".ci"] {
            files_of(&root.join(name), &mut files);
        }
        for file in files {
            let Ok(text) = std::fs::read_to_string(&file) else { continue };
            for (at, _) in text.match_indices(PREFIX) {
                let rest = text[at + PREFIX.len()..].chars();
                let name: String = rest.take_while(is_of_name).collect();
                // An empty name is that of a variable of any option.
                if !name.is_empty() && name != "CONFIG" {
                    let is_known = is_ignored(&format!("{PREFIX}{name}"), "") || find(&option_name(&name)).is_some();
                    assert!(is_known, "{}: {PREFIX}{name} is no option and not ignored", file.display());
                }
            }
        }
    }

    fn is_of_name(character: &char) -> bool {
        character.is_ascii_uppercase() || character.is_ascii_digit() || *character == '_'
    }

    fn option_name(name: &str) -> String {
        name.to_ascii_lowercase().replace('_', "-")
    }

    #[test]
    fn no_option_has_the_name_of_an_ignored_variable() {
        for option in OPTIONS {
            for name in option.names() {
                assert!(!is_ignored(&variable_of(name), "1"), "{name}");
            }
        }
    }
}

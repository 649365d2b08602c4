//! Translates the library calls in a text of the library into the commands and flags of this
//! program.
//!
//! Texts of the user (paths, keys, values of options) may look like calls. They are never
//! translated: [`error_text`] knows the fields of an error that hold such texts, and [`translate`]
//! is given them.

use std::borrow::Cow;
use std::path::Path;

use lodestore::Error;

/// Each phrase of the library, and the phrase that this program prints. A phrase that contains
/// another one is before it.
const PHRASES: &[(&str, &str)] = &[
    // Salvage.
    ("`Builder::salvage(true)`, `Db::for_each`", "`lodestore export --salvage`"),
    ("opened with `Builder::salvage(true)`", "`lodestore verify --salvage`"),
    ("salvage it with `Builder::salvage(true)`", "salvage it with `lodestore verify --salvage`"),
    ("`Matrix::replace` opened with `OpenOptions::salvage(true)`", "`lodestore mkvs replace --salvage`"),
    ("`Builder::salvage(true)`", "`--salvage`"),
    // Calls of a store.
    ("`Db::open`", "`lodestore create`"),
    ("`Db::verify`", "`lodestore verify`"),
    ("`Db::for_each`", "`export`"),
    ("the backup of the handle `Db`", "`lodestore backup`"),
    ("is already open in this process: clone that `Db`", "is already open in this process: use another store"),
    ("without `Builder::read_only(true)`", "for writing"),
    ("call `store::destroy_with_devices`", "use `lodestore destroy --devices`"),
    // Calls of a matrix.
    ("`Matrix::replace`", "`lodestore mkvs replace`"),
    ("`Matrix::status`", "`lodestore mkvs status`"),
    ("`Matrix::wait_moved`", "`lodestore mkvs rebalance`"),
    // Options.
    ("`Builder::capacity`", "--size SIZE"),
];

/// The library's call that sets an option of a given name.
const SET: (&str, &str) = ("`Builder::set(\"", "\", ..)`");
/// The library's call that opens a damaged store of a given path.
const SALVAGE_OF: (&str, &str) = ("`Db::builder(\"", "\").salvage(true)`");

/// Returns the text of an error, with this program's commands and flags in place of the library's
/// calls.
pub fn error_text(error: &Error) -> String {
    let user_texts = user_texts(error);
    let user_texts: Vec<&str> = user_texts.iter().map(String::as_str).collect();
    translate(&error.to_string(), &user_texts).into_owned()
}

/// Returns `text` with this program's commands and flags in place of the library's calls. The first
/// occurrence of each of `user_texts` stays unchanged.
pub fn translate<'t>(text: &'t str, user_texts: &[&str]) -> Cow<'t, str> {
    if !text.contains('`') {
        return Cow::Borrowed(text);
    }
    // Other texts need no protection.
    let mut protected: Vec<&str> = user_texts.iter().copied().filter(|text| text.contains('`')).collect();
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let own = (0..protected.len()).filter(|at| rest.starts_with(protected[*at]));
        if let Some(at) = own.max_by_key(|at| protected[*at].len()) {
            let own = protected.swap_remove(at);
            translated += own;
            rest = &rest[own.len()..];
        } else if let Some((command, after)) = translate_start(rest) {
            translated += &command;
            rest = after;
        } else {
            translated.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    Cow::Owned(translated)
}

/// Translates the call at the start of a text. Returns the command, and the text after the call.
fn translate_start(text: &str) -> Option<(Cow<'static, str>, &str)> {
    let argument_of = |(begin, end): (&str, &str)| text.strip_prefix(begin)?.split_once(end);
    if let Some((name, after)) = argument_of(SET) {
        return Some((format!("--set {name}={}", placeholder(name)).into(), after));
    }
    if let Some((path, after)) = argument_of(SALVAGE_OF) {
        return Some((format!("`lodestore export --salvage {path}`").into(), after));
    }
    PHRASES.iter().find_map(|(call, command)| Some(((*command).into(), text.strip_prefix(call)?)))
}

/// Returns the placeholder for the value of an option.
fn placeholder(option: &str) -> &'static str {
    match option {
        "region" | "first-region" | "chunk" => "SIZE",
        "segment" => "BYTES",
        "partitions" | "hash-seed" | "probe-length" => "N",
        _ => "VALUE",
    }
}

/// Returns the texts of an error that the user, a file or the system gave, as the error prints
/// them.
fn user_texts(error: &Error) -> Vec<String> {
    let of_path = |path: &Path| path.display().to_string();
    match error {
        Error::NoRoom { path, .. }
        | Error::Io { path, .. }
        | Error::TargetExists { path }
        | Error::TargetIsMount { path }
        | Error::MachineRestarted { path }
        | Error::DeviceElsewhere { path }
        | Error::BackupNoRoom { path, .. }
        | Error::WeakerMedium { path, .. }
        | Error::Backup { path, .. } => vec![of_path(path)],
        Error::Missing { path, obstacle } | Error::Exists { path, obstacle } => {
            vec![of_path(path), obstacle.clone().unwrap_or_default()]
        }
        Error::Locked { path, holder } => vec![of_path(path), holder.clone()],
        Error::Foreign { path, what } => vec![of_path(path), what.clone()],
        Error::Corrupt { place, .. } => vec![place.clone()],
        Error::InvalidOption { name, value, .. } => vec![name.clone(), value.clone()],
        Error::WrongEngine { found, asked } => vec![found.clone(), asked.clone(), found.clone()],
        Error::EngineNotBuilt { engine, .. } => vec![engine.clone()],
        Error::KeyspaceMissing { name } | Error::KeyspaceDropped { name } => vec![format!("{name:?}")],
        Error::OtherStore { keyspace } => vec![format!("{keyspace:?}")],
        Error::Aborted { reason } => vec![reason.clone()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;

//! Options of the pool under any engine, as text.

use std::path::Path;

use lodestore_contract::{Error, OptionSpec, OptionTable, Options, Result, format_size};
use lodestore_media::{PoolOptions, file_bytes_limit, probe};

use crate::header::inspect;
use crate::made::nearest_directory;
use crate::options::{CreateOptions, OpenOptions};

/// The options by name, for `Builder::set`.
pub(crate) const SPECS: &[OptionSpec] = PoolOptions::SPECS;

/// Returns the pool's options at a creation.
pub(crate) fn for_create(options: &CreateOptions) -> Result<PoolOptions> {
    let pool = PoolOptions {
        capacity: options.size,
        durability: options.durability.unwrap_or_default(),
        emulate_dax: options.emulate_dax,
        events: options.events.clone(),
        ..PoolOptions::default()
    };
    read_options(pool, &options.set)
}

/// Space that a file system needs in addition to a file's own bytes before it counts as full.
const FILE_OVERHEAD_BYTES: u64 = 1 << 20;

/// Rewrites the refusal of a creation for the caller: with the names of options, and with the
/// cause, options or medium, of too little space.
pub(crate) fn creation_error(error: Error, path: &Path, options: &CreateOptions) -> Error {
    match error {
        Error::Full { .. } if file_bytes_limit().is_some_and(|limit| limit < options.size) => {
            let too_large = std::io::Error::from(std::io::ErrorKind::FileTooLarge);
            Error::io("creating the first file of", path, too_large)
        }
        Error::Full { needed, capacity } => match probe(&nearest_directory(path)) {
            Ok(medium) if medium.free_bytes < needed.saturating_add(FILE_OVERHEAD_BYTES) => {
                Error::NoRoom { path: path.into(), needed, free: medium.free_bytes }
            }
            Ok(_) => Error::InvalidOption {
                name: "capacity".into(),
                value: format_size(options.size),
                why: "an empty store with these options does not fit: use a larger `Builder::capacity`, fewer \
                      `Builder::set(\"partitions\", ..)`, or a smaller `Builder::set(\"segment\", ..)`"
                    .into(),
            },
            Err(_) => Error::Full { needed, capacity },
        },
        // The pool does not know the directory of a matrix.
        Error::Exists { path: asked, obstacle: Some(_) } if inspect(path).is_ok() => Error::exists(asked),
        other => with_public_name(other),
    }
}

/// Rewrites a refusal of the pool's options with their public names.
pub(crate) fn with_public_name(error: Error) -> Error {
    let invalid = |name: &str, value: String, why: String| Error::InvalidOption { name: name.into(), value, why };
    match error {
        Error::InvalidOption { name, value, why } => match name.as_str() {
            // The advice names the option region instead.
            "capacity" if why.contains('`') => invalid("capacity", value, why),
            "capacity" => invalid("capacity", value, format!("{why} (`Builder::capacity`)")),
            "region" | "first-region" | "chunk" => {
                let why = format!("{why} (`Builder::set(\"{name}\", ..)`)");
                invalid(&name, value, why)
            }
            _ => invalid(&name, value, why),
        },
        other => other,
    }
}

/// Returns the pool's options at an open. The shape of the store comes from its header.
pub(crate) fn for_open(options: &OpenOptions) -> Result<PoolOptions> {
    let pool = PoolOptions {
        raise: options.durability,
        salvage: options.salvage,
        events: options.events.clone(),
        ..PoolOptions::default()
    };
    read_options(pool, &options.set)
}

fn read_options(mut pool: PoolOptions, set: &Options) -> Result<PoolOptions> {
    pool.read_from(set).map_err(with_public_name)?;
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_without_enough_space_reports_whether_the_medium_or_the_size_is_too_small() {
        let (dir, options) = (std::env::temp_dir(), CreateOptions::new());
        let of =
            |needed: u64| creation_error(Error::Full { needed, capacity: options.size }, &dir.join("new"), &options);
        let text = of(u64::MAX).to_string();
        assert!(matches!(of(u64::MAX), Error::NoRoom { .. }), "{text}");
        assert!(text.contains("choose another medium, or create a smaller store (`Builder::capacity`"), "{text}");
        let text = of(1).to_string();
        assert!(text.starts_with("option capacity=8G: ") && text.contains("`Builder::capacity`"), "{text}");
    }
}

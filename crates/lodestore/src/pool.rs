//! Options of the pool under any engine, as text.

use std::path::Path;

use lodestore_contract::{Error, OptionSpec, Options, Result, format_size};
use lodestore_media::{PoolOptions, Prefault, file_bytes_limit, probe};

use crate::doctor::nearest_directory;
use crate::options::{CreateOptions, OpenOptions};

/// The options by name, for `--set name=value`.
pub(crate) const SPECS: &[OptionSpec] = &[
    OptionSpec {
        name: "region",
        default: "256M",
        help: "most bytes by which the store grows at once, which is a quarter of what it has and 32M at the least",
        fixed: true,
    },
    OptionSpec {
        name: "first-region",
        default: "0",
        help: "bytes that a new store takes at once; 0: 32M, or `region` where that is less",
        fixed: true,
    },
    OptionSpec {
        name: "chunk",
        default: "4K",
        help: "bytes of the allocator's smallest extent, a power of two",
        fixed: true,
    },
    OptionSpec { name: "huge-pages", default: "on", help: "whether huge pages are asked for: on or off", fixed: false },
    OptionSpec {
        name: "prefault",
        default: "ahead",
        help: "ahead: a thread makes and touches memory before it is needed; none",
        fixed: false,
    },
    OptionSpec {
        name: "wear-aware",
        default: "on",
        help: "whether space is taken where the medium was written least: on or off",
        fixed: false,
    },
    OptionSpec {
        name: "persist-ns",
        default: "0",
        help: "latency added to each persist while the store is open, in nanoseconds, for measurements",
        fixed: false,
    },
    OptionSpec {
        name: "persist-per",
        default: "fence",
        help: "what costs the added latency of a persist: fence, or block (each 256 bytes)",
        fixed: false,
    },
    OptionSpec {
        name: "read-ns",
        default: "0",
        help: "latency added to the first read of a record, in nanoseconds",
        fixed: false,
    },
];

/// The pool's options at a creation.
pub(crate) fn for_create(options: &CreateOptions) -> Result<PoolOptions> {
    let pool = PoolOptions {
        capacity: options.size,
        durability: options.durability,
        emulate_dax: options.emulate_dax,
        persist_ns: options.persist_ns,
        events: options.events.clone(),
        ..PoolOptions::default()
    };
    with_text(pool, &options.set)
}

/// What a file system takes beside a file's own bytes before it counts as full.
const DIRECTORY_ROOM: u64 = 1 << 20;

/// A creation's refusal in the words of who asked for it: the options by their names, and whether it is they or the medium that leave too
/// little room.
pub(crate) fn refusal(error: Error, path: &Path, options: &CreateOptions) -> Error {
    match error {
        Error::Full { .. } if file_bytes_limit().is_some_and(|limit| limit < options.size) => {
            let too_large = std::io::Error::from(std::io::ErrorKind::FileTooLarge);
            Error::io("making the first file of", path, too_large)
        }
        Error::Full { needed, capacity } => match probe(&nearest_directory(path)) {
            Ok(medium) if medium.free_bytes < needed.saturating_add(DIRECTORY_ROOM) => {
                Error::NoRoom { path: path.into(), needed, free: medium.free_bytes }
            }
            Ok(_) => Error::InvalidOption {
                name: "size".into(),
                value: format_size(options.size),
                why: "an empty store of these options does not fit: give a larger --size SIZE, or fewer --set partitions=N or \
                      a smaller --set segment=BYTES"
                    .into(),
            },
            Err(_) => Error::Full { needed, capacity },
        },
        other => named(other),
    }
}

/// A refusal of the pool's options by the names that they are given by.
pub(crate) fn named(error: Error) -> Error {
    let named = |name: &str, value: String, why: String| Error::InvalidOption { name: name.into(), value, why };
    match error {
        Error::InvalidOption { name, value, why } => match name.as_str() {
            "capacity" => named("size", value, format!("{why} (--size SIZE)")),
            "region_bytes" => named("region", value, format!("{why} (--set region=SIZE)")),
            "first_bytes" => named("first-region", value, format!("{why} (--set first-region=SIZE)")),
            "chunk_bytes" => named("chunk", value, format!("{why} (--set chunk=SIZE)")),
            _ => named(&name, value, why),
        },
        other => other,
    }
}

/// The pool's options at an opening: what shapes the store comes from its header.
pub(crate) fn for_open(options: &OpenOptions) -> Result<PoolOptions> {
    let pool = PoolOptions {
        raise: options.durability,
        persist_ns: options.persist_ns,
        salvage: options.salvage,
        events: options.events.clone(),
        ..PoolOptions::default()
    };
    with_text(pool, &options.set)
}

fn with_text(pool: PoolOptions, set: &Options) -> Result<PoolOptions> {
    let switch = |text: &str| match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    Ok(PoolOptions {
        region_bytes: set.read_size("region", pool.region_bytes)?,
        first_bytes: Some(set.read_size("first-region", pool.first_bytes.unwrap_or(0))?).filter(|bytes| *bytes > 0),
        chunk_bytes: set.read_size("chunk", pool.chunk_bytes)?,
        huge_pages: set.read("huge-pages", pool.huge_pages, "on or off", switch)?,
        prefault: set.read("prefault", pool.prefault, "ahead or none", |text| match text {
            "ahead" => Some(Prefault::Ahead),
            "none" => Some(Prefault::None),
            _ => None,
        })?,
        wear_aware: set.read("wear-aware", pool.wear_aware, "on or off", switch)?,
        persist_ns: set.read("persist-ns", pool.persist_ns, "a number of nanoseconds", |text| text.parse().ok())?,
        persist_per_block: set.read("persist-per", pool.persist_per_block, "fence or block", |text| match text {
            "fence" => Some(false),
            "block" => Some(true),
            _ => None,
        })?,
        read_ns: set.read("read-ns", pool.read_ns, "a number of nanoseconds", |text| text.parse().ok())?,
        ..pool
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_that_found_no_room_says_whether_the_medium_or_the_size_is_too_small() {
        let (dir, options) = (std::env::temp_dir(), CreateOptions::new());
        let of = |needed: u64| refusal(Error::Full { needed, capacity: options.size }, &dir.join("new"), &options);
        let text = of(u64::MAX).to_string();
        assert!(matches!(of(u64::MAX), Error::NoRoom { .. }), "{text}");
        assert!(text.contains("choose another medium, or make it smaller (--size SIZE"), "{text}");
        assert!(matches!(of(1), Error::InvalidOption { .. }), "{}", of(1));
    }
}

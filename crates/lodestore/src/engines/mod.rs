//! The engines of this build, and their entry points.

#[cfg(feature = "mkvs")]
pub(crate) mod devices;
#[cfg(not(feature = "mkvs"))]
#[path = "no_devices.rs"]
mod devices;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use lodestore_contract::{Error, OptionSpec, Options, Result, Store};
#[cfg(feature = "fluidkv")]
use lodestore_fluidkv::{FluidKv, FluidOptions};
#[cfg(feature = "hashkv")]
use lodestore_hashkv::{HashKv, HashKvOptions};
#[cfg(feature = "hikv")]
use lodestore_hikv::{HiKv, HiKvOptions};
use lodestore_media::PoolOptions;
#[cfg(feature = "mkvs")]
use lodestore_mkvs::MkvsOptions;
#[cfg(feature = "nvht")]
use lodestore_nvht::{Nvht, NvhtOptions};

use crate::built;
use crate::header;
use crate::options::{CreateOptions, OpenOptions};
use crate::pool;

/// An engine of this build.
pub struct EngineInfo {
    /// Its name, for [`CreateOptions::engine`](crate::options::CreateOptions::engine).
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    options: LazyLock<Vec<OptionSpec>>,
    /// Reads its options, and refuses invalid values.
    read: fn(PoolOptions, &Options) -> Result<()>,
    create: fn(&Path, PoolOptions, &Options) -> Result<Arc<dyn Store>>,
    open: fn(&Path, PoolOptions, &Options) -> Result<Arc<dyn Store>>,
}

impl fmt::Debug for EngineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineInfo").field("name", &self.name).field("about", &self.about).finish_non_exhaustive()
    }
}

static ENGINES: [EngineInfo; built::ENGINE_COUNT] = [
    #[cfg(feature = "hikv")]
    EngineInfo {
        name: lodestore_hikv::ENGINE,
        about: "hash index on the medium, ordered tree in DRAM: fastest single-key operations, and ordered scans",
        options: LazyLock::new(|| [HiKvOptions::specs(), pool::SPECS].concat()),
        read: |pool, set| HiKvOptions::from_options(pool, set)?.check(),
        create: |path, pool, set| Ok(Arc::new(HiKv::create(path, &HiKvOptions::from_options(pool, set)?)?)),
        open: |path, pool, set| Ok(Arc::new(HiKv::open(path, &HiKvOptions::from_options(pool, set)?)?)),
    },
    #[cfg(feature = "nvht")]
    EngineInfo {
        name: lodestore_nvht::ENGINE,
        about: "one hash table on the medium: single keys with almost no DRAM, instant open, no order",
        options: LazyLock::new(|| [NvhtOptions::specs(), pool::SPECS].concat()),
        read: |pool, set| NvhtOptions::from_options(pool, set)?.check(),
        create: |path, pool, set| Ok(Arc::new(Nvht::create(path, &NvhtOptions::from_options(pool, set)?)?)),
        open: |path, pool, set| Ok(Arc::new(Nvht::open(path, &NvhtOptions::from_options(pool, set)?)?)),
    },
    #[cfg(feature = "fluidkv")]
    EngineInfo {
        name: lodestore_fluidkv::ENGINE,
        about: "LSM tree with a log per thread: data larger than DRAM, many writes, ordered scans and snapshots",
        options: LazyLock::new(|| [FluidOptions::specs(), pool::SPECS].concat()),
        read: |pool, set| FluidOptions::from_options(pool, set)?.check(),
        create: |path, pool, set| Ok(Arc::new(FluidKv::create(path, &FluidOptions::from_options(pool, set)?)?)),
        open: |path, pool, set| Ok(Arc::new(FluidKv::open(path, &FluidOptions::from_options(pool, set)?)?)),
    },
    #[cfg(feature = "hashkv")]
    EngineInfo {
        name: lodestore_hashkv::ENGINE,
        about: "LSM tree for keys, hash groups of segments for large values: many updates of values of 256 bytes or \
                more",
        options: LazyLock::new(|| [&HashKvOptions::specs()[..], pool::SPECS].concat()),
        read: |pool, set| HashKvOptions::from_options(pool, set)?.check(),
        create: |path, pool, set| Ok(Arc::new(HashKv::create(path, &HashKvOptions::from_options(pool, set)?)?)),
        open: |path, pool, set| Ok(Arc::new(HashKv::open(path, &HashKvOptions::from_options(pool, set)?)?)),
    },
    #[cfg(feature = "mkvs")]
    EngineInfo {
        name: lodestore_mkvs::ENGINE,
        about: "groups of devices: each key belongs to one group, whose devices store the same pairs",
        options: LazyLock::new(|| [MkvsOptions::specs(), devices::SPECS, pool::SPECS].concat()),
        read: devices::check,
        create: devices::create,
        open: devices::open,
    },
];

impl EngineInfo {
    /// Returns its options as `name=value`: its own, then those of the pool under it.
    pub fn options(&self) -> &[OptionSpec] {
        &self.options
    }

    /// Creates a store at `path`.
    pub(crate) fn create(&self, path: &Path, options: &CreateOptions) -> Result<Arc<dyn Store>> {
        let set = self.own_options(&options.set)?;
        (self.create)(path, pool::for_create(options)?, &set)
            .map_err(|error| pool::creation_error(error, path, options))
    }

    /// Opens the store at `path`, which this engine made.
    pub(crate) fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn Store>> {
        let (pool, set) = self.open_options(options)?;
        (self.open)(path, pool, &set)
    }

    /// Returns the options of an open: the pool's and its own.
    pub(crate) fn open_options(&self, options: &OpenOptions) -> Result<(PoolOptions, Options)> {
        options.set.check_open(self.options())?;
        let set = self.own_options(&options.set)?;
        Ok((pool::for_open(options)?, set))
    }

    /// Returns whether it has an option of this name: one of [`options`](Self::options), or, for a
    /// matrix of devices, one for their engine (`device.NAME`).
    pub fn takes(&self, name: &str) -> bool {
        self.options().iter().any(|spec| spec.name == name)
            || (self.name == built::MKVS && devices::is_device_option(name))
    }

    /// Returns whether a store with these options has a key order, and so scans.
    pub fn keeps_order(&self, options: &CreateOptions) -> bool {
        match self.name {
            built::NVHT => false,
            built::MKVS => devices::keeps_order(&options.set),
            _ => true,
        }
    }

    /// Refuses unknown options and invalid values, without creating a store. The call checks
    /// neither the capacity nor the medium.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`]; other limits of the engine, as [`create`](crate::store::create).
    pub fn check(&self, options: &CreateOptions) -> Result<()> {
        let set = self.own_options(&options.set)?;
        let pool = pool::for_create(options)?;
        let own = PoolOptions { capacity: pool.region_bytes.max(1 << 20), ..pool.clone() };
        own.check(self.name).and_then(|()| (self.read)(pool, &set)).map_err(pool::with_public_name)
    }

    /// Reads the options of a store that is a part of another one.
    #[cfg(feature = "mkvs")]
    pub(crate) fn check_member(&self, pool: PoolOptions, set: &Options) -> Result<()> {
        set.check_names(self.name, self.options())?;
        (self.read)(pool, set)
    }

    /// Creates a store of this engine as a part of another one. `set` has only its own options.
    #[cfg(feature = "mkvs")]
    pub(crate) fn create_member(&self, path: &Path, pool: PoolOptions, set: &Options) -> Result<Arc<dyn Store>> {
        (self.create)(path, pool, set)
    }

    /// Opens such a part.
    #[cfg(feature = "mkvs")]
    pub(crate) fn open_member(&self, path: &Path, pool: PoolOptions, set: &Options) -> Result<Arc<dyn Store>> {
        (self.open)(path, pool, set)
    }

    /// Returns the rest of `set` after the pool's options are removed. A name that is unknown to
    /// both is refused. Options of a matrix's devices are checked when their engine is known.
    fn own_options(&self, set: &Options) -> Result<Options> {
        let mut known = Options::new();
        let is_device_option = |name: &str| self.name == built::MKVS && devices::is_device_option(name);
        for (name, value) in set.iter().filter(|(name, _)| !is_device_option(name)) {
            known.set(name, value);
        }
        known.check_names(self.name, self.options())?;
        let mut own = Options::new();
        for (name, value) in set.iter().filter(|(name, _)| pool::SPECS.iter().all(|spec| spec.name != *name)) {
            own.set(name, value);
        }
        Ok(own)
    }
}

/// Returns the engines of this build.
pub fn engines() -> &'static [EngineInfo] {
    &ENGINES
}

/// Returns the engine of this name.
///
/// # Errors
///
/// [`Error::EngineNotBuilt`] if it is not compiled in; [`Error::InvalidOption`] with the names of
/// the compiled engines.
pub(crate) fn by_name(name: &str) -> Result<&'static EngineInfo> {
    if let Some(refusal) = built::refusal(name) {
        return Err(refusal);
    }
    ENGINES.iter().find(|engine| engine.name == name).ok_or_else(|| {
        let known: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
        Error::InvalidOption {
            name: "engine".into(),
            value: name.into(),
            why: format!("the engines of this build are {}", known.join(", ")),
        }
    })
}

/// Returns the engine that made the store at `path`, which must be `requested`, if given.
///
/// # Errors
///
/// [`Error::Missing`], [`Error::WrongEngine`], [`Error::EngineNotBuilt`], [`Error::NewerFormat`],
/// [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn of_store(path: &Path, requested: Option<&str>) -> Result<&'static EngineInfo> {
    let found = header::inspect(path)?.engine;
    if let Some(requested) = requested.filter(|requested| *requested != found) {
        return Err(Error::WrongEngine { found, asked: requested.into() });
    }
    if let Some(refusal) = built::refusal(&found) {
        return Err(refusal);
    }
    ENGINES.iter().find(|engine| engine.name == found).ok_or_else(|| {
        let known: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
        // A comma between all but the last two.
        let listed = known.join(", ");
        let asked = listed.rsplit_once(", ").map_or(listed.clone(), |(all, last)| format!("{all} or {last}"));
        Error::WrongEngine { found, asked }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(engine: &str, set: &[&str]) -> Result<()> {
        let mut options = CreateOptions::new();
        for text in set {
            options = options.set_text(text)?;
        }
        by_name(engine)?.check(&options)
    }

    #[test]
    fn invalid_option_values_are_refused_by_their_names_without_a_store() {
        let cases = [
            ("hikv", "region=banana", "region=banana"),
            ("hikv", "region=1K", "`Builder::set(\"region\", ..)`"),
            ("hikv", "chunk=3K", "`Builder::set(\"chunk\", ..)`"),
            ("hikv", "partitions=3", "power of two"),
            ("hikv", "persist-ns=x", "nanoseconds"),
            ("nvht", "load-factor=frob", "load-factor"),
            ("nvht", "wal=on", "engine nvht has no such option"),
            ("fluidkv", "memtable-bytes=1", "memtable-bytes"),
            ("hashkv", "mode=frob", "mode=frob"),
            ("hashkv", "value-segment=3", "value-segment"),
            ("mkvs", "groups=frob", "groups=frob"),
            ("mkvs", "device-engine=frob", "engines of this build are"),
            ("mkvs", "device.region=1M", "engine hikv has no such option"),
            ("mkvs", "device.wal=frob", "wal=frob"),
        ];
        for (engine, text, says) in cases.into_iter().filter(|(engine, ..)| built::is_built(engine)) {
            let refused = check(engine, &[text]).expect_err(text);
            let line = refused.to_string();
            assert!(matches!(refused, Error::InvalidOption { .. }) && line.contains(says), "{engine} {text}: {line}");
        }
        for engine in engines() {
            assert!(check(engine.name, &[]).is_ok(), "{}", engine.name);
            for spec in pool::SPECS {
                let text = format!("{}={}", spec.name, spec.default);
                let refused = check(engine.name, &[&text]).err();
                assert!(refused.is_none(), "{} takes its own default {text}: {refused:?}", engine.name);
            }
        }
    }

    #[cfg(all(feature = "mkvs", feature = "hikv"))]
    #[test]
    fn engines_without_order_are_known_without_a_store() {
        let keeps = |engine: &str, text: &str| {
            let options = CreateOptions::new().set_text(text).expect("a text");
            by_name(engine).expect("an engine").keeps_order(&options)
        };
        assert!(keeps("hikv", "region=1M") && keeps("mkvs", "groups=2") && keeps("mkvs", "device-engine=hashkv"));
        assert!(!keeps("nvht", "region=1M") && !keeps("mkvs", "device-engine=nvht"));
    }
}

//! The engine of a store, as a [`Builder`](super::Builder) is given it.

use lodestore_contract::Options;

#[cfg(feature = "fluidkv")]
use crate::options::FluidkvSettings;
#[cfg(feature = "hashkv")]
use crate::options::HashkvSettings;
#[cfg(feature = "hikv")]
use crate::options::HikvSettings;
#[cfg(feature = "mkvs")]
use crate::options::MkvsSettings;
#[cfg(feature = "nvht")]
use crate::options::NvhtSettings;

/// The engine of a store, with the options that are set for it. A variant exists if the feature of
/// its engine is enabled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Engine {
    /// Chosen by the medium: `hikv` on memory, `fluidkv` on files. If that engine is not compiled
    /// in, the best other engine of the build is chosen, with an order if there is one. An existing
    /// store keeps its engine.
    #[default]
    Auto,
    /// A hash index on the medium and an ordered tree in DRAM.
    #[cfg(feature = "hikv")]
    Hikv(HikvSettings),
    /// One hash table on the medium, without order.
    #[cfg(feature = "nvht")]
    Nvht(NvhtSettings),
    /// Logs and sorted tables.
    #[cfg(feature = "fluidkv")]
    Fluidkv(FluidkvSettings),
    /// Logs and sorted tables, with large values in a separate file.
    #[cfg(feature = "hashkv")]
    Hashkv(HashkvSettings),
    /// A matrix of devices with stores of another engine
    /// ([`Builder::device_engine`](super::Builder::device_engine)).
    #[cfg(feature = "mkvs")]
    Mkvs(MkvsSettings),
}

impl Engine {
    /// Returns the engine `hikv` with its defaults.
    #[cfg(feature = "hikv")]
    pub const fn hikv() -> Self {
        Self::Hikv(HikvSettings::new())
    }

    /// Returns the engine `nvht` with its defaults.
    #[cfg(feature = "nvht")]
    pub const fn nvht() -> Self {
        Self::Nvht(NvhtSettings::new())
    }

    /// Returns the engine `fluidkv` with its defaults.
    #[cfg(feature = "fluidkv")]
    pub const fn fluidkv() -> Self {
        Self::Fluidkv(FluidkvSettings::new())
    }

    /// Returns the engine `hashkv` with its defaults.
    #[cfg(feature = "hashkv")]
    pub const fn hashkv() -> Self {
        Self::Hashkv(HashkvSettings::new())
    }

    /// Returns the engine `mkvs` with its defaults.
    #[cfg(feature = "mkvs")]
    pub const fn mkvs() -> Self {
        Self::Mkvs(MkvsSettings::new())
    }

    /// Returns the engine's name; `None` for [`Engine::Auto`].
    pub const fn name(&self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            #[cfg(feature = "hikv")]
            Self::Hikv(_) => Some("hikv"),
            #[cfg(feature = "nvht")]
            Self::Nvht(_) => Some("nvht"),
            #[cfg(feature = "fluidkv")]
            Self::Fluidkv(_) => Some("fluidkv"),
            #[cfg(feature = "hashkv")]
            Self::Hashkv(_) => Some("hashkv"),
            #[cfg(feature = "mkvs")]
            Self::Mkvs(_) => Some("mkvs"),
        }
    }

    /// Returns the set options as text.
    pub(super) fn options(&self) -> Option<&Options> {
        match self {
            Self::Auto => None,
            #[cfg(feature = "hikv")]
            Self::Hikv(options) => Some(options.options()),
            #[cfg(feature = "nvht")]
            Self::Nvht(options) => Some(options.options()),
            #[cfg(feature = "fluidkv")]
            Self::Fluidkv(options) => Some(options.options()),
            #[cfg(feature = "hashkv")]
            Self::Hashkv(options) => Some(options.options()),
            #[cfg(feature = "mkvs")]
            Self::Mkvs(options) => Some(options.options()),
        }
    }
}

#[cfg(feature = "hikv")]
impl From<HikvSettings> for Engine {
    fn from(options: HikvSettings) -> Self {
        Self::Hikv(options)
    }
}

#[cfg(feature = "nvht")]
impl From<NvhtSettings> for Engine {
    fn from(options: NvhtSettings) -> Self {
        Self::Nvht(options)
    }
}

#[cfg(feature = "fluidkv")]
impl From<FluidkvSettings> for Engine {
    fn from(options: FluidkvSettings) -> Self {
        Self::Fluidkv(options)
    }
}

#[cfg(feature = "hashkv")]
impl From<HashkvSettings> for Engine {
    fn from(options: HashkvSettings) -> Self {
        Self::Hashkv(options)
    }
}

#[cfg(feature = "mkvs")]
impl From<MkvsSettings> for Engine {
    fn from(options: MkvsSettings) -> Self {
        Self::Mkvs(options)
    }
}

//! The first steps of an open: checks whether the store exists, and creates it otherwise.

use std::cmp::Ordering::{Equal, Greater, Less};

use lodestore_contract::{Error, Result};
use lodestore_media::{OpenReport, Pool, crc32c, u32_at};

use crate::planted;

/// Bytes of a superblock.
const SUPERBLOCK_BYTES: usize = 64;

/// Parameters that are fixed when a store is created, in the superblock of its engine, at the start
/// of the pool's root area.
///
/// ```text
///  0       8         12
/// | magic | version | parameters ... | crc32c | 0 ... 64
/// ```
pub trait Shape: Copy + PartialEq {
    /// The engine's name.
    const ENGINE: &'static str;
    /// The first bytes of the superblock.
    const MAGIC: [u8; 8];
    /// Version of the engine's format.
    const VERSION: u32;
    /// Offset of the checksum, which covers everything before it.
    const CRC_AT: usize;

    /// Stores the parameters in the bytes of a superblock.
    fn encode(&self, bytes: &mut [u8; SUPERBLOCK_BYTES]);

    /// Reads the parameters of a whole superblock; `None` if one is out of range.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// Returns whether an open has ever completed, by other words of the root area.
    fn was_opened(_pool: &Pool) -> bool {
        false
    }

    /// Reads the superblock; `None` if it is not whole, and no open has ever completed.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::NewerFormat`], [`Error::OlderFormat`].
    fn load(pool: &Pool) -> Result<Option<Self>> {
        let Some(bytes) = pool.bytes(pool.root(), SUPERBLOCK_BYTES) else {
            return Err(corrupt_superblock::<Self>("the root area is missing"));
        };
        if bytes[..8] != Self::MAGIC || crc32c(&[&bytes[..Self::CRC_AT]]) != u32_at(bytes, Self::CRC_AT) {
            return if Self::was_opened(pool) { Err(superblock_lost::<Self>()) } else { Ok(None) };
        }
        let (part, found) = (Self::ENGINE.into(), u32_at(bytes, 8));
        match found.cmp(&Self::VERSION) {
            Greater => Err(Error::NewerFormat { part, found, known: Self::VERSION }),
            Less => Err(Error::OlderFormat { part, found, oldest: Self::VERSION }),
            Equal => match Self::decode(bytes) {
                Some(shape) => Ok(Some(shape)),
                None => Err(corrupt_superblock::<Self>("a parameter is out of range")),
            },
        }
    }

    /// Writes and flushes the superblock; durable after the caller's fence.
    fn store(&self, pool: &Pool) {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&Self::MAGIC);
        bytes[8..12].copy_from_slice(&Self::VERSION.to_le_bytes());
        self.encode(&mut bytes);
        let crc = crc32c(&[&bytes[..Self::CRC_AT]]);
        bytes[Self::CRC_AT..Self::CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        pool.store(pool.root(), &bytes);
        pool.flush(pool.root(), bytes.len());
    }
}

#[cold]
fn superblock_lost<S: Shape>() -> Error {
    corrupt_superblock::<S>(
        "the superblock is damaged, and no key can be found without it: restore the store from a backup or an export",
    )
}

#[cold]
fn corrupt_superblock<S: Shape>(what: &str) -> Error {
    Error::corrupt(format!("{} superblock", S::ENGINE), what)
}

/// A store that exists or was just created. Only its shape has been read or written.
pub struct LoadedShape<S> {
    /// Its shape.
    pub shape: S,
    /// All words of the index are durable as they are read; otherwise the engine must make them
    /// durable.
    pub settled: bool,
    fresh: bool,
}

impl<S: Shape> LoadedShape<S> {
    /// Reads the superblock. If there is none and the pool's header has no completed creation,
    /// creates the store with the shape `new`, the superblock last. `make` writes and flushes
    /// everything else of a new store. An incomplete creation is repeated.
    ///
    /// # Errors
    /// As [`Shape::load`], and those of `make`.
    pub fn load_or_create(
        pool: &Pool,
        report: &OpenReport,
        new: impl FnOnce() -> S,
        make: impl FnOnce(&S) -> Result<()>,
    ) -> Result<Self> {
        let (shape, fresh) = match S::load(pool)? {
            Some(shape) => (shape, false),
            None if report.engine_created || (report.clean && !report.created) => return Err(superblock_lost::<S>()),
            None => (new(), true),
        };
        if fresh {
            if pool.has_fault(planted::CREATED_EARLY) {
                pool.mark_created()?;
            }
            make(&shape)?;
            pool.fence_checked()?;
            shape.store(pool);
            pool.fence_checked()?;
        }
        Ok(Self { shape, settled: report.settled || pool.has_fault(planted::ENTRIES_NOT_SETTLED), fresh })
    }

    /// As [`Base::unsettled`](crate::Base::unsettled).
    pub fn is_unsettled(&self) -> bool {
        !self.settled && !self.fresh
    }
}

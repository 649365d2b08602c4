//! Start of a store: the values file, the LSM, and the account of live bytes.
//!
//! The account follows from the LSM: the newest table version of each key, and each pointer in a
//! replayed log. A segment to which no pointer refers is free, regardless of its content. The other
//! segments belong to the groups that their headers name.

use std::sync::Arc;

use lodestore_contract::{Error, PoisonReason, Result};
use lodestore_fluidkv::FluidKv;
use lodestore_fluidkv::embedding::Separator;
use lodestore_media::{BlockFile, BlockOptions, OpenReport, Pool};

use crate::layout::{Home, SEGMENT_HEADER_BYTES, Stored, Superblock, decode_segment};
use crate::open_number;
use crate::options::HashKvOptions;
use crate::space::Space;
use crate::superblock::{rebuild_superblock, write_superblock};
use crate::values::{Sizes, Values, lock};

/// Error text for a values file that is missing or has no superblock.
const MISSING_ADVICE: &str = "the file is missing or truncated, and it had the values that the index names: restore \
                              the store from a backup, or open it with salvage and export the pairs of the index \
                              (`Builder::salvage(true)`, `Db::for_each`)";
/// Number of segment headers that an open reads ahead together.
const READ_HEADERS_COUNT: usize = 256;

pub(crate) fn start(
    pool: &Arc<Pool>,
    report: &OpenReport,
    options: &HashKvOptions,
) -> Result<(Arc<Values>, Arc<FluidKv>)> {
    let OpenedFile { file, superblock, lost } = open_file(pool, report, options)?;
    let segment_bytes = superblock.segment_bytes;
    let segments = |bytes: u64| u32::try_from(bytes / u64::from(segment_bytes)).unwrap_or(u32::MAX);
    let there = segments(file.len().saturating_sub(BlockFile::BLOCK));
    let limit = segments(pool.options().capacity.saturating_sub(BlockFile::BLOCK));
    let space = Space::new(segment_bytes, there, limit);
    let index_options = |bytes: u64| options.index_options(bytes, u64::from(segment_bytes));
    // The free space of a medium must not decide whether a store accepts its options.
    options.check_threshold(index_options(pool.options().capacity).value_threshold)?;
    let index_options = index_options(pool.reachable_bytes());
    let longest = index_options.value_threshold;
    let sizes = Sizes {
        segment_bytes,
        threshold: options.threshold(),
        longest: longest as usize,
        group_bytes: options.group_bytes,
        groups_max: options.groups_max(index_options.memtable_bytes),
        hotness: options.hotness && options.has_groups(),
        circular: options.is_circular(),
        flush_bytes: index_options.memtable_bytes,
        is_lost: lost.is_some(),
    };
    let values = Arc::new(Values::new(Arc::clone(pool), file, sizes, (space, &superblock)));
    let separator: Arc<dyn Separator> = Arc::clone(&values) as _;
    // While it opens, the LSM must not use the file's space.
    pool.set_beside(values.file.taken());
    let index = FluidKv::start_separating(Arc::clone(pool), report, &index_options, separator)?;
    let index = Arc::new(index);
    values.set_index(&index);
    // Before any flush: flushes allocate and retire segments based on the live bytes.
    count(&values, &index)?;
    if let Some(cause) = lost {
        // Contents cannot be located, and nothing is written.
        pool.poison(PoisonReason::Damage, &cause);
    }
    index.begin_workers()?;
    Ok((values, index))
}

/// The opened values file.
struct OpenedFile {
    file: BlockFile,
    superblock: Superblock,
    /// Reason for read-only mode in salvage: the file or its start is missing. The superblock is
    /// then a guess.
    lost: Option<String>,
}

/// Opens the file. Creates or changes nothing if the file of an existing store is missing.
fn open_file(pool: &Arc<Pool>, report: &OpenReport, options: &HashKvOptions) -> Result<OpenedFile> {
    let reading = || BlockFile::open(pool, &BlockOptions { read_only: true, ..options.blocks() });
    let writing = || BlockFile::open(pool, &options.blocks());
    if !report.engine_created {
        // Remains of an interrupted creation are overwritten.
        let file = writing()?;
        let superblock = create_file(pool, &file, options)?;
        return Ok(OpenedFile { file, superblock, lost: None });
    }
    let gone = || Error::corrupt("values.0000", MISSING_ADVICE);
    // Opening for writing would create the file.
    let found = if reading()?.len() < BlockFile::BLOCK { Err(gone()) } else { writing().and_then(read_superblock) };
    let is_salvage = pool.options().salvage;
    match found {
        Err(Error::Corrupt { place, what, .. }) if is_salvage => {
            let segment_bytes = options.new_segment_bytes() as u32;
            let superblock = Superblock { segment_bytes, freed_expiry_max: u64::MAX, opening: 0 };
            Ok(OpenedFile { file: reading()?, superblock, lost: Some(format!("{place}: {what}")) })
        }
        Err(refused) => Err(refused),
        Ok(opened) => match open_number::begin_next(pool, &opened.file, opened.superblock) {
            Ok(superblock) => Ok(OpenedFile { superblock, ..opened }),
            // The file stays unwritten: its own pool may be found again.
            Err(refused @ (Error::Corrupt { .. } | Error::Io { .. } | Error::Full { .. })) if is_salvage => {
                Ok(OpenedFile { file: reading()?, lost: Some(refused.to_string()), ..opened })
            }
            Err(refused) => Err(refused),
        },
    }
}

/// Returns the file with its superblock, rebuilt if it is damaged.
fn read_superblock(file: BlockFile) -> Result<OpenedFile> {
    let mut bytes = vec![0; BlockFile::BLOCK as usize];
    file.read(0, &mut bytes)?;
    let superblock = Superblock::decode(&bytes).or_else(|error| rebuild_superblock(&file, &bytes, error))?;
    Ok(OpenedFile { file, superblock, lost: None })
}

/// Writes the superblock of a new file. The superblock is durable before any pointer into the file
/// exists.
fn create_file(pool: &Pool, file: &BlockFile, options: &HashKvOptions) -> Result<Superblock> {
    let segment_bytes = options.new_segment_bytes() as u32;
    let superblock = Superblock { segment_bytes, freed_expiry_max: 0, opening: open_number::begin_first(pool)? };
    file.grow(BlockFile::BLOCK)?;
    write_superblock(file, superblock)?;
    file.sync_now()?;
    Ok(superblock)
}

/// Counts live bytes.
///
/// # Errors
/// [`Error::Io`] and similar. If the LSM is damaged, all segments count as in use; reads report the
/// damage per key.
fn count(values: &Values, index: &FluidKv) -> Result<()> {
    let walked = index.each_stored(&mut |key, stored, live| match Stored::read(stored) {
        // A pointer out of the file is damage, which its read reports.
        Ok(Stored::Pointer(pointer)) if live => lock(&values.space).count(pointer),
        Ok(Stored::Pointer(pointer)) => {
            values.note_expired();
            lock(&values.space).note_use(pointer.generation);
        }
        Ok(Stored::Value(_)) if live && values.may_separate(key, stored) => values.note_late(),
        _ => {}
    });
    match walked {
        Err(Error::Corrupt { .. }) => lock(&values.space).hold_all(),
        other => other?,
    }
    let is_written = !values.sizes.is_lost;
    if is_written {
        extend_file(values)?;
    }
    let held = lock(&values.space).counted();
    let mut arranged = Vec::with_capacity(held.len());
    for together in held.chunks(READ_HEADERS_COUNT) {
        // Announce the reads together: one after another, each would wait for the disk.
        together.iter().for_each(|segment| values.file.will_read(values.offset(*segment), SEGMENT_HEADER_BYTES as u64));
        for segment in together {
            arranged.push((*segment, header(values, *segment)?));
        }
    }
    lock(&values.space).arrange(&arranged, values.sizes.circular);
    if is_written {
        values.fit_space();
    }
    Ok(())
}

/// Extends a cut file to the length that pointers require. The part that was cut off reads as
/// zeros, which are damage. No later use of its space hides the damage.
///
/// # Errors
/// [`Error::Io`].
fn extend_file(values: &Values) -> Result<()> {
    let wanted = values.offset(lock(&values.space).counts().all);
    if wanted <= values.file.len() {
        return Ok(());
    }
    match values.file.grow(wanted) {
        Err(Error::Full { .. }) => {
            let cause = "values.0000 was truncated, and its full length does not fit on the medium: free space on \
                         the medium, or export the readable pairs";
            values.pool.poison(PoisonReason::Write, cause);
            Ok(())
        }
        grown => grown,
    }
}

/// Returns owner and generation from a segment's header. A segment without a header has no owner,
/// but its records are readable.
fn header(values: &Values, segment: u32) -> Result<Option<(Home, u32)>> {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    match values.file.read(values.offset(segment), &mut header) {
        // Beyond the end of a cut file nothing can be read.
        Err(Error::Io { .. } | Error::Corrupt { .. }) => Ok(None),
        read => read.map(|()| decode_segment(&header, segment)),
    }
}

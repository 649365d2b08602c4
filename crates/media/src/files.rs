//! The files of a store: a directory of mode 0700 with `LOCK`, `pool.0000`, `pool.0001`, ... of
//! mode 0600.
//!
//! A region is created under the name `pool.NNNN.new` and renamed once it is whole. A file that
//! ends in `.new` was therefore never part of a store. A directory with only `LOCK` and such files
//! is an interrupted creation and holds no store ([`Error::Missing`] at an open); the next creation
//! starts over. A file of such a name with other content than an interrupted creation leaves is
//! foreign and never touched ([`Error::Foreign`]).

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lodestore_contract::{Error, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::file_names::{LOCK_FILE, is_data_file, is_file_of_store, region_name, unfinished_index, unfinished_name};
use crate::header::is_unfinished;
use crate::lock;
use crate::options::{PoolOptions, Prefault};
use crate::probe::{self, Medium, MediumKind};
use crate::region::{Advice, HUGE_PAGE_BYTES, Mapping};
use crate::region_layout::PAGE_BYTES;
use crate::store_dir::{Access, FileId, StoreDir};

/// Bytes from the start of a file that are examined before it is removed.
pub(crate) const EXAMINED_BYTES: usize = 64 << 10;

/// Bytes touched between two checks of the stop flag.
const POPULATE_SLICE_BYTES: u64 = 16 << 20;

/// The kind of content at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirContent {
    /// No such directory.
    Nothing,
    /// An empty directory, or the rest of an interrupted creation.
    Empty,
    /// A store.
    Store,
    /// Files of a store without its first region; no creation and no removal leaves this state.
    Headless,
    /// Something else.
    Other,
}

impl DirContent {
    /// Returns why there is no store to open at `path`.
    pub(crate) fn refusal(self, path: &Path) -> Error {
        match self {
            Self::Headless => {
                let what = "the file is missing, and other files of the store exist: restore all files from one \
                            copy, or remove the directory to create a new store";
                Error::corrupt(path.join(region_name(0)).display().to_string(), what)
            }
            _ => Error::Missing { path: path.into(), obstacle: self.obstacle(path) },
        }
    }

    /// Returns why no store can be created at `path`.
    pub(crate) fn refusal_of_creation(self, path: &Path) -> Error {
        Error::Exists { path: path.into(), obstacle: self.obstacle(path) }
    }

    /// Returns why `path` can neither be opened nor receive a new store. `None` if one of the two
    /// is possible.
    pub(crate) fn obstacle(self, path: &Path) -> Option<String> {
        match self {
            Self::Nothing | Self::Empty | Self::Store => None,
            Self::Headless => Some(format!("{} is missing, and other files of a store exist", region_name(0))),
            Self::Other => Some(match std::fs::read_dir(path) {
                Ok(entries) => {
                    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
                    let first = names.filter(|name| !is_file_of_store(name)).min();
                    format!("the directory is not empty: it has {}", first.unwrap_or_else(|| "a file".into()))
                }
                Err(_) => "it is not a directory".into(),
            }),
        }
    }
}

/// Opens the directory at `path` and classifies its content. The second value is `None` without a
/// directory.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn classify(path: &Path) -> Result<(DirContent, Option<StoreDir>)> {
    match StoreDir::open(path) {
        Ok(dir) => Ok((classify_dir(&dir)?, Some(dir))),
        Err(refused) if refused.kind() == ErrorKind::NotFound => Ok((DirContent::Nothing, None)),
        Err(refused) if refused.kind() == ErrorKind::NotADirectory => Ok((DirContent::Other, None)),
        Err(refused) => Err(Error::io("reading", path, refused)),
    }
}

/// Classifies the content of `dir`.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn classify_dir(dir: &StoreDir) -> Result<DirContent> {
    // Checked before the names are read: a store that another process creates is named before its
    // lock file says so.
    let was_store = lock::is_of_store(dir);
    let mut found = DirContent::Empty;
    for name in dir.names()? {
        match name.as_str() {
            "pool.0000" => return Ok(DirContent::Store),
            LOCK_FILE => {}
            name if unfinished_index(name).is_some() => {}
            name if is_data_file(name) => found = DirContent::Headless,
            _ if found == DirContent::Headless => {}
            _ => found = DirContent::Other,
        }
    }
    // A process that removes a store clears this mark first.
    Ok(if was_store && lock::is_of_store(dir) { DirContent::Headless } else { found })
}

/// Creates the directory of a new store, if it does not exist, and opens it.
///
/// # Errors
/// [`Error::Exists`] if a store, or something else, is there; [`Error::Io`].
pub(crate) fn create_dir(path: &Path) -> Result<StoreDir> {
    match classify(path)? {
        (DirContent::Empty, Some(dir)) => Ok(dir),
        (DirContent::Nothing, _) => {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|refused| Error::io("creating", path, refused))?;
            StoreDir::open_existing(path)
        }
        (found, _) => Err(found.refusal_of_creation(path)),
    }
}

/// Reads the first bytes of a file that may have to be removed; returns them and the file's length.
///
/// # Errors
/// [`Error::Foreign`] if it is no regular file, [`Error::Io`].
pub(crate) fn examine_file(dir: &StoreDir, name: &str) -> Result<(Vec<u8>, u64)> {
    let path = dir.path_of(name);
    if !dir.entry(name)?.is_some_and(|found| found.is_file()) {
        return Err(Error::Foreign { path, what: "it is not a regular file".into() });
    }
    let file = dir.open_file(name, Access::Read, OFlags::empty());
    let file = file.map_err(|refused| Error::io("opening", &path, refused.into()))?;
    let len = file.metadata().map_err(|refused| Error::io("reading the attributes of", &path, refused))?.len();
    Ok((read_start(&file, &path, EXAMINED_BYTES)?, len))
}

/// Removes the file of unfinished region `index` if its content is that of an interrupted creation.
/// Returns the open file, whose space is freed when it is closed.
fn remove_leftover(dir: &StoreDir, index: u16) -> Result<Option<File>> {
    let name = unfinished_name(index);
    if !is_unfinished(&examine_file(dir, &name)?.0, index) {
        let what = "an interrupted creation of a region cannot have written its content".into();
        return Err(Error::Foreign { path: dir.path_of(&name), what });
    }
    // If the open fails, removing the name also frees the space, which takes longer.
    let file = dir.open_file(&name, Access::Read, OFlags::empty()).ok();
    dir.remove_file(&name).map_err(|refused| Error::io("removing", dir.path_of(&name), refused))?;
    Ok(file)
}

/// Removes the file of a region that this process created but has not named.
pub(crate) fn remove_unfinished_region(dir: &StoreDir, index: u16) {
    // The next open removes a file that stays.
    let _ = dir.remove_file(&unfinished_name(index));
}

/// Removes the files of a region of a creation that failed in this process.
pub(crate) fn remove_named_region(dir: &StoreDir, index: u16) {
    remove_unfinished_region(dir, index);
    let _ = dir.remove_file(&region_name(index));
}

/// Removes files that were never part of the store. Their space is freed when the returned files
/// are closed; for a large file this takes milliseconds.
///
/// # Errors
/// [`Error::Foreign`] if a file has such a name and was not created here; [`Error::Io`].
pub(crate) fn remove_unfinished(dir: &StoreDir) -> Result<Vec<File>> {
    let mut removed = Vec::new();
    for index in dir.names()?.iter().filter_map(|name| unfinished_index(name)) {
        removed.extend(remove_leftover(dir, index)?);
    }
    Ok(removed)
}

/// Creates the region files of one pool.
#[derive(Debug, Clone)]
pub(crate) struct RegionCreator {
    pub(crate) dir: Arc<StoreDir>,
    /// Medium of the pool's first region; `None` while that region is created.
    pub(crate) pool_medium: Option<Medium>,
    pub(crate) huge_pages: bool,
    pub(crate) prefault: Prefault,
    /// For the error's text.
    pub(crate) capacity: u64,
}

impl RegionCreator {
    pub(crate) fn new(dir: &Arc<StoreDir>, pool_medium: Option<Medium>, opts: &PoolOptions) -> Self {
        Self {
            dir: Arc::clone(dir),
            pool_medium,
            huge_pages: opts.huge_pages,
            prefault: opts.prefault,
            capacity: opts.capacity,
        }
    }

    fn full(&self, needed: u64) -> Error {
        Error::Full { needed, capacity: self.capacity }
    }

    /// Creates region `index` under its unfinished name. All its bytes are zero and allocated, so
    /// no later touch can fail. Returns `None` if `stop` became true meanwhile.
    ///
    /// # Errors
    /// [`Error::Full`] if the medium has no space, [`Error::WeakerMedium`], [`Error::Io`]; then no
    /// file is left. [`Error::Foreign`] if a foreign file has the name; it stays as it is.
    pub(crate) fn create(&self, index: u16, len: u64, stop: &AtomicBool) -> Result<Option<MappedRegion>> {
        let file = self.new_file(index)?;
        let made = self.fill_file(&self.dir.path_of(&unfinished_name(index)), file, len, stop);
        if !matches!(made, Ok(Some(_))) {
            remove_unfinished_region(&self.dir, index);
        }
        made
    }

    /// Creates a file that did not exist; links are not followed. The rest of an interrupted
    /// creation is replaced.
    fn new_file(&self, index: u16) -> Result<File> {
        let name = unfinished_name(index);
        let open = || self.dir.open_file(&name, Access::CreateNew, OFlags::empty());
        let file = match open() {
            Err(Errno::EXIST) => {
                remove_leftover(&self.dir, index)?;
                open()
            }
            other => other,
        };
        file.map_err(|refused| Error::io("creating", self.dir.path_of(&name), refused.into()))
    }

    fn fill_file(&self, path: &Path, file: File, len: u64, stop: &AtomicBool) -> Result<Option<MappedRegion>> {
        let io = |doing: &'static str| move |refused: Errno| Error::io(doing, path, refused.into());
        if probe::free_bytes(&file).map_err(io("probing"))? < len {
            return Err(self.full(len));
        }
        let sized = |done: Result<(), Errno>| match done {
            Ok(()) => Ok(()),
            Err(Errno::NOSPC | Errno::FBIG | Errno::DQUOT) => Err(self.full(len)),
            Err(refused) => Err(io("sizing")(refused)),
        };
        sized(rustix::fs::ftruncate(&file, len))?;
        let medium = probe::medium_of(&file).map_err(io("probing"))?;
        if let Some(pool) = &self.pool_medium {
            probe::check_as_strong(path, &medium, pool)?;
        }
        let populate = medium.kind == MediumKind::Shm && self.prefault == Prefault::Ahead;
        if !populate {
            // On shared memory this creates small pages, so it is used only if nothing shall be
            // touched ahead.
            sized(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len))?;
        }
        let mapping = Mapping::of_file(file, len, medium.kind == MediumKind::Dax).map_err(io("mapping"))?;
        advise_huge(&mapping, medium.kind, self.huge_pages);
        advise_small(&mapping, medium.kind);
        if populate && !self.populate(path, &mapping, stop)? {
            return Ok(None);
        }
        Ok(Some(MappedRegion { mapping, medium }))
    }

    /// Touches every page for writing; returns false if `stop` became true. A full file system is
    /// an error here, and would raise SIGBUS later.
    fn populate(&self, path: &Path, mapping: &Mapping, stop: &AtomicBool) -> Result<bool> {
        let mut at = 0;
        while at < mapping.len() {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let slice = POPULATE_SLICE_BYTES.min(mapping.len() - at);
            if self.huge_pages {
                make_huge(mapping, at, slice);
            }
            if let Err(refused) = mapping.advise(at, slice, Advice::PopulateWrite) {
                return match refused.raw_os_error() {
                    Some(libc::EFAULT | libc::ENOMEM | libc::ENOSPC) => Err(self.full(mapping.len())),
                    // A kernel before 5.14: reserve the pages instead.
                    Some(libc::EINVAL) => self.reserve(path, mapping).map(|()| true),
                    _ => Err(Error::io("filling", path, refused)),
                };
            }
            at += slice;
        }
        Ok(true)
    }

    fn reserve(&self, path: &Path, mapping: &Mapping) -> Result<()> {
        let Some(file) = mapping.file() else { return Ok(()) };
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, mapping.len()) {
            Ok(()) => Ok(()),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(self.full(mapping.len())),
            Err(refused) => Err(Error::io("reserving", path, refused.into())),
        }
    }

    /// Renames the unfinished region that `mapping` maps to its final name, or removes it.
    ///
    /// # Errors
    /// [`Error::Foreign`] if a file has the name already, or if the unfinished file is no longer
    /// the mapped one (it stays). [`Error::Io`], also if the unfinished file or the directory was
    /// removed.
    pub(crate) fn finish(&self, index: u16, mapping: &Mapping) -> Result<()> {
        let (unfinished, name) = (unfinished_name(index), region_name(index));
        if !self.is_mapped_by(&unfinished, mapping)? {
            self.check_not_removed(&unfinished)?;
            let what = format!("region {index} was created under this name, and another file has the name now");
            return Err(Error::Foreign { path: self.dir.path_of(&unfinished), what });
        }
        let named = match self.dir.entry(&name) {
            Ok(Some(_)) => {
                let what = format!("it has the name of region {index}, which is being created");
                Err(Error::Foreign { path: self.dir.path_of(&name), what })
            }
            Ok(None) => self.dir.rename(&unfinished, &name),
            Err(refused) => Err(refused),
        };
        named.inspect_err(|_| remove_unfinished_region(&self.dir, index))
    }

    /// Refuses a created file that has lost its name.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn check_not_removed(&self, name: &str) -> Result<()> {
        let what = match self.dir.entry(name)? {
            Some(_) => return Ok(()),
            None if self.dir.is_removed() => "the directory of the open store was removed",
            None => "the file was removed while the store created it",
        };
        Err(Error::io("naming", self.dir.path_of(name), std::io::Error::new(ErrorKind::NotFound, what)))
    }

    /// Returns whether the file of this name is the file under the mapping.
    fn is_mapped_by(&self, name: &str, mapping: &Mapping) -> Result<bool> {
        let Some(file) = mapping.file() else { return Ok(true) };
        let own = FileId::of_file(file)
            .map_err(|refused| Error::io("reading the attributes of", self.dir.path_of(name), refused.into()))?;
        Ok(self.dir.entry(name)?.is_some_and(|found| found.id == own))
    }
}

/// Makes untouched pages huge at once: one small page of each huge one is touched, then they are
/// joined. After all pages are touched, joining copies each of them, at several times the cost.
/// Pages that cannot be made huge stay small.
fn make_huge(mapping: &Mapping, at: u64, len: u64) {
    for page in (at..at + len).step_by(HUGE_PAGE_BYTES as usize) {
        if mapping.len() - page < HUGE_PAGE_BYTES || mapping.advise(page, PAGE_BYTES, Advice::PopulateWrite).is_err() {
            return;
        }
    }
    let whole = len / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if whole > 0 {
        // Fails on kernels before 6.1, or if memory has no huge page left.
        let _ = mapping.advise(at, whole, Advice::Collapse);
    }
}

/// A new region.
#[derive(Debug)]
pub(crate) struct MappedRegion {
    pub(crate) mapping: Mapping,
    pub(crate) medium: Medium,
}

fn advise_huge(mapping: &Mapping, medium: MediumKind, wanted: bool) {
    if wanted && medium != MediumKind::File && mapping.len() >= HUGE_PAGE_BYTES {
        // Only a hint: without it everything works, but slower.
        let _ = mapping.advise(0, mapping.len(), Advice::HugePage);
    }
}

/// Asks for small pages in the cache of a new file. Read-ahead makes pages large, and each sync
/// writes a large page whole although few of its bytes have changed.
///
/// An opened region keeps read-ahead: recoveries and scans read it in order.
fn advise_small(mapping: &Mapping, medium: MediumKind) {
    if medium == MediumKind::File {
        // Only a hint: without it more bytes are written.
        let _ = mapping.advise(0, mapping.len(), Advice::Random);
    }
}

/// Maps the open file of a region, all `len` bytes of it.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn map_region(path: &Path, file: File, len: u64, opts: &PoolOptions) -> Result<MappedRegion> {
    let medium = probe::medium_of(&file).map_err(|refused| Error::io("probing", path, refused.into()))?;
    fill_holes(path, &file, len)?;
    let mapping = Mapping::of_file(file, len, medium.kind == MediumKind::Dax)
        .map_err(|refused| Error::io("mapping", path, refused.into()))?;
    advise_huge(&mapping, medium.kind, opts.huge_pages);
    Ok(MappedRegion { mapping, medium })
}

/// Allocates the holes of a region's file, as left by a sparse copy. A store into a hole of a full
/// file system would raise SIGBUS.
fn fill_holes(path: &Path, file: &File, len: u64) -> Result<()> {
    let found = file.metadata().map_err(|refused| Error::io("reading the attributes of", path, refused))?;
    if found.blocks().saturating_mul(512) >= len {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len) {
        // A file system that does not count or reserve blocks has no relevant holes.
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(refused) => Err(Error::io("allocating the holes of", path, refused.into())),
    }
}

/// Opens a region's file; returns it with its length.
///
/// # Errors
/// [`Error::Corrupt`] if there is no file, or no regular file: links are not followed.
/// [`Error::Io`].
pub(crate) fn open_region(dir: &StoreDir, index: u16, access: Access) -> Result<(File, u64)> {
    let (name, place) = (region_name(index), dir.path_of(&region_name(index)));
    let corrupt = |what: &str| Error::corrupt(place.display().to_string(), what);
    let no_file = || corrupt("this region is not a regular file");
    let file = match dir.open_file(&name, access, OFlags::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => {
            return Err(corrupt("this region's file is missing: put it back, or restore all files from one copy"));
        }
        Err(Errno::LOOP) => {
            return Err(corrupt(
                "this region is a symbolic link, which the store does not follow: move the file itself here",
            ));
        }
        Err(Errno::ISDIR | Errno::NXIO) => return Err(no_file()),
        Err(refused) => return Err(Error::io("opening", place, refused.into())),
    };
    let found = file.metadata().map_err(|refused| Error::io("reading the length of", &place, refused))?;
    if found.is_file() { Ok((file, found.len())) } else { Err(no_file()) }
}

/// Returns at most `len_max` bytes from the start of a file.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn read_start(file: &File, path: &Path, len_max: usize) -> Result<Vec<u8>> {
    read_at(file, path, 0, len_max)
}

/// Returns at most `len_max` bytes from `offset` on.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn read_at(file: &File, path: &Path, offset: u64, len_max: usize) -> Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; len_max];
    let mut filled = 0;
    while filled < len_max {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(refused) if refused.kind() == ErrorKind::Interrupted => {}
            Err(refused) => return Err(Error::io("reading", path, refused)),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

//! Where the stores of a matrix come from. Whoever owns the matrix gives it stores of any engine; the engine itself leaves labels beside them (`label.rs`), if they are files, and opens no
//! other file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestore_contract::{Durability, Result, Store};

use crate::apply::is_refusal;
use crate::label::{Label, Labelled};

/// What a store is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The matrix's own description, and filters while it is closed.
    Host,
    /// A device's pairs.
    Device,
    /// A device's operation log.
    Log,
}

impl Part {
    /// The directory of it below the matrix's, or the device's.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "store",
            Self::Log => "log",
        }
    }

    /// The words of reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "description",
            Self::Device => "pairs",
            Self::Log => "operation log",
        }
    }
}

/// Which stores an open takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Those that have everything that was durable.
    Strict,
    /// Damaged ones as well, with what can be read of them.
    Salvage,
}

/// A store, and whether its medium is memory.
pub struct Place {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its medium answers in less time than waking a thread takes.
    pub is_memory: bool,
}

/// A store that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// What it is for.
    pub part: Part,
    /// The engine of it, by name; none for the host's, which is the owner's to choose.
    pub engine: &'a str,
    /// Most bytes that it may take.
    pub capacity: u64,
    /// What a write to it survives.
    pub durability: Durability,
}

/// Makes and opens the stores of a matrix.
pub trait Places: Send + Sync + 'static {
    /// Engines of a new matrix's devices and of their logs, by name.
    fn engines(&self) -> (String, String);

    /// Whether its stores are files below the directories that it is given, each in that of its part ([`Part::directory`]): labels are left beside them then.
    fn has_files(&self) -> bool;

    /// Makes a store in `directory`. Directories that lead there are made.
    ///
    /// # Errors
    /// Those of an engine's creation.
    fn create(&self, directory: &Path, new: New<'_>) -> Result<Place>;

    /// Takes away the store `part` in `directory`, which [`create`](Self::create) made and nothing came of. It is closed. What is around it stays.
    ///
    /// # Errors
    /// [`Error::Io`](lodestore_contract::Error::Io).
    fn remove(&self, directory: &Path, part: Part) -> Result<()>;

    /// Opens the store `part` in `directory`, made by the engine of this name (of a host: whichever).
    /// A salvage of the matrix opens each store strictly first, and in salvage only if that is
    /// refused.
    ///
    /// # Errors
    /// Those of an engine's opening.
    fn open(&self, directory: &Path, part: Part, engine: &str, mode: OpenMode) -> Result<Place>;

    /// Returns the last [`Store::opening`] of the store `part` in `directory`, without opening the
    /// store; `None` if that is not known.
    fn opening(&self, _directory: &Path, _part: Part) -> Option<u64> {
        None
    }
}

/// Stores that are being made for something: they are taken away again where nothing comes of it.
pub(crate) struct Made<'a> {
    places: &'a dyn Places,
    stores: Vec<(PathBuf, Part, Arc<dyn Store>)>,
    directories: Vec<Labelled>,
}

impl<'a> Made<'a> {
    pub(crate) fn new(places: &'a dyn Places) -> Self {
        Self { places, stores: Vec::new(), directories: Vec::new() }
    }

    pub(crate) fn places(&self) -> &'a dyn Places {
        self.places
    }

    /// As [`Places::create`].
    pub(crate) fn create(&mut self, directory: &Path, new: New<'_>) -> Result<Place> {
        let place = self.places.create(directory, new)?;
        self.stores.push((directory.into(), new.part, Arc::clone(&place.store)));
        Ok(place)
    }

    /// Labels the directory of a device before anything is made in it. What a stop in the middle left there of a device that was coming to the same matrix, and is `unknown` there, is taken away.
    ///
    /// # Errors
    /// [`Error::Io`](lodestore_contract::Error::Io).
    pub(crate) fn label(&mut self, directory: &Path, label: Label, unknown: impl Fn(u64) -> bool) -> Result<()> {
        if !self.places.has_files() {
            return Ok(());
        }
        let left = Label::read(directory)?;
        match left {
            Some(left) if left.is_coming && left.matrix == label.matrix && unknown(left.id) => {
                for part in [Part::Device, Part::Log] {
                    if directory.join(part.directory()).exists() {
                        self.places.remove(directory, part)?;
                    }
                }
            }
            // Whoever it belongs to finds it as it was; its store says that there is one.
            Some(_) => return Ok(()),
            None => {}
        }
        self.directories.push(Labelled::begin(directory, label)?);
        Ok(())
    }

    /// Leaves the label of a device's store beside it.
    ///
    /// # Errors
    /// [`Error::Io`](lodestore_contract::Error::Io).
    pub(crate) fn label_store(&self, directory: &Path, label: Label) -> Result<()> {
        if self.places.has_files() { label.leave(&directory.join(Part::Device.directory())) } else { Ok(()) }
    }

    /// They are in use from now on, if this says so; unless it was refused for sure, they stay: the description may name them.
    ///
    /// # Errors
    /// What it says.
    pub(crate) fn keep_unless_refused(mut self, described: Result<()>) -> Result<()> {
        match &described {
            Ok(()) => self.keep(),
            Err(error) if is_refusal(error) => {}
            Err(_) => {
                // Their labels go on saying that they are coming: the next open knows whether they are.
                self.stores.clear();
                self.directories.clear();
            }
        }
        described
    }

    /// They are in use from now on.
    pub(crate) fn keep(mut self) {
        self.stores.clear();
        for Labelled { directory, label, .. } in self.directories.drain(..) {
            // One that goes on saying that it is coming is put right by the next open.
            let _ = Label { is_coming: false, ..label }.leave(&directory);
        }
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        for (directory, part, store) in self.stores.drain(..) {
            // What these end with helps nobody: why nothing came of it is told.
            let _ = store.close();
            let _ = self.places.remove(&directory, part);
        }
        self.directories.drain(..).for_each(|labelled| labelled.undo());
    }
}

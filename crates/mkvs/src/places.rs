//! The source of a matrix's stores. The owner of the matrix provides stores of any engine. The
//! engine itself writes labels next to them (`label.rs`) if they are files, and a record while a
//! matrix is created (`creation.rs`). The engine opens no other file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestore_contract::{Durability, Result, Store};

use crate::apply::is_refusal;
use crate::label::{Label, Labelled};

/// The purpose of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The matrix's own description, and filters while the matrix is closed.
    Host,
    /// A device's pairs.
    Device,
    /// A device's operation log.
    Log,
}

impl Part {
    /// Returns the store's directory below the matrix's directory, or below the device's.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "store",
            Self::Log => "log",
        }
    }

    /// Returns the name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "description",
            Self::Device => "pairs",
            Self::Log => "operation log",
        }
    }
}

/// Which stores an open accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Stores that have everything that was durable.
    Strict,
    /// Also damaged stores, with their readable data.
    Salvage,
}

/// A store, and whether its medium is memory.
pub struct Place {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The medium answers in less time than waking a thread needs.
    pub is_memory: bool,
}

/// Parameters of a new store.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// Purpose of the store.
    pub part: Part,
    /// Name of its engine; empty for the host's store, whose engine the owner chooses.
    pub engine: &'a str,
    /// Maximum size in bytes.
    pub capacity: u64,
    /// The losses that a write to the store survives.
    pub durability: Durability,
}

/// Creates and opens the stores of a matrix.
pub trait Places: Send + Sync + 'static {
    /// Returns the names of the engines of a new matrix's devices and of their logs.
    fn engines(&self) -> (String, String);

    /// Returns whether the stores are files below the given directories, each in the directory of
    /// its part ([`Part::directory`]). If they are, labels are written next to them.
    fn has_files(&self) -> bool;

    /// Creates a store in `directory`, with its missing parent directories.
    ///
    /// # Errors
    /// Errors of an engine's creation.
    fn create(&self, directory: &Path, new: New<'_>) -> Result<Place>;

    /// Removes the closed store `part` in `directory` that [`create`](Self::create) made, after a
    /// failure. Everything else in the directory stays.
    ///
    /// # Errors
    /// [`Error::Io`](lodestore_contract::Error::Io).
    fn remove(&self, directory: &Path, part: Part) -> Result<()>;

    /// Opens the store `part` in `directory`, created by the engine of this name (of a host's
    /// store: by any). A salvage of the matrix opens each store strictly first, and in salvage mode
    /// only if that is refused.
    ///
    /// # Errors
    /// Errors of an engine's opening.
    fn open(&self, directory: &Path, part: Part, engine: &str, mode: OpenMode) -> Result<Place>;

    /// Returns the last [`Store::opening`] of the store `part` in `directory`, without opening the
    /// store; `None` if it is unknown.
    fn opening(&self, _directory: &Path, _part: Part) -> Option<u64> {
        None
    }
}

/// Stores that are being created. They are removed again if the change that needs them fails.
pub(crate) struct NewStores<'a> {
    places: &'a dyn Places,
    stores: Vec<(PathBuf, Part, Arc<dyn Store>)>,
    directories: Vec<Labelled>,
}

impl<'a> NewStores<'a> {
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

    /// Labels a device's directory before anything is created in it. Removes stores that an
    /// interrupted addition to the same matrix left there, if their device is `unknown` to the
    /// matrix.
    ///
    /// # Errors
    /// [`Error::Io`](lodestore_contract::Error::Io).
    pub(crate) fn label(&mut self, directory: &Path, label: Label, unknown: impl Fn(u64) -> bool) -> Result<()> {
        if !self.places.has_files() {
            return Ok(());
        }
        let left = Label::read(directory)?;
        match left {
            Some(left) if left.is_pending && left.matrix == label.matrix && unknown(left.id) => {
                for part in [Part::Device, Part::Log] {
                    if directory.join(part.directory()).exists() {
                        self.places.remove(directory, part)?;
                    }
                }
            }
            // The directory belongs to another device or matrix and stays unchanged; creating the
            // store there will fail.
            Some(_) => return Ok(()),
            None => {}
        }
        self.directories.push(Labelled::begin(directory, label)?);
        Ok(())
    }

    /// Writes the label of a device's store next to it.
    ///
    /// # Errors
    /// [`Error::Io`](lodestore_contract::Error::Io).
    pub(crate) fn label_store(&self, directory: &Path, label: Label) -> Result<()> {
        if self.places.has_files() { label.write(&directory.join(Part::Device.directory())) } else { Ok(()) }
    }

    /// Keeps the stores if `described` is a success. Removes them only if it is a refusal; after
    /// any other error the description may name them.
    ///
    /// # Errors
    /// The error of `described`.
    pub(crate) fn keep_unless_refused(mut self, described: Result<()>) -> Result<()> {
        match &described {
            Ok(()) => self.keep(),
            Err(error) if is_refusal(error) => {}
            Err(_) => {
                // Their labels stay marked `is_pending`: the next open knows whether the
                // description names them.
                self.stores.clear();
                self.directories.clear();
            }
        }
        described
    }

    /// Keeps the stores: they are in use.
    pub(crate) fn keep(mut self) {
        self.stores.clear();
        for Labelled { directory, label, .. } in self.directories.drain(..) {
            // The next open corrects a label that stays marked `is_pending`.
            let _ = Label { is_pending: false, ..label }.write(&directory);
        }
    }
}

impl Drop for NewStores<'_> {
    fn drop(&mut self) {
        for (directory, part, store) in self.stores.drain(..) {
            // Errors here are dropped: the error that caused the removal is reported.
            let _ = store.close();
            let _ = self.places.remove(&directory, part);
        }
        self.directories.drain(..).for_each(|labelled| labelled.remove_created());
    }
}

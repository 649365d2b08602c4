//! Where the stores of a matrix come from. The engine opens no file itself: whoever owns it gives it stores of any engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestore_contract::{Durability, Result, Store};

use crate::apply::is_refusal;

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
    ///
    /// # Errors
    /// Those of an engine's opening.
    fn open(&self, directory: &Path, part: Part, engine: &str) -> Result<Place>;
}

/// Stores that are being made for something: they are taken away again where nothing comes of it.
pub(crate) struct Made<'a> {
    places: &'a dyn Places,
    stores: Vec<(PathBuf, Part, Arc<dyn Store>)>,
}

impl<'a> Made<'a> {
    pub(crate) fn new(places: &'a dyn Places) -> Self {
        Self { places, stores: Vec::new() }
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

    /// They are in use from now on, if this says so; unless it was refused for sure, they stay: the description may name them.
    ///
    /// # Errors
    /// What it says.
    pub(crate) fn keep_unless_refused(self, described: Result<()>) -> Result<()> {
        if !described.as_ref().is_err_and(is_refusal) {
            self.keep();
        }
        described
    }

    /// They are in use from now on.
    pub(crate) fn keep(mut self) {
        self.stores.clear();
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        for (directory, part, store) in self.stores.drain(..) {
            // What these end with helps nobody: why nothing came of it is told.
            let _ = store.close();
            let _ = self.places.remove(&directory, part);
        }
    }
}

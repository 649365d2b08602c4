//! The host's own store: the matrix's description, and what a clean stop leaves.
//!
//! The description is one record, replaced as a whole: a crash leaves the old one or the new one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lodestore_contract::{Error, Result, Store};

use crate::advice::explain_host;
use crate::apply::is_refusal;
use crate::filter::Filter;
use crate::group::Group;
use crate::layout::{CLEAN_KEY, CleanRecord, EPOCHS_MAX, MATRIX_KEY, Matrix, Member, MemberState};
use crate::lock;
use crate::planted::{Fault, Planted};

/// Bytes of a filter in one record.
const FILTER_PART: usize = 1 << 20;

/// The host's store, and the description as it stands there.
pub(crate) struct Host {
    store: Arc<dyn Store>,
    matrix: Mutex<Matrix>,
    /// The directory of the matrix.
    root: PathBuf,
}

fn filter_key(group: usize, part: usize) -> Vec<u8> {
    format!("filter/{group}/{part}").into_bytes()
}

impl Host {
    /// Describes a new matrix in an empty store.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn create(store: Arc<dyn Store>, matrix: Matrix, root: &Path) -> Result<Self> {
        store.put(MATRIX_KEY, &matrix.encode())?;
        Ok(Self { store, matrix: Mutex::new(matrix), root: root.into() })
    }

    /// Reads the description. `root` is where it lies.
    ///
    /// # Errors
    /// The store's; [`Error::Missing`] where the creation was cut short before it: then there is no matrix; [`Error::Corrupt`], [`Error::NewerFormat`], [`Error::OlderFormat`].
    pub(crate) fn open(store: Arc<dyn Store>, root: &Path) -> Result<Self> {
        let bytes = store.get(MATRIX_KEY)?;
        let bytes = bytes.ok_or_else(|| Error::missing(root))?;
        let matrix = Matrix::decode(&bytes)?;
        Ok(Self { store, matrix: Mutex::new(matrix), root: root.into() })
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn matrix(&self) -> Matrix {
        lock(&self.matrix).clone()
    }

    /// Changes the description, durably.
    ///
    /// # Errors
    /// The store's: then it is as it was.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Matrix)) -> Result<()> {
        let mut matrix = lock(&self.matrix);
        let mut next = matrix.clone();
        change(&mut next);
        if next != *matrix {
            self.store.put(MATRIX_KEY, &next.encode()).map_err(|error| explain_host(&self.root, error))?;
            *matrix = next;
        }
        Ok(())
    }

    /// Begins an epoch of a group, whose first operation is `first`, with these states of its members.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn begin_epoch(
        &self,
        group: usize,
        epoch: u64,
        first: u64,
        states: &[(u64, MemberState)],
    ) -> Result<()> {
        self.change(|matrix| {
            let group = &mut matrix.groups[group];
            group.epoch = epoch;
            // An epoch without operations leaves no trace.
            group.epochs.retain(|(_, begun)| *begun < first);
            group.epochs.push((epoch, first));
            let most = group.epochs.len().saturating_sub(EPOCHS_MAX);
            group.epochs.drain(..most);
            for (id, state) in states {
                group.members.iter_mut().filter(|member| member.id == *id).for_each(|member| member.state = *state);
            }
        })
    }

    /// Notes how often the stores of pairs were opened, durably. A store that has a lower number at
    /// a later open was replaced by an older copy.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn note_openings(&self, groups: &[Arc<Group>]) -> Result<()> {
        self.change(|matrix| {
            for (group, record) in groups.iter().zip(&mut matrix.groups) {
                for device in group.devices() {
                    let own = record.members.iter_mut().filter(|member| member.id == device.id);
                    own.for_each(|member| member.opening = device.store().opening().max(member.opening));
                }
            }
        })
    }

    /// Notes durably which stores a salvage took though they were replaced by older copies: no open
    /// without salvage takes them again.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn note_older(&self, groups: &[Arc<Group>]) -> Result<()> {
        self.change(|matrix| {
            for (group, record) in groups.iter().zip(&mut matrix.groups) {
                for device in group.devices().iter().filter(|device| device.is_older()) {
                    let own = record.members.iter_mut().filter(|member| member.id == device.id);
                    own.for_each(|member| member.opening = Member::OPENING_NEVER);
                }
            }
        })
    }

    /// Leaves what a clean stop leaves: filters first, then the record that names them. A filter that finds no room is left out: it is made anew.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn leave(&self, clean: &CleanRecord, filters: &[Option<Arc<Filter>>]) -> Result<()> {
        let mut clean = clean.clone();
        for (group, filter) in filters.iter().enumerate() {
            let Some(filter) = filter else { continue };
            match self.leave_filter(group, filter) {
                Ok(()) => {}
                Err(error) if is_refusal(&error) => {
                    // What is left of it is taken away with the rest.
                    clean.groups[group].2 = 0;
                }
                Err(error) => return Err(error),
            }
        }
        self.store.put(CLEAN_KEY, &clean.encode())
    }

    fn leave_filter(&self, group: usize, filter: &Filter) -> Result<()> {
        let bytes = filter.to_bytes();
        let mut parts = bytes.chunks(FILTER_PART).enumerate();
        parts.try_for_each(|(part, bytes)| self.store.put(&filter_key(group, part), bytes))
    }

    /// What a clean stop left. It is taken away before it is answered, durably: it holds for one open.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn take_clean(&self, planted: Planted) -> Result<Option<(CleanRecord, Vec<Option<Filter>>)>> {
        self.take_left(planted).map_err(|error| explain_host(&self.root, error))
    }

    fn take_left(&self, planted: Planted) -> Result<Option<(CleanRecord, Vec<Option<Filter>>)>> {
        let bytes = match self.store.get(CLEAN_KEY) {
            // Taken away as what cannot be read of it is.
            Err(Error::Corrupt { .. }) => Some(Vec::new()),
            bytes => bytes?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let Ok(clean) = CleanRecord::decode(&bytes) else {
            // What it says of filters is not needed: they are made anew.
            self.store.delete(CLEAN_KEY)?;
            return Ok(None);
        };
        let filters = (0..clean.groups.len()).map(|group| self.take_filter(group, clean.groups[group].2, planted));
        let filters = filters.collect::<Result<Vec<_>>>()?;
        if !planted.is(Fault::FilterLeftKept) {
            self.store.delete(CLEAN_KEY)?;
        }
        Ok(Some((clean, filters)))
    }

    /// A filter that was left for `keys` keys. `None` where there is none, or where it cannot be read whole: then it is made anew.
    fn take_filter(&self, group: usize, keys: u64, planted: Planted) -> Result<Option<Filter>> {
        let mut bytes = Vec::new();
        for part in 0.. {
            let key = filter_key(group, part);
            match self.store.get(&key) {
                Ok(Some(more)) => bytes.extend(more),
                Ok(None) => break,
                Err(Error::Corrupt { .. }) => bytes.clear(),
                Err(error) => return Err(error),
            }
            if !planted.is(Fault::FilterLeftKept) {
                self.store.delete(&key)?;
            }
        }
        Ok(if keys == 0 { None } else { Filter::from_bytes(keys, &bytes) })
    }
}

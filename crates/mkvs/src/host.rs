//! The host's own store: the matrix's description, and the record of a clean stop.
//!
//! The description is one record, replaced as a whole: after a crash it is the old one or the new
//! one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lodestore_contract::{Error, Result, Store};

use crate::advice::explain_host;
use crate::apply::is_refusal;
use crate::device::Device;
use crate::filter::Filter;
use crate::layout::{CLEAN_KEY, CleanRecord, EPOCHS_MAX, MATRIX_KEY, Matrix, Member, MemberState};
use crate::lock;
use crate::options::MkvsOptions;
use crate::planted;

/// Maximum bytes of a filter in one record.
const FILTER_PART_BYTES: usize = 1 << 20;

/// The host's store, and its present description.
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
    /// Writes the description of a new matrix into an empty store.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn create(store: Arc<dyn Store>, matrix: Matrix, root: &Path) -> Result<Self> {
        store.put(MATRIX_KEY, &matrix.encode())?;
        Ok(Self { store, matrix: Mutex::new(matrix), root: root.into() })
    }

    /// Reads the description of the matrix in `root`.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Missing`] if a creation was interrupted before the
    /// description: the matrix does not exist; [`Error::Corrupt`], [`Error::NewerFormat`],
    /// [`Error::OlderFormat`].
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
    /// Errors of the store. The description is then unchanged.
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

    /// Begins an epoch of a group with the first operation `first` and these member states.
    ///
    /// # Errors
    /// Errors of the store.
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
            // An epoch without operations is not kept.
            group.epochs.retain(|(_, begun)| *begun < first);
            group.epochs.push((epoch, first));
            let surplus = group.epochs.len().saturating_sub(EPOCHS_MAX);
            group.epochs.drain(..surplus);
            for (id, state) in states {
                group.members.iter_mut().filter(|member| member.id == *id).for_each(|member| member.state = *state);
            }
        })
    }

    /// Stores the numbers (`Store::opening`) of the stores of pairs, durably. A store with a lower
    /// number at a later open was replaced by an older copy. `devices` are the devices of each
    /// group.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn note_openings(&self, devices: &[Vec<Arc<Device>>]) -> Result<()> {
        self.change(|matrix| {
            for (devices, record) in devices.iter().zip(&mut matrix.groups) {
                for device in devices {
                    let own = record.members.iter_mut().filter(|member| member.id == device.id);
                    own.for_each(|member| member.opening = device.store().opening().max(member.opening));
                }
            }
        })
    }

    /// Notes durably that a salvage is about to open a store of pairs that was replaced by an older
    /// copy. Only another salvage opens the store again: each open raises the number that shows
    /// its age.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn note_older(&self, device: u64) -> Result<()> {
        self.change(|matrix| {
            let members = matrix.groups.iter_mut().flat_map(|group| &mut group.members);
            members.filter(|member| member.id == device).for_each(|member| member.opening = Member::OPENING_MAX);
        })
    }

    /// Writes the state of a clean stop: the filters first, then the record that names them. A
    /// filter that does not fit is left out and rebuilt later.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn write_clean_stop(&self, clean: &CleanRecord, filters: &[Option<Arc<Filter>>]) -> Result<()> {
        let mut clean = clean.clone();
        for (group, filter) in filters.iter().enumerate() {
            let Some(filter) = filter else { continue };
            match self.write_filter(group, filter) {
                Ok(()) => {}
                Err(error) if is_refusal(&error) => {
                    // Its stored parts are removed with the rest.
                    clean.groups[group].2 = 0;
                }
                Err(error) => return Err(error),
            }
        }
        self.store.put(CLEAN_KEY, &clean.encode())
    }

    fn write_filter(&self, group: usize, filter: &Filter) -> Result<()> {
        let bytes = filter.to_bytes();
        let mut parts = bytes.chunks(FILTER_PART_BYTES).enumerate();
        parts.try_for_each(|(part, bytes)| self.store.put(&filter_key(group, part), bytes))
    }

    /// Returns the state of a clean stop. Removes it durably before the return: it is valid for one
    /// open.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn take_clean_stop(&self, options: &MkvsOptions) -> Result<Option<(CleanRecord, Vec<Option<Filter>>)>> {
        self.take_clean_record(options).map_err(|error| explain_host(&self.root, error))
    }

    fn take_clean_record(&self, options: &MkvsOptions) -> Result<Option<(CleanRecord, Vec<Option<Filter>>)>> {
        let bytes = match self.store.get(CLEAN_KEY) {
            // Treated as an unreadable record and removed.
            Err(Error::Corrupt { .. }) => Some(Vec::new()),
            bytes => bytes?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let Ok(clean) = CleanRecord::decode(&bytes) else {
            // Its filter sizes are not needed: the filters are rebuilt.
            self.store.delete(CLEAN_KEY)?;
            return Ok(None);
        };
        let filters = (0..clean.groups.len()).map(|group| self.take_filter(group, clean.groups[group].2, options));
        let filters = filters.collect::<Result<Vec<_>>>()?;
        if !options.planted.has_fault(planted::FILTER_LEFT_KEPT) {
            self.store.delete(CLEAN_KEY)?;
        }
        Ok(Some((clean, filters)))
    }

    /// Returns the stored filter for `keys` keys, or `None` if there is none or it is damaged. In
    /// that case it is rebuilt.
    fn take_filter(&self, group: usize, keys: u64, options: &MkvsOptions) -> Result<Option<Filter>> {
        let mut bytes = Vec::new();
        for part in 0.. {
            let key = filter_key(group, part);
            match self.store.get(&key) {
                Ok(Some(more)) => bytes.extend(more),
                Ok(None) => break,
                Err(Error::Corrupt { .. }) => bytes.clear(),
                Err(error) => return Err(error),
            }
            if !options.planted.has_fault(planted::FILTER_LEFT_KEPT) {
                self.store.delete(&key)?;
            }
        }
        Ok(if keys == 0 { None } else { Filter::from_bytes(keys, &bytes) })
    }
}

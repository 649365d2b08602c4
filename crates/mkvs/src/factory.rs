//! Creation and opening of a device's stores: identities, labels, and the doubts of a salvage.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestore_contract::{Error, Result, Store};
use lodestore_media::StoreDir;

use crate::apply::is_refusal;
use crate::device::Device;
use crate::host::Host;
use crate::label::Label;
use crate::layout::{DeviceRecord, Matrix, Member};
use crate::oplog::{LogLimits, OpLog};
use crate::options::{Inline, MkvsOptions};
use crate::places::{New, NewStores, OpenMode, Part, Place, Places};
use crate::salvage_doubts::Doubt;

/// Returns a random id, almost certainly unique among matrices and devices.
pub(crate) fn new_id() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() | 1
}

/// Returns the id at `position` of a new matrix.
pub(crate) fn id_of(options: &MkvsOptions, position: u64) -> u64 {
    options.seed.map_or_else(new_id, |seed| xxhash_rust::xxh3::xxh3_64_with_seed(&position.to_le_bytes(), seed) | 1)
}

/// Returns the id of a device that is added to a matrix, at `position` of its group.
pub(crate) fn id_of_new(options: &MkvsOptions, matrix: &Matrix, position: usize) -> u64 {
    // Each addition changes the description.
    options.seed.map_or_else(new_id, |seed| {
        xxhash_rust::xxh3::xxh3_64_with_seed(&matrix.encode(), seed).wrapping_add(2 * position as u64) | 1
    })
}

/// Opens and creates devices for one matrix.
pub(crate) struct DeviceFactory<'a> {
    pub(crate) root: &'a Path,
    pub(crate) options: &'a Arc<MkvsOptions>,
    pub(crate) places: &'a dyn Places,
    pub(crate) matrix: &'a Matrix,
    /// The doubts of a salvage about the matrix's description.
    pub(crate) doubts: Vec<Doubt>,
    /// The host's store, which gets the notes of a salvage. `None` while devices are created.
    pub(crate) host: Option<&'a Host>,
}

/// The age of a store of pairs, by the description.
struct PairsAge {
    is_older: bool,
    /// The store was opened after the host's store was last written.
    is_newer: bool,
}

impl DeviceFactory<'_> {
    fn directory(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    fn log_limits(&self) -> LogLimits {
        LogLimits { ops: self.matrix.log_ops, bytes: self.matrix.log_bytes }
    }

    /// Opens the directory of a device's label, if labels are used.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn label_directory(&self, member: &Member) -> Result<Option<StoreDir>> {
        let store = self.directory(&member.path).join(Part::Device.directory());
        self.places.has_files().then(|| StoreDir::open_existing(&store)).transpose()
    }

    /// Builds a device from opened stores.
    fn device(
        &self,
        index: usize,
        member: &Member,
        place: Place,
        log: Option<OpLog>,
        (label, stamp): (Option<StoreDir>, u64),
    ) -> Arc<Device> {
        let is_inline = match self.options.inline {
            Inline::On => true,
            Inline::Off => false,
            Inline::Auto => place.is_memory,
        };
        let device = Device::new(index, member.id, place.store, log, is_inline, place.is_memory);
        Arc::new(device.planted(self.options.planted).with_label(label, stamp))
    }

    /// Creates a device's stores.
    pub(crate) fn create(
        &self,
        new_stores: &mut NewStores<'_>,
        index: usize,
        member: &Member,
        members: usize,
    ) -> Result<Arc<Device>> {
        let directory = self.directory(&member.path);
        let label = Label { matrix: self.matrix.id, id: member.id, stamp: 0, is_pending: true };
        new_stores.label(&directory, label, |id| self.matrix.members().all(|member| member.id != id))?;
        let new = |part, engine, capacity| New { part, engine, capacity, durability: self.matrix.durability };
        let place = new_stores.create(&directory, new(Part::Device, &self.matrix.engine, self.matrix.device_bytes))?;
        new_stores.label_store(&directory, Label { is_pending: false, ..label })?;
        let log = if members == 1 {
            None
        } else {
            let capacity = self.matrix.device_bytes.saturating_add(self.matrix.log_bytes.saturating_mul(2));
            let log = new_stores.create(&directory, new(Part::Log, &self.matrix.log_engine, capacity))?;
            let record = DeviceRecord::of_new(self.matrix.id, member.id);
            let log = OpLog::create(log.store, Arc::clone(&place.store), self.log_limits(), record)?;
            Some(log.planted(self.options.planted))
        };
        let label = self.label_directory(member)?;
        let device = self.device(index, member, place, log, (label, 0));
        device.set_group_count(self.matrix.groups.len())?;
        Ok(device)
    }

    /// Opens a device's stores. Adds the reasons for which a strict open is refused to `doubts`.
    pub(crate) fn open(
        &self,
        index: usize,
        member: &Member,
        members: usize,
        doubts: &mut Vec<Doubt>,
    ) -> Result<Arc<Device>> {
        let mut doubt = |what| doubts.push(Doubt { device: Some(index), what, may_lack: true });
        let directory = self.directory(&member.path);
        let (stamp, mut unread) = match self.check_labels(&directory, member) {
            Err(error @ Error::Foreign { .. }) if self.options.salvage => {
                doubt(error.to_string());
                (0, None)
            }
            // The pairs and the log are available anyway.
            Err(error @ Error::Io { .. }) if self.options.salvage => (0, Some(error)),
            stamp => (stamp?, None),
        };
        let age = self.check_pairs_age(&directory, member)?;
        let part = (&*directory, Part::Device, &*self.matrix.engine);
        let place = open_part(self.places, part, self.options.salvage, &mut doubt)?;
        check_identity(&directory, member, &*place.store)?;
        let log =
            if members == 1 { None } else { Some(self.open_log(&directory, member, &place.store, &mut doubt)?) };
        let is_older = self.check_marks(&directory, member, log.as_ref(), &mut doubt)? || age.is_older;
        let is_known = member.store != 0 && place.store.identity().is_some();
        let label = match self.label_directory(member) {
            Err(error) if self.options.salvage => {
                unread.get_or_insert(error);
                None
            }
            label => label?,
        };
        let device = self.device(index, member, place, log, (label, stamp));
        if let Some(error) = unread {
            let what = format!("the label cannot be read or replaced: {error}");
            // Without the label, the identity of the store says whose pairs these are.
            doubts.push(Doubt { device: Some(index), what, may_lack: !is_known });
        }
        if is_older {
            let what = "the store was replaced by an older copy, so pairs may be older or missing".into();
            doubts.push(Doubt { device: Some(index), what, may_lack: true });
        }
        if age.is_newer {
            device.set_newer();
        }
        Ok(device)
    }

    /// Compares the number of a store of pairs with the description, before the store is opened: an
    /// open raises the number. A salvage that is about to open an older copy notes it durably.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an older copy, unless in salvage; errors of the host's store.
    fn check_pairs_age(&self, directory: &Path, member: &Member) -> Result<PairsAge> {
        let found = self.places.opening(directory, Part::Device);
        // A damaged header copy lowers the number by 1.
        let is_older = found.is_some_and(|found| found + 1 < member.opening);
        if is_older {
            self.note_older_pairs(directory, member)?;
        }
        Ok(PairsAge { is_older, is_newer: member.opening != 0 && found.is_some_and(|found| found > member.opening) })
    }

    fn note_older_pairs(&self, directory: &Path, member: &Member) -> Result<()> {
        if !self.options.salvage {
            return Err(older_copy_error(directory, Part::Device, member.opening == Member::OPENING_MAX));
        }
        self.host.map_or(Ok(()), |host| host.note_older(member.id))
    }

    /// Opens the log of a device whose store of pairs is open.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Foreign`] for the log of another device.
    fn open_log(
        &self,
        directory: &Path,
        member: &Member,
        pairs: &Arc<dyn Store>,
        doubt: &mut dyn FnMut(String),
    ) -> Result<OpLog> {
        let part = (directory, Part::Log, &*self.matrix.log_engine);
        let store = open_part(self.places, part, self.options.salvage, doubt)?.store;
        let log = OpLog::open(Arc::clone(&store), Arc::clone(pairs), self.log_limits())
            .map_err(|error| explain_full(&directory.join(Part::Log.directory()), &*store, error))?
            .planted(self.options.planted);
        let record = log.record();
        if (record.matrix, record.id) != (self.matrix.id, member.id) {
            let what = "its operation log belongs to another matrix or device".into();
            return Err(Error::Foreign { path: directory.into(), what });
        }
        Ok(log)
    }

    /// Checks by the mark of the pairs whether a store of the device is an older copy. Returns
    /// whether the pairs are one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an older copy, unless in salvage; errors of the host's store.
    fn check_marks(
        &self,
        directory: &Path,
        member: &Member,
        log: Option<&OpLog>,
        doubt: &mut dyn FnMut(String),
    ) -> Result<bool> {
        match log.and_then(OpLog::find_older) {
            None => Ok(false),
            Some(Part::Log) if self.options.salvage => {
                doubt("the operation log was replaced by an older copy, so operations may be missing".into());
                Ok(false)
            }
            Some(Part::Log) => Err(older_copy_error(directory, Part::Log, false)),
            // The replay that follows raises the mark.
            Some(_) => self.note_older_pairs(directory, member).map(|()| true),
        }
    }

    /// Returns the stamp of the clean stop that a device's label names; 0 for none. A missing or
    /// damaged label is written again.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the pairs belong to another device; [`Error::Io`].
    fn check_labels(&self, directory: &Path, member: &Member) -> Result<u64> {
        let store = directory.join(Part::Device.directory());
        // Nothing is created for a missing device.
        if !self.places.has_files() || !store.is_dir() {
            return Ok(0);
        }
        let own = Label { matrix: self.matrix.id, id: member.id, stamp: 0, is_pending: false };
        let stamp = match Label::read(&store)? {
            Some(label) if label.is_of(own.matrix, own.id) => label.stamp,
            None if self.options.salvage => 0,
            Some(_) => {
                let what = "its pairs belong to another matrix or device".into();
                return Err(Error::Foreign { path: store, what });
            }
            None => {
                own.write(&store)?;
                0
            }
        };
        if Label::read(directory)?.is_none_or(|label| label.is_pending && label.is_of(own.matrix, own.id)) {
            own.write(directory)?;
        }
        Ok(stamp)
    }
}

/// Opens a store strictly. In a salvage, opens it in salvage mode if the strict open is refused,
/// and passes the reason to `doubt`.
///
/// # Errors
/// Errors of the strict open, or of the salvage.
pub(crate) fn open_part(
    places: &dyn Places,
    (directory, part, engine): (&Path, Part, &str),
    is_salvage: bool,
    doubt: &mut dyn FnMut(String),
) -> Result<Place> {
    let refused = match places.open(directory, part, engine, OpenMode::Strict) {
        Err(refused) if is_salvage => refused,
        opened => return opened,
    };
    let place = places.open(directory, part, engine, OpenMode::Salvage)?;
    // A restart of the machine loses no write that was promised, if nothing is damaged.
    let is_restart = matches!(refused, Error::MachineRestarted { .. });
    if !is_restart || has_damage(&*place.store) {
        let what = match refused {
            Error::Corrupt { place, what, .. } => format!("{place}: {what}"),
            other => other.to_string(),
        };
        doubt(format!("only a salvage can open the {} ({what})", part.name()));
    }
    Ok(place)
}

/// Returns whether the recovery of a store finds damage. Waits for its end, because recovery counts
/// damage until then.
fn has_damage(store: &dyn Store) -> bool {
    store.wait_recovered().is_err() || store.stats().recovery.corrupt > 0
}

/// Refuses a store of pairs that does not belong to this member: the files changed places.
///
/// # Errors
/// [`Error::Foreign`].
fn check_identity(directory: &Path, member: &Member, store: &dyn Store) -> Result<()> {
    match store.identity() {
        Some(found) if member.store != 0 && found != member.store => {
            let what = "its pairs belong to another matrix or device".into();
            Err(Error::Foreign { path: directory.join(Part::Device.directory()), what })
        }
        _ => Ok(()),
    }
}

/// Returns the error of a device's store that is older than the matrix. `was_salvaged`: an earlier
/// salvage used the copy.
fn older_copy_error(directory: &Path, part: Part, was_salvaged: bool) -> Error {
    let what = if was_salvaged {
        "an earlier salvage used an older copy of this store, and its present files may be that copy: replace the \
         device, or export the pairs with `Builder::salvage(true)` and import them into a new matrix"
    } else {
        "the store was replaced by an older copy: restore the newer files, replace the device, or open the matrix \
         with `Builder::salvage(true)`"
    };
    Error::corrupt(directory.join(part.directory()).display().to_string(), what)
}

/// Turns a refusal for lack of space into a report of damage, if the store is damaged: its
/// allocator may have lost free space.
pub(crate) fn explain_full(directory: &Path, store: &dyn Store, error: Error) -> Error {
    if !is_refusal(&error) {
        return error;
    }
    let first = match store.verify(&mut |_| ()) {
        Ok(report) => report.findings.into_iter().next().map(|finding| format!("{}: {}", finding.place, finding.what)),
        Err(found) => Some(found.to_string()),
    };
    match first {
        Some(damage) => Error::corrupt(
            directory.display().to_string(),
            format!("the store is damaged and has no space left for its own records; the first damage is {damage}"),
        ),
        None => error,
    }
}

/// Creates the stores of a device that is added to a matrix.
///
/// # Errors
/// Errors of their creation.
pub(crate) fn create_device(
    root: &Path,
    options: &Arc<MkvsOptions>,
    new_stores: &mut NewStores<'_>,
    matrix: &Matrix,
    index: usize,
    member: &Member,
    members: usize,
) -> Result<Arc<Device>> {
    DeviceFactory { root, options, places: new_stores.places(), matrix, doubts: Vec::new(), host: None }
        .create(new_stores, index, member, members)
}

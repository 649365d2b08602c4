//! Creation and opening of a matrix: which devices are there, which of them has everything, and
//! which must catch up.
//!
//! An acknowledged write is on `needed` of the members that the description calls active. Any
//! `active - needed + 1` of them therefore have all acknowledged writes between them. The one with
//! the last operation has all of them alone, because its log is a run without holes. An open with
//! fewer members is refused, except in salvage.
//!
//! Order: the description is read, and the record of a clean stop is removed; the devices are
//! opened; each replays its log; the others follow the one with the last operation (`lead.rs` if it
//! lacked space for some); a new epoch names the active members, durably; then operations are
//! numbered.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestore_contract::{Durability, Error, Result, Store};
use lodestore_media::StoreDir;

use crate::advice::{default_path, explain_host, export_devices};
use crate::apply::is_refusal;
use crate::commit::Required;
use crate::creation::Creation;
use crate::device::Device;
use crate::doubt::{Doubt, Doubts};
use crate::filter::Filter;
use crate::group::{Group, Lost, Sequencer};
use crate::host::Host;
use crate::label::Label;
use crate::layout::{CleanRecord, DeviceRecord, GroupRecord, Matrix, Member, MemberState};
use crate::lead::{Lead, replay_logs, select_leader};
use crate::lock;
use crate::oplog::OpLog;
use crate::options::{Inline, MkvsOptions};
use crate::places::{New, NewStores, OpenMode, Part, Place, Places};
use crate::planted::Fault;
use crate::salvage::check_given_up;

/// An opened matrix.
pub(crate) struct Opened {
    /// The given options, except the shape, which comes from the description.
    pub(crate) options: Arc<MkvsOptions>,
    pub(crate) host: Arc<Host>,
    pub(crate) groups: Vec<Arc<Group>>,
}

/// Returns a random id, almost certainly unique among matrices and devices.
pub(crate) fn new_id() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() | 1
}

/// Returns the id at position `position` of a new matrix.
fn id_of(options: &MkvsOptions, position: u64) -> u64 {
    options.seed.map_or_else(new_id, |seed| xxhash_rust::xxh3::xxh3_64_with_seed(&position.to_le_bytes(), seed) | 1)
}

/// Returns the id of a device that is added to a matrix, at position `position` of its group.
pub(crate) fn id_of_new(options: &MkvsOptions, matrix: &Matrix, position: usize) -> u64 {
    // Each addition changes the description.
    options.seed.map_or_else(new_id, |seed| {
        xxhash_rust::xxh3::xxh3_64_with_seed(&matrix.encode(), seed).wrapping_add(2 * position as u64) | 1
    })
}

/// Capacity of a host's store, in bytes: the description, and filters of 5 bytes per key.
const HOST_BYTES: u64 = 1 << 30;

/// Opens and creates devices for one matrix.
struct DeviceFactory<'a> {
    root: &'a Path,
    options: &'a Arc<MkvsOptions>,
    places: &'a dyn Places,
    matrix: &'a Matrix,
    /// The doubts of a salvage about the matrix's description.
    doubts: Vec<Doubt>,
}

impl DeviceFactory<'_> {
    fn directory(&self, path: &Path) -> PathBuf {
        self.root.join(path)
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
    fn create(
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
            let (matrix, id) = (self.matrix.id, member.id);
            let record = DeviceRecord { matrix, id, applied: 0, epoch: 0, is_partial: false, has_gaps: false };
            Some(
                OpLog::create(log.store, self.matrix.log_ops, self.matrix.log_bytes, record)?
                    .planted(self.options.planted),
            )
        };
        let label = self.label_directory(member)?;
        Ok(self.device(index, member, place, log, (label, 0)))
    }

    /// Opens a device's stores. Adds the reasons for which a strict open is refused to `doubts`.
    fn open(&self, index: usize, member: &Member, members: usize, doubts: &mut Vec<Doubt>) -> Result<Arc<Device>> {
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
        // Read before the store is opened: an open increments the number.
        let found = self.places.opening(&directory, Part::Device).unwrap_or(member.opening);
        // A damaged header copy lowers the number by 1.
        let is_older = found + 1 < member.opening;
        if is_older && !self.options.salvage {
            return Err(older_copy_error(&directory));
        }
        let part = (&*directory, Part::Device, &*self.matrix.engine);
        let place = open_part(self.places, part, self.options.salvage, &mut doubt)?;
        check_identity(&directory, member, &*place.store)?;
        let log = if members == 1 {
            None
        } else {
            let part = (&*directory, Part::Log, &*self.matrix.log_engine);
            let log = open_part(self.places, part, self.options.salvage, &mut doubt)?;
            let store = Arc::clone(&log.store);
            let log = OpLog::open(log.store, self.matrix.log_ops, self.matrix.log_bytes)
                .map_err(|error| explain_full(&directory.join(Part::Log.directory()), &*store, error))?
                .planted(self.options.planted);
            let record = log.record();
            if (record.matrix, record.id) != (self.matrix.id, member.id) {
                let what = "its log is of another matrix, or of another device of this one".into();
                return Err(Error::Foreign { path: directory, what });
            }
            Some(log)
        };
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
            let what = format!("its label cannot be read or replaced: {error}");
            // Without the label, the identity of the store says whose pairs these are.
            doubts.push(Doubt { device: Some(index), what, may_lack: !is_known });
        }
        let mut doubt = |what| doubts.push(Doubt { device: Some(index), what, may_lack: true });
        if is_older {
            doubt("its store was replaced by an older copy, so its pairs may be older or missing".into());
            device.set_older();
        }
        if member.opening != 0 && found > member.opening {
            device.set_newer();
        }
        Ok(device)
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
                let what = "its pairs are of another matrix, or of another device of this one".into();
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
fn open_part(
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
        doubt(format!("only a salvage opens its {} ({what})", part.name()));
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
            let what = "its pairs are of another matrix, or of another device of this one".into();
            Err(Error::Foreign { path: directory.join(Part::Device.directory()), what })
        }
        _ => Ok(()),
    }
}

/// Returns the error of a store of pairs that is older than the matrix.
pub(crate) fn older_copy_error(directory: &Path) -> Error {
    Error::corrupt(
        directory.join(Part::Device.directory()).display().to_string(),
        "the store was replaced by an older copy: put the newer files back, replace the device, or take what is there \
         with `Builder::salvage(true)`",
    )
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
    DeviceFactory { root, options, places: new_stores.places(), matrix, doubts: Vec::new() }
        .create(new_stores, index, member, members)
}

/// Creates a matrix with its description in `root`, and starts it. A matrix that cannot be started
/// is removed.
pub(crate) fn create<T>(
    root: &Path,
    options: &Arc<MkvsOptions>,
    places: &dyn Places,
    start: impl FnOnce(Opened) -> Result<T>,
) -> Result<T> {
    options.check()?;
    options.check_lags()?;
    let (engine, log_engine) = places.engines();
    let group = |group: usize| {
        let path = |index| {
            options.paths.get(group * options.devices + index).cloned().unwrap_or_else(|| default_path(group, index))
        };
        let member = |index| Member {
            path: path(index),
            id: id_of(options, 2 + (group * options.devices + index) as u64),
            store: 0,
            opening: 0,
            state: MemberState::Active,
        };
        let members = (0..options.devices).map(member).collect();
        GroupRecord { epoch: 1, epochs: vec![(1, 1)], given_up: None, members }
    };
    let matrix = Matrix {
        id: id_of(options, 0),
        seed: options.hash_seed.unwrap_or_else(|| id_of(options, 1)),
        engine,
        log_engine,
        device_bytes: options.capacity.div_ceil(options.groups as u64),
        log_ops: options.log_ops,
        log_bytes: options.log_bytes,
        durability: options.durability,
        acks: options.acks,
        settled_groups: options.groups as u32,
        groups: (0..options.groups).map(group).collect(),
    };
    let creation = Creation::begin(root, &matrix, places)?;
    let factory = DeviceFactory { root, options, places, matrix: &matrix, doubts: Vec::new() };
    let mut new_stores = NewStores::new(places);
    let mut devices = Vec::new();
    for group in &matrix.groups {
        let mut make = |(index, member)| factory.create(&mut new_stores, index, member, group.members.len());
        devices.push(group.members.iter().enumerate().map(&mut make).collect::<Result<Vec<_>>>()?);
    }
    let mut matrix = matrix.clone();
    for (group, devices) in matrix.groups.iter_mut().zip(&devices) {
        group.members.iter_mut().zip(devices).for_each(|(member, device)| device.record_store_identity(member));
    }
    // Last: a matrix without a description does not exist.
    let new = New { part: Part::Host, engine: "", capacity: HOST_BYTES, durability: options.durability };
    let store = new_stores.create(root, new)?.store;
    let host = Arc::new(Host::create(store, matrix, root)?);
    let groups = devices.into_iter().enumerate().map(|(index, devices)| {
        let group = Group::begin(index, options, &host, devices);
        if group.has_filter {
            group.set_filter(&Arc::new(Filter::new(options.filter_keys)), 0);
        }
        Arc::new(group)
    });
    let started = start(Opened { options: Arc::clone(options), groups: groups.collect(), host })?;
    new_stores.keep();
    creation.map_or(Ok(()), Creation::finish)?;
    Ok(started)
}

/// Returns the options of an open, with the shape from the description.
fn with_shape_of(options: &MkvsOptions, matrix: &Matrix) -> MkvsOptions {
    MkvsOptions {
        groups: matrix.groups.len(),
        devices: matrix.groups[0].members.len(),
        acks: matrix.acks,
        log_ops: matrix.log_ops,
        log_bytes: matrix.log_bytes,
        ..options.clone()
    }
}

/// Names the matrix instead of one of its stores, in an error whose advice is about the whole
/// matrix.
fn about_matrix(root: &Path, error: Error) -> Error {
    match error {
        Error::MachineRestarted { .. } => Error::MachineRestarted { path: root.into() },
        Error::Locked { holder, .. } => Error::Locked { path: root.into(), holder },
        other => other,
    }
}

/// Opens the matrix whose description is in `root`.
pub(crate) fn open(root: &Path, options: &Arc<MkvsOptions>, places: &dyn Places) -> Result<Opened> {
    let unfinished = Creation::find_unfinished(root, places)?;
    // An older description may count members that lack acknowledged writes, or lack a mark.
    let mut doubts = Vec::new();
    let mut doubt = |what| doubts.push(Doubt::of_group(what));
    let place = open_part(places, (root, Part::Host, ""), options.salvage, &mut doubt);
    let host = place.and_then(|place| Host::open(place.store, root));
    let host = Arc::new(host.map_err(|error| match &unfinished {
        Some(creation) => creation.explain(error),
        None => explain_host(root, about_matrix(root, error)),
    })?);
    unfinished.map_or(Ok(()), Creation::finish)?;
    open_devices(root, options, places, &host, doubts)
        .map_err(|error| explain_full(&root.join(Part::Host.directory()), &**host.store(), error))
}

/// Opens the devices of the matrix that the host describes. `doubts` are the doubts about the
/// description.
fn open_devices(
    root: &Path,
    options: &Arc<MkvsOptions>,
    places: &dyn Places,
    host: &Arc<Host>,
    doubts: Vec<Doubt>,
) -> Result<Opened> {
    let matrix = host.matrix();
    let options = &Arc::new(with_shape_of(options, &matrix));
    let permission = if options.salvage { Ok(()) } else { check_given_up(root, &matrix) };
    // The host's store was opened only for this check.
    permission.and(options.check_lags()).inspect_err(|_| drop(host.store().close()))?;
    if options.durability == Durability::Power && matrix.durability != Durability::Power {
        host.change(|matrix| matrix.durability = Durability::Power)?;
    }
    let clean_stop = host.take_clean_stop(options.planted)?;
    let (record, filters) = clean_stop.unwrap_or((CleanRecord { groups: Vec::new() }, Vec::new()));
    let factory = DeviceFactory { root, options, places, matrix: &matrix, doubts };
    let mut filters = filters.into_iter();
    let mut groups = Vec::new();
    for (index, group) in matrix.groups.iter().enumerate() {
        let (group, last) = open_group(&factory, host, index, group)?;
        let filter = filters.next().flatten();
        let clean = record.groups.get(index);
        // In a salvage, the host's store and the devices' may be from different times.
        if let (true, Some(filter), Some((epoch, seq, _, raised))) =
            (group.has_filter && !options.salvage, filter, clean)
            && (*epoch, *seq) == (matrix.groups[index].epoch, last)
            && !group.devices().iter().any(|device| device.is_newer())
        {
            group.set_filter(&Arc::new(filter), *raised);
        }
        groups.push(Arc::new(group));
    }
    let devices: Vec<_> = groups.iter().map(|group| group.devices()).collect();
    if options.salvage {
        host.note_older(&devices)?;
    } else {
        host.note_openings(&devices)?;
    }
    Ok(Opened { options: Arc::clone(options), host: Arc::clone(host), groups })
}

/// Returns whether the error only means that one device is lost. Other errors contain advice, and
/// may apply to all devices of a group.
fn is_loss(error: &Error) -> bool {
    matches!(error, Error::Missing { .. } | Error::Corrupt { .. } | Error::Io { .. } | Error::Foreign { .. })
}

/// Returns why a device of several is lost, with advice about the device instead of its store.
pub(crate) fn why_lost(error: &Error) -> String {
    match error {
        Error::Missing { path, .. } => format!(
            "no store at {}: put its directory back and open the matrix again, or replace the device \
             (`Matrix::replace`)",
            path.display()
        ),
        other => other.to_string(),
    }
}

/// Returns the error of a group none of whose devices can be opened: a salvage cannot go on either.
fn all_lost_error(root: &Path, group: usize, losses: &[(usize, u64, Error)]) -> Error {
    let reason = |(device, _, error): &(usize, u64, Error)| match error {
        Error::Missing { path, .. } => format!("device {device}: no store at {}", path.display()),
        other => format!("device {device}: {other}"),
    };
    let reasons: Vec<_> = losses.iter().map(reason).collect();
    let what = format!(
        "none of its devices can be opened ({}): put their directories back as they were, or {}",
        reasons.join("; "),
        export_devices(root)
    );
    Error::corrupt(format!("group {group}"), what)
}

/// Opens a group, and lets its members follow the most advanced one. Returns the group with its
/// last operation.
fn open_group(
    factory: &DeviceFactory<'_>,
    host: &Arc<Host>,
    index: usize,
    record: &GroupRecord,
) -> Result<(Group, u64)> {
    let members = record.members.len();
    let (mut devices, mut losses, mut doubts) = (Vec::new(), Vec::new(), factory.doubts.clone());
    for (at, member) in record.members.iter().enumerate() {
        match factory.open(at, member, members, &mut doubts) {
            Ok(device) => devices.push(device),
            // Any error: whether the other devices are enough is checked below.
            Err(error) if members > 1 => losses.push((at, member.id, about_matrix(factory.root, error))),
            Err(Error::Missing { path, .. }) => {
                let what = format!("the store of the only device of group {index} is missing: put its directory back");
                return Err(Error::corrupt(path.display().to_string(), what));
            }
            Err(error) => return Err(about_matrix(factory.root, error)),
        }
    }
    if members == 1 {
        devices[0].set_state(MemberState::Active);
        let sequencer = Sequencer::new(1, record.epoch, devices.clone());
        // Such a group numbers no operations: the stamp shows whether a clean stop left the store
        // unchanged.
        let stamp = devices[0].stamp();
        let group = Group::new(index, Arc::clone(factory.options), Arc::clone(host), devices, members, sequencer);
        *lock(&group.doubts) = Doubts::of(doubts, record.given_up.as_deref());
        return Ok((group, stamp));
    }
    let chosen = choose_leader(factory.options, index, record, &devices);
    let Lead { last, active, refused, lacking } = match chosen {
        Err(too_few_error @ Error::TooFewDevices { .. }) => {
            if devices.is_empty() && losses.iter().all(|(_, _, error)| is_loss(error)) {
                return Err(all_lost_error(factory.root, index, &losses));
            }
            let reason = losses.into_iter().map(|(_, _, error)| error).find(|error| !is_loss(error));
            return Err(reason.unwrap_or(too_few_error));
        }
        chosen => chosen?,
    };
    active.iter().for_each(|device| device.set_state(MemberState::Active));
    let sequencer = Sequencer::new(last + 1, record.epoch, active);
    let lost = losses.into_iter().map(|(index, id, error)| Lost { index, id, why: why_lost(&error) }).collect();
    let group = Group::new(index, Arc::clone(factory.options), Arc::clone(host), devices.clone(), members, sequencer);
    *lock(&group.lost) = lost;
    doubts.extend(lacking.map(Doubt::of_group));
    *lock(&group.doubts) = Doubts::of(doubts, record.given_up.as_deref());
    group.follow(&devices, &refused)?;
    let last = group.last();
    Ok((group, last))
}

/// Chooses the members that have everything, and the operations that may be on too few members.
///
/// # Errors
/// [`Error::TooFewDevices`] if no such member can be determined, unless in salvage; errors of the
/// devices.
pub(crate) fn choose_leader(
    options: &MkvsOptions,
    index: usize,
    record: &GroupRecord,
    devices: &[Arc<Device>],
) -> Result<Lead> {
    let is_active =
        |id: u64| record.members.iter().any(|member| member.id == id && member.state == MemberState::Active);
    let active = record.members.iter().filter(|member| member.state == MemberState::Active).count();
    let acks = options.acks.needed(record.members.len(), active);
    let asks_for_all = devices.iter().any(|device| device.planted_is(Fault::OpenAsksForAll));
    let needed = if asks_for_all { active } else { (active + 1).saturating_sub(acks).max(1) };
    let is_whole = |device: &Device| device.log().is_some_and(|log| !log.record().is_partial);
    let mut candidates: Vec<_> =
        devices.iter().filter(|device| is_active(device.id) && is_whole(device)).cloned().collect();
    let has_none_that_counts = candidates.is_empty();
    if options.salvage && has_none_that_counts {
        // The remaining members: first those that the description did not count, and last of all
        // incomplete copies.
        candidates = devices.iter().filter(|device| is_whole(device)).cloned().collect();
        if candidates.is_empty() {
            candidates = devices.to_vec();
        }
    }
    let candidates = replay_logs(candidates, options.threads);
    let live = candidates.len();
    if live < needed && !options.salvage {
        return Err(Error::too_few_devices(index, live, needed));
    }
    let lead = select_leader(candidates, active.saturating_sub(live), acks)?;
    let lead = lead.ok_or(Error::too_few_devices(index, 0, needed))?;
    let counted = if has_none_that_counts { 0 } else { live };
    let lacking = (counted < needed).then(|| {
        format!(
            "{counted} of its devices that count could be read, and {needed} are needed: newer values may be missing"
        )
    });
    Ok(Lead { lacking, ..lead })
}

impl Group {
    /// Lets the other members follow the leader, and begins an epoch.
    fn follow(&self, devices: &[Arc<Device>], refused: &BTreeSet<u64>) -> Result<()> {
        if !refused.is_empty() {
            return self.roll_back_incomplete(refused);
        }
        let leaders = self.active();
        let Some(leader) = leaders.first() else { return self.begin_epoch() };
        let is_behind = |device: &&Arc<Device>| device.state() == MemberState::Behind;
        for device in devices.iter().filter(is_behind) {
            // A full copy takes long and runs in the background. A member that the description
            // calls active must not become partial before the new epoch.
            let caught_up = match self.needs_copy(device, leader) {
                Ok(true) => continue,
                Ok(false) => self.catch_up(device).map(|_| ()),
                Err(error) => Err(error),
            };
            if caught_up.is_err() {
                // The keeper tries again. An error of the host's store is reported below.
                device.fall_behind();
            }
        }
        self.begin_epoch()
    }

    /// Rolls back operations that were in progress at a crash and are on too few members, even if
    /// one of two members is alone. Members that lack more are left to the keeper.
    pub(crate) fn roll_back_incomplete(&self, refused: &BTreeSet<u64>) -> Result<()> {
        self.mark_given_up()?;
        self.begin_epoch()?;
        for seq in refused {
            let active = self.active();
            let operation = match active.first().and_then(|device| device.log()) {
                Some(log) => log.read(*seq)?,
                None => None,
            };
            let operation =
                operation.ok_or_else(|| Error::corrupt("operation log", format!("operation {seq} is missing")))?;
            self.restore(&operation, &active, &mut 0, &mut 0, Required::ActiveMembers)?;
        }
        Ok(())
    }
}

//! Creation and opening of a matrix: which devices are there, which of them has everything, and
//! which must catch up.
//!
//! An acknowledged write is on `needed` of the members that the description calls active. Any
//! `active - needed + 1` of them therefore have all acknowledged writes between them. The one with
//! the last operation has all of them alone, because its log is a run without holes. An open with
//! fewer members is refused, except in salvage.
//!
//! Order: the description is read, and the record of a clean stop is removed; the devices are
//! opened, and refused if one of their stores is an older copy; each replays its log; the others
//! follow the one with the last operation (`leader.rs` if it lacked space for some); a new epoch
//! names the active members, durably; the active devices store the number of groups
//! (`group_count.rs`); then operations are numbered.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::{Durability, Error, Result};

use crate::advice::{default_path, explain_host, export_devices};
use crate::catchup::last_epoch;
use crate::creation::Creation;
use crate::device::Device;
use crate::factory::{DeviceFactory, explain_full, id_of, open_part};
use crate::filter::Filter;
use crate::group::{Group, Lost, Sequencer};
use crate::group_count::note_group_count;
use crate::group_write::Required;
use crate::host::Host;
use crate::layout::{CleanRecord, GroupRecord, Matrix, Member, MemberState};
use crate::leader::{LeaderChoice, replay_logs, select_leader};
use crate::lock;
use crate::options::MkvsOptions;
use crate::places::{New, NewStores, Part, Places};
use crate::planted;
use crate::salvage::check_given_up;
use crate::salvage_doubts::{Doubt, Doubts};

/// An opened matrix.
pub(crate) struct Opened {
    /// The given options, except the shape, which comes from the description.
    pub(crate) options: Arc<MkvsOptions>,
    pub(crate) host: Arc<Host>,
    pub(crate) groups: Vec<Arc<Group>>,
}

/// Capacity of a host's store, in bytes: the description, and filters of 5 bytes per key.
const HOST_BYTES: u64 = 1 << 30;

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
    let factory = DeviceFactory { root, options, places, matrix: &matrix, doubts: Vec::new(), host: None };
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
    let clean_stop = host.take_clean_stop(options)?;
    let (record, filters) = clean_stop.unwrap_or((CleanRecord { groups: Vec::new() }, Vec::new()));
    let factory = DeviceFactory { root, options, places, matrix: &matrix, doubts, host: Some(host) };
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
    // After all checks: a refused open must store no number that makes an older copy of all files
    // unacceptable. In a salvage with doubts the description may be such a copy.
    if !groups.iter().any(|group| group.has_doubts()) {
        note_group_count(&groups, groups.len())?;
    }
    groups.iter().for_each(|group| group.is_opening.store(false, Ordering::Release));
    if !options.salvage {
        let devices: Vec<_> = groups.iter().map(|group| group.devices()).collect();
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
            "no store at {}: restore its directory and open the matrix again, or replace the device \
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
        "no device of the group can be opened ({}): restore the directories of the devices, or {}",
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
                let what = format!("the store of the only device of group {index} is missing: restore its directory");
                return Err(Error::corrupt(path.display().to_string(), what));
            }
            Err(error) => return Err(about_matrix(factory.root, error)),
        }
    }
    doubts.extend(check_host_age(factory, index, record, &devices)?);
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
    let LeaderChoice { last, active, refused, lacking } = match chosen {
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
    let sequencer = Sequencer::new(last + 1, newest_epoch(factory, record, &devices), active);
    let lost = losses.into_iter().map(|(index, id, error)| Lost { index, id, why: why_lost(&error) }).collect();
    let group = Group::new(index, Arc::clone(factory.options), Arc::clone(host), devices.clone(), members, sequencer);
    *lock(&group.lost) = lost;
    doubts.extend(lacking.map(Doubt::of_group));
    *lock(&group.doubts) = Doubts::of(doubts, record.given_up.as_deref());
    group.is_opening.store(true, Ordering::Release);
    group.follow(&devices, &refused)?;
    let last = group.last();
    Ok((group, last))
}

/// Returns the epoch after which the open begins one: the description's. In a salvage the logs may
/// have a later one, because the host's store is an older copy.
fn newest_epoch(factory: &DeviceFactory<'_>, record: &GroupRecord, devices: &[Arc<Device>]) -> u64 {
    let logs = devices.iter().filter_map(|device| device.log()).filter(|_| factory.options.salvage);
    logs.filter_map(|log| last_epoch(log).ok()).fold(record.epoch, u64::max)
}

/// Compares the description with the devices. An epoch is durable in the description before any
/// operation belongs to it, so a later one in a log shows an older copy of the host's store. A
/// group is in the description before a device knows of it, so a device that knows of more groups
/// shows an older copy too. Returns the doubt of a salvage about such a copy.
///
/// # Errors
/// [`Error::Corrupt`] for an older copy, unless in salvage.
fn check_host_age(
    factory: &DeviceFactory<'_>,
    group: usize,
    record: &GroupRecord,
    devices: &[Arc<Device>],
) -> Result<Option<Doubt>> {
    let has_later =
        |device: &&Arc<Device>| device.log().is_some_and(|log| last_epoch(log).is_ok_and(|epoch| epoch > record.epoch));
    // A device that was lost when the owner gave a group up may still know of it.
    let is_active = |device: &Device| {
        record.members.iter().any(|member| member.id == device.id && member.state == MemberState::Active)
    };
    let knows_more_groups =
        |device: &&Arc<Device>| is_active(device) && device.known_group_count() > factory.matrix.groups.len() as u64;
    let checked = || devices.iter().filter(|device| !device.has_fault(planted::OLDER_HOST_ACCEPTED));
    let what = if let Some(device) = checked().find(has_later) {
        format!("it is an older copy: device {group}.{} has operations that were written later", device.index)
    } else if let Some(device) = checked().find(knows_more_groups) {
        let (known, found) = (device.known_group_count(), factory.matrix.groups.len());
        format!(
            "it is an older copy: it names {found} groups, and device {group}.{} has stored that there are {known}. A \
             salvage reads the groups that it names, and `Matrix::replace` there gives up the others",
            device.index
        )
    } else {
        return Ok(None);
    };
    if factory.options.salvage {
        return Ok(Some(Doubt::of_group(format!("the host's store: {what}"))));
    }
    Err(explain_host(factory.root, Error::corrupt("the description", what)))
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
) -> Result<LeaderChoice> {
    let is_active =
        |id: u64| record.members.iter().any(|member| member.id == id && member.state == MemberState::Active);
    let active = record.members.iter().filter(|member| member.state == MemberState::Active).count();
    let acks = options.acks.needed(record.members.len(), active);
    let asks_for_all = devices.iter().any(|device| device.has_fault(planted::OPEN_ASKS_FOR_ALL));
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
    let choice = select_leader(candidates, active.saturating_sub(live), acks)?;
    let choice = choice.ok_or(Error::too_few_devices(index, 0, needed))?;
    let counted = if has_none_that_counts { 0 } else { live };
    let lacking = (counted < needed).then(|| {
        format!("{counted} active devices were readable, and {needed} are needed: newer values may be missing")
    });
    Ok(LeaderChoice { lacking, ..choice })
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

//! Administration of an open matrix: replacement of a device, addition of a group, and the status.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use lodestore_contract::threads::start_thread;
use lodestore_contract::{Error, Result};

use crate::ENGINE;
use crate::advice::default_path;
use crate::device::{Device, HANG_TIMEOUT};
use crate::factory::{create_device, id_of_new};
use crate::filter::Filter;
use crate::group::Group;
use crate::group_count::note_group_count;
use crate::host::Host;
use crate::layout::{GroupRecord, Matrix, Member, MemberState};
use crate::options::Acks;
use crate::places::{NewStores, OpenMode, Part, Places};
use crate::planted;
use crate::recover::why_lost;
use crate::store::Mkvs;
use crate::{lock, write};

/// The status of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStatus {
    /// Index of its group, from 0.
    pub group: usize,
    /// Its position in the group, from 0.
    pub device: usize,
    /// Its directory, as in the description.
    pub path: PathBuf,
    /// `active`, `behind` or `failed`.
    pub state: &'static str,
    /// The operation of its group up to which its store has everything.
    pub applied: u64,
    /// The last operation of its group.
    pub last: u64,
    /// Commands queued at it.
    pub queued: usize,
    /// Live keys. While commands are queued, the number comes from the store's statistics and may
    /// lag.
    pub keys: u64,
    /// Why it failed, if it did.
    pub why: Option<String>,
}

/// Returns the status of a matrix from its description, without opening its devices, for a matrix
/// whose open is refused. `check` checks the store of a part in a directory and returns an error if
/// it is missing or damaged. Numbers that are known only after an open are 0.
///
/// # Errors
/// As the opening of the host's store.
pub fn describe(root: &Path, places: &dyn Places, check: &dyn Fn(&Path, Part) -> Result<()>) -> Result<MatrixStatus> {
    let host = Host::open(places.open(root, Part::Host, "", OpenMode::Strict)?.store, root)?;
    let matrix = host.matrix();
    let mut devices = Vec::new();
    for (group, record) in matrix.groups.iter().enumerate() {
        for (device, member) in record.members.iter().enumerate() {
            let directory = root.join(&member.path);
            let log = if record.members.len() == 1 { Ok(()) } else { check(&directory, Part::Log) };
            let found = check(&directory, Part::Device).and(log);
            devices.push(DeviceStatus {
                group,
                device,
                path: member.path.clone(),
                state: if found.is_err() { MemberState::Failed } else { member.state }.name(),
                applied: 0,
                last: 0,
                queued: 0,
                keys: 0,
                why: found.err().map(|error| why_lost(&error)),
            });
        }
    }
    host.store().close()?;
    Ok(MatrixStatus {
        acks: matrix.acks,
        groups: matrix.groups.len(),
        settled_groups: matrix.settled_groups as usize,
        epochs: matrix.groups.iter().map(|group| group.epoch).collect(),
        given_up: matrix.groups.iter().map(|group| group.given_up.clone()).collect(),
        moved: 0,
        devices,
    })
}

/// The result of a replacement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced {
    /// Acknowledged writes that may be missing for good, in a salvage; `None` if none are.
    pub gave_up: Option<String>,
}

/// The status of a matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatrixStatus {
    /// When writes are acknowledged.
    pub acks: Acks,
    /// Number of groups.
    pub groups: usize,
    /// Number of groups that have all their keys: fewer than `groups` while keys move to the
    /// newest.
    pub settled_groups: usize,
    /// Epoch of each group.
    pub epochs: Vec<u64>,
    /// For each group, the acknowledged writes that a salvage may have given up. A strict open is
    /// refused while a group has such a mark.
    pub given_up: Vec<Option<String>>,
    /// Keys moved since the open.
    pub moved: u64,
    /// All devices, by group.
    pub devices: Vec<DeviceStatus>,
}

impl Mkvs {
    /// Returns the status of the matrix.
    pub fn status(&self) -> MatrixStatus {
        let matrix = self.inner.host.matrix();
        let groups = self.inner.shape.groups();
        let mut devices = Vec::new();
        for (group, record) in groups.iter().zip(&matrix.groups) {
            let last = group.last();
            for (at, member) in record.members.iter().enumerate() {
                let device = group.devices().into_iter().find(|device| device.id == member.id);
                let lost = lock(&group.lost).iter().find(|lost| lost.id == member.id).map(|lost| lost.why.clone());
                devices.push(DeviceStatus {
                    group: group.index,
                    device: at,
                    path: member.path.clone(),
                    state: device.as_ref().map_or(MemberState::Failed, |device| device.state()).name(),
                    applied: device.as_ref().map_or(0, |device| device.applied()),
                    last,
                    queued: device.as_ref().map_or(0, |device| device.depth()),
                    keys: device.as_ref().map_or(0, |device| device.keys()),
                    why: lost.or_else(|| device.and_then(|device| device.failure())),
                });
            }
        }
        let (count, settled_groups) = self.inner.shape.counts();
        let epochs = groups.iter().map(|group| group.epoch()).collect();
        let moved = self.inner.shape.moved.load(Ordering::Relaxed);
        let given_up = matrix.groups.into_iter().map(|group| group.given_up).collect();
        MatrixStatus { acks: matrix.acks, groups: count, settled_groups, epochs, given_up, moved, devices }
    }

    /// Returns the group `group`, if it has the position `device`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(crate) fn group_with(&self, group: usize, device: usize) -> Result<Arc<Group>> {
        let groups = self.inner.shape.groups();
        groups.get(group).filter(|found| device < found.width).cloned().ok_or_else(|| {
            let why = format!("there are {} groups of {} devices, numbered from 0", groups.len(), groups[0].width);
            Error::InvalidOption { name: "device".into(), value: format!("{group}.{device}"), why }
        })
    }

    /// Replaces a device that failed or is to be removed by a new, empty one. The new device is
    /// copied from the others in the background. The old one is no longer used, and its directory
    /// is left as it is. If the replacement is refused, the old device catches up with the writes
    /// of that time and stays in use.
    ///
    /// In a salvage, a replacement accepts for the group that unreadable data is given up. The same
    /// change of the description removes the mark of an earlier salvage.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the device does not exist; [`Error::Unsupported`] if it is the
    /// only one of its group; [`Error::TooFewDevices`] if the others are too few to go on; as the
    /// creation of the new device.
    pub fn replace(
        &self,
        group: usize,
        device: usize,
        directory: &Path,
        root: &Path,
        places: &dyn Places,
    ) -> Result<Replaced> {
        self.inner.check_open()?;
        let _changes = lock(&self.changes);
        let group = self.group_with(group, device)?;
        if group.sole().is_some() {
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: "the replacement of the only device of a group".into(),
                instead: "export the matrix, and import the export into a new matrix",
            });
        }
        let old = group.devices().into_iter().find(|other| other.index == device);
        // Before anything is created; checked again when the old device is removed.
        group.check_removal(device, &group.active())?;
        let matrix = self.inner.host.matrix();
        let id = id_of_new(&self.inner.options, &matrix, device);
        let mut member = Member { path: directory.into(), id, store: 0, opening: 0, state: MemberState::Behind };
        let mut new_stores = NewStores::new(places);
        let options = &self.inner.options;
        let new = create_device(root, options, &mut new_stores, &matrix, device, &member, group.width)?;
        new.record_store_identity(&mut member);
        if let Some(log) = new.log() {
            log.set_record(|record| record.is_partial = true)?;
        }
        // All steps that may be refused come first, then the description. If it fails, the started
        // thread ends.
        self.start_processor(&group, Arc::clone(&new))?;
        let keep_old = || {
            new.stop();
            old.iter().for_each(|old| old.cancel_replacement());
        };
        group.remove_member_in_time(device, old.as_deref()).inspect_err(|_| keep_old())?;
        let mut replaced = Replaced::default();
        let described = group.describe_replaced(device, member).map(|gave_up| replaced.gave_up = gave_up);
        new_stores.keep_unless_refused(described).inspect_err(|_| keep_old())?;
        {
            let mut members = write(&group.members);
            members.retain(|other| other.index != device);
            members.push(new);
            members.sort_by_key(|other| other.index);
        }
        lock(&group.lost).retain(|lost| lost.index != device);
        if replaced.gave_up.is_some() {
            // The owner gave up the groups that an older description does not name.
            group.set_group_count(matrix.groups.len());
        }
        let Some(old) = old else { return Ok(replaced) };
        old.stop();
        let kept = self.replace_keeper_of(&group, &old);
        self.close_replaced(old);
        kept.map(|()| replaced)
    }

    /// Closes the stores of a replaced device. Does not wait for a device that hangs: a thread in a
    /// call of its medium finishes there first, if ever.
    fn close_replaced(&self, old: Arc<Device>) {
        let options = &self.inner.options;
        let patience = if old.hangs(HANG_TIMEOUT) { Duration::ZERO } else { options.timeout };
        let (sender, receiver) = mpsc::channel();
        let close = move || {
            // The device failed or will fail: an error of its close helps no caller.
            let _ = old.store().close();
            let _ = old.log().map(|log| log.store().close());
            // The receiver may have stopped waiting.
            let _ = sender.send(());
        };
        if !options.threads {
            return close();
        }
        // Without a thread, the stores are closed when their last reference is dropped.
        if start_thread("mkvs-close", close).is_ok() {
            let _ = receiver.recv_timeout(patience);
        }
    }

    /// Adds a group of new devices in these directories (empty: below the matrix's own). A share of
    /// 1 in `groups` keys moves to it, in the background.
    ///
    /// # Errors
    /// [`Error::Unsupported`] while keys still move to the group that was added before, and in a
    /// salvage that may lack acknowledged writes; [`Error::InvalidOption`]; errors of the devices'
    /// creation; [`Error::Io`] and [`Error::Unfinished`] if the only device of a group did not
    /// store the number of groups: the next open uses the new group.
    pub fn add_group(&self, directories: &[PathBuf], root: &Path, places: &dyn Places) -> Result<()> {
        self.inner.check_open()?;
        let _changes = lock(&self.changes);
        let (count, settled) = self.inner.shape.counts();
        let width = self.inner.shape.groups()[0].width;
        if count != settled {
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: "adding a group while keys move to another new group".into(),
                instead: "wait until the keys have moved (`Matrix::wait_moved`)",
            });
        }
        if self.inner.shape.groups().iter().any(|group| group.has_doubts()) {
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: "adding a group in a salvage that may lack acknowledged writes".into(),
                instead: "export the pairs and import them into a new matrix, or accept the loss (`Matrix::replace`)",
            });
        }
        if count == Matrix::GROUPS_MAX || (!directories.is_empty() && directories.len() != width) {
            let why = format!("a matrix has at most 16 groups, and each group of this matrix has {width} devices");
            return Err(Error::InvalidOption { name: "paths".into(), value: format!("{directories:?}"), why });
        }
        let matrix = self.inner.host.matrix();
        if matrix.groups.len() != count {
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: "adding a group after the addition of another one failed".into(),
                instead: "close the matrix and open it again: the open uses the group that was added",
            });
        }
        let path = |at: usize| directories.get(at).cloned().unwrap_or_else(|| default_path(count, at));
        let id = |at| id_of_new(&self.inner.options, &matrix, at);
        let member = |at| Member { path: path(at), id: id(at), store: 0, opening: 0, state: MemberState::Active };
        let mut members: Vec<Member> = (0..width).map(member).collect();
        let mut new_stores = NewStores::new(places);
        let options = &self.inner.options;
        let mut make = |(at, member)| create_device(root, options, &mut new_stores, &matrix, at, member, width);
        let devices = members.iter().enumerate().map(&mut make).collect::<Result<Vec<_>>>()?;
        members.iter_mut().zip(&devices).for_each(|(member, device)| device.record_store_identity(member));
        let record = GroupRecord { epoch: 1, epochs: vec![(1, 1)], given_up: None, members };
        let group = Arc::new(Group::begin(count, options, &self.inner.host, devices));
        if group.has_filter {
            group.set_filter(&Arc::new(Filter::new(options.filter_keys)), 0);
        }
        // All steps that may be refused come first, then the description. After a crash, an open
        // finds the group and continues the move. If a step fails, the started threads end.
        let starter = self.start_group(&group).inspect_err(|_| group.stop_threads())?;
        let described = self.inner.host.change(|matrix| matrix.groups.push(record));
        new_stores.keep_unless_refused(described).inspect_err(|_| group.stop_threads())?;
        // Before the new group gets a key. After a crash, an open notes the number.
        note_group_count(&self.inner.shape.groups(), count + 1).inspect_err(|_| group.stop_threads())?;
        self.inner.shape.add(group);
        // The mover waits for this message, unless the matrix is being dropped.
        let _ = starter.send(());
        Ok(())
    }

    /// Starts the threads of a group that is to be added. The mover starts when the returned
    /// channel receives a message.
    fn start_group(&self, group: &Arc<Group>) -> Result<Sender<()>> {
        group.devices().into_iter().try_for_each(|device| self.start_processor(group, device))?;
        self.start_keeper(group)?;
        let (starter, begun) = mpsc::channel();
        self.start_mover_after(move || begun.recv().is_ok())?;
        Ok(starter)
    }

    /// Starts the thread that moves keys to the newest group, if there are threads.
    pub(crate) fn start_mover(&self) -> Result<()> {
        self.start_mover_after(|| true)
    }

    /// As [`start_mover`](Self::start_mover). The thread first waits for `wait_for_start`, and ends
    /// if it returns false.
    fn start_mover_after(&self, wait_for_start: impl FnOnce() -> bool + Send + 'static) -> Result<()> {
        if !self.inner.options.threads {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        self.spawn("mkvs-mover".into(), move || {
            let stops = || inner.keeper.stops();
            let is_started = wait_for_start();
            while is_started && !stops() {
                let moved = inner.shape.rebalance(&inner.host, inner.seed, inner.options.copy_rate, &stops);
                let pause = match &moved {
                    Ok(true) => return,
                    // All readable pairs were moved. A later repair or overwrite may allow the
                    // rest.
                    Err(Error::Corrupt { .. }) => inner.options.timeout,
                    // Tried again: a device may be back, or have free space.
                    Ok(false) | Err(_) => Duration::from_millis(200),
                };
                *lock(&inner.shape.move_error) = moved.err();
                let begun = Instant::now();
                while !stops() && begun.elapsed() < pause {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        })
    }

    /// Waits at most `patience` until all devices are active and all keys are in their group.
    ///
    /// # Errors
    /// [`Error::Unfinished`].
    pub fn wait_whole(&self, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            self.inner.check_open()?;
            let is_whole = self.inner.shape.groups().iter().all(|group| group.active().len() == group.width);
            let (groups, settled) = self.inner.shape.counts();
            if is_whole && groups == settled {
                return Ok(());
            }
            if begun.elapsed() >= patience {
                return Err(Error::Unfinished {
                    doing: "waiting for all devices",
                    after: patience,
                    instead: "check `Matrix::status`, replace failed devices, or wait longer",
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Group {
    /// Ends the threads of a group whose addition failed.
    fn stop_threads(&self) {
        self.stops.store(true, Ordering::Release);
        self.devices().iter().for_each(|device| device.stop());
    }

    /// Checks that the member at this position may be removed. An active member may be removed if
    /// the others are enough for a write. An inactive member may be removed if another member is
    /// active: active members have all acknowledged writes. They may be too few for new writes
    /// until the replacement has joined.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`].
    fn check_removal(&self, position: usize, active: &[Arc<Device>]) -> Result<()> {
        let is_used = active.iter().any(|other| other.index == position && other.is_active());
        let live = active.iter().filter(|other| other.index != position && other.is_active()).count();
        let needed = if is_used { self.options.acks.needed(self.width, live).max(1) } else { 1 };
        if live < needed { Err(self.too_few_error(live, needed)) } else { Ok(()) }
    }

    /// As [`remove_member`](Self::remove_member), but retries until lagging members have caught up
    /// and executed their queues.
    fn remove_member_in_time(&self, position: usize, old: Option<&Device>) -> Result<()> {
        let begun = Instant::now();
        loop {
            let removed = self.remove_member(position, old);
            let last = self.last();
            let is_late = |other: &Device| match other.state() {
                MemberState::Active => other.applied() < last,
                MemberState::Behind => true,
                MemberState::Failed => false,
            };
            let others = self.devices().into_iter().filter(|other| other.index != position);
            let late: Vec<_> = others.filter(|other| is_late(other)).collect();
            let waits = self.options.threads && matches!(removed, Err(Error::TooFewDevices { .. })) && !late.is_empty();
            if !waits || begun.elapsed() > self.options.timeout || self.stops.load(Ordering::Acquire) {
                return removed;
            }
            late.iter().for_each(|other| other.kick());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Removes the member at this position for good, unless the others are too few. No other member
    /// is removed between the check and the removal.
    fn remove_member(&self, position: usize, old: Option<&Device>) -> Result<()> {
        {
            let sequencer = self.sequence();
            self.check_removal(position, &sequencer.active)?;
            if let Some(old) = old {
                old.begin_replacement();
            }
        }
        if self.options.planted.has_fault(planted::REPLACED_EARLY) {
            self.sequence().active.retain(|device| device.is_active());
            return Ok(());
        }
        let mut sequencer = self.sequence_after_removals()?;
        let is_counted = self.host.matrix().groups[self.index].members[position].state == MemberState::Active;
        // Too few are left to record the removal with a write quorum. The description counts the
        // active members alone, if they have everything; in a salvage, those that are available.
        if is_counted && !self.count_only_active(&mut sequencer)? {
            return Err(self.too_few_error(0, 1));
        }
        Ok(())
    }
}

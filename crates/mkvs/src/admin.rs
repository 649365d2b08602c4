//! Changing a matrix while it serves: a dead device is replaced, a group is added. And what it looks like.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use lodestore_contract::threads::start_thread;
use lodestore_contract::{Error, Result};

use crate::ENGINE;
use crate::advice::default_path;
use crate::device::Device;
use crate::filter::Filter;
use crate::group::Group;
use crate::host::Host;
use crate::layout::{GroupRecord, Matrix, Member, MemberState};
use crate::options::Acks;
use crate::places::{Made, OpenMode, Part, Places};
use crate::planted::Fault;
use crate::recover::{self, why_lost};
use crate::store::{HANGS_AFTER, Mkvs};
use crate::{lock, write};

/// A device, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStatus {
    /// Its group, and its place there.
    pub group: usize,
    /// From 0.
    pub device: usize,
    /// Its directory, as the description has it.
    pub path: PathBuf,
    /// `active`, `behind` or `failed`.
    pub state: &'static str,
    /// Up to which operation of its group it has everything.
    pub applied: u64,
    /// The last operation of its group.
    pub last: u64,
    /// Commands that wait for it.
    pub queued: usize,
    /// Live keys; while something waits for it as its account has them, which may trail.
    pub keys: u64,
    /// Why it failed, if it did.
    pub why: Option<String>,
}

/// A matrix as its description has it, without opening its devices: for one whose open is refused. `look` says whether a store of a part is in a directory, and what is wrong with it.
/// Numbers that only an open tells are 0.
///
/// # Errors
/// Those of the opening of the host's store.
pub fn describe(root: &Path, places: &dyn Places, look: &dyn Fn(&Path, Part) -> Result<()>) -> Result<MatrixStatus> {
    let host = Host::open(places.open(root, Part::Host, "", OpenMode::Strict)?.store, root)?;
    let matrix = host.matrix();
    let mut devices = Vec::new();
    for (group, record) in matrix.groups.iter().enumerate() {
        for (device, member) in record.members.iter().enumerate() {
            let directory = root.join(&member.path);
            let log = if record.members.len() == 1 { Ok(()) } else { look(&directory, Part::Log) };
            let found = look(&directory, Part::Device).and(log);
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

/// What became of a replacement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced {
    /// Which acknowledged writes may be missing for good, in a salvage; `None` if none are.
    pub gave_up: Option<String>,
}

/// A matrix, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatrixStatus {
    /// When writes are acknowledged.
    pub acks: Acks,
    /// Groups, and groups that keys were spread over before the newest.
    pub groups: usize,
    /// Fewer than `groups` while keys are on their way to the newest.
    pub settled_groups: usize,
    /// Epoch of each group.
    pub epochs: Vec<u64>,
    /// Of each group, which acknowledged writes a salvage may have given up. A strict open is
    /// refused while a group has such a mark.
    pub given_up: Vec<Option<String>>,
    /// Keys that were moved since the open.
    pub moved: u64,
    /// All devices, by group.
    pub devices: Vec<DeviceStatus>,
}

impl Mkvs {
    /// The matrix as it stands.
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

    /// The group that has this place.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(crate) fn group_with(&self, group: usize, device: usize) -> Result<Arc<Group>> {
        let groups = self.inner.shape.groups();
        groups.get(group).filter(|found| device < found.width).cloned().ok_or_else(|| {
            let why = format!("there are {} groups of {} devices, from 0", groups.len(), groups[0].width);
            Error::InvalidOption { name: "device".into(), value: format!("{group}.{device}"), why }
        })
    }

    /// Puts a new, empty device in the place of one that is dead or to be taken away; it is copied from the others behind. The old one is used no more, and its directory left as it is.
    /// Where this is refused the old one catches up with what was written meanwhile, and is used on.
    /// In a salvage this accepts, for the group, that what could not be read is given up. The same
    /// change of the description removes the mark of an earlier salvage.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where there is no such device; [`Error::Unsupported`] where it is the only one of its group;
    /// [`Error::TooFewDevices`] where the others are too few to go on; those of the new device's creation.
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
                what: "replacement of the only device of a group".into(),
                instead: "export the matrix and import it into a new one",
            });
        }
        let old = group.devices().into_iter().find(|other| other.index == device);
        // Before anything is made; and again when the old one goes.
        group.check_without(device, &group.active())?;
        let matrix = self.inner.host.matrix();
        let id = recover::id_of_new(&self.inner.options, &matrix, device);
        let mut member = Member { path: directory.into(), id, store: 0, opening: 0, state: MemberState::Behind };
        let mut made = Made::new(places);
        let options = &self.inner.options;
        let new = recover::make_device(root, options, &mut made, &matrix, device, &member, group.width)?;
        new.name_store(&mut member);
        if let Some(log) = new.log() {
            log.set_record(|record| record.is_partial = true)?;
        }
        // All that may be refused, then the description. What was started ends where nothing comes of it.
        self.employ(&group, Arc::clone(&new))?;
        let stays = || {
            new.stop();
            old.iter().for_each(|old| old.stay());
        };
        group.take_out_in_time(device, old.as_deref()).inspect_err(|_| stays())?;
        let mut replaced = Replaced::default();
        let described = group.describe_replaced(device, member).map(|gave_up| replaced.gave_up = gave_up);
        made.keep_unless_refused(described).inspect_err(|_| stays())?;
        {
            let mut members = write(&group.members);
            members.retain(|other| other.index != device);
            members.push(new);
            members.sort_by_key(|other| other.index);
        }
        lock(&group.lost).retain(|lost| lost.index != device);
        let Some(old) = old else { return Ok(replaced) };
        old.stop();
        let kept = self.keep_without(&group, &old);
        self.close_replaced(old);
        kept.map(|()| replaced)
    }

    /// Closes the stores of a device that was replaced. One that hangs is not waited for: whoever is in its medium ends there first, if ever.
    fn close_replaced(&self, old: Arc<Device>) {
        let options = &self.inner.options;
        let patience = if old.hangs(HANGS_AFTER) { Duration::ZERO } else { options.timeout };
        let (tell, told) = mpsc::channel();
        let close = move || {
            // It is dead, or will be: what its close has to say helps nobody.
            let _ = old.store().close();
            let _ = old.log().map(|log| log.store().close());
            // Who waited may have gone.
            let _ = tell.send(());
        };
        if !options.threads {
            return close();
        }
        // Where there is no thread for it, its stores are closed when nobody has them any more.
        if start_thread("mkvs-close", close).is_ok() {
            let _ = told.recv_timeout(patience);
        }
    }

    /// Adds a group of new devices in these directories (none: below the matrix's own). One key of each `groups` moves to it, behind.
    ///
    /// # Errors
    /// [`Error::Unsupported`] while keys are still on their way to the group that was added before; [`Error::InvalidOption`]; those of the devices' creation.
    pub fn add_group(&self, directories: &[PathBuf], root: &Path, places: &dyn Places) -> Result<()> {
        self.inner.check_open()?;
        let _changes = lock(&self.changes);
        let (count, settled) = self.inner.shape.counts();
        let width = self.inner.shape.groups()[0].width;
        if count != settled {
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: "second group while keys are on their way to the first".into(),
                instead: "wait for it (`Matrix::wait_moved`)",
            });
        }
        if count == Matrix::GROUPS_MAX || (!directories.is_empty() && directories.len() != width) {
            let why = format!("a matrix has 16 groups at most, and a group of this one {width} devices");
            return Err(Error::InvalidOption { name: "paths".into(), value: format!("{directories:?}"), why });
        }
        let path = |at: usize| directories.get(at).cloned().unwrap_or_else(|| default_path(count, at));
        let matrix = self.inner.host.matrix();
        let id = |at| recover::id_of_new(&self.inner.options, &matrix, at);
        let member = |at| Member { path: path(at), id: id(at), store: 0, opening: 0, state: MemberState::Active };
        let mut members: Vec<Member> = (0..width).map(member).collect();
        let mut made = Made::new(places);
        let options = &self.inner.options;
        let mut make = |(at, member)| recover::make_device(root, options, &mut made, &matrix, at, member, width);
        let devices = members.iter().enumerate().map(&mut make).collect::<Result<Vec<_>>>()?;
        members.iter_mut().zip(&devices).for_each(|(member, device)| device.name_store(member));
        let record = GroupRecord { epoch: 1, epochs: vec![(1, 1)], given_up: None, members };
        let group = Arc::new(Group::begin(count, options, &self.inner.host, devices));
        if group.has_filter {
            group.set_filter(&Arc::new(Filter::new(options.filter_keys)), 0);
        }
        // All that may be refused, then the description: a crash behind it finds the group, and goes on moving. What was started ends where nothing comes of it.
        let begins = self.start_group(&group).inspect_err(|_| group.dismiss())?;
        let described = self.inner.host.change(|matrix| matrix.groups.push(record));
        made.keep_unless_refused(described).inspect_err(|_| group.dismiss())?;
        self.inner.shape.add(group);
        // The mover waits for it, or the matrix is being dropped.
        let _ = begins.send(());
        Ok(())
    }

    /// Starts the threads of a group that is to be added. The mover begins when it is told to.
    fn start_group(&self, group: &Arc<Group>) -> Result<Sender<()>> {
        group.devices().into_iter().try_for_each(|device| self.employ(group, device))?;
        self.keep(group)?;
        let (begins, begun) = mpsc::channel();
        self.move_when(move || begun.recv().is_ok())?;
        Ok(begins)
    }

    /// Starts the thread that moves keys to the newest group, if there are threads.
    pub(crate) fn move_behind(&self) -> Result<()> {
        self.move_when(|| true)
    }

    /// The same, which waits for `begins` first, and ends where that is false.
    fn move_when(&self, begins: impl FnOnce() -> bool + Send + 'static) -> Result<()> {
        if !self.inner.options.threads {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        self.spawn("mkvs-mover".into(), move || {
            let stops = || inner.keeper.stops();
            let begins = begins();
            while begins && !stops() {
                let moved = inner.shape.rebalance(&inner.host, inner.seed, inner.options.copy_rate, &stops);
                let pause = match &moved {
                    Ok(true) => return,
                    // All that can be read was moved: a while later some of it may be mended, or written over.
                    Err(Error::Corrupt { .. }) => inner.options.timeout,
                    // Tried again: a device may be back, or have room.
                    Ok(false) | Err(_) => Duration::from_millis(200),
                };
                *lock(&inner.shape.hindrance) = moved.err();
                let begun = Instant::now();
                while !stops() && begun.elapsed() < pause {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        })
    }

    /// Waits until all devices are active and all keys where they belong, for so long at most.
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
                    instead: "see `Matrix::status`: replace what has failed, or wait on",
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Group {
    /// Ends the threads of a group of which nothing came.
    fn dismiss(&self) {
        self.stops.store(true, Ordering::Release);
        self.devices().iter().for_each(|device| device.stop());
    }

    /// Whether the member in this place may go. One in use may where the others are enough for a write; one that is out already where another one is active: who is active has
    /// everything, though they may be too few for a write until the new one is there.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`].
    fn check_without(&self, place: usize, active: &[Arc<Device>]) -> Result<()> {
        let is_used = active.iter().any(|other| other.index == place && other.is_active());
        let live = active.iter().filter(|other| other.index != place && other.is_active()).count();
        let needed = if is_used { self.options.acks.needed(self.width, live).max(1) } else { 1 };
        if live < needed { Err(self.too_few(live, needed)) } else { Ok(()) }
    }

    /// As [`take_out`](Self::take_out), when those have come back that trail, and have done what they were given.
    fn take_out_in_time(&self, place: usize, old: Option<&Device>) -> Result<()> {
        let begun = Instant::now();
        loop {
            let taken = self.take_out(place, old);
            let last = self.last();
            let is_late = |other: &Device| match other.state() {
                MemberState::Active => other.applied() < last,
                MemberState::Behind => true,
                MemberState::Failed => false,
            };
            let others = self.devices().into_iter().filter(|other| other.index != place);
            let late: Vec<_> = others.filter(|other| is_late(other)).collect();
            let waits = self.options.threads && matches!(taken, Err(Error::TooFewDevices { .. })) && !late.is_empty();
            if !waits || begun.elapsed() > self.options.timeout || self.stops.load(Ordering::Acquire) {
                return taken;
            }
            late.iter().for_each(|other| other.kick());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes the member in this place out for good, unless the others are too few: nobody else is taken out in between.
    fn take_out(&self, place: usize, old: Option<&Device>) -> Result<()> {
        {
            let sequencer = self.sequence();
            self.check_without(place, &sequencer.active)?;
            if let Some(old) = old {
                old.retire();
            }
        }
        if self.options.planted.is(Fault::ReplacedEarly) {
            self.sequence().active.retain(|device| device.is_active());
            return Ok(());
        }
        let mut sequencer = self.sequence_noted()?;
        let is_counted = self.host.matrix().groups[self.index].members[place].state == MemberState::Active;
        // Too few are left to say so in the ordinary way: they are counted alone, if they have everything. In salvage that is what there is.
        if is_counted && !self.count_alone(&mut sequencer)? {
            return Err(self.too_few(0, 1));
        }
        Ok(())
    }
}

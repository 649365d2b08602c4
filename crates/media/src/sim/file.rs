//! The values file of a simulated pool: its bytes, its steps in the recorder's log, and calls that are to fail.
//!
//! ## The model
//! * What is written is pending until the next sync that holds; a sync covers all that was written before it, whoever wrote.
//! * At a crash each grain of the file holds its durable bytes and any prefix of the writes to it since: a write is kept, lost, or
//!   torn between two grains, never inside one (a disk writes its sectors whole), whatever the other grains and the regions hold.
//! * A changed length is pending as well: a crash leaves the durable length, or any of those since. What was written beyond the
//!   length that is left is gone; bytes that nobody wrote are zero.
//! * What is cut off, or given back, becomes zero as by a write. So what was cut off and is there again may hold its old bytes until it
//!   is synced, as on file systems that reuse blocks.
//! * A sync that fails makes nothing durable.
//!
//! Invariant: the bytes change and their step is logged under one hold of the log, so the order of the log is that of the effects.
//! Bounds are the caller's (`blocks`): a range outside the file panics here.

use std::io;
use std::ops::Range;
use std::panic::Location;

use rustix::io::Errno;

use crate::sim::event::{Verb, What};
use crate::sim::image::SimImage;
use crate::sim::recorder::Recorder;

/// The index under which the values file stands beside the regions in events and lines.
pub const VALUES: u16 = u16::MAX;

const _: () = assert!(crate::region::MAX_REGIONS <= VALUES as usize, "no region has the index of the values file");

/// A kind of calls to the values file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileCall {
    /// A read.
    Read,
    /// A write of blocks. One that fails has written the first half of them, rounded down.
    Write,
    /// A growth.
    Grow,
    /// A reservation of space that was given back.
    Reserve,
    /// Giving space back: one that fails leaves the bytes as they are, and nobody is told.
    Punch,
    /// A sync.
    Sync,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileFault {
    /// The medium is broken (`EIO`).
    Io,
    /// The medium has no room (`ENOSPC`).
    NoSpace,
}

/// A call to the values file that is to fail; later ones go well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailingCall {
    /// The kind of calls counted.
    pub call: FileCall,
    /// Which of them fails, the next one being the first; 0: none.
    pub nth: u64,
    /// How.
    pub fault: FileFault,
}

/// A place in the values file at which calls fail (`EIO`) as long as it is broken.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BrokenPlace {
    /// The kind of calls that fail: [`FileCall::Read`] or [`FileCall::Write`].
    pub call: FileCall,
    /// The bytes of the file: whoever touches one of them fails.
    pub bytes: Range<u64>,
}

impl FailingCall {
    /// Counts a call; how it fails, if it does.
    fn counted(&mut self, call: FileCall) -> Option<io::Error> {
        if self.call != call || self.nth == 0 {
            return None;
        }
        self.nth -= 1;
        let errno = match self.fault {
            FileFault::Io => Errno::IO,
            FileFault::NoSpace => Errno::NOSPC,
        };
        (self.nth == 0).then(|| errno.into())
    }
}

impl Recorder {
    /// For what is opened from `image`, whose values file it holds.
    pub fn of_image(image: &SimImage) -> Self {
        let recorder = Self::new(&image.spec);
        recorder.lock().values = image.values.as_slice().into();
        recorder
    }

    /// Lets a call to the values file fail. `None`: no more.
    pub fn fail_call(&self, failing: Option<FailingCall>) {
        *self.failing_call() = failing;
    }

    /// Breaks a place of the values file. `None`: it is whole again.
    pub fn break_place(&self, place: Option<BrokenPlace>) {
        *self.broken() = place;
    }

    /// Whether a call to the values file is still to fail.
    pub fn will_fail(&self) -> bool {
        self.failing_call().is_some_and(|failing| failing.nth > 0)
    }

    /// The values file as it is in memory.
    pub fn values(&self) -> Vec<u8> {
        self.lock().values.clone()
    }

    fn fails(&self, call: FileCall) -> io::Result<()> {
        match self.failing_call().as_mut().and_then(|failing| failing.counted(call)) {
            Some(refused) => Err(refused),
            None => Ok(()),
        }
    }

    /// As [`Self::fails`], of a call that touches these bytes.
    fn fails_at(&self, call: FileCall, at: u64, len: usize) -> io::Result<()> {
        self.fails(call)?;
        let touches =
            |place: &BrokenPlace| place.call == call && at < place.bytes.end && place.bytes.start < at + len as u64;
        if self.broken().as_ref().is_some_and(touches) { Err(Errno::IO.into()) } else { Ok(()) }
    }

    pub(crate) fn values_len(&self) -> u64 {
        self.lock().values.len() as u64
    }

    pub(crate) fn read_values(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.fails_at(FileCall::Read, at, into.len())?;
        self.jitter();
        let at = at as usize;
        let log = self.lock();
        let found = log.values.get(at..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    /// Writes whole blocks of `block` bytes each.
    #[track_caller]
    pub(crate) fn write_values(&self, at: u64, bytes: &[u8], block: usize) -> io::Result<()> {
        let failed = self.fails_at(FileCall::Write, at, bytes.len());
        let len = if failed.is_ok() { bytes.len() } else { bytes.len() / block / 2 * block };
        self.put_values(at, &bytes[..len]);
        failed
    }

    /// Bytes of the file become zero, where their space can be given back.
    #[track_caller]
    pub(crate) fn punch_values(&self, at: u64, len: u64) {
        if self.fails(FileCall::Punch).is_ok() {
            self.put_values(at, &vec![0; len as usize]);
        }
    }

    #[track_caller]
    fn put_values(&self, at: u64, bytes: &[u8]) {
        self.jitter();
        let mut log = self.lock();
        log.values[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        if self.is_recording() {
            log.store(VALUES, at, bytes);
        }
        drop(log);
        self.jitter();
    }

    /// Room for a growth or a reservation is looked for, and found unless a fault is planted.
    pub(crate) fn find_room(&self, call: FileCall) -> io::Result<()> {
        self.fails(call)
    }

    /// The file gets another length: zeros are added, or its end is cut off.
    #[track_caller]
    pub(crate) fn resize_values(&self, len: u64) {
        let mut log = self.lock();
        log.values.resize(len as usize, 0);
        log.push(What::Size { len }, Location::caller());
    }

    /// All that was written so far is durable, if it goes well.
    #[track_caller]
    pub(crate) fn sync_values(&self) -> io::Result<()> {
        self.tell_watch(Location::caller());
        let done = self.fails(FileCall::Sync);
        self.jitter();
        let mut log = self.lock();
        let site = Location::caller();
        if !log.lost(Verb::Fence, site) {
            log.push(What::Sync { holds: done.is_ok() }, site);
        }
        done
    }
}

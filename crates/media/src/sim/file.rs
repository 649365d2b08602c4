//! The values file of a simulated pool: its bytes, its steps in the recorder's log, and planted
//! call failures.
//!
//! ## The model
//! * Written bytes are pending until the next successful sync; a sync covers everything written
//!   before it, by any thread.
//! * At a crash each grain of the file holds its durable bytes and any prefix of the later writes
//!   to it. Grains are independent of each other and of the regions. A write is kept, lost, or torn
//!   between two grains, never inside one (a disk writes its sectors atomically).
//! * A changed length is pending as well: a crash leaves the durable length or any later one. Bytes
//!   written beyond the remaining length are lost; bytes never written are zero.
//! * Cut-off or punched bytes become zero as by a write. A range that was cut off and exists again
//!   may therefore hold its old bytes before it is synced, as on file systems that reuse blocks.
//! * A failed sync makes nothing durable.
//!
//! Invariant: the bytes change and their step is logged under one hold of the log. The order of the
//! log is therefore that of the effects. The caller (`blocks`) checks bounds: a range outside the
//! file panics here.

use std::io;
use std::ops::Range;
use std::panic::Location;

use rustix::io::Errno;

use crate::sim::event::{Verb, What};
use crate::sim::image::SimImage;
use crate::sim::recorder::Recorder;

/// The index of the values file next to the regions in events and lines.
pub const VALUES: u16 = u16::MAX;

const _: () =
    assert!(crate::region_layout::MAX_REGIONS <= VALUES as usize, "no region has the index of the values file");

/// A kind of calls to the values file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileCall {
    /// A read.
    Read,
    /// A write of blocks. A failed one has written the first half of them, rounded down.
    Write,
    /// A growth.
    Grow,
    /// A reservation of a punched range.
    Reserve,
    /// Punching: a failed one leaves the bytes as they are, without an error.
    Punch,
    /// A sync.
    Sync,
}

/// The error of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileFault {
    /// The medium is broken (`EIO`).
    Io,
    /// The medium has no space (`ENOSPC`).
    NoSpace,
}

/// A call to the values file that fails; later ones succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailingCall {
    /// The kind of calls counted.
    pub call: FileCall,
    /// The number of the failing call, the next one being the first; 0: none.
    pub nth: u64,
    /// The error.
    pub fault: FileFault,
}

/// A range of the values file at which calls fail (`EIO`) as long as it is broken.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BrokenPlace {
    /// The kind of calls that fail: [`FileCall::Read`] or [`FileCall::Write`].
    pub call: FileCall,
    /// The bytes of the file: a call that touches one of them fails.
    pub bytes: Range<u64>,
}

impl FailingCall {
    /// Counts a call; returns its error if it fails.
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
    /// Creates a recorder for a pool opened from `image`, with the image's values file.
    pub fn of_image(image: &SimImage) -> Self {
        let recorder = Self::new(&image.spec);
        recorder.lock().values = image.values.as_slice().into();
        recorder
    }

    /// Plants a failing call to the values file. `None`: no failure any more.
    pub fn fail_call(&self, failing: Option<FailingCall>) {
        *self.failing_call() = failing;
    }

    /// Breaks a range of the values file. `None` repairs it.
    pub fn break_place(&self, place: Option<BrokenPlace>) {
        *self.broken() = place;
    }

    /// Returns whether a call to the values file is still to fail.
    pub fn will_fail(&self) -> bool {
        self.failing_call().is_some_and(|failing| failing.nth > 0)
    }

    /// Returns the values file as it is in memory.
    pub fn values(&self) -> Vec<u8> {
        self.lock().values.clone()
    }

    fn check_call(&self, call: FileCall) -> io::Result<()> {
        match self.failing_call().as_mut().and_then(|failing| failing.counted(call)) {
            Some(refused) => Err(refused),
            None => Ok(()),
        }
    }

    /// Like [`Self::fails`], for a call that touches these bytes.
    fn check_call_at(&self, call: FileCall, at: u64, len: usize) -> io::Result<()> {
        self.check_call(call)?;
        let touches =
            |place: &BrokenPlace| place.call == call && at < place.bytes.end && place.bytes.start < at + len as u64;
        if self.broken().as_ref().is_some_and(touches) { Err(Errno::IO.into()) } else { Ok(()) }
    }

    pub(crate) fn values_len(&self) -> u64 {
        self.lock().values.len() as u64
    }

    pub(crate) fn read_values(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.check_call_at(FileCall::Read, at, into.len())?;
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
        let failed = self.check_call_at(FileCall::Write, at, bytes.len());
        let len = if failed.is_ok() { bytes.len() } else { bytes.len() / block / 2 * block };
        self.put_values(at, &bytes[..len]);
        failed
    }

    /// Zeroes bytes of the file, if their space can be freed.
    #[track_caller]
    pub(crate) fn punch_values(&self, at: u64, len: u64) {
        if self.check_call(FileCall::Punch).is_ok() {
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

    /// Checks the space for a growth or a reservation: succeeds unless a fault is planted.
    pub(crate) fn check_space(&self, call: FileCall) -> io::Result<()> {
        self.check_call(call)
    }

    /// Changes the length of the file: adds zeros or cuts its end off.
    #[track_caller]
    pub(crate) fn resize_values(&self, len: u64) {
        let mut log = self.lock();
        log.values.resize(len as usize, 0);
        log.push(What::Size { len }, Location::caller());
    }

    /// Makes everything written so far durable, if no fault is planted.
    #[track_caller]
    pub(crate) fn sync_values(&self) -> io::Result<()> {
        self.call_watch(Location::caller());
        let done = self.check_call(FileCall::Sync);
        self.jitter();
        let mut log = self.lock();
        let site = Location::caller();
        if !log.is_lost(Verb::Fence, site) {
            log.push(What::Sync { holds: done.is_ok() }, site);
        }
        done
    }
}

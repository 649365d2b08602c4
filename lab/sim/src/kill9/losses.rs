//! Devices of a matrix that are lost between two rounds, or while the child has them open, and
//! replaced.
//!
//! Only one device of a whole matrix is lost at a time. The next is lost only after its successor
//! has caught up. Nothing acknowledged may therefore be lost, unless a single device acknowledges:
//! such a matrix is refused.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use lodestore::devices::{Acks, Matrix, MatrixStatus};
use lodestore::stats::Finding;
use lodestore::store::Handle;
use lodestore_media::sim::Rng;

use super::{Plan, Totals, open_options, open_store, store_path};

/// The engine that has devices.
pub(super) const ENGINE: &str = lodestore_mkvs::ENGINE;
/// The default shape of a matrix.
pub(super) const SHAPE: [&str; 2] = ["groups=2", "devices=3"];
/// The time limit for devices to catch up.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts to remove a directory in which the child creates files.
const REMOVAL_ATTEMPTS: u32 = 100;

/// A store that is open.
pub(super) struct Opened {
    pub(super) store: Handle,
    pub(super) matrix: Option<Matrix>,
}

impl Opened {
    pub(super) fn of(plan: &Plan) -> lodestore::Result<Self> {
        if plan.engine != ENGINE {
            return Ok(Self { store: open_store(plan)?, matrix: None });
        }
        let matrix = Matrix::open(store_path(plan), &open_options(plan)?)?;
        Ok(Self { store: matrix.store(), matrix: Some(matrix) })
    }
}

/// A device: its group, its index there, its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lost {
    group: usize,
    device: usize,
    directory: PathBuf,
}

/// The lost device, and the next one to lose.
#[derive(Debug, Default)]
pub(super) struct Losses {
    missing: Option<Lost>,
    /// The device to lose while the next child runs.
    next: Option<Lost>,
    replacements: u64,
}

/// Returns the number of devices of a group that may be lost without losing acknowledged writes.
fn survives(status: &MatrixStatus) -> usize {
    let members = status.devices.iter().filter(|device| device.group == 0).count();
    match status.acks {
        Acks::One => 0,
        Acks::Majority => members - (members / 2 + 1),
        Acks::All => members - 1,
    }
}

impl Losses {
    /// Refuses losses that writes do not survive.
    ///
    /// # Errors
    ///
    /// The reason; those of an open.
    pub(super) fn check(plan: &Plan) -> Result<(), String> {
        if !plan.lose {
            return Ok(());
        }
        let opened = Opened::of(plan).map_err(|error| format!("open: {error}"))?;
        let survives = opened.matrix.as_ref().map_or(0, |matrix| survives(&matrix.status()));
        opened.store.close().map_err(|error| format!("close: {error}"))?;
        if survives == 0 {
            return Err("it was to lose devices, and no write survives that in this store".into());
        }
        Ok(())
    }

    /// Replaces the missing device, or leaves it for another round. Then waits until the other
    /// devices have caught up.
    ///
    /// # Errors
    ///
    /// Errors of the replacement; devices that do not catch up.
    pub(super) fn mend(
        &mut self,
        plan: &Plan,
        opened: &Opened,
        rng: &mut Rng,
        totals: &mut Totals,
    ) -> Result<(), String> {
        let Some(matrix) = &opened.matrix else { return Ok(()) };
        if let Some(lost) = self.missing.take_if(|_| !rng.one_in(3)) {
            self.replacements += 1;
            // A new medium in the old directory, or in another one.
            let other = plan.dir.join(format!("replacement {}", self.replacements));
            let directory = if rng.one_in(2) { lost.directory } else { other };
            let replaced = matrix.replace(lost.group, lost.device, directory);
            replaced.map_err(|error| format!("replacing device {} of group {}: {error}", lost.device, lost.group))?;
            totals.replaced += 1;
        }
        self.wait(matrix)
    }

    fn is_missing(&self, group: usize, device: usize) -> bool {
        self.missing.as_ref().is_some_and(|lost| (lost.group, lost.device) == (group, device))
    }

    fn wait(&self, matrix: &Matrix) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let status = matrix.status();
            let mut late = status.devices.iter().filter(|device| {
                let is_whole = device.state == "active" && device.applied == device.last;
                !is_whole && !self.is_missing(device.group, device.device)
            });
            let Some(late) = late.next() else { return Ok(()) };
            if begun.elapsed() > CATCH_UP_TIMEOUT {
                return Err(format!("after {CATCH_UP_TIMEOUT:?} a device has not everything: {late:?}"));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether a missing device explains this finding of the verification.
    pub(super) fn explains(&self, finding: &Finding) -> bool {
        self.missing.as_ref().is_some_and(|lost| {
            let place = format!("group {} device {}", lost.group, lost.device);
            finding.place == place && finding.what.starts_with("the device cannot be opened")
        })
    }

    /// Chooses the next device to lose, and when: now that the parent has closed the store, or
    /// while the child runs. The matrix was whole when `status` was read.
    ///
    /// # Errors
    ///
    /// Errors of the removal.
    pub(super) fn choose(
        &mut self,
        plan: &Plan,
        status: Option<&MatrixStatus>,
        rng: &mut Rng,
        totals: &mut Totals,
    ) -> Result<(), String> {
        let Some(status) = status.filter(|_| plan.lose && self.missing.is_none()) else { return Ok(()) };
        let device = &status.devices[rng.index(status.devices.len())];
        let directory = store_path(plan).join(&device.path);
        let lost = Lost { group: device.group, device: device.device, directory };
        match rng.below(5) {
            0 => {}
            1..=2 => {
                remove(&lost)?;
                totals.lost_stopped += 1;
                self.missing = Some(lost);
            }
            _ => self.next = Some(lost),
        }
        Ok(())
    }

    /// Whether a device is to be lost while the child runs.
    pub(super) fn is_due(&self) -> bool {
        self.next.is_some()
    }

    /// Removes the chosen device.
    ///
    /// # Errors
    ///
    /// Errors of the removal.
    pub(super) fn strike(&mut self, totals: &mut Totals) -> Result<(), String> {
        let Some(lost) = self.next.take() else { return Ok(()) };
        remove(&lost)?;
        totals.lost_running += 1;
        self.missing = Some(lost);
        Ok(())
    }
}

/// Removes a device's directory with its contents.
fn remove(lost: &Lost) -> Result<(), String> {
    for _ in 0..REMOVAL_ATTEMPTS {
        match fs::remove_dir_all(&lost.directory) {
            Ok(()) => return Ok(()),
            // The child has created a file in it meanwhile.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            Err(error) => return Err(format!("removing {}: {error}", lost.directory.display())),
        }
    }
    Err(format!("removing {}: something is made in it all the time", lost.directory.display()))
}

/// Returns the devices of a matrix.
pub(super) fn status(opened: &Opened) -> Option<MatrixStatus> {
    opened.matrix.as_ref().map(Matrix::status)
}

//! Devices of a matrix that are lost between two rounds, or while the child has them open, and replaced.
//!
//! One device is lost at a time, of a matrix that is whole, and no other one before it was replaced and its successor has everything. So nothing acknowledged may be lost,
//! unless one device alone acknowledges it: such a matrix is refused.

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
/// What shapes a matrix whose plan does not say.
pub(super) const SHAPE: [&str; 2] = ["groups=2", "devices=3"];
/// What devices may take to come to have everything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Tries at a directory in which the child makes files.
const TRIES: u32 = 100;

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

/// A device: its group, its place there, its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lost {
    group: usize,
    device: usize,
    directory: PathBuf,
}

/// What is lost now, and what is to be.
#[derive(Debug, Default)]
pub(super) struct Losses {
    missing: Option<Lost>,
    /// To be lost while the next child runs.
    next: Option<Lost>,
    replacements: u64,
}

/// Devices of a group that may be lost without a loss of what was acknowledged.
fn survives(status: &MatrixStatus) -> usize {
    let members = status.devices.iter().filter(|device| device.group == 0).count();
    match status.acks {
        Acks::One => 0,
        Acks::Majority => members - (members / 2 + 1),
        Acks::All => members - 1,
    }
}

impl Losses {
    /// Refuses losses that are more than writes survive.
    ///
    /// # Errors
    /// Why; those of an open.
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

    /// Replaces what is missing, or leaves it for another round; then waits until the other devices have everything.
    ///
    /// # Errors
    /// Those of the replacement; devices that do not come to have everything.
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
            // A new medium at the old place, or at another one.
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
            if begun.elapsed() > PATIENCE {
                return Err(format!("after {PATIENCE:?} a device has not everything: {late:?}"));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether verification may find this: a device that is missing.
    pub(super) fn explains(&self, finding: &Finding) -> bool {
        self.missing.as_ref().is_some_and(|lost| {
            let place = format!("group {} device {}", lost.group, lost.device);
            finding.place == place && finding.what.starts_with("cannot be opened")
        })
    }

    /// Chooses what is lost next, and when: now that the parent has closed the store, or while the child runs. The matrix was whole when `status` was taken.
    ///
    /// # Errors
    /// Those of the removal.
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

    /// Whether something is to be lost while the child runs.
    pub(super) fn is_due(&self) -> bool {
        self.next.is_some()
    }

    /// Loses it.
    ///
    /// # Errors
    /// Those of the removal.
    pub(super) fn strike(&mut self, totals: &mut Totals) -> Result<(), String> {
        let Some(lost) = self.next.take() else { return Ok(()) };
        remove(&lost)?;
        totals.lost_running += 1;
        self.missing = Some(lost);
        Ok(())
    }
}

/// Removes a device's directory with all that is in it.
fn remove(lost: &Lost) -> Result<(), String> {
    for _ in 0..TRIES {
        match fs::remove_dir_all(&lost.directory) {
            Ok(()) => return Ok(()),
            // The child has made a file in it meanwhile.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            Err(error) => return Err(format!("removing {}: {error}", lost.directory.display())),
        }
    }
    Err(format!("removing {}: something is made in it all the time", lost.directory.display()))
}

/// The devices as they stand, of a matrix.
pub(super) fn status(opened: &Opened) -> Option<MatrixStatus> {
    opened.matrix.as_ref().map(Matrix::status)
}

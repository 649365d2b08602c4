//! Changes of a matrix that the child makes while its threads write: devices are replaced, groups
//! are added. The child is killed during them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lodestore::Error;
use lodestore::devices::{Matrix, MatrixStatus};
use lodestore_media::sim::Rng;

use super::{Plan, Totals};

/// Maximum groups of a matrix.
const GROUPS_MAX: usize = 4;
/// The name of the directories of new devices.
const NAME: &str = "device of round";

/// Changes the matrix repeatedly, until the process is killed.
///
/// # Errors
///
/// Errors of the changes, except refusals because other devices have not caught up, or keys are
/// moving.
pub(super) fn change(plan: &Plan, matrix: &Matrix, round: u64) -> Result<(), String> {
    let mut rng = Rng::part(plan.seed ^ round.rotate_left(40), 0xc4a9);
    for number in 0_u64.. {
        thread::sleep(Duration::from_micros(rng.below(plan.life_ms.max(1) * 100)));
        let status = matrix.status();
        let width = status.devices.len() / status.groups;
        let directory = |at: usize| plan.dir.join(format!("{NAME} {round}, {number}.{at}"));
        let changed = if status.groups < GROUPS_MAX && rng.one_in(2) {
            matrix.add_group(&(0..width).map(directory).collect::<Vec<_>>())
        } else {
            matrix.replace(rng.index(status.groups), rng.index(width), directory(0)).map(drop)
        };
        match changed {
            Ok(()) | Err(Error::TooFewDevices { .. } | Error::Unsupported { .. }) => {}
            Err(error) => return Err(format!("change {number} of the devices: {error}")),
        }
    }
    Ok(())
}

/// The directories of a matrix's devices at the last check.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeSet<PathBuf>, usize);

impl Seen {
    /// Counts changes, and removes directories of devices that do not belong to the matrix.
    ///
    /// # Errors
    ///
    /// Errors of the removal.
    pub(super) fn look(
        &mut self,
        plan: &Plan,
        status: Option<&MatrixStatus>,
        totals: &mut Totals,
    ) -> Result<(), String> {
        let Some(status) = status.filter(|_| plan.change) else { return Ok(()) };
        let now: BTreeSet<PathBuf> = status.devices.iter().map(|device| device.path.clone()).collect();
        if self.1 > 0 {
            let added = status.groups - self.1;
            let width = status.devices.len() / status.groups;
            totals.added += added as u64;
            totals.replaced += (now.difference(&self.0).count() - added * width) as u64;
        }
        let told = |error: std::io::Error| format!("{}: {error}", plan.dir.display());
        for entry in fs::read_dir(&plan.dir).map_err(told)? {
            let path = entry.map_err(told)?.path();
            let is_of_device = Path::file_name(&path).is_some_and(|name| name.to_string_lossy().starts_with(NAME));
            if is_of_device && !now.contains(&path) {
                fs::remove_dir_all(&path).map_err(told)?;
            }
        }
        *self = Self(now, status.groups);
        Ok(())
    }
}

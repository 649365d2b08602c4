//! Waits for background work: a device that comes into use, keys that move to a new group. A wait
//! that cannot succeed ends at once with an error.

use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use crate::layout::MemberState;
use crate::lock;
use crate::store::Mkvs;

/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

impl Mkvs {
    /// Waits at most `patience` until the device at this position is active. The states of other
    /// devices do not matter.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the position does not exist; [`Error::Unfinished`], also if the
    /// device failed or could not be opened; [`Error::TooFewDevices`] if no other device of its
    /// group that has the missing pairs is there or may come back.
    pub fn wait_device(&self, group: usize, device: usize, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        let group = self.group_with(group, device)?;
        let ends = |instead| Err(Error::Unfinished { doing: "waiting for a device", after: begun.elapsed(), instead });
        loop {
            self.inner.check_open()?;
            let (waited_for, others): (Vec<_>, Vec<_>) =
                group.devices().into_iter().partition(|member| member.index == device);
            if waited_for.iter().any(|device| device.is_active()) {
                return Ok(());
            }
            if !waited_for.iter().any(|device| device.may_serve()) {
                return ends("the device failed: check `Matrix::status` for the cause, and replace the device");
            }
            if !others.iter().any(|other| other.may_serve()) {
                return Err(group.too_few_error(0, 1));
            }
            if begun.elapsed() >= patience {
                return ends("the device is copied, or catches up, while the matrix is open: check `Matrix::status`");
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    /// Waits at most `patience` until all keys have moved to the group that was added last. Devices
    /// that the move does not need do not matter.
    ///
    /// # Errors
    /// [`Error::Unfinished`]; [`Error::TooFewDevices`] if a group has fewer devices than a write
    /// needs and will not recover without help; [`Error::Corrupt`] if everything has moved except
    /// pairs that no device can read.
    pub fn wait_moved(&self, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        while self.inner.shape.is_moving() {
            self.inner.check_open()?;
            {
                let mut move_error = lock(&self.inner.shape.move_error);
                if let Some(error) = move_error.take_if(|error| self.is_permanent(error)) {
                    return Err(error);
                }
            }
            if begun.elapsed() >= patience {
                return Err(Error::Unfinished {
                    doing: "waiting for keys to move to the new group",
                    after: patience,
                    instead: "the keys move while the matrix is open: wait longer (`Matrix::wait_moved`)",
                });
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }

    /// Returns whether the obstacle to the move persists even if devices come back without help.
    fn is_permanent(&self, move_error: &Error) -> bool {
        let groups = self.inner.shape.groups();
        match move_error {
            Error::TooFewDevices { group, needed, .. } => {
                groups[*group].devices().iter().filter(|device| device.may_serve()).count() < *needed
            }
            Error::Corrupt { .. } => {
                let mut devices = groups.iter().flat_map(|group| group.devices());
                !devices.any(|device| device.state() != MemberState::Active && device.may_serve())
            }
            _ => false,
        }
    }
}

//! Waiting for what goes on behind: a device that comes into use, keys that go to a new group. Who waits is told at once where that cannot come.

use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use crate::layout::MemberState;
use crate::lock;
use crate::store::Mkvs;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

impl Mkvs {
    /// Waits until the device in this place is active, for so long at most, whatever becomes of others.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where there is no such place; [`Error::Unfinished`], also where it failed or could not be opened; [`Error::TooFewDevices`] where no other device of its
    /// group is there, or may come back, that has what it lacks.
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
                return ends("it failed: see why with `Matrix::status`, and replace it by another one");
            }
            if !others.iter().any(|other| other.may_serve()) {
                return Err(group.too_few(0, 1));
            }
            if begun.elapsed() >= patience {
                return ends("it is copied, or catches up, whenever the matrix is open: see `Matrix::status`");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until all keys have come to the group that was added last, for so long at most, whatever becomes of devices that this can do without.
    ///
    /// # Errors
    /// [`Error::Unfinished`]; [`Error::TooFewDevices`] where a group has not, and will not have by itself, as many devices as a write takes; [`Error::Corrupt`] where all has come but
    /// pairs that no device can read.
    pub fn wait_moved(&self, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        while self.inner.shape.is_moving() {
            self.inner.check_open()?;
            {
                let mut hindrance = lock(&self.inner.shape.hindrance);
                if let Some(error) = hindrance.take_if(|error| self.stays(error)) {
                    return Err(error);
                }
            }
            if begun.elapsed() >= patience {
                return Err(Error::Unfinished {
                    doing: "waiting for keys to move to the new group",
                    after: patience,
                    instead: "they move whenever the matrix is open: wait on (`Matrix::wait_moved`)",
                });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Whether what hinders keys from moving is not mended by a device that comes back by itself.
    fn stays(&self, hindrance: &Error) -> bool {
        let groups = self.inner.shape.groups();
        match hindrance {
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

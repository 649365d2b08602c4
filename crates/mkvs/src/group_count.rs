//! The number of the matrix's groups in each device. It shows that a description is an older copy.
//!
//! Order of an addition: the description names the new group; the active devices of the other
//! groups store the number; the new group gets its first key. The devices of the new group store it
//! at the next open. If a crash comes between, an open stores the number before it serves any call.
//! In a salvage with doubts the description may be an older copy, and nothing is stored.

use std::sync::{Arc, mpsc};

use lodestore_contract::threads::start_thread;
use lodestore_contract::{Error, Result};

use crate::device::Device;
use crate::group::Group;

/// Stores the number of groups in the active devices of these groups, durably. In a group of
/// several devices, one that does not store it fails.
///
/// # Errors
/// If the only device of a group did not store the number.
pub(crate) fn note_group_count(groups: &[Arc<Group>], count: usize) -> Result<()> {
    for group in groups {
        for device in group.active().iter().filter(|device| device.known_group_count() < count as u64) {
            let stored = group.set_count_in_time(device, count);
            match stored {
                Err(error) if group.sole().is_some() => return Err(error),
                Err(error) => device.fail(error.to_string()),
                Ok(()) => {}
            }
        }
    }
    Ok(())
}

impl Group {
    /// Stores the number of groups in all devices of this group of several devices, also if a
    /// device knows of more. A device that does not store it fails.
    pub(crate) fn set_group_count(&self, count: usize) {
        for device in self.devices() {
            if let Err(error) = self.set_count_in_time(&device, count) {
                device.fail(error.to_string());
            }
        }
    }

    /// Stores the number of groups in a device. With threads, waits at most `timeout-ms`: a thread
    /// in a call of a device that hangs ends there first, if ever.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Unfinished`].
    fn set_count_in_time(&self, device: &Arc<Device>, count: usize) -> Result<()> {
        if !self.options.threads {
            return device.set_group_count(count);
        }
        let (sender, receiver) = mpsc::channel();
        let called = Arc::clone(device);
        // The receiver may have stopped waiting.
        let call = move || drop(sender.send(called.set_group_count(count)));
        if start_thread("mkvs-groups", call).is_err() {
            return device.set_group_count(count);
        }
        let late = || Error::Unfinished {
            doing: "storing the number of groups in a device",
            after: self.options.timeout,
            instead: "check the device; if its group has no other, close the matrix and open it again: the open uses \
                      the groups that the description names",
        };
        receiver.recv_timeout(self.options.timeout).unwrap_or_else(|_| Err(late()))
    }
}

//! The number of the matrix's groups in each device. It shows that a description is an older copy.
//!
//! The description names a group first. Then the active devices store the number, and then the group
//! gets its first key. If a crash comes between, the next open stores the number before it serves
//! any call.

use std::sync::{Arc, mpsc};

use lodestore_contract::threads::start_thread;
use lodestore_contract::{Error, Result};

use crate::device::Device;
use crate::group::Group;

impl Group {
    /// Calls `store` for these devices, and waits at most `timeout-ms` for each. In a group of
    /// several devices, one that does not store the number in time fails.
    ///
    /// # Errors
    /// If the only device of a group did not store the number.
    pub(crate) fn store_group_count(
        &self,
        devices: Vec<Arc<Device>>,
        store: impl Fn(&Device) -> Result<()> + Copy + Send + 'static,
    ) -> Result<()> {
        for device in devices {
            match self.call_in_time(&device, store) {
                Some(Ok(())) => {}
                Some(Err(error)) if self.sole().is_some() => return Err(error),
                Some(Err(error)) => device.fail(error.to_string()),
                None if self.sole().is_some() => {
                    return Err(Error::Unfinished {
                        doing: "storing the number of groups in a device",
                        after: self.options.timeout,
                        instead: "close the matrix, check the device, and open the matrix again",
                    });
                }
                None => device.fail(self.late_failure()),
            }
        }
        Ok(())
    }

    /// Calls `store` with a device. Returns `None` if the call has not ended in time; a thread in a
    /// call of a device that hangs ends there first, if ever.
    fn call_in_time(
        &self,
        device: &Arc<Device>,
        store: impl Fn(&Device) -> Result<()> + Copy + Send + 'static,
    ) -> Option<Result<()>> {
        if !self.options.threads {
            return Some(store(device));
        }
        let (sender, receiver) = mpsc::channel();
        let called = Arc::clone(device);
        // The receiver may have stopped waiting.
        let call = move || drop(sender.send(store(&called)));
        match start_thread("mkvs-groups", call) {
            Ok(_) => receiver.recv_timeout(self.options.timeout).ok(),
            Err(_) => Some(store(device)),
        }
    }
}

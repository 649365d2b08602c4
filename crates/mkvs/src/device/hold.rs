//! Holding a device: its processor executes nothing meanwhile. The invariants are in `device.rs`.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::Device;
use crate::lock;

impl Device {
    /// Keeps the processor from executing anything.
    pub(crate) fn hold(&self) -> Held<'_> {
        Held::new(self, lock(&self.exec))
    }

    /// Keeps the processor from executing anything. Returns `None` if the processor is busy for
    /// longer than `patience`.
    pub(crate) fn try_hold(&self, patience: Duration) -> Option<Held<'_>> {
        let begun = Instant::now();
        loop {
            match self.exec.try_lock() {
                Ok(exec) => return Some(Held::new(self, exec)),
                Err(TryLockError::Poisoned(poisoned)) => return Some(Held::new(self, poisoned.into_inner())),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= patience => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Returns whether the processor spends longer than `patience` on one command.
    pub(crate) fn hangs(&self, patience: Duration) -> bool {
        loop {
            let progress = self.progress();
            if self.try_hold(patience).is_some() {
                return false;
            }
            if self.progress() == progress {
                return true;
            }
        }
    }
}

/// A device whose processor is kept from executing.
pub(crate) struct Held<'a> {
    _exec: MutexGuard<'a, ()>,
    /// Declared after `_exec`, and therefore dropped after `exec` is released.
    device: KickOnDrop<'a>,
}

/// Executes the commands queued while the device was held.
struct KickOnDrop<'a>(&'a Device);

impl Drop for KickOnDrop<'_> {
    fn drop(&mut self) {
        if !lock(&self.0.queue).is_empty() {
            self.0.kick();
        }
    }
}

impl<'a> Held<'a> {
    fn new(device: &'a Device, exec: MutexGuard<'a, ()>) -> Self {
        Self { _exec: exec, device: KickOnDrop(device) }
    }

    /// Reports progress: queued commands wait for another task, not for the device.
    pub(crate) fn report_progress(&self) {
        self.device.0.progress.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets `executed` to `seq`: the store has everything up to `seq` except `lacking`.
    pub(crate) fn set_executed(&mut self, seq: u64, lacking: &[u64]) {
        self.report_progress();
        *lock(&self.device.0.holes) = lacking.iter().copied().collect();
        self.device.0.advance_applied(seq);
        self.device.0.executed.store(seq, Ordering::Release);
    }
}

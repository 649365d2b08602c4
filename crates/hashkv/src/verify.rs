//! Verifies everything: the LSM by its own `verify`, then each value to which it points. Damage of
//! the LSM or of other values does not end the check.

use std::ops::Bound;
use std::sync::Arc;

use lodestore_contract::{Error, Progress, Result, Store, VerifyReport, Visit};
use lodestore_fluidkv::FluidKv;

use crate::layout::{RECORD_HEADER_BYTES, Stored};
use crate::read::loss_of;
use crate::running::Running;
use crate::values::{Hold, Values};

/// Values between two calls of `progress`.
const PROGRESS_INTERVAL: u64 = 1024;
/// Maximum bytes of a scrub step, before its last key.
const PIECE_BYTES_MAX: u64 = 1 << 20;

pub(crate) fn verify(running: &Arc<Running>, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
    let mut last = Progress { done: 0, total: 0 };
    let mut report = running.index.verify(&mut |step| {
        last = step;
        progress(step);
    })?;
    if running.values.sizes.is_lost {
        report.find("values.0000", "the file is missing or truncated");
    }
    let _hold = Hold::now(&running.values);
    let (mut done, mut value) = (last.done, Vec::new());
    let mut outcome = Ok(());
    let walked = running.index.for_each(&mut |key, stored| {
        let pointer = match Stored::read(stored) {
            Ok(Stored::Pointer(pointer)) => pointer,
            Ok(Stored::Value(_)) => return Visit::More,
            Err(_) => {
                let place = format!("the index, key {}", key[..key.len().min(24)].escape_ascii());
                report.find(place, "the item is neither a value nor a pointer");
                return Visit::More;
            }
        };
        value.clear();
        match running.values.read(pointer, key, &mut value) {
            Ok(true) => {
                report.records += 1;
                report.bytes += (RECORD_HEADER_BYTES + key.len() + value.len()) as u64;
            }
            Ok(false) if running.values.is_expired_and_freed(key, pointer) => {}
            Ok(false) => {
                let (place, what) = loss_of(pointer);
                report.find(place, what);
            }
            Err(Error::Io { source, .. }) => {
                report.find(format!("values.0000, segment {}", pointer.segment), format!("reading failed: {source}"));
            }
            Err(error) => {
                outcome = Err(error);
                return Visit::Stop;
            }
        }
        done += 1;
        if done.is_multiple_of(PROGRESS_INTERVAL) {
            progress(Progress { done, total: done.max(last.total) });
        }
        Visit::More
    });
    // Unreadable parts of the LSM are in its part of the report.
    match walked {
        Err(Error::Corrupt { .. }) | Ok(_) => {}
        Err(error) => return Err(error),
    }
    outcome?;
    progress(Progress { done, total: done.max(last.total) });
    Ok(report)
}

impl Values {
    /// Reads each value of the file as a get does, in steps, for the scrub of the LSM.
    pub(crate) fn scrub(&self, piece: &mut dyn FnMut(VerifyReport) -> bool) {
        let mut from: Bound<Vec<u8>> = Bound::Unbounded;
        loop {
            let (report, last) = {
                // The owner of the store may drop it between two steps.
                let Some(index) = self.index().filter(|index| !index.is_closed()) else { return };
                self.scrub_piece(&index, from.as_ref().map(Vec::as_slice))
            };
            if !piece(report) {
                return;
            }
            let Some(last) = last else { return };
            from = Bound::Excluded(last);
        }
    }

    /// Reads the values of some keys, starting at a bound. Returns the last key; `None` if no keys
    /// follow.
    fn scrub_piece(&self, index: &FluidKv, from: Bound<&[u8]>) -> (VerifyReport, Option<Vec<u8>>) {
        let (mut report, mut keys, mut bytes) = (VerifyReport::default(), Vec::new(), 0);
        let mut last = None;
        // Unreadable parts of the LSM are in the findings of its own steps.
        let _ = index.each_flushed(from, &mut |key, stored| {
            bytes += (key.len() + stored.len()) as u64;
            if let Ok(Stored::Pointer(pointer)) = Stored::read(stored) {
                keys.push(key.to_vec());
                bytes += u64::from(pointer.len);
            }
            if bytes < PIECE_BYTES_MAX {
                return Visit::More;
            }
            last = Some(key.to_vec());
            Visit::Stop
        });
        let mut value = Vec::new();
        for key in &keys {
            match self.get_with_lookup(key, &mut value, |value| index.peek_into(key, value)) {
                Ok(is_there) => {
                    report.records += u64::from(is_there);
                    report.bytes += (RECORD_HEADER_BYTES + key.len() + value.len()) as u64;
                }
                Err(Error::Corrupt { place, what, .. }) => report.find(place, what),
                Err(Error::Io { source, .. }) => report.find("values.0000", format!("reading failed: {source}")),
                // The store is being closed.
                Err(_) => return (report, None),
            }
        }
        report.bytes = report.bytes.max(bytes);
        (report, last)
    }
}

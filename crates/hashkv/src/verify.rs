//! Reading and checking everything: the LSM by its own verify, then each value that it points to, in spite of what is damaged of the LSM or of other values.

use std::sync::Arc;

use lodestore_contract::{Error, Progress, Result, Store, VerifyReport, Visit};

use crate::layout::{RECORD_HEADER, Stored};
use crate::read::loss;
use crate::store::Running;
use crate::values::Hold;

/// Values between two calls of `progress`.
const STEP: u64 = 1024;

pub(crate) fn verify(running: &Arc<Running>, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
    let mut last = Progress { done: 0, total: 0 };
    let mut report = running.index.verify(&mut |step| {
        last = step;
        progress(step);
    })?;
    if running.values.sizes.is_lost {
        report.find("values.0000", "it is gone or cut off");
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
                report.find(place, "what it holds is neither a value nor a pointer");
                return Visit::More;
            }
        };
        value.clear();
        match running.values.read(pointer, key, &mut value) {
            Ok(true) => {
                report.records += 1;
                report.bytes += (RECORD_HEADER + key.len() + value.len()) as u64;
            }
            Ok(false) if running.values.is_gone(key, pointer) => {}
            Ok(false) => {
                let (place, what) = loss(pointer);
                report.find(place, what);
            }
            Err(Error::Io { source, .. }) => {
                report
                    .find(format!("values.0000, segment {}", pointer.segment), format!("it cannot be read: {source}"));
            }
            Err(error) => {
                outcome = Err(error);
                return Visit::Stop;
            }
        }
        done += 1;
        if done.is_multiple_of(STEP) {
            progress(Progress { done, total: done.max(last.total) });
        }
        Visit::More
    });
    // What of the LSM cannot be read is in its part of the report.
    match walked {
        Err(Error::Corrupt { .. }) | Ok(_) => {}
        Err(error) => return Err(error),
    }
    outcome?;
    progress(Progress { done, total: done.max(last.total) });
    Ok(report)
}

//! Checks a matrix: each store by itself, and the members of each group against each other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Progress, Result, VerifyReport};

use crate::group::Group;
use crate::lock;
use crate::route::KeyHash;
use crate::walk::each_key;

/// Adds what a part was found to be, with its name before each place.
fn add(report: &mut VerifyReport, part: VerifyReport, name: &str, counts: bool) {
    if counts {
        (report.records, report.bytes) = (report.records + part.records, report.bytes + part.bytes);
    }
    for finding in part.findings {
        report.find(format!("{name}: {}", finding.place), finding.what);
    }
}

/// Checks all groups.
///
/// # Errors
/// The devices'.
pub(crate) fn verify(groups: &[Arc<Group>], seed: u64, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let steps = groups.iter().map(|group| 2 * group.devices().len() as u64).sum::<u64>().max(1);
    let mut done = 0;
    progress(Progress { done, total: steps });
    let mut step = || {
        done += 1;
        progress(Progress { done, total: steps });
    };
    for group in groups {
        for lost in lock(&group.lost).iter() {
            report.find(
                format!("group {} device {}", group.index, lost.index),
                format!("cannot be opened: {}", lost.why),
            );
        }
        let devices = group.devices();
        // One that has everything tells how much there is.
        group.store_at(group.last())?;
        let teller = group.teller.load(Ordering::Relaxed);
        for device in &devices {
            let name = format!("group {} device {}", group.index, device.index);
            let counts = group.sole().is_some() || device.id == teller;
            add(&mut report, device.store().verify(&mut |_| {})?, &name, counts);
            if let Some(log) = device.log() {
                add(&mut report, log.store().verify(&mut |_| {})?, &format!("{name}, operation log"), false);
            }
            // One that is behind will have what it lacks.
            if let Some(why) = device.failure() {
                report.find(&name, format!("failed: {why}"));
            }
            step();
        }
        for _ in &devices {
            step();
        }
        compare(group, seed, &mut report)?;
    }
    Ok(report)
}

/// Compares the active members of a group, key by key, each under its stripe.
fn compare(group: &Group, seed: u64, report: &mut VerifyReport) -> Result<()> {
    let active = group.active();
    for one in &active {
        each_key(&**one.store(), &mut |key| {
            let stripe = group.stripes.share(KeyHash::of(key, seed));
            let at =
                |index: usize| active.get(index).filter(|device| device.is_active() && device.applied() >= stripe.last);
            for other in (0..active.len()).filter_map(at).filter(|other| other.id != one.id) {
                if one.applied() < stripe.last {
                    continue;
                }
                match (one.store().get(key), other.store().get(key)) {
                    (Ok(own), Ok(others)) if own != others => {
                        let place = format!("group {} devices {} and {}", group.index, one.index, other.index);
                        report.find(place, format!("they differ in a key of {} bytes", key.len()));
                    }
                    // Damage has been told of by the stores.
                    (Ok(_), Ok(_)) | (Err(Error::Corrupt { .. }), _) | (_, Err(Error::Corrupt { .. })) => {}
                    (Err(error), _) | (_, Err(error)) => return Err(error),
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

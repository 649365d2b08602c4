//! Verification of a matrix: each store separately, and the members of each group against each
//! other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Progress, Result, Store, VerifyReport};

use crate::catchup::log_of;
use crate::device::Device;
use crate::group::Group;
use crate::lock;
use crate::route::KeyHash;
use crate::salvage_doubts::Doubt;
use crate::walk::each_key;

/// Adds the report of a part, with the part's name before each place.
fn add_report(report: &mut VerifyReport, part: VerifyReport, name: &str, counts: bool) {
    if counts {
        (report.records, report.bytes) = (report.records + part.records, report.bytes + part.bytes);
    }
    for finding in part.findings {
        report.find(format!("{name}: {}", finding.place), finding.what);
    }
}

/// Verifies the host's store and all groups. A part that cannot be verified is a finding.
///
/// # Errors
/// [`Error::Closed`].
pub(crate) fn verify(
    host: &dyn Store,
    groups: &[Arc<Group>],
    seed: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let steps = 1 + groups.iter().map(|group| 2 * group.devices().len() as u64).sum::<u64>();
    let mut done = 0;
    progress(Progress { done, total: steps });
    let mut step = || {
        done += 1;
        progress(Progress { done, total: steps });
    };
    verify_store(&mut report, host, "the matrix's own store", false)?;
    step();
    for group in groups {
        let findings_before = report.findings.len();
        for lost in lock(&group.lost).iter() {
            report.find(
                format!("group {} device {}", group.index, lost.index),
                format!("the device cannot be opened: {}", lost.why),
            );
        }
        for Doubt { device, what, .. } in group.doubts() {
            let of_device = device.map(|device| format!(" device {device}")).unwrap_or_default();
            report.find(format!("group {}{of_device}", group.index), what);
        }
        let devices = group.devices();
        let surplus = devices_with_surplus(group);
        // A member that has everything provides the counts.
        note_unchecked(&mut report, format!("group {}", group.index), group.device_at(group.last()).map(drop))?;
        let last_walked = group.last_walked.load(Ordering::Relaxed);
        for device in &devices {
            let name = format!("group {} device {}", group.index, device.index);
            let counts = group.sole().is_some() || device.id == last_walked;
            // A member that is behind will catch up. A failed one may hang.
            if let Some(why) = device.failure() {
                report.find(&name, format!("failed: {why}"));
            } else {
                verify_store(&mut report, &**device.store(), &name, counts)?;
                if let Some(log) = device.log() {
                    verify_store(&mut report, &**log.store(), &format!("{name}, operation log"), false)?;
                }
            }
            step();
        }
        for _ in &devices {
            step();
        }
        let in_doubt = group.count_in_doubt_writes();
        if in_doubt > 0 {
            let what = format!(
                "{in_doubt} writes are in doubt: reads of their keys are refused until enough devices are active"
            );
            report.find(format!("group {}", group.index), what);
        }
        let compared = compare(group, seed, &mut report);
        note_unchecked(&mut report, format!("group {}", group.index), compared)?;
        let is_sound = report.findings.len() == findings_before;
        let closed = if is_sound { close_gaps(group, seed).and_then(|()| end_surplus(surplus)) } else { Ok(()) };
        note_unchecked(&mut report, format!("group {}", group.index), closed)?;
        for device in devices.iter().filter(|device| device.has_gaps()) {
            let place = format!("group {} device {}", group.index, device.index);
            report.find(place, "the copy may lack pairs that no device could read");
        }
    }
    Ok(report)
}

/// Adds a finding for a part that could not be verified. The other parts are verified anyway.
fn note_unchecked(report: &mut VerifyReport, place: String, checked: Result<()>) -> Result<()> {
    match checked {
        Err(Error::Closed) => Err(Error::Closed),
        Err(error) => {
            report.find(place, format!("not checked: {error}"));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Adds the report of a store.
fn verify_store(report: &mut VerifyReport, store: &dyn Store, name: &str, counts: bool) -> Result<()> {
    let checked = store.verify(&mut |_| {}).map(|part| add_report(report, part, name, counts));
    note_unchecked(report, name.into(), checked)
}

/// Checks whether copies with gaps lack pairs, compared with a member that shows all pairs. A copy
/// that lacks no pair loses its mark of a gap.
fn close_gaps(group: &Group, seed: u64) -> Result<()> {
    let active = group.active();
    let mut open: Vec<_> = active.iter().filter(|device| device.has_gaps()).collect();
    let Some(whole) = active.iter().find(|device| device.shows_all()).filter(|_| !open.is_empty()) else {
        return Ok(());
    };
    let damage = each_key(&**whole.store(), &mut |key| {
        let _stripe = group.stripes.lock_shared(KeyHash::of(key, seed));
        let has = |device: &Device| device.query(|store| store.contains(key)).transpose();
        let is_present = has(whole)? == Some(true);
        // Checked twice: the pair may have expired in between.
        open.retain(|device| {
            !is_present || matches!(has(device), Ok(Some(true))) || matches!(has(whole), Ok(Some(false)))
        });
        Ok(())
    })?;
    for device in open.into_iter().filter(|_| damage.is_none()) {
        log_of(device)?.set_record(|record| {
            record.has_gaps = false;
            device.set_gaps(false);
        })?;
    }
    Ok(())
}

/// Returns the active devices with a surplus, each with the number of changes of its use.
fn devices_with_surplus(group: &Group) -> Vec<(Arc<Device>, u64)> {
    let devices = group.active().into_iter().filter(|device| device.has_surplus());
    devices.map(|device| (Arc::clone(&device), device.use_changes())).collect()
}

/// Ends the surplus of devices that were in use since before the verification. It found no damage,
/// so no damaged pair of a deleted key is left. A device that was copied again has a new mark.
fn end_surplus(verified: Vec<(Arc<Device>, u64)>) -> Result<()> {
    for (device, changes) in verified {
        log_of(&device)?.set_record(|record| {
            if device.use_changes() == changes {
                record.has_surplus = false;
                device.set_surplus(false);
            }
        })?;
    }
    Ok(())
}

/// Returns whether two members have different values of a key. False if one went out of use
/// meanwhile.
fn differ(one: &Device, other: &Device, key: &[u8]) -> Result<bool> {
    let read = |device: &Device| device.query(|store| store.get(key)).transpose();
    match (read(one), read(other)) {
        // The stores have reported the damage.
        (Err(Error::Corrupt { .. }), _) | (_, Err(Error::Corrupt { .. })) => Ok(false),
        (Ok(own), Ok(others)) => Ok(own.is_some() && others.is_some() && own != others),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Compares the active members of a group, key by key, each under its stripe.
fn compare(group: &Group, seed: u64, report: &mut VerifyReport) -> Result<()> {
    let active = group.active();
    for one in &active {
        // The stores have reported the damage.
        let _damage = each_key(&**one.store(), &mut |key| {
            let stripe = group.stripes.lock_shared(KeyHash::of(key, seed));
            let at =
                |index: usize| active.get(index).filter(|device| device.is_active() && device.applied() >= stripe.last);
            for other in (0..active.len()).filter_map(at).filter(|other| other.id != one.id) {
                if !one.is_active() || one.applied() < stripe.last {
                    continue;
                }
                // Compared twice: the pair may have expired in between. Then both report it as
                // absent.
                if differ(one, other, key)? && differ(one, other, key)? {
                    let place = format!("group {} devices {} and {}", group.index, one.index, other.index);
                    report.find(place, format!("the devices differ in a key of {} bytes", key.len()));
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

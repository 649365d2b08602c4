//! The leader of an open, and the operations that the open rolls back.
//!
//! The newest log has every operation that may be acknowledged, but its member's store may lack
//! some: the member may have had no space for an operation that others applied. In this case all
//! members that may lead receive that log. An operation that too few members can have applied for
//! an acknowledgement is rolled back, like a write refused for lack of space. A member that lacks
//! nothing else leads.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;

use lodestore_contract::Result;
use lodestore_contract::threads::start_scoped_thread;

use crate::apply::is_refusal;
use crate::catchup::{last_epoch, log_of};
use crate::device::Device;

/// A member that has, or may have, all acknowledged operations.
pub(crate) struct Candidate {
    device: Arc<Device>,
    /// Epoch and sequence number of its last operation.
    newest: (u64, u64),
    /// Operations that it had no space for.
    refused: Vec<u64>,
}

/// The chosen leader.
pub(crate) struct LeaderChoice {
    /// The last operation.
    pub(crate) last: u64,
    /// Members that have everything except `refused`, the leader first.
    pub(crate) active: Vec<Arc<Device>>,
    /// Operations to roll back.
    pub(crate) refused: BTreeSet<u64>,
    /// Acknowledged writes that a salvage may lack, because too few members could be read.
    pub(crate) lacking: Option<String>,
}

/// Replays the members' logs, concurrently if `threads` is set. A member that cannot fails, and is
/// not in the result.
pub(crate) fn replay_logs(devices: Vec<Arc<Device>>, threads: bool) -> Vec<Candidate> {
    let replay = |device: Arc<Device>| -> Option<Candidate> {
        let done = device.replay_log().and_then(|refused| {
            let log = log_of(&device)?;
            Ok((refused, (last_epoch(log)?, log.bounds().1)))
        });
        match done {
            Ok((refused, newest)) => Some(Candidate { device, newest, refused }),
            Err(error) => {
                device.fail(error.to_string());
                None
            }
        }
    };
    if !threads {
        return devices.into_iter().filter_map(replay).collect();
    }
    std::thread::scope(|scope| {
        let begin = |device: Arc<Device>| {
            let own = Arc::clone(&device);
            start_scoped_thread(scope, "mkvs-replay", move || replay(own)).map_err(|_| device)
        };
        let begun: Vec<_> = devices.into_iter().map(begin).collect();
        let end = |begun: Result<ScopedJoinHandle<'_, Option<Candidate>>, Arc<Device>>| match begun {
            Ok(replaying) => replaying.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // No thread could be started for this device.
            Err(device) => replay(device),
        };
        begun.into_iter().filter_map(end).collect()
    })
}

/// Chooses the leader of these members; `absent` further members of the group are not available. A
/// write was acknowledged when `needed` of all of them had applied it. Returns `None` if no member
/// has everything that may be acknowledged.
///
/// # Errors
/// Errors of the devices.
pub(crate) fn select_leader(
    candidates: Vec<Candidate>,
    mut absent: usize,
    needed: usize,
) -> Result<Option<LeaderChoice>> {
    let Some(source) = candidates.iter().max_by_key(|candidate| (candidate.newest, candidate.refused.is_empty()))
    else {
        return Ok(None);
    };
    let last = source.newest.1;
    if source.refused.is_empty() {
        return Ok(Some(LeaderChoice {
            last,
            active: vec![Arc::clone(&source.device)],
            refused: BTreeSet::new(),
            lacking: None,
        }));
    }
    let source = Arc::clone(&source.device);
    let mut complete = Vec::new();
    for mut candidate in candidates {
        // A member counts as absent if the newest log does not reach back far enough, or if it has
        // no space.
        if complete_log(&mut candidate, &source, last)? {
            complete.push(candidate);
        } else {
            absent += 1;
        }
    }
    let candidates = complete;
    let have = |seq: &u64| candidates.iter().filter(|candidate| !candidate.refused.contains(seq)).count();
    let lacking = candidates.iter().flat_map(|candidate| candidate.refused.iter().copied());
    let refused: BTreeSet<u64> = lacking.filter(|seq| have(seq) + absent < needed).collect();
    let leaders: Vec<_> =
        candidates.iter().filter(|candidate| candidate.refused.iter().all(|seq| refused.contains(seq))).collect();
    leaders.iter().for_each(|candidate| candidate.device.set_executed(last, &candidate.refused));
    let active: Vec<_> = leaders.iter().map(|candidate| Arc::clone(&candidate.device)).collect();
    Ok((!active.is_empty()).then_some(LeaderChoice { last, active, refused, lacking: None }))
}

/// Copies the operations up to `last` that a member's log lacks from another log, and replays them.
/// Returns false if that log does not reach back far enough, or if the member fails or has no
/// space.
///
/// # Errors
/// Errors of the other log.
fn complete_log(candidate: &mut Candidate, source: &Device, last: u64) -> Result<bool> {
    let (log, source) = (log_of(&candidate.device)?, log_of(source)?);
    for seq in log.bounds().1 + 1..=last {
        let Some(operation) = source.read(seq)? else { return Ok(false) };
        if !fail_unless_done(&candidate.device, log.append(&operation, candidate.device.applied())) {
            return Ok(false);
        }
    }
    let mut refused = Vec::new();
    let is_complete =
        fail_unless_done(&candidate.device, candidate.device.replay_log().map(|lacking| refused = lacking));
    candidate.refused = refused;
    Ok(is_complete)
}

/// Returns whether a member succeeded. A member with a failed medium is marked as failed.
fn fail_unless_done(device: &Device, done: Result<()>) -> bool {
    match &done {
        Err(error) if !is_refusal(error) => device.fail(error.to_string()),
        _ => {}
    }
    done.is_ok()
}

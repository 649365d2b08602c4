//! `mkvs`: status and changes of a matrix of devices.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lodestore::devices::{DeviceStatus, Matrix, MatrixStatus};
use lodestore::options::OpenOptions;
use serde_json::json;

use super::{close, object};
use crate::advice::translate;
use crate::args::{MkvsCommand, StoreArgs};
use crate::failure::{Failure, Outcome};
use crate::out::{Out, thousands};

/// Runs one of the commands.
pub fn run(command: &MkvsCommand) -> Outcome {
    match command {
        MkvsCommand::Status(store) => status(store),
        MkvsCommand::Replace { store, group, device, directory, salvage, patience } => {
            with_opened(store, &open(store, *salvage)?, |matrix| {
                let replaced = matrix.replace(*group, *device, absolute_path(directory))?;
                if let Some(what) = replaced.gave_up {
                    report_loss(store, *group, &what)?;
                }
                Ok(matrix.wait_device(*group, *device, Duration::from_secs(*patience))?)
            })
        }
        MkvsCommand::AddGroup { store, directories, patience } => with_opened(store, &open(store, false)?, |matrix| {
            matrix.add_group(&directories.iter().map(|directory| absolute_path(directory)).collect::<Vec<_>>())?;
            Ok(matrix.wait_moved(Duration::from_secs(*patience))?)
        }),
        MkvsCommand::Rebalance { store, patience } => {
            with_opened(store, &open(store, false)?, |matrix| rebalance(matrix, Duration::from_secs(*patience)))
        }
    }
}

/// Reports the losses of a replacement in salvage: a line, or an object with `--json`.
fn report_loss(args: &StoreArgs, group: usize, what: &str) -> Outcome {
    let mut out = Out::new();
    if args.json {
        out.json(object([("group", group.into()), ("gave_up", what.into())]))?;
    } else {
        out.line(format!("group {group} gives up unreadable data: {what}"))?;
    }
    out.flush()
}

/// Returns the absolute path of the directory.
fn absolute_path(directory: &Path) -> PathBuf {
    std::path::absolute(directory).unwrap_or_else(|_| directory.into())
}

/// Waits for moving keys, then for devices that catch up or are copied, but not for failed ones.
fn rebalance(matrix: &Matrix, patience: Duration) -> Outcome {
    let begun = Instant::now();
    matrix.wait_moved(patience)?;
    for device in matrix.status().devices.iter().filter(|device| device.state == "behind") {
        matrix.wait_device(device.group, device.device, patience.saturating_sub(begun.elapsed()))?;
    }
    Ok(())
}

/// Writes the state of the matrix. If it cannot be opened, writes the missing devices and the
/// reason of the refusal.
fn status(args: &StoreArgs) -> Outcome {
    let opened = open(args, false);
    if opened.is_err()
        && let Ok(status) = Matrix::describe(&args.store, &OpenOptions::new())
    {
        let mut out = Out::new();
        write_status(&status, false, args.json, &mut out).and_then(|()| out.flush())?;
    }
    with_opened(args, &opened?, |_| Ok(()))
}

fn open(args: &StoreArgs, salvage: bool) -> Outcome<Matrix> {
    let mut options = OpenOptions::new().salvage(salvage);
    for text in &args.set {
        options = options.set_text(text)?;
    }
    Matrix::open(&args.store, &options).map_err(|error| Failure::Open { error, salvage })
}

/// Runs `work`, writes the resulting state of the matrix, and closes it.
fn with_opened(args: &StoreArgs, matrix: &Matrix, work: impl FnOnce(&Matrix) -> Outcome) -> Outcome {
    let done = work(matrix);
    let mut out = Out::new();
    let written = write_status(&matrix.status(), true, args.json, &mut out).and_then(|()| out.flush());
    let closed = close(&matrix.store());
    done?;
    written?;
    Ok(closed?)
}

/// Returns the reason why a device is not used.
fn failure_reason(device: &DeviceStatus) -> Option<String> {
    let path = device.path.display().to_string();
    device.why.as_deref().map(|why| translate(why, &[&path]).into_owned())
}

/// Only an open matrix has numbers.
fn write_status(status: &MatrixStatus, is_open: bool, as_json: bool, out: &mut Out) -> Outcome {
    if as_json {
        let devices: Vec<_> = status
            .devices
            .iter()
            .map(|device| {
                json!({
                    "group": device.group, "device": device.device, "path": device.path.to_string_lossy(), "state": device.state,
                    "applied": device.applied, "last": device.last, "queued": device.queued, "keys": device.keys, "why": failure_reason(device),
                })
            })
            .collect();
        return out.json(object([
            ("acks", status.acks.name().into()),
            ("groups", status.groups.into()),
            ("settled_groups", status.settled_groups.into()),
            ("epochs", status.epochs.clone().into()),
            ("given_up", status.given_up.clone().into()),
            ("moved", status.moved.into()),
            ("devices", devices.into()),
        ]));
    }
    let moving = if status.settled_groups < status.groups { ", keys are moving to the newest group" } else { "" };
    out.line(format!("{} groups, acks {}{moving}", status.groups, status.acks.name()))?;
    for (group, what) in status.given_up.iter().enumerate() {
        if let Some(what) = what {
            out.line(format!("group {group}: a salvage gave up unreadable data: {what}"))?;
        }
    }
    let rows: Vec<(String, String)> = status
        .devices
        .iter()
        .map(|device| {
            let why = failure_reason(device).map(|why| format!(": {why}")).unwrap_or_default();
            let name = format!("group {} device {}", device.group, device.device);
            let keys = thousands(device.keys);
            let numbers = format!(", {keys} keys, operation {} of {}", device.applied, device.last);
            let numbers = if is_open { &numbers } else { "" };
            let state = format!("{}{why}{numbers}, {}", device.state, device.path.display());
            (name, state)
        })
        .collect();
    out.table(&rows)
}

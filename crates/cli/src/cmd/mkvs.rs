//! `mkvs`: a matrix of devices, seen and changed.

use std::time::Duration;

use lodestore::{Matrix, MatrixStatus, OpenOptions};
use serde_json::json;

use super::{close, object};
use crate::args::{MkvsCommand, StoreArgs};
use crate::failure::Outcome;
use crate::out::{Out, thousands};

/// Runs one of the commands.
pub fn run(command: &MkvsCommand) -> Outcome {
    match command {
        MkvsCommand::Status(store) => with_matrix(store, |_| Ok(())),
        MkvsCommand::Replace { store, group, device, directory, patience } => with_matrix(store, |matrix| {
            let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
            matrix.replace(*group, *device, directory)?;
            Ok(matrix.wait_whole(Duration::from_secs(*patience))?)
        }),
        MkvsCommand::AddGroup { store, directories, patience } => with_matrix(store, |matrix| {
            let full =
                |directory: &std::path::PathBuf| std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
            matrix.add_group(&directories.iter().map(full).collect::<Vec<_>>())?;
            Ok(matrix.wait_whole(Duration::from_secs(*patience))?)
        }),
        MkvsCommand::Rebalance { store, patience } => {
            with_matrix(store, |matrix| Ok(matrix.wait_whole(Duration::from_secs(*patience))?))
        }
    }
}

/// Opens the matrix, does `work`, writes how it stands then, and closes it.
fn with_matrix(args: &StoreArgs, work: impl FnOnce(&Matrix) -> Outcome) -> Outcome {
    let mut options = OpenOptions::new();
    for text in &args.set {
        options = options.set_text(text)?;
    }
    let matrix = Matrix::open(&args.store, &options)?;
    let done = work(&matrix);
    let mut out = Out::new();
    let told = tell(&matrix.status(), args.json, &mut out).and_then(|()| out.flush());
    let closed = close(&matrix.store());
    done?;
    told?;
    Ok(closed?)
}

fn tell(status: &MatrixStatus, as_json: bool, out: &mut Out) -> Outcome {
    if as_json {
        let devices: Vec<_> = status
            .devices
            .iter()
            .map(|device| {
                json!({
                    "group": device.group, "device": device.device, "path": device.path.to_string_lossy(), "state": device.state,
                    "applied": device.applied, "last": device.last, "queued": device.queued, "keys": device.keys, "why": device.why,
                })
            })
            .collect();
        return out.json(object([
            ("acks", status.acks.name().into()),
            ("groups", status.groups.into()),
            ("settled_groups", status.settled_groups.into()),
            ("epochs", status.epochs.clone().into()),
            ("moved", status.moved.into()),
            ("devices", devices.into()),
        ]));
    }
    let moving = if status.settled_groups < status.groups { ", keys are on their way to the newest" } else { "" };
    out.line(format!("{} groups, acks {}{moving}", status.groups, status.acks.name()))?;
    let rows: Vec<(String, String)> = status
        .devices
        .iter()
        .map(|device| {
            let why = device.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            let name = format!("group {} device {}", device.group, device.device);
            let stands = format!(
                "{}{why}, {} keys, operation {} of {}, {}",
                device.state,
                thousands(device.keys),
                device.applied,
                device.last,
                device.path.display()
            );
            (name, stands)
        })
        .collect();
    out.table(&rows)
}

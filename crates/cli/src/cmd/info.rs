//! `info`.

use lodestore::stats::format_size;
use lodestore::store::{Info, StoreFile, info};
use serde_json::{Map, Value, json};

use super::object;
use crate::args::InfoArgs;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, thousands};

/// Describes a store without opening it.
pub fn run(args: &InfoArgs) -> Outcome {
    let found = info(&args.store).map_err(|error| Failure::Open { error, salvage: false })?;
    let mut out = Out::new();
    if args.json {
        out.json(as_json(&found))?;
    } else {
        out.table(&as_table(&found))?;
        out.line("keyspaces are not shown: `lodestore keyspaces` opens the store and lists them")?;
    }
    out.flush()
}

/// Returns the state of the store in one word.
fn state(found: &Info) -> &'static str {
    match (&found.holder, found.header.clean) {
        (Some(_), _) => "open",
        (None, true) => "clean",
        (None, false) => "killed",
    }
}

fn bytes_of(files: &[StoreFile]) -> u64 {
    files.iter().map(|file| file.bytes).sum()
}

fn as_json(found: &Info) -> Map<String, Value> {
    let header = &found.header;
    let files: Vec<Value> = found.files.iter().map(|file| json!({"name": file.name, "bytes": file.bytes})).collect();
    object([
        ("engine", header.engine.as_str().into()),
        ("engine_format", header.engine_format.into()),
        ("pool_format", found.pool_format.into()),
        ("durability", header.durability.to_string().into()),
        ("emulate_dax", header.emulate_dax.into()),
        ("capacity", header.capacity.into()),
        ("region_bytes", header.region_bytes.into()),
        ("regions", header.regions.into()),
        ("state", state(found).into()),
        ("holder", found.holder.as_deref().into()),
        ("same_boot", header.same_boot.into()),
        ("bytes", bytes_of(&found.files).into()),
        ("files", files.into()),
    ])
}

fn as_table(found: &Info) -> Vec<(String, String)> {
    let header = &found.header;
    let sized = |bytes: u64| format!("{} ({})", thousands(bytes), format_size(bytes));
    let state = match state(found) {
        "open" => format!("open by {}", found.holder.as_deref().unwrap_or_default()),
        "clean" => "clean stop".to_owned(),
        _ => {
            "no clean stop: the next open recovers the store, or a process in another container has it open".to_owned()
        }
    };
    let emulated = if header.emulate_dax { ", treated as DAX" } else { "" };
    // The host of a matrix has no information about its devices.
    let capacity = if header.engine == "mkvs" { "capacity of its host" } else { "capacity" };
    let rows = [
        ("engine", format!("{} (format {})", header.engine, header.engine_format)),
        ("pool format", found.pool_format.to_string()),
        ("durability", format!("{}{emulated}", header.durability)),
        (capacity, sized(header.capacity)),
        ("regions", format!("{}, each at most {}", header.regions, format_size(header.region_bytes))),
        ("state", state),
        (
            "since the last open",
            if header.same_boot { "no restart of the machine" } else { "the machine restarted" }.into(),
        ),
        ("files", format!("{}, {}", found.files.len(), sized(bytes_of(&found.files)))),
    ];
    let files = found.files.iter().map(|file| (format!("  {}", file.name), sized(file.bytes)));
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(files).collect()
}

//! `doctor`.

use lodestore::medium::{Diagnosis, HeaderSummary, doctor};
use lodestore::stats::format_size;
use serde_json::{Map, Value, json};

use super::object;
use crate::advice::error_text;
use crate::args::DoctorArgs;
use crate::failure::Outcome;
use crate::out::Out;

/// Describes the medium under a path.
pub fn run(args: &DoctorArgs) -> Outcome {
    let found = doctor(&args.path)?;
    let mut out = Out::new();
    if args.json {
        out.json(as_json(&found))?;
    } else {
        out.table(&as_table(&found))?;
    }
    out.flush()
}

fn as_json(found: &Diagnosis) -> Map<String, Value> {
    let medium = &found.medium;
    let levels: Map<_, _> = medium
        .durability
        .iter()
        .map(|(level, promise)| {
            let (kept, how) = match promise {
                Ok(how) => (true, how),
                Err(why) => (false, why),
            };
            (level.to_string(), json!({"kept": kept, "how": how}))
        })
        .collect();
    object([
        ("probed", found.probed.to_string_lossy().into()),
        ("medium", medium.medium.to_string().into()),
        ("file_system", medium.file_system.as_str().into()),
        ("map_sync", medium.map_sync.into()),
        ("caches_persist", medium.caches_persist.into()),
        ("flush_instruction", medium.flush.to_string().into()),
        ("cmpxchg16b", found.cmpxchg16b.into()),
        ("free_bytes", medium.free_bytes.into()),
        ("total_bytes", medium.total_bytes.into()),
        ("huge_pages", medium.huge_pages.into()),
        ("shmem_enabled", medium.shmem_enabled.as_str().into()),
        ("thp_enabled", medium.thp_enabled.as_str().into()),
        ("durability", levels.into()),
        ("store", found.store.as_ref().map_or(Value::Null, store_json)),
    ])
}

fn store_json(store: &lodestore::Result<HeaderSummary>) -> Value {
    match store {
        Err(error) => json!({"error": error_text(error)}),
        Ok(store) => json!({
            "engine": store.engine,
            "engine_format": store.engine_format,
            "clean": store.clean,
            "same_boot": store.same_boot,
            "capacity": store.capacity,
            "region_bytes": store.region_bytes,
            "chunk_bytes": store.chunk_bytes,
            "regions": store.regions,
            "durability": store.durability.to_string(),
            "emulate_dax": store.emulate_dax,
        }),
    }
}

fn as_table(found: &Diagnosis) -> Vec<(String, String)> {
    let medium = &found.medium;
    let yes_or_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let caches = if medium.caches_persist {
        "persistent, so no flush is needed"
    } else {
        "not persistent, according to the kernel"
    };
    let mut rows = vec![
        ("probed", found.probed.display().to_string()),
        ("medium", format!("{} ({})", medium.medium, medium.file_system)),
        ("MAP_SYNC", yes_or_no(medium.map_sync)),
        ("processor caches", caches.to_owned()),
        ("flush instruction", medium.flush.to_string()),
        ("cmpxchg16b", yes_or_no(found.cmpxchg16b)),
        ("free space", format!("{} of {}", format_size(medium.free_bytes), format_size(medium.total_bytes))),
        (
            "huge pages",
            format!(
                "{} (shmem_enabled {}, enabled {})",
                yes_or_no(medium.huge_pages),
                medium.shmem_enabled,
                medium.thp_enabled
            ),
        ),
    ];
    match &found.store {
        None => rows.push(("store", "none at this path".to_owned())),
        Some(Err(error)) => rows.push(("store", error_text(error))),
        Some(Ok(store)) => rows.push((
            "store",
            format!(
                "engine {} (format {}), durability {}, {} of up to {}, last stop {}",
                store.engine,
                store.engine_format,
                store.durability,
                found.store_bytes.map_or_else(|| "unknown".into(), format_size),
                format_size(store.capacity),
                if store.clean { "clean" } else { "not clean, or the store is open now" }
            ),
        )),
    }
    let levels = medium.durability.iter().map(|(level, promise)| {
        let (Ok(text) | Err(text)) = promise;
        (format!("durability {level}"), text.clone())
    });
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(levels).collect()
}

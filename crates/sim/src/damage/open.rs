//! Breaches of the rule that engines are known to have. They are printed, and fail nothing.

use super::model::Breach;

/// Open: a root or directory word, an extent table or a region with its older content after a kill;
/// batch logs after a kill in mid-batch.
const HIKV: &[Breach] = &[Breach::OldValue, Breach::Absent, Breach::WalkTwice];
/// Open: as in hikv; a line of a table that a growth left, at the place of a line in use.
const NVHT: &[Breach] = &[Breach::OldValue, Breach::Absent, Breach::Operation];
/// Open: a stale page that holds a whole log segment, which only these small stores have; a page of
/// both copies of a line of the extent table.
const FLUIDKV: &[Breach] = &[Breach::OldValue, Breach::Absent];
const HASHKV: &[Breach] = &[Breach::OldValue, Breach::Absent];
/// Open: a stale pool of the host or of a device; a salvage that answers an older value.
const MKVS: &[Breach] = &[Breach::OldValue, Breach::Absent, Breach::SalvageOld];

/// Returns the breaches that an engine is known to have.
pub fn open_breaches(engine: &str) -> &'static [Breach] {
    match engine {
        "hikv" => HIKV,
        "nvht" => NVHT,
        "fluidkv" => FLUIDKV,
        "hashkv" => HASHKV,
        "mkvs" => MKVS,
        _ => &[],
    }
}

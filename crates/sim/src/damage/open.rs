//! Breaches of the rule that engines are known to have: docs/crash.md, "Known gaps". They are
//! printed, and fail nothing while there are few of them.

use super::fault::Kind;
use super::model::Breach;
use super::{Report, Signature};

/// A breach that an engine is known to have after some kinds of damage.
#[derive(Debug, Clone, Copy)]
struct KnownBreach {
    breach: Breach,
    kinds: &'static [Kind],
    /// Whether it is known after a clean stop too, and not only after a kill or crash.
    after_clean_stop: bool,
}

const fn known(breach: Breach, kinds: &'static [Kind]) -> KnownBreach {
    KnownBreach { breach, kinds, after_clean_stop: false }
}

/// Damage of a line with bytes that were stored before.
const OLDER: &[Kind] = &[Kind::StaleLine, Kind::StalePage, Kind::Misplaced, Kind::Mixed];
/// Damage of whole pages and files, and of several places.
const LARGE: &[Kind] = &[Kind::ZeroPage, Kind::Garbage, Kind::StalePage, Kind::StaleFile, Kind::Misplaced, Kind::Mixed];
/// As [`LARGE`], and small damage of the last record of a log, of which a crash took the end mark.
const ANY_OF_LOG: &[Kind] = &[
    Kind::Flips,
    Kind::ZeroLine,
    Kind::StaleLine,
    Kind::ZeroPage,
    Kind::Garbage,
    Kind::StalePage,
    Kind::StaleFile,
    Kind::Misplaced,
    Kind::Mixed,
];
/// Damage of whole files.
const FILES: &[Kind] = &[Kind::StaleFile, Kind::Truncated];

/// Open: an older root or directory in the operation that replaces it.
const HIKV: &[KnownBreach] = &[known(Breach::Absent, OLDER), known(Breach::OldValue, OLDER)];
/// Open: a line of a table that a growth left, at the place of a line in use.
const NVHT: &[KnownBreach] =
    &[known(Breach::Absent, OLDER), known(Breach::OldValue, OLDER), known(Breach::Operation, OLDER)];
/// Open: a page that holds several structures, which only these small stores have.
const FLUIDKV: &[KnownBreach] = &[known(Breach::OldValue, ANY_OF_LOG), known(Breach::Absent, ANY_OF_LOG)];
/// Open: as in fluidkv; an older pool next to the newer values file; a values file that was cut.
const HASHKV: &[KnownBreach] = &[
    known(Breach::OldValue, ANY_OF_LOG),
    known(Breach::Absent, ANY_OF_LOG),
    KnownBreach { breach: Breach::Absent, kinds: FILES, after_clean_stop: true },
    KnownBreach { breach: Breach::OldValue, kinds: FILES, after_clean_stop: true },
];
/// Open: wrong counts; a stale pool of the host or of a device; a salvage that answers an older
/// value.
const MKVS: &[KnownBreach] = &[
    known(Breach::OldValue, LARGE),
    known(Breach::Absent, LARGE),
    known(Breach::Operation, LARGE),
    KnownBreach { breach: Breach::Count, kinds: &Kind::ALL, after_clean_stop: true },
    KnownBreach { breach: Breach::OldValue, kinds: FILES, after_clean_stop: true },
    KnownBreach { breach: Breach::Absent, kinds: FILES, after_clean_stop: true },
    KnownBreach { breach: Breach::SalvageOld, kinds: &Kind::ALL, after_clean_stop: true },
];

/// Returns the known breaches of an engine.
fn known_breaches(engine: &str) -> &'static [KnownBreach] {
    match engine {
        "hikv" => HIKV,
        "nvht" => NVHT,
        "fluidkv" => FLUIDKV,
        "hashkv" => HASHKV,
        "mkvs" => MKVS,
        _ => &[],
    }
}

/// Most violations of 10,000 images that may be known breaches.
fn violations_per_10_000_max(engine: &str) -> u64 {
    match engine {
        "hikv" | "nvht" => 1,
        "fluidkv" | "hashkv" => 30,
        _ => 40,
    }
}

/// Whether an engine is known to break the rule in this way.
pub fn is_known(engine: &str, (breach, _, kind, end): &Signature) -> bool {
    let matches = |known: &KnownBreach| {
        known.breach == *breach && known.kinds.contains(kind) && (known.after_clean_stop || *end != "clean stop")
    };
    known_breaches(engine).iter().any(matches)
}

/// Whether there are no more violations than the known breaches explain. Few images may show some
/// by chance.
pub fn are_few(engine: &str, report: &Report) -> bool {
    report.violations() <= 3 + report.images * violations_per_10_000_max(engine) / 10_000
}

//! Breaches of the rule that engines are known to have: docs/crash.md, "Known gaps". They are
//! printed, and fail nothing while there are few of them.

use super::fault::Kind;
use super::model::Breach;
use super::{Report, Signature};

/// After which ends of a history a breach is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// A power failure.
    Crash,
    /// A kill or a power failure.
    Unclean,
    /// Any end.
    All,
}

impl Ends {
    fn contain(self, end: &str) -> bool {
        match self {
            Self::Crash => end == "crash",
            Self::Unclean => end != "clean stop",
            Self::All => true,
        }
    }
}

/// A breach that an engine is known to have after some kinds of damage.
#[derive(Debug, Clone, Copy)]
struct KnownBreach {
    breach: Breach,
    kinds: &'static [Kind],
    ends: Ends,
}

const fn known(breach: Breach, kinds: &'static [Kind], ends: Ends) -> KnownBreach {
    KnownBreach { breach, kinds, ends }
}

/// Damage of a line with bytes that were stored before.
const OLDER: &[Kind] = &[Kind::StaleLine, Kind::StalePage, Kind::Misplaced, Kind::Mixed];
/// Damage of several places.
const SEVERAL: &[Kind] = &[Kind::Flips, Kind::Mixed];
/// Damage of pages, and of several places.
const PAGES: &[Kind] = &[Kind::ZeroPage, Kind::Garbage, Kind::StalePage, Kind::Misplaced, Kind::Mixed];
/// Damage of lines, pages and files, and of several places.
const LARGE: &[Kind] = &[
    Kind::ZeroLine,
    Kind::StaleLine,
    Kind::ZeroPage,
    Kind::Garbage,
    Kind::StalePage,
    Kind::StaleFile,
    Kind::Misplaced,
    Kind::Mixed,
];
/// A file with older content.
const FILE: &[Kind] = &[Kind::StaleFile];

/// Open: an older root or directory in the operation that replaces it. One region file of the same
/// session.
const HIKV: &[KnownBreach] = &[
    known(Breach::Absent, OLDER, Ends::Unclean),
    known(Breach::OldValue, OLDER, Ends::Unclean),
    known(Breach::Operation, OLDER, Ends::Unclean),
    known(Breach::OldValue, FILE, Ends::Unclean),
    known(Breach::Absent, FILE, Ends::Unclean),
];
/// Open: a line of a table that a growth left, at the place of a line in use. One region file of
/// the same session.
const NVHT: &[KnownBreach] = HIKV;
/// Open: the last page of a log, of which a power failure took the end mark and the end hint.
/// Damage of the last record, its mark and its hint at once. One region file of the same session.
/// The same of hashkv.
const FLUIDKV: &[KnownBreach] = &[
    known(Breach::OldValue, PAGES, Ends::Crash),
    known(Breach::Absent, PAGES, Ends::Crash),
    known(Breach::OldValue, SEVERAL, Ends::Unclean),
    known(Breach::Absent, SEVERAL, Ends::Unclean),
    known(Breach::OldValue, FILE, Ends::Unclean),
    known(Breach::Absent, FILE, Ends::Unclean),
];
/// Open: a stale pool of the host or of a log, or of a device of the same session; a group whose
/// coming a crash cut short.
const MKVS: &[KnownBreach] = &[
    known(Breach::OldValue, LARGE, Ends::Unclean),
    known(Breach::Absent, LARGE, Ends::Unclean),
    known(Breach::Operation, LARGE, Ends::Unclean),
    known(Breach::Count, LARGE, Ends::Unclean),
    known(Breach::OldValue, FILE, Ends::All),
    known(Breach::Absent, FILE, Ends::All),
    known(Breach::SalvageOld, &Kind::ALL, Ends::All),
];

/// Returns the known breaches of an engine.
fn known_breaches(engine: &str) -> &'static [KnownBreach] {
    match engine {
        "hikv" => HIKV,
        "nvht" => NVHT,
        "fluidkv" | "hashkv" => FLUIDKV,
        "mkvs" => MKVS,
        _ => &[],
    }
}

/// Most violations of 10,000 images that may be known breaches.
fn violations_per_10_000_max(engine: &str) -> u64 {
    match engine {
        "hikv" | "nvht" => 5,
        "fluidkv" | "hashkv" => 4,
        _ => 60,
    }
}

/// Whether an engine is known to break the rule in this way.
pub fn is_known(engine: &str, (breach, _, kind, end): &Signature) -> bool {
    let matches =
        |known: &KnownBreach| known.breach == *breach && known.kinds.contains(kind) && known.ends.contain(end);
    known_breaches(engine).iter().any(matches)
}

/// Whether there are no more violations than the known breaches explain. Few images may show some
/// by chance.
pub fn are_few(engine: &str, report: &Report) -> bool {
    report.violations() <= 3 + report.images * violations_per_10_000_max(engine) / 10_000
}

//! Comparisons: tables of stores whose acknowledged writes survive the same, and who is ahead in each line.

use std::cmp::Ordering;

use super::list::Measure;
use crate::report::{ns_text, rate_text};
use crate::row::Row;
use crate::store;

impl Measure {
    /// What it is, as a heading.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Rate => "Operations a second",
            Self::P99 => "99th percentile of the latency, from when an operation was due",
            Self::P999 => "99.9th percentile of the latency, from when an operation was due",
            Self::Dram => "Growth of the process's anonymous memory, bytes a record",
            Self::Medium => "Bytes on the medium a record",
            Self::Written => "Bytes written for each byte put",
            Self::Open => "Until the store is open",
            Self::Recovered => "Until recovery is done",
        }
    }

    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rate => "ops/s",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Dram => "RSS B/key",
            Self::Medium => "medium B/key",
            Self::Written => "write x",
            Self::Open => "open",
            Self::Recovered => "recovered",
        }
    }

    /// This figure of a row; none where it has no meaning there.
    pub(super) fn of(self, row: &Row) -> Option<f64> {
        let timed = row.open_loop.is_some();
        let stays = row.reopen.is_none();
        match self {
            Self::Rate => Some(row.ops_per_s).filter(|rate| stays && !timed && *rate > 0.0),
            Self::P99 => timed.then_some(row.p99_ns as f64),
            Self::P999 => timed.then_some(row.p999_ns as f64),
            // Not by their own accounts, of which each counts other things.
            Self::Dram => stays.then_some(row.rss_anon_bytes_per_key),
            // Who keeps nothing has not written it yet.
            Self::Medium => {
                Some(row.medium_bytes_per_key).filter(|bytes| stays && *bytes > 0.0 && row.durability != "none")
            }
            Self::Written => row.write_amplification,
            Self::Open => row.reopen.as_ref().map(|found| found.open_s * 1e9),
            Self::Recovered => row.reopen.as_ref().map(|found| found.recovered_s * 1e9),
        }
    }

    /// A figure of it, short.
    pub(super) fn text(self, figure: f64) -> String {
        match self {
            Self::Rate if figure < 1000.0 => format!("{figure:.0}"),
            Self::Rate => rate_text(figure),
            Self::P99 | Self::P999 | Self::Open | Self::Recovered => ns_text(figure as u64),
            Self::Dram | Self::Medium => format!("{figure:.1}"),
            Self::Written => format!("{figure:.2}"),
        }
    }

    /// How many times better one figure is than another.
    fn times(self, ours: f64, theirs: f64) -> f64 {
        let (more, less) = if self == Self::Rate { (ours, theirs) } else { (theirs, ours) };
        // Nothing beside nothing is as good.
        if more == less { 1.0 } else { more / less }
    }
}

/// Whether a store is one of this workspace, whatever is set of it.
fn is_ours(store: &str) -> bool {
    lodestore::engines().iter().any(|engine| engine.name == store::base(store))
}

/// How much a durability is: one that survives more is greater.
fn strength(level: &str) -> u8 {
    match level {
        "none" => 0,
        "process" => 1,
        "power" => 3,
        _ => 2,
    }
}

/// What a row is of: its workload, under a sweep the value, and in an open loop the rate that was asked, since the same may have run in a closed one before.
pub(super) fn what(row: &Row) -> String {
    let swept = row.sweep.as_ref().map(|swept| format!(" {}={}", swept.name, swept.value));
    let asked = row.open_loop.as_ref().map(|found| format!(" at {}/s", found.asked_per_s));
    format!("{}{}{}", row.workload, swept.unwrap_or_default(), asked.unwrap_or_default())
}

/// Stores of one durability beside one another.
#[derive(Debug)]
pub(super) struct Level<'a> {
    /// What an acknowledged write survives there.
    pub(super) name: &'a str,
    /// The stores, ours first.
    pub(super) stores: Vec<&'a str>,
    /// A line for each workload, and of it the row of each store that ran it.
    pub(super) lines: Vec<(String, Vec<Option<&'a Row>>)>,
}

impl<'a> Level<'a> {
    /// Those of these rows, what survives most first.
    pub(super) fn all(rows: &'a [Row]) -> Vec<Self> {
        let measured = || rows.iter().filter(|row| row.failed.is_none() && !row.is_step());
        let mut names = distinct(measured().map(|row| row.durability.as_str()));
        names.sort_by_key(|name| std::cmp::Reverse(strength(name)));
        let of = |name: &'a str| {
            let rows: Vec<&Row> = measured().filter(|row| row.durability == name).collect();
            let mut stores = distinct(rows.iter().map(|row| row.store.as_str()));
            stores.sort_by_key(|store| !is_ours(store));
            let lines = distinct(rows.iter().map(|row| what(row))).into_iter().map(|line| {
                let cell = |store: &&str| rows.iter().copied().find(|row| row.store == **store && what(row) == line);
                let cells = stores.iter().map(cell).collect();
                (line, cells)
            });
            Self { name, lines: lines.collect(), stores: stores.clone() }
        };
        names.into_iter().map(of).collect()
    }

    /// The best of ours, or of the peers, in a line of this name.
    fn best(&self, measure: Measure, line: &str, ours: bool) -> Option<Best<'a>> {
        let cells = self.lines.iter().find(|(name, _)| name == line)?.1.iter().flatten();
        let told = cells.filter(|row| is_ours(&row.store) == ours).filter_map(|row| Some((*row, measure.of(row)?)));
        let better = |one: &(&Row, f64), other: &(&Row, f64)| match measure {
            Measure::Rate => one.1.total_cmp(&other.1),
            _ => other.1.total_cmp(&one.1),
        };
        // Of equals the one that stands first.
        told.reduce(|best, next| if better(&next, &best) == Ordering::Greater { next } else { best })
            .map(|(row, figure)| Best { row, figure })
    }
}

/// Each once, in the order in which it comes first.
pub(super) fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut seen, one| {
        if !seen.contains(&one) {
            seen.push(one);
        }
        seen
    })
}

/// The best store of a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Best<'a> {
    pub(super) row: &'a Row,
    pub(super) figure: f64,
}

/// Who is ahead in one line by one measure: our best engine beside the best peer of an equal durability.
#[derive(Debug)]
pub(super) struct Verdict<'a> {
    /// What writes of the peer survive.
    pub(super) level: &'a str,
    pub(super) line: String,
    pub(super) measure: Measure,
    pub(super) ours: Best<'a>,
    pub(super) peer: Option<Best<'a>>,
    /// How many times better ours is; the median over the rounds where the rows say it.
    pub(super) times: Option<f64>,
}

impl Verdict<'_> {
    /// Whether the peer is ahead.
    pub(super) fn lost(&self) -> bool {
        self.times.is_some_and(|times| times < 1.0)
    }

    /// Whether ours survives more than the peer.
    pub(super) fn uneven(&self) -> bool {
        self.level != self.ours.row.durability
    }

    /// Whether the rates of the rounds overlap, so that another run may end otherwise; not of a single round.
    pub(super) fn close(&self) -> bool {
        let Some(peer) = self.peer.filter(|_| self.measure == Measure::Rate && self.ours.row.rounds > 1) else {
            return false;
        };
        let (ours, theirs) = (self.ours.row, peer.row);
        ours.ops_per_s_min <= theirs.ops_per_s_max && theirs.ops_per_s_min <= ours.ops_per_s_max
    }
}

/// The verdicts of a page, by measure. Peers of a level at which none of ours ran stand beside our best of those that survive more.
pub(super) fn verdicts<'a>(levels: &[Level<'a>], measures: &[Measure]) -> Vec<Verdict<'a>> {
    let mut all = Vec::new();
    for measure in measures {
        for level in levels {
            all.extend(level.lines.iter().filter_map(|(line, _)| verdict(levels, level, line, *measure)));
        }
    }
    all
}

fn verdict<'a>(levels: &[Level<'a>], level: &Level<'a>, line: &str, measure: Measure) -> Option<Verdict<'a>> {
    let own = level.best(measure, line, true);
    // The levels stand in order: the nearest above is the last of those before.
    let above = || {
        let stronger = levels.iter().rev().filter(|other| strength(other.name) > strength(level.name));
        stronger.filter_map(|other| other.best(measure, line, true)).next()
    };
    let ours = own.or_else(above)?;
    let peer = level.best(measure, line, false);
    let times = peer.map(|peer| {
        let told = ours.row.ratio_to.get(&peer.row.store).filter(|_| measure == Measure::Rate);
        told.copied().unwrap_or_else(|| measure.times(ours.figure, peer.figure))
    });
    Some(Verdict { level: level.name, line: line.into(), measure, ours, peer, times })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::OpenLoop;
    use crate::suite::sample::{at, row};

    #[test]
    fn only_stores_of_an_equal_durability_share_a_table() {
        let rows = [
            row("rocksdb", "get", 5.0),
            row("hikv", "get", 9.0),
            at("none", row("hashmap", "get", 20.0)),
            at("power", row("lmdb-sync", "get", 4.0)),
            row("hikv", "load", 3.0),
        ];
        let levels = Level::all(&rows);
        let told: Vec<_> = levels.iter().map(|level| (level.name, level.stores.clone())).collect();
        assert_eq!(
            told,
            [("power", vec!["lmdb-sync"]), ("process", vec!["hikv", "rocksdb"]), ("none", vec!["hashmap"])]
        );
        let (line, cells) = &levels[1].lines[1];
        assert_eq!((line.as_str(), cells[0].map(|row| row.ops_per_s), cells[1].is_none()), ("load", Some(3.0), true));
    }

    #[test]
    fn a_line_is_lost_where_the_best_peer_is_ahead_of_our_best() {
        let rows = [
            row("hikv", "get", 9.0),
            row("nvht:size=1", "get", 12.0),
            row("rocksdb", "get", 5.0),
            row("lmdb", "get", 16.0),
            row("hikv", "load", 9.0),
            row("rocksdb", "load", 5.0),
        ];
        let levels = Level::all(&rows);
        let found = verdicts(&levels, &[Measure::Rate]);
        let told: Vec<_> = found
            .iter()
            .map(|it| {
                (it.line.as_str(), it.ours.row.store.as_str(), it.peer.map(|peer| peer.row.store.as_str()), it.lost())
            })
            .collect();
        assert_eq!(told, [("get", "nvht:size=1", Some("lmdb"), true), ("load", "hikv", Some("rocksdb"), false)]);
        assert_eq!(found[0].times, Some(0.75));
    }

    #[test]
    fn the_ratio_is_the_median_over_the_rounds_where_the_rows_have_it() {
        let mut ours = row("hikv", "get", 9.0);
        ours.ratio_to.insert("rocksdb".into(), 0.9);
        let rows = [ours, row("rocksdb", "get", 5.0)];
        let levels = Level::all(&rows);
        let found = verdicts(&levels, &[Measure::Rate]);
        assert!(found[0].lost() && found[0].times == Some(0.9));
    }

    #[test]
    fn of_bytes_and_times_less_is_better() {
        let sized = |store: &str, dram: f64| Row { rss_anon_bytes_per_key: dram, ..row(store, "load", 1.0) };
        let rows = [sized("hikv", 20.0), sized("nvht", 2.0), sized("rocksdb", 10.0), sized("lmdb", 1.0)];
        let levels = Level::all(&rows);
        let found = verdicts(&levels, &[Measure::Dram]);
        assert_eq!((found[0].ours.row.store.as_str(), found[0].times), ("nvht", Some(0.5)));
        assert!((Measure::Dram.times(0.0, 0.0) - 1.0).abs() < 1e-9 && Measure::Dram.times(0.0, 3.0) > 1e9);
    }

    #[test]
    fn who_survives_less_stands_beside_our_best_that_survives_more() {
        let rows =
            [row("hikv", "get", 9.0), at("none", row("hashmap", "get", 18.0)), at("none", row("hashmap", "c", 1.0))];
        let levels = Level::all(&rows);
        let found = verdicts(&levels, &[Measure::Rate]);
        assert_eq!(found.len(), 2, "what none of ours ran is in no verdict");
        assert!(found[0].peer.is_none() && !found[0].lost() && !found[0].uneven());
        assert!(found[1].uneven() && found[1].lost() && found[1].level == "none" && found[1].times == Some(0.5));
    }

    #[test]
    fn an_open_loop_has_lines_of_its_own_beside_the_closed_one_before_it() {
        let asked = |store: &str, p99_ns: u64| {
            let loops = OpenLoop {
                asked_per_s: 500,
                reached_per_s: 500.0,
                arrivals: "even".into(),
                kept_up: true,
                behind_s: 0.0,
            };
            Row { open_loop: Some(loops), p99_ns, ..row(store, "a", 500.0) }
        };
        let rows = [row("hikv", "a", 9000.0), row("lmdb", "a", 1000.0), asked("hikv", 40), asked("lmdb", 20)];
        let levels = Level::all(&rows);
        let found = verdicts(&levels, &[Measure::P99]);
        assert_eq!((found.len(), found[0].line.as_str(), found[0].times), (1, "a at 500/s", Some(0.5)));
    }

    #[test]
    fn a_close_line_is_one_whose_rounds_overlap() {
        let ranged = |store: &str, least: f64, most: f64| Row {
            ops_per_s_min: least,
            ops_per_s_max: most,
            rounds: 3,
            ..row(store, "get", f64::midpoint(least, most))
        };
        let close = |rows: &[Row]| verdicts(&Level::all(rows), &[Measure::Rate])[0].close();
        assert!(close(&[ranged("hikv", 5.0, 9.0), ranged("lmdb", 8.0, 10.0)]));
        assert!(!close(&[ranged("hikv", 5.0, 7.0), ranged("lmdb", 8.0, 10.0)]));
        assert!(!close(&[Row { rounds: 1, ..ranged("hikv", 5.0, 9.0) }, ranged("lmdb", 8.0, 10.0)]));
    }
}

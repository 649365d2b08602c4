//! Each engine of this workspace compared with the best peer of an equal durability, in each line
//! and by each measure. No engine of a line is selected after the fact: losses are reported as well
//! as wins.

use super::compare::{Best, Level, Line, best_peer, distinct, is_ours, keeps_no_order, strength, what};
use crate::metric::Measure;
use crate::row::Row;

/// The workloads that scan records in key order.
const SCANS: [&str; 2] = ["scan", "e"];

/// The result of an engine in a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Standing {
    /// The engine was measured.
    Ran(Ratio),
    /// The engine did not finish what the peer did, and why.
    Failed(String),
    /// The engine keeps no order, and the line scans.
    Cannot,
    /// The engine was not asked, or the measure does not apply to it.
    NotAsked,
}

/// An engine's advantage over the best peer, as a factor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ratio {
    /// For rates, the median of the ratios of the rounds, if the rows have them; else the ratio of
    /// the medians.
    pub(super) times: f64,
    of_medians: f64,
    /// Whether the ranges of rounds of both overlap.
    overlap: bool,
    /// The durability of the engine, if it differs from the peer's.
    pub(super) at: Option<String>,
}

impl Ratio {
    fn of(measure: Measure, ours: &Row, figure: f64, peer: Best<'_>, level: &str) -> Self {
        let of_medians = measure.times(figure, peer.figure);
        let told = ours.ratio_to.get(&peer.row.store).filter(|_| measure == Measure::Rate);
        let several = measure == Measure::Rate && ours.rounds > 1 && peer.row.rounds > 1;
        let cross = ours.ops_per_s_min <= peer.row.ops_per_s_max && peer.row.ops_per_s_min <= ours.ops_per_s_max;
        let at = (ours.durability != level).then(|| ours.durability.clone());
        Self { times: told.copied().unwrap_or(of_medians), of_medians, overlap: several && cross, at }
    }

    /// Returns whether the median of the rounds' ratios contradicts the ratio of the medians, so
    /// that neither is ahead.
    pub(super) fn undecided(&self) -> bool {
        (self.times < 1.0) != (self.of_medians < 1.0)
    }

    /// Returns whether the peer is ahead.
    pub(super) fn lost(&self) -> bool {
        self.times < 1.0 && !self.undecided()
    }

    /// Returns whether the result is decided, but another run may end otherwise.
    pub(super) fn close(&self) -> bool {
        self.overlap && !self.undecided()
    }
}

impl Standing {
    /// Returns whether the peer is ahead, or alone.
    pub(super) fn lost(&self) -> bool {
        match self {
            Self::Ran(ratio) => ratio.lost(),
            Self::Failed(_) => true,
            Self::Cannot | Self::NotAsked => false,
        }
    }
}

/// A line by a measure.
#[derive(Debug)]
pub(super) struct Bout<'a> {
    /// The durability of the peer's writes.
    pub(super) level: &'a str,
    pub(super) line: String,
    pub(super) measure: Measure,
    pub(super) peer: Best<'a>,
    /// The results of the engines, in the order of [`Contest::engines`].
    pub(super) ours: Vec<Standing>,
}

/// All lines of a page that a peer has.
#[derive(Debug)]
pub(super) struct Contest<'a> {
    /// The engines, with the settings of the run.
    pub(super) engines: Vec<&'a str>,
    /// Comparisons at an equal durability.
    pub(super) bouts: Vec<Bout<'a>>,
    /// Comparisons with peers of a weaker durability than any engine here. They count no losses.
    pub(super) uneven: Vec<Bout<'a>>,
}

impl<'a> Contest<'a> {
    pub(super) fn of(rows: &'a [Row], levels: &[Level<'a>], measures: &[Measure]) -> Self {
        let engines = distinct(rows.iter().map(|row| row.store.as_str()).filter(|store| is_ours(store)));
        let mut all = Self { engines, bouts: Vec::new(), uneven: Vec::new() };
        for measure in measures.iter().filter(|measure| measure.is_compared()) {
            for (place, level) in levels.iter().enumerate() {
                let asked: Vec<bool> = all.engines.iter().map(|engine| was_asked(rows, level, engine)).collect();
                for line in &level.lines {
                    let Some(peer) = best_peer(line, *measure) else { continue };
                    let bout = |ours| Bout { level: level.name, line: line.0.clone(), measure: *measure, peer, ours };
                    let of = |(engine, asked): (&&str, &bool)| match asked {
                        true => standing(rows, level, line, engine, *measure, peer),
                        false => Standing::NotAsked,
                    };
                    let ours: Vec<_> = all.engines.iter().zip(&asked).map(of).collect();
                    if ours.iter().any(|ours| *ours != Standing::NotAsked) {
                        all.bouts.push(bout(ours));
                    } else {
                        let of = |engine: &&str| beside(&levels[..place], level, line, engine, *measure, peer);
                        all.uneven.push(bout(all.engines.iter().map(of).collect()));
                    }
                }
            }
        }
        all.uneven.retain(|bout| bout.ours.iter().any(|ours| *ours != Standing::NotAsked));
        all
    }

    /// Returns the counts of the engine at this index over all lines.
    pub(super) fn tally(&self, place: usize) -> Tally {
        let mut tally = Tally::default();
        for bout in &self.bouts {
            match &bout.ours[place] {
                Standing::NotAsked => {}
                Standing::Cannot => tally.cannot += 1,
                ours => {
                    tally.lines += 1;
                    tally.lost += usize::from(ours.lost());
                    tally.undecided += usize::from(matches!(ours, Standing::Ran(ratio) if ratio.undecided()));
                }
            }
        }
        tally
    }
}

/// Line counts of an engine: the lines shared with a peer, and of these the lost and the undecided;
/// and the lines that it cannot run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) lines: usize,
    pub(super) lost: usize,
    pub(super) undecided: usize,
    pub(super) cannot: usize,
}

impl Tally {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            lines: self.lines + other.lines,
            lost: self.lost + other.lost,
            undecided: self.undecided + other.undecided,
            cannot: self.cannot + other.cannot,
        }
    }
}

/// Returns the rows of an engine that failed.
fn failures<'a>(rows: &'a [Row], engine: &str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.failed.is_some() && row.store == engine)
}

/// Returns the rows of an engine that did not fail.
fn measured<'a>(rows: &'a [Row], engine: &str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.failed.is_none() && row.store == engine)
}

/// Returns whether an engine was to run at a level: it has rows there, or failed before it had
/// some.
fn was_asked(rows: &[Row], level: &Level<'_>, engine: &str) -> bool {
    let failed_there = |row: &Row| {
        let named = [Some(row.durability.as_str()), row.load_durability.as_deref()].contains(&Some(level.name));
        // An engine that failed at its creation has not reported its durability.
        named || (row.durability.is_empty() && level.name != "none")
    };
    level.stores.contains(&engine) || failures(rows, engine).any(failed_there)
}

/// Returns an engine's result against a peer of its own durability.
fn standing(
    rows: &[Row],
    level: &Level<'_>,
    line: &Line<'_>,
    engine: &str,
    measure: Measure,
    peer: Best<'_>,
) -> Standing {
    let failed = failures(rows, engine).find(|row| row.sweep == peer.row.sweep);
    let why = failed.and_then(|row| row.failed.clone());
    match (level.row(&line.0, engine), why) {
        // The engine failed in a later round.
        (Some(row), Some(why)) if row.rounds < peer.row.rounds => Standing::Failed(why),
        (Some(row), _) => measure
            .of(row)
            .map_or(Standing::NotAsked, |figure| Standing::Ran(Ratio::of(measure, row, figure, peer, level.name))),
        (None, _) if keeps_no_order(engine) && scans(&peer.row.workload) => Standing::Cannot,
        // The engine ran at another level.
        (None, _) if measured(rows, engine).any(|row| what(row) == line.0) => Standing::NotAsked,
        (None, Some(why)) => Standing::Failed(why),
        (None, None) => Standing::Failed("it has no row, and nothing says why".into()),
    }
}

/// Returns the result against a peer of an engine with a stronger durability: at the nearest level
/// above that has the line.
fn beside(
    above: &[Level<'_>],
    level: &Level<'_>,
    line: &Line<'_>,
    engine: &str,
    measure: Measure,
    peer: Best<'_>,
) -> Standing {
    let stronger = above.iter().rev().filter(|other| strength(other.name) > strength(level.name));
    let found = stronger.filter_map(|other| other.row(&line.0, engine)).find_map(|row| Some((row, measure.of(row)?)));
    found.map_or(Standing::NotAsked, |(row, figure)| Standing::Ran(Ratio::of(measure, row, figure, peer, level.name)))
}

/// Returns whether a row's workload, in any turn, scans.
fn scans(workload: &str) -> bool {
    SCANS.contains(&workload.split('-').next().unwrap_or(workload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::sample::{at, failed, row};
    use crate::row::OpenLoop;

    fn contest<'a>(rows: &'a [Row], levels: &[Level<'a>], measure: Measure) -> Contest<'a> {
        Contest::of(rows, levels, &[measure])
    }

    /// Returns the engines' results in each line, in short form.
    fn told(rows: &[Row], measure: Measure) -> Vec<String> {
        let levels = Level::all(rows);
        let found = contest(rows, &levels, measure);
        let short = |ours: &Standing| match ours {
            Standing::Ran(ratio) if ratio.undecided() => "?".to_string(),
            Standing::Ran(ratio) => format!("{:.2}", ratio.times),
            Standing::Failed(why) => why.clone(),
            Standing::Cannot => "cannot".into(),
            Standing::NotAsked => "-".into(),
        };
        let line = |bout: &Bout<'_>| {
            let ours: Vec<_> =
                found.engines.iter().zip(&bout.ours).map(|(it, ours)| format!("{it} {}", short(ours))).collect();
            format!("{} {} beside {}: {}", bout.line, bout.level, bout.peer.row.store, ours.join(", "))
        };
        found.bouts.iter().map(line).chain(found.uneven.iter().map(|bout| format!("uneven {}", line(bout)))).collect()
    }

    #[test]
    fn each_of_our_engines_stands_beside_the_best_peer_and_not_the_best_of_them_alone() {
        let rows = [
            row("hikv", "get", 9.0),
            row("nvht:size=1", "get", 12.0),
            row("rocksdb", "get", 5.0),
            row("lmdb", "get", 10.0),
            row("hikv", "load", 9.0),
            row("nvht:size=1", "load", 6.0),
            row("rocksdb", "load", 3.0),
        ];
        let lines = [
            "get process beside lmdb: hikv 0.90, nvht:size=1 1.20",
            "load process beside rocksdb: hikv 3.00, nvht:size=1 2.00",
        ];
        assert_eq!(told(&rows, Measure::Rate), lines);
        let levels = Level::all(&rows);
        let found = contest(&rows, &levels, Measure::Rate);
        assert_eq!(found.tally(0), Tally { lines: 2, lost: 1, ..Tally::default() });
        assert_eq!(found.tally(1).and(found.tally(0)), Tally { lines: 4, lost: 1, ..Tally::default() });
    }

    #[test]
    fn nobody_wins_or_loses_by_what_has_two_yardsticks() {
        let written = |store: &str, times: f64| Row { write_amplification: Some(times), ..row(store, "load", 1.0) };
        let rows = [written("hikv", 1.5), written("rocksdb", 3.0)];
        assert_eq!(told(&rows, Measure::Written), [""; 0]);
        assert_eq!(told(&rows, Measure::Rate), ["load process beside rocksdb: hikv 1.00"]);
    }

    #[test]
    fn a_line_whose_two_ratios_fall_on_different_sides_of_one_is_undecided_and_not_lost() {
        let mut ours = row("hikv", "get", 9.0);
        ours.ratio_to.insert("rocksdb".into(), 0.9);
        let rows = [ours.clone(), row("rocksdb", "get", 5.0)];
        assert_eq!(told(&rows, Measure::Rate), ["get process beside rocksdb: hikv ?"]);
        let levels = Level::all(&rows);
        assert_eq!(
            contest(&rows, &levels, Measure::Rate).tally(0),
            Tally { lines: 1, undecided: 1, ..Tally::default() }
        );
        let rows = [ours, row("rocksdb", "get", 12.0)];
        assert_eq!(told(&rows, Measure::Rate), ["get process beside rocksdb: hikv 0.90"], "the median of the rounds");
        assert_eq!(told(&rows, Measure::Dram), ["get process beside rocksdb: hikv 1.00"], "it is of rates");
    }

    #[test]
    fn what_an_engine_does_not_finish_is_lost_with_its_reason() {
        let rows = [
            row("hikv", "load", 9.0),
            row("fluidkv", "load", 9.0),
            row("lmdb", "load", 3.0),
            row("hikv", "get", 9.0),
            row("lmdb", "get", 3.0),
            failed("fluidkv", "full"),
            Row { durability: String::new(), ..failed("mkvs", "no room") },
        ];
        let lines = [
            "load process beside lmdb: hikv 3.00, fluidkv 3.00, mkvs no room",
            "get process beside lmdb: hikv 3.00, fluidkv full, mkvs no room",
        ];
        assert_eq!(told(&rows, Measure::Rate), lines);
        let levels = Level::all(&rows);
        let found = contest(&rows, &levels, Measure::Rate);
        assert_eq!((found.tally(1).lost, found.tally(2).lost), (1, 2));
        let lines = [
            "load process beside lmdb: hikv 3.00, fluidkv 3.00",
            "get process beside lmdb: hikv 3.00, fluidkv it has no row, and nothing says why",
        ];
        assert_eq!(told(&rows[..5], Measure::Rate), lines);
    }

    #[test]
    fn a_failure_in_one_round_of_several_is_one() {
        let rows = [Row { rounds: 2, ..row("hikv", "get", 9.0) }, row("lmdb", "get", 3.0), failed("hikv", "full")];
        assert_eq!(told(&rows, Measure::Rate), ["get process beside lmdb: hikv full"]);
        assert_eq!(told(&rows[..2], Measure::Rate), ["get process beside lmdb: hikv 3.00"]);
        let whole = [row("hikv", "get", 9.0), row("lmdb", "get", 3.0), failed("hikv", "full")];
        assert_eq!(told(&whole, Measure::Rate), ["get process beside lmdb: hikv 3.00"], "it failed at another");
    }

    #[test]
    fn a_run_of_keys_is_what_an_engine_without_order_cannot_do_and_no_failure() {
        let rows = [
            row("nvht", "get", 9.0),
            row("hikv", "scan-2", 9.0),
            row("lmdb", "get", 3.0),
            row("lmdb", "scan-2", 3.0),
            failed("nvht", "full"),
        ];
        let lines = [
            "get process beside lmdb: nvht 3.00, hikv it has no row, and nothing says why",
            "scan-2 process beside lmdb: nvht cannot, hikv 3.00",
        ];
        assert_eq!(told(&rows, Measure::Rate), lines);
        let levels = Level::all(&rows);
        assert_eq!(contest(&rows, &levels, Measure::Rate).tally(0), Tally { lines: 1, cannot: 1, ..Tally::default() });
    }

    #[test]
    fn who_survives_less_stands_beside_ours_that_survive_more_and_counts_for_nothing() {
        let rows = [
            row("hikv", "get", 9.0),
            row("nvht", "get", 36.0),
            at("none", row("hashmap", "get", 18.0)),
            at("none", row("hashmap", "c", 1.0)),
        ];
        let lines = ["uneven get none beside hashmap: hikv 0.50, nvht 2.00"];
        assert_eq!(told(&rows, Measure::Rate), lines, "what none of ours ran is in no line");
        let levels = Level::all(&rows);
        let found = contest(&rows, &levels, Measure::Rate);
        assert_eq!(found.tally(0), Tally::default());
        assert!(matches!(&found.uneven[0].ours[0], Standing::Ran(ratio) if ratio.at.as_deref() == Some("process")));
        // The engine's load is at the level of a peer that has other rows there too.
        let rows = [
            row("hikv", "load", 9.0),
            row("redb", "load", 3.0),
            at("power", row("hikv", "get", 9.0)),
            row("redb", "get", 3.0),
        ];
        assert_eq!(
            told(&rows, Measure::Rate),
            ["load process beside redb: hikv 3.00", "uneven get process beside redb: hikv 3.00"]
        );
    }

    #[test]
    fn an_open_loop_has_lines_of_its_own_beside_the_closed_one_before_it() {
        let asked = |store: &str, p99_ns: u64| {
            let loops = OpenLoop { asked_per_s: 500, kept_up: true };
            Row { open_loop: Some(loops), p99_ns, ..row(store, "a", 500.0) }
        };
        let rows = [row("hikv", "a", 9000.0), row("lmdb", "a", 1000.0), asked("hikv", 40), asked("lmdb", 20)];
        assert_eq!(told(&rows, Measure::P99), ["a at 500/s process beside lmdb: hikv 0.50"]);
    }

    #[test]
    fn a_close_line_is_one_whose_rounds_overlap() {
        let ranged = |store: &str, least: f64, most: f64| Row {
            ops_per_s_min: least,
            ops_per_s_max: most,
            rounds: 3,
            ..row(store, "get", f64::midpoint(least, most))
        };
        let close = |rows: &[Row]| {
            let levels = Level::all(rows);
            let found = contest(rows, &levels, Measure::Rate);
            matches!(&found.bouts[0].ours[0], Standing::Ran(ratio) if ratio.close())
        };
        assert!(close(&[ranged("hikv", 5.0, 9.0), ranged("lmdb", 8.0, 10.0)]));
        assert!(!close(&[ranged("hikv", 5.0, 7.0), ranged("lmdb", 8.0, 10.0)]));
        assert!(!close(&[Row { rounds: 1, ..ranged("hikv", 5.0, 9.0) }, ranged("lmdb", 8.0, 10.0)]));
        assert!(!close(&[ranged("hikv", 5.0, 9.0), Row { rounds: 1, ..ranged("lmdb", 8.0, 10.0) }]));
    }
}

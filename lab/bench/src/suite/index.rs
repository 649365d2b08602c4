//! The index of the pages: the experiments that ran, and the number of lines that each engine
//! loses.

use super::compare::Level;
use super::contest::{Contest, Tally};
use super::list::Experiment;
use super::page::{CHECKED, Record, missing, table, texts};
use crate::report::row::Row;
use crate::store_name;

/// An experiment of the index, with its record and rows if it ran.
pub(super) type Entry<'a> = (&'a Experiment, Option<(&'a Record, &'a [Row])>);

/// Returns the index, as README.md.
pub(super) fn index(entries: &[Entry<'_>]) -> String {
    let ran: Vec<_> = entries.iter().filter_map(|(experiment, ran)| Some((*experiment, (*ran)?))).collect();
    let heads = texts(["experiment", "what", "scale", "program", "date", "took", "expected"]);
    let lines = ran.iter().map(|(experiment, (record, _))| of_page(experiment, record));
    let seconds: f64 = ran.iter().map(|(_, (record, _))| record.seconds).sum();
    let expected: u64 = ran.iter().map(|(_, (record, _))| record.expected_seconds).sum();
    let mut text = format!(
        "# Runs\n\n\
         Made by `lodestore-bench evaluate`, which writes this page and those below anew; [analysis](../README.md) stands beside them. All together took {:.1} minutes, \
         {:.1} were expected. {CHECKED}\n\n{}",
        seconds / 60.0,
        expected as f64 / 60.0,
        table(&heads, lines),
    );
    text += &lost(&ran);
    let out: Vec<_> = ran
        .iter()
        .flat_map(|(experiment, (record, _))| {
            missing(record).into_iter().map(|line| format!("* {}: {line}\n", experiment.name))
        })
        .collect();
    let not_run = entries.iter().filter(|(_, ran)| ran.is_none());
    let not_run: Vec<_> = not_run.map(|(experiment, _)| experiment.name.as_str()).collect();
    if out.len() + not_run.len() > 0 {
        text += "\n## Left out\n\n";
    }
    if !not_run.is_empty() {
        text += &format!("* has not run, or not to its end: {}\n", not_run.join(", "));
    }
    text += &out.concat();
    text
}

fn of_page(experiment: &Experiment, record: &Record) -> Vec<String> {
    let failed = if record.failed.is_empty() { "" } else { ", failed in part" };
    vec![
        format!("[{name}]({name}.md){failed}", name = experiment.name),
        experiment.title.clone(),
        record.scale.name().into(),
        record.program.clone(),
        record.date.clone(),
        format!("{:.0} s", record.seconds),
        format!("{} s", record.expected_seconds),
    ]
}

/// Returns the counts of each engine in an experiment, over all of its settings.
fn tallies(experiment: &Experiment, rows: &[Row]) -> Vec<Tally> {
    let levels = Level::all(rows);
    let contest = Contest::of(rows, &levels, &experiment.measures);
    let of = |engine: &lodestore::engines::EngineInfo| {
        let own = contest.engines.iter().enumerate().filter(|(_, store)| store_name::base(store) == engine.name);
        own.map(|(place, _)| contest.tally(place)).fold(Tally::default(), Tally::and)
    };
    lodestore::engines().iter().map(of).collect()
}

/// Formats a tally: lost lines of all lines, with losses in bold.
fn field(tally: &Tally) -> String {
    if tally.lines + tally.cannot == 0 {
        return "-".into();
    }
    let lost = format!("{} of {}", tally.lost, tally.lines);
    let lost = if tally.lost > 0 { format!("**{lost}**") } else { lost };
    let more = [(tally.undecided, "undecided"), (tally.cannot, "cannot")];
    let more = more.into_iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!(", {number} {what}"));
    std::iter::once(lost).chain(more).collect()
}

/// Returns the table of the lines that each engine loses in each experiment.
fn lost(ran: &[(&Experiment, (&Record, &[Row]))]) -> String {
    let found: Vec<_> = ran.iter().map(|(experiment, (_, rows))| (experiment, tallies(experiment, rows))).collect();
    let beside: Vec<_> =
        found.iter().filter(|(_, all)| all.iter().any(|tally| tally.lines + tally.cannot > 0)).collect();
    if beside.is_empty() {
        return String::new();
    }
    let names = lodestore::engines().iter().map(|engine| format!("`{}`", engine.name));
    let heads: Vec<_> = std::iter::once("experiment".to_string()).chain(names).collect();
    let line = |name: String, all: &[Tally]| std::iter::once(name).chain(all.iter().map(field)).collect::<Vec<_>>();
    let sum = beside.iter().fold(vec![Tally::default(); heads.len() - 1], |sum, (_, all)| {
        sum.into_iter().zip(all).map(|(sum, one)| sum.and(*one)).collect()
    });
    let lines =
        beside.iter().map(|(experiment, all)| line(format!("[{name}]({name}.md)", name = experiment.name), all));
    let lines: Vec<_> = lines.chain([line("all".into(), &sum)]).collect();
    format!(
        "\n## Where we lose\n\n\
         Of each engine by itself: the lines in which the best peer of an equal durability is ahead of it, or in which it failed, of all that it ran beside a peer. A line is \
         a workload by one measure; where an experiment has an engine in several settings, the lines of each count. `undecided` is a line, among all, in which the median of \
         the ratios of the rounds and the ratio of the medians fall on different sides of 1; `cannot` a run of keys asked of an engine without order, which is not among \
         them. The pages have each line.\n\n{}",
        table(&heads, lines.into_iter())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::sample::{at, experiment, failed, record, row};

    #[test]
    fn the_index_sums_up_what_ran_and_names_what_did_not() {
        let (one, other) = (experiment(), Experiment { name: "other".into(), ..experiment() });
        let mut record = record();
        record.left_out.push(("memcached".into(), "missing".into()));
        let mut close = row("hikv:wal=on", "get", 9e6);
        close.ratio_to.insert("lmdb".into(), 1.1);
        let rows = [
            row("hikv", "get", 8e6),
            close,
            row("lmdb", "get", 1e7),
            at("none", row("hashmap", "get", 4e6)),
            row("nvht", "get", 2e7),
            row("lmdb", "scan", 1e7),
            row("hikv", "scan", 2e7),
            row("hikv:wal=on", "scan", 2e7),
            failed("mkvs", "full"),
        ];
        let bare = [row("hikv", "get", 8e6)];
        let text = index(&[(&one, Some((&record, &rows[..]))), (&one, Some((&record, &bare[..]))), (&other, None)]);
        for line in [
            "| [sample](sample.md) | A title | small | 0.1.0 (abc) | 2026-01-31 | 61 s | 60 s |",
            "* has not run, or not to its end: other",
            "* sample: `memcached`: missing",
            "| experiment | `hikv` | `nvht` | `fluidkv` | `hashkv` | `mkvs` |",
            "| [sample](sample.md) | **1 of 4**, 1 undecided | 0 of 1, 1 cannot | - | - | **2 of 2** |",
            "| all | **1 of 4**, 1 undecided | 0 of 1, 1 cannot | - | - | **2 of 2** |",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\nis not in\n{text}");
        }
        assert!(text.contains("All together took 2.0 minutes, 2.0 were expected."), "{text}");
    }
}

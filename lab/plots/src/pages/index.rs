//! The index of the pages: the experiments that ran, and the number of lines that each engine
//! loses.

use super::compare::Level;
use super::contest::{Contest, Tally};
use super::page::{CHECKED, missing, table, texts};
use crate::record::Record;
use crate::row::Row;
use crate::store::{self, ENGINES};

/// An experiment of the index: its record, and its rows if they are complete.
pub(super) type Entry<'a> = (&'a Record, Option<&'a [Row]>);

/// Returns the index, as README.md.
pub(super) fn index(entries: &[Entry<'_>]) -> String {
    let ran: Vec<_> = entries.iter().filter_map(|(record, rows)| Some((*record, (*rows)?))).collect();
    let heads = texts(["experiment", "what", "scale", "program", "date", "took", "expected"]);
    let lines = ran.iter().map(|(record, _)| of_page(record));
    let seconds: f64 = ran.iter().map(|(record, _)| record.seconds).sum();
    let expected: u64 = ran.iter().map(|(record, _)| record.expected_seconds).sum();
    let mut text = format!(
        "# Runs\n\n\
         Made by `lodestore-plots pages` from the rows of `lodestore-bench evaluate`. [Analysis](../README.md) has pages of its own. All together took {:.1} minutes, \
         {:.1} were expected. {CHECKED}\n\n{}",
        seconds / 60.0,
        expected as f64 / 60.0,
        table(&heads, lines),
    );
    text += &lost(&ran);
    let out: Vec<_> = ran
        .iter()
        .flat_map(|(record, _)| missing(record).into_iter().map(|line| format!("* {}: {line}\n", record.name)))
        .collect();
    let partial = entries.iter().filter(|(_, rows)| rows.is_none());
    let partial: Vec<_> = partial.map(|(record, _)| record.name.as_str()).collect();
    if out.len() + partial.len() > 0 {
        text += "\n## Left out\n\n";
    }
    if !partial.is_empty() {
        text += &format!("* not all of the recorded rows are there: {}\n", partial.join(", "));
    }
    text += &out.concat();
    text
}

fn of_page(record: &Record) -> Vec<String> {
    let failed = if record.failed.is_empty() { "" } else { ", failed in part" };
    vec![
        format!("[{name}]({name}.md){failed}", name = record.name),
        record.title.clone(),
        record.scale.clone(),
        record.program.clone(),
        record.date.clone(),
        format!("{:.0} s", record.seconds),
        format!("{} s", record.expected_seconds),
    ]
}

/// Returns the counts of each engine in an experiment, over all of its settings.
fn tallies(record: &Record, rows: &[Row]) -> Vec<Tally> {
    let levels = Level::all(rows);
    let contest = Contest::of(rows, &levels, &record.measures);
    let of = |engine: &&str| {
        let own = contest.engines.iter().enumerate().filter(|(_, store)| store::base(store) == *engine);
        own.map(|(place, _)| contest.tally(place)).fold(Tally::default(), Tally::and)
    };
    ENGINES.iter().map(of).collect()
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
fn lost(ran: &[(&Record, &[Row])]) -> String {
    let found: Vec<_> = ran.iter().map(|(record, rows)| (record, tallies(record, rows))).collect();
    let beside: Vec<_> =
        found.iter().filter(|(_, all)| all.iter().any(|tally| tally.lines + tally.cannot > 0)).collect();
    if beside.is_empty() {
        return String::new();
    }
    let names = ENGINES.iter().map(|engine| format!("`{engine}`"));
    let heads: Vec<_> = std::iter::once("experiment".to_string()).chain(names).collect();
    let line = |name: String, all: &[Tally]| std::iter::once(name).chain(all.iter().map(field)).collect::<Vec<_>>();
    let sum = beside.iter().fold(vec![Tally::default(); heads.len() - 1], |sum, (_, all)| {
        sum.into_iter().zip(all).map(|(sum, one)| sum.and(*one)).collect()
    });
    let lines = beside.iter().map(|(record, all)| line(format!("[{name}]({name}.md)", name = record.name), all));
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
    use crate::pages::sample::{at, failed, record, row};

    #[test]
    fn the_index_sums_up_what_ran_and_names_what_did_not() {
        let (mut one, other) = (record(), Record { name: "other".into(), ..record() });
        one.left_out.push(("memcached".into(), "missing".into()));
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
        let text = index(&[(&one, Some(&rows[..])), (&one, Some(&bare[..])), (&other, None)]);
        for line in [
            "| [sample](sample.md) | A title | small | 0.1.0 (abc) | 2026-01-31 | 61 s | 60 s |",
            "* not all of the recorded rows are there: other",
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

//! The index of the pages: what ran, and a summary over all of them.

use super::compare::{Level, Verdict, verdicts};
use super::list::Experiment;
use super::page::{FIELD_HEADS, Record, fields, missing, table, texts};
use crate::row::Row;

/// One experiment of the index: what is known of it where it ran.
pub(super) type Entry<'a> = (&'a Experiment, Option<(&'a Record, &'a [Row])>);

/// The index, as README.md.
pub(super) fn index(entries: &[Entry<'_>]) -> String {
    let ran: Vec<_> = entries.iter().filter_map(|(experiment, ran)| Some((*experiment, (*ran)?))).collect();
    let levels: Vec<_> = ran.iter().map(|(_, (_, rows))| Level::all(rows)).collect();
    let found: Vec<_> =
        ran.iter().zip(&levels).map(|((experiment, _), levels)| verdicts(levels, experiment.measures)).collect();
    let heads = texts(["experiment", "what", "scale", "program", "date", "took", "expected", "lines lost"]);
    let lines = ran.iter().zip(&found).map(|((experiment, (record, _)), found)| of_page(experiment, record, found));
    let seconds: f64 = ran.iter().map(|(_, (record, _))| record.seconds).sum();
    let expected: u64 = ran.iter().map(|(_, (record, _))| record.expected_seconds).sum();
    let mut text = format!(
        "# Runs\n\n\
         Made by `lodestore evaluate`, which writes this page and those below anew; [analysis](../README.md) stands beside them. All together took {:.1} minutes, \
         {:.1} were expected.\n\n{}",
        seconds / 60.0,
        expected as f64 / 60.0,
        table(&heads, lines),
    );
    let out: Vec<_> = ran
        .iter()
        .flat_map(|(experiment, (record, _))| {
            missing(record).into_iter().map(|line| format!("* {}: {line}\n", experiment.name))
        })
        .collect();
    let not_run = entries.iter().filter(|(_, ran)| ran.is_none());
    let not_run: Vec<_> =
        not_run.map(|(experiment, _)| format!("* {}: it has not run, or not to its end\n", experiment.name)).collect();
    if out.len() + not_run.len() > 0 {
        text += &format!("\n## Left out\n\n{}{}", not_run.concat(), out.concat());
    }
    text + &summary(&ran.iter().map(|(experiment, _)| *experiment).collect::<Vec<_>>(), &found)
}

fn of_page(experiment: &Experiment, record: &Record, found: &[Verdict<'_>]) -> Vec<String> {
    let beside = found.iter().filter(|verdict| verdict.peer.is_some()).count();
    let lost = found.iter().filter(|verdict| verdict.lost()).count();
    vec![
        format!("[{name}]({name}.md)", name = experiment.name),
        experiment.title.clone(),
        record.scale.name().into(),
        record.program.clone(),
        record.date.clone(),
        format!("{:.0} s", record.seconds),
        format!("{} s", record.expected_seconds),
        if record.failed.is_empty() {
            format!("{lost} of {beside}")
        } else {
            format!("{lost} of {beside}, failed in part")
        },
    ]
}

/// Our best engine beside the best peer, in each line of each experiment.
fn summary(experiments: &[&Experiment], found: &[Vec<Verdict<'_>>]) -> String {
    let heads = [&["experiment", "workload", "by", "survives"][..], &FIELD_HEADS].concat();
    let heads: Vec<String> = heads.into_iter().map(String::from).collect();
    let lines = experiments.iter().zip(found).flat_map(|(experiment, found)| {
        let told = found.iter().filter(|verdict| verdict.peer.is_some());
        told.map(|verdict| {
            let first = texts([&experiment.name, &verdict.line, verdict.measure.name(), verdict.level]);
            let fields = fields(verdict).into_iter();
            // What is lost stands out.
            let fields =
                fields.map(|field| if verdict.lost() && field != "-" { format!("**{field}**") } else { field });
            first.into_iter().chain(fields).collect()
        })
    });
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "\n## Our best engine beside the best peer\n\n\
         Of stores of an equal durability, or where ours is told to be at another, of peers that survive less. Above 1 ours is better; **what is lost** stands out. Of \
         rates it is the median of the ratios of the rounds, which need not be the ratio of the medians beside it.\n\n{}",
        table(&heads, lines.into_iter())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::sample::{at, experiment, record, row};

    #[test]
    fn the_index_sums_up_what_ran_and_names_what_did_not() {
        let (one, other) = (experiment(), Experiment { name: "other".into(), ..experiment() });
        let mut record = record();
        record.left_out.push(("memcached".into(), "missing".into()));
        let rows = [row("hikv", "get", 8e6), row("lmdb", "get", 1e7), at("none", row("hashmap", "get", 4e6))];
        let text = index(&[(&one, Some((&record, &rows[..]))), (&other, None)]);
        for line in [
            "| [sample](sample.md) | A title | small | 0.1.0 (abc) | 2026-01-31 | 61 s | 60 s | 1 of 2 |",
            "* other: it has not run, or not to its end",
            "* sample: `memcached`: missing",
            "| sample | get | ops/s | process | **`hikv`** | **8.00 M** | **`lmdb`** | **10.00 M** | **0.80** |",
            "| sample | get | ops/s | none | `hikv` | 8.00 M | `hashmap` | 4.00 M | 2.00, ours at process |",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\nis not in\n{text}");
        }
        assert!(text.contains("All together took 1.0 minutes, 1.0 were expected."), "{text}");
    }
}

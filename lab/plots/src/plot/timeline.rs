//! The progress of stores over time, from the CSV of `lodestore-bench run --timeline`.
//!
//! The plot shows the first round, over the seconds since a store was created. Several stores have
//! a panel of rates and one of DRAM, with a line per store. A single store also has its own count
//! of DRAM, and for an engine that adapts, its workers, its triggers and the data that waits.
//!
//! The time between two workloads, in which streams are generated and changes undone, is a gap in
//! the lines. A rate is the mean of one of at most [`SPOTS_MAX`] equal parts of the time.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};

use super::choice::SERIES_MAX;
use super::figure::Figure;
use super::lines::{Axis, Line, Lines, Spot, scale_of};
use super::unit::Unit;
use crate::row::distinct;
use crate::store::is_ours;

/// Maximum number of points of a line.
const SPOTS_MAX: f64 = 450.0;
/// Height of a panel.
const PANEL_PIXELS: f64 = 290.0;
/// The unit of DRAM.
const MIB: f64 = (1 << 20) as f64;
/// The approximate number of marks of the time.
const TIME_MARKS_COUNT: f64 = 8.0;

/// A line of the CSV, by its columns. A number that the store does not count is absent.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    store: String,
    workload: String,
    seconds: f64,
    /// Operations since the previous sample of the workload.
    ops: f64,
    numbers: BTreeMap<String, f64>,
}

/// The samples of one workload of one store.
type Part<'a> = &'a [Sample];

/// Parses the samples of the first round.
fn read(csv: &str) -> Result<Vec<Sample>> {
    let bad = |line: &str| Error::new(ErrorKind::InvalidData, format!("no line of a timeline: {line}"));
    let mut lines = csv.lines();
    let heads: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let mut samples = Vec::new();
    for line in lines {
        let fields: BTreeMap<&str, &str> = heads.iter().copied().zip(line.split(',')).collect();
        let field = |name: &str| fields.get(name).copied().ok_or_else(|| bad(line));
        let number = |name: &str| field(name)?.parse::<f64>().map_err(|_| bad(line));
        if field("round")? != "1" {
            continue;
        }
        let numbers = fields.iter().filter_map(|(name, text)| Some(((*name).to_string(), text.parse().ok()?)));
        samples.push(Sample {
            store: field("store")?.into(),
            workload: field("workload")?.into(),
            seconds: number("seconds")?,
            ops: number("ops")?,
            numbers: numbers.collect(),
        });
    }
    if samples.is_empty() {
        return Err(bad("it has no sample of a first round"));
    }
    Ok(samples)
}

/// Returns the parts of a store. Each begins with a sample of no operations.
fn parts<'a>(samples: &'a [Sample], store: &str) -> Vec<Part<'a>> {
    let of_one = |one: &Sample, next: &Sample| {
        (&one.store, &one.workload) == (&next.store, &next.workload) && next.seconds >= one.seconds
    };
    samples.chunk_by(of_one).filter(|part| part[0].store == store).collect()
}

/// Returns the rates of a store over parts of the time at least `step` long.
fn rates(parts: &[Part<'_>], step: f64) -> Vec<Vec<Spot>> {
    let piece = |part: &Part<'_>| {
        let (mut spots, mut ops, mut from) = (Vec::new(), 0.0, part[0].seconds);
        for (at, sample) in part.iter().enumerate().skip(1) {
            ops += sample.ops;
            let length = sample.seconds - from;
            if length > 0.0 && (length >= step || at + 1 == part.len()) {
                spots.push(Spot::at(f64::midpoint(from, sample.seconds), ops / length));
                (ops, from) = (0.0, sample.seconds);
            }
        }
        spots
    };
    parts.iter().map(piece).collect()
}

/// Returns a number of a store's samples, in this unit.
fn course(parts: &[Part<'_>], unit: f64, of: impl Fn(&Sample) -> Option<f64>) -> Vec<Vec<Spot>> {
    let spot = |sample: &Sample| of(sample).map(|number| Spot::at(sample.seconds, number / unit));
    parts.iter().map(|part| part.iter().filter_map(spot).collect()).collect()
}

/// Returns the same for a number that changes in steps: the line is level between two changes.
fn steps(parts: &[Part<'_>], unit: f64, of: impl Fn(&Sample) -> Option<f64>) -> Vec<Vec<Spot>> {
    let level = |piece: Vec<Spot>| {
        let mut spots: Vec<Spot> = Vec::new();
        for (at, spot) in piece.iter().enumerate() {
            match spots.last().copied() {
                Some(before) if (before.y - spot.y).abs() > 0.0 => spots.extend([Spot::at(spot.x, before.y), *spot]),
                Some(_) if at + 1 < piece.len() => {}
                _ => spots.push(*spot),
            }
        }
        spots
    };
    course(parts, unit, of).into_iter().map(level).collect()
}

/// Returns the stores of the plot: ours first, then the peers with the most operations.
fn choose(samples: &[Sample]) -> (Vec<&str>, String) {
    let all = distinct(samples.iter().map(|sample| sample.store.as_str()));
    if all.len() <= SERIES_MAX {
        return (all, String::new());
    }
    let mean = |store: &str| {
        let parts = parts(samples, store);
        let seconds: f64 = parts.iter().map(|part| part[part.len() - 1].seconds - part[0].seconds).sum();
        parts.iter().flat_map(|part| part.iter()).map(|sample| sample.ops).sum::<f64>() / seconds.max(0.001)
    };
    let mut ranked = all.clone();
    ranked.sort_by(|one, other| {
        let both = is_ours(other).cmp(&is_ours(one));
        both.then(if is_ours(one) { std::cmp::Ordering::Equal } else { mean(other).total_cmp(&mean(one)) })
    });
    let shown = &ranked[..SERIES_MAX];
    let note = format!("{SERIES_MAX} of {} stores: ours, and the peers with the greatest rates", all.len());
    (all.iter().copied().filter(|store| shown.contains(store)).collect(), note)
}

/// Draws a timeline.
///
/// # Errors
/// The text is no timeline.
pub(crate) fn draw(csv: &str) -> Result<String> {
    let samples = read(csv)?;
    let (stores, chosen) = choose(&samples);
    let of: Vec<(&str, Vec<Part<'_>>)> = stores.iter().map(|store| (*store, parts(&samples, store))).collect();
    let until = of.iter().flat_map(|(_, parts)| parts.iter()).map(|part| part[part.len() - 1].seconds);
    let until = until.fold(0.1, f64::max);
    let mut panels = Vec::new();
    let mut add = |caption: &str, lines: Vec<Line>| {
        let lines: Vec<Line> =
            lines.into_iter().filter(|line| line.pieces.iter().any(|piece| !piece.is_empty())).collect();
        if !lines.is_empty() {
            panels.push(panel(caption, lines, &of, until));
        }
    };
    let lines = |of_store: &dyn Fn(&[Part<'_>]) -> Vec<Vec<Spot>>| {
        let line = |(series, (store, parts)): (usize, &(&str, Vec<Part<'_>>))| Line {
            name: (*store).into(),
            series,
            pieces: of_store(parts),
        };
        of.iter().enumerate().map(line).collect::<Vec<_>>()
    };
    add("operations a second", lines(&|parts| rates(parts, until / SPOTS_MAX)));
    let number = |name: &'static str| move |sample: &Sample| sample.numbers.get(name).copied();
    if let [(_, parts)] = of.as_slice() {
        let line = |name: &str, series, pieces| Line { name: name.into(), series, pieces };
        let grown = line("growth of RssAnon", 0, course(parts, MIB, number("rss_anon_bytes")));
        add("MiB of DRAM", vec![grown, line("own count", 1, course(parts, MIB, number("dram_bytes")))]);
        let waiting = |sample: &Sample| number("memtables")(sample).map(|all| (all - 1.0).max(0.0));
        add(
            "workers, memtables, times the usual trigger",
            vec![
                line("workers allowed", 0, steps(parts, 1.0, number("workers_allowed"))),
                line("trigger of compactions", 1, steps(parts, 100.0, number("compaction_trigger_percent"))),
                line("memtables that wait", 2, steps(parts, 1.0, waiting)),
            ],
        );
        add(
            "MiB before their final place",
            vec![
                line("logs of memtables", 0, course(parts, MIB, number("log_bytes"))),
                line("buffered runs", 1, course(parts, MIB, number("buffered_bytes"))),
            ],
        );
    } else {
        add("MiB of DRAM: growth of RssAnon", lines(&|parts| course(parts, MIB, number("rss_anon_bytes"))));
    }
    let first = distinct(samples.iter().map(|sample| sample.workload.as_str())).join(", ");
    let note = if chosen.is_empty() { String::new() } else { format!("; {chosen}") };
    let note = format!("{first}; the first round{note}");
    Ok(Figure { title: "Progress over time".into(), note, panels, across: 1 }.svg())
}

fn panel(caption: &str, lines: Vec<Line>, of: &[(&str, Vec<Part<'_>>)], until: f64) -> Lines {
    let scale = scale_of(lines.iter());
    let log = if scale.is_log() { " (logarithmic scale)" } else { "" };
    // Several stores begin their workloads at different times.
    let begins = |part: &Part<'_>| (part[0].seconds, part[0].workload.clone());
    let places = if let [(_, parts)] = of { parts.iter().map(begins).collect() } else { Vec::new() };
    Lines {
        caption: format!("{caption}{log}"),
        unit: Unit::Count,
        axis: Axis { name: "seconds since the store was made".into(), ends: [0.0, until], marks: time_marks(until) },
        scale,
        lines,
        places,
        height: PANEL_PIXELS,
    }
}

/// Returns round times up to this one.
fn time_marks(until: f64) -> Vec<(f64, String)> {
    let rough = until / TIME_MARKS_COUNT;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= rough).unwrap_or(until);
    let marks = (0..=(until / step) as u32).map(|mark| f64::from(mark) * step);
    marks.map(|mark| (mark, Unit::Plain.text(mark))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "store,round,workload,seconds,ops,ops_per_s,rss_anon_bytes,dram_bytes,workers_allowed,memtables";

    fn csv(lines: &[&str]) -> String {
        format!("{HEAD}\n{}\n", lines.join("\n"))
    }

    #[test]
    fn a_rate_is_of_the_time_between_and_no_operation_is_lost() {
        let text = csv(&[
            "ours,1,load,0.0,0,0,1,,,",
            "ours,1,load,0.1,100,1000,1,,,",
            "ours,1,load,0.2,200,2000,1,,,",
            "ours,1,load,0.3,0,0,1,,,",
            "ours,1,load,0.35,50,1000,1,,,",
            "ours,2,load,0.0,0,0,1,,,",
        ]);
        let samples = read(&text).expect("a timeline");
        let near = |step: f64, should: &[(f64, f64)]| {
            let spots = &rates(&parts(&samples, "ours"), step)[0];
            let same = |(a, b): (&Spot, &(f64, f64))| (a.x - b.0).abs() < 1e-9 && (a.y - b.1).abs() < 1e-6;
            assert!(spots.len() == should.len() && spots.iter().zip(should).all(same), "{spots:?}");
        };
        near(0.0, &[(0.05, 1000.0), (0.15, 2000.0), (0.25, 0.0), (0.325, 1000.0)]);
        near(0.15, &[(0.1, 1500.0), (0.275, 50.0 / 0.15)]);
    }

    #[test]
    fn one_store_has_its_gauges_and_several_have_a_line_each() {
        let ours = ["ours,1,load,0.0,0,0,1048576,1048576,2,1", "ours,1,load,0.1,5,50,1048576,1048576,2,3"];
        let svg = draw(&csv(&ours)).expect("a picture");
        for text in [
            "workers allowed",
            "memtables that wait",
            "own count",
            "> load<".trim_start_matches("> "),
            "growth of RssAnon",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("buffered runs"), "no column has it: {svg}");
        let theirs = ["theirs,1,load,0.0,0,0,1048576,,,", "theirs,1,load,0.1,5,50,1048576,,,"];
        let svg = draw(&csv(&[&ours[..], &theirs].concat())).expect("a picture");
        assert!(svg.contains(">theirs<") && !svg.contains("workers allowed"), "{svg}");
    }

    #[test]
    fn what_changes_by_steps_is_level_between_them() {
        let lines = [1, 1, 1, 3, 3].iter().enumerate().map(|(at, all)| format!("ours,1,load,{at},0,0,1,,,{all}"));
        let text = csv(&lines.collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>());
        let samples = read(&text).expect("a timeline");
        let line = steps(&parts(&samples, "ours"), 1.0, |sample| sample.numbers.get("memtables").copied());
        let spots: Vec<_> = line[0].iter().map(|spot| (spot.x, spot.y)).collect();
        assert_eq!(spots, [(0.0, 1.0), (3.0, 1.0), (3.0, 3.0), (4.0, 3.0)]);
    }

    #[test]
    fn a_text_that_is_no_timeline_is_refused() {
        for text in ["", "store,round\n", "a,b\n1,2\n", &csv(&["ours,1,load,x,0,0,1,,,"])] {
            assert!(draw(text).is_err(), "{text}");
        }
    }
}

//! The progress of each store every 100 ms: as CSV, or drawn as SVG.
//!
//! In the CSV each workload begins with a sample of no operations, and `ops` counts the operations
//! since the previous line.
//!
//! The picture shows the first round, with a line for each store over the seconds since it was
//! created: the rate, and DRAM. For a store with such gauges (the last columns of the CSV, by their
//! names in `stats`) it also shows adaptive migration and the data that waits for it. The time
//! between two workloads, in which streams are generated and changes undone, is a gap in the lines.
//! A rate in the picture is the mean of one of at most [`LINE_POINTS_MAX`] equal parts of the time.

use std::fmt::Write as _;
use std::path::Path;

use lodestore_contract::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::args::Args;
use crate::args::timeline::Form;
use crate::plot::{COLOURS, Drawn, legend};
use crate::run::session::Findings;
use crate::run::watch::{Part, Sample};
use crate::target::GAUGES;

/// Maximum number of points of a line.
const LINE_POINTS_MAX: usize = 450;
/// Size of the picture.
const WIDTH_PIXELS: u32 = 1000;
/// Height of each panel.
const PANEL_HEIGHT_PIXELS: u32 = 320;
const MIB: f64 = (1 << 20) as f64;

/// Writes the timeline of a run to `file`.
///
/// # Errors
/// [`Error::InvalidOption`] for an extension other than those of [`Form`]; [`Error::Io`] if the
/// file cannot be written.
pub(crate) fn write(args: &Args, findings: &Findings, file: &Path) -> Result<()> {
    let text = match Form::of(file)? {
        Form::Csv => Ok(csv(&findings.timeline)),
        Form::Svg => picture(args, &findings.timeline).map_err(|error| std::io::Error::other(error.to_string())),
    };
    let written = text.and_then(|text| std::fs::write(file, text));
    written.map_err(|source| Error::io("writing the timeline", file, source))
}

/// The columns of the CSV, before the columns of the gauges.
const HEAD: &str = "store,round,workload,seconds,ops,ops_per_s,rss_anon_bytes,dram_bytes,medium_bytes,bytes_written,table_flushes,compactions";

fn csv(parts: &[Part]) -> String {
    let mut text = format!("{HEAD},{}\n", GAUGES.join(","));
    for part in parts {
        let mut before: Option<&Sample> = None;
        for sample in &part.samples {
            let (ops, rate) = since(before, sample);
            let optional = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{},{},{},{:.3},{ops},{rate:.0},{},{},{},{},{},{},{}",
                part.store,
                part.round,
                part.workload,
                sample.at_s,
                sample.rss_anon_bytes,
                optional(sample.dram_bytes),
                sample.medium_bytes,
                sample.bytes_written,
                optional(sample.table_flushes),
                optional(sample.compactions),
                sample.gauges.0.map(optional).join(","),
            );
            before = Some(sample);
        }
    }
    text
}

/// Returns the operations since the previous sample, and their rate.
fn since(before: Option<&Sample>, sample: &Sample) -> (u64, f64) {
    let Some(before) = before else { return (sample.ops, 0.0) };
    let (ops, seconds) = (sample.ops.saturating_sub(before.ops), sample.at_s - before.at_s);
    (ops, if seconds > 0.0 { ops as f64 / seconds } else { 0.0 })
}

/// A line of a picture, in pieces separated by gaps.
type Curve = Vec<Vec<(f64, f64)>>;

/// Returns the rate of a store, in millions per second, over parts of the time at least `step`
/// long.
fn rates(parts: &[&Part], step: f64) -> Curve {
    let piece = |part: &&Part| {
        let (mut spots, mut before) = (Vec::new(), part.samples.first());
        let last = part.samples.last().map_or(0.0, |sample| sample.at_s);
        for sample in part.samples.iter().skip(1) {
            let long_enough = before.is_some_and(|before| sample.at_s - before.at_s >= step) || sample.at_s >= last;
            if long_enough {
                let rate = since(before, sample).1 / 1e6;
                spots.push((before.map_or(0.0, |before| f64::midpoint(before.at_s, sample.at_s)), rate));
                before = Some(sample);
            }
        }
        spots
    };
    parts.iter().map(piece).collect()
}

/// Returns the values that `of` reads from a store's samples, in this unit.
fn course(parts: &[&Part], unit: f64, of: impl Fn(&Sample) -> Option<u64>) -> Curve {
    let spot = |sample: &Sample| of(sample).map(|told| (sample.at_s, told as f64 / unit));
    parts.iter().map(|part| part.samples.iter().filter_map(spot).collect()).collect()
}

/// Does the same for a value that changes in steps: the line is level between two changes.
fn steps(parts: &[&Part], unit: f64, of: impl Fn(&Sample) -> Option<u64>) -> Curve {
    let level = |piece: Vec<(f64, f64)>| {
        let mut spots: Vec<(f64, f64)> = Vec::new();
        for (at, (when, value)) in piece.iter().copied().enumerate() {
            match spots.last().copied() {
                Some((_, before)) if before != value => spots.extend([(when, before), (when, value)]),
                Some(_) if at + 1 < piece.len() => {}
                _ => spots.push((when, value)),
            }
        }
        spots
    };
    course(parts, unit, of).into_iter().map(level).collect()
}

fn greatest(lines: &[Curve]) -> f64 {
    let most = lines.iter().flatten().flatten().map(|spot| spot.1).fold(0.0, f64::max);
    if most > 0.0 { most * 1.15 } else { 1.0 }
}

/// A panel of the picture.
struct Panel<'a> {
    caption: String,
    unit: &'a str,
    /// Name, colour, and whether the line is thin.
    lines: Vec<(String, RGBColor, bool)>,
    spots: Vec<Curve>,
    until: f64,
    /// The starts of workloads, if they are shown.
    marks: Vec<(f64, String)>,
}

impl Panel<'_> {
    /// Adds a line, if it has points.
    fn add(&mut self, name: String, colour: RGBColor, thin: bool, curve: Curve) {
        if curve.iter().any(|piece| !piece.is_empty()) {
            self.lines.push((name, colour, thin));
            self.spots.push(curve);
        }
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
        let most = greatest(&self.spots);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.caption, ("sans-serif", 15))
            .margin(10)
            .x_label_area_size(34)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..self.until, 0.0..most)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_max_light_lines(1)
            .x_desc("seconds since the store was made")
            .y_desc(self.unit)
            .label_style(("sans-serif", 12))
            .draw()?;
        for (at, name) in &self.marks {
            let grey = BLACK.mix(0.25);
            chart.draw_series([PathElement::new([(*at, 0.0), (*at, most)], grey)])?;
            chart.draw_series([Text::new(format!(" {name}"), (*at, most), ("sans-serif", 11))])?;
        }
        for ((name, colour, thin), line) in self.lines.iter().zip(&self.spots) {
            let (colour, style) = (*colour, colour.stroke_width(if *thin { 1 } else { 2 }));
            let mut named = false;
            for piece in line.iter().filter(|piece| !piece.is_empty()) {
                let series = chart.draw_series(LineSeries::new(piece.iter().copied(), style))?;
                if !named {
                    series.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour));
                    named = true;
                }
            }
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    }
}

/// Returns the stores that have a timeline, each once, in order.
fn stores(parts: &[Part]) -> Vec<&str> {
    let mut each: Vec<&str> = Vec::new();
    for part in parts {
        if !each.contains(&part.store.as_str()) {
            each.push(&part.store);
        }
    }
    each
}

/// The common data of all panels: the parts of the first round by store, the end of the last part,
/// and the starts of workloads.
struct Course<'a> {
    stores: Vec<(&'a str, RGBColor, Vec<&'a Part>)>,
    until: f64,
    marks: Vec<(f64, String)>,
}

impl<'a> Course<'a> {
    fn of(parts: &'a [Part]) -> Self {
        let first: Vec<&Part> = parts.iter().filter(|part| part.round == 1).collect();
        let until = first.iter().flat_map(|part| &part.samples).map(|sample| sample.at_s).fold(0.1, f64::max);
        let of = |store: &str| first.iter().copied().filter(|part| part.store == store).collect::<Vec<_>>();
        let stores: Vec<_> = stores(parts)
            .into_iter()
            .enumerate()
            .map(|(place, store)| (store, COLOURS[place % COLOURS.len()], of(store)))
            .collect();
        let begins = |part: &&Part| part.samples.first().map(|sample| (sample.at_s, part.workload.clone()));
        // Several stores begin their workloads at different times.
        let marks = if stores.len() == 1 { first.iter().filter_map(begins).collect() } else { Vec::new() };
        Self { stores, until, marks }
    }

    fn panel(&self, caption: String, unit: &'a str) -> Panel<'a> {
        Panel { caption, unit, lines: Vec::new(), spots: Vec::new(), until: self.until, marks: self.marks.clone() }
    }

    fn rate(&self, args: &Args) -> Panel<'a> {
        let mut panel = self.panel(caption(args), "million operations a second");
        for (store, colour, parts) in &self.stores {
            panel.add((*store).into(), *colour, false, rates(parts, self.until / LINE_POINTS_MAX as f64));
        }
        panel
    }

    fn memory(&self) -> Panel<'a> {
        let mut panel = self.panel(String::new(), "MiB of DRAM");
        for (store, colour, parts) in &self.stores {
            let grown = course(parts, MIB, |sample| Some(sample.rss_anon_bytes));
            panel.add(format!("{store}: growth of RssAnon"), *colour, false, grown);
            let own = course(parts, MIB, |sample| sample.dram_bytes);
            panel.add(format!("{store}: its own account"), *colour, true, own);
        }
        panel
    }

    /// Draws the number of workers allowed, and the trigger of compactions.
    fn adapted(&self) -> Panel<'a> {
        let mut panel = self.panel(String::new(), "workers; times the usual trigger");
        for (at, (store, _, parts)) in self.stores.iter().enumerate() {
            let gauge = |name: &'static str, unit| steps(parts, unit, |sample| sample.gauges.named(name));
            panel.add(format!("{store}: workers allowed"), colour(at, 0), false, gauge("workers_allowed", 1.0));
            let trigger = gauge("compaction_trigger_percent", 100.0);
            panel.add(format!("{store}: trigger of compactions"), colour(at, 1), false, trigger);
            let waiting = |sample: &Sample| sample.gauges.named("memtables").map(|all| all.saturating_sub(1));
            panel.add(format!("{store}: memtables that wait"), colour(at, 2), true, steps(parts, 1.0, waiting));
        }
        panel
    }

    /// Draws the data that has not reached its final place.
    fn waiting(&self) -> Panel<'a> {
        let mut panel = self.panel(String::new(), "MiB before their final place");
        for (at, (store, _, parts)) in self.stores.iter().enumerate() {
            let gauge = |name: &'static str| course(parts, MIB, |sample| sample.gauges.named(name));
            panel.add(format!("{store}: logs of memtables"), colour(at, 0), false, gauge("log_bytes"));
            panel.add(format!("{store}: buffered runs"), colour(at, 1), false, gauge("buffered_bytes"));
        }
        panel
    }
}

/// Returns the colour of a line of a store with several lines.
fn colour(store: usize, line: usize) -> RGBColor {
    COLOURS[(store * 3 + line) % COLOURS.len()]
}

fn picture(args: &Args, parts: &[Part]) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let course = Course::of(parts);
    let gauged = [course.adapted(), course.waiting()].into_iter().filter(|panel| !panel.lines.is_empty());
    let panels: Vec<_> = [course.rate(args), course.memory()].into_iter().chain(gauged).collect();
    let mut svg = String::new();
    {
        let size = (WIDTH_PIXELS, PANEL_HEIGHT_PIXELS * panels.len() as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        for (panel, place) in panels.iter().zip(area.split_evenly((panels.len(), 1))) {
            panel.draw(&place)?;
        }
        area.present()?;
    }
    Ok(svg)
}

fn caption(args: &Args) -> String {
    let budget = args.budget.map(|bytes| format!(", DRAM budget {}", lodestore::stats::format_size(bytes)));
    format!(
        "{} records of {} + {} bytes, {} thread(s){}",
        args.records,
        args.key_size,
        args.value_size,
        args.threads,
        budget.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;
    use crate::target::Gauges;

    /// Two workers, the usual trigger of compactions, and as many memtables as there were
    /// operations before.
    fn gauges(ops: u64) -> Gauges {
        Gauges(GAUGES.map(|name| match name {
            "workers_allowed" => Some(2),
            "compaction_trigger_percent" => Some(100),
            "memtables" => Some(ops),
            _ => None,
        }))
    }

    fn part(store: &str, round: usize, ops: &[(f64, u64)]) -> Part {
        let sample = |(at_s, ops): &(f64, u64)| Sample {
            at_s: *at_s,
            ops: *ops,
            rss_anon_bytes: 3 << 20,
            dram_bytes: (store == "ours").then_some(2 << 20),
            medium_bytes: 70,
            bytes_written: 80,
            table_flushes: (store == "ours").then_some(4),
            compactions: None,
            gauges: if store == "ours" { gauges(*ops) } else { Gauges::default() },
        };
        Part { store: store.into(), round, workload: "load".into(), samples: ops.iter().map(sample).collect() }
    }

    #[test]
    fn the_ending_names_the_form() {
        assert_eq!(Form::of(Path::new("a/b.csv")).expect("a form"), Form::Csv);
        assert_eq!(Form::of(Path::new("b.x.svg")).expect("a form"), Form::Svg);
        for name in ["csv", "a.png", "a", ""] {
            let text = Form::of(Path::new(name)).expect_err("no form").to_string();
            assert!(text.contains(".csv or .svg"), "{text}");
        }
    }

    #[test]
    fn a_line_of_csv_has_what_was_done_since_the_line_before() {
        let parts = [part("ours", 1, &[(1.0, 0), (1.1, 500), (1.3, 1500)]), part("theirs", 2, &[(0.5, 0)])];
        let text = csv(&parts);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                &format!("{HEAD},{}", GAUGES.join(",")),
                "ours,1,load,1.000,0,0,3145728,2097152,70,80,4,,2,100,0,,,,,,,,",
                "ours,1,load,1.100,500,5000,3145728,2097152,70,80,4,,2,100,500,,,,,,,,",
                "ours,1,load,1.300,1000,5000,3145728,2097152,70,80,4,,2,100,1500,,,,,,,,",
                "theirs,2,load,0.500,0,0,3145728,,70,80,,,,,,,,,,,,,",
            ]
        );
        let columns = HEAD.split(',').count() + GAUGES.len();
        assert!(lines.iter().all(|line| line.split(',').count() == columns));
    }

    #[test]
    fn a_rate_is_of_the_time_between_and_no_operation_is_lost() {
        let one = part("ours", 1, &[(0.0, 0), (0.1, 100_000), (0.2, 300_000), (0.3, 300_000), (0.35, 350_000)]);
        let fine = rates(&[&one], 0.0);
        let near = |line: &Curve, should: &[(f64, f64)]| {
            let spots = &line[0];
            let same = |(a, b): (&(f64, f64), &(f64, f64))| (a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-9;
            assert!(spots.len() == should.len() && spots.iter().zip(should).all(same), "{spots:?}");
        };
        near(&fine, &[(0.05, 1.0), (0.15, 2.0), (0.25, 0.0), (0.325, 1.0)]);
        near(&rates(&[&one], 0.15), &[(0.1, 1.5), (0.275, 1.0 / 3.0)]);
    }

    #[test]
    fn the_picture_has_a_line_for_each_store_and_account_of_the_first_round() {
        let args = parsed("--budget 64M");
        let parts = [
            part("ours", 1, &[(0.0, 0), (0.1, 10), (0.2, 30)]),
            part("theirs", 1, &[(0.0, 0), (0.1, 20), (0.2, 25)]),
            part("ours", 2, &[(0.0, 0), (99.0, 10)]),
        ];
        let svg = picture(&args, &parts).expect("a picture");
        // A rate, RssAnon, and for one store its own statistics; each once more in the legend. In
        // the panel of adaptive values a store has a line of each colour.
        let curves = |colour: &str| svg.lines().filter(|it| it.contains("<polyline") && it.contains(colour)).count();
        assert_eq!((curves("#1B6CA8"), curves("#D98F2B")), (6 + 2, 4 + 2), "{svg}");
        assert!(svg.contains("theirs: growth of RssAnon") && svg.contains("DRAM budget 64M"));
        assert!(!svg.contains("theirs: its own account") && svg.contains("ours: its own account"));
    }
    #[test]
    fn a_store_without_gauges_has_no_panel_of_what_it_adapts() {
        let args = parsed("");
        let of = |store: &str| picture(&args, &[part(store, 1, &[(0.0, 0), (0.1, 10)])]).expect("a picture");
        let (ours, theirs) = (of("ours"), of("theirs"));
        assert!(ours.contains("ours: workers allowed") && ours.contains("ours: memtables that wait"), "{ours}");
        // No gauge reports bytes of logs or runs.
        assert!(ours.contains("height=\"960\"") && !ours.contains("buffered runs"), "{ours}");
        assert!(theirs.contains("height=\"640\"") && !theirs.contains("workers"), "{theirs}");
        // The workload's name in each panel.
        assert_eq!((ours.matches(" load").count(), theirs.matches(" load").count()), (3, 2));
    }

    #[test]
    fn what_changes_by_steps_is_level_between_them() {
        let one = part("ours", 1, &[(0.0, 1), (0.1, 1), (0.2, 1), (0.3, 3), (0.4, 3)]);
        let line = steps(&[&one], 1.0, |sample| sample.gauges.named("memtables"));
        assert_eq!(line, [[(0.0, 1.0), (0.3, 1.0), (0.3, 3.0), (0.4, 3.0)]]);
        assert_eq!(steps(&[&one], 1.0, |_| None), [vec![]]);
    }
}

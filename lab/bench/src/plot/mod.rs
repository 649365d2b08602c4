//! A run as an SVG picture: a group of bars per workload, a bar per store.

pub(crate) mod latency;
pub(crate) mod memory;
pub(crate) mod sweep;
pub(crate) mod timeline;

use std::path::Path;

use lodestore_contract::{Error, Result};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::args::Args;
use crate::report::row::{Row, rows};
use crate::run::session::Findings;
use crate::workload::{Turn, Workload};

/// Colours of the stores (of a sweep: of the workloads), in the order of the arguments.
pub(crate) const COLOURS: [RGBColor; 18] = [
    RGBColor(0x1b, 0x6c, 0xa8),
    RGBColor(0xd9, 0x8f, 0x2b),
    RGBColor(0x5a, 0x9e, 0x5f),
    RGBColor(0xa3, 0x4a, 0x6b),
    RGBColor(0x6f, 0x6f, 0x6f),
    RGBColor(0x3f, 0xa7, 0xa0),
    RGBColor(0xc8, 0x4b, 0x31),
    RGBColor(0x8e, 0xc6, 0xe6),
    RGBColor(0xe8, 0xc9, 0x6b),
    RGBColor(0x9b, 0xd0, 0x9d),
    RGBColor(0xd9, 0x97, 0xb4),
    RGBColor(0xb9, 0xb9, 0xb9),
    RGBColor(0x4a, 0x4e, 0x8f),
    RGBColor(0x8a, 0x5a, 0x2b),
    RGBColor(0x23, 0x23, 0x23),
    RGBColor(0x7d, 0x3c, 0x98),
    RGBColor(0x00, 0x6b, 0x4f),
    RGBColor(0xf0, 0x5d, 0x8c),
];
/// Free space for the legend to the right of the bars, in widths of all groups. Without it the
/// legend covered the last group.
const LEGEND_WIDTH_RATIO: f64 = 0.26;
pub(crate) const SIZE: (u32, u32) = (900, 420);

/// A chart over numbers, as SVG.
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
/// Result of drawing.
pub(crate) type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Draws the names of a chart's series.
pub(crate) fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, place: SeriesLabelPosition) -> Drawn {
    let labels =
        chart.configure_series_labels().position(place).border_style(BLACK.mix(0.3)).background_style(WHITE).draw();
    Ok(labels?)
}

/// Returns the names of the turns with a rate, in the order in which they ran.
pub(crate) fn rated(args: &Args) -> Vec<String> {
    let turns = Turn::all(&args.workloads);
    turns.iter().filter(|turn| turn.workload != Workload::Idle).map(|turn| turn.name()).collect()
}

/// Draws the medians of a run to `file`. Whiskers show the minimum and the maximum round.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written.
pub(crate) fn draw(args: &Args, findings: &Findings, file: &Path) -> Result<()> {
    let rows = rows(args, findings);
    let picture = picture(args, &rows).map_err(|error| std::io::Error::other(error.to_string()));
    let written = picture.and_then(|svg| std::fs::write(file, svg));
    written.map_err(|source| Error::io("writing the plot", file, source))
}

fn picture(args: &Args, rows: &[Row]) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let rates = |store: &str, workload: &str| {
        let row = rows.iter().find(|row| row.store == store && row.workload == workload)?;
        Some([row.ops_per_s, row.ops_per_s_min, row.ops_per_s_max].map(|rate| rate / 1e6))
    };
    let unit = "million operations a second";
    let named = |store: &str| marked(rows, store);
    Bars { title: title(args, rows), unit, groups: rated(args), stores: args.targets(), named: &named, figure: &rates }
        .svg()
}

/// Returns each text once, in the order of first occurrence.
fn each_once<'a>(all: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    all.fold(Vec::new(), |mut seen, text| {
        if !seen.contains(&text.as_str()) {
            seen.push(text.as_str());
        }
        seen
    })
}

/// Returns the durabilities of the acknowledged writes in these rows.
fn levels<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<&'a str> {
    each_once(rows.filter(|row| row.failed.is_none()).map(|row| &row.durability))
}

/// Returns the workloads of these rows at a durability, and the durability.
fn of_level<'a>(rows: impl Iterator<Item = &'a Row>, level: &str) -> String {
    let own = rows.filter(|row| row.durability == level && row.failed.is_none());
    format!("{}: {level}", each_once(own.map(|row| &row.workload)).join(" "))
}

/// Returns a store's name in a legend, followed by its durability if the stores of a workload
/// differ in it.
pub(crate) fn marked(rows: &[Row], store: &str) -> String {
    let differ = rows.iter().any(|one| levels(rows.iter().filter(|row| row.workload == one.workload)).len() > 1);
    let own = || rows.iter().filter(|row| row.store == store);
    let own_levels = levels(own());
    // Of several durabilities, as with a weaker one for the load, the last one counts; the others
    // are listed with their workloads.
    let Some((last, others)) = own_levels.split_last().filter(|_| differ) else { return store.into() };
    let others: Vec<_> = others.iter().map(|level| of_level(own(), level)).collect();
    let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    format!("{store}: {last}{others}")
}

/// Returns the durability for the title of a picture. If workloads differ in it, each is listed; if
/// stores differ, the legend shows it.
pub(crate) fn durabilities(rows: &[Row]) -> String {
    match levels(rows.iter()).as_slice() {
        [] => String::new(),
        [one] => (*one).into(),
        several if rows.iter().any(|row| marked(rows, &row.store) != row.store) => several.join(" and "),
        several => several.iter().map(|level| of_level(rows.iter(), level)).collect::<Vec<_>>().join(", "),
    }
}

/// A bar chart: each group has a bar for each store.
pub(crate) struct Bars<'a> {
    pub(crate) title: String,
    pub(crate) unit: &'a str,
    pub(crate) groups: Vec<String>,
    pub(crate) stores: Vec<String>,
    /// Returns a store's name in the legend.
    pub(crate) named: &'a dyn Fn(&str) -> String,
    /// Returns the height of a store's bar in a group, and the ends of its whisker.
    pub(crate) figure: &'a dyn Fn(&str, &str) -> Option<[f64; 3]>,
}

impl Bars<'_> {
    /// Draws the chart.
    ///
    /// # Errors
    /// Errors of drawing.
    pub(crate) fn svg(&self) -> std::result::Result<String, Box<dyn std::error::Error>> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&area)
                .caption(&self.title, ("sans-serif", 15))
                .margin(12)
                .x_label_area_size(28)
                .y_label_area_size(52)
                .build_cartesian_2d(
                    0.0..self.groups.len() as f64 * (1.0 + LEGEND_WIDTH_RATIO),
                    0.0..self.greatest() * 1.12,
                )?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .disable_x_axis()
                .y_max_light_lines(1)
                .y_desc(self.unit)
                .label_style(("sans-serif", 12))
                .draw()?;
            let middle = TextStyle::from(("sans-serif", 12).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
            for (index, name) in self.groups.iter().enumerate() {
                let at = chart.backend_coord(&(index as f64 + 0.5, 0.0));
                area.draw(&Text::new(name.clone(), (at.0, at.1 + 8), middle.clone()))?;
            }
            for (place, store) in self.stores.iter().enumerate() {
                let colour = COLOURS[place % COLOURS.len()];
                let bars = self.bars(place);
                let boxes =
                    bars.iter().map(|bar| Rectangle::new([(bar.from, 0.0), (bar.to, bar.mid)], colour.filled()));
                chart
                    .draw_series(boxes)?
                    .label((self.named)(store))
                    .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
                let whiskers = bars.iter().map(|bar| {
                    let at = f64::midpoint(bar.from, bar.to);
                    PathElement::new([(at, bar.least), (at, bar.most)], BLACK)
                });
                chart.draw_series(whiskers)?;
            }
            legend(&mut chart, SeriesLabelPosition::UpperRight)?;
            area.present()?;
        }
        Ok(svg)
    }

    /// Returns the greatest number that is drawn.
    fn greatest(&self) -> f64 {
        let of =
            |store: &String| self.groups.iter().filter_map(|group| (self.figure)(store, group)).flatten().collect();
        let most = self.stores.iter().flat_map(|store| -> Vec<f64> { of(store) }).fold(0.0, f64::max);
        if most > 0.0 { most } else { 1.0 }
    }

    /// Returns the bars of the store at this index.
    fn bars(&self, place: usize) -> Vec<Bar> {
        let width = 0.8 / self.stores.len() as f64;
        let bar = |(group, name): (usize, &String)| {
            let [mid, least, most] = (self.figure)(&self.stores[place], name)?;
            let from = group as f64 + 0.1 + place as f64 * width;
            Some(Bar { from, to: from + width * 0.94, mid, least, most })
        };
        self.groups.iter().enumerate().filter_map(bar).collect()
    }
}

/// A bar: its position, its height, and the ends of its whisker.
struct Bar {
    from: f64,
    to: f64,
    mid: f64,
    least: f64,
    most: f64,
}

/// Returns the title of a run's picture, in one line.
pub(crate) fn title(args: &Args, rows: &[Row]) -> String {
    let durability = durabilities(rows);
    format!(
        "{} records of {} + {} bytes, {} thread{}, {durability}{}, {} round{}",
        args.records,
        args.key_size,
        args.value_size,
        args.threads,
        if args.threads == 1 { "" } else { "s" },
        if args.emulate_dax { ", every flush and fence executed" } else { "" },
        args.rounds,
        if args.rounds == 1 { "" } else { "s" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    #[test]
    fn each_store_has_a_bar_in_each_group_that_it_ran() {
        let figures = [("ours", "get", 2.0), ("ours", "load", 1.0), ("theirs", "get", 0.5)];
        let figure = |store: &str, group: &str| {
            let found = figures.iter().find(|figure| (figure.0, figure.1) == (store, group))?;
            Some([found.2, found.2 / 2.0, found.2 * 2.0])
        };
        let (groups, stores) = (["load", "get"].map(String::from).into(), ["ours", "theirs"].map(String::from).into());
        let all =
            Bars { title: "a title".into(), unit: "apples", groups, stores, named: &str::to_string, figure: &figure };
        let (ours, theirs) = (all.bars(0), all.bars(1));
        assert_eq!(ours.len(), 2);
        assert!(ours[0].to <= ours[1].from && (ours[1].mid - 2.0).abs() < 1e-9);
        assert!(theirs.len() == 1 && theirs[0].from >= ours[1].to);
        assert!((all.greatest() - 4.0).abs() < 1e-9, "the whiskers are drawn too");
        let svg = all.svg().expect("a picture");
        assert!(["a title", "apples", "ours", "theirs"].iter().all(|text| svg.contains(text)), "{svg}");
        let none = Bars { groups: vec!["scan".into()], ..all };
        assert!(none.greatest() > 0.0, "a scale needs some length");
    }

    /// Two stores of the largest experiment used to have the colours of two others.
    #[test]
    fn no_two_stores_have_one_colour() {
        let mut all: Vec<_> = COLOURS.iter().map(|colour| (colour.0, colour.1, colour.2)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), COLOURS.len());
    }

    #[test]
    fn stores_of_another_durability_say_so_in_the_legend() {
        let row = |store: &str, workload: &str, level: &str| Row {
            durability: level.into(),
            ..Row::for_plot(store, workload, 1e6)
        };
        let args = parsed("--engine hikv --peers hashmap --workloads load,get");
        let all = |level: &str| [row("hikv", "get", "process"), row("hashmap", "get", level)];
        assert_eq!((marked(&all("process"), "hikv"), durabilities(&all("process"))), ("hikv".into(), "process".into()));
        let mixed = all("none");
        assert_eq!(
            (marked(&mixed, "hashmap"), durabilities(&mixed)),
            ("hashmap: none".into(), "process and none".into())
        );
        assert!(picture(&args, &mixed).expect("a picture").contains("hashmap: none"));
        // A load with a weaker durability than the later workloads does not belong to another
        // store.
        let staged = [row("hikv", "load", "process"), row("hikv", "get", "power"), row("hikv", "a", "power")];
        assert_eq!(
            (marked(&staged, "hikv"), durabilities(&staged)),
            ("hikv".into(), "load: process, get a: power".into())
        );
        let beside = [&staged[..], &[row("redb", "load", "power")]].concat();
        let names = ["hikv", "redb"].map(|store| marked(&beside, store));
        assert_eq!(names, ["hikv: power (load: process)", "redb: power"]);
        let failed = Row { failed: Some("full".into()), ..row("nvht", "get", "none") };
        assert_eq!(durabilities(&[&all("process")[..], &[failed]].concat()), "process");
        assert_eq!(durabilities(&[]), "");
    }

    #[test]
    fn each_turn_of_a_workload_is_a_group_and_an_idle_one_has_none() {
        let args = parsed("--workloads get,load,idle,get");
        assert_eq!(rated(&args), ["get", "load", "get-2"]);
    }
}

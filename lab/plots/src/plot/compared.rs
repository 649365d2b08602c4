//! A quantity of stores: bars for each workload, or lines over the values of a sweep.
//!
//! The values of a sweep are in the order of the rows, at equal distances: they are settings, not
//! measurements.

use super::bars::{Bar, Bars};
use super::choice::{SERIES_MAX, choose};
use super::describe::{describe, named};
use super::figure::Figure;
use super::lines::{Axis, Line, Lines, Spot, scale_of};
use super::unit::Unit;
use crate::row::{Row, distinct};
use crate::store::is_ours;

/// Height of a panel of lines.
const LINES_PIXELS: f64 = 290.0;
/// Height of the only panel of lines.
const ONLY_LINES_PIXELS: f64 = 380.0;
/// Panels of bars in a row, and panels of lines.
const BARS_ACROSS_MAX: usize = 3;
const LINES_ACROSS_MAX: usize = 2;

/// The quantity of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Operations per second.
    Rate,
    /// Bytes of keys and values per second, if their size is swept.
    Bytes,
    /// Bytes written for each byte put. The kernel's count of device writes counts a page once if
    /// it is rewritten before it reaches the device.
    Written,
    /// Growth of RssAnon per key: the kernel counts it for all stores alike.
    Memory,
}

impl Quantity {
    /// Returns the quantity of a plot of rates.
    pub(crate) fn rate(rows: &[Row]) -> Self {
        let sized =
            |row: &Row| row.sweep.as_ref().is_some_and(|swept| ["value-size", "key-size"].contains(&&*swept.name));
        let has_sizes = rows.iter().all(|row| row.record_bytes().is_some());
        if has_sizes && rows.iter().any(sized) { Self::Bytes } else { Self::Rate }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Rate => "Operations a second",
            Self::Bytes => "Bytes of keys and values a second",
            Self::Written => "Bytes written for each byte put",
            Self::Memory => "Bytes of DRAM a key (growth of RssAnon)",
        }
    }

    fn unit(self) -> Unit {
        match self {
            Self::Rate | Self::Bytes => Unit::Count,
            Self::Written | Self::Memory => Unit::Plain,
        }
    }

    /// Returns how to read the thin lines.
    fn range_note(self, rows: &[&Row]) -> &'static str {
        match self {
            Self::Rate | Self::Bytes if rows.iter().any(|row| row.rounds > 1) => {
                "; thin lines: from the least to the greatest round"
            }
            Self::Rate | Self::Bytes | Self::Written | Self::Memory => "",
        }
    }

    /// Returns the number of a row, and the ends of its range.
    fn of(self, row: &Row) -> Option<[f64; 3]> {
        let rates = [row.ops_per_s, row.ops_per_s_min, row.ops_per_s_max];
        match self {
            Self::Rate => Some(rates).filter(|rates| rates[0] > 0.0),
            Self::Bytes => row.record_bytes().map(|bytes| rates.map(|rate| rate * bytes)),
            Self::Written => row.write_amplification.map(|times| [times; 3]),
            Self::Memory => Some([row.rss_anon_bytes_per_key; 3]),
        }
    }

    /// Returns the score of a row: a greater one is better.
    fn score(self, row: &Row) -> Option<f64> {
        let number = self.of(row)?[0];
        match self {
            Self::Rate | Self::Bytes => Some(number),
            Self::Written => Some(1.0 / number),
            // A store may have grown by nothing.
            Self::Memory => Some(1.0 / number.max(0.01)),
        }
    }
}

/// Draws a quantity of these rows.
pub(crate) fn draw(rows: &[Row], quantity: Quantity) -> String {
    let measured: Vec<&Row> = rows.iter().filter(|row| is_drawn(row) && quantity.of(row).is_some()).collect();
    // A failed store may be the first with a value of the sweep.
    let values = distinct(rows.iter().filter_map(|row| row.sweep.as_ref()).map(|swept| swept.value.as_str()));
    match measured.iter().find_map(|row| row.sweep.as_ref()) {
        None => bars(&measured, quantity),
        Some(swept) => {
            let load: Vec<&Row> = measured.iter().copied().filter(|row| row.workload == "load").collect();
            // A store is largest after the load.
            let told = if quantity == Quantity::Memory && !load.is_empty() { load } else { measured.clone() };
            lines(&told, quantity, &swept.name, &values)
        }
    }
}

/// Returns whether a row is of a workload at full speed.
fn is_drawn(row: &Row) -> bool {
    let is_measured = row.failed.is_none() && row.reopen.is_none() && row.open_loop.is_none() && !row.is_step();
    is_measured && row.workload.split('-').next() != Some("idle")
}

fn workloads<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    distinct(rows.iter().map(|row| row.workload.as_str()))
}

/// Joins the parts of a note that are not empty.
fn note(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("; ")
}

fn bars(rows: &[&Row], quantity: Quantity) -> String {
    let choice = choose(rows, &|row| quantity.score(row));
    let rows = &choice.rows(rows);
    let bar = |workload: &str, store: &str| {
        let row = rows.iter().find(|row| row.store == store && row.workload == workload)?;
        let [number, least, most] = quantity.of(row)?;
        Some(Bar { name: named(rows, store), is_ours: is_ours(store), number, range: [least, most] })
    };
    let panel = |workload: &str| {
        let bars = choice.stores.iter().filter_map(|store| bar(workload, store)).collect();
        Bars { caption: workload.into(), unit: quantity.unit(), bars }
    };
    let panels: Vec<Bars> = workloads(rows).into_iter().map(panel).filter(|panel| !panel.bars.is_empty()).collect();
    let dots = if panels.iter().any(|panel| panel.scale().is_log()) {
        "dots: a logarithmic scale, since the numbers differ by more than ten times"
    } else {
        ""
    };
    let colours = if choice.stores.iter().all(|store| is_ours(store)) { "" } else { "blue: ours" };
    let what = format!("{}{}", describe(rows), quantity.range_note(rows));
    let note = note(&[&what, dots, colours, &choice.note]);
    Figure { title: quantity.title().into(), note, panels, across: BARS_ACROSS_MAX }.svg()
}

fn lines(rows: &[&Row], quantity: Quantity, swept: &str, values: &[&str]) -> String {
    let choice = choose(rows, &|row| quantity.score(row));
    let rows = &choice.rows(rows);
    let line = |store: &str, workload: &str, name: String, series: usize| {
        let spot = |(at, value): (usize, &&str)| {
            let of_value = |row: &&&Row| row.sweep.as_ref().is_some_and(|swept| swept.value == **value);
            let row = rows.iter().filter(of_value).find(|row| row.store == store && row.workload == workload)?;
            let [y, least, most] = quantity.of(row)?;
            Some(Spot { x: at as f64, y, range: [least, most] })
        };
        Line { name, series, pieces: vec![values.iter().enumerate().filter_map(spot).collect()] }
    };
    let all = workloads(rows);
    let mut left_out = String::new();
    let panels: Vec<(String, Vec<Line>)> = match choice.stores.as_slice() {
        [store] => {
            if all.len() > SERIES_MAX {
                left_out = format!("the first {SERIES_MAX} of {} workloads", all.len());
            }
            let shown = all.iter().take(SERIES_MAX).enumerate();
            let lines = shown.map(|(series, workload)| line(store, workload, (*workload).into(), series));
            vec![(String::new(), lines.collect())]
        }
        stores => {
            let of = |workload: &&str| {
                let stores = stores.iter().enumerate();
                stores.map(|(series, store)| line(store, workload, named(rows, store), series)).collect()
            };
            all.iter().map(|workload| ((*workload).into(), of(workload))).collect()
        }
    };
    let scale = scale_of(panels.iter().flat_map(|(_, lines)| lines));
    let marks: Vec<(f64, String)> = values.iter().enumerate().map(|(at, value)| (at as f64, (*value).into())).collect();
    let axis = Axis { name: swept.into(), ends: [-0.2, values.len() as f64 - 0.8], marks };
    let height = if panels.len() == 1 { ONLY_LINES_PIXELS } else { LINES_PIXELS };
    let panel = |(caption, lines)| Lines {
        caption,
        unit: quantity.unit(),
        axis: axis.clone(),
        scale,
        lines,
        places: Vec::new(),
        height,
    };
    let log = if scale.is_log() { "logarithmic scale" } else { "" };
    let of_store = if let [store] = choice.stores.as_slice() { format!("of {store}, ") } else { String::new() };
    let title = format!("{} {of_store}by {swept}", quantity.title());
    let what = format!("{}{}", describe(rows), quantity.range_note(rows));
    let note = note(&[&what, log, &choice.note, &left_out]);
    Figure { title, note, panels: panels.into_iter().map(panel).collect(), across: LINES_ACROSS_MAX }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Swept;

    fn row(store: &str, workload: &str, value: &str, rate: f64) -> Row {
        let sweep = Some(Swept { name: "threads".into(), value: value.into() });
        let durability = "process".into();
        Row { sweep, durability, ops_per_s_min: rate, ops_per_s_max: rate, ..Row::of_rate(store, workload, rate) }
    }

    fn has(svg: &str, texts: &[&str]) {
        for text in texts {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
    }

    #[test]
    fn without_a_sweep_each_workload_has_a_panel_with_a_bar_for_each_store() {
        let bare = |store: &str, workload: &str, rate| Row { sweep: None, ..row(store, workload, "", rate) };
        let failed = Row { failed: Some("full".into()), ..bare("nvht", "failed", 0.0) };
        let rows = [
            bare("hikv", "load", 4e6),
            bare("hikv", "get", 2e6),
            bare("lmdb", "get", 1e6),
            bare("hikv", "idle", 1.0),
            failed,
        ];
        let svg = draw(&rows, Quantity::Rate);
        has(&svg, &["Operations a second", ">load<", ">get<", ">lmdb<", ">4 M<", "blue: ours"]);
        assert!(!svg.contains("idle") && !svg.contains("nvht") && !svg.contains("logarithmic"), "{svg}");
    }

    #[test]
    fn one_store_has_a_line_a_workload_and_several_have_a_panel_a_workload() {
        let rows = [
            row("hikv", "load", "1", 1e6),
            row("hikv", "load", "2", 2e6),
            row("hikv", "get", "1", 3e6),
            row("hikv", "get", "2", 5e6),
        ];
        let svg = draw(&rows, Quantity::Rate);
        has(&svg, &["Operations a second of hikv, by threads", ">load<", ">get<", ">1<", ">2<"]);
        let lines = |svg: &str| svg.matches("stroke-width=\"2\"").count();
        assert_eq!(lines(&svg), 2, "{svg}");
        let several = [&rows[..], &[row("lmdb", "get", "1", 3e5), row("lmdb", "get", "2", 2e5)]].concat();
        let svg = draw(&several, Quantity::Rate);
        has(&svg, &["Operations a second by threads", ">hikv<", ">lmdb<", "logarithmic scale"]);
        assert_eq!(lines(&svg), 3, "lmdb has no load: {svg}");
    }

    #[test]
    fn a_sweep_of_sizes_is_of_bytes_if_their_mean_is_known() {
        let sized = |value: &str, bytes: u64| {
            let sweep = Some(Swept { name: "value-size".into(), value: value.into() });
            Row { sweep, key_size: 16.into(), value_size: bytes.into(), ..row("hikv", "load", value, 1e6) }
        };
        let rows = [sized("100", 100), sized("1000", 1000)];
        assert_eq!(Quantity::rate(&rows), Quantity::Bytes);
        assert_eq!(Quantity::Bytes.of(&rows[0]).map(|all| all[0]), Some(116e6));
        assert_eq!(Quantity::rate(&[row("hikv", "load", "1", 1e6)]), Quantity::Rate);
    }

    #[test]
    fn the_memory_of_a_sweep_is_as_the_load_left_it() {
        let with = |workload: &str, value: &str, grown: f64| {
            let row = row("hikv", workload, value, 1e6);
            // The store's own count is not comparable.
            Row { dram_bytes_per_key: 7e9, rss_anon_bytes_per_key: grown, ..row }
        };
        let svg = draw(&[with("load", "1", 20.0), with("load", "2", 30.0), with("get", "1", 9e6)], Quantity::Memory);
        has(&svg, &["Bytes of DRAM a key (growth of RssAnon) of hikv, by threads", ">30<"]);
        assert!(!svg.contains(">get<") && !svg.contains("logarithmic"), "{svg}");
    }

    #[test]
    fn what_put_nothing_is_not_in_a_plot_of_bytes_written() {
        let written = |times| Row { write_amplification: times, ..row("hikv", "load", "1", 1e6) };
        let reads = Row { workload: "get".into(), ..written(None) };
        let svg = draw(&[written(Some(1.5)), reads], Quantity::Written);
        assert!(svg.contains(">load<") && !svg.contains(">get<"), "{svg}");
    }
}

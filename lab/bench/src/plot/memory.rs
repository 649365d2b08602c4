//! DRAM per key as an SVG picture: a bar per store, a group of bars per workload. For a sweep a
//! group per value, as the load left it.

use std::path::Path;

use lodestore_contract::{Error, Result};

use crate::args::Args;
use crate::plot;
use crate::plot::{Bars, marked, rated, title};
use crate::report::row::{Row, rows};
use crate::run::session::Findings;
use crate::workload::Workload;

const UNIT: &str = "bytes of DRAM a key; line: to the growth of RssAnon";

/// Draws the DRAM of a run to `file`: bars of the stores' own statistics, as in the column `DRAM
/// B/key`, each with a line to `RSS B/key`.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written.
pub(crate) fn draw(args: &Args, findings: &Findings, file: &Path) -> Result<()> {
    let picture = picture(args, &rows(args, findings)).map_err(|error| std::io::Error::other(error.to_string()));
    let written = picture.and_then(|svg| std::fs::write(file, svg));
    written.map_err(|source| Error::io("writing the plot", file, source))
}

/// Returns a row's own DRAM, and the minimum and the maximum of it and RssAnon.
fn figure(row: &Row) -> [f64; 3] {
    let (own, rss) = (row.dram_bytes_per_key, row.rss_anon_bytes_per_key);
    [own, own.min(rss), own.max(rss)]
}

fn picture(args: &Args, rows: &[Row]) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let (unit, stores) = (UNIT, args.targets());
    let named = |store: &str| marked(rows, store);
    let Some(sweep) = &args.sweep else {
        let of = |store: &str, workload: &str| {
            rows.iter().find(|row| row.store == store && row.workload == workload).map(figure)
        };
        return Bars { title: title(args, rows), unit, groups: rated(args), stores, named: &named, figure: &of }.svg();
    };
    // The first reported workload, if the load is not reported.
    let load = Workload::Load.name();
    let told = rated(args);
    let workload = told.iter().find(|name| *name == load).or(told.first()).map_or(load, String::as_str);
    let of = |store: &str, value: &str| {
        let with = |row: &&Row| row.sweep.as_ref().is_some_and(|swept| swept.value == value);
        rows.iter().filter(with).find(|row| row.store == store && row.workload == workload).map(figure)
    };
    let title = format!("{}, behind {workload}", plot::sweep::title(args, sweep, rows));
    Bars { title, unit, groups: sweep.values.clone(), stores, named: &named, figure: &of }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;
    use crate::report::row::Swept;

    fn row(store: &str, workload: &str, value: &str, own: f64) -> Row {
        let mut row = Row::for_plot(store, workload, 1e6);
        row.sweep = Some(Swept { name: "threads".into(), value: value.into() });
        (row.dram_bytes_per_key, row.rss_anon_bytes_per_key) = (own, 50.0);
        row
    }

    #[test]
    fn a_bar_is_the_own_account_and_its_line_goes_to_that_of_the_kernel() {
        let figures = [20.0, 90.0].map(|own| figure(&row("ours", "load", "1", own)));
        assert_eq!(figures, [[20.0, 20.0, 50.0], [90.0, 50.0, 90.0]]);
    }

    #[test]
    fn stores_of_another_durability_say_so_in_the_legend() {
        let at = |store: &str, level: &str| Row { durability: level.into(), ..row(store, "load", "1", 20.0) };
        let args = parsed("--engine hikv --peers hashmap --workloads load --sweep threads=1,2");
        let svg = picture(&args, &[at("hikv", "process"), at("hashmap", "none")]).expect("a picture");
        assert!(svg.contains("hashmap: none") && svg.contains("hikv: process"), "{svg}");
    }

    #[test]
    fn a_sweep_has_a_group_a_value_as_the_load_left_it() {
        let rows = [("1", 20.0), ("2", 30.0)].map(|(value, own)| row("hikv", "load", value, own));
        // A bar of another workload would be higher than all of these.
        let rows = [rows.to_vec(), vec![row("hikv", "get", "1", 9e6)]].concat();
        let svg = picture(&parsed("--workloads get,load --sweep threads=1,2"), &rows).expect("a picture");
        assert!(svg.contains("behind load") && !svg.contains("000000.0"), "{svg}");
        let svg = picture(&parsed("--workloads get --sweep threads=1,2"), &rows).expect("a picture");
        assert!(svg.contains("behind get") && svg.contains("000000.0"), "{svg}");
    }
}

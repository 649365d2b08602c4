//! Stores with the same durability, line by line.

use std::cmp::Ordering;

use crate::metric::Measure;
use crate::row::Row;
pub(super) use crate::row::{distinct, strength};
pub(super) use crate::store::{is_ours, keeps_no_order};

/// Returns the label of a row: its workload, its value in a sweep, and in an open loop the
/// requested rate. The same workload may also have run in a closed loop.
pub(super) fn what(row: &Row) -> String {
    let swept = row.sweep.as_ref().map(|swept| format!(" {swept}"));
    let asked = row.open_loop.as_ref().map(|found| format!(" at {}/s", found.asked_per_s));
    format!("{}{}{}", row.workload, swept.unwrap_or_default(), asked.unwrap_or_default())
}

/// A line of tables: its label, and the row of each store that ran it.
pub(super) type Line<'a> = (String, Vec<Option<&'a Row>>);

/// Stores of one durability.
#[derive(Debug)]
pub(super) struct Level<'a> {
    /// The durability.
    pub(super) name: &'a str,
    /// The stores, Lodestore's first.
    pub(super) stores: Vec<&'a str>,
    /// A line for each workload.
    pub(super) lines: Vec<Line<'a>>,
}

impl<'a> Level<'a> {
    /// Returns the durabilities of these rows, the strongest first.
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

    /// Returns the row of a store in a line of this name.
    pub(super) fn row(&self, line: &str, store: &str) -> Option<&'a Row> {
        let cells = &self.lines.iter().find(|(name, _)| name == line)?.1;
        cells.iter().flatten().find(|row| row.store == store).copied()
    }
}

/// Returns the best peer of a line, and its number.
pub(super) fn best_peer<'a>(line: &Line<'a>, measure: Measure) -> Option<Best<'a>> {
    let peers = line.1.iter().flatten().filter(|row| !is_ours(&row.store));
    let told = peers.filter_map(|row| measure.of(row).map(|figure| Best { row, figure }));
    let better = |one: &Best<'_>, other: &Best<'_>| match measure {
        Measure::Rate => one.figure.total_cmp(&other.figure),
        _ => other.figure.total_cmp(&one.figure),
    };
    // Of equal rows the first one wins.
    told.reduce(|best, next| if better(&next, &best) == Ordering::Greater { next } else { best })
}

/// The best store of a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Best<'a> {
    pub(super) row: &'a Row,
    pub(super) figure: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::sample::{at, row};

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
    fn the_best_peer_is_the_one_with_most_a_second_or_least_bytes() {
        let sized =
            |store: &str, rate: f64, dram: f64| Row { rss_anon_bytes_per_key: dram, ..row(store, "load", rate) };
        let rows = [sized("hikv", 99.0, 0.1), sized("rocksdb", 5.0, 10.0), sized("lmdb", 9.0, 20.0)];
        let levels = Level::all(&rows);
        let best = |measure| best_peer(&levels[0].lines[0], measure).map(|best| best.row.store.as_str());
        assert_eq!((best(Measure::Rate), best(Measure::Dram)), (Some("lmdb"), Some("rocksdb")));
        assert_eq!(best_peer(&Level::all(&rows[..1])[0].lines[0], Measure::Rate).map(|best| best.figure), None);
    }
}

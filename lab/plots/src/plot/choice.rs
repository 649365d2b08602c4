//! The choice of the series of a plot. A plot with more than [`SERIES_MAX`] series is not read.

use std::collections::BTreeMap;

use crate::row::{Row, distinct};
use crate::store::is_ours;

/// Maximum series of a plot.
pub(crate) const SERIES_MAX: usize = 8;

/// The stores of a plot.
#[derive(Debug, PartialEq)]
pub(crate) struct Choice<'a> {
    /// The stores, in the order of the rows.
    pub(crate) stores: Vec<&'a str>,
    /// The rule of the choice; empty if all stores are shown.
    pub(crate) note: String,
}

impl Choice<'_> {
    /// Returns the rows of the chosen stores.
    pub(crate) fn rows<'r>(&self, rows: &[&'r Row]) -> Vec<&'r Row> {
        rows.iter().copied().filter(|row| self.stores.contains(&row.store.as_str())).collect()
    }
}

/// The score of a row, if the plot shows it.
type Score<'a> = &'a dyn Fn(&Row) -> Option<f64>;

/// Chooses the stores of these rows. A greater score is a better one. The rows of each workload and
/// swept value are compared with each other.
///
/// All of ours are shown first, then the best peers of a durability that one of ours has, then the
/// best other peers. The best peer has the greatest geometric mean of its scores, relative to the
/// best score of any store.
pub(crate) fn choose<'a>(rows: &[&'a Row], score: Score<'_>) -> Choice<'a> {
    let all = distinct(rows.iter().filter(|row| score(row).is_some()).map(|row| row.store.as_str()));
    if all.len() <= SERIES_MAX {
        return Choice { stores: all, note: String::new() };
    }
    let levels = distinct(rows.iter().filter(|row| is_ours(&row.store)).map(|row| row.durability.as_str()));
    let means = means(rows, score);
    let rank = |store: &str| {
        let is_equal = rows.iter().any(|row| row.store == store && levels.contains(&row.durability.as_str()));
        (is_ours(store), is_equal, means.get(store).copied().unwrap_or(f64::NEG_INFINITY))
    };
    let mut ranked = all.clone();
    ranked.sort_by(|one, other| {
        let (one, other) = (rank(one), rank(other));
        // The sort is stable, so equal stores keep their order.
        (other.0, other.1).cmp(&(one.0, one.1)).then(if one.0 {
            std::cmp::Ordering::Equal
        } else {
            other.2.total_cmp(&one.2)
        })
    });
    let shown = &ranked[..SERIES_MAX];
    let note = format!("{SERIES_MAX} of {} stores: ours, and the best peers of equal durability", all.len());
    Choice { stores: all.iter().copied().filter(|store| shown.contains(store)).collect(), note }
}

/// Returns the mean logarithm of each store's scores, relative to the best score of each line.
fn means<'a>(rows: &[&'a Row], score: Score<'_>) -> BTreeMap<&'a str, f64> {
    let line = |row: &Row| (row.workload.clone(), row.sweep.as_ref().map(ToString::to_string));
    let scored: Vec<_> = rows.iter().filter_map(|row| Some((row.store.as_str(), line(row), score(row)?))).collect();
    let mut best = BTreeMap::new();
    for (_, line, score) in &scored {
        let best = best.entry(line).or_insert(0.0_f64);
        *best = best.max(*score);
    }
    let mut logs: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (store, line, score) in &scored {
        logs.entry(store).or_default().push((score / best[line]).ln());
    }
    logs.into_iter().map(|(store, logs)| (store, logs.iter().sum::<f64>() / logs.len() as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(store: &str, workload: &str, rate: f64, durability: &str) -> Row {
        Row { durability: durability.into(), ..Row::of_rate(store, workload, rate) }
    }

    fn chosen(rows: &[Row]) -> (Vec<&str>, String) {
        let choice = choose(&rows.iter().collect::<Vec<_>>(), &|row| Some(row.ops_per_s).filter(|rate| *rate > 0.0));
        (choice.stores, choice.note)
    }

    #[test]
    fn up_to_eight_stores_are_all_shown_whatever_they_are() {
        let rows: Vec<_> = (0..8).map(|at| row(&format!("peer{at}"), "get", 1.0, "none")).collect();
        let (stores, note) = chosen(&rows);
        assert_eq!((stores.len(), note.as_str()), (8, ""));
    }

    #[test]
    fn of_more_ours_are_shown_and_the_best_peers_of_equal_durability() {
        let ours = ["hikv", "nvht", "fluidkv", "hashkv", "mkvs"].map(|store| row(store, "get", 1.0, "process"));
        let peers = [
            row("slow", "get", 0.1, "process"),
            row("map", "get", 99.0, "none"),
            row("fast", "get", 5.0, "process"),
            // A rate of another workload does not count more because it is greater.
            row("multi", "multiget", 500.0, "process"),
            row("fast", "multiget", 1000.0, "process"),
            row("middle", "get", 2.0, "process"),
            row("failed", "get", 0.0, "process"),
        ];
        let rows = [&ours[..], &peers].concat();
        let (stores, note) = chosen(&rows);
        assert_eq!(stores, ["hikv", "nvht", "fluidkv", "hashkv", "mkvs", "fast", "multi", "middle"]);
        assert_eq!(note, "8 of 10 stores: ours, and the best peers of equal durability");
    }
}

//! Tests with histories that have damaged records.

use std::collections::HashMap;

use super::*;
use crate::version::manifest::record::Found;
use crate::version::manifest::salvage::salvage;

/// The age of each table's data: key intervals, each with the generation of its flush.
#[derive(Default)]
struct Ages(HashMap<u64, Vec<(u64, u64, u64)>>);

impl Ages {
    /// Records the ages of the tables that an edit makes.
    fn note(&mut self, edit: &Edit) {
        match edit {
            Edit::Flush { generation, added, .. } => {
                let of = |table: &TableDescriptor| vec![(number(&table.min), number(&table.max), *generation)];
                self.0.extend(added.iter().map(|(_, table)| (table.identity, of(table))));
            }
            Edit::Compaction { removed, added, .. } => {
                let merged: Vec<_> = removed.iter().flat_map(|identity| self.0[identity].clone()).collect();
                for table in added {
                    let (min, max) = (number(&table.min), number(&table.max));
                    let inside = merged.iter().map(|(from, to, age)| ((*from).max(min), (*to).min(max), *age));
                    self.0.insert(table.identity, inside.filter(|(from, to, _)| from <= to).collect());
                }
            }
            _ => {}
        }
    }

    fn at(&self, table: &TableDescriptor, key: u64) -> Option<u64> {
        let there = self.0[&table.identity].iter().filter(|(from, to, _)| (*from..=*to).contains(&key));
        there.map(|(.., age)| *age).max()
    }

    /// Returns the first table that hides newer data, and the table that it hides.
    fn hiding(&self, state: &ManifestState) -> Option<(u64, u64)> {
        state.ranges().iter().find_map(|range| {
            let tables: Vec<_> = range.tables().collect();
            let ends = tables.iter().flat_map(|table| self.0[&table.identity].iter());
            let keys: Vec<u64> = ends.flat_map(|(from, to, _)| [*from, *to]).collect();
            keys.into_iter().find_map(|key| {
                let ages: Vec<_> =
                    tables.iter().filter_map(|table| Some((table.identity, self.at(table, key)?))).collect();
                ages.windows(2).find(|pair| pair[0].1 < pair[1].1).map(|pair| (pair[0].0, pair[1].0))
            })
        })
    }
}

#[test]
fn a_salvage_without_some_records_never_hides_newer_data() {
    let mut rng = rng();
    let (mut refused, mut done) = (0, 0);
    for round in 0..400 {
        let mut history = History::random(&mut rng, 60);
        // Ages are known only of tables that the history made.
        if history.states[0].1.ranges().iter().any(|range| range.tables().next().is_some()) {
            continue;
        }
        let ends: Vec<usize> = history.states.iter().map(|(end, _)| *end).collect();
        let mut ages = Ages::default();
        for end in &ends[..ends.len() - 1] {
            let found = Found::whole(&history.bytes[*end..], history.nonce).expect("whole");
            ages.note(&found.kind().and_then(|kind| found.body().edit(kind)).expect("an edit"));
        }
        let (_, last) = history.states.last().expect("a state");
        assert_eq!(ages.hiding(last), None, "round {round}: the history itself");
        let whole = salvage(&history.bytes, history.nonce).expect("a state");
        assert_eq!((&whole.state, whole.damaged, whole.refused), (last, 0, 0), "round {round}");
        let count = 1 + rng.below(3);
        let mut damaged: Vec<usize> = (0..count).map(|_| rng.below(ends.len() - 1)).collect();
        damaged.sort_unstable();
        damaged.dedup();
        for index in &damaged {
            let at = ends[*index] + 24 + rng.below((ends[*index + 1] - ends[*index] - 24).max(1));
            history.bytes[at.min(ends[*index + 1] - 1)] ^= 4;
        }
        let kept = salvage(&history.bytes, history.nonce).expect("a state");
        assert_eq!(kept.damaged, damaged.len() as u64, "round {round}: records {damaged:?} of {}", ends.len() - 1);
        assert_eq!(ages.hiding(&kept.state), None, "round {round}: without {damaged:?}");
        refused += kept.refused;
        done += (ends.len() - 1) as u64 - kept.damaged - kept.refused;
    }
    assert!(refused > 100 && done > 100, "{refused} refused, {done} done");
    assert!(salvage(&[0; 100], 1).is_none(), "without a checkpoint there is no state");
}

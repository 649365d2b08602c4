//! The tables of docs/crash.md have the explorer's structures and kinds of damage.

use std::collections::BTreeSet;

use lodestore_sim::damage::fault::Kind;
use lodestore_sim::damage::map::structure_names;
use lodestore_sim::damage::table::{COLUMNS, markdown, structures_of, table_in};
use lodestore_sim::damage::{Config, explore};
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::hashkv::HashEngine;
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::mkvs::MkvsEngine;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::subject::Engine;

const PAGE: &str = include_str!("../../../../docs/crash.md");

#[test]
fn every_kind_of_damage_is_in_one_column() {
    for kind in Kind::ALL {
        let columns = COLUMNS.iter().filter(|(_, kinds)| kinds.contains(&kind)).count();
        assert_eq!(columns, 1, "{kind}");
    }
}

#[test]
fn the_committed_tables_have_the_structures_and_columns_that_the_explorer_knows() {
    let engines: [&dyn Engine; 5] = [&HiKvEngine, &NvhtEngine, &FluidEngine, &HashEngine, &MkvsEngine];
    for engine in engines {
        let name = engine.name();
        let table = table_in(PAGE, name).unwrap_or_else(|| panic!("no table of {name}"));
        let head = |table: &str| table.lines().find(|line| line.starts_with("| structure")).map(str::to_owned);
        let report = explore(engine, &Config { images: 640, ops_every: u64::MAX, ..Config::default() }, None);
        let met = markdown(name, &report);
        assert_eq!(head(table), head(&met), "the columns of {name}");
        let committed = structures_of(table);
        let missing: Vec<_> = structures_of(&met).difference(&committed).copied().collect();
        assert!(missing.is_empty(), "{name}: no rows for {missing:?}");
        let known: BTreeSet<&str> = structure_names(name).into_iter().collect();
        let unknown: Vec<_> = committed.difference(&known).collect();
        assert!(unknown.is_empty(), "{name}: the explorer does not know {unknown:?}");
    }
}

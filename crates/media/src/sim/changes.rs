//! The changes that planted faults make to the steps of a recorder, by line.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Mutex;

use crate::fault::PlantedFault;
use crate::fault::site::{Change, Effect, Site};
use crate::mutex::lock;
use crate::sim::event::Verb;
use crate::sim::image::{DropSite, SimSpec};

/// Lines of sites that were found before: a recorder is created for each image.
static FOUND: Mutex<BTreeMap<Site, Vec<u32>>> = Mutex::new(BTreeMap::new());

/// The changes of a recorder, by line.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<(u32, String, Effect)>);

impl Changes {
    /// Returns the changes of a pool with this behaviour.
    ///
    /// # Panics
    /// If the statement of a planted fault is not in its file.
    pub(super) fn of(spec: &SimSpec) -> Self {
        let mut all = Vec::new();
        let mut add = |line: u32, file: &str, effect| all.push((line, file.to_owned(), effect));
        if let Some(DropSite { verb, file, line }) = &spec.drop_site {
            effect_of_loss(*verb).into_iter().for_each(|effect| add(*line, file, effect));
        }
        let fault = spec.mutant.unwrap_or(PlantedFault::new(""));
        for Change { site, effect } in fault.changes() {
            let mut found = lock(&FOUND);
            let lines = found.entry(*site).or_insert_with(|| match site.find() {
                Ok(lines) => lines,
                Err(why) => panic!("{fault:?}: {why}"),
            });
            // The compiler names files from the workspace, or by their whole paths.
            let file = site.source.path.trim_start_matches("../");
            lines.iter().for_each(|line| add(*line, file, *effect));
        }
        Self(all)
    }

    fn has(&self, effect: Effect, site: &Location<'_>) -> bool {
        let is_here = |(line, file, change): &(u32, String, Effect)| {
            *line == site.line() && *change == effect && site.file().ends_with(file.as_str())
        };
        self.0.iter().any(is_here)
    }

    pub(super) fn loses(&self, verb: Verb, site: &Location<'_>) -> bool {
        effect_of_loss(verb).is_some_and(|effect| self.has(effect, site))
    }

    pub(super) fn is_unchecked(&self, site: &Location<'_>) -> bool {
        self.has(Effect::Unchecked, site)
    }

    pub(super) fn delays(&self, site: &Location<'_>) -> bool {
        self.has(Effect::Delayed, site)
    }

    pub(super) fn ends_delay(&self, site: &Location<'_>) -> bool {
        self.has(Effect::EndsDelay, site)
    }

    pub(super) fn zeroes_first(&self, site: &Location<'_>) -> bool {
        self.has(Effect::ZeroedFirst, site)
    }
}

/// Returns the effect that loses steps of this verb.
fn effect_of_loss(verb: Verb) -> Option<Effect> {
    match verb {
        Verb::Store => Some(Effect::LostStore),
        Verb::Flush => Some(Effect::LostFlush),
        Verb::Fence => Some(Effect::LostFence),
        Verb::Region | Verb::Mark => None,
    }
}

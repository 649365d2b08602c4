//! Damage that is indistinguishable from a legal crash state.
//!
//! Four rules decide, without a list of names:
//!
//! 1. **Rollback**: all files are as at one earlier moment, or all regions of the pool as at one of
//!    the last session. The open removes a region that the pool's header does not count yet.
//! 2. **Older line**: an in-place engine was killed, and a line or page of index entries has its
//!    content of an earlier moment. Entries are independent, so in-flight writes of these keys
//!    leave the same bytes. Each key has its state of the moment, or is absent if its entry was
//!    elsewhere then. A line of any other structure, and a whole file, must give the state of the
//!    moment exactly, of the same session. A matrix with one device per group has a whole store of
//!    each group in one file: each key may have its state of the moment then, or its last one.
//! 3. **In flight**: at one cut of an acknowledged operation of the last session, every line that
//!    the operation stored has a legal content, and no damaged line is durable yet. A damaged line
//!    must have a legal content too, except in a log: the bytes of a torn record are arbitrary.
//! 4. **Prefix**: the image is a legal crash image of an earlier cut of the last session. Bytes
//!    after the ends of logs, and a crash's leftovers of the interrupted operation, may differ
//!    (`prefix.rs`).
//!
//! Each match of a rule is one [`Explanation`]: the further answers allowed for each key, by its
//! state at that moment or before that operation. The image is judged again with each explanation,
//! and one must explain every answer. Rules 1 and 2 and the last part of rule 4 go beyond crash
//! states in the strict sense: docs/crash.md estimates the cost of finding such damage.

use std::collections::BTreeSet;

use lodestore_media::sim::{CrashSet, LineModel, SimImage, VALUES, What};

use super::base::{End, Step, observe};
use super::fault::{Fault, Kind, LINE_BYTES, PAGE_BYTES, Place, bytes_at, content};
use super::model::Model;
use super::prefix::explain_by_prefix;
use super::{Case, Known, map, spec};
use crate::op::{Op, State};
use crate::subject::Engine;

/// A line by its file and offset.
type Line = (u16, u64);

/// The engines that change their index in place.
fn is_in_place(engine: &dyn Engine) -> bool {
    ["hikv", "nvht", "mkvs"].contains(&engine.name())
}

/// Whether the bytes of a torn record may be anything in this structure.
fn is_log(name: &str) -> bool {
    ["log segment", "write-ahead log", "manifest"].iter().any(|log| name.starts_with(log))
}

/// Maximum pairs of explanations that are tried for a case of several damages.
const PAIRS_MAX: usize = 400;

/// Further states of keys, if some of the damages are indistinguishable from one legal crash state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Bit `i`: damage `i` of the case is explained.
    faults: u32,
    /// Whether the last state of no key is allowed.
    is_exact: bool,
    states: Vec<(Vec<u8>, State)>,
}

/// The explanations of one rule for the damages of the bit set `faults`.
pub(super) struct Found<'a> {
    faults: u32,
    found: &'a mut Vec<Explanation>,
}

impl Found<'_> {
    /// Adds the states that keys may have besides their last ones.
    pub(super) fn widen(&mut self, states: Vec<(Vec<u8>, State)>) {
        self.push(Explanation { faults: self.faults, is_exact: false, states });
    }

    /// Adds the states that all keys of the history must have.
    pub(super) fn replace(&mut self, states: Vec<(Vec<u8>, State)>) {
        self.push(Explanation { faults: self.faults, is_exact: true, states });
    }

    fn push(&mut self, explanation: Explanation) {
        if !self.found.contains(&explanation) {
            self.found.push(explanation);
        }
    }
}

/// Returns the models by which the damage is indistinguishable from a legal crash state. Of several
/// damages some must together be legal; the others must be found or have no effect. Disjoint sets
/// of damages can have an explanation each.
pub fn models_of_crashes(engine: &dyn Engine, case: &Case, known: &Known) -> impl Iterator<Item = Model> {
    let mut found = Vec::new();
    for chosen in 1..1_u32 << case.faults.len() {
        let is_chosen = |(index, _): &(usize, &Fault)| chosen & 1 << index != 0;
        let faults: Vec<Fault> = case.faults.iter().enumerate().filter(is_chosen).map(|(_, fault)| *fault).collect();
        let mut damaged = known.base.image.clone();
        faults.iter().for_each(|fault| fault.apply(&mut damaged, &known.base.moments));
        let case = Case { faults, ..case.clone() };
        let mut found = Found { faults: chosen, found: &mut found };
        explain_by_rollback(known, &damaged, &mut found);
        if is_in_place(engine) && case.history.end != End::Clean {
            explain_by_older_lines(engine, &case, known, &mut found);
        }
        explain_by_operations(engine, &case, known, &damaged, &mut found);
        explain_by_prefix(engine, &case, known, &damaged, &mut found);
    }
    let are_disjoint = |(one, other): &(usize, usize)| found[*one].faults & found[*other].faults == 0;
    let pairs = (0..found.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
    let pairs: Vec<(usize, usize)> = pairs.filter(are_disjoint).take(PAIRS_MAX).collect();
    let sets: Vec<Vec<usize>> =
        (0..found.len()).map(|one| vec![one]).chain(pairs.into_iter().map(|(one, other)| vec![one, other])).collect();
    let model = known.model.clone();
    sets.into_iter().map(move |set| {
        let mut model = model.clone();
        let explanations = || set.iter().map(|index| &found[*index]);
        if explanations().any(|explanation| explanation.is_exact) {
            model.forget_states();
        }
        let states = explanations().flat_map(|explanation| &explanation.states);
        states.for_each(|(key, state)| model.allow(key, state));
        model
    })
}

/// Returns the state of each key of `keys` in `state`.
pub(super) fn states_of<'k>(keys: impl IntoIterator<Item = &'k [u8]>, state: &State) -> Vec<(Vec<u8>, State)> {
    keys.into_iter().map(|key| (key.to_vec(), state.only(key))).collect()
}

/// Explains by the moments that satisfy rule 1.
fn explain_by_rollback(known: &Known, damaged: &SimImage, found: &mut Found<'_>) {
    let base = known.base;
    for (moment, (state, session)) in base.moments.iter().zip(&base.held) {
        let has_files = *session == base.sessions || moment.values == damaged.values;
        if has_files && damaged.regions.starts_with(&moment.regions) {
            found.replace(states_of(base.universe.iter().map(Vec::as_slice), state));
        }
    }
}

/// Explains by the moments that satisfy rule 2. Lines of entries are independent, so the damages
/// have one common explanation.
fn explain_by_older_lines(engine: &dyn Engine, case: &Case, known: &Known, found: &mut Found<'_>) {
    let base = known.base;
    let (mut states, mut is_exact) = (Vec::new(), true);
    for fault in &case.faults {
        let Fault::Stale { at, moment } = *fault else { return };
        let Some((state, session)) = base.held.get(moment) else { return };
        let is_file = fault.kind() == Kind::StaleFile;
        if is_file && *session != base.sessions {
            return;
        }
        let lines = (at.offset..at.offset + at.len).step_by(LINE_BYTES as usize);
        let mut names = lines.map(|offset| map::name_of(known.parts, Place { offset, len: LINE_BYTES, ..at }));
        let has_entries = !is_file && names.any(is_of_entries);
        let is_alone = is_file && engine.is_store_alone(&case.history.shape, at.file);
        is_exact &= !has_entries && !is_alone;
        for key in &base.universe {
            states.extend(states_of([key.as_slice()], state));
            if has_entries {
                states.push((key.clone(), State::EMPTY));
            }
        }
    }
    if is_exact { found.replace(states) } else { found.widen(states) }
}

/// Whether the lines of this structure hold entries of keys.
fn is_of_entries(name: &str) -> bool {
    ["index segment", "hash table"].iter().any(|entries| name.starts_with(entries)) && !name.ends_with("head")
}

/// The lines whose content differs from the undamaged store; `None` if files differ in length or
/// if the lines are more than one page.
fn changed_lines(undamaged: &SimImage, damaged: &SimImage) -> Option<BTreeSet<Line>> {
    let mut changed = BTreeSet::new();
    for file in (0..undamaged.regions.len().max(damaged.regions.len()) as u16).chain([VALUES]) {
        let (old, new) = (content(undamaged, file), content(damaged, file));
        if old.len() != new.len() {
            return None;
        }
        let lines = old.chunks(LINE_BYTES as usize).zip(new.chunks(LINE_BYTES as usize)).enumerate();
        let differing = lines.filter(|(_, (old, new))| old != new);
        changed.extend(differing.map(|(index, _)| (file, index as u64 * LINE_BYTES)));
        if changed.len() as u64 > PAGE_BYTES / LINE_BYTES {
            return None;
        }
    }
    Some(changed)
}

/// Explains by the operations that satisfy rule 3.
fn explain_by_operations(engine: &dyn Engine, case: &Case, known: &Known, damaged: &SimImage, found: &mut Found<'_>) {
    if case.history.end == End::Clean {
        return;
    }
    let Some(changed) = changed_lines(&known.base.image, damaged) else { return };
    let sessions = known.base.sessions;
    let mut explanations = Vec::new();
    let check = Check { damaged, changed: &changed, parts: known.parts };
    let mut observer = |step: &Step<'_>| {
        if step.session == sessions && check.was_in_flight(step) {
            let keys: Vec<&[u8]> = step.op.keys().collect();
            if !keys.is_empty() || *step.op == Op::Sync {
                explanations.push(states_of(keys, step.before));
            }
        }
    };
    if observe(engine, &spec(known.mutant), &case.history, case.history_seed, &mut observer).is_ok() {
        explanations.into_iter().for_each(|states| found.widen(states));
    }
}

struct Check<'a> {
    damaged: &'a SimImage,
    changed: &'a BTreeSet<Line>,
    parts: &'a [map::Part],
}

impl Check<'_> {
    /// Whether rule 3 holds at one cut of the operation.
    fn was_in_flight(&self, step: &Step<'_>) -> bool {
        let stored = |what: &What| match *what {
            What::Word { region, offset, .. } => Some((region, offset / LINE_BYTES * LINE_BYTES)),
            _ => None,
        };
        let lines: BTreeSet<Line> = step.trace.events.iter().filter_map(|event| stored(&event.what)).collect();
        if !self.changed.iter().all(|line| lines.contains(line)) {
            return false;
        }
        let mut medium = step.medium.clone();
        for event in &step.trace.events {
            let is_cut = matches!(event.what, What::Fence { .. } | What::Sync { .. });
            if is_cut && self.is_legal(&medium, &lines) {
                return true;
            }
            medium.apply(event);
        }
        self.is_legal(&medium, &lines)
    }

    fn is_legal(&self, medium: &LineModel, lines: &BTreeSet<Line>) -> bool {
        let set = medium.crash_set();
        lines.iter().all(|line| self.has_legal_content(medium, &set, *line))
    }

    fn has_legal_content(&self, medium: &LineModel, set: &CrashSet, line: Line) -> bool {
        let at = Place { file: line.0, offset: line.1, len: LINE_BYTES };
        let bytes = bytes_at(self.damaged, at);
        let pending = set.lines().iter().find(|choices| (choices.region(), choices.offset()) == line);
        match pending {
            Some(choices) => {
                let is_legal = (0..choices.count()).any(|index| choices.content(index) == bytes);
                is_legal || self.changed.contains(&line) && is_log(map::name_of(self.parts, at))
            }
            None => !self.changed.contains(&line) && bytes == bytes_at(medium.durable(), at),
        }
    }
}

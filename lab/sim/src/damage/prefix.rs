//! Damaged images that are legal crash images of an earlier cut of the last session.
//!
//! Bytes after the end of a log are arbitrary: the space of a log is not cleared, and a torn record
//! may have any bytes. The same holds for a log whose header is not durable yet. A power failure in
//! an earlier operation can therefore leave an image that is the same except for shorter logs. Such
//! a failure leaves no record of a later operation, so an image with a whole one is excluded.
//!
//! After a crash the lines that the interrupted operation stored may be as the crash left them,
//! which no earlier crash does. However, they do not prove that the last record of a log was
//! durable: its end mark and hint would, and the crash lost these.

use std::collections::{BTreeMap, BTreeSet};

use lodestore_media::sim::{LineModel, SimImage, What};

use super::base::{Base, End, Step, observe};
use super::fault::{LINE_BYTES, PAGE_BYTES, Place, bytes_at, content};
use super::legal::{Found, states_of};
use super::map::Part;
use super::{Case, Known, spec};
use crate::subject::Engine;

/// Structures that grow at their end.
const LOGS: [&str; 4] = ["log segment", "value segment", "write-ahead log", "manifest"];

fn is_log(part: &Part) -> bool {
    LOGS.contains(&part.name.as_str())
}

fn is_log_head(part: &Part) -> bool {
    part.name.strip_suffix(": head").is_some_and(|name| LOGS.contains(&name))
}

/// The words that an operation stores in logs: file, offset, bytes, mask.
type Words = Vec<(u16, u64, u64, u8)>;

/// For each log, the offset of the first byte that the operation stores in it, in the order of the
/// operations.
type FirstStores = Vec<BTreeMap<usize, u64>>;

/// Collects the stores of each operation of the last session after the heads of logs.
struct Ends<'a> {
    parts: &'a [Part],
    sessions: usize,
    first_stores: FirstStores,
    /// The stores of each operation in log segments.
    records: Vec<Words>,
}

impl Ends<'_> {
    fn note(&mut self, step: &Step<'_>) {
        if step.session != self.sessions {
            return;
        }
        let mut first: BTreeMap<usize, u64> = BTreeMap::new();
        let mut record = Words::new();
        for event in &step.trace.events {
            let What::Word { region, offset, value, mask, .. } = event.what else { continue };
            for index in self.logs_from(region, offset) {
                if self.parts[index].name == "log segment" {
                    record.push((region, offset, value, mask));
                }
                let from = offset.max(self.parts[index].at.offset);
                first.entry(index).and_modify(|known| *known = from.min(*known)).or_insert(from);
            }
        }
        self.first_stores.push(first);
        self.records.push(record);
    }

    /// The number of operations up to the last whose record is whole in `image`. Words that later
    /// operations store again, such as end marks, do not count.
    fn until_whole_record(&self, image: &SimImage) -> usize {
        let mut stored_later = BTreeSet::new();
        let is_there = |(file, offset, value, mask): &(u16, u64, u64, u8)| {
            let bytes = content(image, *file).iter().skip(*offset as usize);
            let wanted = value.to_le_bytes();
            bytes.zip(wanted).enumerate().all(|(at, (byte, wanted))| mask & 1 << at == 0 || *byte == wanted)
        };
        for (index, words) in self.records.iter().enumerate().rev() {
            let mut lasting = words.iter().rev().filter(|(file, offset, ..)| stored_later.insert((*file, *offset)));
            let is_some_there = lasting.next().map(is_there);
            if is_some_there == Some(true) && lasting.all(is_there) {
                return index + 1;
            }
            stored_later.extend(words.iter().map(|(file, offset, ..)| (*file, *offset)));
        }
        0
    }

    /// Returns the logs that a store to this byte creates or extends.
    fn logs_from(&self, file: u16, offset: u64) -> impl Iterator<Item = usize> + '_ {
        let is_from = move |(index, part): &(usize, &Part)| {
            // The last line of a log segment is the spare copy of its header.
            let end = part.at.offset + part.at.len - LINE_BYTES;
            let is_in = part.at.file == file && (part.at.offset..end).contains(&offset);
            // The first word of a header is stored once, when the log is created. The records
            // follow in the next part.
            let creates = |head: &Part| is_log_head(head) && head.at.file == file && head.at.offset == offset;
            let head = index.checked_sub(1).map(|before| &self.parts[before]);
            is_log(part) && (is_in || head.is_some_and(creates)) || creates(part)
        };
        self.parts.iter().enumerate().filter(is_from).map(|(index, _)| index)
    }

    /// Returns the end of each log before each operation, as far as later operations show it.
    fn before_each(mut self) -> FirstStores {
        let mut behind: BTreeMap<usize, u64> = BTreeMap::new();
        for first in self.first_stores.iter_mut().rev() {
            for (index, offset) in first.iter() {
                behind.entry(*index).and_modify(|known| *known = (*offset).min(*known)).or_insert(*offset);
            }
            first.clone_from(&behind);
        }
        self.first_stores
    }
}

/// Explains by the earlier cuts of the last session at which `damaged` is a legal crash image.
pub(super) fn explain_by_prefix(
    engine: &dyn Engine,
    case: &Case,
    known: &Known,
    damaged: &SimImage,
    found: &mut Found<'_>,
) {
    let base = known.base;
    if case.history.end == End::Clean || !is_of_regions(base, damaged) {
        return;
    }
    let run = |observer: &mut dyn FnMut(&Step<'_>)| {
        observe(engine, &spec(known.mutant), &case.history, case.history_seed, observer).is_ok()
    };
    let mut ends = Ends { parts: known.parts, sessions: base.sessions, first_stores: Vec::new(), records: Vec::new() };
    if !run(&mut |step| ends.note(step)) {
        return;
    }
    // An earlier cut leaves no whole record of a later operation.
    let first_cut = ends.until_whole_record(damaged).saturating_sub(1);
    let ends = ends.before_each();
    let mut number = 0;
    run(&mut |step| {
        if step.session != base.sessions {
            return;
        }
        let cut = Cut { parts: known.parts, ends: &ends[number], damaged, base };
        number += 1;
        if number > first_cut && cut.is_in(step) {
            let mut after = step.before.clone();
            after.apply(step.op);
            let keys = || base.universe.iter().map(Vec::as_slice);
            let mut states = states_of(keys(), step.before);
            states.extend(states_of(keys(), &after));
            found.replace(states);
        }
    });
}

/// Whether only regions are damaged, and their lengths are unchanged.
fn is_of_regions(base: &Base, damaged: &SimImage) -> bool {
    let lengths = |image: &SimImage| image.regions.iter().map(Vec::len).collect::<Vec<_>>();
    lengths(&base.image) == lengths(damaged) && base.image.values == damaged.values
}

/// A crash in one operation.
struct Cut<'a> {
    parts: &'a [Part],
    /// The ends of the logs.
    ends: &'a BTreeMap<usize, u64>,
    damaged: &'a SimImage,
    base: &'a Base,
}

impl Cut<'_> {
    /// Whether the image is legal at one cut of the operation.
    fn is_in(&self, step: &Step<'_>) -> bool {
        let mut medium = step.medium.clone();
        for event in &step.trace.events {
            let is_cut = matches!(event.what, What::Fence { .. } | What::Sync { .. });
            if is_cut && self.is_legal(&medium) {
                return true;
            }
            medium.apply(event);
        }
        self.is_legal(&medium)
    }

    fn is_legal(&self, medium: &LineModel) -> bool {
        let set = medium.crash_set();
        let is_allowed = |file: u16, offset: u64, bytes: &[u8], durable: &[u8]| {
            let line = Place { file, offset, len: LINE_BYTES };
            if self.base.crash_lines.contains(&(file, offset)) && bytes_at(&self.base.image, line) == bytes {
                return true;
            }
            let bytes = &bytes[..self.legal_bytes(file, offset).min(bytes.len())];
            let pending = set.lines().iter().find(|line| (line.region(), line.offset()) == (file, offset));
            let is_choice = |index| pending.is_some_and(|line| line.content(index).starts_with(bytes));
            durable.starts_with(bytes) || (0..pending.map_or(0, |line| line.count())).any(is_choice)
        };
        let files = 0..self.damaged.regions.len() as u16;
        files.into_iter().all(|file| {
            let (bytes, durable) = (content(self.damaged, file), content(medium.durable(), file));
            bytes.len() == durable.len()
                && each_difference(bytes, durable, |offset, bytes, durable| is_allowed(file, offset, bytes, durable))
        })
    }

    /// Returns how many bytes of a line are before the end of a log.
    fn legal_bytes(&self, file: u16, offset: u64) -> usize {
        let end_of = |(index, end): (&usize, &u64)| {
            let at = self.parts[*index].at;
            let len = if is_log_head(&self.parts[*index]) { at.len } else { at.len - LINE_BYTES };
            let is_in = at.file == file && (at.offset..at.offset + len).contains(&offset);
            is_in.then(|| end.saturating_sub(offset).min(LINE_BYTES) as usize)
        };
        self.ends.iter().find_map(end_of).unwrap_or(LINE_BYTES as usize)
    }
}

/// Whether `holds` is true for each differing line, with its offset.
fn each_difference(one: &[u8], other: &[u8], holds: impl Fn(u64, &[u8], &[u8]) -> bool) -> bool {
    let pages = one.chunks(PAGE_BYTES as usize).zip(other.chunks(PAGE_BYTES as usize)).enumerate();
    pages.filter(|(_, (one, other))| one != other).all(|(page, (one, other))| {
        let lines = one.chunks(LINE_BYTES as usize).zip(other.chunks(LINE_BYTES as usize)).enumerate();
        let differing = lines.filter(|(_, (one, other))| one != other);
        differing
            .into_iter()
            .all(|(line, (one, other))| holds(page as u64 * PAGE_BYTES + line as u64 * LINE_BYTES, one, other))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_are_judged_by_their_offset() {
        let (one, mut other) = (vec![0; 2 * PAGE_BYTES as usize], vec![0; 2 * PAGE_BYTES as usize]);
        assert!(each_difference(&one, &other, |_, _, _| false));
        other[PAGE_BYTES as usize + 70] = 1;
        assert!(each_difference(&one, &other, |offset, _, _| offset == PAGE_BYTES + LINE_BYTES));
        assert!(!each_difference(&one, &other, |_, one, other| one == other));
    }
}

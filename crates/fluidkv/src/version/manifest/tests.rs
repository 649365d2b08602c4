//! Tests with random histories of changes: replayed whole, cut off and damaged. Also tests that
//! each rule refuses its violations.

use lodestore_contract::conformance::{Rng, seed};
use lodestore_contract::limits::KEY_MAX;
use lodestore_media::NvPtr;

use super::record::{
    EXTENT_HEADER_BYTES, Head, LINK_AT, checkpoint_bytes, encode, encode_checkpoint, range_bytes, replay,
};
use super::state::{ManifestState, RangeState};
use super::*;

mod salvage;

fn rng() -> Rng {
    let seed = seed();
    println!("seed {seed:#x}");
    Rng::new(seed)
}

/// Returns three bytes that sort as the numbers do.
fn key(number: u64) -> Key {
    [(number >> 16) as u8, (number >> 8) as u8, number as u8].into()
}

fn number(key: &[u8]) -> u64 {
    key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Keys are numbers below this.
const KEYS: u64 = 1 << 20;

fn table(identity: u64, min: u64, max: u64) -> Arc<TableDescriptor> {
    Arc::new(TableDescriptor {
        at: NvPtr::new((identity % 3) as u16, identity * 4096),
        bytes: 1 + identity % 4096,
        identity,
        items: 3,
        tombstones: identity % 4,
        pointer_bytes: identity * 7,
        min: key(min),
        max: key(max),
    })
}

fn extent(id: u64) -> ValueExtent {
    ValueExtent { id, at: NvPtr::new(3, 4096 + id * 4096), bytes: 2000 + id % 2000 }
}

/// Makes edits that follow from a state.
struct Maker {
    rng: Rng,
    next: u64,
}

impl Maker {
    fn new(rng: Rng) -> Self {
        Self { rng, next: 1 }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn bounds(state: &ManifestState, index: usize) -> (u64, u64) {
        let upper = state.ranges().get(index + 1).map_or(KEYS, |next| number(&next.lower));
        (number(&state.ranges()[index].lower), upper)
    }

    /// Returns tables in order between two keys.
    fn run(&mut self, lower: u64, upper: u64, most: usize) -> Vec<Arc<TableDescriptor>> {
        let mut keys: Vec<u64> = (0..2 * self.rng.below(most + 1))
            .map(|_| lower + self.rng.next_u64() % upper.saturating_sub(lower).max(1))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys.chunks_exact(2).map(|pair| table(self.fresh(), pair[0], pair[1])).collect()
    }

    /// Returns changes of some segments, and of a missing one.
    fn news(&mut self, state: &ManifestState) -> Vec<ValueChange> {
        let ids: Vec<u64> = state.values().keys().copied().chain([1 << 40]).collect();
        let mut news = Vec::new();
        for id in ids {
            let (dead, written) = (self.rng.below(900) as u64, self.rng.below(900) as u64);
            let change = ValueChange { id, dead, written, sealed: self.rng.below(4) == 0 };
            news.extend((self.rng.below(2) == 0).then_some(change));
        }
        news
    }

    fn flush(&mut self, state: &ManifestState) -> Edit {
        let mut added = Vec::new();
        for (index, range) in state.ranges().iter().enumerate() {
            let (lower, upper) = Self::bounds(state, index);
            added.extend(self.run(lower, upper, 3).into_iter().map(|table| (range.id, table)));
        }
        let generation = state.flushed_generation() + 1 + self.rng.below(2) as u64;
        Edit::Flush {
            generation,
            last_sequence: state.last_sequence() + self.rng.below(1000) as u64,
            added,
            values: self.news(state),
        }
    }

    /// Merges all of a range's oldest run, and moves its tables that overlap no stable table.
    fn compaction(&mut self, state: &ManifestState, index: usize) -> Edit {
        let range = &state.ranges()[index];
        let mut removed = Vec::new();
        let mut moved = Vec::new();
        for table in range.runs.last().into_iter().flatten() {
            let free = !range.stable.iter().any(|stable| stable.overlaps(table));
            if free { &mut moved } else { &mut removed }.push(table.identity);
        }
        let mut added = Vec::new();
        for stable in &range.stable {
            let hit = range.runs.last().into_iter().flatten().any(|table| table.overlaps(stable));
            if hit {
                removed.push(stable.identity);
                added.push(table(self.fresh(), number(&stable.min), number(&stable.max)));
            }
        }
        Edit::Compaction { range_id: range.id, removed, added, moved, values: self.news(state) }
    }

    fn edit(&mut self, state: &ManifestState) -> Edit {
        let index = self.rng.below(state.ranges().len());
        let (lower, upper) = Self::bounds(state, index);
        match self.rng.below(9) {
            0..3 => self.flush(state),
            3..6 => self.compaction(state, index),
            6 => {
                let at = lower + 1 + self.rng.next_u64() % upper.saturating_sub(lower).max(1);
                Edit::SplitRange { range_id: state.ranges()[index].id, at: key(at), new_id: self.fresh() }
            }
            7 => {
                let next = index + 1 + self.rng.below(2) * self.rng.below(2);
                let next_id = state.ranges().get(next).map_or_else(|| self.fresh(), |next| next.id);
                Edit::JoinRanges { range_id: state.ranges()[index].id, next_id }
            }
            _ => {
                let ended: Vec<u64> = state.values().keys().copied().filter(|_| self.rng.below(3) == 0).collect();
                let first = state.next_value() + self.rng.below(2) as u64;
                let begun = (first..first + self.rng.below(3) as u64).map(extent).collect();
                Edit::Values { begun, ended }
            }
        }
    }
}

/// A manifest's records, and after each record its end and the state.
struct History {
    nonce: u64,
    bytes: Vec<u8>,
    states: Vec<(usize, ManifestState)>,
    first: u64,
}

impl History {
    fn random(rng: &mut Rng, edits: usize) -> Self {
        let mut maker = Maker::new(Rng::new(rng.next_u64()));
        let mut state = ManifestState::new();
        for _ in 0..rng.below(30) {
            let edit = maker.edit(&state);
            let _ = state.apply(&edit);
        }
        let (nonce, first) = (rng.next_u64(), rng.next_u64() >> 1);
        let bytes = encode_checkpoint(&state, nonce, first);
        let mut history = Self { nonce, states: vec![(bytes.len(), state.clone())], bytes, first };
        for _ in 0..edits {
            let edit = maker.edit(&state);
            let before = state.clone();
            if state.apply(&edit).is_err() {
                assert_eq!(state, before, "what is refused changes nothing");
                continue;
            }
            let number = first + history.states.len() as u64;
            history.bytes.extend(encode(&edit, nonce, number));
            history.states.push((history.bytes.len(), state.clone()));
        }
        history
    }

    /// Replays these bytes. Returns the index of the resulting state in the history, or `None` on
    /// an error. Panics on any other state.
    fn prefix(&self, bytes: &[u8], why: &str) -> Option<usize> {
        let replayed = replay(bytes, self.nonce).ok()?;
        let index = (replayed.next_number - self.first - 1) as usize;
        let (end, state) = &self.states[index];
        assert_eq!((replayed.end, &replayed.state), (*end, state), "{why}");
        Some(index)
    }
}

#[test]
fn random_histories_replay_to_the_state_that_their_edits_made() {
    let mut rng = rng();
    let mut most = (0, 0);
    for round in 0..150 {
        let history = History::random(&mut rng, 40);
        let last = history.states.len() - 1;
        assert_eq!(history.prefix(&history.bytes, "whole"), Some(last), "round {round}");
        let padded = [history.bytes.as_slice(), &[0; 100]].concat();
        assert_eq!(replay(&padded, history.nonce).map(|replayed| replayed.torn).ok(), Some(false));
        assert!(replay(&history.bytes, history.nonce ^ 1).is_err(), "another nonce is another manifest");
        let state = &history.states[last].1;
        let range = |range: &RangeState| {
            let tables = range.tables().map(|table| table.described()).sum();
            range_bytes(range.lower.len() as u64, range.runs.len() as u64, tables)
        };
        let counted = checkpoint_bytes(state.ranges().iter().map(range).sum(), state.values().len() as u64);
        assert_eq!(counted, encode_checkpoint(state, 1, 2).len() as u64);
        most = (most.0.max(state.ranges().len()), most.1.max(state.ranges()[0].stable.len()));
    }
    assert!(most.0 > 3 && most.1 > 3, "the histories come to something: {most:?}");
}

#[test]
fn any_cut_gives_a_state_of_the_history() {
    let mut rng = rng();
    for round in 0..12 {
        let history = History::random(&mut rng, 8);
        for cut in 0..history.bytes.len() {
            let noise = if round % 2 == 0 { Vec::new() } else { rng.bytes(50) };
            let bytes = [&history.bytes[..cut], &noise].concat();
            // The noise may begin with the bytes that were cut off.
            let same = |end: usize| end <= bytes.len() && bytes[..end] == history.bytes[..end];
            let whole = history.states.iter().filter(|(end, _)| same(*end)).count();
            assert_eq!(history.prefix(&bytes, "cut"), whole.checked_sub(1), "round {round}, cut at {cut}");
        }
    }
}

#[test]
fn one_wrong_bit_ends_the_manifest_in_its_last_record_and_is_damage_before() {
    let mut rng = rng();
    for round in 0..5 {
        let history = History::random(&mut rng, 4);
        let last = history.states.len() - 1;
        for bit in 0..history.bytes.len() * 8 {
            let mut bytes = [history.bytes.as_slice(), &[0; 64]].concat();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let in_last = last > 0 && bit / 8 >= history.states[last - 1].0;
            let expected = in_last.then(|| last - 1);
            assert_eq!(history.prefix(&bytes, "flipped"), expected, "round {round}, bit {bit}");
        }
    }
}

#[test]
fn two_wrong_bits_give_a_state_of_the_history_or_an_error() {
    let mut rng = rng();
    for round in 0..5 {
        let history = History::random(&mut rng, 4);
        let last = history.states.len() - 1;
        for bit in 0..(history.bytes.len() - 1) * 8 {
            let mut bytes = history.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes[bit / 8 + 1] ^= 1 << rng.below(8);
            let in_last = last > 0 && bit / 8 >= history.states[last - 1].0;
            // The last two records may have one wrong bit each: then no whole record follows
            // either.
            let in_two = last > 1 && bit / 8 + 1 == history.states[last - 1].0;
            let expected = if in_two { Some(last - 2) } else { in_last.then(|| last - 1) };
            assert_eq!(history.prefix(&bytes, "flipped"), expected, "round {round}, bit {bit}");
        }
    }
}

#[test]
fn a_whole_record_of_another_number_is_refused() {
    let checkpoint = encode_checkpoint(&ManifestState::new(), 9, 5);
    let edit = Edit::Flush { generation: 1, last_sequence: 1, added: vec![], values: vec![] };
    let with = |number| replay(&[checkpoint.as_slice(), &encode(&edit, 9, number)].concat(), 9);
    assert_eq!(with(6).map(|replayed| replayed.next_number).ok(), Some(7));
    assert!([0, 4, 5, 7, 8].into_iter().all(|number| with(number).is_err()));
}

#[test]
fn no_bytes_make_the_replay_panic_or_invent_a_state() {
    let mut rng = rng();
    for _round in 0..200 {
        let history = History::random(&mut rng, 6);
        let mut bytes = history.bytes.clone();
        for _ in 0..1 + rng.below(8) {
            let at = rng.below(bytes.len());
            bytes[at] = rng.next_u64() as u8;
        }
        history.prefix(&bytes, "noise");
        let len = rng.below(300);
        assert!(replay(&rng.bytes(len), 1).is_err());
    }
}

/// Changes a record's body or kind at random, and gives the record a right checksum.
fn resealed(rng: &mut Rng, record: &[u8], nonce: u64) -> Vec<u8> {
    let mut record = record.to_vec();
    for _ in 0..1 + rng.below(3) {
        let at = 16 + rng.below(record.len() - 16);
        record[at] = *rng.pick(&[0, 1, 2, 3, 4, 5, 255]);
    }
    let crc = lodestore_media::crc32c(&[&nonce.to_le_bytes(), &record[4..]]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    record
}

#[test]
fn arbitrary_whole_records_never_form_an_invalid_state() {
    let mut rng = rng();
    let mut taken = 0;
    for _round in 0..1000 {
        let history = History::random(&mut rng, 3);
        let first = history.states[0].0;
        let checkpoint = resealed(&mut rng, &history.bytes[..first], history.nonce);
        if let Ok(replayed) = replay(&checkpoint, history.nonce) {
            let again = encode_checkpoint(&replayed.state, history.nonce, history.first);
            assert_eq!(again, checkpoint, "what is read is what would be written");
            taken += 1;
        }
        let [.., (from, _), (to, _)] = history.states[..] else { continue };
        let last = resealed(&mut rng, &history.bytes[from..to], history.nonce);
        if let Ok(replayed) = replay(&[&history.bytes[..from], &last].concat(), history.nonce) {
            let checkpoint = encode_checkpoint(&replayed.state, 7, 1);
            let again = replay(&checkpoint, 7).map(|replayed| replayed.state);
            assert_eq!(again.ok(), Some(replayed.state), "a state that an edit made keeps the rules");
            taken += 1;
        }
        let twice = [&history.bytes[..first], &checkpoint].concat();
        assert!(replay(&twice, history.nonce).is_err(), "a checkpoint, or what was one, is no edit");
    }
    assert!(taken > 100, "some of it is taken: {taken}");
}

#[test]
fn extent_headers_are_read_as_written_and_damaged_ones_are_refused() {
    let written = Head { number: 3, nonce: 0x1234_5678_9abc, capacity: 4096 };
    let head = written.encode();
    assert_eq!(Head::decode(&head).ok(), Some(written));
    for bit in 0..EXTENT_HEADER_BYTES * 8 {
        // Except the word that names the next extent.
        if (LINK_AT..LINK_AT + 8).contains(&(bit as u64 / 8)) {
            continue;
        }
        let mut bytes = head;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Head::decode(&bytes).is_err(), "bit {bit}");
    }
    assert!(Head::decode(&head[..EXTENT_HEADER_BYTES - 1]).is_err());
}

fn settled() -> ManifestState {
    let mut state = ManifestState::new();
    let flush = |generation, added: Vec<Arc<TableDescriptor>>| Edit::Flush {
        generation,
        last_sequence: generation * 10,
        added: added.into_iter().map(|table| (0, table)).collect(),
        values: vec![],
    };
    state.apply(&flush(1, vec![table(1, 100, 200)])).expect("a first flush");
    let edit = Edit::Compaction { range_id: 0, removed: vec![], added: vec![], moved: vec![1], values: vec![] };
    state.apply(&edit).expect("a table that overlaps nothing moves");
    state.apply(&flush(2, vec![table(2, 50, 150), table(3, 160, 300)])).expect("a second flush");
    state.apply(&flush(3, vec![table(4, 140, 170)])).expect("a third flush");
    state
}

#[track_caller]
fn refused(edit: Edit, word: &str) {
    let mut state = settled();
    let why = state.apply(&edit).expect_err(word);
    assert!(why.what.contains(word), "{why} in place of {word}");
    assert_eq!(state, settled(), "what is refused changes nothing");
}

#[test]
fn flushes_that_break_a_rule_are_refused() {
    let flush = |generation, last_sequence, added| Edit::Flush { generation, last_sequence, added, values: vec![] };
    refused(flush(3, 99, vec![]), "already flushed");
    refused(flush(4, 29, vec![]), "the sequence numbers decrease");
    refused(flush(4, 99, vec![(7, table(9, 1, 2))]), "range does not exist");
    refused(flush(4, 99, vec![(0, table(1, 1, 2))]), "another owner");
    refused(flush(4, 99, vec![(0, table(9, 1, 5)), (0, table(10, 5, 6))]), "overlap");
    refused(flush(4, 99, vec![(0, table(9, 1, 5)), (0, table(9, 7, 8))]), "another owner");
    let odd = |change: &dyn Fn(&mut TableDescriptor)| {
        let mut odd = TableDescriptor::clone(&table(9, 1, 2));
        change(&mut odd);
        flush(4, 99, vec![(0, table(8, 0, 0)), (0, Arc::new(odd))])
    };
    refused(odd(&|table| table.identity = 3), "already exists");
    refused(odd(&|table| table.at = NvPtr::NULL), "is invalid");
    refused(odd(&|table| table.items = 0), "is invalid");
    refused(odd(&|table| table.tombstones = table.items + 1), "is invalid");
    refused(odd(&|table| table.max = vec![255; KEY_MAX + 1].into()), "is invalid");
    refused(odd(&|table| table.at = super::tests::table(4, 0, 0).at), "another owner");
}

#[test]
fn compactions_that_break_a_rule_are_refused() {
    let compact = |removed: &[u64], added: Vec<Arc<TableDescriptor>>, moved: &[u64]| Edit::Compaction {
        range_id: 0,
        removed: removed.to_vec(),
        added,
        moved: moved.to_vec(),
        values: vec![],
    };
    refused(compact(&[77], vec![], &[]), "not in the range");
    refused(compact(&[2, 2], vec![], &[]), "named twice");
    refused(compact(&[2], vec![], &[2]), "named twice");
    refused(compact(&[], vec![], &[1]), "already stable");
    refused(compact(&[], vec![], &[2]), "overlap");
    refused(compact(&[4], vec![], &[]), "older table would hide");
    refused(compact(&[2], vec![table(9, 120, 130)], &[]), "overlap");
    let mut state = settled();
    let whole = compact(&[1, 2, 3, 4], vec![table(9, 50, 170), table(10, 171, 300)], &[]);
    state.apply(&whole).expect("all of a range is merged");
    assert!(state.ranges()[0].runs.is_empty());
    assert_eq!(state.ranges()[0].stable.len(), 2);
    let mut state = settled();
    state.apply(&compact(&[1, 2, 3], vec![table(9, 50, 300)], &[])).expect("the newest run stays");
    assert_eq!(state.ranges()[0].runs.len(), 1);
}

#[test]
fn splits_keep_every_table_on_its_side_or_are_refused() {
    let split = |at: u64, new_id| Edit::SplitRange { range_id: 0, at: key(at), new_id };
    refused(split(155, 1), "outside its range");
    refused(split(301, 0), "already exists");
    refused(Edit::SplitRange { range_id: 0, at: Key::default(), new_id: 1 }, "outside the range");
    let mut state = settled();
    state.apply(&split(301, 5)).expect("above all tables");
    state.apply(&split(50, 6)).expect("below all tables");
    let ids: Vec<u64> = state.ranges().iter().map(|range| range.id).collect();
    assert_eq!(ids, [0, 6, 5]);
    assert_eq!((state.ranges()[1].runs.len(), state.range(5).map(|range| range.runs.len())), (2, Some(0)));
    assert!(state.apply(&split(50, 7)).is_err(), "at its own end");
}

#[test]
fn a_range_joins_only_the_next_one() {
    let split = |at: u64, new_id| Edit::SplitRange { range_id: 0, at: key(at), new_id };
    let join = |range_id, next_id| Edit::JoinRanges { range_id, next_id };
    refused(join(0, 1), "not adjacent");
    refused(join(7, 0), "range does not exist");
    refused(join(0, 0), "not adjacent");
    let mut state = settled();
    state.apply(&split(301, 5)).expect("above all tables");
    state.apply(&split(50, 6)).expect("below all tables");
    let apart = state.clone();
    for (range_id, next_id) in [(0, 5), (6, 0), (5, 6)] {
        assert!(state.apply(&join(range_id, next_id)).is_err());
        assert_eq!(state, apart);
    }
    let flush = Edit::Flush {
        generation: 4,
        last_sequence: 99,
        added: vec![(5, table(20, 310, 320)), (5, table(21, 330, 340))],
        values: vec![],
    };
    state.apply(&flush).expect("a run of the last range alone");
    state.apply(&join(6, 5)).expect("neighbours");
    state.apply(&join(0, 6)).expect("neighbours");
    let [all] = state.ranges() else { panic!("one range") };
    let of = |run: &[Arc<TableDescriptor>]| run.iter().map(|table| table.identity).collect::<Vec<_>>();
    assert_eq!(all.runs.iter().map(|run| of(run)).collect::<Vec<_>>(), [vec![4, 20, 21], vec![2, 3]]);
    assert_eq!((of(&all.stable), all.id), (vec![1], 0));
}

#[test]
fn a_manifest_of_another_version_is_refused() {
    for version in [0, 1, 2, 4, u32::MAX] {
        let mut head = Head { number: 0, nonce: 77, capacity: 4096 }.encode();
        head[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = lodestore_media::crc32c(&[&head[8..LINK_AT as usize]]);
        head[4..8].copy_from_slice(&crc.to_le_bytes());
        let refused = Head::decode(&head).expect_err("another version");
        assert_eq!(
            matches!(refused, lodestore_contract::Error::NewerFormat { .. }),
            version > 3,
            "version {version}: {refused}"
        );
    }
}

#[test]
fn value_segments_are_counted_and_no_id_is_reused() {
    let values = |begun: &[ValueExtent], ended: &[u64]| Edit::Values { begun: begun.to_vec(), ended: ended.to_vec() };
    let news = |generation, dead, written, sealed| Edit::Flush {
        generation,
        last_sequence: 90,
        added: vec![],
        values: [1, 77].map(|id| ValueChange { id, dead, written, sealed }).to_vec(),
    };
    refused(values(&[], &[1]), "value segment does not exist");
    refused(values(&[extent(5), extent(5)], &[]), "already assigned");
    refused(values(&[extent(5), ValueExtent { id: 6, ..extent(5) }], &[]), "another owner");
    refused(values(&[ValueExtent { at: NvPtr::NULL, ..extent(1) }], &[]), "is invalid");
    refused(values(&[ValueExtent { bytes: u64::MAX, ..extent(1) }], &[]), "is invalid");
    let mut state = settled();
    state.apply(&values(&[extent(1)], &[])).expect("a new one");
    state.apply(&news(8, 100, 1000, false)).expect("news of it, and of none");
    state.apply(&news(9, 50, 900, true)).expect("more");
    let of = |state: &ManifestState| state.values()[&1];
    let used = of(&state);
    assert_eq!((used.dead, used.written, used.sealed, used.bytes), (150, 1000, true, 2001));
    state.apply(&values(&[], &[1])).expect("it is no more");
    assert!(state.values().is_empty());
    assert!(state.apply(&values(&[extent(1)], &[])).is_err(), "its id was given");
    state.apply(&values(&[ValueExtent { id: 2, ..extent(1) }], &[])).expect("another one in its space");
    assert_eq!(state.next_value(), 3);
}

//! Segments that are written, cut, damaged and read again.

use lodestore_contract::conformance::{Rng, seed};

use super::*;
use crate::wal::entry::batch::BatchRecord;
use crate::wal::entry::tests::{Owned, op_of};
use crate::wal::entry::{ENTRY_HEADER_BYTES, Op, encode_header};
use crate::wal::reader::*;

const CAPACITY: u64 = 8192;

/// The contents of one record: its offset and its operations in words.
type Said = (u64, Vec<String>);

fn said(at: u64, record: &Record<'_>) -> Said {
    let word = |op: Op<'_>| format!("{op:?}");
    match record {
        Record::One(entry) => (at, vec![word(op_of(entry))]),
        Record::Batch(batch) => (at, batch.members().map(|(_, entry)| word(op_of(&entry))).collect()),
    }
}

struct Log {
    header: SegmentHeader,
    bytes: Vec<u8>,
    records: Vec<Said>,
    ends: Vec<u64>,
}

impl Log {
    fn new(nonce: u64, older: &[u8]) -> Self {
        let frame = Frame { nonce, base: 50 };
        let header = SegmentHeader { generation: 3, slot: 2, number: 1, frame, capacity: CAPACITY, previous_end: 0 };
        let mut bytes = older.to_vec();
        bytes.resize(CAPACITY as usize, 0);
        bytes[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        Self { header, bytes, records: Vec::new(), ends: vec![SEGMENT_HEADER_BYTES as u64] }
    }

    fn end(&self) -> u64 {
        self.ends[self.ends.len() - 1]
    }

    /// Appends one entry, or a batch of several. Returns false if it does not fit.
    fn append(&mut self, owned: &[Owned], durable: bool) -> bool {
        let ops: Vec<Op<'_>> = owned.iter().map(Owned::op).collect();
        let one = ops.len() == 1;
        let len = if one { ops[0].entry_len() } else { BatchRecord::len_of(&ops).expect("a small batch") };
        let Some(slot) = place_record(self.end(), len, records_end_of(CAPACITY)) else { return false };
        let sequence = 50 + self.records.len() as u64;
        let stored = if one {
            let header = encode_header(self.header.frame, slot, sequence, durable, &ops[0]).expect("in reach");
            [header.as_bytes(), ops[0].key, ops[0].payload.bytes()].concat()
        } else {
            let batch = BatchRecord::encode(self.header.frame, slot, sequence, durable, &ops).expect("in reach");
            batch.parts().concat()
        };
        self.bytes[slot.at as usize..][..stored.len()].copy_from_slice(&stored);
        self.records.push((slot.at, ops.iter().map(|op| format!("{op:?}")).collect()));
        self.ends.push(slot.at + len as u64);
        true
    }

    fn random(rng: &mut Rng, most: usize, durable: bool) -> Self {
        let older = if rng.below(2) == 0 { Vec::new() } else { Self::full(rng).bytes };
        let mut log = Self::new(rng.next_u64(), &older);
        for _ in 0..most {
            let ops = *rng.pick(&[1, 1, 1, 2, 5]);
            let owned: Vec<Owned> = (0..ops).map(|_| Owned::random(rng)).collect();
            if !log.append(&owned, durable) {
                break;
            }
        }
        log
    }

    /// Stores the end mark as the writer does after a durable record, without the end hint.
    fn mark(&mut self) {
        let (end, mark) = (self.end(), end_mark(self.header.frame, self.end()));
        self.bytes[end as usize..][..END_MARK_BYTES].copy_from_slice(&mark.to_le_bytes());
    }

    /// Stores the end hint as the writer does.
    fn hint(&mut self) {
        let (end, at) = (self.end(), end_hint_at(self.end(), spare_at(CAPACITY)));
        let hint = end_hint(end_mark(self.header.frame, end), end);
        self.bytes[at as usize..][..END_MARK_BYTES].copy_from_slice(&hint.to_le_bytes());
    }

    /// Returns a log of `records` records, each of which was durable before the next one was
    /// stored.
    fn marked(rng: &mut Rng, records: usize) -> Self {
        let mut log = Self::random(rng, 0, true);
        for _ in 0..records {
            let owned: Vec<Owned> = (0..*rng.pick(&[1, 1, 1, 2])).map(|_| Owned::random(rng)).collect();
            if !log.append(&owned, true) {
                break;
            }
            log.mark();
        }
        log
    }

    fn full(rng: &mut Rng) -> Self {
        let mut log = Self::new(rng.next_u64(), &[]);
        while log.append(&[Owned::random(rng)], true) {}
        log
    }

    fn read(&self, mode: Mode, known_end: u64) -> (Vec<Said>, Option<Damage>, Option<Outcome>) {
        self.read_with(mode, known_end, true)
    }

    fn read_with(&self, mode: Mode, known_end: u64, has_spare: bool) -> (Vec<Said>, Option<Damage>, Option<Outcome>) {
        let found = SegmentHeader::decode(&self.bytes).expect("its version is known").expect("its header is whole");
        let known_end = known_end.max(found.least_end());
        let mut reader = SegmentReader::new(&self.bytes, &found.header, mode, known_end).with_spare(has_spare);
        let (mut records, mut damage) = (Vec::new(), None);
        for item in &mut reader {
            match item {
                Ok((at, record)) => records.push(said(at, &record)),
                Err(found) => damage = Some(found),
            }
        }
        assert!(reader.next().is_none(), "an end is an end");
        (records, damage, reader.outcome())
    }
}

fn store_spare(bytes: &mut [u8], header: &SegmentHeader) {
    bytes[spare_at(CAPACITY) as usize..][..HEADER_BYTES].copy_from_slice(&header.copy());
}

fn rng() -> Rng {
    let seed = seed();
    println!("seed {seed:#x}");
    Rng::new(seed)
}

#[test]
fn small_records_share_a_line_and_none_touches_a_line_more_than_it_must() {
    assert_eq!(place_record(64, 32, 4096), Some(Slot { at: 64, gap: 0 }));
    assert_eq!(place_record(96, 32, 4096), Some(Slot { at: 96, gap: 0 }));
    assert_eq!(place_record(104, 32, 4096), Some(Slot { at: 128, gap: 3 }));
    assert_eq!(place_record(96, 288, 4096), Some(Slot { at: 96, gap: 0 }), "five lines, here as anywhere");
    assert_eq!(place_record(4064, 32, 4096), Some(Slot { at: 4064, gap: 0 }));
    assert_eq!(place_record(4072, 32, 4096), None);
    for end in (64..256).step_by(8) {
        for len in (24..400).step_by(8) {
            let slot = place_record(end, len, 4096).expect("there is room");
            let lines = (slot.at + len as u64).div_ceil(64) - slot.at / 64;
            assert_eq!(lines, (len as u64).div_ceil(64), "{len} bytes after {end}");
            assert!(slot.at == end + 8 * u64::from(slot.gap) && slot.gap < 8);
        }
    }
}

#[test]
fn headers_are_read_as_written_and_damaged_ones_are_refused() {
    let log = Log::new(77, &[]);
    let decoded = |bytes: &[u8]| SegmentHeader::decode(bytes).expect("known");
    let of_first = Found { header: log.header, has_spare: false, only_spare: false, hinted_end: 0 };
    let of_spare = Found { header: log.header, has_spare: true, only_spare: true, hinted_end: 0 };
    assert_eq!(decoded(&log.bytes), Some(of_first));
    for bit in (0..SEGMENT_HEADER_BYTES * 8).filter(|bit| bit / 8 % HEADER_COPY_BYTES < HEADER_BYTES) {
        let mut bytes = log.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decoded(&bytes), Some(of_first), "bit {bit}: the other one is whole");
        bytes[(bit / 8 + 64) % 128] ^= 1;
        assert_eq!(decoded(&bytes), None, "bit {bit}");
        store_spare(&mut bytes, &log.header);
        assert_eq!(decoded(&bytes), Some(of_spare), "bit {bit}: the spare is whole");
        let at = spare_at(CAPACITY) as usize + bit / 8 % 64;
        bytes[at] ^= 1;
        assert_eq!(decoded(&bytes), None, "bit {bit}: the spare is damaged as well");
    }
    assert_eq!(decoded(&log.bytes[..127]), None);
    assert_eq!(decoded(&log.bytes[..4096]), None, "an older use, as a longer segment");
    for (version, is_newer) in [(4, true), (2, false)] {
        let mut other = log.bytes.clone();
        other[8] = version;
        let crc = crc32c(&[&other[8..HEADER_BYTES]]);
        other[4..8].copy_from_slice(&crc.to_le_bytes());
        match SegmentHeader::decode(&other) {
            Err(Error::NewerFormat { found: 4, .. }) if is_newer => {}
            Err(Error::OlderFormat { found: 2, .. }) if !is_newer => {}
            answer => panic!("{answer:?}"),
        }
    }
}

#[test]
fn a_spare_of_another_header_is_ignored() {
    let mut log = Log::new(77, &[]);
    let other = SegmentHeader { generation: 9, ..log.header };
    store_spare(&mut log.bytes, &other);
    let found = SegmentHeader::decode(&log.bytes).expect("known");
    assert_eq!(found, Some(Found { header: log.header, has_spare: false, only_spare: false, hinted_end: 0 }));
    // The spare of a shorter segment, whose end was elsewhere.
    log.bytes[..SEGMENT_HEADER_BYTES].fill(0);
    let shorter = SegmentHeader { capacity: CAPACITY / 2, ..log.header };
    store_spare(&mut log.bytes, &shorter);
    assert_eq!(SegmentHeader::decode(&log.bytes).expect("known"), None);
}

#[test]
fn a_spare_without_a_record_proves_damage() {
    let mut rng = rng();
    let log = Log::random(&mut rng, 10, true);
    let mut hurt = Log { bytes: log.bytes.clone(), ..Log::new(0, &[]) };
    hurt.bytes[..log.end() as usize].fill(0);
    store_spare(&mut hurt.bytes, &log.header);
    let (records, damage, _) = hurt.read(Mode::Strict, 0);
    assert_eq!((records.len(), damage.map(|damage| damage.at)), (0, Some(SEGMENT_HEADER_BYTES as u64)));
    let (records, damage, outcome) = hurt.read(Mode::Salvage, 0);
    assert_eq!((records.len(), damage, outcome.map(|outcome| outcome.lost_ranges)), (0, None, Some(1)));
}

#[test]
fn a_damaged_spare_is_reported_if_no_other_mark_gives_the_end() {
    let mut rng = rng();
    for records in 1..8 {
        let mut log = Log::marked(&mut rng, records);
        let count = log.records.len();
        let (_, damage, _) = log.read_with(Mode::Strict, 0, false);
        assert_eq!(damage, None, "{count} records: the end mark tells the end");
        // Loses the end mark, as a power failure may.
        let end = log.end();
        log.bytes[end as usize..][..END_MARK_BYTES].fill(0);
        let (_, damage, _) = log.read_with(Mode::Strict, 0, true);
        assert_eq!(damage, None, "{count} records: the spare is whole");
        let (_, damage, _) = log.read_with(Mode::Strict, end, false);
        assert_eq!(damage, None, "{count} records: the next segment tells the end");
        // The spare is durable with the second record, and the third one was stored after that.
        let is_lost = count > 2;
        let (read, damage, _) = log.read_with(Mode::Strict, 0, false);
        assert_eq!((read.len(), damage.map(|damage| damage.at)), (count, is_lost.then_some(end)));
        let (read, _, outcome) = log.read_with(Mode::Salvage, 0, false);
        assert_eq!((read.len(), outcome.map(|outcome| outcome.lost_ranges)), (count, Some(u64::from(is_lost))));
    }
}

#[test]
fn all_records_and_the_end_are_found() {
    let mut rng = rng();
    for round in 0..200 {
        let most = rng.below(40);
        let log = Log::random(&mut rng, most, round % 2 == 0);
        for mode in [Mode::Strict, Mode::Salvage] {
            let (records, damage, outcome) = log.read(mode, log.end());
            let outcome = outcome.expect("it was read to the end");
            assert_eq!((&records, damage, outcome.end), (&log.records, None, log.end()), "round {round}");
            assert_eq!((outcome.lost_ranges, outcome.lost_bytes, outcome.searched), (0, 0, true));
        }
    }
    let (_, _, outcome) = Log::new(1, &[]).read(Mode::Strict, 0);
    assert_eq!(outcome.map(|outcome| outcome.tail), Some(Tail::Clean));
}

#[test]
fn any_cut_gives_the_records_before_it() {
    let mut rng = rng();
    for round in 0..60 {
        let log = Log::random(&mut rng, 12, true);
        let cut = SEGMENT_HEADER_BYTES + rng.below(log.end() as usize - SEGMENT_HEADER_BYTES + 1);
        let mut torn = Log { bytes: log.bytes.clone(), ..Log::new(0, &[]) };
        let filler = rng.bytes(CAPACITY as usize - cut);
        match round % 3 {
            0 => torn.bytes[cut..].fill(0),
            1 => torn.bytes[cut..].copy_from_slice(&filler),
            _ => torn.bytes[cut..].copy_from_slice(&Log::full(&mut rng).bytes[cut..]),
        }
        let whole = log.ends.iter().filter(|end| **end <= cut as u64).count() - 1;
        let (records, damage, outcome) = torn.read(Mode::Strict, 0);
        // An entry's padding is not part of it, so one more may be whole.
        assert!(records == log.records[..whole] || records == log.records[..whole + 1], "round {round}, cut at {cut}");
        assert_eq!(damage, None);
        assert!(outcome.is_some_and(|outcome| outcome.searched), "round {round}");
    }
}

#[test]
fn damage_before_a_durable_mark_is_reported_and_salvage_reads_the_rest() {
    let mut rng = rng();
    for round in 0..200 {
        let log = Log::random(&mut rng, 14, true);
        if log.records.len() < 2 {
            continue;
        }
        let hit = rng.below(log.records.len() - 1);
        let mut hurt = Log { bytes: log.bytes.clone(), ..Log::new(0, &[]) };
        // Every byte of a header is covered.
        let bit = log.records[hit].0 * 8 + rng.below(16 * 8) as u64;
        let one = 1u8 << (bit % 8);
        hurt.bytes[bit as usize / 8] ^= one | one.rotate_left(1);
        let (records, damage, outcome) = hurt.read(Mode::Strict, 0);
        assert_eq!(records, log.records[..hit], "round {round}");
        assert_eq!((damage.map(|damage| damage.at), outcome), (Some(log.ends[hit]), None), "round {round}");
        let (records, damage, outcome) = hurt.read(Mode::Salvage, 0);
        let rest = [&log.records[..hit], &log.records[hit + 1..]].concat();
        assert_eq!((records, damage), (rest, None), "round {round}");
        let outcome = outcome.expect("it was read to the end");
        assert_eq!((outcome.end, outcome.lost_ranges), (log.end(), 1), "round {round}");
        assert_eq!(outcome.lost_bytes, log.records[hit + 1].0 - log.ends[hit], "round {round}");
    }
}

#[test]
fn whole_records_after_one_that_was_never_durable_are_ignored() {
    let mut rng = rng();
    for round in 0..100 {
        let log = Log::random(&mut rng, 10, false);
        let mut torn = Log { bytes: log.bytes.clone(), ..Log::new(0, &[]) };
        let hit = rng.below(log.records.len());
        torn.bytes[log.records[hit].0 as usize + 4] ^= 3;
        for mode in [Mode::Strict, Mode::Salvage] {
            let (records, damage, outcome) = torn.read(mode, 0);
            assert_eq!((records.as_slice(), damage), (&log.records[..hit], None), "round {round}");
            let outcome = outcome.expect("it was read to the end");
            assert_eq!((outcome.tail, outcome.end, outcome.lost_ranges), (Tail::Torn, log.ends[hit], 0));
        }
    }
}

#[test]
fn a_record_after_one_that_was_cut_off_is_not_read() {
    let mut log = Log::new(5, &[]);
    let value = [1; 8];
    for key in [&b"a"[..], b"b", b"8 bytes."] {
        let op = Op { key, payload: crate::wal::entry::Payload::Value(&value), expiry: None };
        let slot = place_record(log.end(), op.entry_len(), spare_at(CAPACITY)).expect("there is room");
        let header = encode_header(log.header.frame, slot, 60, false, &op).expect("in reach");
        log.bytes[slot.at as usize..][..op.key.len() + 24].copy_from_slice(&[header.as_bytes(), key, &value].concat());
        log.records.push((slot.at, vec![format!("{op:?}")]));
        log.ends.push(slot.at + op.entry_len() as u64);
    }
    assert_eq!(log.records.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [128, 160, 192]);
    assert_eq!(log.read(Mode::Strict, 0).0, log.records);
    log.bytes[160 + 20] ^= 3;
    let (records, damage, outcome) = log.read(Mode::Strict, 0);
    assert_eq!((records.as_slice(), damage), (&log.records[..1], None));
    assert_eq!(outcome.map(|outcome| outcome.end), Some(160));
}

#[test]
fn damage_of_the_last_record_is_proved_by_the_next_segment() {
    let mut rng = rng();
    let log = Log::random(&mut rng, 5, true);
    let mut hurt = Log { bytes: log.bytes.clone(), ..Log::new(0, &[]) };
    let last = log.records.len() - 1;
    hurt.bytes[log.records[last].0 as usize] ^= 3;
    assert_eq!(hurt.read(Mode::Strict, 0).1, None, "by itself it is a record that was cut off");
    let (_, damage, _) = hurt.read(Mode::Strict, log.end());
    assert_eq!(damage.map(|damage| damage.at), Some(log.ends[last]));
    let (records, _, outcome) = hurt.read(Mode::Salvage, log.end());
    let outcome = outcome.expect("it was read to the end");
    assert_eq!(records, log.records[..last]);
    assert_eq!((outcome.lost_ranges, outcome.lost_bytes), (1, log.end() - log.ends[last]));
}

/// Such damage was once taken for a truncated record.
#[test]
fn damage_of_the_last_record_is_proved_by_its_end_mark() {
    let mut rng = rng();
    for round in 0..200 {
        let records = 1 + rng.below(8);
        let log = Log::marked(&mut rng, records);
        let Some(last) = log.records.len().checked_sub(1) else { continue };
        let mut hurt = Log { bytes: log.bytes.clone(), ..Log::new(0, &[]) };
        // Every byte of a header is covered.
        let bit = log.records[last].0 * 8 + rng.below(ENTRY_HEADER_BYTES * 8) as u64;
        let one = 1u8 << (bit % 8);
        hurt.bytes[bit as usize / 8] ^= one | one.rotate_left(1 + rng.below(7) as u32);
        let (records, damage, outcome) = hurt.read(Mode::Strict, 0);
        assert_eq!(records, log.records[..last], "round {round}");
        assert_eq!((damage.map(|damage| damage.at), outcome), (Some(log.ends[last]), None), "round {round}");
        let (records, _, outcome) = hurt.read(Mode::Salvage, 0);
        assert_eq!(records, log.records[..last], "round {round}");
        let outcome = outcome.expect("it was read to the end");
        assert_eq!((outcome.lost_ranges, outcome.lost_bytes), (1, log.end() - log.ends[last]), "round {round}");
    }
}

/// Any of the record's words may be stored, in place of the end mark before it or not.
#[test]
fn a_record_cut_off_after_an_end_mark_is_no_damage() {
    let mut rng = rng();
    for round in 0..300 {
        let records = rng.below(8);
        let mut log = Log::marked(&mut rng, records);
        let (before, end, count) = (log.bytes.clone(), log.end() as usize, log.records.len());
        let owned: Vec<Owned> = (0..*rng.pick(&[1, 3])).map(|_| Owned::random(&mut rng)).collect();
        if !log.append(&owned, true) {
            continue;
        }
        let mut torn = Log { bytes: log.bytes.clone(), ..Log::new(0, &[]) };
        for word in (end..log.end() as usize).step_by(ENTRY_ALIGN_BYTES).filter(|_| rng.below(2) == 0) {
            torn.bytes[word..word + ENTRY_ALIGN_BYTES].copy_from_slice(&before[word..word + ENTRY_ALIGN_BYTES]);
        }
        for mode in [Mode::Strict, Mode::Salvage] {
            let (records, damage, outcome) = torn.read(mode, 0);
            assert!(records == log.records[..count] || records == log.records, "round {round}");
            assert_eq!((damage, outcome.map(|outcome| outcome.lost_ranges)), (None, Some(0)), "round {round}");
        }
    }
}

#[test]
fn an_end_mark_is_valid_only_at_its_position_and_in_its_use_of_the_space() {
    let mut rng = rng();
    let log = Log::marked(&mut rng, 3);
    let (end, last) = (log.end() as usize, log.records.len() - 1);
    assert_eq!(log.read(Mode::Strict, 0).2.map(|outcome| outcome.tail), Some(Tail::Marked));
    let other = Frame { nonce: log.header.frame.nonce ^ 1, ..log.header.frame };
    for (at, mark) in
        [(end, end_mark(other, end as u64)), (end + ENTRY_ALIGN_BYTES, end_mark(log.header.frame, end as u64))]
    {
        let mut hurt = Log { bytes: log.bytes.clone(), ..Log::new(0, &[]) };
        hurt.bytes[end..end + ENTRY_ALIGN_BYTES].fill(0);
        hurt.bytes[at..at + ENTRY_ALIGN_BYTES].copy_from_slice(&mark.to_le_bytes());
        hurt.bytes[log.records[last].0 as usize + 4] ^= 3;
        let (records, damage, _) = hurt.read(Mode::Strict, 0);
        assert_eq!((records.as_slice(), damage), (&log.records[..last], None));
    }
}

/// Record and end mark are in one page, and often in one line.
#[test]
fn an_end_hint_proves_a_last_record_lost_with_its_mark() {
    let mut rng = rng();
    for round in 0..200 {
        let records = 1 + rng.below(40);
        let mut log = Log::marked(&mut rng, records);
        let Some(last) = log.records.len().checked_sub(1) else { continue };
        log.hint();
        let found = SegmentHeader::decode(&log.bytes).expect("known").expect("whole");
        assert!(found.least_end() == log.end() && found.has_record(&log.bytes), "round {round}");
        let hint_at = end_hint_at(log.end(), spare_at(CAPACITY));
        assert!(hint_at.abs_diff(log.end()) > CAPACITY / 2 - 256, "round {round}: it is far from the end");
        let from = log.records[last].0 as usize;
        let to = spare_at(CAPACITY).min(log.end() + 8) as usize;
        log.bytes[from..to].fill(0);
        let (records, damage, _) = log.read(Mode::Strict, 0);
        assert_eq!(records, log.records[..last], "round {round}");
        assert_eq!(damage.map(|damage| damage.at), Some(log.ends[last]), "round {round}");
        // With another use of the space, or a wrong bit, the hint is ignored.
        log.bytes[hint_at as usize + rng.below(8)] ^= 1 << rng.below(8);
        assert_eq!(log.read(Mode::Strict, 0).1, None, "round {round}");
    }
}

#[test]
fn an_end_mark_fits_after_any_record() {
    assert_eq!(place_record(4056, 32, records_end_of(4096 + SPARE_BYTES as u64)), Some(Slot { at: 4056, gap: 0 }));
    assert_eq!(place_record(4064, 32, records_end_of(4096 + SPARE_BYTES as u64)), None);
    let least = capacity_for(ENTRY_BYTES_MIN as u64);
    assert!(place_record(SEGMENT_HEADER_BYTES as u64, ENTRY_BYTES_MIN, records_end_of(least)).is_some());
}

/// The reader once corrected the bit: a guess, which a torn record may satisfy.
#[test]
fn one_wrong_bit_of_a_record_is_damage_and_is_not_repaired() {
    let mut rng = rng();
    for round in 0..60 {
        let log = Log::marked(&mut rng, 6);
        let Some(hit) = log.records.len().checked_sub(1).map(|last| rng.below(last + 1)) else { continue };
        let mut hurt = Log { bytes: log.bytes.clone(), ..Log::new(0, &[]) };
        let bit = log.records[hit].0 * 8 + rng.below(ENTRY_HEADER_BYTES * 8) as u64;
        hurt.bytes[bit as usize / 8] ^= 1 << (bit % 8);
        let (records, damage, _) = hurt.read(Mode::Strict, 0);
        assert_eq!(
            (records.as_slice(), damage.map(|damage| damage.at)),
            (&log.records[..hit], Some(log.ends[hit])),
            "round {round}"
        );
        let (records, _, outcome) = hurt.read(Mode::Salvage, 0);
        assert!(!records.contains(&log.records[hit]), "round {round}");
        assert_eq!(outcome.map(|outcome| outcome.lost_ranges), Some(1), "round {round}");
    }
}

#[test]
fn several_damages_are_all_counted() {
    let mut rng = Rng::new(5);
    let log = Log::full(&mut rng);
    let mut hurt = Log { bytes: log.bytes.clone(), ..Log::new(0, &[]) };
    let hits: Vec<usize> = (1..log.records.len() - 1).step_by(4).collect();
    hits.iter().for_each(|hit| hurt.bytes[log.records[*hit].0 as usize + 1] ^= 5);
    let (records, damage, outcome) = hurt.read(Mode::Salvage, 0);
    assert_eq!((records.len(), damage), (log.records.len() - hits.len(), None));
    assert_eq!(outcome.map(|outcome| outcome.lost_ranges), Some(hits.len() as u64));
}

#[test]
fn a_search_through_false_headers_ends() {
    let mut log = Log::new(9, &[]);
    // Stores the header of an entry that reaches to the segment's end, over other bytes,
    // everywhere.
    let mut at = SEGMENT_HEADER_BYTES;
    while let Some(slot) = place_record(at as u64, 16 + 8, spare_at(CAPACITY)) {
        at = slot.at as usize;
        let key = vec![1; spare_at(CAPACITY) as usize - at - 16];
        let op = Op { key: &key, payload: crate::wal::entry::Payload::Value(&[]), expiry: None };
        let header = encode_header(log.header.frame, slot, 60, true, &op).expect("in reach");
        log.bytes[at..at + 16].copy_from_slice(header.as_bytes());
        at += 16;
    }
    let (records, damage, outcome) = log.read(Mode::Salvage, 0);
    assert_eq!((records.len(), damage), (0, None));
    assert_eq!(outcome.map(|outcome| (outcome.searched, outcome.tail)), Some((false, Tail::Torn)));
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let mut rng = rng();
    for _round in 0..300 {
        let mut log = Log::random(&mut rng, 20, true);
        for _ in 0..rng.below(30) {
            let at = SEGMENT_HEADER_BYTES + rng.below(CAPACITY as usize - SEGMENT_HEADER_BYTES);
            log.bytes[at] ^= rng.next_u64() as u8;
        }
        let known = rng.next_u64() >> rng.below(64);
        for mode in [Mode::Strict, Mode::Salvage] {
            let (records, _, _) = log.read(mode, known);
            assert!(records.iter().all(|record| log.records.contains(record)), "nothing that was not written is read");
        }
        let _ = SegmentHeader::decode(&rng.bytes(80));
    }
}

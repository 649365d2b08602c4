//! Tests of entries and batches.

use lodestore_contract::conformance::{Rng, seed};
use lodestore_contract::limits::{BATCH_OPS_MAX, VALUE_MAX};

use super::batch::{BatchRecord, Record};
use super::*;

const FRAME: Frame = Frame { nonce: 0x5eed_0f5e_9000_0001, base: 1000 };

/// An operation that owns its bytes.
pub(crate) struct Owned {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    pointer: Option<[u8; POINTER_BYTES]>,
    expiry: Option<Expiry>,
}

impl Owned {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let key_len = 1 + *rng.pick(&[7, 0, 15, 1, 30, 200]);
        let key_len = 1 + rng.below(key_len);
        let key = rng.bytes(key_len);
        let value_len = *rng.pick(&[8, 0, 1, 40, 256, 1000]);
        let value = (rng.below(5) > 0).then(|| rng.bytes(value_len));
        let pointer = (rng.below(5) == 0).then(|| *rng.bytes(POINTER_BYTES).first_chunk().expect("as long as asked"));
        let expires = (value.is_some() || pointer.is_some()) && rng.below(4) == 0;
        Self { key, value, pointer, expiry: expires.then(|| Expiry::at_millis(rng.next_u64())) }
    }

    pub(crate) fn op(&self) -> Op<'_> {
        let payload = match (&self.pointer, &self.value) {
            (Some(pointer), _) => Payload::Pointer(pointer),
            (None, Some(value)) => Payload::Value(value),
            (None, None) => Payload::Tombstone,
        };
        Op { key: &self.key, payload, expiry: self.expiry }
    }
}

pub(crate) fn op_of<'a>(entry: &Entry<'a>) -> Op<'a> {
    Op { key: entry.key(), payload: entry.payload(), expiry: entry.expiry() }
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Op<'a> {
    Op { key, payload: Payload::Value(value), expiry: None }
}

fn written(frame: Frame, slot: Slot, sequence: u64, op: &Op<'_>) -> Vec<u8> {
    let header = encode_header(frame, slot, sequence, true, op).expect("in reach");
    let mut bytes = [header.as_bytes(), op.key, op.payload.bytes()].concat();
    bytes.resize(op.entry_len(), 0xa5);
    bytes
}

fn batch_of(frame: Frame, slot: Slot, sequence: u64, ops: &[Op<'_>]) -> Vec<u8> {
    let record = BatchRecord::encode(frame, slot, sequence, false, ops).expect("fits");
    let bytes = record.parts().concat();
    assert_eq!(Some(bytes.len()), BatchRecord::len_of(ops));
    bytes
}

#[test]
fn keys_and_values_of_eight_bytes_use_half_a_line() {
    let op = put(b"key 8 by", b"value 8b");
    assert_eq!(op.entry_len(), 32);
    assert_eq!(written(FRAME, Slot { at: 64, gap: 0 }, 1000, &op).len(), 32);
    assert_eq!(put(b"k", b"").entry_len(), ENTRY_BYTES_MIN);
}

#[test]
fn an_entry_is_read_as_written() {
    let seed = seed();
    println!("seed {seed:#x}");
    let mut rng = Rng::new(seed);
    for round in 0..2000 {
        let owned = Owned::random(&mut rng);
        let (op, sequence) = (owned.op(), 1000 + (rng.next_u64() >> 32));
        let slot = Slot { at: 8 * rng.below(1 << 30) as u64, gap: rng.below(8) as u8 };
        let bytes = written(FRAME, slot, sequence, &op);
        let longer = [bytes.as_slice(), &rng.bytes(40)].concat();
        let quick = Entry::read(|len| longer.get(..len)).expect("its lengths are right");
        let checked = Entry::checked(&longer, FRAME, slot.at).expect("it is whole");
        for entry in [quick, checked] {
            assert_eq!((op_of(&entry), entry.sequence(1000), entry.len()), (op, sequence, bytes.len()), "{round}");
        }
        let record = Record::checked(&longer, FRAME, slot.at).expect("it is whole");
        assert_eq!((record.is_durable(), record.gap(), record.len()), (true, slot.gap, bytes.len()));
        assert!(Entry::read(|len| bytes.get(..len).filter(|_| len <= 8)).is_none());
    }
}

#[test]
fn the_longest_key_and_a_long_value_are_read_as_written() {
    let (key, value) = (vec![7; KEY_MAX], vec![9; 3 << 20]);
    let op = put(&key, &value);
    let bytes = written(FRAME, Slot { at: 64, gap: 0 }, 1000, &op);
    assert_eq!(Entry::checked(&bytes, FRAME, 64).map(|entry| op_of(&entry)), Some(op));
}

#[test]
fn sequences_beyond_a_segments_range_are_refused() {
    let op = put(b"k", b"v");
    let at = |sequence, at| encode_header(FRAME, Slot { at, gap: 0 }, sequence, true, &op).is_some();
    assert!(at(1000, 64) && at(1000 + u64::from(u32::MAX), 64));
    assert!(!at(999, 64) && !at(1001 + u64::from(u32::MAX), 64) && !at(1000, OFFSET_MAX));
}

#[test]
fn an_entry_with_another_nonce_or_position_is_invalid() {
    let op = put(b"key 8 by", b"value 8b");
    let bytes = written(FRAME, Slot { at: 640, gap: 0 }, 1234, &op);
    assert!(Record::checked(&bytes, FRAME, 640).is_some());
    for step in 1..4000 {
        assert!(Record::checked(&bytes, Frame { nonce: FRAME.nonce + step, ..FRAME }, 640).is_none(), "nonce + {step}");
        assert!(Record::checked(&bytes, FRAME, 640 + 8 * step).is_none(), "{step} steps on");
    }
}

#[test]
fn an_entry_with_a_flipped_bit_or_a_cut_is_invalid() {
    let owned = Owned::random(&mut Rng::new(3));
    let op = owned.op();
    let bytes = written(FRAME, Slot { at: 64, gap: 1 }, 1001, &op);
    let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0xa5).count();
    for bit in 0..used * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Entry::checked(&flipped, FRAME, 64).is_none(), "bit {bit}");
    }
    for len in 0..used {
        assert!(Record::checked(&bytes[..len], FRAME, 64).is_none(), "{len} bytes");
    }
}

#[test]
fn a_batch_is_read_whole_with_one_sequence() {
    let seed = seed();
    println!("seed {seed:#x}");
    let mut rng = Rng::new(seed);
    for _round in 0..300 {
        let owned: Vec<Owned> = (0..1 + rng.below(20)).map(|_| Owned::random(&mut rng)).collect();
        let ops: Vec<Op<'_>> = owned.iter().map(Owned::op).collect();
        let slot = Slot { at: 8 * rng.below(1000) as u64, gap: 2 };
        let record = BatchRecord::encode(FRAME, slot, 1500, true, &ops).expect("fits");
        let bytes = record.parts().concat();
        let found = Record::checked(&bytes, FRAME, slot.at).expect("it is whole");
        assert_eq!((found.is_durable(), found.gap(), found.len()), (true, 2, bytes.len()));
        let Record::Batch(batch) = found else { panic!("a batch is a batch") };
        let members: Vec<_> = batch.members().collect();
        assert_eq!(members.iter().map(|(_, entry)| op_of(entry)).collect::<Vec<_>>(), ops);
        assert_eq!(members.iter().map(|(at, _)| *at).collect::<Vec<_>>(), record.positions().collect::<Vec<_>>());
        for (at, entry) in members {
            let place = &bytes[(at - slot.at) as usize..];
            assert_eq!(entry.sequence(FRAME.base), 1500);
            let quick = Entry::read(|len| place.get(..len)).expect("read in place as any entry");
            assert_eq!(op_of(&quick), op_of(&entry));
            assert!(Entry::checked(place, FRAME, at).is_some(), "and checked in place");
            assert!(Record::checked(place, FRAME, at).is_none(), "but no record by itself");
        }
    }
}

#[test]
fn a_batch_with_a_flipped_bit_or_a_cut_is_invalid() {
    let ops = [put(b"key 8 by", b"value 8b"), Op { key: b"a", payload: Payload::Tombstone, expiry: None }];
    let bytes = batch_of(FRAME, Slot { at: 128, gap: 0 }, 1001, &ops);
    for bit in 0..(bytes.len() - 7) * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Record::checked(&flipped, FRAME, 128).is_none(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(Record::checked(&bytes[..len], FRAME, 128).is_none(), "{len} bytes");
    }
}

#[test]
fn members_of_two_batches_never_form_a_third() {
    let at = Slot { at: 128, gap: 0 };
    let ops = |value: &'static [u8]| [put(b"key 1234", value), put(b"key 5678", value)];
    let one = batch_of(FRAME, at, 1001, &ops(b"value 1b"));
    let two = batch_of(FRAME, at, 1001, &ops(b"value 2b"));
    let mixed = [&one[..48], &two[48..]].concat();
    assert!(Entry::checked(&mixed[48..], FRAME, 128 + 48).is_some(), "each of its entries is whole");
    assert!(Record::checked(&mixed, FRAME, 128).is_none());
}

#[test]
fn empty_and_oversized_batches_have_no_record() {
    let op = put(b"k", b"v");
    assert_eq!(BatchRecord::len_of(&[]), None);
    assert_eq!(BatchRecord::len_of(&vec![op; BATCH_OPS_MAX + 1]), None);
    let most = vec![op; BATCH_OPS_MAX];
    let bytes = batch_of(FRAME, Slot { at: 64, gap: 0 }, 1000, &most);
    let Some(Record::Batch(batch)) = Record::checked(&bytes, FRAME, 64) else { panic!("the largest batch is whole") };
    assert_eq!(batch.members().count(), BATCH_OPS_MAX);
}

#[test]
fn no_bytes_make_a_reader_panic() {
    let seed = seed();
    println!("seed {seed:#x}");
    let mut rng = Rng::new(seed);
    for _round in 0..20_000 {
        let len = rng.below(200);
        let mut bytes = rng.bytes(len);
        // Headers that look valid more often than by chance.
        if let Some(head) = bytes.first_chunk_mut::<ENTRY_HEADER_BYTES>() {
            head[5..8].fill(0);
            head[9] = 0;
            head[10] = *rng.pick(&[0, 1, 2, 4, 6, 8, 16, 24, 9, 3]);
            head[11] = header_check(FRAME.nonce, 64, head);
        }
        let _ = Record::checked(&bytes, FRAME, 64).map(|record| record.len());
        if let Some(entry) = Entry::read(|len| bytes.get(..len)) {
            let _ = (op_of(&entry), entry.sequence(u64::MAX), entry.len());
        }
    }
}

#[test]
fn a_stored_value_is_sixteen_bytes_longer_than_the_contracts_at_most() {
    let long = vec![0; VALUE_MAX + 17];
    for len in [VALUE_MAX, VALUE_MAX + 16, VALUE_MAX + 17] {
        let op = Op { key: b"k", payload: Payload::Value(&long[..len]), expiry: None };
        assert_eq!(op.is_sound(), len <= VALUE_MAX + 16);
        let fields = Fields { flags: 0, gap: 0, durable: true, key: 0, value: len as u32 };
        let mut bytes = [0; ENTRY_HEADER_BYTES];
        fields.write(FRAME, 64, 1001, &mut bytes).expect("within reach");
        let read = Fields::read(&bytes).map(|read| (read.durable, read.value as usize, read.span()));
        assert_eq!(read, op.is_sound().then_some((true, len, ENTRY_HEADER_BYTES + 1 + len)), "{len}");
    }
}

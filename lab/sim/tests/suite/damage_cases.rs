//! Damage that once broke the rule, as printed by the explorer.

use lodestore_contract::Lifetime;
use lodestore_sim::damage::base::{End, History};
use lodestore_sim::damage::fault::{Fault, Place};
use lodestore_sim::damage::oracle::{Class, Effort};
use lodestore_sim::damage::{Case, run_case, scripts};
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::mkvs::MkvsEngine;
use lodestore_sim::op::Op;
use lodestore_sim::shape::Shape;

fn zeroed_end_of_a_segment() -> Case {
    Case {
        history: History {
            shape: Shape { capacity: 131072, region_bytes: 131072, chunk_bytes: 512, partitions: 1, mode: 0 },
            ops: vec![
                Op::Put {
                    key: b"bin\x00\xff\x03\x00\x00\x00\x00\x00\x00\x00".to_vec(),
                    value: vec![3; 40],
                    expiry: None,
                },
                Op::Put { key: vec![101; 5], value: vec![4; 40], expiry: None },
                Op::Put { key: b"k5".to_vec(), value: vec![5; 40], expiry: None },
                Op::Put { key: b"k0".to_vec(), value: vec![1; 40], expiry: None },
                Op::Put { key: b"k5".to_vec(), value: vec![2; 40], expiry: None },
                Op::Put { key: vec![101; 5], value: vec![3; 40], expiry: None },
                Op::Put { key: b"k5".to_vec(), value: vec![4; 40], expiry: None },
                Op::Put { key: b"key/00001/with a longer tail 2".to_vec(), value: vec![5; 40], expiry: None },
            ],
            end: End::Crash(3127422343035976714),
        },
        history_seed: 5378250232198983602,
        faults: vec![Fault::Zero { at: Place { file: 0, offset: 16896, len: 512 } }],
        effort: Effort { again: false, ops: 0, seed: 7876864797690982049 },
    }
}

#[test]
fn a_segment_that_lost_its_end_and_its_spare_is_refused() {
    assert_eq!(run_case(&FluidEngine, &zeroed_end_of_a_segment(), None), Ok(Some(Class::Refused)));
}

fn put(key: &[u8], value: &[u8]) -> Op {
    Op::Put { key: key.to_vec(), value: value.to_vec(), expiry: None }
}

fn older_page_of_a_log() -> Case {
    Case {
        history: History {
            shape: Shape { capacity: 1048576, region_bytes: 1048576, chunk_bytes: 4096, partitions: 2, mode: 0 },
            ops: vec![
                put(b"k5", &[5; 62]),
                put(b"key/00006", &[6; 66]),
                put(b"key/00006/with a longer tail 7", &[7; 45]),
                put(b"bin\x00\xff\x08\x00\x00\x00\x00\x00\x00\x00", &[8; 56]),
                put(b"bin\x00\xff\r\x00\x00\x00\x00\x00\x00\x00", &[13; 7]),
                put(&[111; 15], b"\x0e"),
                put(b"k15", &[15; 87]),
                put(b"key/00016", &[16; 78]),
                put(b"key/00016/with a longer tail 17", &[17; 39]),
                put(b"bin\x00\xff\x12\x00\x00\x00\x00\x00\x00\x00", &[18; 36]),
                put(&[116; 20], &[19; 9]),
                Op::Insert {
                    key: b"key/00006/with a longer tail 7".to_vec(),
                    value: vec![100; 73],
                    lifetime: Lifetime::Forever,
                },
                put(b"k5", &[101; 56]),
                put(b"k5", &[102; 78]),
                put(b"key/00001/with a longer tail 2", &[103; 51]),
                put(b"bin\x00\xff\x03\x00\x00\x00\x00\x00\x00\x00", &[104; 52]),
                put(&[116; 20], &[105; 60]),
                put(b"k10", &[106; 27]),
                put(b"key/00006/with a longer tail 7", &[107; 22]),
                Op::Put { key: b"key/00016".to_vec(), value: vec![108; 16], expiry: Some(4102444800000) },
                Op::Insert { key: b"key/00016".to_vec(), value: vec![109; 20], lifetime: Lifetime::Forever },
                put(b"k0", &[110; 85]),
                Op::Delete { key: b"key/00016/with a longer tail 17".to_vec() },
                put(&[101; 5], &[112; 69]),
                put(b"bin\x00\xff\x12\x00\x00\x00\x00\x00\x00\x00", &[113; 57]),
                put(b"key/00016", &[114; 31]),
                put(b"key/00006/with a longer tail 7", &[115; 79]),
                Op::Put { key: b"key/00016".to_vec(), value: vec![116; 32], expiry: Some(4102444800000) },
                put(b"bin\x00\xff\x08\x00\x00\x00\x00\x00\x00\x00", &[117; 86]),
                put(b"bin\x00\xff\x12\x00\x00\x00\x00\x00\x00\x00", &[118; 82]),
                Op::Delete { key: b"k15".to_vec() },
            ],
            end: End::Crash(287574150529490864),
        },
        history_seed: 12457926636614688934,
        faults: vec![Fault::Stale { at: Place { file: 0, offset: 24576, len: 4096 }, moment: 2 }],
        effort: Effort { again: false, ops: 0, seed: 2019574411607092652 },
    }
}

#[test]
fn a_log_that_ends_before_a_later_value_segment_was_begun_is_refused() {
    assert_eq!(run_case(&FluidEngine, &older_page_of_a_log(), None), Ok(Some(Class::Refused)));
}

fn undecided_write() -> Case {
    Case {
        history: History {
            shape: Shape { capacity: 131072, region_bytes: 131072, chunk_bytes: 512, partitions: 1, mode: 1 },
            ops: vec![
                Op::Put { key: b"k3000".to_vec(), value: vec![184; 20], expiry: None },
                Op::Put { key: b"k3000".to_vec(), value: vec![237; 20], expiry: None },
                Op::Put { key: b"k3000".to_vec(), value: vec![237; 20], expiry: None },
                Op::Put { key: b"k3000".to_vec(), value: vec![237; 20], expiry: None },
                Op::Put { key: b"key/03001".to_vec(), value: vec![185; 20], expiry: None },
                Op::Put { key: b"k3000".to_vec(), value: vec![237; 20], expiry: None },
            ],
            end: End::Kill,
        },
        history_seed: 17596306879872249249,
        faults: vec![Fault::Garbage { at: Place { file: 1, offset: 13376, len: 64 }, seed: 9260422728938715609 }],
        effort: Effort { again: false, ops: 12, seed: 7916977378320245394 },
    }
}

#[test]
fn a_key_whose_last_write_is_undecided_is_reported() {
    assert_eq!(run_case(&MkvsEngine, &undecided_write(), None), Ok(Some(Class::Reported)));
}

/// The index of both whole devices lost a line each, and the third device was copied from them.
#[test]
fn a_walk_over_devices_with_damaged_indexes_leaves_out_no_key_silently() {
    const SEED: u64 = 21;
    const BASE: u64 = 346;
    let zero = |file, offset| Fault::Zero { at: Place { file, offset, len: 64 } };
    let case = Case {
        history: scripts::history(&MkvsEngine, SEED, BASE, None),
        history_seed: 11_899_697_469_965_935_777,
        faults: vec![zero(4, 35520), zero(2, 34048)],
        effort: Effort { again: false, ops: 0, seed: 1 },
    };
    assert_eq!(run_case(&MkvsEngine, &case, None), Ok(Some(Class::Reported)));
}

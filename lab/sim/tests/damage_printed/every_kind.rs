use lodestore_contract::Batch;
use lodestore_contract::BatchOp;
use lodestore_contract::Expiry;
use lodestore_contract::Lifetime;
use lodestore_sim::damage::base::End;
use lodestore_sim::damage::base::History;
use lodestore_sim::damage::fault::Fault;
use lodestore_sim::damage::fault::Place;
use lodestore_sim::damage::oracle::Effort;
use lodestore_sim::damage::{Case, run_case};
use lodestore_sim::op::Op;
use lodestore_sim::shape::Shape;
use lodestore_sim::hikv::HiKvEngine;

fn case_of_damage_hikv_0_0() -> Case {
    Case {
        history: History {
            shape: Shape { capacity: 131072, region_bytes: 131072, chunk_bytes: 512, partitions: 1, mode: 0 },
            ops: vec![
                Op::Put { key: b"k0".to_vec(), value: vec![7; 20], expiry: Some(4102444800000) },
                Op::Insert { key: b"k1".to_vec(), value: b"a\x00\"\\b".to_vec(), lifetime: Lifetime::Forever },
                Op::Update { key: b"k1".to_vec(), value: b"".to_vec(), lifetime: Lifetime::Until(Expiry::at_millis(4102444800000)) },
                Op::Swap { key: b"k1".to_vec(), expected: Some(b"".to_vec()), new: None, lifetime: Lifetime::Forever },
                Op::Append { key: b"k2".to_vec(), bytes: b"tail".to_vec(), lifetime: Lifetime::Keep },
                Op::Remove { key: b"k2".to_vec() },
                Op::Get { key: b"k0".to_vec() },
                Op::Batch { batch: Batch { ops: vec![BatchOp::Put { key: b"k3".to_vec(), value: b"v".to_vec(), expiry: Some(Expiry::at_millis(4102444800000)) }, BatchOp::Delete { key: b"k0".to_vec() }] } },
                Op::Sync,
                Op::Sweep,
                Op::Reopen,
                Op::Kill,
                Op::PowerCut,
                Op::Delete { key: b"k3".to_vec() },
            ],
            end: End::Crash(3),
        },
        history_seed: 1,
        faults: vec![Fault::Flip { at: Place { file: 0, offset: 8200, len: 1 }, bit: 3 }, Fault::Zero { at: Place { file: 0, offset: 8256, len: 64 } }, Fault::Garbage { at: Place { file: 0, offset: 16384, len: 4096 }, seed: 5 }, Fault::Stale { at: Place { file: 0, offset: 20480, len: 64 }, moment: 0 }, Fault::Misplaced { at: Place { file: 0, offset: 24576, len: 64 }, from_offset: 0, from_file: 0 }, Fault::Swapped { at: Place { file: 0, offset: 0, len: 131072 }, other: 0 }, Fault::Truncated { at: Place { file: 0, offset: 65536, len: 131072 } }],
        effort: Effort { again: false, ops: 0, seed: 9 },
    }
}

#[test]
fn damage_hikv_0_0() {
    run_case(&HiKvEngine, &case_of_damage_hikv_0_0(), None).expect("the rule");
}

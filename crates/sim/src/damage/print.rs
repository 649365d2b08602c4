//! A case as a Rust test.

use std::fmt::Write as _;

use lodestore_contract::BatchOp;

use super::base::End;
use super::fault::Fault;
use super::{Case, Failure};
use crate::op::Op;

fn bytes(bytes: &[u8]) -> String {
    let is_run = bytes.len() > 3 && bytes.iter().all(|byte| *byte == bytes[0]);
    if is_run {
        return format!("vec![{}; {}]", bytes[0], bytes.len());
    }
    format!("b\"{}\".to_vec()", bytes.escape_ascii())
}

fn option(value: Option<&Vec<u8>>) -> String {
    value.map_or_else(|| "None".into(), |value| format!("Some({})", bytes(value)))
}

fn op(op: &Op) -> String {
    match op {
        Op::Put { key, value, expiry } => {
            format!("Op::Put {{ key: {}, value: {}, expiry: {expiry:?} }}", bytes(key), bytes(value))
        }
        Op::Insert { key, value } => format!("Op::Insert {{ key: {}, value: {} }}", bytes(key), bytes(value)),
        Op::Update { key, value } => format!("Op::Update {{ key: {}, value: {} }}", bytes(key), bytes(value)),
        Op::Delete { key } => format!("Op::Delete {{ key: {} }}", bytes(key)),
        Op::Swap { key, expected, new } => format!(
            "Op::Swap {{ key: {}, expected: {}, new: {} }}",
            bytes(key),
            option(expected.as_ref()),
            option(new.as_ref())
        ),
        Op::Append { key, bytes: more } => format!("Op::Append {{ key: {}, bytes: {} }}", bytes(key), bytes(more)),
        Op::Remove { key } => format!("Op::Remove {{ key: {} }}", bytes(key)),
        Op::Get { key } => format!("Op::Get {{ key: {} }}", bytes(key)),
        Op::Batch { batch } => {
            let ops: Vec<String> = batch.ops.iter().map(batch_op).collect();
            format!("Op::Batch {{ batch: Batch {{ ops: vec![{}] }} }}", ops.join(", "))
        }
        op => format!("Op::{op:?}"),
    }
}

fn batch_op(op: &BatchOp) -> String {
    match op {
        BatchOp::Put { key, value, expiry } => {
            let at = expiry.map(lodestore_contract::Expiry::millis);
            let expiry = at.map_or_else(|| "None".into(), |at| format!("Some(Expiry::at_millis({at}))"));
            format!("BatchOp::Put {{ key: {}, value: {}, expiry: {expiry} }}", bytes(key), bytes(value))
        }
        BatchOp::Delete { key } => format!("BatchOp::Delete {{ key: {} }}", bytes(key)),
    }
}

fn fault(fault: &Fault) -> String {
    format!("Fault::{fault:?}")
}

/// Prints a case as a value of Rust.
pub fn case(case: &Case) -> String {
    let mut out = String::from("Case {\n    history: History {\n");
    let _ = writeln!(out, "        shape: {:?},\n        ops: vec![", case.history.shape);
    for step in &case.history.ops {
        let _ = writeln!(out, "            {},", op(step));
    }
    let end = match case.history.end {
        End::Crash(seed) => format!("End::Crash({seed})"),
        end => format!("End::{end:?}"),
    };
    let _ = writeln!(out, "        ],\n        end: {end},\n    }},\n    history_seed: {},", case.history_seed);
    let faults: Vec<String> = case.faults.iter().map(fault).collect();
    let _ = writeln!(out, "    faults: vec![{}],\n    effort: {:?},\n}}", faults.join(", "), case.effort);
    out
}

/// Prints a failure as a ready test.
pub fn test(engine: &str, failure: &Failure) -> String {
    let engine_type = match engine {
        "hikv" => "HiKvEngine",
        "nvht" => "NvhtEngine",
        "fluidkv" => "FluidEngine",
        "hashkv" => "HashEngine",
        _ => "MkvsEngine",
    };
    let body = case(&failure.case).replace('\n', "\n    ");
    format!(
        "#[test]\nfn damage_{engine}_{}_{}() {{\n    let case = {};\n    run_case(&{engine_type}, &case, None).expect(\"the rule\");\n}}\n",
        failure.id.base,
        failure.id.image,
        body.trim_end()
    )
}

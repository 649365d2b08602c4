//! A case as a Rust test.

use std::fmt::Write as _;

use lodestore_contract::{BatchOp, Expiry, Lifetime};
use lodestore_media::PlantedFault;

use super::base::End;
use super::fault::Fault;
use super::{Case, Failure};
use crate::op::Op;

/// Names that a printed case may use, each with its path.
const NAMES: [(&str, &str); 13] = [
    ("Batch {", "lodestore_contract::Batch"),
    ("BatchOp::", "lodestore_contract::BatchOp"),
    ("Expiry::", "lodestore_contract::Expiry"),
    ("Lifetime::", "lodestore_contract::Lifetime"),
    ("End::", "lodestore_sim::damage::base::End"),
    ("History {", "lodestore_sim::damage::base::History"),
    ("Fault::", "lodestore_sim::damage::fault::Fault"),
    ("Place {", "lodestore_sim::damage::fault::Place"),
    ("Effort {", "lodestore_sim::damage::oracle::Effort"),
    ("Case {", "lodestore_sim::damage::{Case, run_case}"),
    ("named(", "lodestore_sim::faults::named"),
    ("Op::", "lodestore_sim::op::Op"),
    ("Shape {", "lodestore_sim::shape::Shape"),
];

/// Returns a `use` line for each name that `code` has.
fn imports(code: &str) -> String {
    NAMES.iter().filter(|(name, _)| is_word(code, name)).map(|(_, path)| format!("use {path};\n")).collect()
}

/// Whether `name` is in `code`, and not as the end of a longer name.
fn is_word(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| !code[..at].ends_with(|last: char| last.is_alphanumeric() || last == '_'))
}

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

fn lifetime(lifetime: Lifetime) -> String {
    match lifetime {
        Lifetime::Until(expiry) => format!("Lifetime::Until(Expiry::at_millis({}))", expiry.millis()),
        lifetime => format!("Lifetime::{lifetime:?}"),
    }
}

fn op(op: &Op) -> String {
    match op {
        Op::Put { key, value, expiry } => {
            format!("Op::Put {{ key: {}, value: {}, expiry: {expiry:?} }}", bytes(key), bytes(value))
        }
        Op::Insert { key, value, lifetime: given } => {
            format!("Op::Insert {{ key: {}, value: {}, lifetime: {} }}", bytes(key), bytes(value), lifetime(*given))
        }
        Op::Update { key, value, lifetime: given } => {
            format!("Op::Update {{ key: {}, value: {}, lifetime: {} }}", bytes(key), bytes(value), lifetime(*given))
        }
        Op::Delete { key } => format!("Op::Delete {{ key: {} }}", bytes(key)),
        Op::Swap { key, expected, new, lifetime: given } => format!(
            "Op::Swap {{ key: {}, expected: {}, new: {}, lifetime: {} }}",
            bytes(key),
            option(expected.as_ref()),
            option(new.as_ref()),
            lifetime(*given)
        ),
        Op::Append { key, bytes: more, lifetime: given } => {
            format!("Op::Append {{ key: {}, bytes: {}, lifetime: {} }}", bytes(key), bytes(more), lifetime(*given))
        }
        Op::Remove { key } => format!("Op::Remove {{ key: {} }}", bytes(key)),
        Op::Get { key } => format!("Op::Get {{ key: {} }}", bytes(key)),
        Op::Batch { batch } => {
            let ops: Vec<String> = batch.ops.iter().map(batch_op).collect();
            format!("Op::Batch {{ batch: Batch {{ ops: vec![{}] }} }}", ops.join(", "))
        }
        // The damage explorer makes no batches with conditions.
        op => format!("Op::{op:?}"),
    }
}

fn batch_op(op: &BatchOp) -> String {
    match op {
        BatchOp::Put { key, value, expiry } => {
            let at = expiry.map(Expiry::millis);
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

/// Prints a failure as a ready test file: `use` lines, the case, and the test.
pub fn test(engine: &str, failure: &Failure, mutant: Option<PlantedFault>) -> String {
    let engine_type = match engine {
        "hikv" => "HiKvEngine",
        "nvht" => "NvhtEngine",
        "fluidkv" => "FluidEngine",
        "hashkv" => "HashEngine",
        _ => "MkvsEngine",
    };
    let name = format!("damage_{engine}_{}_{}", failure.id.base, failure.id.image);
    let body = case(&failure.case).replace('\n', "\n    ");
    let fault = mutant.map_or_else(|| "None".into(), |mutant| format!("named(&{engine_type}, \"{mutant:?}\")"));
    let code = format!(
        "fn case_of_{name}() -> Case {{\n    {}\n}}\n\n\
         #[test]\nfn {name}() {{\n    run_case(&{engine_type}, &case_of_{name}(), {fault}).expect(\"the rule\");\n}}\n",
        body.trim_end()
    );
    format!("{}use lodestore_sim::{engine}::{engine_type};\n\n{code}", imports(&code))
}

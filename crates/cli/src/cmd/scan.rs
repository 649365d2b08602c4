//! `scan`.

use std::ops::Bound;

use lodestore::store::{Direction, ScanRange, Visit};

use super::{Access, with_keyspace};
use crate::args::ScanArgs;
use crate::failure::Outcome;
use crate::format::jsonl;
use crate::text::Coding;

/// Writes the pairs of a range.
pub fn run(args: &ScanArgs) -> Outcome {
    let coding = Coding::from(args.coding);
    let range = range(args, coding)?;
    with_keyspace(&args.store, Access::Read, |store, out| {
        super::wait_recovered(store)?;
        let mut done = Ok(());
        let mut line = Vec::new();
        store.scan_each(&range, &mut |key, value| {
            let value = (!args.keys_only).then_some(value);
            done = if args.store.json {
                out.with(|out| jsonl::write(out, None, key, value, None))
            } else {
                line.clear();
                coding.encode(key, &mut line);
                if let Some(value) = value {
                    line.push(b'\t');
                    coding.encode(value, &mut line);
                }
                line.push(b'\n');
                out.bytes(&line)
            };
            if done.is_ok() { Visit::More } else { Visit::Stop }
        })?;
        done
    })
}

/// Returns the keys that satisfy every given bound.
fn range(args: &ScanArgs, coding: Coding) -> Outcome<ScanRange> {
    let mut range = match &args.prefix {
        Some(prefix) => ScanRange::prefix(&coding.decode("--prefix", prefix)?),
        None => ScanRange::all(),
    };
    if let Some(from) = &args.from {
        let from = coding.decode("--from", from)?;
        if range.above_from(&from) {
            range.from = Bound::Included(from);
        }
    }
    if let Some(to) = &args.to {
        let to = coding.decode("--to", to)?;
        if range.below_to(&to) {
            range.to = Bound::Excluded(to);
        }
    }
    if args.reverse {
        range.direction = Direction::Backward;
    }
    range.limit = args.limit.unwrap_or(usize::MAX);
    Ok(range)
}

//! `compact`.

use lodestore::stats::{MediumUse, format_size};

use super::{object, wait_recovered, with_opened};
use crate::args::StoreArgs;
use crate::failure::Outcome;

/// Runs the background work of earlier writes, and writes how much it freed.
pub fn run(args: &StoreArgs) -> Outcome {
    with_opened(args, false, |opened, out| {
        opened.run_and_print_damage(out, |out| {
            wait_recovered(&opened.store)?;
            let before = opened.store.stats().space;
            opened.db.settle()?;
            let after = opened.store.stats().space;
            let freed = freed(&before, &after);
            if args.json {
                return out.json(object([
                    ("freed", freed.into()),
                    ("live_before", before.live.into()),
                    ("live", after.live.into()),
                    ("dead_before", before.dead.into()),
                    ("dead", after.dead.into()),
                    ("size_before", before.size.into()),
                    ("size", after.size.into()),
                ]));
            }
            let of = |before: u64, after: u64| format!("{} (before: {})", format_size(after), format_size(before));
            out.table(&[
                ("freed".to_owned(), format_size(freed)),
                ("live".to_owned(), of(before.live, after.live)),
                ("dead".to_owned(), of(before.dead, after.dead)),
                ("size".to_owned(), of(before.size, after.size)),
            ])
        })
    })
}

/// Returns the bytes that live and dead data used before and no longer use.
fn freed(before: &MediumUse, after: &MediumUse) -> u64 {
    (before.live + before.dead).saturating_sub(after.live + after.dead)
}

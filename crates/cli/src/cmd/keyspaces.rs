//! `keyspaces` and `drop-keyspace`.

use super::{no_keyspace, object, wait_recovered, with_opened};
use crate::advice::error_text;
use crate::args::{DropKeyspaceArgs, StoreArgs};
use crate::failure::{Outcome, note};
use crate::text::display_key;

/// Lists the named keyspaces and the number of keys in each.
pub fn list(args: &StoreArgs) -> Outcome {
    with_opened(args, false, |opened, out| {
        opened.run_and_print_damage(out, |out| {
            wait_recovered(&opened.store)?;
            for name in opened.db.keyspaces()? {
                let count = opened.db.keyspace(&name)?.count()?;
                if args.json {
                    out.json(object([("keyspace", name.into()), ("count", count.into())]))?;
                } else {
                    out.line(format!("{}\t{count}", display_key(name.as_bytes())))?;
                }
            }
            Ok(())
        })
    })
}

/// Removes a keyspace, and waits until its space is free.
pub fn remove(args: &DropKeyspaceArgs) -> Outcome {
    with_opened(&args.store, false, |opened, out| {
        opened.run_and_print_damage(out, |out| {
            let is_dropped = opened.db.drop_keyspace(&args.name)?;
            if args.store.json {
                let name = args.name.as_str();
                out.json(object([
                    ("op", "drop-keyspace".into()),
                    ("keyspace", name.into()),
                    ("done", is_dropped.into()),
                ]))?;
            }
            if !is_dropped {
                return Err(no_keyspace(&args.name, args.store.path()));
            }
            // The space is freed while the store is open, so the command waits.
            if let Err(error) = opened.db.settle() {
                let why = error_text(&error);
                note(&format!("the keyspace is dropped, and the next open frees the rest of its space: {why}"));
            }
            Ok(())
        })
    })
}

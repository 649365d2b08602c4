//! `destroy`.

use std::io::{self, BufRead, IsTerminal, Write};

use lodestore::stats::format_size;
use lodestore::store::{destroy, destroy_with_devices, info};

use super::object;
use crate::args::DestroyArgs;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, thousands};

/// Removes a store, after a confirmation.
pub fn run(args: &DestroyArgs) -> Outcome {
    let path = args.store.display();
    if !args.yes {
        if !io::stdin().is_terminal() {
            let what = format!(
                "destroy removes {path} permanently, and standard input is not a terminal: add --yes to confirm"
            );
            return Err(Failure::Usage(what));
        }
        let what = match info(&args.store) {
            Ok(found) => {
                let bytes = found.files.iter().map(|file| file.bytes).sum();
                format!("the {} store {path} ({})", found.header.engine, format_size(bytes))
            }
            // A damaged store may be destroyed too.
            Err(lodestore::Error::Corrupt { .. }) => format!("the damaged store {path}"),
            Err(error) => return Err(error.into()),
        };
        if !is_confirmed(&what)? {
            return Err(Failure::No("not confirmed, so nothing was removed: answer yes, or add --yes".into()));
        }
    }
    let remove = if args.devices { destroy_with_devices } else { destroy };
    let destroyed = remove(&args.store)?;
    let mut out = Out::new();
    if args.json {
        let path = args.store.to_string_lossy();
        out.json(object([
            ("destroyed", path.into()),
            ("files", destroyed.files.into()),
            ("bytes", destroyed.bytes.into()),
        ]))?;
    } else {
        let (files, size) = (thousands(destroyed.files), format_size(destroyed.bytes));
        out.line(format!("destroyed {path}: {files} files, {size}"))?;
    }
    out.flush()
}

/// Asks on the terminal.
fn is_confirmed(what: &str) -> Outcome<bool> {
    let asked =
        write!(io::stderr(), "Remove {what} with all of its keys? Type yes: ").and_then(|()| io::stderr().flush());
    asked.map_err(Failure::Output)?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::Other(format!("reading the answer: {error}")))?;
    Ok(answer.trim().eq_ignore_ascii_case("yes"))
}

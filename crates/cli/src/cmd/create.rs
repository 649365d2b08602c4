//! `create`.

use lodestore::options::CreateOptions;
use lodestore::stats::format_size;

use super::{close, object};
use crate::args::CreateArgs;
use crate::failure::Outcome;
use crate::out::Out;

/// Creates a store and describes it.
pub fn run(args: &CreateArgs) -> Outcome {
    let mut options = CreateOptions::new().engine(&args.engine).size(args.size).emulate_dax(args.emulate_dax);
    if let Some(durability) = args.durability {
        options = options.durability(durability);
    }
    for text in &args.set {
        options = options.set_text(text)?;
    }
    let choice = options.choice(&args.store)?;
    let store = lodestore::store::create(&args.store, &options)?;
    let stats = store.stats();
    close(&store)?;
    let mut out = Out::new();
    let path = args.store.to_string_lossy();
    if args.json {
        out.json(object([
            ("store", path.into()),
            ("engine", stats.engine.into()),
            ("medium", stats.medium.into()),
            ("durability", stats.durability.to_string().into()),
            ("capacity", stats.space.capacity.into()),
            ("reason", choice.reason.into()),
        ]))?;
    } else {
        out.line(format!(
            "created {path}: engine {}, medium {}, durability {}, up to {}",
            stats.engine,
            stats.medium,
            stats.durability,
            format_size(stats.space.capacity)
        ))?;
        out.line(format!("chosen because {}", choice.reason))?;
    }
    out.flush()
}

//! The commands, one file each, or one for several that are alike.

mod backup;
mod create;
mod doctor;
mod export;
mod import;
mod mkvs;
mod point;
mod scan;
mod stats;
mod verify;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::CommandFactory;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lodestore::{Lodestore, OpenOptions};
use serde_json::{Map, Value, json};

use crate::args::{Cli, Command, StoreArgs};
use crate::failure::{Failure, Outcome};
use crate::open_damage::OpenDamage;
use crate::out::Out;
use crate::sample;

/// Runs a command.
pub fn run(command: Command) -> Outcome {
    match command {
        Command::Create(args) => create::run(&args),
        Command::Put(args) => point::write(&args, point::Mode::Put),
        Command::Insert(args) => point::write(&args, point::Mode::Insert),
        Command::Update(args) => point::update(&args),
        Command::Get(args) => point::get(&args),
        Command::Delete(args) => point::delete(&args),
        Command::Count(args) => stats::count(&args.store),
        Command::Stats(args) => stats::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Mkvs(args) => mkvs::run(&args.command),
        Command::Sample(args) => sample::run(&args),
        Command::Engines(args) => engines(args.json),
        Command::Completions { shell } => completions(shell),
    }
}

/// Opens the store, does `work`, writes out what it said and closes the store. What `work` says
/// goes before what the closing says. The answer is out before the closing, which waits for the end of a
/// recovery behind it: only then can the store be left as after a clean stop.
fn with_store(args: &StoreArgs, salvage: bool, work: impl FnOnce(&Lodestore, &mut Out) -> Outcome) -> Outcome {
    with_store_and_damage(args, salvage, |store, out, damage| {
        let done = work(store, out);
        // Any other failure says itself what is damaged.
        if let Ok(()) | Err(Failure::No(_)) = done {
            out.flush()?;
            damage.tell();
        }
        done
    })
}

/// As [`with_store`]. `work` gets the damage that was found since the open began, and tells it.
fn with_store_and_damage(
    args: &StoreArgs,
    salvage: bool,
    work: impl FnOnce(&Lodestore, &mut Out, &OpenDamage) -> Outcome,
) -> Outcome {
    let damage = OpenDamage::default();
    let mut options = OpenOptions::new().salvage(salvage).events(damage.sink());
    if let Some(engine) = &args.engine {
        options = options.engine(engine);
    }
    for text in &args.set {
        options = options.set_text(text)?;
    }
    let store = lodestore::open(&args.store, &options).map_err(|error| Failure::Open { error, salvage })?;
    let mut out = Out::new();
    let done = work(&store, &mut out, &damage);
    let flushed = out.flush();
    let closed = close(&store);
    done?;
    flushed?;
    Ok(closed?)
}

/// Stops the store cleanly.
fn close(store: &Lodestore) -> lodestore::Result<()> {
    // What stops a recovery is no failure of the closing; the next opening meets it again.
    let _ = store.wait_recovered();
    store.close()
}

/// Waits until recovery is done, with a bar on a terminal.
fn wait_recovered(store: &Lodestore) -> Outcome {
    if store.stats().recovery.done {
        return Ok(());
    }
    let bar = bar("recovering", Some(1000), false);
    let (stop, stopped) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let bar = &bar;
        let show = move || {
            while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                bar.set_position((store.stats().recovery.share * 1000.0) as u64);
            }
        };
        // Without a thread the bar does not move.
        let _shown = thread::Builder::new().spawn_scoped(scope, show);
        let done = store.wait_recovered();
        drop(stop);
        done
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// A progress bar on standard error, hidden where that is no terminal.
fn bar(what: &'static str, total: Option<u64>, bytes: bool) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
    let template = match (total.is_some(), bytes) {
        (true, true) => "{prefix} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}",
        (true, false) => "{prefix} [{wide_bar}] {percent}% {eta} {msg}",
        (false, _) => "{prefix} {spinner} {bytes} {bytes_per_sec} {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_prefix(what)
}

/// A JSON object of these names.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn engines(json: bool) -> Outcome {
    let mut out = Out::new();
    for engine in lodestore::engines() {
        if json {
            let options: Vec<_> = engine
                .options()
                .iter()
                .map(|spec| json!({"name": spec.name, "default": spec.default, "takes": spec.takes, "help": spec.help, "fixed": spec.fixed}))
                .collect();
            out.json(object([
                ("engine", engine.name.into()),
                ("about", engine.about.into()),
                ("options", options.into()),
            ]))?;
        } else {
            out.line(format!("{}: {}", engine.name, engine.about))?;
            let rows: Vec<_> = engine
                .options()
                .iter()
                .map(|spec| {
                    let when = if spec.fixed { "; at creation only" } else { "" };
                    let help = format!("{} (takes {}{when})", spec.help, spec.takes);
                    (format!("  {}={}", spec.name, spec.default), help)
                })
                .collect();
            out.table(&rows)?;
        }
    }
    out.flush()
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lodestore", &mut text);
    let mut out = Out::new();
    out.bytes(&text)?;
    out.flush()
}

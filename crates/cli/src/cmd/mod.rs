//! The commands, one file each, or one file for several similar ones.

mod backup;
mod compact;
#[cfg(feature = "serve")]
mod config;
mod convert;
mod create;
mod destroy;
mod doctor;
mod export;
mod import;
mod import_foreign;
#[cfg(feature = "peers")]
mod import_rocksdb;
mod info;
mod keyspaces;
mod man;
#[cfg(feature = "mkvs")]
mod mkvs;
#[cfg(not(feature = "peers"))]
mod no_rocksdb;
mod point;
mod scan;
#[cfg(feature = "serve")]
mod serve;
mod stats;
mod verify;

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::CommandFactory;
use lodestore::Db;
use lodestore::options::OpenOptions;
use lodestore::store::Lodestore;
use serde_json::{Map, Value, json};

use crate::args::{Cli, Command, DataArgs, StoreArgs};
use crate::failure::{Failure, Outcome};
use crate::open_damage::OpenDamage;
use crate::out::Out;
use crate::progress::{ProgressBar, Unit};
use crate::sample;
use crate::text::display_key;

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
        Command::Keyspaces(args) => keyspaces::list(&args.store),
        Command::DropKeyspace(args) => keyspaces::remove(&args),
        Command::Info(args) => info::run(&args),
        Command::Compact(args) => compact::run(&args.store),
        Command::Convert(args) => convert::run(&args),
        Command::Destroy(args) => destroy::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        #[cfg(feature = "mkvs")]
        Command::Mkvs(args) => mkvs::run(&args.command),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(&args),
        #[cfg(feature = "serve")]
        Command::Config(args) => config::run(&args),
        Command::Sample(args) => sample::run(&args),
        Command::Engines(args) => engines(args.json),
        Command::Man { dir } => man::run(dir.as_deref()),
        Command::Completions { shell } => completions(shell),
    }
}

/// An open store.
struct Opened {
    db: Db,
    /// The default keyspace.
    store: Lodestore,
    /// The whole store, with the pairs of all keyspaces.
    whole: Lodestore,
    /// The damage found since the open began.
    damage: OpenDamage,
}

/// The behaviour of a command if its keyspace does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Refuses.
    Read,
    /// Creates the keyspace.
    Create,
}

impl Opened {
    /// Returns the keyspace `name` as a store.
    ///
    /// # Errors
    /// [`Failure::No`] if there is none and `access` does not create it.
    fn keyspace(&self, name: &str, access: Access, path: &Path) -> Outcome<Lodestore> {
        if access == Access::Read && !self.db.keyspaces()?.iter().any(|known| known == name) {
            return Err(no_keyspace(name, path));
        }
        Ok(self.db.keyspace(name)?.as_store())
    }

    /// Runs `work`. Reports damage after the answer, unless a failure describes it.
    fn run_and_print_damage(&self, out: &mut Out, work: impl FnOnce(&mut Out) -> Outcome) -> Outcome {
        let done = work(out);
        if let Ok(()) | Err(Failure::No(_)) = done {
            out.flush()?;
            self.damage.print();
        }
        done
    }
}

/// Returns the answer of a command on a keyspace that does not exist.
fn no_keyspace(name: &str, path: &Path) -> Failure {
    let (name, path) = (display_key(name.as_bytes()), path.display());
    Failure::No(format!(
        "no keyspace {name} in {path}: `lodestore keyspaces {path}` lists the keyspaces, and put creates one"
    ))
}

/// Opens the store, runs `work` on its default keyspace, writes the answer and closes the store.
fn with_store(args: &StoreArgs, salvage: bool, work: impl FnOnce(&Lodestore, &mut Out) -> Outcome) -> Outcome {
    with_opened(args, salvage, |opened, out| opened.run_and_print_damage(out, |out| work(&opened.store, out)))
}

/// As [`with_store`], on the keyspace in the arguments.
fn with_keyspace(args: &DataArgs, access: Access, work: impl FnOnce(&Lodestore, &mut Out) -> Outcome) -> Outcome {
    with_opened(args, false, |opened, out| {
        opened.run_and_print_damage(out, |out| match &args.keyspace {
            None => work(&opened.store, out),
            Some(name) => work(&opened.keyspace(name, access, args.path())?, out),
        })
    })
}

/// Opens the store, runs `work`, writes the answer and closes the store. The answer is written
/// before the close, which waits for the end of recovery: only then is the stop clean. `work`
/// reports the damage.
fn with_opened(args: &StoreArgs, salvage: bool, work: impl FnOnce(&Opened, &mut Out) -> Outcome) -> Outcome {
    let damage = OpenDamage::default();
    let mut options = OpenOptions::new().salvage(salvage).events(damage.sink(&args.store));
    if let Some(engine) = &args.engine {
        options = options.engine(engine);
    }
    for text in &args.set {
        options = options.set_text(text)?;
    }
    let store = lodestore::store::open(&args.store, &options).map_err(|error| Failure::Open { error, salvage })?;
    let db = Db::from(store.clone());
    let opened = Opened { store: db.as_store(), whole: store, db, damage };
    let mut out = Out::new();
    let done = work(&opened, &mut out);
    let flushed = out.flush();
    let closed = close(&opened.store);
    done?;
    flushed?;
    Ok(closed?)
}

/// Stops the store cleanly.
fn close(store: &Lodestore) -> lodestore::Result<()> {
    // An error that stops recovery is not a failure of the close; the next open finds it again.
    let _ = store.wait_recovered();
    store.close()
}

/// Waits until recovery is done, with a bar on a terminal.
fn wait_recovered(store: &Lodestore) -> Outcome {
    if store.stats().recovery.done {
        return Ok(());
    }
    let (stop, stopped) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let show = move || {
            let bar = ProgressBar::new("recovering", Some(1000), Unit::Records);
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
    Ok(())
}

/// Returns a JSON object with these fields.
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
                .filter(|spec| spec.is_built)
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
                .filter(|spec| spec.is_built)
                .map(|spec| {
                    let when = if spec.fixed { "; only at creation" } else { "" };
                    let help = format!("{} (values: {}{when})", spec.help, spec.takes);
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

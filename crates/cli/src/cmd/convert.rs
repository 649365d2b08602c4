//! `convert`.

use std::path::Path;

use lodestore::backup::parts::{Account, Staging};
use lodestore::options::{CreateOptions, OpenOptions};
use lodestore::store::{Lodestore, Pair, Visit};
use lodestore::{Db, Error};

use super::{Opened, close, object, wait_recovered, with_opened};
use crate::args::{ConvertArgs, StoreArgs};
use crate::failure::{Failure, Outcome};
use crate::out::{Out, thousands};
use crate::progress::{ProgressBar, Unit};
use crate::stop_signal::StopSignal;

/// Records between two updates of the progress bar and checks of signals.
const STEP_RECORDS: u64 = 256;

/// Copies a store into a new one of any engine, and verifies the copy. The new store gets its name
/// when it is whole.
pub fn run(args: &ConvertArgs) -> Outcome {
    let signal = StopSignal::watch();
    let source = StoreArgs { store: args.source.clone(), engine: None, set: Vec::new(), json: args.json };
    with_opened(&source, false, |opened, out| {
        opened.run_and_print_damage(out, |out| {
            wait_recovered(&opened.store)?;
            let copied = copy(args, opened, &signal)?;
            report(args, out, &copied)
        })
    })
}

fn report(args: &ConvertArgs, out: &mut Out, copied: &CopySummary) -> Outcome {
    let (target, records, keyspaces) = (args.target.display(), copied.records, copied.keyspaces);
    if args.json {
        return out.json(object([
            ("converted", records.into()),
            ("keyspaces", keyspaces.into()),
            ("store", args.target.to_string_lossy().into()),
            ("engine", copied.engine.into()),
            ("verified", true.into()),
        ]));
    }
    let named = if keyspaces == 1 { "1 named keyspace".to_owned() } else { format!("{keyspaces} named keyspaces") };
    let (records, engine) = (thousands(records), copied.engine);
    out.line(format!("converted {records} records and {named} to {target}: engine {engine}, verified"))
}

/// The number of records and keyspaces of a copy, and its engine.
struct CopySummary {
    records: u64,
    /// Keyspaces with names.
    keyspaces: usize,
    engine: &'static str,
}

/// Makes and verifies the copy. A failure, a signal and the next run after a kill remove a copy
/// that is not whole.
fn copy(args: &ConvertArgs, source: &Opened, signal: &StopSignal) -> Outcome<CopySummary> {
    let options = creation_options(args, &source.whole)?;
    let staging = Staging::begin(&args.target)?;
    let content = staging.content();
    let created = lodestore::store::create(&content, &options);
    let target = Db::from(created.map_err(|error| replace_path(error, &args.target))?);
    let engine = target.as_store().engine();
    let names = source.db.keyspaces()?;
    let total = source.store.stats().keys;
    let walk = Walk { bar: ProgressBar::new("converting", Some(total), Unit::Records), signal };
    let read = each_keyspace(&source.db, &names, &mut |name, from| {
        let to = keyspace_of(&target, name)?;
        walk.run(from, Account::begin(), &mut |pair| to.put_expiring(pair.key, pair.value, pair.expiry))
    });
    let closed = close(&target.as_store());
    let read = read?;
    closed?;
    drop(target);
    verify(&content, &names, &read, signal)?;
    staging.finish()?;
    Ok(CopySummary { records: records_of(&read), keyspaces: names.len(), engine })
}

/// Returns the options of the new store: the given ones, and the source's for the rest. The fixed
/// options of the source belong to its engine, so another engine does not get them.
fn creation_options(args: &ConvertArgs, source: &Lodestore) -> Outcome<CreateOptions> {
    let stats = source.stats();
    let engine = args.engine.as_deref().unwrap_or(source.engine());
    let mut options = CreateOptions::new()
        .engine(engine)
        .size(args.size.unwrap_or(stats.space.capacity))
        .durability(args.durability.unwrap_or(stats.durability));
    if engine == source.engine() {
        for (name, value) in source.creation_options().iter() {
            options = options.set(name, value);
        }
    }
    for text in &args.set {
        options = options.set_text(text)?;
    }
    Ok(options)
}

/// Names the target in place of the directory in which the new store is made.
fn replace_path(mut error: Error, target: &Path) -> Error {
    if let Error::NoRoom { path, .. } = &mut error {
        *path = target.into();
    }
    error
}

/// Compares the pairs of the new store with the read ones.
fn verify(content: &Path, names: &[String], read: &[Account], signal: &StopSignal) -> Outcome {
    let target = Db::from(lodestore::store::open(content, &OpenOptions::new())?);
    target.wait_recovered()?;
    let walk = Walk { bar: ProgressBar::new("verifying", Some(records_of(read)), Unit::Records), signal };
    let mut expected = read.iter();
    let found = each_keyspace(&target, names, &mut |_, store| {
        let account = expected.next().map_or_else(Account::begin, Account::begin_comparable);
        walk.run(store, account, &mut |_| Ok(()))
    });
    let known = target.keyspaces();
    let closed = close(&target.as_store());
    let found = found?;
    closed?;
    let is_copy = known? == names && read.iter().zip(&found).all(|(read, found)| read.agrees_with(found));
    if !is_copy {
        let (wrote, read) = (records_of(&found), records_of(read));
        let what = format!(
            "the new store has {wrote} records, which differ from the {read} records of SRC, so nothing was \
             converted: run `lodestore verify` on SRC, and convert again"
        );
        return Err(Failure::Store(Error::corrupt("the new store", what)));
    }
    Ok(())
}

fn records_of(accounts: &[Account]) -> u64 {
    accounts.iter().map(Account::pairs).sum()
}

fn keyspace_of(db: &Db, name: Option<&str>) -> Outcome<Lodestore> {
    match name {
        None => Ok(db.as_store()),
        Some(name) => Ok(db.keyspace(name)?.as_store()),
    }
}

/// Calls `each` with the default keyspace and the keyspaces with names. Returns their accounts.
fn each_keyspace(
    db: &Db,
    names: &[String],
    each: &mut dyn FnMut(Option<&str>, &Lodestore) -> Outcome<Account>,
) -> Outcome<Vec<Account>> {
    let all = [None].into_iter().chain(names.iter().map(|name| Some(name.as_str())));
    all.map(|name| each(name, &keyspace_of(db, name)?)).collect()
}

/// A walk over the pairs of a store.
struct Walk<'a> {
    bar: ProgressBar,
    signal: &'a StopSignal,
}

impl Walk<'_> {
    /// Calls `each` with each pair of a keyspace, and adds the pairs to `account`.
    fn run(
        &self,
        store: &Lodestore,
        mut account: Account,
        each: &mut dyn FnMut(Pair<'_>) -> lodestore::Result<()>,
    ) -> Outcome<Account> {
        let (mut visits, mut done) = (0_u64, Ok(()));
        let walked = store.for_each_pair(&mut |pair| {
            done = self.update_and_check(visits).and_then(|()| Ok(each(pair)?));
            visits += 1;
            account.add(pair);
            if done.is_ok() { Visit::More } else { Visit::Stop }
        });
        done?;
        walked?;
        Ok(account)
    }

    /// Before some of the visits, moves the bar and checks for a signal.
    fn update_and_check(&self, visits: u64) -> Outcome {
        if !visits.is_multiple_of(STEP_RECORDS) {
            return Ok(());
        }
        self.bar.inc(STEP_RECORDS);
        self.signal.check("convert")
    }
}

//! `convert`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lodestore::options::{CreateOptions, OpenOptions};
use lodestore::store::{Lodestore, Visit};
use lodestore::{Db, Error, Expiry};

use super::{Opened, close, object, wait_recovered, with_opened};
use crate::args::{ConvertArgs, StoreArgs};
use crate::failure::{Failure, Outcome, file_failure};
use crate::new_file::sync_name;
use crate::out::{Out, thousands};
use crate::progress::{ProgressBar, Unit};
use crate::stop_signal::StopSignal;

/// Records between two looks at the progress bar and at signals.
const STEP: u64 = 256;
const MINUTE_MS: u64 = 60_000;

/// Copies a store into a new one of any engine, and verifies the copy. The new store gets its name
/// when it is whole.
pub fn run(args: &ConvertArgs) -> Outcome {
    let signal = StopSignal::watch();
    let source = StoreArgs { store: args.source.clone(), engine: None, set: Vec::new(), json: args.json };
    if args.target.symlink_metadata().is_ok() {
        return Err(Error::TargetExists { path: args.target.clone() }.into());
    }
    with_opened(&source, false, |opened, out| {
        opened.tell_damage(out, |out| {
            wait_recovered(&opened.store)?;
            let unfinished = unfinished_path(&args.target)?;
            let done = copy(args, opened, &unfinished, &signal);
            if done.is_err() {
                // The first failure is reported. A part that stays has a name that says so.
                let _ = lodestore::store::destroy(&unfinished);
            }
            tell(args, out, &done?)
        })
    })
}

fn tell(args: &ConvertArgs, out: &mut Out, copied: &Copied) -> Outcome {
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

/// Returns the name of the new store until it is whole.
fn unfinished_path(target: &Path) -> Outcome<PathBuf> {
    let no_name = || Failure::Usage(format!("{} is no name of a directory: give another DST", target.display()));
    let mut name = OsString::from(".");
    name.push(target.file_name().ok_or_else(no_name)?);
    name.push(format!(".{}.part", std::process::id()));
    Ok(target.with_file_name(name))
}

/// The account of a copy.
struct Copied {
    records: u64,
    /// Keyspaces with names.
    keyspaces: usize,
    engine: &'static str,
}

fn copy(args: &ConvertArgs, source: &Opened, unfinished: &Path, signal: &StopSignal) -> Outcome<Copied> {
    let stats = source.store.stats();
    let mut options = CreateOptions::new()
        .engine(&args.engine)
        .size(args.size.unwrap_or(stats.space.capacity))
        .durability(args.durability.unwrap_or(stats.durability));
    for text in &args.set {
        options = options.set_text(text)?;
    }
    let names = source.db.keyspaces()?;
    let total = source.store.stats().keys;
    let target = lodestore::store::create(unfinished, &options)?;
    let engine = target.engine();
    let target = Db::from(target);
    let walk = Walk { bar: ProgressBar::new("converting", Some(total), Unit::Records), signal, doing: "convert" };
    let read = for_each_keyspace(&source.db, &names, &mut |name, from| {
        let to = keyspace_of(&target, name)?;
        walk.run(from, name, &mut |key, value, expiry| to.put_expiring(key, value, expiry))
    });
    let closed = close(&target.as_store());
    let read = read?;
    closed?;
    drop(target);
    check(unfinished, &names, &read, signal)?;
    finish(unfinished, &args.target)?;
    Ok(Copied { records: read.records(), keyspaces: names.len(), engine })
}

/// Compares the pairs of the new store with those that were read.
fn check(unfinished: &Path, names: &[String], read: &Tally, signal: &StopSignal) -> Outcome {
    let target = Db::from(lodestore::store::open(unfinished, &OpenOptions::new())?);
    target.wait_recovered()?;
    let walk =
        Walk { bar: ProgressBar::new("verifying", Some(read.records()), Unit::Records), signal, doing: "convert" };
    let found = for_each_keyspace(&target, names, &mut |name, store| walk.run(store, name, &mut |_, _, _| Ok(())));
    let known = target.keyspaces();
    let closed = close(&target.as_store());
    let found = found?;
    closed?;
    if known? != names || !found.is_copy_of(read, Expiry::after(Duration::ZERO)) {
        let (wrote, read) = (found.records(), read.records());
        return Err(Failure::Store(Error::corrupt(
            "the new store",
            format!(
                "its {wrote} records are not the {read} that were read: nothing was converted, run `lodestore verify` on SRC and convert again"
            ),
        )));
    }
    Ok(())
}

/// Gives the new store its name, durably.
fn finish(unfinished: &Path, target: &Path) -> Outcome {
    fs::rename(unfinished, target).map_err(file_failure("naming", target))?;
    sync_name(target)
}

fn keyspace_of(db: &Db, name: Option<&str>) -> Outcome<Lodestore> {
    match name {
        None => Ok(db.as_store()),
        Some(name) => Ok(db.keyspace(name)?.as_store()),
    }
}

/// Calls `each` with the default keyspace and those with names. Returns the sum of the tallies.
fn for_each_keyspace(
    db: &Db,
    names: &[String],
    each: &mut dyn FnMut(Option<&str>, &Lodestore) -> Outcome<Tally>,
) -> Outcome<Tally> {
    let mut tally = Tally::default();
    for name in [None].into_iter().chain(names.iter().map(|name| Some(name.as_str()))) {
        tally.add(each(name, &keyspace_of(db, name)?)?);
    }
    Ok(tally)
}

/// A walk over the pairs of a store.
struct Walk<'a> {
    bar: ProgressBar,
    signal: &'a StopSignal,
    doing: &'static str,
}

/// Receives a pair.
type Each<'a> = dyn FnMut(&[u8], &[u8], Option<Expiry>) -> lodestore::Result<()> + 'a;

impl Walk<'_> {
    fn run(&self, store: &Lodestore, keyspace: Option<&str>, each: &mut Each<'_>) -> Outcome<Tally> {
        let (mut tally, mut done) = (Tally::default(), Ok(()));
        let mut visit = |key: &[u8], value: &[u8]| {
            done = self.pair(store, keyspace, (key, value), &mut tally, each);
            if done.is_ok() { Visit::More } else { Visit::Stop }
        };
        let walked = store.for_each(&mut visit);
        done?;
        walked?;
        Ok(tally)
    }
    fn pair(
        &self,
        store: &Lodestore,
        keyspace: Option<&str>,
        (key, value): (&[u8], &[u8]),
        tally: &mut Tally,
        each: &mut Each<'_>,
    ) -> Outcome {
        if tally.visits.is_multiple_of(STEP) {
            self.bar.inc(STEP);
            self.signal.check(self.doing)?;
        }
        tally.visits += 1;
        let expiry = if store.capabilities().expiry { store.expiry(key)? } else { Some(None) };
        // A key that expired since the walk met it is absent.
        let Some(expiry) = expiry else { return Ok(()) };
        each(key, value, expiry)?;
        tally.note(hash(keyspace, key, value, expiry), expiry);
        Ok(())
    }
}

/// The hash of a pair. The lengths keep apart pairs that share their joined bytes.
fn hash(keyspace: Option<&str>, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in [keyspace.unwrap_or_default().as_bytes(), key, value] {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.write_u64(expiry.map_or(0, Expiry::millis));
    hasher.finish()
}

/// A number of pairs, and the sum of their hashes, which does not depend on their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    hashes: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.hashes = self.hashes.wrapping_add(other.hashes);
    }
}

/// The pairs of a store. Those that expire are summed by the minute in which they do: they may
/// expire between the copy and the check.
#[derive(Debug, Default)]
struct Tally {
    visits: u64,
    lasting: Sum,
    by_minute: BTreeMap<u64, Sum>,
}

impl Tally {
    fn note(&mut self, hash: u64, expiry: Option<Expiry>) {
        let sum = match expiry {
            None => &mut self.lasting,
            Some(expiry) => self.by_minute.entry(expiry.millis() / MINUTE_MS).or_default(),
        };
        sum.add(Sum { count: 1, hashes: hash });
    }

    fn add(&mut self, other: Self) {
        self.visits += other.visits;
        self.lasting.add(other.lasting);
        for (minute, sum) in other.by_minute {
            self.by_minute.entry(minute).or_default().add(sum);
        }
    }

    fn records(&self) -> u64 {
        self.lasting.count + self.by_minute.values().map(|sum| sum.count).sum::<u64>()
    }

    /// Returns whether these are the pairs of `read`, but for those that expired until `now`.
    fn is_copy_of(&self, read: &Self, now: Expiry) -> bool {
        let this_minute = now.millis() / MINUTE_MS;
        let sum = |tally: &Self, minute: &u64| tally.by_minute.get(minute).copied().unwrap_or_default();
        let minutes = || self.by_minute.keys().chain(read.by_minute.keys());
        self.lasting == read.lasting
            && minutes().all(|minute| match (sum(self, minute), sum(read, minute)) {
                (own, other) if *minute > this_minute => own == other,
                (own, other) => own.count <= other.count,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(pairs: &[(&str, Option<u64>)]) -> Tally {
        let mut tally = Tally::default();
        for (key, millis) in pairs {
            let expiry = millis.map(Expiry::at_millis);
            tally.note(hash(None, key.as_bytes(), b"v", expiry), expiry);
        }
        tally
    }

    #[test]
    fn a_copy_has_all_pairs_in_any_order_and_may_lack_those_that_expired() {
        let (soon, later) = (Some(90_000), Some(600_000));
        let read = tally(&[("a", None), ("b", None), ("c", soon), ("d", later)]);
        let now = Expiry::at_millis(100_000);
        assert!(tally(&[("d", later), ("b", None), ("a", None)]).is_copy_of(&read, now));
        assert!(tally(&[("d", later), ("c", soon), ("b", None), ("a", None)]).is_copy_of(&read, now));
        for wrong in [
            &[("a", None), ("b", None)][..],
            &[("a", None), ("x", None), ("d", later)],
            &[("a", None), ("d", later)],
            &[("a", None), ("b", None), ("d", None)],
            &[("a", None), ("b", None), ("d", Some(600_001))],
        ] {
            assert!(!tally(wrong).is_copy_of(&read, now), "{wrong:?}");
        }
        assert!(!tally(&[("a", None), ("b", None), ("d", later)]).is_copy_of(&read, Expiry::at_millis(1)));
    }

    #[test]
    fn the_hash_of_a_pair_depends_on_each_part() {
        let of = |keyspace, key: &[u8], value: &[u8]| hash(keyspace, key, value, None);
        let hashes = [of(None, b"ab", b"c"), of(None, b"a", b"bc"), of(Some("k"), b"ab", b"c")];
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2]);
        assert_ne!(of(None, b"a", b""), hash(None, b"a", b"", Some(Expiry::at_millis(1))));
    }
}

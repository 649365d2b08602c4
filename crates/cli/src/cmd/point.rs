//! The commands on one key: `put`, `insert`, `update`, `get`, `delete`.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use lodestore::store::{Lodestore, limits};
use lodestore::{Expiry, Lifetime};
use serde_json::{Map, Value};

use super::{Access, object, with_keyspace};
use crate::args::{GetArgs, KeyArgs, UpdateArgs, WriteArgs};
use crate::failure::{Failure, Outcome, file_failure};
use crate::text::{Coding, display_key, set_bytes};

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// None.
    Put,
    /// The key is absent.
    Insert,
    /// The key is present.
    Update,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Insert => "insert",
            Self::Update => "update",
        }
    }
}

/// `update`.
pub fn update(args: &UpdateArgs) -> Outcome {
    let lifetime = if args.keep_ttl { Lifetime::Keep } else { lifetime_of(&args.write) };
    write_for(&args.write, Mode::Update, lifetime)
}

/// `put`, `insert`.
pub fn write(args: &WriteArgs, mode: Mode) -> Outcome {
    write_for(args, mode, lifetime_of(args))
}

/// Returns the lifetime of `--ttl`.
fn lifetime_of(args: &WriteArgs) -> Lifetime {
    args.ttl.map(Expiry::after).into()
}

fn write_for(args: &WriteArgs, mode: Mode, lifetime: Lifetime) -> Outcome {
    let coding = Coding::from(args.coding);
    let key = coding.decode("KEY", &args.key)?;
    let value = match (&args.value, &args.value_file) {
        (Some(text), _) => coding.decode("VALUE", text)?,
        (None, Some(file)) => read_value(file)?,
        (None, None) => return Err(Failure::Usage("add VALUE or --value-file".into())),
    };
    let access = if mode == Mode::Update { Access::Read } else { Access::Create };
    with_keyspace(&args.store, access, |store, out| {
        let done = apply(store, mode, &key, &value, lifetime)?;
        if args.store.json {
            out.json(answer(mode.name(), &key, "done", done))?;
        }
        match (done, mode) {
            (true, _) => Ok(()),
            (false, Mode::Insert) => {
                Err(Failure::No(format!("key {} already exists: use put or update to change it", display_key(&key))))
            }
            (false, _) => Err(Failure::No(format!("no key {}: use put or insert to create it", display_key(&key)))),
        }
    })
}

/// Writes by `mode`, in one step. Returns whether the store changed.
fn apply(store: &Lodestore, mode: Mode, key: &[u8], value: &[u8], lifetime: Lifetime) -> Outcome<bool> {
    Ok(match mode {
        Mode::Put => store.put_expiring(key, value, lifetime.resolve(None)).map(|()| true)?,
        Mode::Insert => store.insert(key, value, lifetime)?,
        Mode::Update => store.update(key, value, lifetime)?,
    })
}

fn read_value(file: &Path) -> Outcome<Vec<u8>> {
    let failed = file_failure("reading", file);
    // One byte more than the limit is enough to detect a value that is too long.
    let most = limits::VALUE_MAX as u64 + 1;
    let mut value = Vec::new();
    if file == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut value).map_err(failed)?;
    } else {
        fs::File::open(file).and_then(|file| file.take(most).read_to_end(&mut value)).map_err(failed)?;
    }
    Ok(value)
}

/// `get`.
pub fn get(args: &GetArgs) -> Outcome {
    let KeyArgs { store: store_args, coding, key } = &args.key;
    let coding = Coding::from(*coding);
    let key = coding.decode("KEY", key)?;
    with_keyspace(store_args, Access::Read, |store, out| {
        let value = store.get(&key)?;
        if store_args.json {
            let mut line = answer("get", &key, "found", value.is_some());
            if let Some(value) = &value {
                set_bytes(&mut line, "value", value);
                if let Some(Some(expiry)) = store.expiry(&key)? {
                    line.insert("expires_at_ms".into(), expiry.millis().into());
                }
            }
            out.json(line)?;
        }
        let Some(value) = value else {
            return Err(Failure::No(format!("no key {} in {}", display_key(&key), store_args.path().display())));
        };
        if store_args.json {
            return Ok(());
        }
        if coding == Coding::Plain {
            out.bytes(&value)?;
            if out.is_terminal() && !args.raw { out.bytes(b"\n") } else { Ok(()) }
        } else {
            let mut text = Vec::new();
            coding.encode(&value, &mut text);
            text.push(b'\n');
            out.bytes(&text)
        }
    })
}

/// `delete`.
pub fn delete(args: &KeyArgs) -> Outcome {
    let key = Coding::from(args.coding).decode("KEY", &args.key)?;
    with_keyspace(&args.store, Access::Read, |store, out| {
        let done = store.delete(&key)?;
        if args.store.json {
            out.json(answer("delete", &key, "done", done))?;
        }
        match done {
            true => Ok(()),
            false => Err(Failure::No(format!("no key {} in {}", display_key(&key), args.store.path().display()))),
        }
    })
}

fn answer(op: &str, key: &[u8], name: &str, yes: bool) -> Map<String, Value> {
    let mut line = object([("op", op.into())]);
    set_bytes(&mut line, "key", key);
    line.insert(name.into(), yes.into());
    line
}

//! redis-rs against the server: synchronous and asynchronous, RESP2 and RESP3.
//!
//! `redis-rs-client write|check`
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Debug;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use redis::{Client, Connection, TypedCommands as _, Value, cmd, pipe};

mod asynchronous;

const SCAN_KEYS: usize = 1_000;
const HASH_FIELDS: usize = 10_000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let phase = std::env::args().nth(1).unwrap_or_default();
    let writes = match phase.as_str() {
        "write" => true,
        "check" => false,
        _ => return Err("usage: redis-rs-client write|check".into()),
    };
    let port = std::env::var("SERVER_PORT")?;
    let socket = std::env::var("SERVER_SOCKET")?;
    let tcp = format!("redis://127.0.0.1:{port}/");
    let addresses = [
        ("rs:tcp2", tcp.clone()),
        ("rs:tcp3", format!("{tcp}9?protocol=resp3")),
        ("rs:unix3", format!("unix://{socket}?protocol=resp3")),
    ];
    for (prefix, address) in &addresses {
        let client = Client::open(address.as_str())?;
        let mut session = Session { connection: client.get_connection()?, prefix };
        if writes {
            session.write(&client)?;
        } else {
            session.check()?;
        }
    }
    let client = Client::open(format!("{tcp}?protocol=resp3"))?;
    asynchronous::run(&client, writes)?;
    println!("redis-rs 1.8.1: rs:tcp2, rs:tcp3, rs:unix3, asynchronous");
    Ok(())
}

/// Returns an error unless a value is the expected one.
fn expect<T: PartialEq + Debug>(name: &str, got: T, want: T) -> Result<()> {
    if got == want {
        return Ok(());
    }
    let [got, want] = [got, want].map(|value| format!("{value:?}").chars().take(200).collect::<String>());
    Err(format!("{name}: got {got}, expected {want}").into())
}

/// Expects Redis' error for a command on a key of another type.
fn expect_wrong_type(reply: redis::RedisResult<Value>) -> Result<()> {
    let error = reply.err();
    expect("code of the error", error.as_ref().and_then(|error| error.code()), Some("WRONGTYPE"))
}

fn binary() -> Vec<u8> {
    (0..=u8::MAX).collect()
}

fn large() -> Vec<u8> {
    binary().repeat(4096)
}

fn fields() -> BTreeMap<String, String> {
    (0..HASH_FIELDS).map(|i| (format!("field:{i:05}"), format!("value:{i}"))).collect()
}

fn scan_keys(prefix: &str) -> BTreeSet<String> {
    (0..SCAN_KEYS).map(|i| format!("{prefix}:scan:{i:04}")).collect()
}

/// A connection and the prefix of its keys.
struct Session<'a> {
    connection: Connection,
    prefix: &'a str,
}

impl Session<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    fn binary_key(&self) -> Vec<u8> {
        [self.prefix.as_bytes(), &binary()].concat()
    }

    /// Runs the commands, and leaves the keys that `check` reads back.
    fn write(&mut self, client: &Client) -> Result<()> {
        let [string, hour, brief] = ["string", "hour", "brief"].map(|name| self.key(name));
        let [counter, hash, many, large_key] = ["counter", "hash", "fields", "large"].map(|name| self.key(name));
        let binary_key = self.binary_key();
        let pairs = [(self.key("a"), "1"), (self.key("b"), "2")];
        let connection = &mut self.connection;
        connection.set(&string, "text")?;
        connection.set_ex(&hour, "text", 3600)?;
        connection.pset_ex(&brief, "text", 20)?;
        expect("SETNX", connection.set_nx(&string, "other")?, false)?;
        connection.mset(&pairs)?;
        expect("INCRBY", connection.incr(&counter, 41)?, 41)?;
        expect("INCRBY", connection.incr(&counter, 1)?, 42)?;
        connection.set(binary_key, binary())?;
        connection.set(large_key, large())?;
        connection.hset_multiple(&hash, &[("name", "Ada"), ("visits", "1")])?;
        expect("HINCRBY", connection.hincr(&hash, "visits", 2)?, 3.0)?;
        let fields: Vec<_> = fields().into_iter().collect();
        let added: usize = cmd("HSET").arg(&many).arg(&fields).query(connection)?;
        expect("HSET of 10,000 fields", added, HASH_FIELDS)?;
        expect_wrong_type(cmd("INCR").arg(&hash).query::<Value>(connection))?;
        self.write_pipeline()?;
        self.write_transactions(client)?;
        self.receive_messages(client)?;
        sleep(Duration::from_millis(50));
        expect("GET after expiry", self.connection.get(brief)?, None)
    }

    fn write_pipeline(&mut self) -> Result<()> {
        let mut pipeline = pipe();
        for key in scan_keys(self.prefix) {
            pipeline.set(&key, &key);
        }
        let replies: Vec<String> = pipeline.query(&mut self.connection)?;
        expect("pipeline", replies, vec!["OK".to_owned(); SCAN_KEYS])
    }

    /// Commits a transaction after one that another connection breaks.
    fn write_transactions(&mut self, client: &Client) -> Result<()> {
        let [watched, joined] = ["watched", "joined"].map(|name| self.key(name));
        let mut other = client.get_connection()?;
        let mut attempts = 0;
        let key = watched.clone();
        let replies: (usize, usize) =
            redis::transaction(&mut self.connection, &[&watched], move |connection, pipeline| {
                attempts += 1;
                let read: usize = cmd("GET").arg(&key).query::<Option<usize>>(connection)?.unwrap_or(0);
                if attempts == 1 {
                    other.set(&key, 10)?;
                }
                pipeline.incr(&key, 1).hset(&joined, "watched", read + 1).query(connection)
            })?;
        expect("EXEC", replies, (11, 1))
    }

    fn receive_messages(&mut self, client: &Client) -> Result<()> {
        let channel = self.key("news");
        let mut subscriber = client.get_connection()?;
        let mut messages = subscriber.as_pubsub();
        messages.set_read_timeout(Some(Duration::from_secs(10)))?;
        messages.subscribe(&channel)?;
        expect("PUBLISH", self.connection.publish(&channel, binary())?, 1)?;
        expect("message", messages.get_message()?.get_payload_bytes(), &binary())
    }

    /// Reads back what `write` left.
    fn check(&mut self) -> Result<()> {
        let [a, none, b] = ["a", "none", "b"].map(|name| self.key(name));
        let [string, hour, counter, watched] = ["string", "hour", "counter", "watched"].map(|name| self.key(name));
        let [hash, many, joined] = ["hash", "fields", "joined"].map(|name| self.key(name));
        let [binary_key, large_key] = [self.binary_key(), self.key("large").into_bytes()];
        let pattern = self.key("scan:*");
        let connection = &mut self.connection;
        let text = |value: &str| Some(value.to_owned());
        expect("GET", connection.get(string)?, text("text"))?;
        let seconds: i64 = cmd("TTL").arg(hour).query(connection)?;
        expect("TTL", (1..=3600).contains(&seconds), true)?;
        expect("MGET", connection.mget(&[a, none, b])?, vec![text("1"), None, text("2")])?;
        expect("GET of a counter", connection.get(counter)?, text("42"))?;
        expect("GET of bytes", cmd("GET").arg(binary_key).query(connection)?, binary())?;
        expect("GET of 1 MiB", cmd("GET").arg(large_key).query(connection)?, large())?;
        let visits = [("name", "Ada"), ("visits", "3")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        expect("HGETALL", cmd("HGETALL").arg(hash).query(connection)?, BTreeMap::from(visits))?;
        expect("HGETALL of 10,000 fields", cmd("HGETALL").arg(many).query(connection)?, fields())?;
        let found: redis::RedisResult<BTreeSet<String>> = connection.scan_match(pattern)?.collect();
        expect("SCAN", found?, scan_keys(self.prefix))?;
        expect("GET of a watched key", self.connection.get(watched)?, text("11"))?;
        expect("HGET of the transaction", self.connection.hget(joined, "watched")?, text("11"))
    }
}

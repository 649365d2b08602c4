//! Random commands on hashes, compared with a model, with restarts in between.

use std::collections::BTreeMap;

use super::common::{Client, TestServer};
use lodestore::db::Engine;
use lodestore_wire::Reply;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Keys of the test.
const KEYS: [&str; 3] = ["a", "b", "c"];

/// Fields of the test. Hashes with more than 128 of them are large.
const FIELDS: u16 = 400;

/// Most fields of one command.
const RUN_MAX: u16 = 200;

#[derive(Debug, Clone)]
enum Step {
    /// Sets fields `first..first + count` to values of this length.
    Set {
        key: usize,
        first: u16,
        count: u16,
        value: u16,
    },
    Delete {
        key: usize,
        first: u16,
        count: u16,
    },
    Increment {
        key: usize,
        field: u16,
        by: i16,
    },
    Remove {
        key: usize,
    },
    Overwrite {
        key: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Copy {
        from: usize,
        to: usize,
    },
    Scan {
        key: usize,
        count: u16,
    },
}

/// The actions of a client: single steps, steps within `MULTI`, or a restart of the server.
#[derive(Debug, Clone)]
enum Action {
    Alone(Step),
    Transaction(Vec<Step>),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS.len();
    let run = || (0..FIELDS, 1..RUN_MAX);
    prop_oneof![
        6 => (key(), run(), 0..100_u16).prop_map(|(key, (first, count), value)| Step::Set { key, first, count, value }),
        1 => (key(), 0..FIELDS, 2000..9000_u16)
            .prop_map(|(key, first, value)| Step::Set { key, first, count: 1, value }),
        4 => (key(), run()).prop_map(|(key, (first, count))| Step::Delete { key, first, count }),
        2 => (key(), FIELDS..FIELDS + 3, any::<i16>()).prop_map(|(key, field, by)| Step::Increment { key, field, by }),
        1 => key().prop_map(|key| Step::Remove { key }),
        1 => key().prop_map(|key| Step::Overwrite { key }),
        2 => (key(), key()).prop_map(|(from, to)| Step::Rename { from, to }),
        2 => (key(), key()).prop_map(|(from, to)| Step::Copy { from, to }),
        1 => (key(), 1..200_u16).prop_map(|(key, count)| Step::Scan { key, count }),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => step().prop_map(Action::Alone),
        2 => prop::collection::vec(step(), 1..5).prop_map(Action::Transaction),
        1 => Just(Action::Restart),
    ]
}

type Fields = BTreeMap<String, String>;

/// The contents of the keys. `None` is a string.
#[derive(Debug, Default)]
struct Model {
    keys: BTreeMap<usize, Option<Fields>>,
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

fn name(field: u16) -> String {
    format!("f{field:04}")
}

impl Model {
    /// Applies a step. Returns its command, and the reply that it must have.
    fn apply(&mut self, step: &Step) -> (Vec<String>, String) {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        match *step {
            Step::Set { key, first, count, value } => {
                let mut command = words(&["HSET", KEYS[key]]);
                let pairs = (first..first + count).map(|field| (name(field), "x".repeat(usize::from(value))));
                let pairs: Vec<(String, String)> = pairs.collect();
                pairs.iter().for_each(|(field, value)| command.extend([field.clone(), value.clone()]));
                let Some(fields) = self.keys.entry(key).or_insert_with(|| Some(Fields::new())) else {
                    return (command, WRONG_TYPE.into());
                };
                let before = fields.len();
                fields.extend(pairs);
                (command, format!(":{}", fields.len() - before))
            }
            Step::Delete { key, first, count } => {
                let mut command = words(&["HDEL", KEYS[key]]);
                command.extend((first..first + count).map(name));
                let removed = match self.keys.get_mut(&key) {
                    None => 0,
                    Some(None) => return (command, WRONG_TYPE.into()),
                    Some(Some(fields)) => command[2..].iter().filter(|field| fields.remove(*field).is_some()).count(),
                };
                self.keys.retain(|_, fields| fields.as_ref().is_none_or(|fields| !fields.is_empty()));
                (command, format!(":{removed}"))
            }
            Step::Increment { key, field, by } => {
                let command = words(&["HINCRBY", KEYS[key], &name(field), &by.to_string()]);
                // The fields of `Set` overlap with these fields.
                let Some(fields) = self.keys.entry(key).or_insert_with(|| Some(Fields::new())) else {
                    return (command, WRONG_TYPE.into());
                };
                match fields.get(&name(field)).map_or(Ok(0), |text| text.parse::<i64>()) {
                    Ok(old) => {
                        let sum = old + i64::from(by);
                        fields.insert(name(field), sum.to_string());
                        (command, format!(":{sum}"))
                    }
                    Err(_) => (command, "-ERR hash value is not an integer".into()),
                }
            }
            Step::Remove { key } => {
                (words(&["DEL", KEYS[key]]), format!(":{}", u8::from(self.keys.remove(&key).is_some())))
            }
            Step::Overwrite { key } => {
                self.keys.insert(key, None);
                (words(&["SET", KEYS[key], "text"]), "+OK".into())
            }
            Step::Rename { from, to } => {
                let command = words(&["RENAME", KEYS[from], KEYS[to]]);
                match self.keys.remove(&from) {
                    None => (command, "-ERR no such key".into()),
                    Some(fields) => {
                        self.keys.insert(to, fields);
                        (command, "+OK".into())
                    }
                }
            }
            Step::Copy { from, to } => {
                let command = words(&["COPY", KEYS[from], KEYS[to], "REPLACE"]);
                match self.keys.get(&from).cloned() {
                    _ if from == to => (command, "-ERR source and destination objects are the same".into()),
                    None => (command, ":0".into()),
                    Some(fields) => {
                        self.keys.insert(to, fields);
                        (command, ":1".into())
                    }
                }
            }
            // The reply depends on the size of the hash: `check` scans too.
            Step::Scan { key, count } => (words(&["HLEN", KEYS[key]]), self.length_of(key, count)),
        }
    }

    fn length_of(&self, key: usize, _: u16) -> String {
        match self.keys.get(&key) {
            None => ":0".into(),
            Some(None) => WRONG_TYPE.into(),
            Some(Some(fields)) => format!(":{}", fields.len()),
        }
    }

    /// Compares all keys with the server.
    fn check(&self, client: &mut Client, count: u16) {
        for (index, key) in KEYS.iter().enumerate() {
            match self.keys.get(&index) {
                None => assert_eq!(client.run(&format!("EXISTS {key}")), ":0"),
                Some(None) => assert_eq!(client.run(&format!("GET {key}")), "text"),
                Some(Some(fields)) => {
                    assert_eq!(client.run(&format!("HLEN {key}")), format!(":{}", fields.len()));
                    client.send(&["HGETALL", key]);
                    assert_eq!(&to_fields(client.receive()), fields, "{key}");
                    assert_eq!(&scan(client, key, count), fields, "{key}");
                }
            }
        }
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).expect("a text"),
        other => panic!("{other:?}"),
    }
}

fn to_fields(reply: Reply) -> Fields {
    let Reply::Array(replies) = reply else { panic!("{reply:?}") };
    let fields: Fields = replies.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
    assert_eq!(fields.len() * 2, replies.len(), "a field came twice");
    fields
}

fn scan(client: &mut Client, key: &str, count: u16) -> Fields {
    let (mut cursor, mut fields) = ("0".to_string(), Fields::new());
    loop {
        client.send(&["HSCAN", key, &cursor, "COUNT", &count.to_string()]);
        let Reply::Array(parts) = client.receive() else { panic!("no array") };
        for (field, value) in to_fields(parts[1].clone()) {
            assert!(fields.insert(field, value).is_none(), "a field came twice");
        }
        cursor = text(&parts[0]);
        if cursor == "0" {
            return fields;
        }
    }
}

fn run(engine: Engine, actions: &[Action]) {
    let mut server = TestServer::start_with(engine, |_| {});
    let mut client = server.client();
    let mut model = Model::default();
    for action in actions {
        match action {
            Action::Alone(step) => {
                let (command, expected) = model.apply(step);
                assert_eq!(client.run_arguments(&command), expected, "{step:?}");
                if let Step::Scan { count, .. } = step {
                    model.check(&mut client, *count);
                }
            }
            Action::Transaction(steps) => {
                assert_eq!(client.run("MULTI"), "+OK");
                let mut replies = Vec::new();
                for step in steps {
                    let (command, expected) = model.apply(step);
                    assert_eq!(client.run_arguments(&command), "+QUEUED");
                    replies.push(expected);
                }
                assert_eq!(client.run("EXEC"), format!("[{}]", replies.join(", ")), "{steps:?}");
            }
            Action::Restart => {
                server.restart();
                client = server.client();
            }
        }
    }
    model.check(&mut client, 50);
    server.restart();
    model.check(&mut server.client(), 7);
}

fn compare(engine: impl Into<Engine>) {
    let engine = engine.into();
    let config = Config { cases: 12, max_shrink_iters: 200, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&prop::collection::vec(action(), 1..60), |actions| {
            run(engine.clone(), &actions);
            Ok(())
        })
        .unwrap();
}

#[test]
fn hashes_of_hikv_are_those_of_the_model() {
    compare(Engine::hikv());
}

#[test]
fn hashes_of_nvht_are_those_of_the_model() {
    compare(Engine::nvht());
}

#[test]
fn hashes_of_fluidkv_are_those_of_the_model() {
    compare(Engine::fluidkv());
}

#[test]
fn hashes_of_hashkv_are_those_of_the_model() {
    compare(Engine::hashkv());
}

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once};

use lodestore_contract::testing::{Scratch, one_of_each_event};
use lodestore_contract::{FoundBy, PoisonReason};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

use super::*;
use crate::Db;

/// The value of a field, by its type.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
}

type Fields = BTreeMap<&'static str, Value>;

thread_local! {
    /// The events and spans of this thread, with their fields.
    static EMITTED: RefCell<Vec<(&'static str, Fields)>> = const { RefCell::new(Vec::new()) };
}

/// Collects the fields of all events and spans, by their threads. A subscriber of one thread would
/// miss some of them while tests run on other threads.
struct Collector;

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), Value::Text(format!("{value:?}")));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), Value::Text(value.into()));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), Value::Number(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name(), Value::Flag(value));
    }
    fn record_error(&mut self, field: &Field, value: &(dyn StdError + 'static)) {
        self.0.insert(field.name(), Value::Text(value.to_string()));
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        span.record(&mut Reader(&mut fields));
        EMITTED.with_borrow_mut(|emitted| {
            emitted.push((span.metadata().name(), fields));
            Id::from_u64(emitted.len() as u64)
        })
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        let at = usize::try_from(span.into_u64()).expect("an index") - 1;
        EMITTED.with_borrow_mut(|emitted| values.record(&mut Reader(&mut emitted[at].1)));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        EMITTED.with_borrow_mut(|emitted| emitted.push(("event", fields)));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Runs `work` and returns the events and spans of this thread.
fn collect(work: impl FnOnce()) -> Vec<(&'static str, Fields)> {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Collector).expect("the first subscriber"));
    EMITTED.take();
    work();
    EMITTED.take()
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[test]
fn each_event_is_emitted_with_typed_fields_and_its_text() {
    let (words, time) = (|| "some words".to_owned(), Duration::from_micros(1500));
    let (number, is) = (Value::Number, Value::Flag);
    for (event, fields) in [
        (Event::Opened { clean: true, ready_after: time }, vec![("clean", is(true)), ("ready_after_us", number(1500))]),
        (
            Event::Recovered { keys: 7, corrupt: 2, took: time },
            vec![("keys", number(7)), ("corrupt", number(2)), ("took_us", number(1500))],
        ),
        (Event::Grown { bytes: 99 }, vec![("bytes", number(99))]),
        (
            Event::Corruption { found_by: FoundBy::Read, place: "pool.0000".into(), what: words() },
            vec![("found_by", text("read")), ("place", text("pool.0000")), ("what", text("some words"))],
        ),
        (Event::Full { needed: 5 }, vec![("needed_bytes", number(5))]),
        (
            Event::Poisoned { reason: PoisonReason::Write, cause: words() },
            vec![("reason", text("write")), ("cause", text("some words"))],
        ),
        (Event::Swept { keys: 3 }, vec![("keys", number(3))]),
        (
            Event::DeviceFailed { group: 1, device: 2, is_late: false, cause: words() },
            vec![("group", number(1)), ("device", number(2)), ("is_late", is(false)), ("cause", text("some words"))],
        ),
        (
            Event::CopyIncomplete { group: 1, device: 2, pairs: 4 },
            vec![("group", number(1)), ("device", number(2)), ("pairs", number(4))],
        ),
    ] {
        let emitted = collect(|| emit(Path::new("a/store"), &event));
        let mut expected: Fields = fields.into_iter().collect();
        expected.insert("store", text("a/store"));
        expected.insert("event", text(event.name()));
        expected.insert("message", text(&event.to_string()));
        assert_eq!(emitted, [("event", expected)]);
    }
}

#[test]
fn no_event_is_emitted_without_an_arm_of_its_own() {
    for event in one_of_each_event() {
        for (_, fields) in collect(|| emit(Path::new("a/store"), &event)) {
            assert!(!fields.contains_key("has_arm"), "{event:?}: add an arm to `emit`, and a row to the test above");
        }
    }
}

#[test]
fn the_calls_of_a_store_are_spans_and_its_owner_receives_its_events_too() {
    let dir = Scratch::new();
    let path = dir.store();
    let seen: Arc<Mutex<Vec<Event>>> = Arc::default();
    let owner = Arc::clone(&seen);
    let emitted = collect(|| {
        let builder = Db::builder(&path).capacity(64 << 20);
        let builder = builder.events(Arc::new(move |event| owner.lock().expect("no panic").push(event.clone())));
        let db = builder.open().expect("creates");
        db.put("key", "value").expect("put");
        db.settle().expect("a settle");
        assert!(db.verify(|_| {}).expect("verify").is_clean());
        let _ = db.sync();
        db.close().expect("closes");
        assert!(db.sync().is_err());
    });
    let find = |name: &str| -> Vec<&Fields> {
        emitted.iter().filter(|(known, _)| *known == name).map(|(_, fields)| fields).collect()
    };
    let (created, closed, verified) = (find("create"), find("close"), find("verify"));
    assert_eq!(created.len(), 1);
    assert_eq!(created[0]["store"], text(&path.display().to_string()));
    assert!(["engine", "durability", "identity"].iter().all(|name| created[0].contains_key(name)), "{created:?}");
    assert_eq!(created[0]["identity"], closed[0]["identity"], "spans of one store have its identity");
    assert_eq!(verified[0]["findings"], Value::Number(0));
    assert!(!find("settle").is_empty() && find("sync").len() == 2);
    let events = find("event");
    let of = |name: &str| events.iter().filter(|fields| fields.get("event") == Some(&text(name))).count();
    let seen = seen.lock().expect("no panic");
    let opened = seen.iter().filter(|event| matches!(event, Event::Opened { .. })).count();
    assert!(opened >= 1 && of("opened") <= opened, "{events:?}");
    // The sync of a closed store.
    let failed: Vec<_> = events.iter().filter(|fields| fields["message"] == text("the call failed")).collect();
    assert!(failed.iter().any(|fields| fields["error"] == text("the store is closed: open it again")), "{failed:?}");
}

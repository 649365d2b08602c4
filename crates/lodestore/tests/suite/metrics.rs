//! OpenMetrics text of every engine: its grammar, and the page that names all metrics.
//!
//! `LODESTORE_WRITE_DOCS=1 cargo test -p lodestore --test suite metrics` writes `docs/metrics.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use lodestore::options::CreateOptions;
use lodestore::stats::EngineCounters;
use lodestore::stats::{Stats, openmetrics};
use lodestore_contract::testing::Scratch;

/// Ends of names that OpenMetrics keeps for samples of its own types.
const RESERVED_SUFFIXES: [&str; 7] = ["_total", "_created", "_count", "_sum", "_bucket", "_info", "_gcount"];

/// The empty statistics of each engine.
fn of_each_engine() -> Vec<Stats> {
    let of = |engine, engine_counters| Stats { engine, engine_counters, ..Stats::default() };
    vec![
        of("hikv", EngineCounters::new(lodestore::stats::HikvStats::default())),
        of("nvht", EngineCounters::new(lodestore::stats::NvhtStats::default())),
        of("fluidkv", EngineCounters::new(lodestore::stats::FluidkvStats::default())),
        of("hashkv", EngineCounters::new(lodestore::stats::HashkvStats::default())),
        of("mkvs", EngineCounters::new(lodestore::stats::MkvsStats::default())),
    ]
}

/// A metric family of a text.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    unit: String,
    help: String,
    samples: usize,
}

/// Returns whether this is a name: letters, digits and `_`, without a digit at the begin.
fn is_name(text: &str) -> bool {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    !text.is_empty() && text.chars().all(is_of_name) && !text.starts_with(|first: char| first.is_ascii_digit())
}

/// Returns the labels of `name{labels}`, and what follows them.
fn parse_labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let (mut labels, mut rest) = (BTreeMap::new(), text.strip_prefix('{').expect("labels"));
    loop {
        let (name, value) = rest.split_once("=\"").expect("a label and its value");
        assert!(is_name(name), "{name:?}");
        let (mut content, mut letters) = (String::new(), value.char_indices());
        let end = loop {
            match letters.next().expect("the end of a value") {
                (at, '"') => break at + 1,
                (_, '\\') => match letters.next().expect("an escaped letter").1 {
                    'n' => content.push('\n'),
                    escaped @ ('\\' | '"') => content.push(escaped),
                    other => panic!("\\{other} is no escape"),
                },
                (_, letter) => content.push(letter),
            }
        };
        assert!(labels.insert(name.to_owned(), content).is_none(), "{name} twice");
        match value[end..].split_at(1) {
            (",", more) => rest = more,
            ("}", after) => return (labels, after),
            other => panic!("{other:?}"),
        }
    }
}

/// Checks a line of metadata: `# TYPE name kind`, then `# UNIT` if there is one, then `# HELP`.
fn parse_metadata(line: &str, families: &mut Vec<(String, Family)>) {
    let mut words = line.splitn(3, ' ');
    let (keyword, name) = (words.next().expect("a keyword"), words.next().expect("a name"));
    let content = words.next().expect("a content").to_owned();
    if keyword == "TYPE" {
        assert!(is_name(name) && families.iter().all(|(known, _)| known != name), "{name} begins twice");
        assert!(RESERVED_SUFFIXES.iter().all(|suffix| !name.ends_with(suffix)), "{name} ends in a reserved suffix");
        assert!(["counter", "gauge", "info"].contains(&content.as_str()), "{content}");
        families.push((name.to_owned(), Family { kind: content, ..Family::default() }));
        return;
    }
    let (known, family) = families.last_mut().expect("a type first");
    assert!(known == name && family.samples == 0, "{line}");
    match keyword {
        "UNIT" => {
            assert!(name.ends_with(&format!("_{content}")) && family.help.is_empty(), "{line}");
            family.unit = content;
        }
        "HELP" => family.help = content,
        other => panic!("{other}"),
    }
}

/// Checks that a text is OpenMetrics 1.0, as far as Lodestore uses it. Returns its families.
fn parse(text: &str) -> Vec<(String, Family)> {
    let mut families: Vec<(String, Family)> = Vec::new();
    let mut seen = BTreeSet::new();
    let body = text.strip_suffix("# EOF\n").expect("an end");
    assert!(body.is_empty() || body.ends_with('\n'));
    for line in body.lines() {
        if let Some(metadata) = line.strip_prefix("# ") {
            parse_metadata(metadata, &mut families);
            continue;
        }
        let (name, rest) = line.split_at(line.find('{').expect("labels"));
        let (labels, rest) = parse_labels(rest);
        let number = rest.strip_prefix(' ').expect("one space");
        let value: f64 = number.parse().expect("a number");
        assert!(value.is_finite() && value >= 0.0 && !number.contains(['e', ' ']), "{line}");
        let (known, family) = families.last_mut().expect("a type first");
        let suffix = match family.kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        assert_eq!(name, format!("{known}{suffix}"), "samples follow their metadata");
        assert!(labels.contains_key("engine") && labels.contains_key("store"), "{line}");
        assert!(seen.insert((name.to_owned(), labels)), "{line} twice");
        family.samples += 1;
    }
    families
}

#[test]
fn the_text_of_every_open_store_is_open_metrics() {
    let mut kept = Vec::new();
    for engine in lodestore::engines() {
        let dir = Scratch::new();
        let store = lodestore::store::create(dir.store(), &CreateOptions::new().engine(engine.name).size(256 << 20));
        let store = store.expect("a new store");
        for number in 0..500_u32 {
            store.put(&number.to_le_bytes(), &[7; 300]).expect("put");
        }
        store.settle().expect("a settle");
        let stats = store.stats();
        let families = parse(&stats.to_openmetrics("dir/\"a\\b\"\nstore"));
        for (name, family) in &families {
            assert!(family.samples == 1 && family.help.ends_with('.'), "{name}: {family:?}");
        }
        let own = format!("lodestore_{}_", engine.name);
        assert!(families.iter().filter(|(name, _)| name.starts_with(&own)).count() > 5, "{}", engine.name);
        kept.push((engine.name, stats));
    }
    let families = parse(&openmetrics(kept.iter().map(|(name, stats)| (*name, stats))));
    let keys = families.iter().find(|(name, _)| name == "lodestore_keys");
    assert_eq!(keys.map_or(0, |(_, family)| family.samples), lodestore::engines().len());
    assert!(parse(&openmetrics([])).is_empty());
}

/// Returns the page of all metrics.
fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         `lodestore stats STORE --openmetrics` and `Stats::to_openmetrics` write these metrics as OpenMetrics 1.0 \
         text.\nThe test `metrics` of the crate `lodestore` writes this page.\n\n\
         Each sample has the labels `engine` and `store`. A counter counts from the open of the store, and its sample \
         has the suffix `_total`.\nThe info metric `lodestore_store` has the labels `medium` and `durability` too, and \
         its sample has the suffix `_info`.\nIn `lodestore stats --json`, times are in nanoseconds, and shares are \
         integers.\n",
    );
    let common = parse(&Stats::default().to_openmetrics("store"));
    write_table(&mut page, "Every store", &common);
    for stats in of_each_engine() {
        let mut families = parse(&stats.to_openmetrics("store"));
        families.retain(|(name, _)| common.iter().all(|(known, _)| known != name));
        write_table(&mut page, &format!("Engine `{}`", stats.engine), &families);
    }
    page
}

fn write_table(page: &mut String, title: &str, families: &[(String, Family)]) {
    let _ = write!(page, "\n## {title}\n\n| metric | kind | unit | meaning |\n|---|---|---|---|\n");
    for (name, Family { kind, unit, help, .. }) in families {
        let _ = writeln!(page, "| `{name}` | {kind} | {unit} | {help} |");
    }
}

#[test]
fn the_page_of_metrics_names_all_of_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("LODESTORE_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).expect("the page is written");
    }
    let Ok(found) = std::fs::read_to_string(&path) else {
        assert!(!path.parent().expect("a directory").exists(), "docs/metrics.md is missing");
        println!("left out: docs/metrics.md is not part of this package");
        return;
    };
    assert!(found == page(), "write docs/metrics.md again: see the top of this test");
}

//! Typed options, the choice of an engine, and read-only handles, from the user's point of view.

use std::path::{Path, PathBuf};

use lodestore::db::Builder;
use lodestore::db::{Choice, Engine};
use lodestore::options::{
    CreateOptions, FluidkvSettings, HashkvSettings, HikvSettings, MkvsSettings, NvhtSettings, OptionSpec, PoolSettings,
    options_table,
};
use lodestore::store::Change;
use lodestore::{Db, Durability, Error, Lifetime};
use lodestore_contract::testing::Scratch;

/// Returns a temporary directory and a path in it at which no store exists yet.
fn scratch_path() -> (Scratch, PathBuf) {
    let dir = Scratch::new();
    let path = dir.store();
    (dir, path)
}

fn small(path: &Path) -> Builder {
    Db::builder(path).capacity(32 << 20)
}

/// Returns the name, value and reason of a refused option.
fn refused_option(opened: lodestore::Result<Db>) -> (String, String, String) {
    match opened.expect_err("an option is refused") {
        Error::InvalidOption { name, value, why } => (name, value, why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn typed_options_shape_a_new_store_of_each_engine() {
    let engines: [Engine; 4] = [
        HikvSettings::new().partitions(8).scrub_rate(0).into(),
        NvhtSettings::new().partitions(2).load_percent(65).into(),
        FluidkvSettings::new().workers(1).memtable_bytes(1 << 20).into(),
        HashkvSettings::new().hotness(false).index(FluidkvSettings::new().workers(1)).into(),
    ];
    for engine in engines {
        let (_dir, path) = scratch_path();
        for round in 0..2 {
            let builder = small(&path).engine(engine.clone()).pool(&PoolSettings::new().region_bytes(1 << 20));
            let db = builder.open().unwrap_or_else(|error| panic!("{engine:?}: {error}"));
            assert_eq!((Some(db.engine()), db.count().expect("count")), (engine.name(), round));
            db.put("key", "value").expect("put");
        }
        let header = lodestore::medium::doctor(&path).expect("a diagnosis").store.expect("a store").expect("a header");
        assert!(header.region_bytes <= 1 << 20, "{engine:?}: {}", header.region_bytes);
    }
}

#[test]
fn a_typed_option_out_of_bounds_is_refused_before_a_store_exists() {
    let (_dir, path) = scratch_path();
    let refused = refused_option(small(&path).engine(HikvSettings::new().queues(65)).open());
    assert_eq!(refused, ("queues".into(), "65".into(), "the value must be a number from 1 to 64".into()));
    let refused = refused_option(small(&path).pool(&PoolSettings::new().region_bytes(5000)).open());
    assert_eq!((refused.0.as_str(), refused.1.as_str()), ("region", "5000"));
    assert!(!path.exists());
}

#[test]
fn a_fixed_option_must_be_the_one_of_the_store_or_be_left_out() {
    let (_dir, path) = scratch_path();
    drop(small(&path).engine(HikvSettings::new().partitions(8)).set("segment", "64K").open().expect("creates"));
    for same in
        [HikvSettings::new(), HikvSettings::new().partitions(8).segment_bytes(64 << 10), HikvSettings::new().queues(2)]
    {
        small(&path).engine(same.clone()).open().unwrap_or_else(|error| panic!("{same:?}: {error}"));
    }
    let refused = refused_option(small(&path).engine(HikvSettings::new().partitions(64)).open());
    assert_eq!((refused.0.as_str(), refused.1.as_str()), ("partitions", "64"));
    assert!(refused.2.starts_with("the store was created with 8"), "{}", refused.2);
    // The creation had the default.
    let refused = refused_option(small(&path).set("wal", "on").open());
    assert!(refused.2.starts_with("the store was created with off"), "{}", refused.2);
    let refused = refused_option(small(&path).pool(&PoolSettings::new().chunk_bytes(8192)).open());
    assert!(refused.2.starts_with("the store was created with 4K"), "{}", refused.2);
}

#[test]
fn a_store_without_a_record_of_its_creation_opens_and_its_fixed_options_are_not_compared() {
    let (_dir, path) = scratch_path();
    drop(small(&path).engine(HikvSettings::new().partitions(8)).open().expect("creates"));
    std::fs::remove_file(path.join("CHOICE")).expect("the record");
    assert_eq!(Choice::recorded(&path), None);
    let db = small(&path).engine(HikvSettings::new().partitions(4)).open().expect("opens");
    assert_eq!(db.choice().engine, "hikv");
}

#[test]
fn the_choice_is_kept_with_the_store_with_its_reason() {
    let (_dir, path) = scratch_path();
    let db = small(&path).open().expect("creates");
    let choice = db.choice().clone();
    assert!(choice.reason.starts_with("the medium is "), "{choice}");
    drop(db);
    assert_eq!(Choice::recorded(&path).as_ref(), Some(&choice));
    assert_eq!(small(&path).open().expect("opens").choice(), &choice);

    let (_dir, path) = scratch_path();
    let options = CreateOptions::new().engine("nvht").size(32 << 20);
    lodestore::store::create(&path, &options).expect("creates").close().expect("closes");
    let recorded = Choice::recorded(&path).expect("a record");
    assert_eq!(recorded, options.choice(&path).expect("a choice"));
    assert_eq!(recorded.engine, "nvht");
    assert!(recorded.reason.starts_with("the engine was requested; the medium is "), "{recorded}");
}

#[test]
fn a_creation_with_the_engine_auto_follows_the_medium_as_a_builder_does() {
    let (_dir, path) = scratch_path();
    let options = CreateOptions::new().engine("auto").size(32 << 20);
    let choice = options.choice(&path).expect("a choice");
    let store = lodestore::store::create(&path, &options).expect("creates");
    assert_eq!((store.engine(), store.stats().durability), (choice.engine, choice.durability));
    store.close().expect("closes");
    let (_dir, path) = scratch_path();
    assert_eq!(small(&path).open().expect("creates").choice(), &choice);
}

#[test]
fn the_devices_of_a_matrix_have_the_engine_and_options_that_were_set() {
    let (_dir, path) = scratch_path();
    let builder = || {
        let builder = Db::builder(&path).capacity(64 << 20).engine(MkvsSettings::new().devices(2));
        builder.device_engine(NvhtSettings::new().partitions(2))
    };
    let db = builder().open().expect("creates");
    assert!(matches!(db.prefix("k").err(), Some(Error::Unsupported { .. })), "nvht keeps no order");
    db.put("key", "value").expect("put");
    drop(db);
    assert_eq!(builder().open().expect("opens again").count().expect("count"), 1);
    // Groups may be added later, so they are not compared.
    let groups = Db::builder(&path).engine(MkvsSettings::new().groups(2)).open().expect("opens");
    assert_eq!(groups.get("key").expect("get").expect("there"), "value");
    drop(groups);
    let refused = refused_option(Db::builder(&path).engine(MkvsSettings::new().devices(3)).open());
    assert_eq!(refused.0, "devices");

    let (_dir, path) = scratch_path();
    let refused = refused_option(small(&path).engine(Engine::hikv()).device_engine(Engine::nvht()).open());
    assert_eq!(refused.0, "device-engine");
}

#[test]
fn a_read_only_handle_refuses_every_write_and_reads_existing_pairs() {
    for engine in [Engine::hikv(), Engine::nvht(), Engine::fluidkv(), Engine::hashkv(), Engine::mkvs()] {
        let (_dir, path) = scratch_path();
        let open =
            |reads_only| Db::builder(&path).capacity(64 << 20).engine(engine.clone()).read_only(reads_only).open();
        assert!(matches!(open(true).err(), Some(Error::Missing { .. })), "it creates no store");
        let db = open(false).expect("creates");
        db.put("key", "value").expect("put");
        db.keyspace("users").expect("a keyspace").put("17", "Ada").expect("put");
        drop(db);
        let db = open(true).unwrap_or_else(|error| panic!("{engine:?}: {error}"));
        let users = db.keyspace("users").expect("it is there");
        let refused = [
            db.put("key", "new"),
            users.put("17", "new"),
            db.insert("other", "v", Lifetime::Forever).map(drop),
            db.update("key", "v", Lifetime::Forever).map(drop),
            db.delete("key").map(drop),
            db.compare_and_swap("key", Some(b"value"), None, Lifetime::Forever).map(drop),
            users.update_with("17", |_, _| Change::Delete),
            db.batch().put(&users, "18", "Bob").commit(),
            db.sync(),
            db.settle(),
            db.drop_keyspace("users").map(drop),
        ];
        for (number, refused) in refused.into_iter().enumerate() {
            assert!(matches!(refused, Err(Error::ReadOnly)), "{engine:?} {number}: {refused:?}");
        }
        let missing = db.keyspace("more").expect_err("no keyspace is created");
        assert!(matches!(&missing, Error::KeyspaceMissing { name } if name == "more"), "{engine:?}: {missing:?}");
        assert!(missing.to_string().starts_with("no keyspace \"more\": "), "{missing}");
        if engine.name() != Some("mkvs") {
            let put = db.transaction(|tx| tx.put(&users, "19", "Eve"));
            assert!(matches!(put, Err(Error::ReadOnly)), "{put:?}");
            let reads = db.transaction(|tx| Ok(tx.get(&users, "17")?.is_some() && tx.get(&db, "key")?.is_some()));
            assert!(reads.expect("reads are no writes"));
        }
        assert_eq!(users.get("17").expect("get").expect("there"), "Ada");
        assert_eq!(db.get("key").expect("get").expect("there"), "value");
        assert_eq!(db.keyspaces().expect("names"), ["users"]);
        assert!(db.is_read_only() && db.verify(|_| ()).expect("a report").findings.is_empty());
        drop((users, db));
        let db = open(false).expect("opens");
        assert_eq!((db.count().expect("count"), db.is_read_only()), (1, false));
    }
}

#[test]
fn a_read_only_handle_does_not_raise_the_durability() {
    let dir = Scratch::within(env!("CARGO_TARGET_TMPDIR").as_ref());
    let path = dir.path().join("store");
    let builder = || small(&path).engine(Engine::hikv());
    drop(builder().durability(Durability::Process).open().expect("creates"));
    let refused = builder().durability(Durability::Power).read_only(true).open();
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    assert_eq!(builder().read_only(true).open().expect("opens").durability(), Durability::Process);
}

/// Returns the text of `docs/options.md`.
fn documentation() -> String {
    let mut text = String::from(
        "# Options\n\nThe options of each engine, as the program shows them with `lodestore engines`: \
         `--set NAME=VALUE`, or `.set(name, value)` in a program. The crate documentation has the typed setters \
         (`lodestore::options`). A size is a number of bytes, or a number with K, M, G or T (powers of 1024).\n\n\
         Options for comparison with the papers exist only in a program that is built with the cargo feature `lab`. \
         Other builds accept only their defaults.\n\n\
         A test writes this file from the declarations of the options.\n",
    );
    let all: Vec<&[OptionSpec]> = lodestore::engines().iter().map(|engine| engine.options()).collect();
    let is_shared = |spec: &&OptionSpec| all.iter().all(|specs| specs.iter().any(|other| other.name == spec.name));
    for (engine, specs) in lodestore::engines().iter().zip(&all) {
        let own: Vec<_> = specs.iter().filter(|spec| !is_shared(spec)).copied().collect();
        text.push_str(&format!("\n## {}\n\n{}", engine.name, options_table(&own)));
    }
    let shared: Vec<_> = all[0].iter().filter(is_shared).copied().collect();
    text.push_str(&format!("\n## The pool under every engine\n\n{}", options_table(&shared)));
    text
}

#[test]
fn the_documentation_of_options_agrees_with_the_declarations() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/options.md");
    if std::env::var_os("LODESTORE_WRITE_DOCS").is_some() {
        std::fs::write(&path, documentation()).expect("the file is written");
    }
    let Ok(written) = std::fs::read_to_string(&path) else {
        assert!(!path.parent().expect("a directory").exists(), "docs/options.md is missing");
        println!("left out: docs/options.md is not part of this package");
        return;
    };
    assert!(written == documentation(), "docs/options.md is old: run this test with LODESTORE_WRITE_DOCS=1");
}

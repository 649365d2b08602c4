//! Stores of engines that are not compiled into this build.

use lodestore::medium::MediumKind;
use lodestore::options::{CreateOptions, OpenOptions};
use lodestore::{Db, Error, engines};
use lodestore_contract::testing::Scratch;

const ENGINES: [&str; 5] = ["hikv", "nvht", "fluidkv", "hashkv", "mkvs"];

/// Returns the names of the engines that this build lacks.
fn lacking() -> impl Iterator<Item = &'static str> {
    ENGINES.into_iter().filter(|name| engines().iter().all(|engine| engine.name != *name))
}

#[track_caller]
fn assert_names_feature(refused: Error, name: &str) {
    let text = refused.to_string();
    match refused {
        Error::EngineNotBuilt { engine, feature } => assert_eq!((engine.as_str(), feature), (name, name)),
        other => panic!("{other}"),
    }
    assert!(text.contains(&format!("feature `{name}`")), "{text}");
}

#[test]
fn a_store_of_an_engine_that_is_not_compiled_in_is_not_created() {
    for name in lacking() {
        let dir = Scratch::new();
        let path = dir.store();
        let refused = lodestore::store::create(&path, &CreateOptions::new().engine(name).size(64 << 20));
        assert_names_feature(refused.expect_err("it is not compiled in"), name);
        assert!(!path.exists(), "nothing is left behind");
    }
}

#[test]
fn a_matrix_is_recognized_by_a_build_without_its_engine() {
    if engines().iter().any(|engine| engine.name == "mkvs") || engines().is_empty() {
        return;
    }
    let dir = Scratch::new();
    let path = dir.store();
    // A matrix has its own store in this directory.
    lodestore::store::create(path.join("host"), &CreateOptions::new().size(32 << 20))
        .expect("a host")
        .close()
        .expect("closes");
    assert_names_feature(lodestore::store::open(&path, &OpenOptions::new()).expect_err("not compiled in"), "mkvs");
    assert_names_feature(Db::open(&path).expect_err("not compiled in"), "mkvs");
    let header = lodestore::medium::doctor(&path).expect("a diagnosis").store.expect("a store").expect("a header");
    assert_eq!(header.engine, "mkvs");
}

#[test]
fn a_build_without_engines_refuses_a_new_store_by_the_feature_for_its_medium() {
    if !engines().is_empty() {
        return;
    }
    for dir in [Scratch::new(), Scratch::on_disk()] {
        let path = dir.store();
        let medium = lodestore::medium::doctor(&path).expect("a diagnosis").medium.medium;
        let name = if medium == MediumKind::Shm { "hikv" } else { "fluidkv" };
        assert_names_feature(Db::open(&path).expect_err("there is no engine"), name);
        assert!(!path.exists(), "nothing is left behind");
    }
}

#[test]
fn the_engine_that_is_chosen_by_the_medium_is_one_of_this_build() {
    if engines().is_empty() {
        return;
    }
    for dir in [Scratch::new(), Scratch::on_disk()] {
        let db = Db::builder(dir.store()).capacity(64 << 20).open().expect("creates");
        assert!(engines().iter().any(|engine| engine.name == db.engine()), "{}", db.choice());
    }
}

//! `import` from RocksDB directories.

use crate::common::Sandbox;
#[cfg(feature = "peers")]
use crate::common::text;

/// A directory that looks like RocksDB's to the program.
fn looks_like_rocksdb(sandbox: &Sandbox) {
    std::fs::create_dir(sandbox.path("rocks")).expect("a directory");
    sandbox.write("rocks/CURRENT", "MANIFEST-000005\n");
    sandbox.write("rocks/IDENTITY", "an identity");
}

#[cfg(not(feature = "peers"))]
#[test]
fn a_program_without_rocksdb_names_the_build_that_has_it() {
    let sandbox = Sandbox::with_store();
    looks_like_rocksdb(&sandbox);
    for args in [&["import", "store", "rocks"][..], &["import", "store", "rocks", "--format", "rocksdb"]] {
        sandbox.fails(args, 2, "--features peers");
    }
    assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
}

#[test]
fn an_option_for_column_families_is_refused_for_files_of_lines() {
    let sandbox = Sandbox::with_store();
    sandbox.write("lines.tsv", "a\t1\n");
    sandbox.fails(&["import", "store", "lines.tsv", "--column-family", "x"], 2, "--column-family");
    assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
}

#[cfg(feature = "peers")]
mod with_library {
    use std::collections::BTreeMap;
    use std::path::Path;

    use lodestore_peers::testing::make_rocksdb_family;
    use lodestore_peers::{Asked, kinds};

    use super::*;

    /// Makes a RocksDB with pairs in tables and in the log. Returns the lines of an export.
    fn make(dir: &Path, pairs: u32) -> String {
        std::fs::create_dir_all(dir).expect("a directory");
        let kinds = kinds();
        let kind = kinds.iter().find(|kind| kind.name == "rocksdb").expect("the kind");
        let peer = kind.open(dir, &Asked::default()).expect("RocksDB is installed (scripts/peers.sh)");
        let mut lines = BTreeMap::new();
        for number in 0..pairs {
            let (key, value) = (format!("key {number:05}"), "value ".repeat(number as usize % 50) + "end");
            peer.put(key.as_bytes(), value.as_bytes()).expect("put");
            lines.insert(key, value);
            if number == pairs / 2 {
                peer.settle().expect("settle");
            }
        }
        for number in (0..pairs).step_by(7) {
            let key = format!("key {number:05}");
            peer.delete(key.as_bytes()).expect("delete");
            lines.remove(&key);
        }
        lines.iter().map(|(key, value)| format!("{key}\t{value}\n")).collect()
    }

    /// The names and the contents of the files in a directory.
    fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
        let read = |entry: std::fs::DirEntry| {
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("a file"))
        };
        entries.map(read).collect()
    }

    #[test]
    fn all_pairs_of_tables_and_log_are_imported_and_the_source_is_unchanged() {
        let sandbox = Sandbox::with_store();
        let lines = make(&sandbox.path("rocks"), 3000);
        let before = files(&sandbox.path("rocks"));
        let said = sandbox.ok(&["import", "store", "rocks", "--acks"]);
        let records = lines.lines().count();
        assert!(said.contains(&format!("acknowledged {records}\n")), "{said}");
        assert_eq!(sandbox.ok(&["export", "store", "--format", "tsv"]), lines);
        assert_eq!(files(&sandbox.path("rocks")), before, "the source was changed");
        // Again, into a keyspace, by the name of the format.
        let args = ["import", "store", "rocks", "--format", "rocksdb", "--keyspace", "old", "--json", "--strict"];
        let summary = sandbox.ok(&args);
        assert!(summary.contains(&format!("\"imported\":{records}")) && summary.contains("\"skipped\":0"), "{summary}");
        assert_eq!(sandbox.ok(&["export", "store", "--format", "tsv", "--keyspace", "old"]), lines);
    }

    #[test]
    fn damage_in_the_middle_of_the_log_refuses_the_database() {
        let sandbox = Sandbox::with_store();
        make(&sandbox.path("rocks"), 3000);
        let logs = files(&sandbox.path("rocks")).into_iter().filter(|(name, _)| name.ends_with(".log"));
        let (name, mut bytes) = logs.max_by_key(|(_, bytes)| bytes.len()).expect("a log");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(sandbox.path("rocks").join(name), bytes).expect("a damaged log");
        sandbox.fails(&["import", "store", "rocks"], 10, "orruption");
        assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
    }

    #[test]
    fn a_column_family_that_the_database_lacks_is_refused_with_the_names_of_all() {
        let sandbox = Sandbox::with_store();
        make(&sandbox.path("rocks"), 10);
        sandbox.fails(&["import", "store", "rocks", "--column-family", "users"], 2, "default");
        sandbox.ok(&["import", "store", "rocks", "--column-family", "default"]);
    }

    #[test]
    fn other_column_families_are_named_and_one_of_them_is_imported_when_asked_for() {
        let sandbox = Sandbox::with_store();
        let lines = make(&sandbox.path("rocks"), 10);
        make_rocksdb_family(&sandbox.path("rocks"), "users", &[("ada", "1"), ("bob", "2")]).expect("a family");
        sandbox.fails(&["import", "store", "rocks", "--strict"], 10, "users");
        let output = sandbox.run(&["import", "store", "rocks"]);
        assert_eq!(output.status.code(), Some(0));
        let note = "lodestore: not imported: the column families users (--column-family imports one)\n";
        assert_eq!(text(&output.stderr), note);
        assert_eq!(sandbox.ok(&["export", "store", "--format", "tsv"]), lines);
        sandbox.ok(&["import", "store", "rocks", "--column-family", "users", "--keyspace", "users", "--strict"]);
        assert_eq!(sandbox.ok(&["export", "store", "--format", "tsv", "--keyspace", "users"]), "ada\t1\nbob\t2\n");
    }

    #[test]
    fn a_database_with_pairs_in_other_families_alone_is_refused_with_their_names() {
        let sandbox = Sandbox::with_store();
        make(&sandbox.path("rocks"), 0);
        make_rocksdb_family(&sandbox.path("rocks"), "users", &[("ada", "1")]).expect("a family");
        sandbox.fails(&["import", "store", "rocks"], 2, "users");
    }

    #[test]
    fn a_pair_beyond_the_limits_is_refused_before_anything_is_imported() {
        let sandbox = Sandbox::with_store();
        make(&sandbox.path("rocks"), 10);
        make_rocksdb_family(&sandbox.path("rocks"), "odd", &[("", "empty key"), ("a", "1")]).expect("a family");
        sandbox.fails(&["import", "store", "rocks", "--column-family", "odd"], 10, "no record was imported");
        assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
    }

    #[test]
    fn nothing_of_a_damaged_database_is_imported() {
        let sandbox = Sandbox::with_store();
        let dir = sandbox.path("rocks");
        make(&dir, 3000);
        let tables = || files(&dir).into_keys().filter(|name| name.ends_with(".sst"));
        let name = tables().next().expect("a table");
        let path = dir.join(name);
        let mut bytes = std::fs::read(&path).expect("a table");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).expect("a table");
        sandbox.fails(&["import", "store", "rocks"], 10, "no record was imported");
        assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
    }

    #[test]
    fn a_directory_that_rocksdb_refuses_is_refused_with_its_text() {
        let sandbox = Sandbox::with_store();
        looks_like_rocksdb(&sandbox);
        let output = sandbox.run(&["import", "store", "rocks"]);
        assert_eq!(output.status.code(), Some(10), "{}", text(&output.stderr));
        sandbox.fails(&["import", "store", "absent", "--format", "rocksdb"], 10, "absent");
        sandbox.fails(&["import", "store", "-", "--format", "rocksdb"], 2, "directory");
        assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
    }
}

//! `destroy`, `info`, `compact`, `man`, and `export` to a file.

use std::path::Path;

use crate::common::{Sandbox, text};

/// The names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn destroy_removes_the_store_and_its_directory() {
    for engine in ["hikv", "nvht", "fluidkv", "hashkv"] {
        let sandbox = Sandbox::new();
        sandbox.ok(&["create", "store", "--engine", engine, "--size", "64M"]);
        sandbox.ok(&["put", "store", "k", "v"]);
        sandbox.fails(&["destroy", "store"], 2, "add --yes");
        assert_eq!(sandbox.ok(&["get", "store", "k"]), "v");
        let printed = sandbox.ok(&["destroy", "store", "--yes"]);
        assert!(printed.starts_with("destroyed store: "), "{printed}");
        assert!(!sandbox.path("store").exists(), "{engine}");
        sandbox.fails(&["destroy", "store", "--yes"], 3, "no store");
    }
}

#[test]
fn destroy_removes_a_matrix_and_its_devices_elsewhere() {
    let sandbox = Sandbox::new();
    let elsewhere = sandbox.path("elsewhere").display().to_string();
    let paths = format!("paths=one,{elsewhere}");
    let create = ["create", "store", "--engine", "mkvs", "--size", "256M", "--set", "devices=2", "--set"];
    sandbox.ok(&[&create[..], &[paths.as_str()]].concat());
    sandbox.ok(&["put", "store", "k", "v"]);
    sandbox.write("store/notes", "mine");
    sandbox.fails(&["destroy", "store", "--yes"], 11, "notes");
    assert_eq!(sandbox.ok(&["get", "store", "k"]), "v");
    std::fs::remove_file(sandbox.path("store/notes")).expect("it is there");
    assert!(sandbox.ok(&["info", "store"]).contains("one/log/pool.0000"));
    // A copy of the matrix names the same device: only an explicit flag removes it.
    sandbox.fails(&["destroy", "store", "--yes"], 11, "--devices");
    assert_eq!(sandbox.ok(&["get", "store", "k"]), "v");
    sandbox.ok(&["destroy", "store", "--yes", "--devices"]);
    assert_eq!(names(&sandbox.path(".")), Vec::<String>::new());
}

#[test]
fn destroy_refuses_foreign_files_and_removes_nothing() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "k", "v"]);
    for (name, bytes) in [("notes", "mine"), ("pool.0007", "mine"), ("pool.0001.new", "mine")] {
        sandbox.write(&format!("store/{name}"), bytes);
        sandbox.fails(&["destroy", "store", "--yes"], 11, name);
        assert_eq!(std::fs::read(sandbox.path(&format!("store/{name}"))).expect("it stays"), bytes.as_bytes());
        std::fs::remove_file(sandbox.path(&format!("store/{name}"))).expect("it is there");
        assert_eq!(sandbox.ok(&["get", "store", "k"]), "v");
    }
    std::fs::create_dir(sandbox.path("plain")).expect("a directory");
    sandbox.write("plain/file", "mine");
    sandbox.fails(&["destroy", "plain", "--yes"], 3, "no store");
    sandbox.write("plain/pool.0000", "no region");
    sandbox.fails(&["destroy", "plain", "--yes"], 7, "pool.0000");
    assert_eq!(names(&sandbox.path("plain")), ["file", "pool.0000"]);
}

#[test]
fn destroy_refuses_a_store_in_use() {
    let sandbox = Sandbox::with_store();
    let mut importer = sandbox.importer();
    importer.send("k\tv\n");
    importer.acknowledged(1);
    sandbox.fails(&["destroy", "store", "--yes"], 5, "pid ");
    let printed = sandbox.ok(&["info", "store"]);
    assert!(printed.contains(&format!("open by pid {} (lodestore)", importer.child.id())), "{printed}");
    assert!(sandbox.ok(&["info", "store", "--json"]).contains("\"state\":\"open\""));
    importer.kill();
    assert!(sandbox.ok(&["info", "store"]).contains("no clean stop"));
    assert_eq!(sandbox.ok(&["get", "store", "k"]), "v");
}

#[test]
fn destroy_removes_a_damaged_store() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "k", "v"]);
    let path = sandbox.path("store/pool.0000");
    let mut region = std::fs::read(&path).expect("the first region");
    region[..2 * 4096].fill(7);
    std::fs::write(&path, region).expect("the first region is written");
    sandbox.fails(&["get", "store", "k"], 7, "header");
    sandbox.ok(&["destroy", "store", "--yes"]);
    assert!(!sandbox.path("store").exists());
}

#[test]
fn info_describes_a_store() {
    let sandbox = Sandbox::with_store();
    let table = sandbox.ok(&["info", "store"]);
    for says in ["engine", "hikv (format ", "durability", "process", "67,108,864 (64M)", "clean stop", "  pool.0000"] {
        assert!(table.contains(says), "{says}: {table}");
    }
    let info: serde_json::Value = serde_json::from_str(&sandbox.ok(&["info", "store", "--json"])).expect("an object");
    assert_eq!((&info["state"], &info["capacity"]), (&"clean".into(), &(64u64 << 20).into()));
    let names: Vec<_> = info["files"].as_array().expect("an array").iter().map(|file| &file["name"]).collect();
    assert_eq!(names, ["CHOICE", "LOCK", "pool.0000"]);
    let bytes: u64 = std::fs::metadata(sandbox.path("store/pool.0000")).expect("a file").len();
    assert_eq!(info["files"][2]["bytes"], bytes);
    sandbox.fails(&["info", "absent"], 3, "lodestore create");
}

#[test]
fn compact_reports_the_freed_bytes() {
    // On a disk, the closed store still has both copies of each pair.
    let sandbox = Sandbox::on_disk();
    sandbox.ok(&["create", "store", "--engine", "fluidkv", "--size", "64M"]);
    let lines: String = (0..3000).map(|n| format!("key{n:05}\t{:0300}\n", n)).collect();
    for _ in 0..2 {
        let output = sandbox.feed(&["import", "store", "-", "--format", "tsv"], lines.as_bytes());
        assert!(output.status.success());
    }
    let printed: serde_json::Value =
        serde_json::from_str(&sandbox.ok(&["compact", "store", "--json"])).expect("an object");
    let before = printed["live_before"].as_u64().expect("bytes") + printed["dead_before"].as_u64().expect("bytes");
    let after = printed["live"].as_u64().expect("bytes") + printed["dead"].as_u64().expect("bytes");
    assert_eq!(printed["freed"].as_u64(), Some(before.saturating_sub(after)));
    // 3,000 pairs of 300 bytes, written twice: one copy of each is left.
    assert!((900_000..1_300_000).contains(&after), "{printed}");
    assert!(sandbox.ok(&["compact", "store"]).starts_with("freed  "));
    assert_eq!(sandbox.ok(&["count", "store"]), "3000\n");
}

#[test]
fn export_writes_a_complete_file() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "a", "1"]);
    let printed = sandbox.ok(&["export", "store", "-o", "out.jsonl"]);
    assert_eq!(printed, "exported 1 records to out.jsonl\n");
    let file = || std::fs::read_to_string(sandbox.path("out.jsonl")).expect("the file");
    assert_eq!(file(), "{\"key\":\"a\",\"value\":\"1\"}\n");
    sandbox.ok(&["put", "store", "b", "2"]);
    sandbox.fails(&["export", "store", "-o", "out.jsonl"], 11, "--force");
    assert_eq!(file(), "{\"key\":\"a\",\"value\":\"1\"}\n");
    sandbox.ok(&["export", "store", "-o", "out.jsonl", "--force", "--json"]);
    assert_eq!(file().lines().count(), 2);
    assert_eq!(names(&sandbox.path(".")), ["out.jsonl", "store"]);
    sandbox.fails(&["export", "absent", "-o", "new.jsonl"], 3, "no store");
    sandbox.fails(&["export", "store", "-o", "none/new.jsonl"], 8, "creating none/new.jsonl");
    assert_eq!(names(&sandbox.path(".")), ["out.jsonl", "store"]);
}

#[test]
fn an_export_replaces_no_file_of_a_store_and_no_device() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "a", "1"]);
    std::os::unix::fs::symlink("target", sandbox.path("link")).expect("a link");
    let made = std::process::Command::new("mkfifo").arg(sandbox.path("pipe")).status();
    assert!(made.expect("mkfifo starts").success());
    for (file, says) in [
        ("store/pool.0000", "in the directory of a store"),
        ("store/new.jsonl", "in the directory of a store"),
        ("link", "is not a regular file"),
        ("pipe", "is not a regular file"),
    ] {
        sandbox.fails(&["export", "store", "-o", file, "--force"], 8, says);
    }
    sandbox.ok(&["create", "other", "--size", "32M"]);
    sandbox.fails(&["export", "store", "-o", "other/LOCK", "--force"], 8, "in the directory of a store");
    assert_eq!(sandbox.ok(&["get", "store", "a"]), "1");
}

#[test]
fn an_import_warns_of_a_last_line_that_may_be_cut() {
    let sandbox = Sandbox::with_store();
    let import = ["import", "store", "-", "--format", "tsv"];
    let output = sandbox.feed(&import, b"a\tvalue\nb\tval");
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("the last line has no newline"), "{}", text(&output.stderr));
    let output = sandbox.feed(&import, b"a\tvalue\nb\tvalue\n");
    assert!(!text(&output.stderr).contains("newline"), "{}", text(&output.stderr));
}

#[test]
fn an_export_of_damaged_keyspaces_counts_no_records_of_other_keyspaces() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--engine", "nvht", "--size", "32M"]);
    for key in ["a", "b", "c"] {
        sandbox.ok(&["put", "store", key, &format!("the value of {key}")]);
        sandbox.ok(&["put", "store", key, "other", "--keyspace", "users"]);
    }
    sandbox.damage("store/pool.0000", b"the value of b");
    sandbox.fails(&["export", "store", "--all-keyspaces"], 7, "5 of 6 records were exported, and 1 are damaged");
}

#[test]
fn an_export_with_damage_replaces_no_file() {
    let sandbox = Sandbox::with_store();
    for key in ["a", "b", "c"] {
        sandbox.ok(&["put", "store", key, &format!("the value of {key}")]);
    }
    sandbox.ok(&["export", "store", "-o", "out.tsv", "--format", "tsv"]);
    let whole = std::fs::read(sandbox.path("out.tsv")).expect("the file");
    sandbox.damage("store/pool.0000", b"the value of b");
    let export = ["export", "store", "-o", "out.tsv", "--force", "--format", "tsv"];
    sandbox.fails(&export, 7, "no file was written: add --salvage");
    assert_eq!(std::fs::read(sandbox.path("out.tsv")).expect("the file"), whole);
    let printed = sandbox.fails(&[&export[..], &["--salvage"]].concat(), 7, "2 of 3 records were exported");
    assert_eq!(printed, "exported 2 records to out.tsv\n");
    let salvaged = std::fs::read_to_string(sandbox.path("out.tsv")).expect("the file");
    assert_eq!(salvaged, "a\tthe value of a\nc\tthe value of c\n");
    assert_eq!(names(&sandbox.path(".")), ["out.tsv", "store"]);
}

#[test]
fn man_writes_a_page_for_each_command() {
    let sandbox = Sandbox::new();
    let page = sandbox.ok(&["man"]);
    assert!(page.contains(".TH lodestore 1") && page.contains("lodestore\\-destroy(1)"), "{page}");
    let printed = sandbox.ok(&["man", "--dir", "man"]);
    let pages = names(&sandbox.path("man"));
    assert_eq!(printed, format!("wrote {} pages to man\n", pages.len()));
    for name in ["lodestore.1", "lodestore-get.1", "lodestore-mkvs-add-group.1", "lodestore-destroy.1"] {
        assert!(pages.iter().any(|page| page == name), "{name}: {pages:?}");
    }
    assert!(text(&std::fs::read(sandbox.path("man/lodestore-get.1")).expect("a page")).contains("KEY"));
}

//! Refusals: each with its exit code, in one line with advice.

use crate::common;
use crate::common::{Sandbox, text};

#[test]
fn bad_arguments_are_code_2() {
    let sandbox = Sandbox::with_store();
    for (args, says) in [
        (&[][..], "see lodestore --help"),
        (&["frobnicate"], "frobnicate"),
        (&["get"], "<STORE>"),
        (&["get", "store"], "<KEY>"),
        (&["put", "store", "k"], "<VALUE>"),
        (&["put", "store", "k", "v", "more"], "more"),
        (&["put", "store", "k", "v", "--value-file", "f"], "--value-file"),
        (&["put", "store", "k", "v", "--ttl", "-1"], "number of seconds"),
        (&["put", "store", "k", "v", "--keep-ttl"], "--keep-ttl"),
        (&["update", "store", "k", "v", "--keep-ttl", "--ttl", "1"], "--ttl"),
        (&["get", "store", "k", "--frob"], "--frob"),
        (&["get", "store", "--hex", "0g"], "hexadecimal"),
        (&["get", "store", "--hex", "--base64", "00"], "--base64"),
        (&["scan", "store", "--limit", "some"], "--limit"),
        (&["import", "store", "f", "--format", "xml"], "xml"),
        (&["create", "new", "--size", "8X"], "8X"),
        (&["create", "new", "--size", "-1"], "-1"),
        (&["create", "new", "--durability", "forever"], "process, power or interval"),
        (&["create", "new", "--durability", "interval:0"], "process, power or interval"),
        (&["create", "new", "--engine", "frob"], "engines of this build are hikv"),
        (&["create", "new", "--set", "frob=1"], "frob"),
        (&["create", "new", "--set", "frob"], "name=value"),
        (&["get", "store", "k", "--set", "frob=1"], "frob"),
        (&["completions", "frob"], "frob"),
    ] {
        assert_eq!(sandbox.fails(args, 2, says), "", "{args:?}");
    }
    assert!(!sandbox.path("new").exists(), "a refused create leaves nothing");
}

#[test]
fn a_missing_store_is_code_3() {
    let sandbox = Sandbox::new();
    sandbox.write("in.tsv", "k\tv\n");
    std::fs::create_dir(sandbox.path("empty")).expect("a directory");
    let (make_one, choose) = ("lodestore create", "in.tsv holds no store (it is not a directory): choose");
    for (store, says) in [("absent", make_one), ("empty", make_one), ("in.tsv", choose), ("absent/below", make_one)] {
        for args in [
            &["get", store, "k"][..],
            &["put", store, "k", "v"],
            &["insert", store, "k", "v"],
            &["update", store, "k", "v"],
            &["delete", store, "k"],
            &["count", store],
            &["stats", store],
            &["verify", store],
            &["scan", store],
            &["export", store],
            &["import", store, "in.tsv"],
        ] {
            sandbox.fails(args, 3, says);
        }
    }
    assert!(!sandbox.path("absent").exists());
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |mut crc: u32, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
        crc
    })
}

/// Changes both header copies of a store and gives them a matching checksum (docs/format/pool.md).
fn patch_header(sandbox: &Sandbox, at: usize, bytes: &[u8]) {
    patch_header_of(sandbox, "store", at, bytes);
}

/// Changes both header copies of the pool in this directory.
fn patch_header_of(sandbox: &Sandbox, store: &str, at: usize, bytes: &[u8]) {
    let path = sandbox.path(store).join("pool.0000");
    let mut region = std::fs::read(&path).expect("the first region");
    for copy in region[..2 * 4096].chunks_exact_mut(4096) {
        assert_eq!(&copy[..8], b"LODEPOOL");
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        let sum = crc32c(&[&copy[8..12], &copy[16..1024]].concat());
        copy[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    std::fs::write(&path, region).expect("the first region is written");
}

#[test]
fn a_store_of_a_newer_format_is_code_4() {
    let sandbox = Sandbox::with_store();
    patch_header(&sandbox, 8, &77u32.to_le_bytes());
    for args in [&["get", "store", "k"][..], &["verify", "store"], &["stats", "store"], &["put", "store", "k", "v"]] {
        sandbox.fails(
            args,
            4,
            "the pool format of this store has version 77, and this program supports no version \
             above",
        );
    }
    let sandbox = Sandbox::with_store();
    patch_header(&sandbox, 88, &78u32.to_le_bytes());
    sandbox.fails(
        &["get", "store", "k"],
        4,
        "the hikv format of this store has version 78, and this program supports \
         no version above",
    );
    assert!(sandbox.ok(&["doctor", "store"]).contains("engine hikv (format 78)"));
}

#[test]
fn a_store_of_an_engine_that_is_not_in_this_build_is_code_4() {
    let sandbox = Sandbox::with_store();
    patch_header(&sandbox, 56, b"frob");
    sandbox.fails(
        &["get", "store", "k"],
        4,
        "created by engine frob, not hikv, nvht, fluidkv, hashkv or mkvs: open it with frob",
    );
    sandbox.fails(&["count", "store", "--engine", "hikv"], 4, "created by engine frob, not hikv: open it with frob");
    assert_eq!(sandbox.fails(&["get", "store", "k", "--engine", "frob"], 4, "open it with frob"), "");
}

#[test]
fn a_torn_header_is_code_7() {
    let sandbox = Sandbox::with_store();
    let path = sandbox.path("store/pool.0000");
    let mut region = std::fs::read(&path).expect("the first region");
    for at in [100, 4196] {
        region[at] ^= 1;
    }
    std::fs::write(&path, region).expect("the first region is written");
    for command in ["count", "verify", "scan"] {
        sandbox.fails(&[command, "store"], 7, "neither header copy is valid");
    }
}

#[test]
fn a_damaged_record_is_code_7_and_other_records_are_readable() {
    let sandbox = Sandbox::with_store();
    for key in ["a", "b", "c"] {
        sandbox.ok(&["put", "store", key, &format!("the value of {key}")]);
    }
    sandbox.damage("store/pool.0000", b"the value of b");
    sandbox.fails(&["get", "store", "b"], 7, "corrupt data at");
    assert_eq!(sandbox.ok(&["get", "store", "a"]), "the value of a");
    assert_eq!(sandbox.ok(&["get", "store", "c"]), "the value of c");
    let found = sandbox.fails(&["verify", "store"], 7, "verify found");
    assert!(found.starts_with("record ") && found.contains("checksum") && found.ends_with(" damaged\n"), "{found}");
    let found = sandbox.fails(&["verify", "store", "--json"], 7, "verify found");
    assert!(found.contains("\"clean\":false,\"findings\":[{\"place\":"), "{found}");
    let out = sandbox.fails(
        &["export", "store", "--format", "tsv"],
        7,
        "the export is incomplete: 2 of 3 records were exported, and 1 are damaged",
    );
    assert_eq!(out, "a\tthe value of a\nc\tthe value of c\n", "those behind the damage are out too");
    sandbox.ok(&["put", "store", "b", "another"]);
    sandbox.ok(&["verify", "store"]);
    assert_eq!(sandbox.ok(&["scan", "store"]).lines().count(), 3);
}

/// Returns a store with records `a`, `b` and `c` whose process was killed, with one flipped bit in
/// the only occurrence of `bytes`.
fn killed_with_damage(bytes: &[u8]) -> Sandbox {
    let sandbox = Sandbox::with_store();
    let mut importer = sandbox.importer();
    importer.send("a\tthe value of a\nthe key b\tthe value of b\nc\tthe value of c\n");
    importer.acknowledged(3);
    importer.kill();
    let path = sandbox.path("store/pool.0000");
    let mut region = std::fs::read(&path).expect("the first region");
    let at = region.windows(bytes.len()).position(|found| found == bytes).expect("the bytes are in the region");
    region[at] ^= 1;
    std::fs::write(&path, region).expect("the first region is written");
    sandbox
}

#[test]
fn an_export_after_a_kill_counts_a_damaged_record_once() {
    let sandbox = killed_with_damage(b"the value of b");
    let out = sandbox.fails(
        &["export", "store", "--format", "tsv"],
        7,
        "the export is incomplete: 2 of 3 records were exported, and 1 are damaged",
    );
    assert_eq!(out, "a\tthe value of a\nc\tthe value of c\n");
    sandbox.fails(&["export", "store"], 7, "corrupt data at");
    sandbox.fails(&["export", "store"], 7, "run `lodestore verify` for a list of all damage");
}

/// A byte of the root area that the seal covers and neither `hikv` nor `nvht` uses (docs/format).
const UNUSED_OF_ROOT_AREA: usize = 8192 + 4000;

/// Returns a store of 3,000 records that was stopped cleanly, with one flipped bit in its root
/// area.
fn closed_with_a_damaged_index(engine: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--engine", engine, "--size", "64M"]);
    let records: String = (0..3000).map(|index| format!("key {index:05}\tvalue {index:05}\n")).collect();
    let imported = sandbox.feed(&["import", "store", "-", "--format", "tsv"], records.as_bytes());
    assert!(imported.status.success(), "{imported:?}");
    let path = sandbox.path("store/pool.0000");
    let mut region = std::fs::read(&path).expect("the first region");
    region[UNUSED_OF_ROOT_AREA] ^= 1;
    std::fs::write(&path, region).expect("the first region is written");
    sandbox
}

#[test]
fn a_refused_open_names_a_command_that_works() {
    for engine in ["hikv", "nvht"] {
        let sandbox = closed_with_a_damaged_index(engine);
        for command in [&["get", "store", "a"][..], &["export", "store"], &["verify", "store"], &["count", "store"]] {
            sandbox.fails(command, 7, "export the readable pairs (`lodestore export --salvage`)");
        }
        let output = sandbox.run(&["export", "store", "--salvage", "--format", "tsv"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).lines().count()), (Some(7), 3000), "{said}");
        let expected = "the export may lack records that damage hides: 3000 of 3000 known records were exported";
        assert!(said.contains(expected), "{said}");
        assert!(said.contains("`lodestore verify --salvage`") && !said.contains("`lodestore verify`"), "{said}");
        assert!(!said.contains("that were there") && !said.contains("are damaged"), "{said}");
        sandbox.fails(&["verify", "store", "--salvage"], 7, "verify found");
    }
}

/// Of the records that recovery left out, as many as there were damaged values were not counted.
#[test]
fn an_export_counts_damaged_values_and_records_left_out_by_recovery() {
    for engine in ["hikv", "nvht"] {
        let sandbox = Sandbox::new();
        sandbox.ok(&["create", "store", "--engine", engine, "--size", "64M"]);
        let mut importer = sandbox.importer();
        importer.send(&(0..10).map(|index| format!("the key {index}\tthe value of {index}\n")).collect::<String>());
        importer.acknowledged(10);
        importer.kill();
        let path = sandbox.path("store/pool.0000");
        let mut region = std::fs::read(&path).expect("the first region");
        let values = (0..5).map(|index| format!("the value of {index}"));
        for bytes in values.chain((5..8).map(|index| format!("the key {index}"))) {
            let found = region.windows(bytes.len()).position(|found| found == bytes.as_bytes());
            region[found.expect("the bytes are in the region")] ^= 1;
        }
        std::fs::write(&path, region).expect("the first region is written");
        let said = "the export is incomplete: 2 of 10 records were exported, and 8 are damaged";
        let out = sandbox.fails(&["export", "store", "--format", "tsv"], 7, said);
        let mut lines: Vec<_> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["the key 8\tthe value of 8", "the key 9\tthe value of 9"], "{engine}");
    }
}

/// The scan of this engine ends at damage, and so did the export, which had counted the keys before
/// and failed there.
#[test]
fn an_export_of_a_damaged_table_has_all_that_can_be_read() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--engine", "fluidkv", "--size", "64M"]);
    let record = |index: u64| format!("key {index:05}\tthe value of {index:05}\n");
    let records: String = (0..2000).map(record).collect();
    let imported = sandbox.feed(&["import", "store", "-", "--format", "tsv"], records.as_bytes());
    assert!(imported.status.success(), "{imported:?}");
    let path = sandbox.path("store/pool.0000");
    let mut region = std::fs::read(&path).expect("the first region");
    let value = b"the value of 01000";
    let places: Vec<_> = region.windows(value.len()).enumerate().filter(|(_, bytes)| *bytes == value).collect();
    let places: Vec<_> = places.into_iter().map(|(at, _)| at).collect();
    places.iter().for_each(|at| region[*at] ^= 1);
    std::fs::write(&path, region).expect("the first region is written");
    let out = sandbox.fails(&["export", "store", "--format", "tsv"], 7, "the export is incomplete");
    let lines: Vec<_> = out.lines().map(|line| format!("{line}\n")).collect();
    assert!((1900..2000).contains(&lines.len()), "{} records", lines.len());
    assert!(lines.is_sorted() && lines.contains(&record(0)) && lines.contains(&record(1999)));
    assert!(!lines.contains(&record(1000)) && lines.iter().all(|line| line[4..9] == line[23..28]));
}

#[test]
fn an_export_is_incomplete_if_recovery_left_something_out() {
    // Without its key a record loses its position in the walk.
    let sandbox = killed_with_damage(b"the key b");
    for _again in 0..2 {
        let said = "the export is incomplete: 2 of 3 records were exported, and 1 are damaged";
        let out = sandbox.fails(&["export", "store", "--format", "tsv"], 7, said);
        assert_eq!(out, "a\tthe value of a\nc\tthe value of c\n");
    }
}

#[test]
fn a_store_without_its_manifest_is_refused_and_exported_with_salvage() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--size", "64M", "--engine", "fluidkv"]);
    for key in ["a", "b", "c"] {
        sandbox.ok(&["put", "store", key, &format!("the value of {key}")]);
    }
    let path = sandbox.path("store/pool.0000");
    let mut region = std::fs::read(&path).expect("the first region");
    let manifests: Vec<_> = (0..region.len()).step_by(4096).filter(|at| region[*at..].starts_with(b"LMAN")).collect();
    manifests.iter().for_each(|at| region[at + 17] ^= 1);
    std::fs::write(&path, region).expect("the first region is written");
    for command in [&["get", "store", "a"][..], &["export", "store"], &["verify", "store"]] {
        sandbox.fails(command, 7, "`lodestore export --salvage`");
    }
    let out = sandbox.run(&["export", "store", "--salvage", "--format", "tsv"]);
    let (out, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("recovery also found"), "{said}");
    assert_eq!(out, "a\tthe value of a\nb\tthe value of b\nc\tthe value of c\n");
    let found = sandbox.fails(&["verify", "store", "--salvage"], 7, "verify found");
    assert!(found.contains("damaged"), "{found}");
}

#[test]
fn a_store_whose_machine_restarted_is_code_9_until_it_is_salvaged() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "k", "v"]);
    patch_header(&sandbox, 40, &[7; 16]);
    assert_eq!(sandbox.ok(&["get", "store", "k"]), "v", "a clean stop is clean on any boot");
    // Another boot id, and a cleared clean flag.
    patch_header(&sandbox, 40, &[7; 16]);
    patch_header(&sandbox, 92, &0u32.to_le_bytes());
    sandbox.fails(&["get", "store", "k"], 9, "lodestore verify --salvage");
    assert!(sandbox.ok(&["verify", "store", "--salvage"]).starts_with("checked 1 records"));
    assert_eq!(sandbox.ok(&["get", "store", "k"]), "v");
}

#[test]
fn a_matrix_whose_machine_restarted_is_named_itself_and_is_salvaged() {
    let sandbox = Sandbox::new();
    let create = ["create", "k", "--engine", "mkvs", "--size", "48M", "--set", "region=4M", "--set", "devices=3"];
    sandbox.ok(&create);
    sandbox.ok(&["put", "k", "key", "value"]);
    let devices = (0..3).flat_map(|at| ["store", "log"].map(|part| format!("k/group0.device{at}/{part}")));
    let stores: Vec<_> = devices.chain(["k/host".into()]).collect();
    let restart = |stores: &[String]| {
        for store in stores {
            patch_header_of(&sandbox, store, 40, &[7; 16]);
            patch_header_of(&sandbox, store, 92, &0u32.to_le_bytes());
        }
    };
    let says = "lodestore: k: the machine restarted while a store";
    // Only the devices, then the host too.
    for count in [6, 7] {
        restart(&stores[..count]);
        sandbox.fails(&["get", "k", "key"], 9, says);
        let checked = sandbox.run(&["verify", "k", "--salvage"]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
        assert_eq!(sandbox.ok(&["get", "k", "key"]), "value");
    }
}

#[test]
fn durability_that_the_medium_cannot_give_is_code_9_or_2() {
    let sandbox = Sandbox::new();
    sandbox.fails(&["create", "store", "--engine", "hikv", "--durability", "interval:100"], 2, "use process or power");
    let doctor = sandbox.ok(&["doctor", "store", "--json"]);
    if doctor.contains("\"medium\":\"shm\"") {
        sandbox.fails(&["create", "store", "--size", "64M", "--durability", "power"], 9, "use durability process");
        sandbox.fails(&["get", "store", "k"], 3, "lodestore create");
    }
    sandbox.ok(&["create", "store", "--size", "64M"]);
}

#[test]
fn doctor_reports_the_medium_of_a_path_that_need_not_exist() {
    let sandbox = Sandbox::new();
    let table = sandbox.ok(&["doctor", "not/there/yet"]);
    for row in [
        "probed",
        "medium",
        "MAP_SYNC",
        "flush instruction",
        "free space",
        "huge pages",
        "store ",
        "durability process",
        "durability power",
    ] {
        assert!(table.lines().any(|line| line.starts_with(row)), "{row}: {table}");
    }
    let json = sandbox.ok(&["doctor", ".", "--json"]);
    assert!(json.starts_with("{\"probed\":\".\",\"medium\":") && json.ends_with("\"store\":null}\n"), "{json}");
}

#[test]
fn another_engine_is_code_4() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "k", "v"]);
    sandbox.fails(&["get", "store", "k", "--engine", "nvht"], 4, "open it with hikv");
    assert_eq!(sandbox.ok(&["get", "store", "k", "--engine", "hikv"]), "v");
}

#[test]
fn a_store_that_another_process_holds_is_code_5() {
    let sandbox = Sandbox::with_store();
    let mut holder = sandbox.importer();
    holder.send("k\tv\n");
    holder.acknowledged(1);
    let pid = holder.child.id().to_string();
    for args in [&["get", "store", "k"][..], &["count", "store"], &["verify", "store"], &["put", "store", "k", "w"]] {
        sandbox.fails(args, 5, &pid);
    }
    holder.kill();
    assert_eq!(sandbox.ok(&["get", "store", "k"]), "v");
}

#[test]
fn a_full_store_is_code_6_and_loses_nothing() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--size", "4M"]);
    let lines: String = (0..8_000).map(|n| format!("key{n:06}\t{}\n", "v".repeat(2_000))).collect();
    sandbox.write("in.tsv", &lines);
    let wrote = sandbox.fails(&["import", "store", "in.tsv", "--json"], 6, "is full");
    let imported = wrote.split("\"imported\":").nth(1).and_then(|rest| rest.split(',').next());
    let imported: usize = imported.and_then(|number| number.parse().ok()).expect("a summary");
    assert!(imported > 200 && wrote.contains("\"complete\":false"), "{wrote}");
    let there = sandbox.ok(&["export", "store", "--format", "tsv"]);
    assert_eq!(there, lines.lines().take(imported).map(|line| format!("{line}\n")).collect::<String>());
    sandbox.fails(&["put", "store", "more", &"v".repeat(100_000)], 6, "is full");
    assert_eq!(sandbox.ok(&["count", "store"]), format!("{imported}\n"));
    sandbox.ok(&["verify", "store"]);
    for n in 0..100 {
        sandbox.ok(&["delete", "store", &format!("key{n:06}")]);
    }
    sandbox.ok(&["put", "store", "more", &"v".repeat(2_000)]);
}

#[test]
fn a_store_that_is_too_small_or_too_large_for_its_medium_names_the_option() {
    let sandbox = Sandbox::new();
    for (args, code, says) in [
        (&["--size", "1K"][..], 2, "--size SIZE"),
        (&["--size", "256K"], 2, "use a larger --size SIZE"),
        (&["--set", "region=1K"], 2, "--set region=SIZE"),
        (&["--set", "region=16T"], 2, "--set region=SIZE"),
        (&["--set", "chunk=3K"], 2, "--set chunk=SIZE"),
        (&["--set", "first-region=3K"], 2, "--set first-region=SIZE"),
        (&["--size", "4096T", "--set", "region=1T"], 2, "use at most "),
        (&["--size", "1T"], 2, "or regions of at least "),
        (&["--size", "1T"], 2, "(--set region=SIZE)"),
    ] {
        assert_eq!(sandbox.fails(&[&["create", "new"], args].concat(), code, says), "", "{args:?}");
        sandbox.fails(&["get", "new", "k"], 3, "lodestore create");
    }
    // A store larger than the medium allocates space as it grows.
    sandbox.ok(&["create", "large", "--size", "900T", "--set", "region=1T"]);
    sandbox.ok(&["create", "new", "--size", "64M"]);
}

#[test]
fn a_refusal_of_the_system_comes_with_advice() {
    let sandbox = Sandbox::with_store();
    sandbox.write("k", "");
    sandbox.fails(&["import", "store", "absent"], 8, "check the path");
    sandbox.fails(&["put", "store", "k", "--value-file", "absent"], 8, "check the path");
}

#[test]
fn a_file_in_the_store_that_is_not_the_stores_is_code_11_and_stays() {
    let sandbox = Sandbox::with_store();
    sandbox.write("store/pool.0001", "a letter");
    sandbox.fails(&["get", "store", "k"], 11, "move it out of the directory");
    assert_eq!(std::fs::read(sandbox.path("store/pool.0001")).expect("still there"), b"a letter");
}

#[test]
fn added_latency_is_an_option_of_an_opening() {
    let sandbox = Sandbox::with_store();
    sandbox.fails(&["create", "new", "--persist-ns", "5"], 2, "--persist-ns");
    let put = ["put", "store", "k", "v", "--set", "persist-ns=5", "--set", "persist-per=block"];
    let engine = lodestore::engines().first().expect("an engine");
    let spec = engine.options().iter().find(|spec| spec.name == "persist-ns").expect("an option of each engine");
    let listed = sandbox.ok(&["engines"]);
    assert_eq!(listed.contains("persist-ns"), spec.is_built, "{listed}");
    if spec.is_built {
        sandbox.ok(&put);
    } else {
        sandbox.fails(&put, 2, "with the feature `lab`");
    }
    sandbox.fails(&["get", "store", "k", "--set", "persist-ns=x"], 2, "nanoseconds");
}

#[test]
fn an_existing_path_of_create_is_code_11() {
    let sandbox = Sandbox::with_store();
    sandbox.write("file", "");
    std::fs::create_dir(sandbox.path("dir")).expect("a directory");
    sandbox.write("dir/other", "");
    sandbox.fails(&["create", "store", "--size", "64M"], 11, "already exists: open it");
    for (path, why) in [
        ("file", "file holds no store (it is not a directory): choose an empty directory"),
        ("dir", "dir holds no store (the directory is not empty: it has other): choose an empty directory"),
    ] {
        for engine in ["hikv", "mkvs"] {
            sandbox.fails(&["create", path, "--engine", engine, "--size", "64M"], 11, why);
        }
        sandbox.fails(&["get", path, "k"], 3, why);
        sandbox.fails(&["info", path], 3, why);
    }
    assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
}

#[test]
fn a_matrix_at_the_path_of_create_is_offered_for_an_open() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "matrix", "--engine", "mkvs", "--size", "48M", "--set", "region=4M"]);
    for engine in ["hikv", "mkvs"] {
        sandbox.fails(&["create", "matrix", "--engine", engine, "--size", "48M"], 11, "already exists: open it");
    }
}

#[test]
fn a_store_without_its_first_region_is_not_offered_for_an_open() {
    let sandbox = Sandbox::with_store();
    std::fs::remove_file(sandbox.path("store/pool.0000")).expect("removed");
    let says = "restore all files of the store from one copy";
    let args = ["create", "store", "--size", "64M"];
    sandbox.fails(&args, 11, says);
    let said = text(&sandbox.run(&args).stderr);
    assert!(said.contains("pool.0000 is missing") && !said.contains("open it"), "{said}");
    sandbox.fails(&["get", "store", "k"], 7, "restore all files from one copy");
}

#[test]
fn the_region_length_that_a_refused_size_names_is_enough() {
    let sandbox = Sandbox::new();
    let said = text(&sandbox.run(&["create", "new", "--size", "1T"]).stderr);
    let (_, named) = said.split_once("regions of at least ").expect("a length");
    let (length, _) = named.split_once(' ').expect("a word");
    sandbox.ok(&["create", "new", "--size", "1T", "--set", &format!("region={length}")]);
}

#[test]
fn a_directory_that_cannot_be_made_is_code_8() {
    let sandbox = Sandbox::new();
    let name = "n".repeat(300);
    sandbox.fails(&["create", &name, "--size", "64M"], 8, &name);
}

#[test]
fn help_and_version_are_no_failures_and_name_the_exit_codes() {
    let sandbox = Sandbox::new();
    let help = sandbox.ok(&["--help"]);
    for code in 0..=11 {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{code}  "))), "exit code {code}");
    }
    assert!(sandbox.ok(&["--version"]).starts_with("lodestore "));
    for command in [
        "create",
        "put",
        "insert",
        "update",
        "get",
        "delete",
        "count",
        "stats",
        "verify",
        "scan",
        "import",
        "export",
        "doctor",
        "sample",
        "engines",
        "completions",
    ] {
        assert!(help.contains(&format!("  {command} ")), "{command} is in the help");
        assert!(sandbox.ok(&[command, "--help"]).contains("Usage: lodestore"), "{command} has its own");
    }
}

#[test]
fn engines_lists_the_options_of_set() {
    let sandbox = Sandbox::new();
    assert!(sandbox.ok(&["engines"]).starts_with("hikv: "));
    assert!(text(&sandbox.run(&["engines", "--json"]).stdout).starts_with("{\"engine\":\"hikv\",\"about\":"));
    assert!(sandbox.ok(&["completions", "bash"]).contains("lodestore"));
}

#[test]
fn an_import_under_any_limit_of_open_files_works_or_names_the_limit() {
    let sandbox = Sandbox::with_store();
    sandbox.write("in.tsv", "k\tv\n");
    let mut done = 0;
    for limit in 5..32 {
        let script = "ulimit -n \"$1\"; exec \"$0\" import store in.tsv";
        let output = std::process::Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_lodestore"), &limit.to_string()])
            .current_dir(sandbox.path(""))
            .output()
            .expect("sh starts");
        let error = common::text(&output.stderr);
        let is_done = output.status.success();
        done += usize::from(is_done);
        assert!(is_done || error.contains("ulimit -n"), "limit {limit}: {error}");
    }
    assert!(done > 0, "no limit was high enough");
}

/// The open repairs the copy, so no later command finds the damage.
#[test]
fn damage_that_an_open_repairs_is_reported_by_the_command_that_opened_the_store() {
    for command in [&["get", "store", "a"][..], &["get", "store", "absent"], &["export", "store"], &["count", "store"]]
    {
        let sandbox = Sandbox::new();
        sandbox.ok(&["create", "store", "--engine", "hikv", "--size", "64M", "--set", "region=1M"]);
        sandbox.ok(&["put", "store", "a", "the value of a"]);
        for key in 0..4 {
            sandbox.ok(&["put", "store", &format!("long{key}"), &"x".repeat(100_000)]);
        }
        let path = sandbox.path("store/pool.0001");
        let mut region = std::fs::read(&path).expect("a second region");
        region[..64].fill(0);
        std::fs::write(&path, region).expect("damage it");
        let said = text(&sandbox.run(command).stderr);
        assert!(said.contains("note: recovery found damage: "), "{command:?}: {said}");
        assert!(said.contains("pool.0001: one copy of the region header is damaged"), "{command:?}: {said}");
        assert!(!text(&sandbox.run(command).stderr).contains("note: "), "it is repaired");
    }
}

#[test]
fn a_limit_on_the_size_of_files_is_named_by_a_creation() {
    for engine in ["hikv", "nvht", "mkvs"] {
        let sandbox = Sandbox::new();
        let program = env!("CARGO_BIN_EXE_lodestore");
        let script = format!("ulimit -f 2000; exec {program} create store --engine {engine} --size 4G");
        let ended = std::process::Command::new("sh").arg("-c").arg(script).current_dir(sandbox.path("")).output();
        let said = text(&ended.expect("sh starts").stderr);
        assert!(said.contains("ulimit -f") && !said.contains("--size"), "{engine}: {said}");
    }
}

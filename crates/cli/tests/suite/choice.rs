//! Engine and durability of a new store: chosen by the medium, printed, stored with the store.

use crate::common::Sandbox;

fn stats_json(sandbox: &Sandbox) -> serde_json::Value {
    serde_json::from_str(&sandbox.ok(&["stats", "store", "--json"])).expect("JSON")
}

#[test]
fn a_creation_without_an_engine_follows_the_medium_and_stats_shows_the_reason() {
    for sandbox in [Sandbox::new(), Sandbox::on_disk()] {
        let wrote = sandbox.ok(&["create", "store", "--size", "64M"]);
        let reason = wrote.lines().nth(1).and_then(|line| line.strip_prefix("chosen because "));
        let reason = reason.unwrap_or_else(|| panic!("{wrote}"));
        assert!(reason.starts_with("the medium is "), "{reason}");
        let stats = stats_json(&sandbox);
        let is_memory =
            matches!(stats["medium"].as_str(), Some(medium) if medium.starts_with("shm") || medium.starts_with("dax"));
        assert_eq!(stats["engine"], if is_memory { "hikv" } else { "fluidkv" });
        assert_eq!(stats["choice"]["engine"], stats["engine"]);
        assert_eq!(stats["choice"]["durability"], stats["durability"]);
        assert_eq!(stats["choice"]["reason"], reason);
        assert!(sandbox.ok(&["stats", "store"]).contains(reason));
    }
}

#[test]
fn the_medium_chooses_the_durability_of_a_named_engine() {
    for sandbox in [Sandbox::new(), Sandbox::on_disk()] {
        for engine in ["hikv", "nvht", "fluidkv", "hashkv"] {
            let wrote = sandbox.ok(&["create", engine, "--size", "64M", "--engine", engine, "--json"]);
            let created: serde_json::Value = serde_json::from_str(&wrote).expect("JSON");
            assert_eq!(created["engine"], engine);
            let is_memory = created["medium"].as_str().is_some_and(|medium| medium.starts_with("shm"));
            let wanted = match engine {
                _ if is_memory => "process",
                "fluidkv" => "interval:1000",
                _ => "power",
            };
            assert_eq!(created["durability"], wanted, "{wrote}");
            assert!(created["reason"].as_str().is_some_and(|text| text.starts_with("the engine was requested")));
        }
    }
}

#[test]
fn a_named_durability_finds_its_engine() {
    let sandbox = Sandbox::on_disk();
    let wrote = sandbox.ok(&["create", "store", "--size", "64M", "--durability", "process"]);
    assert!(wrote.contains("durability process") && wrote.contains("the durability was requested"), "{wrote}");
}

#[test]
fn a_store_without_a_readable_record_of_its_creation_shows_unknown_and_works() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "k", "v"]);
    for damage in [Some("no record"), None] {
        match damage {
            Some(text) => sandbox.write("store/CHOICE", text),
            None => std::fs::remove_file(sandbox.path("store/CHOICE")).expect("it is there"),
        }
        assert!(stats_json(&sandbox)["choice"].is_null());
        let table = sandbox.ok(&["stats", "store"]);
        assert!(table.lines().any(|line| line.starts_with("created as") && line.ends_with("unknown")), "{table}");
        assert_eq!(sandbox.ok(&["get", "store", "k"]), "v");
    }
}

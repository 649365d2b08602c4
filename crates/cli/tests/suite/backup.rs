//! `backup` and `restore`.

use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use crate::common::{Place, text};

/// The names in the directory of a place.
fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(".")).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_backup_is_a_store_and_is_restored() {
    let place = Place::with_store();
    place.ok(&["put", "store", "a", "1"]);
    place.ok(&["put", "store", "b", "2", "--ttl", "100000"]);
    assert!(place.ok(&["backup", "store", "copy"]).contains("2 pairs"));
    place.ok(&["put", "store", "a", "later"]);
    let said = place.ok(&["restore", "copy", "restored", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).expect("an object");
    assert_eq!((&said["op"], &said["pairs"], &said["engine"]), (&"restore".into(), &2.into(), &"hikv".into()));
    for store in ["restored", "copy"] {
        assert_eq!(place.ok(&["get", store, "a"]), "1");
        assert!(text(&place.run(&["export", store]).stdout).contains("expires"), "the expiry of b");
    }
    assert_eq!(names(&place), ["copy", "restored", "store"]);
}

#[test]
fn a_matrix_is_backed_up_and_restored_with_its_devices() {
    let place = Place::new();
    let shape = ["--set", "groups=2", "--set", "devices=2", "--set", "acks=all", "--set", "device-engine=nvht"];
    place.ok(&[&["create", "store", "--engine", "mkvs", "--size", "64M"], &shape[..]].concat());
    place.ok(&["put", "store", "a", "1"]);
    place.ok(&["put", "store", "b", "2", "--ttl", "100000"]);
    assert!(place.ok(&["backup", "store", "copy"]).contains("2 pairs, engine mkvs"));
    std::fs::remove_dir_all(place.path("store")).expect("removed");
    place.ok(&["restore", "copy", "restored"]);
    let status = place.ok(&["mkvs", "status", "restored", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("an object");
    assert_eq!((&status["groups"], &status["acks"]), (&2.into(), &"all".into()), "{status}");
    let devices = ["group0.device0", "group0.device1", "group1.device0", "group1.device1"];
    for store in ["restored", "copy"] {
        assert_eq!(place.ok(&["get", store, "a"]), "1");
        assert!(text(&place.run(&["export", store]).stdout).contains("expires"), "the expiry of b");
        devices.iter().for_each(|device| assert!(place.path(store).join(device).exists(), "{store}/{device}"));
    }
    assert_eq!(names(&place), ["copy", "restored"]);
}

#[test]
fn a_refused_backup_or_restore_leaves_nothing() {
    let place = Place::with_store();
    place.ok(&["put", "store", "a", "1"]);
    place.fails(&["backup", "missing", "copy"], 3, "missing");
    place.fails(&["backup", "store", "store"], 11, "store");
    place.fails(&["restore", "missing", "new"], 3, "missing");
    place.fails(&["restore", "store", "new"], 7, "BACKUP");
    place.ok(&["backup", "store", "copy", "--json"]);
    place.fails(&["backup", "store", "copy"], 11, "choose a path that does not exist, or an empty directory");
    place.fails(&["restore", "copy", "store"], 11, "store");
    let mut bytes = std::fs::read(place.path("copy/BACKUP")).expect("a file");
    bytes[30] ^= 1;
    std::fs::write(place.path("copy/BACKUP"), bytes).expect("a file");
    place.fails(&["restore", "copy", "new"], 7, "damaged");
    assert_eq!(names(&place), ["copy", "store"]);
}

#[test]
fn a_store_in_use_is_refused() {
    let place = Place::with_store();
    let mut holder = place.importer();
    holder.send("a\t1\n");
    holder.acknowledged(1);
    place.fails(&["backup", "store", "copy"], 5, "open in another process");
    holder.kill();
    place.ok(&["backup", "store", "copy"]);
    assert_eq!(names(&place), ["copy", "store"]);
}

/// A store with some thousand pairs.
fn with_many() -> Place {
    let place = Place::new();
    place.ok(&["create", "store", "--size", "256M"]);
    place.ok(&["sample", "sample.tsv"]);
    place.ok(&["import", "store", "sample.tsv", "--format", "tsv"]);
    place
}

/// Whether an unfinished backup is in the directory of a place.
fn has_unfinished(place: &Place) -> bool {
    names(place).iter().any(|name| name.starts_with(".copy.unfinished-"))
}

#[test]
fn a_killed_backup_leaves_no_target_and_the_next_backup_removes_its_files() {
    let place = with_many();
    let mut left_unfinished = false;
    for millis in [0, 5, 20, 80] {
        let mut child = place.command(&["backup", "store", "copy"]).spawn().expect("the program starts");
        while !has_unfinished(&place) && child.try_wait().expect("its state").is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(millis));
        child.kill().expect("killed, or over");
        child.wait().expect("it ends");
        left_unfinished |= has_unfinished(&place);
        if place.path("copy").exists() {
            // The kill came after the rename.
            place.ok(&["restore", "copy", "whole"]);
            std::fs::remove_dir_all(place.path("whole")).expect("removed");
            std::fs::remove_dir_all(place.path("copy")).expect("removed");
        }
    }
    assert!(left_unfinished, "every backup ended before its kill");
    let pairs = place.ok(&["count", "store"]);
    place.ok(&["backup", "store", "copy"]);
    assert_eq!(place.ok(&["count", "copy"]), pairs);
    assert_eq!(names(&place), ["copy", "sample.tsv", "store"]);
}

/// Runs a shell script in the directory of a place, with the program as `$lodestore`.
fn run_script(place: &Place, shell: &[&str], script: &str) -> Output {
    let [shell, args @ ..] = shell else { panic!("no shell") };
    let mut command = Command::new(shell);
    command.args(args).args(["-c", script]).env("lodestore", env!("CARGO_BIN_EXE_lodestore"));
    command.current_dir(place.path(".")).output().expect("a shell")
}

/// Returns a shell that may mount file systems, if the machine permits one.
fn shell_that_mounts() -> Option<[&'static str; 5]> {
    let shell = ["unshare", "--user", "--map-root-user", "--mount", "sh"];
    let is_permitted = Command::new(shell[0]).args(&shell[1..4]).arg("true").status().is_ok_and(|it| it.success());
    if !is_permitted {
        println!("not tried: this machine permits no user and mount namespace (unshare)");
    }
    is_permitted.then_some(shell)
}

#[test]
fn a_medium_that_is_too_small_is_reported_and_nothing_is_left() {
    let Some(shell) = shell_that_mounts() else { return };
    let place = with_many();
    std::fs::create_dir(place.path("medium")).expect("a directory");
    // A store does not fit on the first medium, and all pairs do not fit on the second.
    for size in ["1M", "12M"] {
        let script = format!(
            "mount -t tmpfs -o size={size} tmpfs medium || exit 99
             \"$lodestore\" backup store medium/copy
             echo \"code $?\"; ls -A medium"
        );
        let output = run_script(&place, &shell, &script);
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(shown, "code 6\n", "{size}: {said}");
        assert!(said.contains("medium/copy: ") && said.contains(" more bytes do not fit on its medium"), "{said}");
        assert!(said.contains("choose another medium") && said.lines().count() == 1, "{said}");
    }
    assert_eq!(names(&place), ["medium", "sample.tsv", "store"]);
    place.ok(&["backup", "store", "copy"]);
}

#[test]
fn the_root_of_a_file_system_is_refused_as_a_target_at_once() {
    let Some(shell) = shell_that_mounts() else { return };
    let place = Place::with_store();
    place.ok(&["put", "store", "a", "the value of a"]);
    place.ok(&["backup", "store", "copy"]);
    std::fs::create_dir(place.path("medium")).expect("a directory");
    // A refusal after the copy would find this damage first.
    place.damage("store/pool.0000", b"the value of a");
    place.damage("copy/pool.0000", b"the value of a");
    for command in ["backup store", "restore copy", "convert --size 128M store"] {
        let script = format!(
            "mount -t tmpfs tmpfs medium || exit 99
             \"$lodestore\" {command} medium
             echo \"code $?\"; ls -A medium"
        );
        let output = run_script(&place, &shell, &script);
        let said = text(&output.stderr);
        assert_eq!(text(&output.stdout), "code 11\n", "{command}: {said}");
        assert!(said.contains("medium is the root of a file system: choose a new directory in it"), "{said}");
    }
    assert_eq!(names(&place), ["copy", "medium", "store"]);
}

#[test]
fn a_limit_on_the_size_of_files_is_reported_and_nothing_is_left() {
    let place = with_many();
    // In units of 512 or 1024 bytes: less than the first file of a store.
    let output = run_script(&place, &["sh"], "ulimit -f 4096; exec \"$lodestore\" backup store copy");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("raise the limit on the size of files") && said.lines().count() == 1, "{said}");
    assert_eq!(names(&place), ["sample.tsv", "store"], "{said}");
    place.ok(&["backup", "store", "copy"]);
}

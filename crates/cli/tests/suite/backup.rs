//! `backup` and `restore`.

use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use crate::common::{Sandbox, text};

/// The names in the directory of a sandbox.
fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = std::fs::read_dir(sandbox.path(".")).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_backup_is_a_store_and_is_restored() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "a", "1"]);
    sandbox.ok(&["put", "store", "b", "2", "--ttl", "100000"]);
    assert!(sandbox.ok(&["backup", "store", "copy"]).contains("2 pairs"));
    sandbox.ok(&["put", "store", "a", "later"]);
    let said = sandbox.ok(&["restore", "copy", "restored", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).expect("an object");
    assert_eq!((&said["op"], &said["pairs"], &said["engine"]), (&"restore".into(), &2.into(), &"hikv".into()));
    for store in ["restored", "copy"] {
        assert_eq!(sandbox.ok(&["get", store, "a"]), "1");
        assert!(text(&sandbox.run(&["export", store]).stdout).contains("expires"), "the expiry of b");
    }
    assert_eq!(names(&sandbox), ["copy", "restored", "store"]);
}

#[test]
fn a_matrix_is_backed_up_and_restored_with_its_devices() {
    let sandbox = Sandbox::new();
    let shape = ["--set", "groups=2", "--set", "devices=2", "--set", "acks=all", "--set", "device-engine=nvht"];
    sandbox.ok(&[&["create", "store", "--engine", "mkvs", "--size", "64M"], &shape[..]].concat());
    sandbox.ok(&["put", "store", "a", "1"]);
    sandbox.ok(&["put", "store", "b", "2", "--ttl", "100000"]);
    assert!(sandbox.ok(&["backup", "store", "copy"]).contains("2 pairs, engine mkvs"));
    std::fs::remove_dir_all(sandbox.path("store")).expect("removed");
    sandbox.ok(&["restore", "copy", "restored"]);
    let status = sandbox.ok(&["mkvs", "status", "restored", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("an object");
    assert_eq!((&status["groups"], &status["acks"]), (&2.into(), &"all".into()), "{status}");
    let devices = ["group0.device0", "group0.device1", "group1.device0", "group1.device1"];
    for store in ["restored", "copy"] {
        assert_eq!(sandbox.ok(&["get", store, "a"]), "1");
        assert!(text(&sandbox.run(&["export", store]).stdout).contains("expires"), "the expiry of b");
        devices.iter().for_each(|device| assert!(sandbox.path(store).join(device).exists(), "{store}/{device}"));
    }
    assert_eq!(names(&sandbox), ["copy", "restored"]);
}

#[test]
fn a_refused_backup_or_restore_leaves_nothing() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "a", "1"]);
    sandbox.fails(&["backup", "missing", "copy"], 3, "missing");
    sandbox.fails(&["backup", "store", "store"], 11, "store");
    sandbox.fails(&["restore", "missing", "new"], 3, "missing");
    sandbox.fails(&["restore", "store", "new"], 7, "BACKUP");
    sandbox.ok(&["backup", "store", "copy", "--json"]);
    sandbox.fails(&["backup", "store", "copy"], 11, "choose a path that does not exist, or an empty directory");
    sandbox.fails(&["restore", "copy", "store"], 11, "store");
    let mut bytes = std::fs::read(sandbox.path("copy/BACKUP")).expect("a file");
    bytes[30] ^= 1;
    std::fs::write(sandbox.path("copy/BACKUP"), bytes).expect("a file");
    sandbox.fails(&["restore", "copy", "new"], 7, "damaged");
    assert_eq!(names(&sandbox), ["copy", "store"]);
}

#[test]
fn a_store_in_use_is_refused() {
    let sandbox = Sandbox::with_store();
    let mut holder = sandbox.importer();
    holder.send("a\t1\n");
    holder.acknowledged(1);
    sandbox.fails(&["backup", "store", "copy"], 5, "open in another process");
    holder.kill();
    sandbox.ok(&["backup", "store", "copy"]);
    assert_eq!(names(&sandbox), ["copy", "store"]);
}

/// A store with some thousand pairs.
fn with_many() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--size", "256M"]);
    sandbox.ok(&["sample", "sample.tsv"]);
    sandbox.ok(&["import", "store", "sample.tsv", "--format", "tsv"]);
    sandbox
}

/// Whether an unfinished backup is in the directory of a sandbox.
fn has_unfinished(sandbox: &Sandbox) -> bool {
    names(sandbox).iter().any(|name| name.starts_with(".copy.unfinished-"))
}

#[test]
fn a_killed_backup_leaves_no_target_and_the_next_backup_removes_its_files() {
    let sandbox = with_many();
    let mut left_unfinished = false;
    for millis in [0, 5, 20, 80] {
        let mut child = sandbox.command(&["backup", "store", "copy"]).spawn().expect("the program starts");
        while !has_unfinished(&sandbox) && child.try_wait().expect("its state").is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(millis));
        child.kill().expect("killed, or over");
        child.wait().expect("it ends");
        left_unfinished |= has_unfinished(&sandbox);
        if sandbox.path("copy").exists() {
            // The kill came after the rename.
            sandbox.ok(&["restore", "copy", "whole"]);
            std::fs::remove_dir_all(sandbox.path("whole")).expect("removed");
            std::fs::remove_dir_all(sandbox.path("copy")).expect("removed");
        }
    }
    assert!(left_unfinished, "every backup ended before its kill");
    let pairs = sandbox.ok(&["count", "store"]);
    sandbox.ok(&["backup", "store", "copy"]);
    assert_eq!(sandbox.ok(&["count", "copy"]), pairs);
    assert_eq!(names(&sandbox), ["copy", "sample.tsv", "store"]);
}

/// Runs a shell script in the directory of a sandbox, with the program as `$lodestore`.
fn run_script(sandbox: &Sandbox, shell: &[&str], script: &str) -> Output {
    let [shell, args @ ..] = shell else { panic!("no shell") };
    let mut command = Command::new(shell);
    command.args(args).args(["-c", script]).env("lodestore", env!("CARGO_BIN_EXE_lodestore"));
    command.current_dir(sandbox.path(".")).output().expect("a shell")
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
    let sandbox = with_many();
    std::fs::create_dir(sandbox.path("medium")).expect("a directory");
    // A store does not fit on the first medium, and all pairs do not fit on the second.
    for size in ["1M", "12M"] {
        let script = format!(
            "mount -t tmpfs -o size={size} tmpfs medium || exit 99
             \"$lodestore\" backup store medium/copy
             echo \"code $?\"; ls -A medium"
        );
        let output = run_script(&sandbox, &shell, &script);
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(shown, "code 6\n", "{size}: {said}");
        assert!(said.contains("medium/copy: ") && said.contains(" more bytes do not fit on its medium"), "{said}");
        assert!(said.contains("choose another medium") && said.lines().count() == 1, "{said}");
    }
    assert_eq!(names(&sandbox), ["medium", "sample.tsv", "store"]);
    sandbox.ok(&["backup", "store", "copy"]);
}

#[test]
fn the_root_of_a_file_system_is_refused_as_a_target_at_once() {
    let Some(shell) = shell_that_mounts() else { return };
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "a", "the value of a"]);
    sandbox.ok(&["backup", "store", "copy"]);
    std::fs::create_dir(sandbox.path("medium")).expect("a directory");
    // A refusal after the copy would find this damage first.
    sandbox.damage("store/pool.0000", b"the value of a");
    sandbox.damage("copy/pool.0000", b"the value of a");
    for command in ["backup store", "restore copy", "convert --size 128M store"] {
        let script = format!(
            "mount -t tmpfs tmpfs medium || exit 99
             \"$lodestore\" {command} medium
             echo \"code $?\"; ls -A medium"
        );
        let output = run_script(&sandbox, &shell, &script);
        let said = text(&output.stderr);
        assert_eq!(text(&output.stdout), "code 11\n", "{command}: {said}");
        assert!(said.contains("medium is the root of a file system: choose a new directory below it"), "{said}");
    }
    assert_eq!(names(&sandbox), ["copy", "medium", "store"]);
}

#[test]
fn a_limit_on_the_size_of_files_is_reported_and_nothing_is_left() {
    let sandbox = with_many();
    // In units of 512 or 1024 bytes: less than the first file of a store.
    let output = run_script(&sandbox, &["sh"], "ulimit -f 4096; exec \"$lodestore\" backup store copy");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("raise the limit of file sizes") && said.lines().count() == 1, "{said}");
    assert_eq!(names(&sandbox), ["sample.tsv", "store"], "{said}");
    sandbox.ok(&["backup", "store", "copy"]);
}

//! `mkvs`: a matrix of devices from a shell.

use crate::common;
use crate::common::Sandbox;

const CREATE: [&str; 10] =
    ["create", "matrix", "--engine", "mkvs", "--size", "48M", "--set", "region=4M", "--set", "device.partitions=4"];

/// One group of three devices, with 60 pairs.
fn matrix() -> Sandbox {
    matrix_of("devices=3", "groups=1")
}

fn matrix_of(devices: &str, groups: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok(&[&CREATE[..], &["--set", devices, "--set", groups]].concat());
    for i in 0..60 {
        sandbox.ok(&["put", "matrix", &format!("key{i:02}"), &format!("value {i}")]);
    }
    sandbox
}

fn assert_whole(sandbox: &Sandbox) {
    assert_eq!(sandbox.ok(&["count", "matrix"]), "60\n");
    for i in [0, 17, 59] {
        assert_eq!(sandbox.ok(&["get", "matrix", &format!("key{i:02}"), "--raw"]), format!("value {i}"));
    }
    assert!(sandbox.ok(&["verify", "matrix"]).ends_with("clean\n"));
}

fn lose(sandbox: &Sandbox, group: u32, device: u32) {
    std::fs::remove_dir_all(sandbox.path(&format!("matrix/group{group}.device{device}"))).expect("lose a device");
}

#[test]
fn a_lost_device_of_a_matrix_is_replaced_and_a_group_is_added() {
    let sandbox = matrix();
    assert_whole(&sandbox);
    let status = sandbox.ok(&["mkvs", "status", "matrix"]);
    assert!(
        status.starts_with("1 groups, acks majority\n") && status.matches(" active, 60 keys").count() == 3,
        "{status}"
    );
    std::fs::remove_dir_all(sandbox.path("matrix/group0.device1")).expect("lose a device");
    let status = sandbox.ok(&["mkvs", "status", "matrix"]);
    assert!(status.contains("group 0 device 1  failed: no store at "), "{status}");
    let status = sandbox.ok(&["mkvs", "replace", "matrix", "0", "1", "elsewhere"]);
    assert!(status.matches(" active, 60 keys").count() == 3 && status.contains("/elsewhere\n"), "{status}");
    assert!(sandbox.path("elsewhere/store/pool.0000").is_file() && sandbox.path("elsewhere/log/pool.0000").is_file());
    assert_whole(&sandbox);
    let status = sandbox.ok(&["mkvs", "add-group", "matrix"]);
    assert!(status.starts_with("2 groups, acks majority\n") && status.matches(" active, ").count() == 6, "{status}");
    assert_whole(&sandbox);
    let printed = sandbox.ok(&["mkvs", "rebalance", "matrix", "--json"]);
    assert!(printed.starts_with("{\"acks\":\"majority\"") && printed.contains("\"settled_groups\":2"), "{printed}");
}

#[test]
fn a_matrix_with_too_few_devices_is_refused_with_their_names() {
    let sandbox = matrix();
    for device in [0, 2] {
        std::fs::remove_dir_all(sandbox.path(&format!("matrix/group0.device{device}"))).expect("lose a device");
    }
    let output = sandbox.run(&["get", "matrix", "key00"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(12), "{printed}");
    assert!(printed.starts_with("lodestore: group 0 has 1 usable devices, and the operation needs 2: "), "{printed}");
    // The missing devices are still listed.
    for _ in 0..2 {
        let output = sandbox.run(&["mkvs", "status", "matrix"]);
        assert_eq!(output.status.code(), Some(12));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.starts_with("1 groups, acks majority\n"), "{printed}");
        for (device, state) in [(0, "failed: no store at "), (1, "active, "), (2, "failed: no store at ")] {
            assert!(printed.contains(&format!("group 0 device {device}  {state}")), "{printed}");
        }
    }
}

#[test]
fn a_store_that_is_not_a_matrix_is_refused() {
    let sandbox = Sandbox::with_store();
    let output = sandbox.run(&["mkvs", "status", "store"]);
    assert_eq!(output.status.code(), Some(4));
    for wrong in
        [["--set", "device-engine=mkvs"], ["--set", "devices=6"], ["--set", "device.no-such=1"], ["--set", "paths=a,b"]]
    {
        let output = sandbox.run(&[&["create", "matrix", "--engine", "mkvs"][..], &wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!sandbox.path("matrix").exists(), "{wrong:?}");
    }
}

#[test]
fn a_group_that_lost_two_of_three_devices_is_repaired_by_a_salvage() {
    let sandbox = matrix();
    lose(&sandbox, 0, 0);
    lose(&sandbox, 0, 2);
    sandbox.fails(
        &["mkvs", "replace", "matrix", "0", "0", "new0"],
        12,
        "`lodestore mkvs replace`; if the open is refused, `--salvage`",
    );
    assert!(!sandbox.path("new0").exists());
    let printed = sandbox.ok(&["mkvs", "replace", "matrix", "0", "0", "new0", "--salvage"]);
    assert!(
        printed.matches(" active, 60 keys").count() == 2 && printed.contains("group 0 device 2  failed: "),
        "{printed}"
    );
    assert!(printed.starts_with("group 0 gives up unreadable data: 1 active devices"), "{printed}");
    let printed = sandbox.ok(&["mkvs", "replace", "matrix", "0", "2", "new2", "--salvage"]);
    assert_eq!(printed.matches(" active, 60 keys").count(), 3, "{printed}");
    assert_whole(&sandbox);
    for i in 0..60 {
        assert_eq!(sandbox.ok(&["get", "matrix", &format!("key{i:02}"), "--raw"]), format!("value {i}"));
    }
    // Each of the three may be missing now.
    lose(&sandbox, 0, 1);
    assert_eq!(sandbox.ok(&["count", "matrix"]), "60\n");
}

#[test]
fn a_replacement_waits_for_the_new_device_and_not_for_another_that_is_dead() {
    let sandbox = matrix_of("devices=3", "groups=2");
    lose(&sandbox, 0, 1);
    lose(&sandbox, 1, 2);
    let printed = sandbox.ok(&["mkvs", "replace", "matrix", "0", "1", "new", "--patience", "60"]);
    assert!(
        printed.contains("group 0 device 1  active, ") && printed.contains("group 1 device 2  failed: "),
        "{printed}"
    );
    // Neither a move of keys nor the wait after an interruption does.
    let printed = sandbox.ok(&["mkvs", "add-group", "matrix", "--patience", "60"]);
    assert!(
        printed.starts_with("3 groups, acks majority\n") && printed.contains("group 1 device 2  failed: "),
        "{printed}"
    );
    sandbox.ok(&["mkvs", "rebalance", "matrix", "--patience", "60"]);
    sandbox.ok(&["mkvs", "replace", "matrix", "1", "2", "other", "--patience", "60"]);
    assert_whole(&sandbox);
}

#[test]
fn a_group_that_keys_cannot_move_to_is_refused_at_once() {
    let sandbox = matrix_of("devices=2", "groups=1");
    lose(&sandbox, 0, 1);
    let printed =
        sandbox.fails(&["mkvs", "add-group", "matrix"], 12, "group 0 has 1 usable devices, and the operation needs 2");
    assert!(printed.starts_with("2 groups, acks majority, keys are moving to the newest group\n"), "{printed}");
    sandbox.fails(&["mkvs", "rebalance", "matrix"], 12, "group 0 has 1 usable devices");
    sandbox.ok(&["mkvs", "replace", "matrix", "0", "1", "new"]);
    assert!(sandbox.ok(&["mkvs", "rebalance", "matrix"]).starts_with("2 groups, acks majority\n"));
    assert_whole(&sandbox);
}

/// Collects the files below a directory with their lengths.
fn below(directory: &std::path::Path, found: &mut Vec<(std::path::PathBuf, u64)>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let entry = entry.expect("an entry");
        let about = entry.metadata().expect("about it");
        found.push((entry.path(), if about.is_dir() { 0 } else { about.len() }));
        if about.is_dir() {
            below(&entry.path(), found);
        }
    }
    found.sort();
}

#[test]
fn a_failed_creation_leaves_only_the_files_that_existed_before() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("there/device/store")).expect("directories");
    std::fs::create_dir_all(sandbox.path("taken/log")).expect("directories");
    sandbox.write("taken/log/notes", "mine");
    sandbox.write("file", "mine");
    let state = || {
        let mut found = Vec::new();
        below(&sandbox.path("."), &mut found);
        found
    };
    let before = state();
    let at = |name: &str| sandbox.path(name).display().to_string();
    for wrong in [
        // Refused options: of the matrix, of its devices, of their pools.
        ["--set", "hard-lag=7", "--set", "soft-lag=8"],
        ["--set", "devices=2", "--set", "device.partitions=0"],
        ["--set", "devices=2", "--set", "region=1"],
        // No space for the devices, or for the initial logs.
        ["--set", "devices=2", "--size", "64K"],
        ["--set", "device-engine=hashkv", "--size", "64K"],
        ["--set", "devices=2", "--durability", "interval:5"],
        // Unusable directories: below a file, not empty, or of two devices.
        ["--set", "devices=2", "--set", &format!("paths={},{}", at("new/a"), at("file/b"))],
        ["--set", "devices=2", "--set", &format!("paths={},{}", at("there/device"), at("taken"))],
        ["--set", "devices=2", "--set", "paths=same,same"],
    ] {
        for path in ["matrix", "deep/er/matrix"] {
            let args = [&["create", path, "--engine", "mkvs"][..], &wrong].concat();
            let output = sandbox.run(&args);
            assert!(!output.status.success(), "{args:?}");
            assert_eq!(state(), before, "{args:?}");
        }
    }
    sandbox.ok(&[&CREATE[..], &["--set", "devices=2"]].concat());
}

#[test]
fn a_default_lag_is_bounded_by_the_logs_and_a_given_lag_may_use_all_of_them() {
    let sandbox = Sandbox::new();
    sandbox.ok(&[&CREATE[..], &["--set", "devices=2", "--set", "log-ops=1024"]].concat());
    sandbox.ok(&["put", "matrix", "k", "v", "--set", "hard-lag=512"]);
    sandbox.ok(&["put", "matrix", "k", "v", "--set", "soft-lag=512"]);
    sandbox.fails(&["put", "matrix", "k", "v", "--set", "hard-lag=513"], 2, "half of the 1024 operations of a log");
    sandbox.fails(&["put", "matrix", "k", "v", "--set", "soft-lag=513"], 2, "option soft-lag");
    sandbox.fails(&["put", "matrix", "k", "v", "--set", "soft-lag=9", "--set", "hard-lag=8"], 2, "option hard-lag");
    let large = Sandbox::new();
    large.ok(&[&CREATE[..], &["--set", "devices=2", "--set", "log-ops=262144", "--set", "hard-lag=131072"]].concat());
    large.ok(&["put", "matrix", "k", "v", "--set", "hard-lag=131072"]);
    large.ok(&["put", "matrix", "k", "v", "--set", "soft-lag=131072"]);
    large.fails(&["put", "matrix", "k", "v", "--set", "hard-lag=131073"], 2, "option hard-lag");
}

#[test]
fn a_creation_killed_at_any_time_can_be_repeated() {
    let sandbox = Sandbox::new();
    let begun = std::time::Instant::now();
    sandbox.ok(&CREATE);
    let whole = begun.elapsed();
    for part in 0..20 {
        std::fs::remove_dir_all(sandbox.path("matrix")).expect("removed");
        let mut child = sandbox.command(&CREATE).stdout(std::process::Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(whole * part / 20);
        child.kill().and_then(|()| child.wait()).expect("it dies");
        let again = sandbox.run(&CREATE);
        let error = common::text(&again.stderr);
        // A matrix that was described before the kill exists, and is opened.
        assert!(again.status.success() || error.contains("already exists: open it"), "part {part}: {error}");
        sandbox.ok(&["put", "matrix", "key", "value"]);
        assert_eq!(sandbox.ok(&["get", "matrix", "key", "--raw"]), "value");
    }
}

/// The directory that the advice of an error names, relative to the sandbox.
const FIRST_STORE: &str = "matrix/group0.device0/store";

#[test]
fn the_advice_for_a_matrix_without_its_host_exports_its_pairs() {
    let sandbox = matrix();
    std::fs::remove_dir_all(sandbox.path("matrix/host")).expect("lose the host");
    for command in [&["count", "matrix"][..], &["verify", "matrix", "--salvage"], &["export", "matrix", "--salvage"]] {
        sandbox.fails(command, 7, "the matrix's own store is missing");
        sandbox.fails(command, 7, &format!("lodestore export --salvage {FIRST_STORE}"));
    }
    assert_eq!(sandbox.ok(&["export", "--salvage", FIRST_STORE]).lines().count(), 60);
}

#[test]
fn a_damaged_description_of_a_matrix_is_reported_with_the_way_to_export_the_pairs() {
    let sandbox = matrix();
    let path = sandbox.path("matrix/host/pool.0000");
    let mut region = std::fs::read(&path).expect("the host");
    // The description has the directories of the devices. Its older versions are present, too.
    let name = b"group0.device1";
    for at in 0..region.len() - name.len() {
        region[at] ^= u8::from(region[at..].starts_with(name));
    }
    std::fs::write(&path, region).expect("damage it");
    sandbox.fails(&["verify", "matrix"], 7, "This is the matrix's own store");
    assert_eq!(sandbox.ok(&["export", "--salvage", FIRST_STORE]).lines().count(), 60);
}

#[test]
fn verify_checks_the_host_of_a_killed_matrix() {
    let sandbox = Sandbox::new();
    sandbox.ok(&[&CREATE[..], &["--set", "devices=2"]].concat());
    std::os::unix::fs::symlink("matrix", sandbox.path("store")).expect("linked");
    let mut importer = sandbox.importer();
    importer.send("a\tthe value of a\n");
    importer.acknowledged(1);
    importer.kill();
    let path = sandbox.path("matrix/host/pool.0000");
    let mut region = std::fs::read(&path).expect("the host");
    region[5 * 4096..6 * 4096].fill(0);
    std::fs::write(&path, region).expect("damage it");
    let verified = sandbox.run(&["verify", "matrix"]);
    let said = common::text(&verified.stdout) + &common::text(&verified.stderr);
    assert_eq!(verified.status.code(), Some(7), "{said}");
    // The open or the verification finds it, at the location of the matrix's pair.
    assert!(said.contains("the matrix's own store"), "{said}");
}

#[test]
fn the_advice_for_devices_without_logs_exports_their_pairs() {
    let sandbox = matrix();
    for device in 0..3 {
        std::fs::remove_dir_all(sandbox.path(&format!("matrix/group0.device{device}/log"))).expect("lose a log");
    }
    for command in [&["get", "matrix", "key01"][..], &["export", "matrix", "--salvage"]] {
        sandbox.fails(command, 7, "no device of the group can be opened");
        sandbox.fails(command, 7, "no store at matrix/group0.device2/log");
        sandbox.fails(command, 7, &format!("lodestore export --salvage {FIRST_STORE}"));
    }
    assert_eq!(sandbox.ok(&["export", "--salvage", FIRST_STORE]).lines().count(), 60);
}

#[test]
fn an_export_of_a_device_that_lacks_acknowledged_writes_is_incomplete() {
    let sandbox = matrix();
    let (away, matrix) = (sandbox.path("away"), sandbox.path("matrix"));
    std::fs::create_dir(&away).expect("a directory");
    let carry = |device: &str, out: bool| {
        let places = [matrix.join(device), away.join(device)];
        let [from, to] = if out { [&places[0], &places[1]] } else { [&places[1], &places[0]] };
        std::fs::rename(from, to).expect("moved");
    };
    carry("group0.device2", true);
    sandbox.ok(&["put", "matrix", "late", "acknowledged"]);
    carry("group0.device0", true);
    carry("group0.device1", true);
    carry("group0.device2", false);
    sandbox.fails(&["export", "matrix", "--salvage"], 7, "the export is incomplete: 60 of 61 records were exported");
}

#[test]
fn losses_of_a_salvage_are_reported_until_a_replacement_accepts_them() {
    let sandbox = matrix_of("devices=2", "acks=all");
    let device = |index: u32| sandbox.path(&format!("matrix/group0.device{index}"));
    let away = |index: u32| sandbox.path(&format!("away{index}"));
    std::fs::rename(device(1), away(1)).expect("take a device away");
    sandbox.ok(&["put", "matrix", "late", "acknowledged"]);
    std::fs::rename(device(0), away(0)).expect("take the other one away");
    std::fs::rename(away(1), device(1)).expect("put the first one back");
    sandbox.fails(&["get", "matrix", "late"], 12, "--salvage");
    sandbox.fails(&["export", "matrix", "--salvage"], 7, "60 of 61 records were exported");
    let lost = "an earlier salvage gave up unreadable data (0 active devices were readable";
    sandbox.fails(&["get", "matrix", "late"], 7, lost);
    // The device with the key returns too late: the other one continued without it.
    std::fs::rename(away(0), device(0)).expect("put the other one back");
    for command in [&["get", "matrix", "late"][..], &["verify", "matrix"], &["put", "matrix", "key", "value"]] {
        sandbox.fails(command, 7, lost);
        sandbox.fails(command, 7, "lodestore mkvs replace --salvage");
    }
    let output = sandbox.run(&["mkvs", "status", "matrix"]);
    assert_eq!(output.status.code(), Some(7));
    let printed = common::text(&output.stdout);
    assert!(printed.contains("group 0: a salvage gave up unreadable data: 0 active devices"), "{printed}");
    let output = sandbox.run(&["verify", "matrix", "--salvage"]);
    assert_eq!(output.status.code(), Some(7));
    let printed = common::text(&output.stdout);
    assert!(printed.contains(&format!("group 0: {lost}")), "{printed}");
    let printed = sandbox.ok(&["mkvs", "replace", "matrix", "0", "0", "new", "--salvage"]);
    assert!(printed.starts_with("group 0 gives up unreadable data: "), "{printed}");
    assert!(!printed.contains("a salvage gave up") && printed.matches(" active, 60 keys").count() == 2, "{printed}");
    assert_whole(&sandbox);
    assert!(sandbox.ok(&["mkvs", "status", "matrix", "--json"]).contains("\"given_up\":[null]"));
}

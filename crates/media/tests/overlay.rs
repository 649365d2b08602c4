//! Stores on real overlays, and on bind mounts, in a namespace created by the test.
//!
//! Each test runs itself again under `unshare`. If the machine permits no such namespace, the test
//! says so and ends.

#[expect(dead_code, reason = "these tests use a part of it")]
mod common;

use std::path::Path;
use std::process::Command;

use common::{TestDir, small};
use lodestore_contract::{Durability, Error};
use lodestore_media::{MediumKind, Pool, PoolOptions, probe};

/// Set in the process that runs in a namespace.
const INSIDE: &str = "LODESTORE_TEST_NAMESPACE";

/// Returns whether this process is the one in the namespace. The other process runs the test there
/// first.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let enter = ["--user", "--map-root-user", "--mount"];
    if !Command::new("unshare").args(enter).arg("true").status().is_ok_and(|status| status.success()) {
        println!("not tried: this machine permits no user and mount namespace (unshare)");
        return false;
    }
    let own = std::env::current_exe().expect("this program");
    let mut inside = Command::new("unshare");
    inside.args(enter).arg(own).args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    assert!(inside.status().expect("it runs").success(), "{test} in a namespace");
    false
}

/// Mounts; returns whether that was permitted.
fn mount(args: &[&str]) -> bool {
    let is_mounted = Command::new("mount").args(args).status().is_ok_and(|status| status.success());
    if !is_mounted {
        println!("not tried: mount {args:?} is refused here");
    }
    is_mounted
}

/// Mounts an overlay whose layers are in `dir`, at `dir/merged`.
fn mount_overlay(dir: &Path, more: &str) -> bool {
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir_all(dir.join(name)).expect("made");
    }
    let path = |name: &str| dir.join(name).display().to_string();
    let (lower, upper, work) = (path("lower"), path("upper"), path("work"));
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work},userxattr{more}");
    mount(&["-t", "overlay", "overlay", "-o", &options, &path("merged")])
}

fn power() -> PoolOptions {
    PoolOptions { durability: Durability::Power, ..small() }
}

fn create(dir: &Path, opts: PoolOptions) -> lodestore_contract::Result<()> {
    Pool::create(dir, "test", 3, opts).map(|(pool, _)| pool.close(true).expect("closed"))
}

#[test]
fn power_is_refused_on_an_overlay_in_memory_and_process_is_granted() {
    if !is_inside("power_is_refused_on_an_overlay_in_memory_and_process_is_granted") {
        return;
    }
    let dir = TestDir::shm();
    if !dir.is_shm() || !mount_overlay(&dir.store(), "") {
        return;
    }
    let merged = dir.store().join("merged");
    let report = probe(&merged).expect("probed");
    assert_eq!((report.medium, report.file_system.as_str()), (MediumKind::Shm, "overlayfs on tmpfs"));
    let refused = create(&merged.join("store"), power()).expect_err("in memory");
    assert!(matches!(refused, Error::DurabilityRefused { .. }), "{refused}");
    assert!(refused.to_string().contains("overlayfs on tmpfs"), "{refused}");
    create(&merged.join("store"), small()).expect("process is granted");
}

#[test]
fn power_is_refused_on_a_volatile_overlay_and_granted_on_another_one_on_a_disk() {
    if !is_inside("power_is_refused_on_a_volatile_overlay_and_granted_on_another_one_on_a_disk") {
        return;
    }
    let dir = TestDir::disk();
    let on_disk = {
        std::fs::create_dir_all(dir.store()).expect("made");
        probe(&dir.store()).expect("probed")
    };
    if on_disk.durability.iter().any(|(_, promise)| promise.is_err()) || !mount_overlay(&dir.store().join("a"), "") {
        return;
    }
    let merged = dir.store().join("a/merged");
    create(&merged.join("store"), power()).expect("its syncs reach the disk");
    Pool::open(&merged.join("store"), "test", 3, power()).expect("and later ones").0.close(true).expect("closed");
    // Another directory at the path of the upper layer is not this overlay's.
    assert!(mount(&["-t", "tmpfs", "tmpfs", &dir.store().join("a/upper").display().to_string()]));
    let refused = create(&merged.join("hidden"), power()).expect_err("nobody knows");
    assert!(refused.to_string().contains("is not reachable from this process"), "{refused}");

    assert!(mount_overlay(&dir.store().join("b"), ",volatile"));
    let refused = create(&dir.store().join("b/merged/store"), power()).expect_err("volatile");
    assert!(matches!(refused, Error::DurabilityRefused { .. }), "{refused}");
    assert!(refused.to_string().contains("volatile"), "{refused}");
}

#[test]
fn a_region_or_values_file_mounted_from_memory_is_refused_in_a_store_on_a_disk() {
    if !is_inside("a_region_or_values_file_mounted_from_memory_is_refused_in_a_store_on_a_disk") {
        return;
    }
    let (dir, memory) = (TestDir::disk(), TestDir::shm());
    if !memory.is_shm() {
        return;
    }
    let blocks = lodestore_media::BlockOptions::default();
    for opts in [power(), small()] {
        let (pool, _) = Pool::create(&dir.store(), "test", 3, opts.clone()).expect("made");
        pool.grow(4096).expect("a second region");
        lodestore_media::BlockFile::open(&pool, &blocks).expect("a values file").grow(4096).expect("grown");
        pool.close(true).expect("closed");
        drop(pool);
        for name in ["pool.0001", "values.0000"] {
            let (own, other) = (dir.store().join(name), memory.store());
            std::fs::copy(&own, &other).expect("copied");
            if !mount(&["--bind", &other.display().to_string(), &own.display().to_string()]) {
                return;
            }
            let opened = Pool::open(&dir.store(), "test", 3, opts.clone());
            let refused = match opened {
                Ok((pool, _)) => lodestore_media::BlockFile::open(&pool, &blocks).expect_err("in memory"),
                Err(refused) => refused,
            };
            assert!(matches!(refused, Error::WeakerMedium { .. }), "{refused}");
            assert!(refused.to_string().contains(name), "{refused}");
            assert!(Command::new("umount").arg(&own).status().expect("it runs").success());
        }
        std::fs::remove_dir_all(dir.store()).expect("removed");
    }
}

//! Mappings of files. With broken code the process of these tests dies.

#[expect(dead_code, reason = "these tests use a part of it")]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::TestDir;
use lodestore_media::MediumKind;
use rustix::mm::{MapFlags, ProtFlags};

const PAGE: usize = 4096;

/// Maps its own page, writes it often and unmaps it.
fn use_a_page() {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: Inv 1: a new page at an address of the kernel's choice, used by this function alone
    // and unmapped at its end.
    unsafe {
        let page = rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE, access, flags).expect("a page");
        for round in 0..300u16 {
            page.cast::<u16>().add(usize::from(round)).write_volatile(round);
            assert_eq!(page.cast::<u16>().add(usize::from(round)).read_volatile(), round);
        }
        rustix::mm::munmap(page, PAGE).expect("given back");
    }
}

#[test]
fn a_refused_mapping_unmaps_no_other_memory() {
    // Each probe of a regular file asks for MAP_SYNC and is refused, at a point where MAP_FIXED
    // would already have unmapped.
    let dir = TestDir::disk();
    std::fs::create_dir(dir.store()).expect("made");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    use_a_page();
                }
            });
        }
        for _ in 0..3000 {
            lodestore_media::probe(&dir.store()).expect("probed");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Returns the flags of each mapping of a file whose path contains `text`.
fn flags_of_mappings(text: &str) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("readable");
    let mut is_named = false;
    let mut found = Vec::new();
    for line in maps.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if first == "VmFlags:" && is_named {
            found.push(rest.to_owned());
        } else if !first.ends_with(':') {
            // The line of a mapping begins with its addresses.
            is_named = rest.contains(text);
        }
    }
    found
}

#[test]
fn a_new_region_on_a_disk_has_no_read_ahead_that_makes_its_pages_large() {
    let dir = TestDir::disk();
    let _pool = common::create(&dir, common::small());
    if lodestore_media::probe(&dir.store()).is_ok_and(|found| found.medium != MediumKind::File) {
        return;
    }
    let flags = flags_of_mappings(&dir.store().join("pool.").display().to_string());
    assert!(!flags.is_empty(), "the store has a mapping");
    // `rr` is the mark of MADV_RANDOM.
    assert!(flags.iter().all(|flags| flags.split_whitespace().any(|flag| flag == "rr")), "{flags:?}");
}

//! Mapping files takes no memory of other threads. A file of its own: on broken code its process dies.

#[expect(dead_code, reason = "these tests use a part of it")]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::TestDir;
use rustix::mm::{MapFlags, ProtFlags};

const PAGE: usize = 4096;

/// Maps a page of its own, writes it often and gives it back.
fn use_a_page() {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: Inv 1: a new page wherever the kernel likes, used by this function alone and given back at its end.
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
fn a_mapping_that_the_file_system_refuses_takes_nobody_elses_memory() {
    // Each probe of an ordinary file asks for MAP_SYNC and is refused, behind the point where MAP_FIXED would have unmapped.
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

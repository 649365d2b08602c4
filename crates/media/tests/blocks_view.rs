//! The values file read through its mapping: the same bytes as by calls, and medium errors reported
//! like those of calls.

mod common;

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{TestDir, create, open, small};
use lodestore_contract::Error;
use lodestore_media::{BlockFile, BlockOptions, Blocks, Pool};

const BLOCK: usize = BlockFile::BLOCK as usize;
const BLOCKS: usize = 64;

/// A file whose blocks are each filled with a distinct byte, read until it is warm.
fn warm(pool: &std::sync::Arc<Pool>, options: &BlockOptions) -> BlockFile {
    let file = BlockFile::open(pool, options).expect("opens");
    file.grow((BLOCKS * BLOCK) as u64).expect("room");
    for block in 0..BLOCKS {
        file.write((block * BLOCK) as u64, &Blocks::from(&[block as u8 + 1; BLOCK][..])).expect("written");
    }
    (0..BLOCKS).for_each(|block| assert_eq!(read(&file, block), Ok(block as u8 + 1)));
    assert!(file.is_warm(0), "the page cache can be asked, or it is memory itself");
    file
}

/// Returns the byte that fills a block. The error says whether the file was too short.
fn read(file: &BlockFile, block: usize) -> Result<u8, bool> {
    let mut bytes = [0xEE; 100];
    let outcome = file.read((block * BLOCK + 40) as u64, &mut bytes);
    assert!(outcome.is_err() || bytes.iter().all(|byte| *byte == bytes[0]), "the bytes of one block");
    outcome.map(|()| bytes[0]).map_err(|error| matches!(error, Error::Corrupt { .. }))
}

/// Regression: without the handler this ended the process (SIGBUS).
#[test]
fn a_file_truncated_under_its_mapping_is_an_error_and_its_remaining_bytes_are_readable() {
    for dir in [TestDir::shm(), TestDir::disk()] {
        let pool = create(&dir, small());
        let file = warm(&pool, &BlockOptions::default());
        let path = dir.store().join("values.0000");
        OpenOptions::new().write(true).open(&path).expect("opens").set_len((10 * BLOCK) as u64).expect("cut");
        for _ in 0..3 {
            for block in 0..BLOCKS {
                let expected = if block < 10 { Ok(block as u8 + 1) } else { Err(true) };
                assert_eq!(read(&file, block), expected, "block {block}");
            }
        }
        // A new file is read as usual.
        drop(file);
        OpenOptions::new().write(true).open(&path).expect("opens").set_len(0).expect("cut");
        warm(&pool, &BlockOptions::default());
    }
}

#[test]
fn written_punched_and_grown_blocks_are_read_through_the_mapping_at_once() {
    for (mapped, dir) in [false, true].into_iter().flat_map(|on| [(on, TestDir::disk()), (on, TestDir::shm())]) {
        let pool = create(&dir, small());
        let file = warm(&pool, &BlockOptions { mapped, ..BlockOptions::default() });
        for round in 0..200usize {
            let block = round * 7 % BLOCKS;
            file.write((block * BLOCK) as u64, &Blocks::from(&[round as u8; BLOCK][..])).expect("written");
            assert_eq!(read(&file, block), Ok(round as u8));
        }
        file.punch(0, BLOCK as u64).expect("given back");
        assert!(matches!(read(&file, 0), Ok(0 | 182)), "zero, or what it was");
        file.grow(((BLOCKS + 1) * BLOCK) as u64).expect("room");
        assert_eq!(read(&file, BLOCKS), Ok(0));
        // A piece that ends after the file's end, and one of many blocks.
        assert!(file.read((BLOCKS * BLOCK + 1) as u64, &mut [0; BLOCK]).is_err());
        let mut all = vec![0; (BLOCKS - 2) * BLOCK];
        file.read(BLOCK as u64, &mut all).expect("readable");
        let same = |file: &BlockFile| {
            all.chunks(BLOCK).enumerate().all(|(index, bytes)| Ok(bytes[9]) == read(file, index + 1))
        };
        assert!(same(&file));
        drop((file, pool));
        let (pool, _) = open(&dir, small());
        let file = BlockFile::open(&pool, &BlockOptions { mapped, ..BlockOptions::default() }).expect("opens");
        assert!(same(&file) && same(&file));
    }
}

/// Regression: tmpfs cannot report what is cached. Each value was therefore read by a call, and a
/// scan treated its files as cold.
#[test]
fn a_file_in_memory_is_warm_from_the_start() {
    let dir = TestDir::shm();
    if !dir.is_shm() {
        println!("not tried: there is no shared memory here");
        return;
    }
    let pool = create(&dir, small());
    let file = BlockFile::open(&pool, &BlockOptions::default()).expect("opens");
    assert!(file.is_warm(0), "nothing was read yet");
    drop(file);
    assert!(warm(&pool, &BlockOptions { mapped: false, ..BlockOptions::default() }).is_warm(BLOCK as u64 * 9));
}

/// The process's previous handler receives signals that do not concern a mapping.
#[test]
fn a_signal_outside_of_a_mapping_goes_to_the_previous_handler() {
    let name = "a_signal_outside_of_a_mapping_goes_to_the_previous_handler";
    if let Some(ended) = alone(name) {
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        return;
    }
    // SAFETY: `count` only counts, which a handler may do (Inv 9).
    unsafe { libc::signal(libc::SIGBUS, count as *const () as usize) };
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let file = warm(&pool, &BlockOptions::default());
    for sent in 1..4 {
        // SAFETY: the signal has a handler, which returns (Inv 9).
        unsafe { libc::raise(libc::SIGBUS) };
        assert_eq!(SEEN.load(Ordering::SeqCst), sent);
    }
    OpenOptions::new().write(true).open(dir.store().join("values.0000")).expect("opens").set_len(0).expect("cut");
    assert_eq!(read(&file, 5), Err(true));
    assert_eq!(SEEN.load(Ordering::SeqCst), 3, "that was of a mapping");
}

/// A signal sent by a process has its original effect, and our handler stays installed.
#[test]
fn a_signal_sent_to_a_process_that_ignores_it_keeps_our_handler() {
    if let Some(ended) = alone("a_signal_sent_to_a_process_that_ignores_it_keeps_our_handler") {
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    // SAFETY: no handler (Inv 9).
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
    outlives_signals(3);
}

/// Rust's runtime has a handler that uninstalls itself when the fault is no stack overflow. The
/// first signal is swallowed and the next one ends the process.
#[test]
fn a_signal_sent_to_a_process_with_the_runtimes_handler_keeps_our_handler() {
    if let Some(ended) = alone("a_signal_sent_to_a_process_with_the_runtimes_handler_keeps_our_handler") {
        assert_eq!(ended.status.signal(), Some(libc::SIGBUS), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stdout).contains(READ_ON), "{ended:?}");
        return;
    }
    outlives_signals(1);
    println!("{READ_ON}");
    // SAFETY: ends the process (Inv 9).
    unsafe { libc::raise(libc::SIGBUS) };
}

#[test]
fn a_signal_sent_to_a_process_without_a_handler_ends_the_process() {
    if let Some(ended) = alone("a_signal_sent_to_a_process_without_a_handler_ends_the_process") {
        assert_eq!(ended.status.signal(), Some(libc::SIGBUS), "{ended:?}");
        return;
    }
    // SAFETY: no handler (Inv 9).
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    let dir = TestDir::disk();
    let pool = create(&dir, small());
    let _file = warm(&pool, &BlockOptions::default());
    // SAFETY: ends the process (Inv 9).
    unsafe { libc::raise(libc::SIGBUS) };
}

/// Sends `count` signals to a process that reads through a mapping, and then cuts the file under
/// it.
fn outlives_signals(count: usize) {
    let dir = TestDir::disk();
    let pool = create(&dir, small());
    let file = warm(&pool, &BlockOptions::default());
    for _ in 0..count {
        // SAFETY: the signal's handler returns, or the process is to end (Inv 9).
        unsafe { libc::raise(libc::SIGBUS) };
    }
    OpenOptions::new().write(true).open(dir.store().join("values.0000")).expect("opens").set_len(0).expect("cut");
    assert_eq!(read(&file, 5), Err(true));
}

/// Runs the named test in a separate process, because a process has one handler. Returns `None` in
/// that process.
fn alone(name: &str) -> Option<Output> {
    if std::env::var_os(ALONE).is_some() {
        return None;
    }
    let mut alone = Command::new(std::env::current_exe().expect("this test"));
    Some(alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().expect("started"))
}

const READ_ON: &str = "it reads on";
const ALONE: &str = "LODESTORE_TEST_ALONE";
static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_signal: libc::c_int) {
    SEEN.fetch_add(1, Ordering::SeqCst);
}

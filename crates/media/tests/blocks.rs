//! The values file on real file systems: bytes, lengths, space, refusals.

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use common::{TestDir, create, open, small};
use lodestore_contract::{Durability, Error};
use lodestore_media::{BlockFile, BlockOptions, Blocks, Pool, PoolOptions};

const BLOCK: usize = BlockFile::BLOCK as usize;

fn plain() -> BlockOptions {
    BlockOptions::default()
}

fn reading() -> BlockOptions {
    BlockOptions { read_only: true, ..plain() }
}

fn values(dir: &TestDir) -> PathBuf {
    dir.store().join("values.0000")
}

fn grown(pool: &Arc<Pool>, blocks: u64) -> BlockFile {
    let file = BlockFile::open(pool, &plain()).expect("opens");
    file.grow(blocks * BlockFile::BLOCK).expect("room");
    file
}

fn filled(byte: u8, blocks: usize) -> Blocks {
    Blocks::from(&vec![byte; blocks * BLOCK][..])
}

fn read(file: &BlockFile, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    file.read(at, &mut bytes).expect("readable");
    bytes
}

/// A generator whose seed a failing test prints.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }
}

/// Runs `work` on both media, through the page cache and with direct I/O if the file system has it.
fn each_way(mut work: impl FnMut(TestDir, &BlockOptions)) {
    for direct in [false, true] {
        for dir in [TestDir::shm(), TestDir::disk()] {
            let options = BlockOptions { direct, ..plain() };
            let pool = create(&dir, small());
            match BlockFile::open(&pool, &options) {
                Ok(file) => assert_eq!(file.is_direct(), direct),
                Err(Error::InvalidOption { name, .. }) => {
                    println!("not tried: {} has no direct I/O", pool.medium_name());
                    assert!(direct && name == "direct");
                    continue;
                }
                Err(other) => panic!("{other}"),
            }
            pool.close(true).expect("closes");
            drop(pool);
            work(dir, &options);
        }
    }
}

#[test]
fn written_bytes_are_read_at_any_offset_and_length_and_by_the_next_open() {
    let mut seed = 0;
    each_way(|dir, options| {
        seed += 1;
        let (mut random, mut model) = (Random(seed), Vec::new());
        for round in 0..4 {
            let (pool, _) = open(&dir, small());
            let file = BlockFile::open(&pool, options).expect("opens");
            assert_eq!(file.len(), model.len() as u64, "seed {seed}, round {round}");
            assert!(model.is_empty() || read(&file, 0, model.len()) == model, "seed {seed}, round {round}: reopened");
            for step in 0..200 {
                change(&file, &mut model, &mut random);
                let at = random.below(model.len() + 1);
                let len = random.below(model.len() - at + 1);
                assert!(
                    read(&file, at as u64, len) == model[at..at + len],
                    "seed {seed}, {round}.{step}: {len} at {at}"
                );
            }
            file.sync_now().expect("synced");
            pool.close(true).expect("closes");
        }
    });
}

/// Changes the file and its model in the same way.
fn change(file: &BlockFile, model: &mut Vec<u8>, random: &mut Random) {
    let blocks = model.len() / BLOCK;
    match random.below(8) {
        0 if blocks < 700 => {
            let len = model.len() + random.below(20 * BLOCK);
            file.grow(len as u64).expect("room");
            model.resize(len.next_multiple_of(BLOCK), 0);
        }
        1 if random.below(4) == 0 => {
            let len = random.below(model.len() + 1);
            file.shrink(len as u64).expect("shorter");
            model.truncate(len.next_multiple_of(BLOCK));
        }
        _ if blocks > 0 => {
            let at = random.below(blocks) * BLOCK;
            let most = (model.len() - at).min(300 * BLOCK);
            let bytes: Vec<u8> = (0..1 + random.below(most)).map(|_| random.below(256) as u8).collect();
            file.write(at as u64, &Blocks::from(&bytes[..])).expect("written");
            let end = at + bytes.len().next_multiple_of(BLOCK);
            model[at..end].fill(0);
            model[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        _ => {}
    }
    assert_eq!(file.len(), model.len() as u64);
}

#[test]
fn a_long_direct_read_is_split_and_an_aligned_one_is_not() {
    each_way(|dir, options| {
        let (pool, _) = open(&dir, small());
        let file = BlockFile::open(&pool, options).expect("opens");
        let len = 3 * (1 << 20) + 5 * BLOCK;
        file.grow(len as u64).expect("room");
        let bytes: Vec<u8> = (0..len).map(|at| (at / 7 % 251) as u8).collect();
        file.write(0, &Blocks::from(&bytes[..])).expect("written");
        assert!(read(&file, 1, len - 2) == bytes[1..len - 1]);
        let mut blocks = Blocks::zeroed(len - BLOCK);
        file.read(BLOCK as u64, &mut blocks).expect("readable");
        assert!(*blocks == bytes[BLOCK..]);
    });
}

#[test]
fn the_file_is_private_and_an_empty_one_of_an_interrupted_creation_is_used() {
    let dir = TestDir::disk();
    let pool = create(&dir, PoolOptions { durability: Durability::Power, ..small() });
    let file = BlockFile::open(&pool, &plain()).expect("opens");
    assert_eq!(file.len(), 0);
    let made = values(&dir).metadata().expect("there");
    assert_eq!(made.permissions().mode() & 0o7777, 0o600);
    drop(file);
    std::fs::write(values(&dir), []).expect("as an interrupted making leaves it");
    let file = grown(&pool, 1);
    file.write(0, &filled(7, 1)).expect("written");
    file.sync().expect("synced");
    assert_eq!(std::fs::read(values(&dir)).expect("readable"), vec![7; BLOCK]);
}

#[test]
fn growth_reserves_space_and_shrinking_and_punching_free_it() {
    for dir in [TestDir::shm(), TestDir::disk()] {
        let pool = create(&dir, small());
        let file = grown(&pool, 256);
        let space = || values(&dir).metadata().expect("there").blocks() * 512;
        assert!(space() >= file.len(), "{} of {}", space(), file.len());
        file.write(0, &filled(1, 256)).expect("written");
        file.sync_now().expect("synced");
        file.punch(64 * BLOCK as u64, 128 * BLOCK as u64).expect("given back");
        assert_eq!(file.len(), 256 * BLOCK as u64);
        if dir.is_shm() {
            assert!(space() <= 200 * BLOCK as u64, "{}", space());
            assert!(read(&file, 64 * BLOCK as u64, 128 * BLOCK).iter().all(|byte| *byte == 0));
        }
        assert!(read(&file, 0, 64 * BLOCK).iter().all(|byte| *byte == 1), "its neighbours stay");
        assert!(read(&file, 192 * BLOCK as u64, 64 * BLOCK).iter().all(|byte| *byte == 1), "its neighbours stay");
        file.reserve(64 * BLOCK as u64, 128 * BLOCK as u64).expect("room");
        assert!(space() >= file.len(), "{} of {}", space(), file.len());
        file.shrink(10 * BLOCK as u64).expect("shorter");
        assert!(space() <= 64 * BLOCK as u64, "{}", space());
        assert_eq!((file.len(), values(&dir).metadata().expect("there").len()), (10 * BLOCK as u64, 10 * BLOCK as u64));
        file.grow(9 * BLOCK as u64).expect("as long already");
        file.shrink(11 * BLOCK as u64).expect("shorter already");
        file.grow(11 * BLOCK as u64 - 1).expect("room");
        assert_eq!(file.len(), 11 * BLOCK as u64, "whole blocks");
        assert_eq!(read(&file, 10 * BLOCK as u64, BLOCK), vec![0; BLOCK], "what is new is zero");
    }
}

#[test]
fn a_foreign_values_file_is_refused_and_left_alone() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let path = values(&dir);
    let refused = |what: &str| {
        for options in [plain(), reading()] {
            let refused = BlockFile::open(&pool, &options).map(|_| ());
            assert!(matches!(refused, Err(Error::Foreign { .. })), "{what}: {refused:?}");
        }
    };
    let other = dir.store().join("other");
    std::fs::write(&other, b"theirs").expect("written");
    std::os::unix::fs::symlink(&other, &path).expect("linked");
    refused("a link");
    assert_eq!(std::fs::read(&other).expect("readable"), b"theirs");
    std::fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink(dir.store().join("nowhere"), &path).expect("linked");
    refused("a link to nothing");
    assert!(!dir.store().join("nowhere").exists());
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("made");
    refused("a directory");
    std::fs::remove_dir(&path).expect("removed");
    let socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    refused("a socket");
    drop(socket);
}

#[test]
fn a_full_medium_or_capacity_is_reported_and_changes_nothing() {
    for dir in [TestDir::shm(), TestDir::disk()] {
        let pool = create(&dir, small());
        let capacity = 8 * BLOCK as u64;
        let file = BlockFile::open(&pool, &BlockOptions { capacity, ..plain() }).expect("opens");
        file.grow(capacity).expect("room");
        for len in [capacity + 1, u64::MAX] {
            let refused = file.grow(len);
            assert!(matches!(refused, Err(Error::Full { capacity: told, .. }) if told == capacity), "{refused:?}");
        }
        drop(file);
        let file = BlockFile::open(&pool, &plain()).expect("opens");
        let free = lodestore_media::probe(&dir.store()).expect("probed").free_bytes;
        let refused = file.grow(free.saturating_mul(2).min(plain().capacity));
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
        assert_eq!((file.len(), values(&dir).metadata().expect("there").len()), (capacity, capacity));
        file.write(0, &filled(3, 8)).expect("the rest goes on");
    }
}

#[test]
fn offsets_outside_the_file_are_refused_with_an_error() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let file = grown(&pool, 2);
    let len = file.len();
    let mut buffer = [0; 10];
    for at in [len - 9, len, u64::MAX - 3, u64::MAX] {
        let refused = file.read(at, &mut buffer);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{at}: {refused:?}");
    }
    file.read(len, &mut []).expect("nothing is read at the end");
    for at in [len - BLOCK as u64, len, u64::MAX - 4095] {
        let refused = file.write(at, &filled(1, 2));
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{at}: {refused:?}");
        let refused = file.punch(at, 2 * BLOCK as u64);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{at}: {refused:?}");
    }
    assert_eq!(values(&dir).metadata().expect("there").len(), len, "nothing went beyond the end");
    // Another program cuts the open file.
    std::fs::OpenOptions::new().write(true).open(values(&dir)).expect("opens").set_len(100).expect("cut");
    let refused = file.read(BLOCK as u64, &mut buffer);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}

#[test]
fn a_file_of_odd_length_is_read_as_far_as_its_blocks_go_and_grows_by_zeros() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    std::fs::write(values(&dir), vec![5; BLOCK + 100]).expect("written");
    for options in [reading(), plain()] {
        let file = BlockFile::open(&pool, &options).expect("opens");
        assert_eq!(file.len(), BLOCK as u64);
        assert_eq!(read(&file, 10, 100), [5; 100]);
        assert_eq!(values(&dir).metadata().expect("there").len(), BLOCK as u64 + 100, "nothing is changed");
    }
    let file = BlockFile::open(&pool, &plain()).expect("opens");
    file.grow(3 * BLOCK as u64).expect("room");
    assert_eq!(read(&file, 0, BLOCK), vec![5; BLOCK]);
    assert_eq!(read(&file, BLOCK as u64, 2 * BLOCK), vec![0; 2 * BLOCK], "new blocks are zero");
}

#[test]
fn a_read_only_file_is_neither_created_nor_changed() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    {
        let file = BlockFile::open(&pool, &reading()).expect("as one of no bytes");
        assert_eq!((file.len(), file.taken()), (0, 0));
        assert!(matches!(file.read(0, &mut [0]), Err(Error::Corrupt { .. })) && !file.is_warm(0));
    }
    assert!(!values(&dir).exists());
    grown(&pool, 4).write(0, &filled(9, 4)).expect("written");
    let file = BlockFile::open(&pool, &reading()).expect("opens");
    let refusals = [
        file.write(0, &filled(1, 1)),
        file.grow(100 * BLOCK as u64),
        file.shrink(0),
        file.punch(0, BLOCK as u64),
        file.reserve(0, BLOCK as u64),
    ];
    for refused in refusals {
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    }
    file.sync_now().expect("nothing to sync");
    assert_eq!(file.counts().syncs, 0);
    assert_eq!(read(&file, 0, 4 * BLOCK), vec![9; 4 * BLOCK]);
}

#[test]
fn a_closed_or_poisoned_pool_refuses_writes_to_its_file_and_serves_reads() {
    for poisoned in [false, true] {
        let dir = TestDir::shm();
        let pool = create(&dir, small());
        let file = grown(&pool, 2);
        file.write(0, &filled(4, 2)).expect("written");
        if poisoned {
            pool.poison(lodestore_contract::PoisonReason::Write, "a test")
        } else {
            pool.close(true).expect("closes")
        }
        let refusals = [
            file.write(0, &filled(1, 1)),
            file.grow(3 * BLOCK as u64),
            file.shrink(0),
            file.punch(0, BLOCK as u64),
            file.sync(),
            file.sync_now(),
            BlockFile::open(&pool, &plain()).map(|_| ()),
        ];
        for refused in refusals {
            let expected = match &refused {
                Err(Error::Poisoned { .. }) => poisoned,
                Err(Error::Closed) => !poisoned,
                _ => false,
            };
            assert!(expected, "{refused:?}");
        }
        assert_eq!(read(&file, 5, 100), [4; 100]);
    }
}

#[test]
fn syncs_follow_the_pools_durability_and_counts_are_the_files_own() {
    for (durability, syncs) in [(Durability::Process, 0), (Durability::Power, 2)] {
        let dir = TestDir::disk();
        let pool = create(&dir, PoolOptions { durability, ..small() });
        let file = grown(&pool, 8);
        let bytes = pool.bytes_written();
        file.write(0, &Blocks::from(&[1; 5000][..])).expect("written");
        file.sync().expect("synced");
        file.write(BLOCK as u64, &filled(2, 3)).expect("written");
        file.sync().expect("synced");
        read(&file, 3, 77);
        let counts = file.counts();
        assert_eq!(counts.syncs, syncs, "{durability}");
        assert_eq!((counts.writes, counts.bytes_written), (2, 5 * BLOCK as u64));
        assert_eq!((counts.reads, counts.bytes_read), (1, 77));
        file.sync_now().expect("synced");
        assert_eq!(file.counts().syncs, syncs + 1);
        assert_eq!(pool.bytes_written(), bytes);
        drop(file);
        // The content that an open finds is durable if the durability asks for it.
        let again = BlockFile::open(&pool, &plain()).expect("opens");
        assert_eq!(again.counts().syncs, u64::from(syncs > 0), "{durability}");
    }
}

#[test]
fn threads_read_and_write_their_own_blocks_during_growth_and_syncs() {
    const THREADS: u64 = 6;
    const OWN: u64 = 16;
    each_way(|dir, options| {
        let (pool, _) = open(&dir, small());
        let file = BlockFile::open(&pool, options).expect("opens");
        file.grow(THREADS * OWN * BlockFile::BLOCK).expect("room");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let file = &file;
                scope.spawn(move || {
                    let mut random = Random(thread);
                    let mut model = vec![0u8; OWN as usize * BLOCK];
                    let base = thread * OWN * BlockFile::BLOCK;
                    for round in 0..150 {
                        let first = random.below(OWN as usize);
                        let blocks = 1 + random.below(OWN as usize - first);
                        let byte = random.below(256) as u8;
                        let at = first * BLOCK;
                        file.write(base + at as u64, &filled(byte, blocks)).expect("written");
                        model[at..at + blocks * BLOCK].fill(byte);
                        let from = random.below(model.len());
                        let len = random.below(model.len() - from);
                        let found = read(file, base + from as u64, len);
                        assert!(found == model[from..from + len], "thread {thread}, round {round}");
                        match round % 30 {
                            7 => file.sync_now().expect("synced"),
                            11 => file.grow((THREADS * OWN + round) * BlockFile::BLOCK).expect("room"),
                            _ => {}
                        }
                    }
                });
            }
        });
        let counts = file.counts();
        assert_eq!(counts.writes, THREADS * 150);
        assert!((1..=THREADS * 5).contains(&counts.syncs), "{counts:?}");
    });
}

#[test]
fn the_removal_of_a_store_removes_its_values_file() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    grown(&pool, 2);
    let created = pool.created_in(&dir.store());
    drop(pool);
    created.remove();
    assert!(!dir.store().exists());
}

#[test]
#[should_panic(expected = "inside a block")]
fn a_write_inside_a_block_is_a_bug_of_the_caller() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let _ = grown(&pool, 2).write(100, &filled(1, 1));
}

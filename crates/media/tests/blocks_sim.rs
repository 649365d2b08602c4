//! The values file under the crash simulator: its content after crashes, and failing calls.
#![cfg(feature = "sim")]

use std::collections::BTreeSet;
use std::sync::Arc;

use lodestore_contract::Error;
use lodestore_media::sim::{
    DropSite, Event, FailingCall, FileCall, FileFault, LineModel, Recorder, Rng, SECTOR, SimImage, SimSpec, Verb,
};
use lodestore_media::{BlockFile, BlockOptions, Blocks, Pool, PoolOptions};

const BLOCK: u64 = BlockFile::BLOCK;

fn options() -> PoolOptions {
    PoolOptions { capacity: 256 << 10, region_bytes: 64 << 10, chunk_bytes: 512, ..PoolOptions::default() }
}

fn pages() -> SimSpec {
    SimSpec { grain: SECTOR, ..SimSpec::default() }
}

fn filled(byte: u8, blocks: u64) -> Blocks {
    Blocks::from(&vec![byte; (blocks * BLOCK) as usize][..])
}

fn open_file(pool: &Arc<Pool>) -> BlockFile {
    BlockFile::open(pool, &BlockOptions::default()).expect("opens")
}

fn recorder(pool: &Pool) -> &Recorder {
    pool.recorder().expect("simulated")
}

fn fails(call: FileCall, nth: u64, fault: FileFault) -> Option<FailingCall> {
    Some(FailingCall { call, nth, fault })
}

/// Returns a pool with a file of blocks of `a`, all durable, and the medium's model at that moment.
fn begin(spec: &SimSpec, blocks: u64) -> (Arc<Pool>, BlockFile, LineModel) {
    let (pool, _) = Pool::create_sim(spec, "test", 1, options()).expect("a pool");
    let file = open_file(&pool);
    file.grow(blocks * BLOCK).expect("room");
    file.write(0, &filled(b'a', blocks)).expect("written");
    file.sync().expect("synced");
    let mut model = LineModel::new(SimImage { spec: spec.clone(), ..SimImage::default() });
    follow(&pool, &mut model);
    assert_eq!(model.dirty_lines(), 0);
    (pool, file, model)
}

/// Applies all steps since the last call to the model; returns the steps.
fn follow(pool: &Pool, model: &mut LineModel) -> Vec<Event> {
    let events = recorder(pool).take().events;
    events.iter().for_each(|event| model.apply(event));
    events
}

/// Calls `look` with every image of this moment, each once and under the hash of its bytes.
fn each_image(model: &mut LineModel, mut look: impl FnMut(&SimImage)) -> usize {
    let set = model.crash_set();
    assert!(set.combinations() <= 1 << 17, "more images than can be looked at: {}", set.combinations());
    let choices = set.select(usize::MAX, &mut Rng::new(0));
    let durable = model.durable().clone();
    let mut hashes = BTreeSet::new();
    for (index, choice) in choices.iter().enumerate() {
        assert!(hashes.insert(set.hash(choice)), "no image twice");
        let image = model.with_image(&set, choice, |image| {
            look(image);
            (choices.len() < 64 || index % 97 == 0).then(|| image.clone())
        });
        if let Some(image) = image {
            let rebuilt = LineModel::new(image).crash_set();
            assert_eq!(rebuilt.hash(&rebuilt.all_old()), set.hash(choice), "the hash is that of the bytes");
            assert_eq!(*model.durable(), durable, "looking changes nothing");
        }
    }
    choices.len()
}

/// Returns the one byte that fills a block of the file; 0 for mixed and for missing blocks.
fn of_block(image: &SimImage, block: u64, bytes: u64) -> u8 {
    let from = (block * BLOCK) as usize;
    let part = image.values.get(from..from + bytes as usize).unwrap_or(&[0]);
    if part.iter().all(|byte| *byte == part[0]) { part[0] } else { 0 }
}

#[test]
fn each_of_two_unsynced_writes_is_kept_lost_or_torn_between_sectors() {
    let (pool, file, mut model) = begin(&pages(), 3);
    file.write(0, &filled(b'b', 1)).expect("written");
    file.write(2 * BLOCK, &filled(b'c', 1)).expect("written");
    follow(&pool, &mut model);
    let mut seen = BTreeSet::new();
    let images = each_image(&mut model, |image| {
        seen.insert((of_block(image, 0, BLOCK), of_block(image, 2, BLOCK)));
        assert_eq!(of_block(image, 1, BLOCK), b'a', "what is not written stays");
        for sector in 0..image.values.len() / SECTOR as usize {
            let sector = &image.values[sector * SECTOR as usize..][..SECTOR as usize];
            assert!(sector.iter().all(|byte| *byte == sector[0]), "no sector is torn");
        }
    });
    assert_eq!(images, 1 << 16, "each of sixteen sectors is old or new");
    let all: BTreeSet<_> = [b'a', b'b', 0].into_iter().flat_map(|one| [b'a', b'c', 0].map(|two| (one, two))).collect();
    assert_eq!(seen, all);
}

#[test]
fn writes_to_one_sector_are_kept_in_their_order() {
    let (pool, file, mut model) = begin(&SimSpec { grain: 4096, ..SimSpec::default() }, 1);
    for byte in [b'b', b'c', b'd'] {
        file.write(0, &filled(byte, 1)).expect("written");
    }
    follow(&pool, &mut model);
    let mut seen = BTreeSet::new();
    let images = each_image(&mut model, |image| {
        seen.insert(of_block(image, 0, BLOCK));
    });
    assert_eq!((images, seen), (4, [b'a', b'b', b'c', b'd'].into()));
}

#[test]
fn bytes_written_before_a_sync_by_any_thread_survive() {
    let (pool, file, mut model) = begin(&pages(), 3);
    std::thread::scope(|scope| {
        scope.spawn(|| file.write(0, &filled(b'b', 2)).expect("written"));
    });
    file.sync().expect("synced");
    file.write(2 * BLOCK, &filled(b'c', 1)).expect("written");
    follow(&pool, &mut model);
    let images = each_image(&mut model, |image| {
        assert_eq!((of_block(image, 0, BLOCK), of_block(image, 1, BLOCK)), (b'b', b'b'));
    });
    assert_eq!(images, 1 << 8);
}

#[test]
fn a_fence_of_the_pool_syncs_nothing_of_the_file_and_a_sync_of_the_file_fences_nothing() {
    let (pool, file, mut model) = begin(&SimSpec { grain: 4096, ..SimSpec::default() }, 1);
    file.write(0, &filled(b'b', 1)).expect("written");
    pool.publish_u64(pool.root(), 7);
    pool.flush(pool.root(), 8);
    pool.fence();
    follow(&pool, &mut model);
    let root = pool.root().offset() as usize;
    let mut seen = BTreeSet::new();
    each_image(&mut model, |image| {
        seen.insert((image.regions[0][root], of_block(image, 0, BLOCK)));
    });
    assert_eq!(seen, [(7, b'a'), (7, b'b')].into());
    pool.publish_u64(pool.root(), 8);
    pool.flush(pool.root(), 8);
    file.sync().expect("synced");
    follow(&pool, &mut model);
    seen.clear();
    each_image(&mut model, |image| {
        seen.insert((image.regions[0][root], of_block(image, 0, BLOCK)));
    });
    assert_eq!(seen, [(7, b'b'), (8, b'b')].into());
}

/// Writes and syncs a value, then names it in the root. Returns the number of images whose root
/// names a missing value.
fn dangling(spec: &SimSpec) -> usize {
    let (pool, file, mut model) = begin(spec, 2);
    for value in 1..=4u64 {
        file.write((value % 2) * BLOCK, &filled(value as u8, 1)).expect("written");
        // The sync that is lost.
        file.sync().expect("synced");
        pool.publish_u64(pool.root(), value);
        pool.flush(pool.root(), 8);
        pool.fence();
    }
    let root = pool.root().offset() as usize;
    let mut dangling = 0;
    for event in recorder(&pool).take().events {
        model.apply(&event);
        each_image(&mut model, |image| {
            let named = image.regions[0][root];
            dangling += usize::from(named > 0 && of_block(image, u64::from(named % 2), BLOCK) != named);
        });
    }
    dangling
}

#[test]
fn a_pointer_stored_after_the_sync_never_dangles_and_without_the_sync_it_does() {
    let spec = SimSpec { grain: 4096, ..SimSpec::default() };
    assert_eq!(dangling(&spec), 0);
    let sync = include_str!("blocks_sim.rs").lines().position(|line| line.contains("// The sync that is lost."));
    let line = sync.expect("there") as u32 + 2;
    let drop_site = Some(DropSite { verb: Verb::Fence, file: file!().into(), line });
    assert!(dangling(&SimSpec { drop_site, ..spec }) > 0, "the lost sync is seen");
}

#[test]
fn an_unsynced_length_may_be_lost_and_reads_beyond_it_are_refused() {
    let spec = SimSpec { grain: 4096, ..SimSpec::default() };
    let (pool, file, mut model) = begin(&spec, 2);
    file.grow(3 * BLOCK).expect("room");
    file.write(2 * BLOCK, &filled(b'b', 1)).expect("written");
    file.grow(4 * BLOCK).expect("room");
    follow(&pool, &mut model);
    let mut seen = BTreeSet::new();
    let images = each_image(&mut model, |image| {
        seen.insert((image.values.len() as u64 / BLOCK, of_block(image, 2, BLOCK)));
        let (pool, _) = Pool::open_sim(image, "test", 1, options()).expect("opens");
        let file = open_file(&pool);
        assert_eq!(file.len(), image.values.len() as u64);
        let mut block = [1; 4096];
        let read = file.read(2 * BLOCK, &mut block);
        match file.len() / BLOCK {
            2 => assert!(matches!(read, Err(Error::Corrupt { .. })), "{read:?}"),
            _ => assert!(block == [0; 4096] || block == [b'b'; 4096]),
        }
        let written = file.write(3 * BLOCK, &filled(1, 1));
        assert_eq!(written.is_ok(), file.len() == 4 * BLOCK, "{written:?}");
    });
    assert_eq!((images, seen), (5, [(2, 0), (3, 0), (3, b'b'), (4, 0), (4, b'b')].into()));
    file.sync().expect("synced");
    follow(&pool, &mut model);
    assert_eq!(each_image(&mut model, |image| assert_eq!(of_block(image, 2, BLOCK), b'b')), 1);
    assert_eq!(model.durable().values.len() as u64, 4 * BLOCK);
}

#[test]
fn a_shortened_file_may_have_its_old_length_before_a_sync() {
    let spec = SimSpec { grain: 4096, ..SimSpec::default() };
    let (pool, file, mut model) = begin(&spec, 3);
    file.shrink(BLOCK).expect("shorter");
    follow(&pool, &mut model);
    let mut seen = BTreeSet::new();
    each_image(&mut model, |image| {
        seen.insert(image.values.len() as u64 / BLOCK);
        assert_eq!(of_block(image, 0, BLOCK), b'a');
    });
    assert_eq!(seen, [1, 3].into());
    assert_eq!(model.newest().values, vec![b'a'; BLOCK as usize]);
    file.grow(2 * BLOCK).expect("room");
    follow(&pool, &mut model);
    assert_eq!(of_block(&model.newest(), 1, BLOCK), 0, "what is new is zero");
    seen.clear();
    each_image(&mut model, |image| {
        seen.insert(image.values.len() as u64 / BLOCK);
    });
    assert_eq!(seen, [1, 2, 3].into());
    file.sync().expect("synced");
    follow(&pool, &mut model);
    assert_eq!(model.durable().values[BLOCK as usize..], vec![0; BLOCK as usize]);
    assert_eq!(each_image(&mut model, |_| {}), 1);
    assert_eq!(recorder(&pool).values(), model.durable().values);
}

#[test]
fn a_punched_block_holds_zeros_or_its_old_bytes_before_a_sync() {
    let (pool, file, mut model) = begin(&SimSpec { grain: 4096, ..SimSpec::default() }, 2);
    file.punch(0, BLOCK).expect("given back");
    follow(&pool, &mut model);
    let mut seen = BTreeSet::new();
    each_image(&mut model, |image| {
        seen.insert((of_block(image, 0, BLOCK), of_block(image, 1, BLOCK)));
    });
    assert_eq!(seen, [(0, b'a'), (b'a', b'a')].into());
}

#[test]
fn if_stores_persist_everything_survives_without_syncs() {
    let (pool, file, mut model) = begin(&SimSpec { stores_persist: true, ..pages() }, 2);
    file.write(BLOCK, &filled(b'b', 1)).expect("written");
    file.grow(4 * BLOCK).expect("room");
    file.sync().expect("nothing to do");
    assert_eq!(file.counts().syncs, 0);
    file.write(3 * BLOCK, &filled(b'c', 1)).expect("written");
    file.shrink(4 * BLOCK).expect("as long already");
    follow(&pool, &mut model);
    let images = each_image(&mut model, |image| {
        let blocks: Vec<u8> = (0..4).map(|block| of_block(image, block, BLOCK)).collect();
        assert_eq!(blocks, [b'a', b'b', 0, b'c']);
    });
    assert_eq!(images, 1);
}

#[test]
fn an_open_after_a_kill_makes_the_found_data_durable() {
    let (pool, file, mut model) = begin(&pages(), 2);
    file.write(0, &filled(b'b', 1)).expect("written");
    file.grow(3 * BLOCK).expect("room");
    follow(&pool, &mut model);
    // The process is killed: the next one sees all of it.
    model.forget_flushes();
    let (again, _) = Pool::open_sim(&model.newest(), "test", 1, options()).expect("opens");
    let file = open_file(&again);
    let mut byte = [0];
    file.read(17, &mut byte).expect("readable");
    assert_eq!((byte, file.len()), ([b'b'], 3 * BLOCK));
    follow(&again, &mut model);
    each_image(&mut model, |image| assert_eq!((of_block(image, 0, BLOCK), image.values.len()), (b'b', 3 * 4096)));
}

#[test]
fn a_failed_sync_poisons_the_pool_and_makes_nothing_durable() {
    for fault in [FileFault::Io, FileFault::NoSpace] {
        let (pool, file, mut model) = begin(&SimSpec { grain: 4096, ..SimSpec::default() }, 2);
        file.write(0, &filled(b'b', 1)).expect("written");
        recorder(&pool).fail_call(fails(FileCall::Sync, 1, fault));
        let refused = file.sync();
        assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
        let cause = pool.poisoned().expect("poisoned");
        assert!(cause.contains("values.0000"), "{cause}");
        for refused in [file.sync(), file.sync_now(), file.write(BLOCK, &filled(b'c', 1)), pool.check()] {
            assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
        }
        let mut byte = [0];
        file.read(0, &mut byte).expect("reads go on");
        follow(&pool, &mut model);
        let mut seen = BTreeSet::new();
        each_image(&mut model, |image| {
            seen.insert((of_block(image, 0, BLOCK), of_block(image, 1, BLOCK)));
        });
        assert_eq!(seen, [(b'a', b'a'), (b'b', b'a')].into());
    }
}

#[test]
fn failing_calls_are_reported_by_kind_and_later_ones_succeed() {
    let (pool, file, _) = begin(&pages(), 4);
    let mut byte = [0];
    recorder(&pool).fail_call(fails(FileCall::Read, 2, FileFault::Io));
    file.read(0, &mut byte).expect("the first goes well");
    assert!(matches!(file.read(0, &mut byte), Err(Error::Io { .. })));
    file.read(0, &mut byte).expect("the third goes well");

    for (fault, is_full) in [(FileFault::Io, false), (FileFault::NoSpace, true)] {
        let told = |refused: Result<(), Error>| match refused {
            Err(Error::Full { .. }) => is_full,
            Err(Error::Io { .. }) => !is_full,
            _ => false,
        };
        recorder(&pool).fail_call(fails(FileCall::Grow, 1, fault));
        assert!(told(file.grow(9 * BLOCK)));
        assert_eq!(
            (file.len(), recorder(&pool).values().len() as u64),
            (4 * BLOCK, 4 * BLOCK),
            "it is as long as before"
        );
        recorder(&pool).fail_call(fails(FileCall::Reserve, 1, fault));
        file.grow(4 * BLOCK).expect("it is as long already");
        assert!(told(file.reserve(0, BLOCK)));
        recorder(&pool).fail_call(fails(FileCall::Punch, 1, fault));
        file.punch(3 * BLOCK, BLOCK).expect("nobody is told");
        assert_eq!(recorder(&pool).values()[3 * 4096], b'a', "it holds what it held");
        recorder(&pool).fail_call(fails(FileCall::Write, 1, fault));
        let counts = file.counts();
        assert!(told(file.write(0, &filled(b'b', 4))));
        assert_eq!(file.counts(), counts);
        let values = recorder(&pool).values();
        assert_eq!((values[0], values[2 * 4096]), (b'b', b'a'), "half of it is written");
        file.write(0, &filled(b'a', 4)).expect("the next goes well");
    }
    pool.check().expect("no poison");
}

#[test]
fn a_call_of_the_spec_fails_in_every_pool_made_by_it() {
    let spec = SimSpec { failing_call: fails(FileCall::Write, 1, FileFault::NoSpace), ..pages() };
    for _again in 0..2 {
        let (pool, _) = Pool::create_sim(&spec, "test", 1, options()).expect("a pool");
        let file = open_file(&pool);
        file.grow(BLOCK).expect("room");
        assert!(matches!(file.write(0, &filled(1, 1)), Err(Error::Full { .. })));
        file.write(0, &filled(1, 1)).expect("written");
    }
}

#[test]
fn a_sync_that_began_before_a_call_does_not_satisfy_it() {
    let (pool, file, _) = begin(&pages(), 2);
    let syncs = file.counts().syncs;
    let (entered, wait_entered) = std::sync::mpsc::channel();
    let (release, wait_release) = std::sync::mpsc::channel::<()>();
    let wait_release = std::sync::Mutex::new(wait_release);
    let is_first = std::sync::atomic::AtomicBool::new(true);
    recorder(&pool).watch_fences(Some(lodestore_media::sim::Watch(Arc::new(move |_| {
        if is_first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            entered.send(()).expect("heard");
            wait_release.lock().expect("whole").recv().expect("released");
        }
    }))));
    std::thread::scope(|scope| {
        scope.spawn(|| file.sync_now().expect("synced"));
        wait_entered.recv().expect("it syncs");
        file.write(0, &filled(b'b', 1)).expect("written");
        let second = scope.spawn(|| file.sync_now().expect("synced"));
        assert!(!second.is_finished(), "it waits for its own");
        release.send(()).expect("heard");
    });
    recorder(&pool).watch_fences(None);
    assert_eq!(file.counts().syncs, syncs + 2);
}

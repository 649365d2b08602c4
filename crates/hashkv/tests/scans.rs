//! Walks: in key order for values at any location, as of their start, with few reads and little
//! DRAM, and past damage. Each test runs on a file in the page cache, and on a simulated one, which
//! is read by windows like an uncached file.

mod common;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use common::{key as scattered, tiny, value};
use lodestore_contract::{Direction, Error, ScanRange, Store, Visit};
use lodestore_hashkv::{ENGINE, FORMAT, HashKv, HashKvOptions, Mode};
use lodestore_inplace::testing::Scratch;
use lodestore_media::sim::{FailingCall, FileCall, FileFault, LineModel, SimImage, SimSpec};
use lodestore_media::{Pool, PoolOptions};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

const LARGE: usize = 1000;
const SMALL: usize = 20;

/// Options without background threads.
fn small() -> HashKvOptions {
    tiny(8 << 20, 0)
}

/// A store in a directory, or on a simulated medium.
struct Place {
    store: HashKv,
    scratch: Option<Scratch>,
    pool: Option<Arc<Pool>>,
}

impl Place {
    fn cached(options: &HashKvOptions) -> Self {
        let scratch = Scratch::new();
        let store = HashKv::create(&scratch.store(), options).expect("create");
        Self { store, scratch: Some(scratch), pool: None }
    }

    fn simulated(options: &HashKvOptions, record: bool) -> Self {
        let spec = SimSpec { grain: 512, record, ..SimSpec::default() };
        let (pool, report) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool()).expect("a pool");
        let store = HashKv::start(Arc::clone(&pool), &report, options).expect("create");
        Self { store, scratch: None, pool: Some(pool) }
    }

    fn both(options: &HashKvOptions) -> [Self; 2] {
        [Self::cached(options), Self::simulated(options, false)]
    }

    fn counter(&self, name: &str) -> u64 {
        common::counter(&self.store, name)
    }

    fn put(&self, model: &mut Model, key: Vec<u8>, value: Vec<u8>) {
        self.store.put(&key, &value).expect("put");
        model.insert(key, value);
    }

    /// Flips a bit of the only record in the values file that contains `from`.
    fn damaged(self, options: &HashKvOptions, from: &[u8]) -> Self {
        let change = |values: &[u8]| {
            let found: Vec<usize> =
                (0..values.len() - from.len()).filter(|at| values[*at..].starts_with(from)).collect();
            assert_eq!(found.len(), 1, "one record holds that");
            (found[0] as u64, values[found[0]] ^ 1)
        };
        if let Some(scratch) = &self.scratch {
            let path = scratch.store().join("values.0000");
            let (at, byte) = change(&std::fs::read(&path).expect("readable"));
            OpenOptions::new().write(true).open(&path).and_then(|file| file.write_at(&[byte], at)).expect("changed");
            return self;
        }
        let pool = self.pool.expect("it is simulated");
        let mut model =
            LineModel::new(SimImage { spec: SimSpec { grain: 512, ..SimSpec::default() }, ..SimImage::default() });
        pool.recorder().expect("simulated").take().events.iter().for_each(|event| model.apply(event));
        let mut image = model.newest();
        let (at, byte) = change(&image.values);
        image.values[at as usize] = byte;
        let (pool, report) = Pool::open_sim(&image, ENGINE, FORMAT, options.pool()).expect("a pool");
        let store = HashKv::start(Arc::clone(&pool), &report, options).expect("open");
        Self { store, scratch: None, pool: Some(pool) }
    }
}

/// Returns a key by number; keys are in numeric order.
fn key(index: usize) -> Vec<u8> {
    format!("{index:06}").into_bytes()
}

/// Returns the pairs that a walk over a range shows, and its result.
fn walked(store: &dyn Store, range: &ScanRange) -> (Pairs, Result<usize, Error>) {
    let mut shown = Vec::new();
    let outcome = store.scan_each(range, &mut |key, value| {
        shown.push((key.to_vec(), value.to_vec()));
        Visit::More
    });
    (shown, outcome)
}

fn all(direction: Direction) -> ScanRange {
    ScanRange { direction, ..ScanRange::all() }
}

/// Mixes values in memtables, in tables, in segments of groups, moved values, and large values in
/// the LSM's own log.
fn mixed(place: &Place) -> Model {
    let mut model = Model::new();
    let lens = [LARGE, SMALL, 300, 12_000, 0, 2 * LARGE, 20_000];
    for index in 0..400 {
        place.put(&mut model, key(index), value(index, 1, lens[index % lens.len()]));
    }
    place.store.settle().expect("settle");
    for version in 2..6 {
        for index in (0..400).step_by(3) {
            place.put(&mut model, key(index), value(index, version, lens[(index + version as usize) % lens.len()]));
        }
        place.store.settle().expect("settle");
    }
    for index in (0..420).step_by(7) {
        place.put(&mut model, key(index), value(index, 9, lens[(index + 1) % lens.len()]));
    }
    for index in (0..400).step_by(11) {
        assert!(place.store.delete(&key(index)).expect("delete"));
        model.remove(&key(index));
    }
    assert!(place.counter("values_separated") > 100);
    model
}

#[test]
fn values_at_any_location_are_shown_in_key_order() {
    for place in Place::both(&small()) {
        let model = mixed(&place);
        let forward: Pairs = model.clone().into_iter().collect();
        let backward: Pairs = forward.iter().rev().cloned().collect();
        for (direction, wanted) in [(Direction::Forward, &forward), (Direction::Backward, &backward)] {
            let (shown, outcome) = walked(&place.store, &all(direction));
            assert_eq!(outcome.expect("whole"), model.len());
            assert!(shown == *wanted, "{direction:?}");
            for source in
                [place.store.scan(&all(direction)), place.store.snapshot().and_then(|now| now.scan(&all(direction)))]
            {
                let owned = source.expect("scan").map(|pair| pair.map(lodestore_contract::Entry::into_pair));
                assert!(owned.collect::<Result<Pairs, _>>().expect("whole") == *wanted, "{direction:?}");
            }
        }
        let mut shown = Vec::new();
        let visited = place.store.for_each(&mut |key, value| {
            shown.push((key.to_vec(), value.to_vec()));
            Visit::More
        });
        assert_eq!(visited.expect("whole"), model.len() as u64);
        assert!(shown == forward);
    }
}

#[test]
fn a_walk_ends_at_its_bound_its_limit_or_where_its_visitor_stops() {
    for place in Place::both(&small()) {
        let model = mixed(&place);
        for (limit, direction) in [(1, Direction::Forward), (33, Direction::Backward), (100, Direction::Forward)] {
            let range = ScanRange { from: Bound::Excluded(key(20)), to: Bound::Included(key(200)), direction, limit };
            let mut wanted: Pairs = model
                .range((Bound::Excluded(key(20)), Bound::Included(key(200))))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if direction == Direction::Backward {
                wanted.reverse();
            }
            wanted.truncate(limit);
            let (shown, outcome) = walked(&place.store, &range);
            assert_eq!(outcome.expect("whole"), wanted.len());
            assert!(shown == wanted, "{range:?}");
            for stop in 1..=wanted.len() {
                let mut seen = 0;
                let visited = place.store.scan_each(&range, &mut |_, _| {
                    seen += 1;
                    if seen == stop { Visit::Stop } else { Visit::More }
                });
                assert_eq!((visited.expect("stopped"), seen), (stop, stop), "{range:?}");
            }
        }
    }
}

/// Regression: 256 values of a MiB were in DRAM before the first of them was shown.
#[test]
fn a_walk_over_long_values_reads_a_few_of_them_ahead() {
    const LONG: usize = 1_000_000;
    let mut options = HashKvOptions { segment_bytes: 4 << 20, ..HashKvOptions::default() };
    options.index.pool = PoolOptions { capacity: 2 << 30, ..PoolOptions::default() };
    options.index.memtable_bytes = 8 << 20;
    options.index.segment_bytes = 2 << 20;
    options.index.workers = 0;
    for place in Place::both(&options) {
        let mut model = Model::new();
        (0..40).for_each(|index| place.put(&mut model, key(index), value(index, 1, LONG)));
        place.store.settle().expect("settle");
        assert_eq!(place.counter("values_separated"), 40);
        for direction in [Direction::Forward, Direction::Backward] {
            let before = place.counter("values_read_bytes");
            let mut shown = 0;
            let visited = place.store.scan_each(&all(direction), &mut |_, value| {
                assert_eq!(value.len(), LONG);
                shown += 1;
                let read = place.counter("values_read_bytes") - before;
                assert!(read < (shown + 3) * (1 << 20), "{read} bytes read for {shown} values");
                Visit::More
            });
            assert_eq!(visited.expect("whole"), 40);
        }
        // Also an owned walk: its first value is returned before the rest is read.
        let before = place.counter("values_read_bytes");
        let mut scan = place.store.scan(&ScanRange::all()).expect("scan");
        assert_eq!(scan.next().expect("one").expect("whole").value().len(), LONG);
        let read = place.counter("values_read_bytes") - before;
        assert!(read < 4 << 20, "{read} bytes read for one value");
    }
}

#[test]
fn neighbours_in_the_file_are_one_read() {
    let mut options = small();
    options.mode = Mode::Vlog;
    options.segment_bytes = 64 << 10;
    options.index.pool.capacity = 32 << 20;
    let place = Place::simulated(&options, false);
    let mut model = Model::new();
    // Loaded in key order, and therefore stored in this order.
    (0..1000).for_each(|index| place.put(&mut model, key(index), value(index, 1, LARGE)));
    place.store.settle().expect("settle");
    let separated = place.counter("values_separated");
    assert!(separated > 900, "{separated}");
    for direction in [Direction::Forward, Direction::Backward] {
        let before = (place.counter("values_reads"), place.counter("values_read_bytes"));
        let (shown, outcome) = walked(&place.store, &all(direction));
        assert_eq!(outcome.expect("whole"), 1000);
        assert!(shown.iter().all(|(key, value)| model.get(key) == Some(value)));
        let reads = place.counter("values_reads") - before.0;
        let bytes = place.counter("values_read_bytes") - before.1;
        assert!(reads < separated / 10, "{reads} reads for {separated} values");
        assert!(bytes < separated * 1300, "{bytes} bytes for {separated} values");
    }
}

#[test]
fn a_walk_shows_its_initial_state_while_collections_move_and_free_values() {
    const KEYS: usize = 399;
    for workers in [0, 2] {
        let mut options = small();
        options.index.pool.capacity = 3 << 20;
        options.index.workers = workers;
        let mut places = vec![Place::cached(&options)];
        if workers == 0 {
            places.push(Place::simulated(&options, false));
        }
        for place in places {
            let mut then = Model::new();
            (0..KEYS).for_each(|index| place.put(&mut then, scattered(index), value(index, 1, LARGE)));
            place.store.settle().expect("settle");
            for direction in [Direction::Forward, Direction::Backward] {
                let mut wanted: Pairs = then.clone().into_iter().collect();
                if direction == Direction::Backward {
                    wanted.reverse();
                }
                let moved = place.counter("values_moved");
                let mut scan = place.store.scan(&all(direction)).expect("scan");
                let mut shown: Pairs = scan
                    .by_ref()
                    .take(20)
                    .map(|pair| pair.map(lodestore_contract::Entry::into_pair))
                    .collect::<Result<_, _>>()
                    .expect("whole");
                // Of each three keys two are overwritten, and the third one moves.
                let mut index = 0;
                while place.counter("values_moved") < moved + 50 {
                    index += 1;
                    assert!(index < 20 * KEYS, "nothing moves: {:?}", place.store.stats().engine_counters);
                    if index % 3 > 0 {
                        place.put(&mut then, scattered(index % KEYS), value(index % KEYS, index as u32, LARGE));
                    }
                }
                shown.extend(
                    scan.map(|pair| pair.expect("a pair of its beginning")).map(lodestore_contract::Entry::into_pair),
                );
                assert!(shown == wanted, "{direction:?}, {workers} workers");
            }
        }
    }
}

#[test]
fn a_damaged_value_is_reported_and_all_others_are_shown() {
    let options = small();
    for place in [Place::cached(&options), Place::simulated(&options, true)] {
        let mut model = Model::new();
        (0..300).for_each(|index| place.put(&mut model, key(index), value(index, 1, LARGE)));
        place.store.settle().expect("settle");
        // Searches for the bytes of a value, to leave the record's header and key unchanged.
        let place = place.damaged(&options, b"150 1 \x01");
        // Regardless of earlier reads into the page cache.
        for _ in 0..3 {
            let (shown, outcome) = walked(&place.store, &ScanRange::all());
            assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
            assert!(shown.iter().map(|(key, value)| (key, value)).eq(model.range(..key(150))), "what stands before it");
            let (shown, outcome) =
                walked(&place.store, &ScanRange { from: Bound::Excluded(key(150)), ..ScanRange::all() });
            assert_eq!(outcome.expect("what stands behind it"), 149);
            assert!(shown.iter().map(|(key, value)| (key, value)).eq(model.range(key(151)..)));
            let owned: Vec<_> = place.store.scan(&ScanRange::all()).expect("scan").collect();
            assert_eq!(owned.len(), 151);
            assert!(matches!(owned[150], Err(Error::Corrupt { .. })));
            let mut shown = Pairs::new();
            let outcome = place.store.for_each(&mut |key, value| {
                shown.push((key.to_vec(), value.to_vec()));
                Visit::More
            });
            assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
            assert_eq!(shown.len(), 299);
            assert!(shown.iter().all(|(found, value)| *found != key(150) && model.get(found) == Some(value)));
            assert!(matches!(place.store.get(&key(150)), Err(Error::Corrupt { .. })));
            assert_eq!(place.store.get(&key(151)).expect("get").as_ref(), model.get(&key(151)));
        }
    }
}

/// If the medium cannot read one record, the other records of the same read are still shown.
#[test]
fn a_failed_read_affects_no_neighbours() {
    let mut options = small();
    options.mode = Mode::Vlog;
    options.index.pool.capacity = 32 << 20;
    let place = Place::simulated(&options, false);
    let mut model = Model::new();
    (0..300).for_each(|index| place.put(&mut model, key(index), value(index, 1, LARGE)));
    place.store.settle().expect("settle");
    let recorder = place.pool.as_ref().and_then(|pool| pool.recorder()).expect("simulated");
    let mut whole = 0;
    for nth in 1..200 {
        recorder.fail_call(Some(FailingCall { call: FileCall::Read, nth, fault: FileFault::Io }));
        let mut shown = Pairs::new();
        let outcome = place.store.for_each(&mut |key, value| {
            shown.push((key.to_vec(), value.to_vec()));
            Visit::More
        });
        if recorder.will_fail() {
            recorder.fail_call(None);
            break;
        }
        match outcome {
            Ok(_) => whole += 1,
            Err(error) => assert!(matches!(error, Error::Io { .. }), "{error}"),
        }
        assert!(shown.len() >= 299, "{} of 300, read {nth}", shown.len());
        assert!(shown.iter().all(|(key, value)| model.get(key) == Some(value)));
    }
    assert!(whole > 0, "several records are one read");
}

/// Regression: a refill of the scan rebuilt its cursors and read all newer keys again. 400,000
/// pairs took 2.7 s.
#[test]
fn an_owned_scan_passes_newer_keys_once() {
    /// Pairs that the scan shows, and keys that are put after its start.
    const PAIRS: usize = 4000;
    let mut options = small();
    options.index.pool.capacity = 128 << 20;
    options.index.memtable_bytes = 8 << 20;
    options.index.workers = 0;
    for (direction, prefix) in [(Direction::Forward, "z"), (Direction::Backward, "!")] {
        let place = Place::cached(&options);
        let mut model = Model::new();
        // Each fourth value is separated, to make the scan read windows of values too.
        let len = |index: usize| if index.is_multiple_of(4) { LARGE } else { SMALL };
        (0..PAIRS).for_each(|index| place.put(&mut model, key(index), value(index, 1, len(index))));
        place.store.settle().expect("settle");
        assert!(place.counter("values_separated") > 0);
        let scan = place.store.scan(&all(direction)).expect("scan");
        let newer = |index: usize| format!("{prefix}{index:08}").into_bytes();
        (0..PAIRS).for_each(|index| place.store.put(&newer(index), b"new").expect("put"));
        let before = lodestore_fluidkv::testing::versions_read();
        let shown: Pairs = scan.map(|pair| pair.expect("readable").into_pair()).collect();
        let read = lodestore_fluidkv::testing::versions_read() - before;
        let mut wanted: Pairs = model.into_iter().collect();
        if direction == Direction::Backward {
            wanted.reverse();
        }
        assert!(shown == wanted, "{direction:?}");
        // Each newer key is read once, and a lookup of its version counts too.
        assert!(read <= 3 * PAIRS as u64, "{direction:?}: {read} versions read for {PAIRS} newer keys");
    }
}

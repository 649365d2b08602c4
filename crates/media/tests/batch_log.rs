//! Batches of a small engine, crashed at every point: all of a batch or nothing, after any crash,
//! in its recovery too.
#![cfg(feature = "sim")]

use std::sync::Arc;

use lodestore_contract::{Error, VerifyReport};
use lodestore_media::sim::{Event, LineModel, Rng, SimImage, SimSpec, Source, What};
use lodestore_media::{BatchLogs, ExtentKind, NvPtr, PlantedFault, Pool, PoolOptions, Word, crc32c, planted, source};

const LOGS_AT: u64 = 64;
const KIND_WORDS: ExtentKind = ExtentKind(40);
const KIND_LOG: ExtentKind = ExtentKind(41);
/// Single words, followed by pairs.
const WORDS: usize = 24;
const PAIRS: usize = 40;

fn options() -> PoolOptions {
    PoolOptions { capacity: 128 << 10, region_bytes: 64 << 10, chunk_bytes: 512, ..PoolOptions::default() }
}

/// The content of all words and pairs; a pair is two of them.
type State = Vec<u64>;

fn nothing() -> State {
    vec![0; WORDS + 2 * PAIRS]
}

/// An engine that stores only some words.
struct Toy {
    pool: Arc<Pool>,
    logs: BatchLogs,
    words: NvPtr,
}

impl Toy {
    fn create(spec: &SimSpec) -> Self {
        let (pool, report) = Pool::create_sim(spec, "test", 1, options()).expect("a pool");
        BatchLogs::format(&pool, pool.root().add(LOGS_AT));
        pool.fence();
        let logs = BatchLogs::open(&pool, pool.root().add(LOGS_AT), KIND_LOG, report.settled).expect("nothing there");
        let bytes = nothing().len() * 8;
        let words = pool.allocator().alloc_extent(&pool, bytes as u64, KIND_WORDS).expect("room");
        pool.zero(words, bytes);
        pool.flush(words, bytes);
        pool.fence();
        pool.publish_u64(pool.root(), words.raw());
        pool.flush(pool.root(), 8);
        pool.fence();
        Self { pool, logs, words }
    }

    fn open(image: &SimImage) -> Result<Self, String> {
        let text = |refused: Error| refused.to_string();
        let (pool, report) = Pool::open_sim(image, "test", 1, options()).map_err(text)?;
        let logs = BatchLogs::open(&pool, pool.root().add(LOGS_AT), KIND_LOG, report.settled).map_err(text)?;
        if let Some(damage) = logs.damage() {
            return Err(damage.into());
        }
        let words = NvPtr::from_raw(pool.load_u64(pool.root()));
        if !report.settled {
            // The engine's own part: the data that it serves is durable.
            pool.flush(words, nothing().len() * 8);
            pool.fence();
        }
        if pool.allocator().is_recovering() {
            pool.allocator().mark_extent(&pool, words, KIND_WORDS).map_err(text)?;
            logs.mark(&pool).map_err(text)?;
            pool.allocator().finish_recovery(&pool);
        }
        let this = Self { pool, logs, words };
        let expected = this.logs.medium_bytes(&this.pool) + (nothing().len() as u64 * 8).next_multiple_of(512);
        let live = this.pool.allocator().live_bytes();
        if live != expected {
            return Err(format!("{live} bytes live, not {expected}"));
        }
        let mut report = VerifyReport::default();
        this.pool.allocator().verify(&this.pool, &mut report);
        this.logs.verify(&this.pool, &mut report);
        if report.findings.is_empty() { Ok(this) } else { Err(format!("{:?}", report.findings)) }
    }

    fn state(&self) -> State {
        (0..nothing().len() as u64).map(|word| self.pool.load_u64(self.words.add(word * 8))).collect()
    }

    fn logs_extent(&self, log: u64) -> NvPtr {
        NvPtr::from_raw(self.pool.load_u64(self.pool.root().add(LOGS_AT + log * 8)) & !63)
    }

    fn place(&self, index: usize) -> NvPtr {
        self.words.add(8 * if index < WORDS { index } else { WORDS + (index - WORDS) * 2 } as u64)
    }

    /// Commits one batch that sets these words and pairs to the number.
    fn batch(&self, items: &[usize], number: u64) -> lodestore_contract::Result<()> {
        let turn = self.logs.begin(&self.pool, items.len())?;
        let word = |index: &usize| if *index < WORDS { Word::U64(number) } else { Word::U128(number, !number) };
        let stores: Vec<_> = items.iter().map(|index| (self.place(*index), word(index))).collect();
        turn.commit(&self.pool, &stores)
    }

    /// Writes one word, as engines do.
    fn single(&self, index: usize, number: u64) {
        self.pool.publish_u64(self.place(index), number);
        self.pool.flush(self.place(index), 8);
        self.pool.fence();
    }
}

fn after_batch(state: &State, items: &[usize], number: u64) -> State {
    let mut state = state.clone();
    for index in items {
        if *index < WORDS {
            state[*index] = number;
        } else {
            let at = WORDS + (index - WORDS) * 2;
            (state[at], state[at + 1]) = (number, !number);
        }
    }
    state
}

struct Explorer {
    rng: Rng,
    images: u64,
}

impl Explorer {
    /// Opens an image, checks that it holds one of `allowed`, and crashes its recovery too.
    fn judge(&mut self, image: &SimImage, allowed: &[&State], depth: u32) -> Result<(), String> {
        self.images += 1;
        let toy = Toy::open(image)?;
        let found = toy.state();
        if !allowed.contains(&&found) {
            return Err(format!("depth {depth}: a state that is none of those allowed"));
        }
        let recovery = toy.pool.recorder().expect("simulated").take();
        // The store continues: a word is written by itself, then the logs are used again.
        let index = self.rng.index(WORDS);
        toy.single(index, 7);
        let singly = after_batch(&found, &[index], 7);
        let work = toy.pool.recorder().expect("simulated").take();
        if depth >= 3 || !self.rng.one_in(if depth == 1 { 24 } else { 8 }) {
            return Ok(());
        }
        let mut model = LineModel::new(image.clone());
        for event in &recovery.events {
            if matches!(event.what, What::Fence { .. }) || self.rng.one_in(24) {
                self.crash(&mut model, allowed, 3, depth + 1)?;
            }
            model.apply(event);
        }
        self.crash(&mut model, &[&found], 3, depth + 1)?;
        work.events.iter().for_each(|event| model.apply(event));
        self.crash(&mut model, &[&singly], 3, depth + 1)
    }

    fn crash(&mut self, model: &mut LineModel, allowed: &[&State], limit: usize, depth: u32) -> Result<(), String> {
        let set = model.crash_set();
        for choice in set.select(limit, &mut self.rng) {
            model.with_image(&set, &choice, |image| self.judge(image, allowed, depth))?;
        }
        Ok(())
    }

    /// Picks a moment of a trace, mostly near a fence, where it matters most.
    fn moment(&mut self, events: &[Event]) -> usize {
        let fences: Vec<usize> =
            (0..events.len()).filter(|at| matches!(events[*at].what, What::Fence { .. })).collect();
        if fences.is_empty() || self.rng.one_in(3) {
            return self.rng.index(events.len() + 1);
        }
        (fences[self.rng.index(fences.len())] + 1).saturating_sub(self.rng.index(3))
    }

    fn explore(&mut self, model: &mut LineModel, toy: &Toy, before: &State, after: &State) -> Result<(), String> {
        for event in &toy.pool.recorder().expect("simulated").take().events {
            if matches!(event.what, What::Fence { .. }) || self.rng.one_in(40) {
                self.crash(model, &[before, after], 6, 1)?;
            }
            model.apply(event);
        }
        self.crash(model, &[after], 6, 1)
    }
}

/// Runs batches and single writes with kills and power cuts in between. Returns the number of
/// checked images, and the failure if any.
fn run(mutant: Option<PlantedFault>, seed: u64) -> (u64, Option<String>) {
    let mut explorer = Explorer { rng: Rng::new(seed), images: 0 };
    let wrong = life(&mut explorer, SimSpec { mutant, ..SimSpec::default() }).err();
    (explorer.images, wrong.map(|wrong| format!("seed {seed}: {wrong}")))
}

fn life(explorer: &mut Explorer, spec: SimSpec) -> Result<(), String> {
    let mut toy = Toy::create(&spec);
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    toy.pool.recorder().expect("simulated").take().events.iter().for_each(|event| model.apply(event));
    let mut state = nothing();
    for step in 1..30u64 {
        let number = step * 0x0101_0101_0101;
        let (before, is_batch) = (state.clone(), !explorer.rng.one_in(3));
        if is_batch {
            let most = [3, 6, 30, WORDS + PAIRS][explorer.rng.index(4)];
            let mut items: Vec<usize> = (0..WORDS + PAIRS).collect();
            while items.len() > most {
                items.swap_remove(explorer.rng.index(items.len()));
            }
            toy.batch(&items, number).expect("room");
            state = after_batch(&state, &items, number);
        } else {
            let index = explorer.rng.index(WORDS);
            toy.single(index, number);
            state = after_batch(&state, &[index], number);
        }
        if toy.state() != state {
            return Err(format!("step {step}: the running store has another state"));
        }
        if explorer.rng.one_in(3) {
            // Killed, or cut off from power, in the middle.
            let events = toy.pool.recorder().expect("simulated").take().events;
            let end = explorer.moment(&events);
            events[..end].iter().for_each(|event| model.apply(event));
            let image = if explorer.rng.one_in(3) {
                let set = model.crash_set();
                let choices = set.select(6, &mut explorer.rng);
                let choice = &choices[explorer.rng.index(choices.len())];
                let image = model.with_image(&set, choice, Clone::clone);
                model = LineModel::new(image.clone());
                image
            } else {
                model.forget_flushes();
                model.newest()
            };
            toy = Toy::open(&image)?;
            let found = toy.state();
            if found != before && found != state {
                return Err(format!("step {step}, opened after a cut: neither before nor after"));
            }
            state = found;
            explorer.explore(&mut model, &toy, &before.clone(), &state.clone()).map_err(|wrong| {
                if state == before { wrong } else { format!("{wrong}, after a cut in step {step}") }
            })?;
        } else {
            explorer.explore(&mut model, &toy, &before, &state).map_err(|wrong| format!("step {step}: {wrong}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_batch_is_applied_completely_or_not_at_all_after_any_crash() {
    let mut images = 0;
    for seed in 0..4 {
        let (judged, wrong) = run(None, seed);
        assert_eq!(wrong, None);
        images += judged;
    }
    println!("{images} images");
    assert!(images > 4_000, "{images}");
}

const LOGS: Source = source!("src/batch_log.rs");
/// A batch is published before its log record is durable.
const NOT_LOGGED: PlantedFault =
    PlantedFault::at("BatchNotLogged", &[LOGS.line_after("self.log.store_record(", "fence_checked").without_fence()]);
/// The log record of a batch stays armed after the batch.
const NOT_DISARMED: PlantedFault =
    PlantedFault::at("BatchLogNotDisarmed", &[LOGS.line("pool.publish_u64(record, 0)").without_store()]);

#[test]
fn planted_faults_of_the_logs_are_caught() {
    for mutant in [NOT_LOGGED, NOT_DISARMED, planted::BATCH_REDO_SKIPPED, planted::BATCH_LOG_NOT_SETTLED] {
        let caught = (0..20).find_map(|seed| run(Some(mutant), seed).1);
        println!("{mutant:?}: {caught:?}");
        assert!(caught.is_some(), "{mutant:?} was not caught");
    }
}

/// Returns an image of a store killed between fences 2 and 4 of a batch over all words, and the
/// offset of its log record.
fn armed() -> (SimImage, usize) {
    let spec = SimSpec::default();
    let toy = Toy::create(&spec);
    let items: Vec<usize> = (0..WORDS + PAIRS).collect();
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    toy.batch(&items, 1).expect("room");
    toy.batch(&items, 2).expect("room");
    let events = toy.pool.recorder().expect("simulated").take().events;
    let fences = events.iter().enumerate().filter(|(_, event)| matches!(event.what, What::Fence { .. }));
    let commit = fences.map(|(at, _)| at).nth_back(2).expect("three of each batch");
    events[..=commit].iter().for_each(|event| model.apply(event));
    let image = model.newest();
    let whole = |at: &usize| image.regions[0][at + 8..at + 12] == *b"LBT1" && image.regions[0][*at..at + 8] != [0; 8];
    let record = (0..image.regions[0].len() - 12).step_by(64).find(whole).expect("an armed record");
    (image, record)
}

#[test]
fn a_log_that_reuses_another_logs_extent_arms_none_of_its_records() {
    let spec = SimSpec::default();
    let toy = Toy::create(&spec);
    toy.batch(&[0], 1).expect("room");
    let first = toy.logs_extent(0);
    let old = toy.pool.bytes(first, 64).expect("in the pool").to_vec();
    assert_eq!(old[8..12], *b"LBT1", "disarmed, and whole but for its stamp");
    toy.single(0, 9);
    // Log 0 moves to a larger extent and is held; log 1 gets the old one.
    let held = toy.logs.begin(&toy.pool, 100).expect("room");
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    toy.batch(&[1], 2).expect("room");
    assert_eq!(toy.logs_extent(1), first, "the extent that log 0 gave up");
    drop(held);

    let events = toy.pool.recorder().expect("simulated").take().events;
    let fences = events.iter().enumerate().filter(|(_, event)| matches!(event.what, What::Fence { .. }));
    let commit = fences.map(|(at, _)| at).nth_back(2).expect("three of the batch");
    events[..=commit].iter().for_each(|event| model.apply(event));
    // A power cut that keeps only the first word of the new record.
    let mut image = model.newest();
    let at = first.offset() as usize;
    assert!(image.regions[0][at..at + 8] != [0; 8], "the new record is armed");
    image.regions[0][at + 8..at + 64].copy_from_slice(&old[8..]);
    let toy = Toy::open(&image).expect("opens");
    assert_eq!(toy.state()[0], 9, "what was written behind the old batch stays");
}

#[test]
fn an_armed_record_is_replayed_by_the_next_open() {
    let (image, _) = armed();
    let toy = Toy::open(&image).expect("opens");
    assert_eq!(toy.state(), after_batch(&nothing(), &(0..WORDS + PAIRS).collect::<Vec<_>>(), 2));
}

#[test]
fn any_bytes_in_a_log_cause_no_panic_and_no_partial_replay() {
    let (image, record) = armed();
    let all: Vec<usize> = (0..WORDS + PAIRS).collect();
    let states = [after_batch(&nothing(), &all, 1), after_batch(&nothing(), &all, 2)];
    let mut rng = Rng::new(5);
    let roots = 8192 + LOGS_AT as usize;
    for round in 0..3000 {
        let mut image = image.clone();
        let bytes = &mut image.regions[0];
        for _ in 0..1 + rng.below(3) {
            let at = if rng.one_in(4) { roots + rng.index(64) } else { record + rng.index(1600) };
            bytes[at] = if rng.one_in(2) { rng.next_u64() as u8 } else { bytes[at] ^ 1 << rng.below(8) };
        }
        if let Ok(toy) = Toy::open(&image) {
            assert!(states.contains(&toy.state()), "round {round}");
        }
    }
}

#[test]
fn a_flipped_bit_or_a_zeroed_root_word_hides_no_armed_record() {
    let (image, _) = armed();
    let root = 8192 + LOGS_AT as usize;
    for number in 0..8 {
        for bit in 0..=64 {
            let mut image = image.clone();
            match bit {
                64 => image.regions[0][root + number * 8..][..8].fill(0),
                bit => image.regions[0][root + number * 8 + bit / 8] ^= 1 << (bit % 8),
            }
            let (pool, report) = Pool::open_sim(&image, "test", 1, options()).expect("a pool");
            let logs = BatchLogs::open(&pool, pool.root().add(LOGS_AT), KIND_LOG, report.settled).expect("opens");
            assert!(logs.damage().is_some(), "log {number}, bit {bit}");
        }
    }
}

#[test]
fn logs_that_share_an_extent_are_damage() {
    let (mut image, _) = armed();
    let root = 8192 + LOGS_AT as usize;
    // The root words of logs without an extent have no capacity in their low bits.
    let used = (0..8).find(|log| image.regions[0][root + log * 8] & 63 != 0).expect("a log was used");
    let word: [u8; 8] = image.regions[0][root + used * 8..][..8].try_into().expect("eight");
    let other = root + (used + 1) % 8 * 8;
    image.regions[0][other..other + 8].copy_from_slice(&word);
    let (pool, report) = Pool::open_sim(&image, "test", 1, options()).expect("a pool");
    let logs = BatchLogs::open(&pool, pool.root().add(LOGS_AT), KIND_LOG, report.settled).expect("opens");
    assert!(logs.damage().is_some_and(|damage| damage.contains("also belongs to another log")), "{:?}", logs.damage());
}

#[test]
fn a_whole_record_with_an_impossible_offset_is_damage_and_is_not_replayed() {
    let (image, record) = armed();
    let head = &image.regions[0][record..record + 32];
    let words = u32::from_le_bytes(head[16..20].try_into().expect("four")) as usize;
    let end = record + 32 + words * 8;
    for (place, what) in [
        (0, "the pool's header"),
        (4096, "its other copy"),
        (12288, "the extent table"),
        (u64::from(u16::MAX) << 48, "no region"),
        ((1 << 48) - 8, "behind the region"),
        (8192 + 4, "not aligned"),
    ] {
        let mut image = image.clone();
        let bytes = &mut image.regions[0];
        bytes[record + 32..record + 40].copy_from_slice(&u64::to_le_bytes(place));
        let crc = crc32c(&[&bytes[record..record + 12], &bytes[record + 16..end]]);
        bytes[record + 12..record + 16].copy_from_slice(&crc.to_le_bytes());
        let before = bytes[12288..].to_vec();
        let (pool, report) = Pool::open_sim(&image, "test", 1, options()).expect("a pool");
        let logs = BatchLogs::open(&pool, pool.root().add(LOGS_AT), KIND_LOG, report.settled).expect("opens");
        assert!(logs.damage().is_some_and(|damage| damage.contains("names a place")), "{what}: {:?}", logs.damage());
        assert!(logs.begin(&pool, 1).is_err(), "{what}: a damaged log is not used");
        let after = pool.bytes(NvPtr::new(0, 12288), before.len()).expect("in the region");
        assert!(after == before, "{what}: nothing is stored");
    }
}

#[test]
fn a_dropped_batch_turn_changes_nothing_and_logs_serve_many_threads() {
    let toy = Toy::create(&SimSpec { stores_persist: true, ..SimSpec::default() });
    drop(toy.logs.begin(&toy.pool, 5).expect("room"));
    assert_eq!(toy.state(), nothing());
    let live = toy.pool.allocator().live_bytes();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let toy = &toy;
            scope.spawn(move || {
                for round in 1..=50 {
                    toy.batch(&[thread * 4, thread * 4 + 1, thread * 4 + 2], round).expect("room");
                }
            });
        }
    });
    let state = toy.state();
    assert!((0..WORDS).all(|word| state[word] == if word % 4 < 3 { 50 } else { 0 }), "{state:?}");
    assert_eq!(toy.pool.allocator().live_bytes() - live + 1024, toy.logs.medium_bytes(&toy.pool));
    let refused = toy.logs.begin(&toy.pool, BatchLogs::STORES_MAX + 1).map(|_| ());
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    let refused = toy.logs.begin(&toy.pool, 10_000).map(|_| ());
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    assert_eq!(toy.state(), state);
}

//! The loss of any one device's directory, while threads write and while the matrix is stopped.
//! Every acknowledged write is there: with the directory missing, when the matrix is opened without
//! it, and after the device was replaced. The matrix is closed, dropped, or cut off at an arbitrary
//! moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Faulty, Switch, Touch};
use lodestore_contract::conformance::{Harness, Rng};
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Result, Store};
use lodestore_mkvs::{Acks, Inline, Mkvs, Part};

const CAPACITY: u64 = 64 << 20;
const GROUPS: usize = 2;
const DEVICES: usize = 3;
const THREADS: usize = 3;
/// Keys of each thread.
const KEYS: usize = 150;
/// Writes that the threads do before and after an event.
const WRITES: u64 = 400;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The acknowledged writes of one thread.
#[derive(Default)]
struct Known {
    model: Model,
    /// A write in progress at the cut-off, with its value.
    open: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

/// How a matrix ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    Drop,
    /// From one moment on no write reaches any store.
    Cut,
}

/// A matrix, and the switch that cuts it off.
struct Bed {
    matrix: Matrix,
    is_cut: Arc<AtomicBool>,
}

impl Bed {
    /// Its regions are short: files are created while threads write.
    fn new(name: &'static str, acks: Acks, inline: Inline) -> Self {
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        let wrap = move |_: &Path, _: Part, store: Arc<dyn Store>| -> Arc<dyn Store> {
            let (switch, cut) = (Switch::new(), Arc::clone(&cut));
            switch.set(
                move |touch, _| {
                    if touch == Touch::Write && cut.load(Ordering::Acquire) { Fault::Io } else { Fault::None }
                },
            );
            Arc::new(Faulty { store, switch })
        };
        let matrix = Matrix::new(name, GROUPS, DEVICES)
            .on(|places| {
                places.pool.region_bytes = 1 << 20;
                places.wrap = Some(Arc::new(wrap));
            })
            .with(|options| (options.acks, options.inline) = (acks, inline));
        Self { matrix, is_cut }
    }

    /// Returns the result of a write, which must not fail with one device lost; `None` after the
    /// cut-off.
    fn acknowledged<T>(&self, answer: Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(_) if self.is_cut.load(Ordering::Acquire) => None,
            Err(error) => panic!("a write: {error}"),
        }
    }

    /// Writes until `ends` is set, or the cut-off.
    fn write(&self, store: &Mkvs, thread: usize, known: &mut Known, writes: &AtomicU64, ends: &AtomicBool) {
        let mut rng = Rng::new((thread + known.model.len()) as u64);
        while !ends.load(Ordering::Acquire) {
            let step = rng.below(1 << 30);
            let key = format!("thread {thread} key {}", step % KEYS).into_bytes();
            if step % 5 == 4 {
                let Some(was_there) = self.acknowledged(store.delete(&key)) else {
                    known.open = Some((key, None));
                    return;
                };
                assert_eq!(was_there, known.model.remove(&key).is_some());
            } else {
                let value = format!("{step} ").repeat(1 + step % 300).into_bytes();
                if self.acknowledged(store.put(&key, &value)).is_none() {
                    known.open = Some((key, Some(value)));
                    return;
                }
                match store.get(&key) {
                    Err(_) if self.is_cut.load(Ordering::Acquire) => {}
                    found => assert_eq!(found.expect("get").as_ref(), Some(&value)),
                }
                known.model.insert(key, value);
            }
            writes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Lets the threads write while `work` runs, at least some hundred times before it, and after
    /// it unless it cuts off.
    fn while_they_write(&self, store: &Mkvs, known: &mut [Known], work: impl FnOnce()) {
        let (writes, ends) = (AtomicU64::new(0), AtomicBool::new(false));
        let pass = || {
            let (begun, goal) = (Instant::now(), writes.load(Ordering::Acquire) + WRITES);
            while writes.load(Ordering::Acquire) < goal && !self.is_cut.load(Ordering::Acquire) {
                assert!(begun.elapsed() < HANG_TIMEOUT, "the threads go on");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        std::thread::scope(|scope| {
            for (thread, known) in known.iter_mut().enumerate() {
                let (writes, ends) = (&writes, &ends);
                scope.spawn(move || self.write(store, thread, known, writes, ends));
            }
            // Otherwise the threads would continue after a failure.
            let _end = Ends(&ends);
            pass();
            work();
            pass();
        });
    }

    /// Ends the matrix; a cut-off happens while threads write.
    fn end(&self, store: Mkvs, known: &mut [Known], end: End) {
        match end {
            End::Close => store.close().expect("close"),
            End::Drop => {}
            End::Cut => self.while_they_write(&store, known, || self.is_cut.store(true, Ordering::Release)),
        }
        drop(store);
        self.is_cut.store(false, Ordering::Release);
    }

    /// Checks a matrix with one device lost: it opens without the device and has everything.
    /// Threads go on while a new device replaces it. Then another device can be lost.
    fn assert_bears_the_loss(&self, known: &mut [Known], group: usize, device: usize) {
        let matrix = &self.matrix;
        let store = matrix.open().expect("open without it");
        known.iter_mut().for_each(|known| settle(&store, known));
        assert_holds(&store, known, "opened without it");
        let directory = matrix.path().join("new");
        self.while_they_write(&store, known, || {
            store.replace(group, device, &directory, &matrix.path(), &matrix.places).expect("replace");
        });
        store.wait_whole(HANG_TIMEOUT).expect("the new device has everything");
        assert_holds(&store, known, "replaced");
        let report = store.verify(&mut |_| {}).expect("verify");
        assert!(report.is_clean(), "{:?}", report.findings);
        self.end(store, known, End::Cut);
        std::fs::remove_dir_all(matrix.device(group, (device + 1) % DEVICES)).expect("lose another device");
        let store = matrix.open().expect("open without another one");
        known.iter_mut().for_each(|known| settle(&store, known));
        assert_holds(&store, known, "opened with the new one, without another");
    }
}

/// Ends the threads on drop, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Checks whether the write in progress has happened.
fn settle(store: &Mkvs, known: &mut Known) {
    let Some((key, value)) = known.open.take() else { return };
    let found = store.get(&key).expect("get");
    if found == value {
        known.model.remove(&key);
        known.model.extend(value.map(|value| (key, value)));
    }
}

fn assert_holds(store: &Mkvs, known: &[Known], when: &str) {
    let all: Model = known.iter().flat_map(|known| known.model.clone()).collect();
    for (thread, key) in (0..THREADS).flat_map(|thread| (0..KEYS).map(move |key| (thread, key))) {
        let key = format!("thread {thread} key {key}").into_bytes();
        let found = store.get(&key).expect("get");
        assert!(found.as_ref() == all.get(&key), "{when}: {}", String::from_utf8_lossy(&key));
    }
    let mut shown = Model::new();
    store
        .for_each(&mut |key, value| {
            shown.insert(key.to_vec(), value.to_vec());
            lodestore_contract::Visit::More
        })
        .expect("for_each");
    assert!(shown == all, "{when}: a walk shows {} pairs of {}", shown.len(), all.len());
}

/// Runs the test for each device, with `all` and `majority`, inline or with threads.
fn for_each_device(name: &'static str, lose: impl Fn(&Bed, &mut [Known], usize, usize, usize)) {
    let ways = [Acks::Majority, Acks::All].into_iter().flat_map(|acks| [(acks, Inline::On), (acks, Inline::Off)]);
    for (at, (acks, inline)) in ways.enumerate() {
        for device in 0..DEVICES {
            println!("{acks:?}, inline {inline:?}, device {device}");
            let bed = Bed::new(name, acks, inline);
            let mut known: Vec<Known> = (0..THREADS).map(|_| Known::default()).collect();
            let group = (at + device) % GROUPS;
            lose(&bed, &mut known, group, device, at + device);
            bed.assert_bears_the_loss(&mut known, group, device);
        }
    }
}

#[test]
fn any_one_device_can_be_lost_during_concurrent_writes() {
    for_each_device("lost while running", |bed, known, group, device, turn| {
        let store = bed.matrix.create(CAPACITY).expect("create");
        bed.while_they_write(&store, known, || {
            // At once: a growing store may create files in it meanwhile.
            let aside = bed.matrix.path().join("aside");
            std::fs::rename(bed.matrix.device(group, device), &aside).expect("lose a device");
            std::fs::remove_dir_all(&aside).expect("nobody finds it any more");
        });
        assert_holds(&store, known, "running without it");
        bed.end(store, known, if turn % 3 == 0 { End::Drop } else { End::Cut });
    });
}

#[test]
fn any_one_device_can_be_lost_after_concurrent_writes_and_a_stop() {
    for end in [End::Close, End::Drop, End::Cut] {
        println!("{end:?}");
        for_each_device("lost while stopped", |bed, known, group, device, _| {
            let store = bed.matrix.create(CAPACITY).expect("create");
            bed.while_they_write(&store, known, || {});
            bed.end(store, known, end);
            std::fs::remove_dir_all(bed.matrix.device(group, device)).expect("lose a device");
        });
    }
}

//! A matrix of devices on simulated media: every store, every operation log and the host's store is a pool of its own, and all of them share one recorder. So a crash is one
//! moment of all of them.

mod image;
mod scripts;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lodestore_contract::{Direction, Error, Result, Store};
use lodestore_hikv::HiKv;
use lodestore_media::sim::{Recorder, SimImage, SimSpec};
use lodestore_media::{Mutant, OpenReport, Pool, PoolOptions};
use lodestore_mkvs::{Acks, ENGINE, Filtering, Inline, Mkvs, MkvsOptions, New, Part, Place, Places, Planted, Reads};
use lodestore_nvht::Nvht;
use xxhash_rust::xxh3::xxh3_64;

use crate::op::{Op, Outcome};
use crate::pool_subject::PoolSubject;
use crate::script::{HASH_SEED, Script};
use crate::subject::{Engine, Losses, Pair, Shape, Subject};
use crate::{hikv, nvht};

/// The MKVS engine without threads, so that a run is the same each time: HiKV devices, NVHT logs and host. Devices trail by some operations; logs hold some tens.
#[derive(Debug, Clone, Copy)]
pub struct MkvsEngine;

/// Bits of a [`Shape`]'s mode that name one of the [`GEOMETRIES`].
const GEOMETRY_BITS: u32 = 7;
/// Geometries of [`GEOMETRIES`] by number.
pub(crate) const TWO_GROUPS: u32 = 1;
pub(crate) const ACKS_ALL: u32 = 2;
pub(crate) const ACKS_ONE: u32 = 3;
pub(crate) const SOLE_DEVICES: u32 = 4;
/// Mode of a [`Shape`]: each open finds one of the group's three devices taken away, or none. Where a write is acknowledged by most of three.
pub const MODE_LOSSES: u32 = 8;

/// Groups, devices of each, and how many of them acknowledge.
const GEOMETRIES: [(usize, usize, Acks); 8] = [
    (1, 3, Acks::Majority),
    (2, 2, Acks::Majority),
    (1, 2, Acks::All),
    (1, 3, Acks::One),
    (2, 1, Acks::Majority),
    (1, 3, Acks::All),
    (1, 3, Acks::Majority),
    (2, 3, Acks::Majority),
];

/// Bytes of a log's pool and of the host's.
const BESIDE: u64 = 32 << 10;
/// Operations and bytes that a log keeps: it turns all the time.
const LOG_OPS: u64 = 16;
const LOG_BYTES: u64 = 2048;
/// Operations by which a device may trail.
const HARD_LAG: u64 = 4;
/// Keys that a filter is made for at first.
const FILTER_KEYS: u64 = 24;

fn geometry(shape: &Shape) -> (usize, usize, Acks) {
    GEOMETRIES[(shape.mode & GEOMETRY_BITS) as usize]
}

fn options(shape: &Shape, mutant: Option<Mutant>) -> MkvsOptions {
    let (groups, devices, acks) = geometry(shape);
    MkvsOptions {
        groups,
        devices,
        acks,
        capacity: shape.capacity * groups as u64,
        reads: Reads::Single,
        inline: Inline::On,
        filter: Filtering::On,
        filter_keys: FILTER_KEYS,
        soft_lag: HARD_LAG / 2,
        hard_lag: HARD_LAG,
        log_ops: LOG_OPS,
        log_bytes: LOG_BYTES,
        threads: false,
        seed: Some(HASH_SEED),
        planted: mutant.map_or_else(Planted::default, Planted::of),
        ..MkvsOptions::default()
    }
}

/// The pools of a matrix: a store and a log for each device in their order, or the store alone where that is all of its group; then the host's.
struct SimPlaces {
    shape: Shape,
    recorder: Recorder,
    spec: SimSpec,
    /// What they are opened from.
    image: Option<SimImage>,
    /// The device of each group that is taken away.
    lost: Option<usize>,
    host: Mutex<Option<Arc<Pool>>>,
}

impl SimPlaces {
    fn new(shape: &Shape, recorder: Recorder, spec: &SimSpec, image: Option<SimImage>) -> Self {
        let mut places =
            Self { shape: *shape, recorder, spec: spec.clone(), image, lost: None, host: Mutex::default() };
        let (_, devices, acks) = geometry(shape);
        if let (true, 3, Acks::Majority, Some(image)) = (shape.mode & MODE_LOSSES != 0, devices, acks, &places.image) {
            // By what the image holds, so that the same is lost each time that it is opened.
            let held = |region: u16| image.regions.get(usize::from(region)).map_or(0, |bytes| xxh3_64(bytes));
            let mixed = held(places.host_region()) ^ held(1).rotate_left(13);
            places.lost = Some((mixed >> 32) as usize % 4).filter(|lost| *lost < 3);
        }
        places
    }

    fn host_region(&self) -> u16 {
        let (groups, devices, _) = geometry(&self.shape);
        (groups * devices * if devices == 1 { 1 } else { 2 }) as u16
    }

    /// Group and place of the device of this directory.
    fn device(directory: &Path) -> Option<(usize, usize)> {
        let name = directory.file_name()?.to_str()?.strip_prefix("group")?;
        let (group, device) = name.split_once(".device")?;
        Some((group.parse().ok()?, device.parse().ok()?))
    }

    /// The region of a part. A device that is taken away has none.
    fn region(&self, directory: &Path, part: Part) -> Result<u16> {
        let (_, devices, _) = geometry(&self.shape);
        if part == Part::Host {
            return Ok(self.host_region());
        }
        let found = Self::device(directory).filter(|(_, device)| self.image.is_none() || Some(*device) != self.lost);
        let (group, device) = found.ok_or_else(|| Error::Missing { path: directory.into() })?;
        let at = group * devices + device;
        Ok(match part {
            _ if devices == 1 => at,
            Part::Log => 2 * at + 1,
            _ => 2 * at,
        } as u16)
    }

    fn pool(&self, region: u16, engine: &str, format: u32, options: PoolOptions) -> Result<(Arc<Pool>, OpenReport)> {
        self.pool_on(self.recorder.at(region), engine, format, options)
    }

    fn pool_on(
        &self,
        recorder: Recorder,
        engine: &str,
        format: u32,
        options: PoolOptions,
    ) -> Result<(Arc<Pool>, OpenReport)> {
        match &self.image {
            Some(image) => Pool::open_sim_on(recorder, image, engine, format, options),
            None => Pool::create_sim_on(recorder, &self.spec, engine, format, options),
        }
    }

    /// The shape of a store of so many bytes.
    fn part(&self, bytes: u64) -> Shape {
        Shape { capacity: bytes, region_bytes: bytes, partitions: 1, mode: 0, ..self.shape }
    }

    /// The shape of a log and of the host's store.
    fn beside(&self) -> Shape {
        self.part(BESIDE)
    }

    fn place(&self, directory: &Path, part: Part) -> Result<Place> {
        let region = self.region(directory, part)?;
        let store: Arc<dyn Store> = if part == Part::Device {
            let options = hikv::options(&self.part(self.shape.capacity));
            let (pool, report) =
                self.pool(region, lodestore_hikv::ENGINE, lodestore_hikv::FORMAT, options.pool.clone())?;
            Arc::new(HiKv::start(pool, &report, &options)?)
        } else {
            let options = nvht::options(&self.beside());
            let (pool, report) =
                self.pool(region, lodestore_nvht::ENGINE, lodestore_nvht::FORMAT, options.pool.clone())?;
            if part == Part::Host {
                *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&pool));
            }
            Arc::new(Nvht::start(pool, &report, &options)?)
        };
        Ok(Place { store, is_memory: true })
    }

    fn start(self, store: Mkvs, losses: Losses) -> Result<Box<dyn Subject>> {
        let host = self.host.into_inner().unwrap_or_else(PoisonError::into_inner);
        let pool = host.ok_or_else(|| Error::corrupt("mkvs", "it has not asked for the host's store"))?;
        let store = Arc::new(store);
        let keeper = Arc::clone(&store);
        let sweep = Box::new(move || keeper.settle());
        let inner = PoolSubject { store, pool, checkpoint_bytes: 0, accounts: false, sweep };
        Ok(Box::new(MatrixSubject { inner, losses }))
    }
}

impl Places for SimPlaces {
    fn engines(&self) -> (String, String) {
        (lodestore_hikv::ENGINE.into(), lodestore_nvht::ENGINE.into())
    }

    fn create(&self, directory: &Path, new: New<'_>) -> Result<Place> {
        self.place(directory, new.part)
    }

    fn open(&self, directory: &Path, part: Part, _: &str) -> Result<Place> {
        self.place(directory, part)
    }

    fn remove(&self, _: &Path, _: Part) -> Result<()> {
        Ok(())
    }
}

/// Where the description lies: devices' directories are below it.
const ROOT: &str = "matrix";

impl Engine for MkvsEngine {
    fn name(&self) -> &'static str {
        ENGINE
    }

    fn mutants(&self) -> &'static [Mutant] {
        &[
            Mutant::OpLogBehindStore,
            Mutant::OpAckedByFewer,
            Mutant::OpAppliedEarly,
            Mutant::OpEvictedEarly,
            Mutant::OpsNotRedone,
            Mutant::MemberBackUnsaid,
            Mutant::EpochNotBegun,
            Mutant::ForkCutUnsaid,
            Mutant::FilterLeftKept,
            Mutant::OpenAsksForAll,
        ]
    }

    fn scripts(&self, seed: u64, round: u64) -> Vec<Script> {
        scripts::all(seed, round)
    }

    fn takes_back(&self) -> bool {
        true
    }

    /// A sync that fails is a device that is lost: the matrix goes on.
    fn sees_failed_syncs(&self) -> bool {
        false
    }

    fn create(&self, spec: &SimSpec, shape: &Shape) -> Result<Box<dyn Subject>> {
        let places = SimPlaces::new(shape, Recorder::new(spec), spec, None);
        let store = Mkvs::create(Path::new(ROOT), &options(shape, spec.mutant), &places)?;
        places.start(store, Losses::None)
    }

    fn open(&self, image: &SimImage, shape: &Shape) -> Result<Box<dyn Subject>> {
        let options = options(shape, image.spec.mutant);
        let places = || SimPlaces::new(shape, Recorder::of_image(image), &image.spec, Some(image.clone()));
        let mut all = places();
        match Mkvs::open(Path::new(ROOT), &options, &all) {
            // Another one than that which is taken away is not whole: one that was being copied from a third, with which this one was open alone. Two are lost, and the image says so.
            Err(Error::TooFewDevices { group, .. }) if all.lost.is_some() && all.may_refuse(group)? => {
                all = SimPlaces { lost: None, ..places() };
                let store = Mkvs::open(Path::new(ROOT), &options, &all)?;
                all.start(store, Losses::Refused)
            }
            opened => {
                let losses = if all.lost.is_some() { Losses::Borne } else { Losses::None };
                all.start(opened?, losses)
            }
        }
    }
}

/// A matrix, as the explorer sees it.
struct MatrixSubject {
    inner: PoolSubject,
    /// What became of the open without a device.
    losses: Losses,
}

impl Subject for MatrixSubject {
    fn recorder(&self) -> &Recorder {
        self.inner.recorder()
    }

    fn wait_recovered(&self) -> Result<()> {
        self.inner.wait_recovered()
    }

    fn apply(&self, op: &Op) -> Result<Outcome> {
        self.inner.apply(op)
    }

    fn get(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>> {
        self.inner.get(key)
    }

    fn scan(&self, direction: Direction) -> Result<Option<Vec<Pair>>> {
        self.inner.scan(direction)
    }

    fn pairs(&self) -> Result<Vec<Pair>> {
        self.inner.pairs()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    /// One that was taken away is as it should be.
    fn verify(&self) -> Result<Vec<String>> {
        let mut wrong = self.inner.verify()?;
        wrong.retain(|what| !(self.losses == Losses::Borne && what.contains("cannot be opened")));
        Ok(wrong)
    }

    fn losses(&self) -> Losses {
        self.losses
    }

    fn live_bytes(&self) -> Option<u64> {
        None
    }

    fn counter(&self, name: &str) -> u64 {
        self.inner.counter(name)
    }

    fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

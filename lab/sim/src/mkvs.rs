//! A matrix of devices on simulated media. Every store, every operation log and the host's store
//! has its own pool, and all pools share one recorder, so a crash is one moment of all of them.

mod image;
mod scripts;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lodestore_contract::{Direction, Error, Result, Store};
use lodestore_hikv::HiKv;
use lodestore_media::sim::{Recorder, SimImage, SimSpec};
use lodestore_media::{OpenReport, PlantedFault, Pool, PoolOptions};
use lodestore_mkvs::{
    Acks, ENGINE, Filtering, Inline, Mkvs, MkvsOptions, New, OpenMode, Part, Place, Places, Planted, Reads,
};
use lodestore_nvht::Nvht;
use xxhash_rust::xxh3::xxh3_64;

use crate::faults;
use crate::op::{Op, Outcome};
use crate::pool_subject::PoolSubject;
use crate::script::{HASH_SEED, Script};
use crate::shape::{SALVAGE_MODE_FLAG, Shape};
use crate::subject::{Engine, Losses, Pair, RecoveryDamage, Subject, Walk};
use crate::{hikv, nvht};

/// The MKVS engine without threads, so that runs are deterministic: HiKV devices, NVHT logs and
/// host. Devices trail by some operations; logs hold some tens.
#[derive(Debug, Clone, Copy)]
pub struct MkvsEngine;

/// Bits of a [`Shape`]'s mode that index [`GEOMETRIES`].
const GEOMETRY_BITS: u32 = 7;
/// Indexes of [`GEOMETRIES`].
pub(crate) const TWO_GROUPS_INDEX: u32 = 1;
pub(crate) const ACKS_ALL_INDEX: u32 = 2;
pub(crate) const ACKS_ONE_INDEX: u32 = 3;
pub(crate) const SOLE_DEVICES_INDEX: u32 = 4;
pub(crate) const TWO_OF_THREE_INDEX: u32 = 7;
/// Mode of a [`Shape`]: in each open one device of each group is missing, or none. For groups in
/// which a majority of three, or all members, acknowledge a write.
pub const LOSSES_MODE_FLAG: u32 = 8;

/// Groups, devices of each, and the rule of acknowledgement.
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

/// The engine of logs and host, and its format.
const NVHT: (&str, u32) = (lodestore_nvht::ENGINE, lodestore_nvht::FORMAT);
/// Bytes of a log's pool and of the host's.
const LOG_POOL_BYTES: u64 = 32 << 10;
/// Operations and bytes that a log keeps: it wraps around constantly.
const LOG_OPS: u64 = 16;
const LOG_BYTES: u64 = 2048;
/// Operations by which a device may trail.
const HARD_LAG_OPS: u64 = 4;
/// Initial number of keys of a filter.
const FILTER_KEYS: u64 = 24;

fn geometry(shape: &Shape) -> (usize, usize, Acks) {
    GEOMETRIES[(shape.mode & GEOMETRY_BITS) as usize]
}

fn options(shape: &Shape, mutant: Option<PlantedFault>) -> MkvsOptions {
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
        soft_lag: Some(HARD_LAG_OPS / 2),
        hard_lag: Some(HARD_LAG_OPS),
        log_ops: LOG_OPS,
        log_bytes: LOG_BYTES,
        threads: false,
        salvage: shape.mode & SALVAGE_MODE_FLAG != 0,
        seed: Some(HASH_SEED),
        planted: mutant.map_or_else(Planted::default, Planted::new),
        ..MkvsOptions::default()
    }
}

/// The pools of a matrix: for each device in order a store and a log (only the store in a group of
/// one device), then the host's.
struct SimPlaces {
    shape: Shape,
    recorder: Recorder,
    spec: SimSpec,
    /// The image to open.
    image: Option<SimImage>,
    /// The missing device of each group.
    lost: Option<usize>,
    /// The first unused region.
    next: AtomicU16,
    host: Mutex<Option<Arc<Pool>>>,
}

impl SimPlaces {
    fn new(shape: &Shape, recorder: Recorder, spec: &SimSpec, image: Option<SimImage>) -> Self {
        let mut places = Self {
            shape: *shape,
            recorder,
            spec: spec.clone(),
            image,
            lost: None,
            next: AtomicU16::default(),
            host: Mutex::default(),
        };
        // After the regions of a device or group whose creation was interrupted.
        let there = places.image.as_ref().map_or(0, |image| image.regions.len() as u16);
        places.next = AtomicU16::new(there.max(places.host_region() + 1));
        let (_, devices, acks) = geometry(shape);
        let is_borne = matches!((devices, acks), (3, Acks::Majority) | (2.., Acks::All));
        if let (true, true, Some(image)) = (shape.mode & LOSSES_MODE_FLAG != 0, is_borne, &places.image) {
            // Derived from the image, so that each open of it loses the same device.
            let held = |region: u16| image.regions.get(usize::from(region)).map_or(0, |bytes| xxh3_64(bytes));
            let mixed = held(places.host_region()) ^ held(1).rotate_left(13);
            places.lost = Some((mixed >> 32) as usize % (devices + 1)).filter(|lost| *lost < devices);
        }
        places
    }

    fn host_region(&self) -> u16 {
        let (groups, devices, _) = geometry(&self.shape);
        (groups * devices * if devices == 1 { 1 } else { 2 }) as u16
    }

    /// Returns the directory of a new device at this index of its group, after `behind` other new
    /// ones.
    fn new_directory(&self, device: usize, behind: usize) -> PathBuf {
        let pools = if geometry(&self.shape).1 == 1 { 1 } else { 2 };
        let region = usize::from(self.next.load(Ordering::Relaxed)) + pools * behind;
        format!("region{region}.device{device}").into()
    }

    /// Returns the first region of the device of this directory, and its index in its group.
    fn device(&self, directory: &Path) -> Option<(u16, usize)> {
        let (_, devices, _) = geometry(&self.shape);
        let (name, device) = directory.file_name()?.to_str()?.split_once(".device")?;
        let device: usize = device.parse().ok()?;
        if let Some(region) = name.strip_prefix("region") {
            return Some((region.parse().ok()?, device));
        }
        let group: usize = name.strip_prefix("group")?.parse().ok()?;
        let at = group * devices + device;
        Some((if devices == 1 { at } else { 2 * at } as u16, device))
    }

    /// Returns the region of a part.
    fn region(&self, directory: &Path, part: Part) -> Result<u16> {
        if part == Part::Host {
            return Ok(self.host_region());
        }
        let (first, _) = self.device(directory).ok_or_else(|| Error::missing(directory))?;
        Ok(if part == Part::Log { first + 1 } else { first })
    }

    /// Whether the directory belongs to a missing device.
    fn is_lost(&self, directory: &Path) -> bool {
        self.lost.is_some() && self.device(directory).is_some_and(|(_, device)| Some(device) == self.lost)
    }

    /// Opens the pool of the image that starts at this recorder's region, or creates a new one.
    fn pool(
        &self,
        recorder: Recorder,
        image: Option<&SimImage>,
        (engine, format): (&str, u32),
        options: PoolOptions,
    ) -> Result<(Arc<Pool>, OpenReport)> {
        match image {
            Some(image) => Pool::open_sim_on(recorder, image, engine, format, options),
            None => Pool::create_sim_on(recorder, &self.spec, engine, format, options),
        }
    }

    /// Returns the shape of a store of this many bytes.
    fn part(&self, bytes: u64, mode: OpenMode) -> Shape {
        let mode = if mode == OpenMode::Salvage { SALVAGE_MODE_FLAG } else { 0 };
        Shape { capacity: bytes, region_bytes: bytes, partitions: 1, mode, ..self.shape }
    }

    /// Returns the shape of a log and of the host's store.
    fn beside(&self, mode: OpenMode) -> Shape {
        self.part(LOG_POOL_BYTES, mode)
    }

    /// Checks whether a strict open of a part is granted. The open leaves no trace in the recorder.
    fn probe(&self, directory: &Path, part: Part, image: &SimImage) -> Result<()> {
        let recorder = Recorder::of_image(image);
        recorder.set_recording(false);
        let places = Self::new(&self.shape, recorder, &self.spec, Some(image.clone()));
        places.place(directory, part, Some(image), OpenMode::Strict).map(drop)
    }

    /// Opens a part of the image, or creates it.
    fn place(&self, directory: &Path, part: Part, image: Option<&SimImage>, mode: OpenMode) -> Result<Place> {
        let recorder = self.recorder.at(self.region(directory, part)?);
        let store: Arc<dyn Store> = if part == Part::Device {
            let options = hikv::options(&self.part(self.shape.capacity, mode));
            let engine = (lodestore_hikv::ENGINE, lodestore_hikv::FORMAT);
            let (pool, report) = self.pool(recorder, image, engine, options.pool.clone())?;
            Arc::new(HiKv::start(pool, &report, &options)?)
        } else {
            let options = nvht::options(&self.beside(mode));
            let (pool, report) = self.pool(recorder, image, NVHT, options.pool.clone())?;
            if part == Part::Host {
                *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&pool));
            }
            Arc::new(Nvht::start(pool, &report, &options)?)
        };
        Ok(Place { store, is_memory: true })
    }

    fn start(self, store: Mkvs, losses: Losses) -> Result<Box<dyn Subject>> {
        let host = self.host.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pool = host.ok_or_else(|| Error::corrupt("mkvs", "it has not asked for the host's store"))?;
        let store = Arc::new(store);
        let keeper = Arc::clone(&store);
        let sweep = Box::new(move || keeper.settle());
        let matrix = Arc::clone(&store);
        let inner = PoolSubject { store, pool, checkpoint_bytes: 0, optional_bytes: 0, accounts: false, sweep };
        let [replaced, added] = Default::default();
        Ok(Box::new(MatrixSubject { inner, matrix, places: self, losses, replaced, added }))
    }
}

impl Places for SimPlaces {
    fn engines(&self) -> (String, String) {
        (lodestore_hikv::ENGINE.into(), lodestore_nvht::ENGINE.into())
    }

    fn has_files(&self) -> bool {
        false
    }

    fn create(&self, directory: &Path, new: New<'_>) -> Result<Place> {
        self.next.fetch_max(self.region(directory, new.part)? + 1, Ordering::Relaxed);
        self.place(directory, new.part, None, OpenMode::Strict)
    }

    fn open(&self, directory: &Path, part: Part, _: &str, mode: OpenMode) -> Result<Place> {
        if self.is_lost(directory) {
            return Err(Error::missing(directory));
        }
        let is_salvage = self.shape.mode & SALVAGE_MODE_FLAG != 0;
        if let (true, OpenMode::Strict, Some(image)) = (is_salvage, mode, &self.image) {
            self.probe(directory, part, image)?;
        }
        self.place(directory, part, self.image.as_ref(), mode)
    }

    fn opening(&self, directory: &Path, part: Part) -> Option<u64> {
        Pool::opening_in_image(self.image.as_ref()?, self.region(directory, part).ok()?)
    }

    fn remove(&self, _: &Path, _: Part) -> Result<()> {
        Ok(())
    }
}

/// The directory of the description; devices' directories are below it.
const ROOT: &str = "matrix";

impl Engine for MkvsEngine {
    fn name(&self) -> &'static str {
        ENGINE
    }

    fn mutants(&self) -> &'static [PlantedFault] {
        faults::mkvs::OF_CRASHES
    }

    fn scripts(&self, seed: u64, round: u64) -> Vec<Script> {
        scripts::all(seed, round)
    }

    fn damage_mutants(&self) -> &'static [PlantedFault] {
        faults::mkvs::OF_DAMAGE
    }

    // The logs of devices are replayed, and sweeps are not logged.
    fn recounts_expired(&self) -> bool {
        true
    }

    fn takes_back(&self) -> bool {
        true
    }

    fn is_store_alone(&self, shape: &Shape, file: u16) -> bool {
        let (groups, devices, _) = geometry(shape);
        devices == 1 && usize::from(file) != groups
    }

    /// A failed sync is a lost device: the matrix continues.
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
            // Besides the missing device, a second one is not whole: it was still being copied
            // from a third device. Two are lost then, and the image says so.
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

/// A matrix, for the explorer.
struct MatrixSubject {
    inner: PoolSubject,
    matrix: Arc<Mkvs>,
    places: SimPlaces,
    /// The result of the open without a device.
    losses: Losses,
    /// Replaced devices, and added groups.
    replaced: AtomicU64,
    added: AtomicU64,
}

impl MatrixSubject {
    /// Replaces a device by a new one.
    fn replace(&self, group: usize, device: usize) -> Result<()> {
        let (group, device) = (group % self.matrix.status().groups, device % geometry(&self.places.shape).1);
        let directory = self.places.new_directory(device, 0);
        self.matrix.replace(group, device, &directory, Path::new(ROOT), &self.places)?;
        self.replaced.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn add_group(&self) -> Result<()> {
        let (_, devices, _) = geometry(&self.places.shape);
        let directories: Vec<_> = (0..devices).map(|device| self.places.new_directory(device, device)).collect();
        self.matrix.add_group(&directories, Path::new(ROOT), &self.places)?;
        self.added.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Subject for MatrixSubject {
    fn recorder(&self) -> &Recorder {
        self.inner.recorder()
    }

    fn store(&self) -> Option<Arc<dyn Store>> {
        self.inner.store()
    }

    fn wait_recovered(&self) -> Result<()> {
        self.inner.wait_recovered()
    }

    fn apply(&self, op: &Op) -> Result<Outcome> {
        let changed = match op {
            Op::Replace { group, device } => self.replace(*group, *device),
            Op::AddGroup => self.add_group(),
            _ => return self.inner.apply(op),
        };
        match changed {
            // Others have not caught up, or it is the only device; keys are still moving to the
            // previous group.
            Err(Error::TooFewDevices { .. } | Error::Unsupported { .. }) => Ok(Outcome::Full),
            changed => changed.map(|()| Outcome::Done),
        }
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

    fn walk(&self, walk: Walk, into: &mut Vec<Pair>) -> Result<bool> {
        self.inner.walk(walk, into)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.inner.contains(key)
    }

    fn recovery_damage(&self) -> RecoveryDamage {
        self.inner.recovery_damage()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    /// A missing device is expected.
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
        match name {
            "devices_replaced" => self.replaced.load(Ordering::Relaxed),
            "groups_added" => self.added.load(Ordering::Relaxed),
            _ => self.inner.counter(name),
        }
    }

    fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

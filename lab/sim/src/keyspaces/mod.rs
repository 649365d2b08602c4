//! Keyspaces over an engine on simulated media.
//!
//! The subject is the product's handle `Db` over the store of an engine, without the thread of the
//! reclaim: scripts remove the records of dropped keyspaces piece by piece. The model has the keys
//! of all keyspaces and the keyspaces in one map (`keyspace_keys`), so that each check of the
//! explorer sees both. `verify` also reads the stored records (`records`).

mod records;
mod scripts;
mod subject;

pub use lodestore::db::testing::Fault as KeyspaceFault;
use lodestore_contract::{Error, Result};
use lodestore_media::PlantedFault;
use lodestore_media::sim::{Rng, SimImage, SimSpec};

use crate::fluidkv::FluidEngine;
use crate::hashkv::HashEngine;
use crate::hikv::HiKvEngine;
use crate::keyspace_keys;
use crate::mkvs::MkvsEngine;
use crate::nvht::NvhtEngine;
use crate::op::Op;
use crate::script::{Script, random_op, with_conditions};
use crate::shape::Shape;
use crate::subject::{Engine, Subject};
use subject::KeyspacesSubject;

/// One in this many random operations creates or drops a keyspace, or reclaims one.
const KEYSPACE_OP_DIVISOR: u64 = 5;

/// An engine with keyspaces, and an optional planted fault of keyspaces.
#[derive(Debug, Clone, Copy)]
pub struct KeyspacesEngine<E> {
    name: &'static str,
    inner: E,
    fault: Option<KeyspaceFault>,
}

impl<E: Engine> KeyspacesEngine<E> {
    /// Returns the engine with this fault.
    #[must_use]
    pub fn with_fault(self, fault: KeyspaceFault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    fn start(&self, inner: Box<dyn Subject>) -> Result<Box<dyn Subject>> {
        let store = inner.store().ok_or_else(|| Error::corrupt(self.name, "the engine shows no store"))?;
        Ok(Box::new(KeyspacesSubject::start(inner, store, self.fault)?))
    }
}

/// HiKV with keyspaces.
pub const HIKV: KeyspacesEngine<HiKvEngine> =
    KeyspacesEngine { name: "keyspaces-hikv", inner: HiKvEngine, fault: None };
/// NVHT with keyspaces.
pub const NVHT: KeyspacesEngine<NvhtEngine> =
    KeyspacesEngine { name: "keyspaces-nvht", inner: NvhtEngine, fault: None };
/// FluidKV with keyspaces.
pub const FLUIDKV: KeyspacesEngine<FluidEngine> =
    KeyspacesEngine { name: "keyspaces-fluidkv", inner: FluidEngine, fault: None };
/// HashKV with keyspaces.
pub const HASHKV: KeyspacesEngine<HashEngine> =
    KeyspacesEngine { name: "keyspaces-hashkv", inner: HashEngine, fault: None };
/// MKVS with keyspaces.
pub const MKVS: KeyspacesEngine<MkvsEngine> =
    KeyspacesEngine { name: "keyspaces-mkvs", inner: MkvsEngine, fault: None };

/// Returns the engine of this name, with a planted fault.
pub fn by_name(name: &str, fault: Option<KeyspaceFault>) -> Option<Box<dyn Engine>> {
    match name {
        "keyspaces-hikv" => Some(Box::new(KeyspacesEngine { fault, ..HIKV })),
        "keyspaces-nvht" => Some(Box::new(KeyspacesEngine { fault, ..NVHT })),
        "keyspaces-fluidkv" => Some(Box::new(KeyspacesEngine { fault, ..FLUIDKV })),
        "keyspaces-hashkv" => Some(Box::new(KeyspacesEngine { fault, ..HASHKV })),
        "keyspaces-mkvs" => Some(Box::new(KeyspacesEngine { fault, ..MKVS })),
        _ => None,
    }
}

impl<E: Engine> Engine for KeyspacesEngine<E> {
    fn name(&self) -> &'static str {
        self.name
    }

    // The faults of keyspaces are those of [`KeyspaceFault`].
    fn mutants(&self) -> &'static [PlantedFault] {
        &[]
    }

    fn other_mutants(&self) -> &'static [PlantedFault] {
        self.inner.mutants()
    }

    fn scripts(&self, seed: u64, round: u64) -> Vec<Script> {
        scripts::all(seed, round)
    }

    fn has_own_scripts_only(&self) -> bool {
        true
    }

    fn random_op(&self, rng: &mut Rng, keys: &[Vec<u8>], most: u64) -> Op {
        let stored: Vec<Vec<u8>> = keys.iter().filter(|key| keyspace_keys::is_stored(key)).cloned().collect();
        if stored.is_empty() || rng.one_in(KEYSPACE_OP_DIVISOR) {
            return scripts::keyspace_op(rng);
        }
        with_conditions(random_op(rng, &stored, most), &[])
    }

    fn sees_failed_syncs(&self) -> bool {
        self.inner.sees_failed_syncs()
    }

    fn takes_back(&self) -> bool {
        self.inner.takes_back()
    }

    fn recounts_expired(&self) -> bool {
        self.inner.recounts_expired()
    }

    fn create(&self, spec: &SimSpec, shape: &Shape) -> Result<Box<dyn Subject>> {
        self.start(self.inner.create(spec, shape)?)
    }

    fn open(&self, image: &SimImage, shape: &Shape) -> Result<Box<dyn Subject>> {
        self.start(self.inner.open(image, shape)?)
    }
}

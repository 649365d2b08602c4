//! The setups of the NVHT paper (JPDC 2018, section 5). Only the introduction of its text is
//! available. The introduction says what was measured, but not the numbers of the figures, so the
//! presets are named after the varied parameter. Sizes are those of its authors' programs. NVHT ran
//! on an NVDIMM, so nothing is added to a persist.

/// The common arguments of its experiments, appended to their own.
macro_rules! nvdimm {
    ($own:literal) => {
        concat!($own, " --key-size 16 --value-size 64 --records 1000000 --emulate-dax")
    };
}

/// With the authors' settings (`-paper`) and usual settings. None of these peers persists as NVHT
/// does here.
pub(super) const INSERT_SEARCH: &str = nvdimm!(
    "--engine nvht --peers leveldb-paper,leveldb,bdb-hash-paper,bdb-hash,bdb-btree-paper,hikv,hashmap --workloads load,get --threads 1 --rounds 3"
);

/// Inserts and searches by several threads, and both together as in workload A: half of its
/// operations read, half replace.
pub(super) const THREADS: &str = nvdimm!(
    "--engine nvht --peers leveldb,bdb-hash,hikv,hashmap --workloads load,get,a --ops 200000 --sweep threads=1,2,4,8 --rounds 1"
);

/// Random updates.
pub(super) const REDIS: &str = nvdimm!(
    "--engine nvht --peers redis,redis-aof,redis-sync,hashmap --workloads load,update --ops 200000 --threads 1 --rounds 3"
);

pub(super) const PROBE_LENGTH: &str = nvdimm!(
    "--engine nvht --peers none --workloads load,get,update,delete --threads 1 --sweep probe-length=14,28,56,112,224,448 --rounds 1"
);

pub(super) const LOAD_FACTOR: &str = nvdimm!(
    "--engine nvht --peers none --workloads load,get,update,delete --threads 1 --sweep load-factor=0.5,0.65,0.8,0.9,0.95 --rounds 1"
);

pub(super) const INITIAL_CAPACITY: &str = nvdimm!(
    "--engine nvht --peers none --workloads load,get,update,delete --threads 1 --sweep initial-capacity=8192,131072,2097152 --rounds 1"
);

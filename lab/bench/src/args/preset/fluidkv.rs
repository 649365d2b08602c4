//! The setups of the FluidKV paper (PVLDB 2024), as far as its abstract and its authors' code
//! describe them: puts, gets and DRAM of small records, of which they load 200 M. Its competitors
//! (ListDB, FlatStore) are not available. `hikv` is closest to FlatStore, because its whole order
//! is in DRAM.

/// 8 + 8 bytes, as in the authors' program.
pub(super) const THREADS: &str = "--engine fluidkv --peers hikv,nvht,btreemap,lmdb,rocksdb --workloads load,get,overwrite,scan --key-size 8 --value-size 8 \
     --records 1000000 --ops 200000 --scan-length 100 --sweep threads=1,2,4 --rounds 1 --emulate-dax --durability process";

pub(super) const VALUE_SIZE: &str = "--engine fluidkv --peers hikv,nvht,btreemap,lmdb,rocksdb --workloads load,get,overwrite --key-size 8 \
     --records 1000000 --ops 200000 --threads 1 --sweep value-size=8,64,256,1024 --rounds 1 --emulate-dax --durability process";

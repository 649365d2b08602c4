//! The setups of the HiKV paper (ATC 2017, section 4): keys of 16 bytes and values of 256, a wait
//! of 600 ns after each persist. The paper loads 50 M records and runs 50 M operations on 16 cores.
//! Here there are 1 M records, or a tenth of the paper's shape, on two cores.
//!
//! Its competitors (NVStore, FPTree) are not available. The other engines that change persistent
//! memory run instead, and maps and peers, to which no emulated latency applies.

/// The common arguments of its experiments, appended to their own.
macro_rules! emulated {
    ($own:literal) => {
        concat!($own, " --key-size 16 --value-size 256 --emulate-dax --persist-ns 600 --durability process")
    };
}

/// The five kinds of operations separately, without emulation: each store's native speed.
pub(super) const MICRO: &str = "--engine hikv --peers nvht,fluidkv,hashkv,mkvs,btreemap,hashmap,lmdb,rocksdb,leveldb,fjall \
     --workloads load,get,update,delete,scan --records 1000000 --ops 200000 --key-size 16 --value-size 256 --scan-length 50 --threads 1 --rounds 3 \
     --durability process";

/// A serving thread and a background thread. A scan reads 50 records, the mean of the paper's scans
/// of fewer than 100.
pub(super) const FIG5: &str = emulated!(
    "--engine hikv:backends=1 --peers nvht,fluidkv,btreemap,hashmap,lmdb,rocksdb --workloads load,get,update,delete,scan \
     --records 1000000 --ops 200000 --scan-length 50 --threads 1 --rounds 3"
);

/// HiKV's serving thread and its backend are two threads. To be equal in writes, the other stores
/// need two serving threads. Both numbers of threads are therefore run.
pub(super) const FIG6: &str = emulated!(
    "--engine hikv:backends=1 --peers nvht,fluidkv,btreemap,hashmap,lmdb,rocksdb --workloads load,get,update,delete,scan \
     --records 1000000 --ops 200000 --scan-length 50 --sweep threads=1,2 --rounds 1"
);

pub(super) const FIG7: &str = emulated!(
    "--engine hikv --peers nvht,fluidkv,btreemap,lmdb,rocksdb --workloads load,a,b,c,d,e,f --records 1000000 --ops 100000 --sweep threads=1,2,4,8 \
     --rounds 1"
);

/// Latencies of the paper's axis. Only stores to which they apply.
pub(super) const FIG8: &str = emulated!(
    "--engine hikv --peers nvht,fluidkv --workloads load,update,delete --records 1000000 --ops 200000 --threads 1 \
     --sweep persist-ns=50,200,600,1000,1400 --rounds 1"
);

/// The paper's data also grow 25 times.
pub(super) const FIG9: &str = emulated!(
    "--engine hikv --peers nvht,fluidkv --workloads load,update,delete --ops 200000 --threads 1 --sweep records=200000,1000000,5000000 --rounds 1"
);

/// `HiKV_sync`, `HiKV_par` and `HiKV_wal`.
pub(super) const FIG10: &str = emulated!(
    "--engine hikv --peers hikv:update=sync,hikv:tree=partitioned,hikv:wal=on --workloads load --records 1000000 --threads 1 \
     --sweep persist-ns=50,200,600,1000,1400 --rounds 1"
);

/// Four threads in total instead of the paper's 16: its 8-8 is two and two here, its 12-4 two and
/// one, because the bench provides the serving threads.
pub(super) const FIG11: &str = emulated!(
    "--engine hikv:threads=4 --peers hikv:backends=2,hikv:backends=1 --workloads load,a,b,c,d,e,f --records 1000000 --ops 200000 --threads 2 \
     --rounds 3"
);

/// 60 ns more are twice the 60 ns of DRAM that the paper states. Only stores whose records wait.
pub(super) const FIG12: &str = emulated!(
    "--engine hikv --peers nvht --workloads load,get,update,delete,scan --records 1000000 --ops 200000 --scan-length 50 --threads 1 \
     --sweep read-ns=0,60,120 --rounds 1"
);

pub(super) const FIG13: &str = emulated!(
    "--engine hikv --peers nvht,fluidkv,btreemap,lmdb,rocksdb --workloads load --records 1000000 --threads 1 \
     --sweep value-size=64,128,256,512,1024 --rounds 1"
);

//! The set-ups of the HiKV paper (ATC 2017, section 4): keys of 16 bytes and values of 256, 600 ns of waiting behind each persist. It loads 50 M records and runs 50 M
//! operations on 16 cores; here it is 1 M records, or a tenth of the paper's shape, on two. Its competitors (NVStore, FPTree) are not to be had: beside it run the
//! other engines that change persistent memory, and maps and stores of others, which feel no emulated latency.

/// What all of its experiments have in common, behind what is their own.
macro_rules! emulated {
    ($own:literal) => {
        concat!($own, " --key-size 16 --value-size 256 --emulate-dax --persist-ns 600 --durability process")
    };
}

/// The five kinds of operations by themselves, nothing emulated: what each store does with them as it is.
pub(super) const MICRO: &str = "--engine hikv --peers nvht,fluidkv,hashkv,mkvs,btreemap,hashmap,lmdb,rocksdb,leveldb,fjall \
     --workloads load,get,update,delete,scan --records 1000000 --ops 200000 --key-size 16 --value-size 256 --scan-length 50 --threads 1 --rounds 3 \
     --durability process";

/// One serving thread and one behind it. A scan is of 50 records, the mean of the paper's, which are of fewer than 100.
pub(super) const FIG5: &str = emulated!(
    "--engine hikv:backends=1 --peers nvht,fluidkv,btreemap,hashmap,lmdb,rocksdb --workloads load,get,update,delete,scan \
     --records 1000000 --ops 200000 --scan-length 50 --threads 1 --rounds 3"
);

/// HiKV's serving thread and its backend are two threads: the others have two in its writes. So both are run.
pub(super) const FIG6: &str = emulated!(
    "--engine hikv:backends=1 --peers nvht,fluidkv,btreemap,hashmap,lmdb,rocksdb --workloads load,get,update,delete,scan \
     --records 1000000 --ops 200000 --scan-length 50 --sweep threads=1,2 --rounds 1"
);

pub(super) const FIG7: &str = emulated!(
    "--engine hikv --peers nvht,fluidkv,btreemap,lmdb,rocksdb --workloads load,a,b,c,d,e,f --records 1000000 --ops 100000 --sweep threads=1,2,4,8 \
     --rounds 1"
);

/// Of the latencies of the paper's axis. Only stores that feel them.
pub(super) const FIG8: &str = emulated!(
    "--engine hikv --peers nvht,fluidkv --workloads load,update,delete --records 1000000 --ops 200000 --threads 1 \
     --sweep persist-ns=50,200,600,1000,1400 --rounds 1"
);

/// The paper's data grow 25 times too.
pub(super) const FIG9: &str = emulated!(
    "--engine hikv --peers nvht,fluidkv --workloads load,update,delete --ops 200000 --threads 1 --sweep records=200000,1000000,5000000 --rounds 1"
);

/// `HiKV_sync`, `HiKV_par` and `HiKV_wal`.
pub(super) const FIG10: &str = emulated!(
    "--engine hikv --peers hikv:update=sync,hikv:tree=partitioned,hikv:wal=on --workloads load --records 1000000 --threads 1 \
     --sweep persist-ns=50,200,600,1000,1400 --rounds 1"
);

/// Four threads in all where the paper has 16: its 8-8 is two and two here, its 12-4 two and one, as serving threads are the bench's.
pub(super) const FIG11: &str = emulated!(
    "--engine hikv:threads=4 --peers hikv:backends=2,hikv:backends=1 --workloads load,a,b,c,d,e,f --records 1000000 --ops 200000 --threads 2 \
     --rounds 3"
);

/// 60 ns more are twice the 60 ns of DRAM that the paper says. Only stores whose records wait.
pub(super) const FIG12: &str = emulated!(
    "--engine hikv --peers nvht --workloads load,get,update,delete,scan --records 1000000 --ops 200000 --scan-length 50 --threads 1 \
     --sweep read-ns=0,60,120 --rounds 1"
);

pub(super) const FIG13: &str = emulated!(
    "--engine hikv --peers nvht,fluidkv,btreemap,lmdb,rocksdb --workloads load --records 1000000 --threads 1 \
     --sweep value-size=64,128,256,512,1024 --rounds 1"
);

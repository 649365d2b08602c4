//! The setups of the HashKV paper (ATC 2018): update phases and their parameters.

/// Pairs of 1 KiB, including the 8 bytes of length that the paper counts; 30 % of the data as
/// reserve.
pub(super) const P123: &str = "--engine hashkv --peers hashkv:mode=vlog,hashkv:mode=nosep,rocksdb,blobdb,leveldb \
     --workloads load,zipfput,zipfput,zipfput --key-size 24 --value-size 992 --records 1048576 --reserve 30 --threads 1 --rounds 1 \
     --durability process --write-buffer 16M --budget 64M --memory 768M --latency-every 1";

/// Some reserves are too small for one of the stores.
pub(super) const RESERVE: &str = "--engine hashkv --peers hashkv:mode=vlog --workloads load,zipfput,zipfput --key-size 24 --value-size 992 --load-bytes 1G \
     --sweep reserve=20,30,40,50,70,90 --threads 1 --rounds 1 --durability process --write-buffer 16M --budget 64M --memory 768M --go-on";

/// Values from below `separate-from` to a quarter of a segment.
pub(super) const VALUE_SIZE: &str = "--engine hashkv --peers hashkv:mode=vlog,hashkv:mode=nosep,rocksdb,blobdb --workloads load,zipfput,zipfput --key-size 24 \
     --load-bytes 128M --reserve 100 --sweep value-size=100,1000,4096,16384 --threads 1 --rounds 1 --durability process --write-buffer 8M --budget 32M \
     --memory 256M --go-on";

/// All values separated, and none. The page cache holds all data.
pub(super) const THRESHOLD: &str = "--engine hashkv:separate-from=32 --peers hashkv:mode=nosep --workloads load,zipfput,zipfput,get,scan --key-size 24 \
     --load-bytes 96M --reserve 100 --sweep value-size=64,128,192,256,384,512,1024 --scan-length 50 --threads 1 --rounds 1 --durability process \
     --write-buffer 8M --budget 32M --go-on";

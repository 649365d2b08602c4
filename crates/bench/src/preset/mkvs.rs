//! The set-ups of the MKVS paper (Micromachines 2019).

/// The paper says 1,000 pairs and operations, and that YCSB made them, whose own size of a record is ten fields of 100 bytes.
pub(super) const TABLES: &str = "--engine mkvs:groups=2:devices=2 \
     --peers mkvs:groups=2:devices=2:acks=one:reads=race-all:filter=on:inline=off,mkvs:groups=2:devices=2:reads=single:filter=on:inline=off,\
     mkvs:groups=1:devices=1:filter=off,redis,memcached,rocksdb,lmdb \
     --workloads load,b,a --key-size 24 --value-size 1000 --records 1000 --sweep threads=1,2,4,8,16 --rounds 11 --latency-every 1 --warm-up 0 --at-least 0";

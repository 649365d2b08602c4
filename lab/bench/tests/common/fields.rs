//! Every workload with its own end, and the required fields of each row.

pub const ALL: &str = "load,get,absent,multiget,update,overwrite,zipfput,delete,scan,a,b,c,d,e,f";
pub const FIELDS: [&str; 20] = [
    "store",
    "workload",
    "threads",
    "records",
    "ops",
    "ops_per_s",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "dram_bytes_per_key",
    "medium_bytes_per_key",
    "flushes_per_op",
    "fences_per_op",
    "medium",
    "durability",
    "settings",
    "seed",
    "spread",
    "command",
];

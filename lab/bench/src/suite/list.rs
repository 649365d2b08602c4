//! The experiments: their questions, their runs at each scale, and their expected time.

use std::time::Duration;

use clap::ValueEnum;

use super::metric::Measure;
use super::presets::of_preset;
use super::run::without;
use crate::args::preset::Preset;

/// The amount of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Almost nothing, in a minute or two: shows that everything runs. Its numbers mean nothing.
    Tiny,
    /// 30,000 records and about ten thousand operations in most rows, three rounds each, in under
    /// 15 minutes.
    #[default]
    Small,
    /// 150,000 to 300,000 records in most rows, three rounds each, in under two hours. Of the
    /// papers' setups, `hashkv-p123` (one round), `hashkv-threshold` and `mkvs-tables` have their
    /// presets' size. The others are smaller; each record states its size.
    Full,
}

impl Scale {
    /// Returns its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Full => "full",
        }
    }

    /// Returns the milliseconds of each workload in an open loop.
    pub(super) fn open_ms(self) -> u64 {
        match self {
            Self::Tiny => 100,
            Self::Small => 400,
            Self::Full => 3000,
        }
    }
}

/// The medium of an experiment's stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Medium {
    /// The directory in memory.
    Memory,
    /// The directory on a disk.
    Disk,
}

impl Medium {
    /// Returns the variable for its directory in the recorded commands.
    pub(super) fn variable(self) -> &'static str {
        match self {
            Self::Memory => "$MEMORY",
            Self::Disk => "$DISK",
        }
    }
}

/// The plot of an experiment, by its name in `runs.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Draw {
    Rates,
    Latency,
    Memory,
    /// The progress of each store, for which the experiment also has a timeline.
    Timeline,
}

/// A run of the bench in an experiment.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// Its words, to which the words of the scale are added.
    pub(super) words: String,
    /// Whether it is an open loop, at half the minimum rate of the previous run.
    pub(super) open: bool,
}

impl Run {
    pub(super) fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), open: false }
    }
}

/// An experiment's additional words at a scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) words: &'static str,
    /// Expected seconds of the whole experiment.
    pub(super) seconds: u64,
}

/// An experiment.
#[derive(Debug, Clone)]
pub(super) struct Experiment {
    /// Its name on the command line and of its files.
    pub(super) name: String,
    pub(super) title: String,
    /// The question that it answers.
    pub(super) question: String,
    pub(super) medium: Medium,
    pub(super) runs: Vec<Run>,
    pub(super) small: Size,
    pub(super) full: Size,
    /// The measures that compare stores, the first for the summary.
    pub(super) measures: Vec<Measure>,
    /// The plot of its results.
    pub(super) draw: Option<Draw>,
    /// The preset that it runs.
    pub(super) preset: Option<Preset>,
}

/// The option for which the size of an experiment may have another value.
const SWEEP: &str = "--sweep";

/// The words of every experiment at scale tiny.
const TINY: Size = size("--records 400 --ops 200 --rounds 1 --memory 0 --warm-up 0 --at-least 0", 3);

/// The same for experiments in which a relative reserve of so little data would be too small for a
/// store.
const TINY_WITH_ROOM: Size =
    size("--records 400 --ops 200 --rounds 1 --memory 0 --size 256M --warm-up 0 --at-least 0", 3);

/// The same if that reserve is swept, in percent of the loaded data.
const TINY_RESERVES: Size = size(
    "--records 400 --ops 200 --rounds 1 --memory 0 --write-buffer 1M --sweep reserve=5000,10000 --warm-up 0 --at-least 0",
    2,
);

impl Experiment {
    /// Returns its words at this scale.
    pub(super) fn size(&self, scale: Scale) -> Size {
        match scale {
            Scale::Tiny if self.has_word("--reserve") => TINY_WITH_ROOM,
            Scale::Tiny if self.has_word("reserve=") => TINY_RESERVES,
            Scale::Tiny => TINY,
            Scale::Small => self.small,
            Scale::Full => self.full,
        }
    }

    /// Returns the words of one of its runs at this scale. A sweep of the scale replaces the sweep
    /// of the run.
    pub(super) fn words(&self, run: &Run, scale: Scale) -> String {
        let size = self.size(scale).words;
        let own = if size.contains(SWEEP) { without(&run.words, SWEEP).0 } else { run.words.clone() };
        format!("{own} {size}")
    }

    /// Returns whether the words of its preset contain this.
    fn has_word(&self, word: &str) -> bool {
        self.preset.is_some_and(|preset| preset.words().contains(word))
    }

    /// Returns its expected time.
    pub(super) fn expected(&self, scale: Scale) -> Duration {
        Duration::from_secs(self.size(scale).seconds)
    }
}

/// Every engine, and every peer that survives its process, in memory. redb survives only with a
/// sync of each write. No map in DRAM.
macro_rules! process {
    () => {
        "--engine hikv --peers nvht,fluidkv,hashkv,mkvs,rocksdb,blobdb,leveldb,redb-sync,fjall,lmdb"
    };
}

/// The same, and the stores with weaker durability, which have their own tables.
macro_rules! every {
    () => {
        concat!(process!(), ",redb,sled,bdb-btree,bdb-hash,btreemap,hashmap")
    };
}

/// Words of scale small: three rounds of workloads of at least a twentieth of a second, including
/// their warm-up. A quarter of a second in each of some 4,000 workloads would exceed the time of
/// the scale.
macro_rules! briefly {
    ($words:literal) => {
        concat!($words, " --rounds 3 --warm-up 10 --at-least 40")
    };
}
pub(super) use briefly;

/// Returns an experiment of one run in memory that compares rates.
pub(super) fn rates(name: &str, title: &str, question: &str, words: &'static str, sizes: [Size; 2]) -> Experiment {
    Experiment {
        name: name.into(),
        title: title.into(),
        question: question.into(),
        medium: Medium::Memory,
        runs: vec![Run::new(words)],
        small: sizes[0],
        full: sizes[1],
        measures: vec![Measure::Rate],
        draw: Some(Draw::Rates),
        preset: None,
    }
}

pub(super) const fn size(words: &'static str, seconds: u64) -> Size {
    Size { words, seconds }
}

/// Presets whose workloads another experiment runs with more stores.
pub(super) const COVERED: [Preset; 2] = [Preset::Ycsb, Preset::HikvMicro];

/// Returns all experiments, in the order in which they run: this suite's own, then one for each
/// preset that they do not cover.
pub(super) fn experiments() -> Vec<Experiment> {
    let mut all = vec![
        micro(),
        ycsb(),
        power(),
        servers(),
        scaling(),
        sizes(),
        facebook(),
        over_time(),
        open_loop(),
        reopen(),
        memory(),
    ];
    let presets = Preset::value_variants().iter().filter(|preset| !COVERED.contains(preset));
    all.extend(presets.map(|preset| of_preset(*preset)));
    all
}

fn micro() -> Experiment {
    rates(
        "micro",
        "Single operations in memory",
        "What does one thread do a second of each operation, where an acknowledged write survives the process?",
        concat!(every!(), " --workloads load,get,multiget,update,delete,scan"),
        [size(briefly!("--records 30000 --ops 10000"), 36), size("--records 300000 --ops 100000 --rounds 3", 320)],
    )
}

fn ycsb() -> Experiment {
    rates(
        "ycsb",
        "YCSB A to F in memory",
        "The same stores under the six mixes of YCSB, whose hot records are drawn from a zipfian of 0.99.",
        concat!(every!(), " --workloads load,a,b,c,d,e,f"),
        [size(briefly!("--records 30000 --ops 10000"), 36), size("--records 300000 --ops 100000 --rounds 3", 270)],
    )
}

fn power() -> Experiment {
    Experiment {
        medium: Medium::Disk,
        ..rates(
            "power",
            "Writes that survive a power failure, on a disk",
            "What is left where each acknowledged write has been synced? The load is not: it survives the process, and has a table of its own.",
            "--engine hikv --peers nvht,fluidkv,hashkv,mkvs,rocksdb,blobdb,leveldb,redb,sled,fjall,lmdb --durability power --load-durability process \
             --workloads load,get,update,delete,a --threads 4",
            [size(briefly!("--records 2500 --ops 1000"), 24), size("--records 16000 --ops 6500 --rounds 3", 165)],
        )
    }
}

fn servers() -> Experiment {
    rates(
        "servers",
        "Servers over a unix socket",
        "What do the servers answer whose clients wait for each answer? The engines work in the caller's own process: the socket is most of the difference.",
        "--engine hikv --peers mkvs,redis-aof,redis,memcached --workloads load,get,multiget,update,a --threads 2",
        [size(briefly!("--records 30000 --ops 15000"), 30), size("--records 200000 --ops 100000 --rounds 3", 140)],
    )
}

fn scaling() -> Experiment {
    rates(
        "scaling",
        "Threads",
        "What do 2 and 4 threads do that one does not? With more threads than processors this is what waiting costs.",
        concat!(process!(), " --workloads load,get,update,a --sweep threads=1,2,4"),
        [
            size(briefly!("--records 20000 --ops 10000 --sweep threads=1,4"), 38),
            size("--records 200000 --ops 50000 --rounds 3", 300),
        ],
    )
}

fn sizes() -> Experiment {
    rates(
        "value-sizes",
        "Sizes of values",
        "From where on do bytes cost more than operations?",
        concat!(process!(), " --workloads load,get,update --sweep value-size=16,64,256,1024,4096,16384"),
        [
            size(briefly!("--records 5000 --ops 5000 --sweep value-size=16,256,4096"), 31),
            size("--records 30000 --ops 30000 --rounds 3", 320),
        ],
    )
}

fn facebook() -> Experiment {
    rates(
        "facebook",
        "Facebook's mix of sizes",
        "Keys and values of the sizes that Facebook's memcached met (pool ETC), of some 330 bytes in the mean and a long tail.",
        concat!(process!(), " --key-size facebook --value-size facebook --workloads load,get,update,b"),
        [size(briefly!("--records 30000 --ops 15000"), 20), size("--records 200000 --ops 80000 --rounds 3", 95)],
    )
}

fn over_time() -> Experiment {
    Experiment {
        draw: Some(Draw::Timeline),
        ..rates(
            "over-time",
            "Throughput over time",
            "Does a store that is overwritten again and again stay as fast as it began? The plot has the rate of each 100 ms.",
            "--engine hikv --peers nvht,fluidkv,hashkv,mkvs,rocksdb,blobdb,leveldb,fjall,lmdb --workloads load,overwrite",
            [
                size("--records 20000 --ops 150000 --rounds 3 --warm-up 0 --at-least 0", 20),
                size("--records 200000 --ops 2000000 --rounds 3 --warm-up 0 --at-least 0", 140),
            ],
        )
    }
}

fn open_loop() -> Experiment {
    Experiment {
        runs: vec![
            Run::new(concat!(process!(), " --workloads load,a")),
            Run { open: true, ..Run::new(concat!(process!(), " --workloads load,a,b")) },
        ],
        measures: vec![Measure::P99, Measure::P999],
        ..rates(
            "open-loop",
            "Latency at a fixed rate",
            "How long does an operation take from when it was due, where all stores are asked at one rate: half of what the slowest of them does in a closed loop?",
            "",
            [size(briefly!("--records 20000 --ops 10000"), 57), size("--records 200000 --ops 60000 --rounds 3", 370)],
        )
    }
}

fn reopen() -> Experiment {
    Experiment {
        measures: vec![Measure::Open, Measure::FirstGet, Measure::Recovered],
        draw: None,
        ..rates(
            "reopen",
            "Opening a store again",
            "How long until a store serves again after a clean stop, and after the kill of a process that writes? Every record is read back; any value of it counts.",
            concat!(process!(), " --workloads load --reopen"),
            [size(briefly!("--records 25000 --ops 1000"), 45), size("--records 300000 --ops 1000 --rounds 3", 230)],
        )
    }
}

fn memory() -> Experiment {
    Experiment {
        measures: vec![Measure::Dram, Measure::Medium, Measure::Written],
        draw: Some(Draw::Memory),
        ..rates(
            "memory",
            "DRAM, bytes on the medium, bytes written",
            "What does a record of 16 + 256 bytes take of DRAM and of the medium, and how many bytes are written for each that is put, each store settled after a workload?",
            concat!(every!(), " --workloads load,update"),
            [
                // The same number of updates for each store.
                size("--records 40000 --ops 40000 --rounds 3 --warm-up 0 --at-least 0", 25),
                size("--records 500000 --ops 100000 --rounds 3 --warm-up 0 --at-least 0", 190),
            ],
        )
    }
}

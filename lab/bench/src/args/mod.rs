//! The command line of `bench`.

pub(crate) mod command;
pub(crate) mod pace;
pub(crate) mod preset;
pub(crate) mod refusals;
pub(crate) mod settings;
pub(crate) mod sweep;

use std::path::{Path, PathBuf};

use lodestore::stats::parse_size;
use lodestore_contract::{Durability, Error, Result};

use crate::args::preset::Preset;
use crate::args::sweep::Sweep;
use crate::peers;
use crate::store_name;
use crate::workload::Workload;
use crate::workload::keys::{KEY_BYTES_MAX, KEY_BYTES_MIN};
use crate::workload::open_loop::Arrivals;
use crate::workload::sizes::{Of, Size};

/// Maximum number of records and operations together: record numbers have 32 bits.
const NUMBERS_MAX: u64 = 1 << 31;
/// Maximum bytes of a value.
const VALUE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of serving threads.
const THREADS_MAX: usize = 1024;
/// Maximum overload or idle time, in seconds: a day.
const SECONDS_MAX: u64 = 86_400;
/// Maximum warm-up time, and maximum of `--at-least`, in milliseconds: a minute.
const AT_LEAST_MILLIS_MAX: u64 = 60_000;
/// Minimum DRAM budget. Below it no store has enough space for its buffers.
const BUDGET_BYTES_MIN: u64 = 1 << 20;
/// Minimum bytes of a write buffer.
const WRITE_BUFFER_BYTES_MIN: u64 = 64 << 10;
/// Minimum limit on the memory of a process: the bench itself uses some MiB.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// Maximum reserve, in percent of the loaded data.
const RESERVE_PERCENT_MAX: u64 = 10_000;
/// Maximum operations per second of an open loop: one per nanosecond.
const RATE_MAX: u64 = 1_000_000_000;
/// Maximum keys of one `multiget` call.
const MULTIGET_KEYS_MAX: usize = 4096;

/// How strictly returned values are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Check {
    /// Length, first and last words.
    #[default]
    Ends,
    /// Every byte, and the order of scanned keys. Slows the run.
    Full,
}

/// Workloads after which the stores settle: flush their buffers, and do the compactions that are
/// due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Settle {
    /// After none: the next workload begins during that work.
    Never,
    /// After the load.
    Load,
    /// After each workload.
    #[default]
    Each,
}

/// Arguments of `lodestore-bench run`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Use the arguments of a named experiment, except those given on the command line.
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// Store to measure: an engine of this build, with its own options as in --peers, or a peer.
    #[arg(long, default_value = lodestore::options::DEFAULT_ENGINE)]
    pub engine: String,
    /// Directory on the medium to measure. A new directory is created in it, and removed at the
    /// end.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Workloads, in the order in which they run: load get absent multiget update overwrite zipfput
    /// delete scan, a to f of YCSB, overload and idle. The load always runs, and runs first.
    /// Another workload may be named again: its second turn is `a-2`.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "load,get,multiget,update,delete,scan")]
    pub workloads: Vec<Workload>,
    /// Records loaded.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub records: u64,
    /// Bytes of keys and values to load, such as 1G, instead of --records.
    #[arg(long, value_name = "SIZE", conflicts_with = "records", value_parser = parse_size)]
    pub load_bytes: Option<u64>,
    /// Operations of each workload except load; defaults to the number of records.
    #[arg(long, value_name = "N")]
    pub ops: Option<u64>,
    /// Bytes of a key: a number, a range with uniformly distributed sizes (16..64, both included),
    /// or facebook: the published mix of Facebook's memcached (pool ETC).
    #[arg(long, visible_alias = "key", value_name = "BYTES", default_value_t = Size::Fixed(16))]
    pub key_size: Size,
    /// Bytes of a value, in the same formats. An update keeps the size of its record.
    #[arg(long, visible_alias = "value", value_name = "BYTES", default_value_t = Size::Fixed(256))]
    pub value_size: Size,
    /// Percent of each value that repeats one byte, in short runs, so that the value compresses.
    /// The rest is random.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub compressible: u8,
    /// Records of a scan in workload scan.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub scan_length: u16,
    /// Keys of one call in workload multiget.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub multiget: usize,
    /// Serving threads.
    #[arg(long, value_name = "T", default_value_t = 1)]
    pub threads: usize,
    /// Open loop: operations per second, of all threads together, that are due regardless of the
    /// store's speed. Latencies begin when an operation was due, and every operation is timed. The
    /// load runs at full speed; not for multiget, overload and idle. Without this option each
    /// thread sends its next operation after a reply.
    #[arg(long, value_name = "OPS")]
    pub rate: Option<u64>,
    /// When the operations of --rate are due.
    #[arg(long, value_enum, default_value_t)]
    pub arrivals: Arrivals,
    /// Repetitions, with the stores interleaved. Results are medians.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Seed of keys and operations.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Maximum bytes of the store, such as 8G; defaults to enough for the records.
    #[arg(long, value_parser = parse_size)]
    pub size: Option<u64>,
    /// Free space of an engine, in percent of the loaded keys and values: at 30 its capacity is 1.3
    /// times the data. Peers have no capacity.
    #[arg(long, value_name = "PERCENT", conflicts_with = "size")]
    pub reserve: Option<u32>,
    /// Failures that an acknowledged write survives: process, power or interval:MS. A peer with a
    /// weaker durability is used with each write synced, or refused. Default: process for the
    /// engine, and each peer's own.
    #[arg(long)]
    pub durability: Option<Durability>,
    /// Durability of the load, if a weaker one is enough. The store is then closed, and opened
    /// again with --durability before the other workloads. A map in DRAM stays open.
    #[arg(long, value_name = "LEVEL")]
    pub load_durability: Option<Durability>,
    /// Bytes of DRAM for every store that accepts a budget, such as 256M: an engine's structures, a
    /// peer's buffers and caches.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub budget: Option<u64>,
    /// Bytes of a write buffer, for every store that accepts its size: the option memtable-bytes of
    /// an engine, each of two buffers of a peer. A peer's cache uses the rest of --budget, which
    /// must hold two buffers and a MiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub write_buffer: Option<u64>,
    /// Maximum memory of each store's process, such as 768M, including the page cache of its files
    /// and the bench's operations and keys. Uses a control group (cgroup v1 or v2), which usually
    /// requires root. With less memory than data the disk is really read. 0 removes the limit of a
    /// preset.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Workloads after which the stores flush their buffers and do the compactions that are due.
    #[arg(long, value_enum, default_value_t)]
    pub settle: Settle,
    /// Duration of each workload overload or idle.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub seconds: u64,
    /// Treat the mapping as DAX on any medium, so that every flush and fence is executed.
    #[arg(long)]
    pub emulate_dax: bool,
    /// Nanoseconds to wait after each fence, to emulate slower memory.
    #[arg(long, value_name = "NS", default_value_t = 0)]
    pub persist_ns: u64,
    /// Peers to measure with the engine, or none. Peers and engines, also an engine with options,
    /// such as fluidkv:value-threshold=0 (several options are separated by further colons).
    /// Default: btreemap, and none with a sweep.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub peers: Option<Vec<String>>,
    /// An option of the engine, as name=value. May be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Run the workloads for each of these values of an engine's option, or of a number of the
    /// bench. The numbers are threads, records, ops, rate, key-size, value-size, multiget,
    /// persist-ns, budget, write-buffer, load-bytes and reserve. Of the given peers, only those to
    /// which the parameter applies run. A row has its value.
    #[arg(long, value_name = "NAME=V1,V2,...")]
    pub sweep: Option<Sweep>,
    /// Pause the load at these numbers of records, and record the store's statistics there.
    #[arg(long, value_name = "N1,N2,...", value_delimiter = ',')]
    pub steps: Vec<u64>,
    /// Time every N-th operation of a thread for the latencies; 1 for all, 0 for none.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub latency_every: u32,
    /// Before each repeatable workload (get, absent, multiget, update, scan, a, b, c and f), run it
    /// unmeasured for this many milliseconds; 0 for no warm-up.
    #[arg(long, value_name = "MS", default_value_t = 50)]
    pub warm_up: u64,
    /// Measure each of these workloads for at least about this many milliseconds. If --ops
    /// operations would end earlier, by the rate of the warm-up, more operations are run (at most a
    /// million). 0 runs exactly --ops operations, which is the default if --ops is swept. An open
    /// loop has its own length.
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pub at_least: u64,
    /// How strictly returned values are checked.
    #[arg(long, value_enum, default_value_t)]
    pub check: Check,
    /// Also measure reopening: after a clean stop, and after a kill of a writing process.
    #[arg(long)]
    pub reopen: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
    /// Also write the progress of each store every 100 ms to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Report a store that fails, for example because it is full, and continue with the others. A
    /// run in which every store failed fails.
    #[arg(long)]
    pub go_on: bool,
    /// Keep the stores.
    #[arg(long)]
    pub keep: bool,
    /// Run in this process. The DRAM of a store then includes memory that earlier stores left.
    #[arg(long, hide = true)]
    pub in_process: bool,
    /// The peers come from a preset: peers that cannot run on this machine are skipped.
    #[arg(skip)]
    pub(crate) peers_of_preset: bool,
    /// Skipped peers of the preset, and the reasons.
    #[arg(skip)]
    pub(crate) left_out: Vec<(String, String)>,
    /// The names of [`GIVEN`] that are on the command line.
    #[arg(skip)]
    pub(crate) given: Vec<&'static str>,
}

/// Arguments with a default that are refused if they are given without effect, by the names of
/// their fields.
pub(crate) const GIVEN: [&str; 3] = ["seconds", "arrivals", "at_least"];

pub(crate) fn refuse(name: &str, value: impl ToString, why: impl Into<String>) -> Error {
    Error::InvalidOption { name: name.into(), value: value.to_string(), why: why.into() }
}

/// Refuses a durability that the medium under `dir` does not support. Otherwise a store whose
/// durability is raised after its load would be refused only then.
fn refuse_medium(dir: &Path, asked: Durability) -> Result<()> {
    let medium = lodestore::medium::doctor(dir)?.medium;
    let same = |level: Durability| std::mem::discriminant(&level) == std::mem::discriminant(&asked);
    match medium.durability.into_iter().find(|(level, _)| same(*level)) {
        Some((_, Err(instead))) => Err(Error::DurabilityRefused { asked, medium: medium.medium.to_string(), instead }),
        _ => Ok(()),
    }
}

impl Args {
    /// Removes the peers of a preset that this build or machine does not have, or that do not
    /// support the requested durability.
    pub(crate) fn fitted(mut self) -> Self {
        if !self.peers_of_preset {
            return self;
        }
        for peer in self.peers.take().unwrap_or_default() {
            match peers::missing(&peer, self.durability) {
                None => self.peers.get_or_insert_default().push(peer),
                Some(why) => self.left_out.push((peer, why)),
            }
        }
        self.peers.get_or_insert_default();
        self
    }

    /// Returns the skipped peers of the preset, a line for each reason.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (peer, why) in &self.left_out {
            match reasons.iter_mut().find(|(known, _)| known == why) {
                Some((_, peers)) => peers.push(peer),
                None => reasons.push((why, vec![peer])),
            }
        }
        reasons.iter().map(|(why, peers)| format!("left out of the preset: {}: {why}", peers.join(", "))).collect()
    }

    /// Replaces each store by its setting with the requested durability.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if a peer does not support it.
    pub(crate) fn resolved(mut self) -> Result<Self> {
        self.derive();
        self.memory = self.memory.filter(|bytes| *bytes > 0);
        if let Some(durability) = self.durability {
            self.engine = peers::with_durability(&self.engine, durability)?;
            for peer in self.peers.iter_mut().flatten() {
                *peer = peers::with_durability(peer, durability)?;
            }
        }
        Ok(self)
    }

    /// Sets the arguments that derive from others.
    pub(crate) fn derive(&mut self) {
        if let Some(bytes) = self.load_bytes {
            self.records = (bytes / self.record_bytes().max(1)).max(1);
        }
        // The sweep varies the amount of work.
        let swept = self.sweep.as_ref().is_some_and(|sweep| sweep.name == "ops");
        if swept && !self.given.contains(&"at_least") {
            self.at_least = 0;
        }
    }

    /// Returns the mean bytes of the key and the value of a record.
    pub(crate) fn record_bytes(&self) -> u64 {
        (self.key_size.mean(Of::Key) + self.value_size.mean(Of::Value)).round() as u64
    }

    /// Returns the mean bytes of the loaded keys and values.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.records.saturating_mul(self.record_bytes())
    }

    /// Refuses arguments that cannot be run.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], which describes the accepted values.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_ranges()?;
        let ascending = self.steps.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || self.steps.iter().any(|step| !(1..=self.records).contains(step)) {
            let why = "it takes numbers of records that rise, to the number loaded at most";
            return Err(refuse("steps", self.steps.iter().map(u64::to_string).collect::<Vec<_>>().join(","), why));
        }
        self.targets().iter().try_for_each(|name| self.check_target(name))?;
        self.check_load_durability()?;
        self.check_memory()?;
        self.check_reserve()?;
        self.check_refused()?;
        if self.sweep.is_some() && self.reopen {
            return Err(refuse("reopen", "", "it takes no sweep beside it"));
        }
        self.variants()?.iter().try_for_each(|variant| variant.args.check_rate())?;
        if self.reopen && (self.in_process || !self.targets().iter().any(|name| peers::survives_stop(name))) {
            let why = "it takes a store that keeps its records, in processes of its own";
            return Err(refuse("reopen", self.engine.as_str(), why));
        }
        self.set.iter().try_for_each(|text| lodestore_contract::Options::new().set_text(text).map(drop))
    }

    /// Refuses a limit on memory if it would limit the medium, or nothing.
    fn check_memory(&self) -> Result<()> {
        let Some(limit) = self.memory else { return Ok(()) };
        if self.in_process {
            return Err(refuse("memory", limit, "it takes processes of their own"));
        }
        match &self.dir {
            Some(dir) if lodestore::medium::doctor(dir)?.medium.medium.to_string() == "shm" => {
                let why = "files on tmpfs are memory themselves: give a --dir on a disk, or leave it away";
                Err(refuse("memory", limit, why))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a reserve if no store has a capacity, or if workloads insert more than the loaded
    /// data.
    fn check_reserve(&self) -> Result<()> {
        let Some(percent) = self.reserve else { return Ok(()) };
        if self.targets().iter().all(|name| peers::is_peer(name)) {
            return Err(refuse("reserve", percent, "no engine is measured, and peers have no capacity"));
        }
        if self.workloads.iter().any(|workload| matches!(workload, Workload::D | Workload::E)) {
            return Err(refuse("reserve", percent, "it is of what is loaded, and d and e insert more: give --size"));
        }
        Ok(())
    }

    /// Refuses a rate if a workload does not support one, or no workload would use it.
    fn check_rate(&self) -> Result<()> {
        let Some(rate) = self.rate else { return Ok(()) };
        let unpaced = |workload: &&Workload| workload.lasts() || **workload == Workload::Multiget;
        if let Some(workload) = self.workloads.iter().find(unpaced) {
            let why = format!("{} takes none: name the --workloads without it", workload.name());
            return Err(refuse("rate", rate, why));
        }
        match self.workloads.iter().all(|workload| *workload == Workload::Load) {
            true => Err(refuse("rate", rate, "the load runs at full speed: name other --workloads beside it")),
            false => Ok(()),
        }
    }

    /// Refuses a durability of the load from which a store cannot be raised to that of the other
    /// workloads.
    fn check_load_durability(&self) -> Result<()> {
        let Some(level) = self.load_durability else { return Ok(()) };
        let after = self.durability.unwrap_or_default();
        if !after.covers(level) {
            let why = format!("a store's durability is never lowered: --durability is {after}");
            return Err(refuse("load-durability", level, why));
        }
        if self.reopen {
            return Err(refuse("reopen", "", "it takes no --load-durability beside it"));
        }
        self.targets().iter().try_for_each(|name| peers::for_load(name, level).map(drop))?;
        let peer = peers::is_peer(&self.engine);
        self.dir.as_deref().filter(|_| !peer && !self.emulate_dax).map_or(Ok(()), |dir| refuse_medium(dir, after))
    }

    /// Refuses numbers that are out of range.
    pub(crate) fn check_ranges(&self) -> Result<()> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(refuse(name, value, format!("it takes {least} to {most}")))
            }
        };
        if let Some(bytes) = self.load_bytes.filter(|_| self.records > NUMBERS_MAX) {
            let why = format!(
                "that is {} records of {} B: give at most {}",
                self.records,
                self.record_bytes(),
                NUMBERS_MAX.saturating_mul(self.record_bytes())
            );
            return Err(refuse("load-bytes", bytes, why));
        }
        within("records", self.records, 1, NUMBERS_MAX)?;
        within("ops", self.op_count(), 1, NUMBERS_MAX)?;
        for size in self.key_size.limits(Of::Key) {
            within("key-size", size as u64, KEY_BYTES_MIN as u64, KEY_BYTES_MAX as u64)?;
        }
        for size in self.value_size.limits(Of::Value) {
            within("value-size", size as u64, 1, VALUE_BYTES_MAX as u64)?;
        }
        within("compressible", self.compressible.into(), 0, 100)?;
        within("scan-length", u64::from(self.scan_length), 1, u64::from(u16::MAX))?;
        within("multiget", self.multiget as u64, 2, MULTIGET_KEYS_MAX as u64)?;
        within("threads", self.threads as u64, 1, THREADS_MAX as u64)?;
        within("rate", self.rate.unwrap_or(1), 1, RATE_MAX)?;
        within("seconds", self.seconds, 1, SECONDS_MAX)?;
        within("warm-up", self.warm_up, 0, AT_LEAST_MILLIS_MAX)?;
        within("at-least", self.at_least, 0, AT_LEAST_MILLIS_MAX)?;
        if self.at_least > 0 && self.warm_up == 0 {
            let why = "the warm-up says how many operations come to so long: give --at-least 0 beside --warm-up 0";
            return Err(refuse("at-least", self.at_least, why));
        }
        within("budget", self.budget.unwrap_or(BUDGET_BYTES_MIN), BUDGET_BYTES_MIN, u64::MAX)?;
        if let Some(buffer) = self.write_buffer {
            within("write-buffer", buffer, WRITE_BUFFER_BYTES_MIN, 1 << 40)?;
            let least = 2 * buffer + BUDGET_BYTES_MIN;
            within("budget", self.budget.unwrap_or(least), least, u64::MAX)?;
        }
        within("reserve", self.reserve.unwrap_or(1).into(), 1, RESERVE_PERCENT_MAX)?;
        within("memory", self.memory.unwrap_or(MEMORY_BYTES_MIN), MEMORY_BYTES_MIN, 1 << 50)?;
        within("rounds", self.rounds as u64, 1, 1000)
    }

    fn check_target(&self, store: &str) -> Result<()> {
        let name = store_name::base(store);
        let known = peers::is_peer(name) || store_name::is_engine(name);
        if !known {
            let engines = lodestore::engines().iter().map(|engine| engine.name);
            let all: Vec<_> = engines.chain(peers::names()).collect();
            let others =
                if cfg!(feature = "peers") { "" } else { " (other peers are in builds with --features peers)" };
            return Err(refuse("engine or peers", name, format!("give of {}{others}", all.join(", "))));
        }
        if self.dir.is_none() && !peers::is_volatile(name) {
            return Err(refuse("dir", "", "give a directory on the medium to measure"));
        }
        store_name::check_own(store)?;
        peers::ready(name)
    }

    /// Returns the number of operations of a workload.
    pub(crate) fn op_count(&self) -> u64 {
        self.ops.unwrap_or(self.records)
    }

    /// Returns the stores to measure, the engine first, each once. With a sweep only the peers to
    /// which its parameter applies.
    pub(crate) fn targets(&self) -> Vec<String> {
        let mut all = vec![self.engine.clone()];
        let usual = [if self.sweep.is_some() { "none" } else { "btreemap" }.to_string()];
        let peers = self.peers.as_deref().unwrap_or(&usual);
        for peer in peers.iter().filter(|peer| !matches!(peer.as_str(), "none" | "")) {
            if !all.contains(peer) && self.sweep.as_ref().is_none_or(|sweep| sweep.means(peer)) {
                all.push(peer.clone());
            }
        }
        all
    }

    /// Returns the maximum bytes of the store. Default: twice the bytes of the records and of the
    /// inserts of `d` and `e`, for updates in progress.
    pub(crate) fn capacity(&self) -> u64 {
        if let Some(percent) = self.reserve {
            let live = u128::from(self.live_bytes());
            return u64::try_from(live * u128::from(100 + percent) / 100).unwrap_or(u64::MAX);
        }
        let record = self.record_bytes() + 64;
        self.size.unwrap_or_else(|| ((self.records + self.op_count() / 10) * record * 2).max(1 << 30))
    }
}

/// Parses the arguments of a command line, for tests.
#[cfg(test)]
pub(crate) fn parsed(words: &str) -> Args {
    parsed_words(words.split_whitespace().map(String::from))
}

/// Does the same for words that may contain spaces.
#[cfg(test)]
pub(crate) fn parsed_words(words: impl Iterator<Item = String>) -> Args {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        given: crate::args::preset::Given,
    }
    let line: Line = clap::Parser::parse_from(std::iter::once("bench".to_string()).chain(words));
    line.given.0
}

//! The command line of `bench`.

pub(crate) mod command;
pub(crate) mod refusals;
pub(crate) mod sweep;

use std::path::{Path, PathBuf};

use lodestore::stats::parse_size;
use lodestore_contract::{Durability, Error, Result};

use crate::args::sweep::Sweep;
use crate::peers;
use crate::preset::Preset;
use crate::run::store;
use crate::workload::Workload;
use crate::workload::keys::{KEY_LEAST, KEY_MOST};
use crate::workload::open_loop::Arrivals;
use crate::workload::sizes::{Of, Size};

/// Most records and operations together: record numbers are 32 bits wide.
const NUMBERS_MOST: u64 = 1 << 31;
/// Most bytes of a value.
const VALUE_MOST: usize = 16 << 20;
/// Most serving threads.
const THREADS_MOST: usize = 1024;
/// Longest overload or idle time, in seconds: a day.
const SECONDS_MOST: u64 = 86_400;
/// Longest warm-up, and longest that a workload is drawn out, in milliseconds: a minute.
const AT_LEAST_MOST: u64 = 60_000;
/// Least DRAM budget: below it no store has room for its buffers.
const BUDGET_LEAST: u64 = 1 << 20;
/// Least write buffer.
const WRITE_BUFFER_LEAST: u64 = 64 << 10;
/// Least limit on the memory of a process: the bench itself has some MiB.
const MEMORY_LEAST: u64 = 16 << 20;
/// Greatest reserve, in hundredths of what is loaded.
const RESERVE_MOST: u64 = 10_000;
/// Most operations a second of an open loop: one a nanosecond.
const RATE_MOST: u64 = 1_000_000_000;
/// Most keys of one `multiget` call.
const MULTIGET_MOST: usize = 4096;

/// How strictly values that come back are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Check {
    /// Length, first and last words.
    #[default]
    Ends,
    /// Every byte, and the order of scanned keys. Slows the run.
    Full,
}

/// After which workloads the stores are to settle: flush what they buffer, and do the compactions that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Settle {
    /// After none: the next begins while they are at it.
    Never,
    /// After the load.
    Load,
    /// After each.
    #[default]
    Each,
}

/// Arguments of `lodestore-bench run`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Take the arguments of a named experiment, but for those that are given here.
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// Store to measure: an engine of this build, which may have options of its own as in --peers, or a peer.
    #[arg(long, default_value = lodestore::options::DEFAULT_ENGINE)]
    pub engine: String,
    /// Directory on the medium to measure. A fresh directory is made in it, and removed at the end.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Workloads: load get absent multiget update overwrite zipfput delete scan, a to f of YCSB, overload and idle, in the order in which they run. The
    /// load always runs, and first. Another may be named again: its second turn is `a-2`.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "load,get,multiget,update,delete,scan")]
    pub workloads: Vec<Workload>,
    /// Records loaded.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub records: u64,
    /// Bytes of keys and values loaded, such as 1G: as many records as come to it, in place of --records.
    #[arg(long, value_name = "SIZE", conflicts_with = "records", value_parser = parse_size)]
    pub load_bytes: Option<u64>,
    /// Operations of each workload but load; as many as records where not given.
    #[arg(long, value_name = "N")]
    pub ops: Option<u64>,
    /// Bytes of a key: a number, each of several as often (16..64, both included), or facebook, as in the published mix of Facebook's memcached (pool ETC).
    #[arg(long, visible_alias = "key", value_name = "BYTES", default_value_t = Size::Fixed(16))]
    pub key_size: Size,
    /// Bytes of a value, in the same ways. An update keeps the size of its record.
    #[arg(long, visible_alias = "value", value_name = "BYTES", default_value_t = Size::Fixed(256))]
    pub value_size: Size,
    /// Hundredths of each value that are one byte again and again, in runs of some bytes, so that it compresses; the rest is random.
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
    /// Open loop: operations a second, of all threads together, that are due whatever the store does. Latencies begin when an operation was due, and every
    /// one is timed. The load runs at full speed; not for multiget, overload and idle. Without it each thread asks again when it has its answer.
    #[arg(long, value_name = "OPS")]
    pub rate: Option<u64>,
    /// When the operations of --rate are due.
    #[arg(long, value_enum, default_value_t)]
    pub arrivals: Arrivals,
    /// Repetitions, the stores taking turns; figures are medians.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Seed of keys and operations.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Most bytes of the store, such as 8G; enough for the records where not given.
    #[arg(long, value_parser = parse_size)]
    pub size: Option<u64>,
    /// Hundredths of the keys and values loaded that an engine has of room beside them: its capacity is 1.3 times as much at 30. Peers have no capacity.
    #[arg(long, value_name = "PERCENT", conflicts_with = "size")]
    pub reserve: Option<u32>,
    /// What an acknowledged write survives: process, power or interval:MS. A peer that gives less is taken with each write synced, or refused.
    /// Where not given, the engine gives process, and each peer what it gives.
    #[arg(long)]
    pub durability: Option<Durability>,
    /// What an acknowledged write of the load survives, if less is enough there: the store is then closed, and opened again as --durability says
    /// before the other workloads. A map in DRAM stays open.
    #[arg(long, value_name = "LEVEL")]
    pub load_durability: Option<Durability>,
    /// Bytes of DRAM for every store that takes a budget, such as 256M: an engine's structures, a peer's buffers and caches.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub budget: Option<u64>,
    /// Bytes of a write buffer of every store that takes its size: option memtable-bytes of an engine, each of two of a peer. Of --budget, which is at
    /// least that of two and a MiB, a peer's cache has the rest then.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub write_buffer: Option<u64>,
    /// Most memory of each store's process, the page cache of its files and the bench's operations and keys included, such as 768M: by a control group (cgroup v1 or v2), which mostly
    /// takes root. With less than the data the disk is really read. 0 for none, where a preset has one.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// After which workloads the stores flush what they buffer and do the compactions that are due.
    #[arg(long, value_enum, default_value_t)]
    pub settle: Settle,
    /// How long each workload overload or idle lasts.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub seconds: u64,
    /// Treat the mapping as DAX whatever it is, so that every flush and fence is executed.
    #[arg(long)]
    pub emulate_dax: bool,
    /// Nanoseconds to wait after each fence, as slower memory would.
    #[arg(long, value_name = "NS", default_value_t = 0)]
    pub persist_ns: u64,
    /// Peers to measure beside the engine, or none: peers and engines, an engine with options of its own too, such as fluidkv:value-threshold=0 (several
    /// behind further colons).
    /// Where not given, btreemap, and none beside a sweep.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub peers: Option<Vec<String>>,
    /// An option of the engine, as name=value; may be given more than once.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Run the workloads for each of these values of an engine's option, or of one of the bench's own numbers (threads, records, ops, rate,
    /// key-size, value-size, multiget, persist-ns, budget, write-buffer, load-bytes, reserve). Of the peers that are given those run to which it means
    /// something. A plot has lines over the values.
    #[arg(long, value_name = "NAME=V1,V2,...")]
    pub sweep: Option<Sweep>,
    /// Stop the load at these numbers of records, and take the store's account there.
    #[arg(long, value_name = "N1,N2,...", value_delimiter = ',')]
    pub steps: Vec<u64>,
    /// Time every N-th operation of a thread for the latencies; 1 for all, 0 for none.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub latency_every: u32,
    /// Before each workload that can go on (get, absent, multiget, update, scan, a, b, c and f) run it unmeasured for so many milliseconds; 0 for not.
    #[arg(long, value_name = "MS", default_value_t = 50)]
    pub warm_up: u64,
    /// Measure each of these workloads for about so many milliseconds at least: where --ops operations would be done before, as the warm-up says, by as
    /// many as come to it (a million at most). 0 for --ops operations, however short it is, as it is where --ops is swept. An open loop has its own length.
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pub at_least: u64,
    /// How strictly the values that come back are checked.
    #[arg(long, value_enum, default_value_t)]
    pub check: Check,
    /// Measure reopening as well: after a clean stop, and after the kill of a process that writes.
    #[arg(long)]
    pub reopen: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Draw the rates into this file as well, as SVG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Draw what shares of the timed calls lasted how long into this file as well, as SVG: a panel a workload, a line a store.
    #[arg(long, value_name = "FILE")]
    pub plot_latency: Option<PathBuf>,
    /// Draw DRAM a key into this file as well, as SVG: a bar a store by its own account, and a line to the growth of RssAnon.
    #[arg(long, value_name = "FILE")]
    pub plot_memory: Option<PathBuf>,
    /// Write what each store did by when, each 100 ms, into this file as well: as CSV, or drawn as SVG, by its ending. May be given more than once.
    #[arg(long, value_name = "FILE")]
    pub timeline: Vec<PathBuf>,
    /// Tell of a store that fails, as one that is full does, and go on with the others. A run in which every store failed fails.
    #[arg(long)]
    pub go_on: bool,
    /// Keep the stores.
    #[arg(long)]
    pub keep: bool,
    /// Run in this process, where one store's DRAM is not told from what another left behind.
    #[arg(long, hide = true)]
    pub in_process: bool,
    /// The peers are a preset's: those that cannot run here are left out.
    #[arg(skip)]
    pub(crate) peers_of_preset: bool,
    /// Peers of the preset that were left out, and why.
    #[arg(skip)]
    pub(crate) left_out: Vec<(String, String)>,
    /// Which of [`GIVEN`] the command line has itself.
    #[arg(skip)]
    pub(crate) given: Vec<&'static str>,
}

/// Arguments that have a default and are refused where they are given and do nothing, by the names of their fields.
pub(crate) const GIVEN: [&str; 3] = ["seconds", "arrivals", "at_least"];

pub(crate) fn refuse(name: &str, value: impl ToString, why: impl Into<String>) -> Error {
    Error::InvalidOption { name: name.into(), value: value.to_string(), why: why.into() }
}

/// Refuses a durability that the medium under `dir` cannot give: a store that is brought to it behind its load would be refused after that.
fn refuse_medium(dir: &Path, asked: Durability) -> Result<()> {
    let medium = lodestore::medium::doctor(dir)?.medium;
    let same = |level: Durability| std::mem::discriminant(&level) == std::mem::discriminant(&asked);
    match medium.durability.into_iter().find(|(level, _)| same(*level)) {
        Some((_, Err(instead))) => Err(Error::DurabilityRefused { asked, medium: medium.medium.to_string(), instead }),
        _ => Ok(()),
    }
}

impl Args {
    /// These without those peers of a preset that this build or machine does not have, or that cannot give the durability asked for.
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

    /// Which peers of the preset were left out, a line for each reason.
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

    /// These with each store by the name of the setting that gives the durability asked for.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where a peer cannot give it.
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

    /// Sets what follows from other arguments.
    pub(crate) fn derive(&mut self) {
        if let Some(bytes) = self.load_bytes {
            self.records = (bytes / self.record_bytes().max(1)).max(1);
        }
        // What is swept is how much is done.
        let swept = self.sweep.as_ref().is_some_and(|sweep| sweep.name == "ops");
        if swept && !self.given.contains(&"at_least") {
            self.at_least = 0;
        }
    }

    /// Bytes of the key and the value of a record, in the mean.
    pub(crate) fn record_bytes(&self) -> u64 {
        (self.key_size.mean(Of::Key) + self.value_size.mean(Of::Value)).round() as u64
    }

    /// Bytes of the keys and values that are loaded, in the mean.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.records.saturating_mul(self.record_bytes())
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] saying what is taken.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_ranges()?;
        let ascending = self.steps.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || self.steps.iter().any(|step| !(1..=self.records).contains(step)) {
            let why = "it takes numbers of records that rise, to the number loaded at most";
            return Err(refuse("steps", self.steps.iter().map(u64::to_string).collect::<Vec<_>>().join(","), why));
        }
        self.targets().iter().try_for_each(|name| self.check_target(name))?;
        self.check_load_durability()?;
        if self.plot_latency.is_some() && self.latency_every == 0 && self.rate.is_none() {
            return Err(refuse("plot-latency", "", "no call is timed with --latency-every 0: give 1"));
        }
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

    /// Refuses a limit on memory where it would limit the medium, or nothing.
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

    /// Refuses a reserve where nothing has a capacity, or more is inserted than what it is a part of.
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

    /// Refuses a rate where a workload has none, or none has one.
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

    /// Refuses a durability of the load from which a store cannot be brought to that of the other workloads.
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
        if let Some(bytes) = self.load_bytes.filter(|_| self.records > NUMBERS_MOST) {
            let why = format!(
                "that is {} records of {} B: give at most {}",
                self.records,
                self.record_bytes(),
                NUMBERS_MOST.saturating_mul(self.record_bytes())
            );
            return Err(refuse("load-bytes", bytes, why));
        }
        within("records", self.records, 1, NUMBERS_MOST)?;
        within("ops", self.op_count(), 1, NUMBERS_MOST)?;
        for size in self.key_size.limits(Of::Key) {
            within("key-size", size as u64, KEY_LEAST as u64, KEY_MOST as u64)?;
        }
        for size in self.value_size.limits(Of::Value) {
            within("value-size", size as u64, 1, VALUE_MOST as u64)?;
        }
        within("compressible", self.compressible.into(), 0, 100)?;
        within("scan-length", u64::from(self.scan_length), 1, u64::from(u16::MAX))?;
        within("multiget", self.multiget as u64, 2, MULTIGET_MOST as u64)?;
        within("threads", self.threads as u64, 1, THREADS_MOST as u64)?;
        within("rate", self.rate.unwrap_or(1), 1, RATE_MOST)?;
        within("seconds", self.seconds, 1, SECONDS_MOST)?;
        within("warm-up", self.warm_up, 0, AT_LEAST_MOST)?;
        within("at-least", self.at_least, 0, AT_LEAST_MOST)?;
        if self.at_least > 0 && self.warm_up == 0 {
            let why = "the warm-up says how many operations come to so long: give --at-least 0 beside --warm-up 0";
            return Err(refuse("at-least", self.at_least, why));
        }
        within("budget", self.budget.unwrap_or(BUDGET_LEAST), BUDGET_LEAST, u64::MAX)?;
        if let Some(buffer) = self.write_buffer {
            within("write-buffer", buffer, WRITE_BUFFER_LEAST, 1 << 40)?;
            let least = 2 * buffer + BUDGET_LEAST;
            within("budget", self.budget.unwrap_or(least), least, u64::MAX)?;
        }
        within("reserve", self.reserve.unwrap_or(1).into(), 1, RESERVE_MOST)?;
        within("memory", self.memory.unwrap_or(MEMORY_LEAST), MEMORY_LEAST, 1 << 50)?;
        within("rounds", self.rounds as u64, 1, 1000)
    }

    fn check_target(&self, store: &str) -> Result<()> {
        let name = store::base(store);
        let known = peers::is_peer(name) || store::is_engine(name);
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
        store::check_own(store)?;
        peers::ready(name)
    }

    /// Operations of a workload.
    pub(crate) fn op_count(&self) -> u64 {
        self.ops.unwrap_or(self.records)
    }

    /// The stores to measure, the engine first, each once; with a sweep those peers alone to which its parameter means something.
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

    /// Most bytes of the store: twice what the records and those that `d` and `e` insert need, for updates in flight, where nothing else is asked for.
    pub(crate) fn capacity(&self) -> u64 {
        if let Some(percent) = self.reserve {
            let live = u128::from(self.live_bytes());
            return u64::try_from(live * u128::from(100 + percent) / 100).unwrap_or(u64::MAX);
        }
        let record = self.record_bytes() + 64;
        self.size.unwrap_or_else(|| ((self.records + self.op_count() / 10) * record * 2).max(1 << 30))
    }
}

/// The arguments of a command line, for tests.
#[cfg(test)]
pub(crate) fn parsed(words: &str) -> Args {
    parsed_words(words.split_whitespace().map(String::from))
}

/// The same of words that may have spaces in them.
#[cfg(test)]
pub(crate) fn parsed_words(words: impl Iterator<Item = String>) -> Args {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        given: crate::preset::Given,
    }
    let line: Line = clap::Parser::parse_from(std::iter::once("bench".to_string()).chain(words));
    line.given.0
}

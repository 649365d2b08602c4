//! Presets: named sets of arguments of an experiment. Arguments on the command line override them.
//! Peers that this build or machine does not have are removed from a preset and reported. Peers on
//! the command line are refused instead.

mod fluidkv;
mod hashkv;
mod hikv;
mod mkvs;
mod nvht;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, ValueEnum};

use crate::args::sweep::Sweep;
use crate::args::{Args, GIVEN};

/// The quantity of a row that a figure shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Rate,
    Latency,
    Dram,
    Medium,
}

/// A figure: its name in the paper, and its quantities.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) told: &'static [Told],
}

/// A named experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// YCSB A to F, 1 M records of 16 + 256 bytes: every engine, and the embedded peers whose
    /// acknowledged writes survive the process too.
    Ycsb,
    /// HiKV (ATC 2017), its five kinds of operations, uniform, one thread, no emulation: every
    /// engine and embedded peers.
    HikvMicro,
    /// HiKV, figure 5: latency of its operations with one serving thread and one background thread,
    /// 600 ns added to each persist.
    HikvFig5,
    /// HiKV, figure 6: throughput of its operations, with one thread, and with two for stores that
    /// need two to be equal in writes.
    HikvFig6,
    /// HiKV, figure 7: YCSB A to F over the serving threads.
    HikvFig7,
    /// HiKV, figure 8: puts, updates and deletes over the latency of a persist.
    HikvFig8,
    /// HiKV, figure 9: the same over the number of records.
    HikvFig9,
    /// HiKV, figure 10: latency of a put over that of a persist, compared with its variants: tree
    /// updated by the writer, a tree per partition, a write-ahead log.
    HikvFig10,
    /// HiKV, figure 11, reduced: YCSB A to F with background threads by the paper's equations, and
    /// with fixed numbers. The bench provides the serving threads, which never become background
    /// threads as the paper's do.
    HikvFig11,
    /// HiKV, figure 12: latencies over that of a read. Each read of a record waits; reads of the
    /// hash index, which the paper also delays, do not.
    HikvFig12,
    /// HiKV, figure 13: DRAM and bytes on the medium over the size of values.
    HikvFig13,
    /// NVHT (JPDC 2018): inserts and searches, compared with LevelDB and Berkeley DB.
    NvhtInsertSearch,
    /// NVHT: inserts, searches and both together over the number of threads.
    NvhtThreads,
    /// NVHT: random updates, compared with Redis, a server with a socket, with and without a log.
    /// The paper's variant with snapshots is not run.
    NvhtRedis,
    /// NVHT over its probing length.
    NvhtProbeLength,
    /// NVHT over its load factor.
    NvhtLoadFactor,
    /// NVHT over its initial capacity.
    NvhtInitialCapacity,
    /// FluidKV (PVLDB 2024): puts, gets, overwrites, scans and DRAM of 8 + 8 bytes over the number
    /// of threads.
    FluidkvThreads,
    /// FluidKV: puts, gets, overwrites and DRAM over the size of values.
    FluidkvValueSize,
    /// HashKV (ATC 2018), experiment 1, at a fortieth of its size: a load and three phases of
    /// zipfian updates, HashKV in its three modes, and LSM stores.
    HashkvP123,
    /// HashKV: a load and two phases of updates over the reserve, compared with a single log.
    HashkvReserve,
    /// HashKV: the same over the size of values, compared with its other modes and RocksDB.
    HashkvValueSize,
    /// HashKV: the value size from which separation pays off: all values separated, and none.
    HashkvThreshold,
    /// MKVS (Micromachines 2019), tables 1 to 6: a load, workload B and workload A with 1 to 16
    /// threads, on the paper's two groups of two devices, in its three builds. Servers and embedded
    /// stores run too. Prints the paper's tables too.
    MkvsTables,
}

/// Without `redb`, `sled` and Berkeley DB: they have no level between nothing and a sync of each
/// write.
const YCSB: &str = "--engine hikv --peers nvht,fluidkv,hashkv,mkvs,btreemap,hashmap,lmdb,rocksdb,blobdb,leveldb,fjall --workloads load,a,b,c,d,e,f \
     --key-size 16 --value-size 256 --records 1000000 --ops 200000 --threads 1 --rounds 3 --durability process";

impl Preset {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
    }

    /// Returns its arguments.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Ycsb => YCSB,
            Self::HikvMicro => hikv::MICRO,
            Self::HikvFig5 => hikv::FIG5,
            Self::HikvFig6 => hikv::FIG6,
            Self::HikvFig7 => hikv::FIG7,
            Self::HikvFig8 => hikv::FIG8,
            Self::HikvFig9 => hikv::FIG9,
            Self::HikvFig10 => hikv::FIG10,
            Self::HikvFig11 => hikv::FIG11,
            Self::HikvFig12 => hikv::FIG12,
            Self::HikvFig13 => hikv::FIG13,
            Self::NvhtInsertSearch => nvht::INSERT_SEARCH,
            Self::NvhtThreads => nvht::THREADS,
            Self::NvhtRedis => nvht::REDIS,
            Self::NvhtProbeLength => nvht::PROBE_LENGTH,
            Self::NvhtLoadFactor => nvht::LOAD_FACTOR,
            Self::NvhtInitialCapacity => nvht::INITIAL_CAPACITY,
            Self::FluidkvThreads => fluidkv::THREADS,
            Self::FluidkvValueSize => fluidkv::VALUE_SIZE,
            Self::HashkvP123 => hashkv::P123,
            Self::HashkvReserve => hashkv::RESERVE,
            Self::HashkvValueSize => hashkv::VALUE_SIZE,
            Self::HashkvThreshold => hashkv::THRESHOLD,
            Self::MkvsTables => mkvs::TABLES,
        }
    }

    /// Returns the figure of a paper after which the preset is named.
    pub(crate) fn figure(self) -> Option<Figure> {
        let (name, told): (_, &[Told]) = match self {
            Self::HikvFig5 => ("Figure 5", &[Told::Latency]),
            Self::HikvFig6 => ("Figure 6", &[Told::Rate]),
            Self::HikvFig7 => ("Figure 7", &[Told::Rate]),
            Self::HikvFig8 => ("Figure 8", &[Told::Rate]),
            Self::HikvFig9 => ("Figure 9", &[Told::Rate]),
            Self::HikvFig10 => ("Figure 10", &[Told::Latency]),
            Self::HikvFig11 => ("Figure 11", &[Told::Rate]),
            Self::HikvFig12 => ("Figure 12", &[Told::Latency]),
            Self::HikvFig13 => ("Figure 13", &[Told::Dram, Told::Medium]),
            _ => return None,
        };
        Some(Figure { name, told })
    }

    /// Returns whether the preset prints its own tables.
    pub(crate) fn has_tables(self) -> bool {
        self == Self::MkvsTables || self.figure().is_some()
    }

    fn args(self) -> Result<Args, clap::Error> {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let line = std::iter::once("bench").chain(self.words().split_whitespace());
        Line::try_parse_from(line).map(|line| line.args).map_err(|error| error.with_cmd(&Line::command()))
    }
}

/// Arguments as given, merged with those of the preset that they name.
#[derive(Debug, Clone)]
pub struct Given(pub(crate) Args);

/// Copies these fields of `$from` to `$into` unless `$given` says that they were given.
macro_rules! take {
    ($into:ident from $from:ident unless $given:ident: $($field:ident)*) => {
        $(if !$given(stringify!($field)) {
            $into.$field = $from.$field;
        })*
    };
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Args::from_arg_matches(matches)?;
        let given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        args.given = GIVEN.into_iter().filter(|name| given(name)).collect();
        let Some(preset) = args.preset else { return Ok(Self(args)) };
        let own = preset.args()?;
        take!(args from own unless given:
            engine peers workloads key_size value_size scan_length threads rounds durability settle write_buffer budget memory latency_every emulate_dax
            persist_ns go_on warm_up at_least);
        args.peers_of_preset = !given("peers");
        if !given("reserve") && !given("size") {
            args.reserve = own.reserve;
        }
        let swept = |name: &str| args.sweep.as_ref().is_some_and(|sweep| sweep.name == name);
        if !given("records") && !given("load_bytes") && !swept("records") {
            (args.records, args.load_bytes) = (own.records, own.load_bytes);
            // With another number of records, the number of operations follows it unless it is
            // given.
            if !given("ops") {
                args.ops = own.ops;
            }
        }
        // A given value replaces the values of a sweep, and a given size removes the reserve.
        let is_set = |name: &str| args.set.iter().any(|text| text.split('=').next() == Some(name));
        let fixed = |name: &str| match name {
            name if !Sweep::is_number(name) => is_set(name),
            "reserve" => given("reserve") || given("size"),
            "records" | "load-bytes" => given("records") || given("load_bytes"),
            name => given(&name.replace('-', "_")),
        };
        if !given("sweep") {
            args.sweep = own.sweep.filter(|sweep| !fixed(&sweep.name));
        }
        Ok(Self(args))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Given {
    fn augment_args(command: Command) -> Command {
        Args::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Args::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn given(words: &str) -> Args {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            given: Given,
        }
        Line::parse_from(std::iter::once("bench").chain(words.split_whitespace())).given.0
    }

    #[test]
    fn a_preset_stands_for_its_words() {
        for preset in Preset::value_variants() {
            let (named, written) = (given(&format!("--preset {}", preset.name())), given(preset.words()));
            assert_eq!(Args { preset: None, ..named }.command(&[]), written.command(&[]));
            assert_eq!(written.command(&[]), preset.args().expect("they can be read").command(&[]));
        }
    }

    #[test]
    fn what_is_given_beside_a_preset_counts_more() {
        let words = "--sweep threads=2,3 --records 100 --value-size 8 --key-size 9 --peers none --engine fluidkv --workloads get --reserve 50 --threads 2 --rounds 3 \
                     --durability power --write-buffer 1M --budget 16M --memory 100M --latency-every 7";
        let (plain, over) = (given(words), given(&format!("--preset hashkv-p123 {words}")));
        assert_eq!(over.command(&over.workloads), plain.command(&plain.workloads));
        let sized = given("--preset hashkv-p123 --size 3G");
        assert_eq!((sized.size, sized.reserve), (Some(3 << 30), None));
        assert_eq!(given("--records 5").reserve, None, "without a preset there is none of it");
        let swept = |words: &str| given(&format!("--preset mkvs-tables {words}")).sweep.map(|sweep| sweep.to_string());
        assert_eq!(swept("--records 5").as_deref(), Some("threads=1,2,4,8,16"));
        assert_eq!(swept("--threads 4"), None);
        assert_eq!(swept("--sweep records=1,2").as_deref(), Some("records=1,2"));
    }

    #[test]
    fn where_a_paper_says_how_many_operations_there_are_so_many_are_done() {
        let tables = given("--preset mkvs-tables");
        assert_eq!((tables.op_count(), tables.warm_up, tables.at_least), (1000, 0, 0));
        assert_eq!(given("--preset mkvs-tables --warm-up 5 --at-least 9").at_least, 9);
    }

    #[test]
    fn a_number_of_records_that_is_given_is_that_of_the_operations_too() {
        let of = |words: &str| given(words);
        let numbers = |args: &Args| (args.records, args.op_count());
        assert_eq!(numbers(&of("--preset ycsb")), (1_000_000, 200_000));
        assert_eq!(numbers(&of("--preset ycsb --records 5000")), (5000, 5000));
        assert_eq!(numbers(&of("--preset ycsb --records 5000 --ops 7")), (5000, 7));
        assert_eq!(numbers(&of("--preset ycsb --ops 7")), (1_000_000, 7));
        assert_eq!(of("--preset hashkv-reserve").load_bytes, Some(1 << 30));
        assert_eq!(of("--preset hashkv-reserve --records 5000").load_bytes, None);
        assert_eq!(of("--preset hashkv-reserve --sweep records=1,2").load_bytes, None);
        assert_eq!(of("--preset ycsb --load-bytes 1G").load_bytes, Some(1 << 30));
    }

    #[test]
    fn one_value_that_is_given_takes_the_place_of_the_several() {
        for (preset, one) in [
            ("hikv-fig8", "--persist-ns 600"),
            ("hikv-fig9", "--records 5"),
            ("hikv-fig9", "--load-bytes 5M"),
            ("hikv-fig12", "--set read-ns=60"),
            ("hikv-fig13", "--value 64"),
            ("hashkv-reserve", "--reserve 30"),
            ("hashkv-reserve", "--size 3G"),
            ("nvht-load-factor", "--set load-factor=0.5"),
        ] {
            assert!(given(&format!("--preset {preset}")).sweep.is_some(), "{preset}");
            assert!(given(&format!("--preset {preset} {one}")).sweep.is_none(), "{preset} {one}");
            let other = given(&format!("--preset {preset} --seed 5 --set region=64M"));
            assert!(other.sweep.is_some(), "{preset}");
        }
    }

    #[test]
    fn every_preset_can_be_run_here_and_keeps_what_this_build_has() {
        for preset in Preset::value_variants() {
            let args = given(&format!("--preset {} --dir . --memory 0", preset.name())).fitted();
            let args = args.resolved().unwrap_or_else(|error| panic!("{preset:?}: {error}"));
            args.check().unwrap_or_else(|error| panic!("{preset:?}: {error}"));
            let own = preset.args().expect("they can be read").peers.unwrap_or_default();
            let kept = args.peers.clone().unwrap_or_default();
            assert_eq!(kept.len() + args.left_out.len(), own.len(), "{preset:?}");
            // For any peers, each store of a sweep has its parameter.
            let stores = kept.iter().filter(|name| *name != "none").count() + 1;
            assert_eq!(args.targets().len(), stores, "{preset:?}");
        }
    }

    #[test]
    fn peers_that_cannot_run_are_left_out_of_a_preset_and_said_but_not_those_that_are_given() {
        let named = given("--preset nvht-redis --peers no-such,hashmap").fitted();
        assert_eq!(
            (named.targets(), named.left_out()),
            (["nvht", "no-such", "hashmap"].map(String::from).into(), vec![])
        );
        let own = given("--preset ycsb --durability power --peers none").fitted();
        assert!(own.left_out().is_empty(), "none is no peer");
        if !cfg!(feature = "peers") {
            let own = given("--preset nvht-redis").fitted();
            assert_eq!(own.targets(), ["nvht", "hashmap"]);
            let said = own.left_out();
            assert!(said.len() == 1 && said[0].contains("redis, redis-aof, redis-sync: not in this build"), "{said:?}");
        }
    }
}

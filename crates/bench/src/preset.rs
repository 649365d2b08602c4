//! Presets: the arguments of an experiment by a name, over which count those that are given beside it.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser};

use crate::args::Args;

/// A named experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// HashKV (ATC 2018), experiment 1, at a fortieth of its size: a load and three phases of zipfian updates, HashKV in its three modes and LSM
    /// stores beside it.
    HashkvP123,
    /// MKVS (Micromachines 2019), tables 1 to 6: a load, workload B and workload A with 1 to 16 threads, on the paper's two groups of two devices, in its three builds,
    /// servers and embedded stores beside it. Prints the paper's tables too.
    MkvsTables,
}

impl Preset {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HashkvP123 => "hashkv-p123",
            Self::MkvsTables => "mkvs-tables",
        }
    }

    /// The arguments that it stands for.
    pub(crate) fn words(self) -> &'static str {
        match self {
            // Pairs of 1 KiB with the 8 bytes of length that the paper counts; three tenths of the data in reserve.
            Self::HashkvP123 => {
                "--engine hashkv --peers hashkv:mode=vlog,hashkv:mode=nosep,rocksdb,blobdb,leveldb \
                 --workloads load,zipfput,zipfput,zipfput --key-size 24 --value-size 992 --records 1048576 --reserve 30 --threads 1 --rounds 1 \
                 --durability process --write-buffer 16M --budget 64M --memory 768M --latency-every 1"
            }
            // The paper says 1,000 pairs and operations, and that YCSB made them, whose own size of a record is ten fields of 100 bytes.
            Self::MkvsTables => {
                "--engine mkvs:groups=2:devices=2 \
                 --peers mkvs:groups=2:devices=2:acks=one:reads=race-all:filter=on:inline=off,mkvs:groups=2:devices=2:reads=single:filter=on:inline=off,\
                 mkvs:groups=1:devices=1:filter=off,redis,memcached,rocksdb,lmdb \
                 --workloads load,b,a --key-size 24 --value-size 1000 --records 1000 --sweep threads=1,2,4,8,16 --rounds 11 --latency-every 1"
            }
        }
    }

    /// Whether it prints tables of its own.
    pub(crate) fn has_tables(self) -> bool {
        self == Self::MkvsTables
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

/// Arguments as they were given, over those of the preset that they name.
#[derive(Debug, Clone)]
pub struct Given(pub(crate) Args);

/// Takes these fields of `$from` into `$into` where `$given` does not say that they were given.
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
        let Some(preset) = args.preset else { return Ok(Self(args)) };
        let own = preset.args()?;
        let given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        take!(args from own unless given:
            engine peers workloads key_size value_size records threads rounds durability write_buffer budget memory latency_every);
        if !given("reserve") && !given("size") {
            args.reserve = own.reserve;
        }
        // One value that is given takes the place of the several.
        if !given("sweep") {
            args.sweep = own.sweep.filter(|sweep| !given(&sweep.name));
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
}

//! The commands that repeat a run, or a single row of it.

use std::borrow::Cow;

use crate::args::sweep::Variant;
use crate::args::{Args, Check, Settle};
use crate::peers;
use crate::store_name;
use crate::workload::open_loop::Arrivals;
use crate::workload::{Turn, Workload};

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |char: char| char.is_ascii_alphanumeric() || "_./:=,%+@-".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''")).into()
}

fn names(workloads: &[Workload]) -> String {
    workloads.iter().map(|workload| workload.name()).collect::<Vec<_>>().join(",")
}

/// Returns whether a store differs after this workload: the workload writes, or lets time pass.
fn changes(workload: Workload) -> bool {
    use Workload::{Absent, C, Get, Multiget, Scan};
    !matches!(workload, Get | Multiget | Scan | Absent | C)
}

impl Variant {
    /// Returns the arguments that measure only this variant: its store, and for a sweep its value.
    pub(crate) fn by_itself(&self) -> Args {
        let mut args = self.args.clone();
        (args.sweep, args.preset, args.reopen) = (None, None, false);
        args.engine.clone_from(&self.target);
        args.peers = Some(vec!["none".into()]);
        if peers::is_peer(store_name::base(&self.target)) {
            // A peer has no capacity for a reserve to refer to, and no options.
            (args.reserve, args.set) = (None, Vec::new());
        }
        args
    }
}

impl Args {
    /// Returns the workloads of a run in which a turn finds its store in the same state: the
    /// earlier workloads that change something, and its own earlier turns. The load runs in any
    /// case.
    pub(crate) fn needed(&self, turn: Turn) -> Vec<Workload> {
        if turn.workload == Workload::Load {
            // A rate needs a workload to which it applies.
            let other = self.workloads.iter().find(|other| self.rate.is_some() && **other != Workload::Load);
            return std::iter::once(&Workload::Load).chain(other).copied().collect();
        }
        let own = self.workloads.iter().enumerate().filter(|(_, workload)| **workload == turn.workload);
        let last = own.map(|(at, _)| at).nth(turn.before as usize).unwrap_or_default();
        let needed =
            |workload: &&Workload| **workload != Workload::Load && (changes(**workload) || **workload == turn.workload);
        self.workloads[..=last].iter().filter(needed).copied().collect()
    }

    /// Returns how to run a single row: the command for all rows, and the workloads of each.
    pub(crate) fn row_by_row(&self) -> String {
        let mut args = self.clone();
        (args.preset, args.reopen, args.engine) = (None, false, "STORE".into());
        args.peers = Some(vec!["none".into()]);
        args.sweep.iter_mut().for_each(|sweep| sweep.values = vec!["VALUE".into()]);
        let value = if args.sweep.is_some() { " and its VALUE" } else { "" };
        let is_peer = |name: &String| peers::is_peer(store_name::base(name));
        let engines_alone = [("--reserve", self.reserve.is_some()), ("--set", !self.set.is_empty())];
        let engines_alone = engines_alone.into_iter().filter(|(_, given)| *given && self.targets().iter().any(is_peer));
        let not_of_peers = match engines_alone.map(|(name, _)| name).collect::<Vec<_>>() {
            names if names.is_empty() => String::new(),
            names => format!("; a peer takes no {}", names.join(" and no ")),
        };
        let needs = |turn: &Turn| {
            let (name, needed) = (turn.name(), names(&self.needed(*turn)));
            if name == needed { name } else { format!("{name} takes {needed}") }
        };
        let mut needs: Vec<_> = Turn::all(&self.workloads).iter().map(needs).collect();
        if self.reopen {
            needs.push("a reopening takes load --reopen".into());
        }
        format!(
            "one row alone, by its STORE{value}{not_of_peers}:\n  {}\n  WORKLOADS: {}",
            args.line("WORKLOADS", &self.workloads),
            needs.join("; ")
        )
    }

    /// Returns the command that repeats this run with only these workloads; without workloads, its
    /// reopenings.
    pub(crate) fn command(&self, workloads: &[Workload]) -> String {
        self.line(&if workloads.is_empty() { "load".into() } else { names(workloads) }, workloads)
    }

    /// Returns the command for these workloads, and their names in it.
    fn line(&self, named: &str, workloads: &[Workload]) -> String {
        let mut words = vec![format!("lodestore-bench run --engine {}", quoted(&self.engine))];
        // The command repeats everything that the preset implies, except the tables that it prints.
        if let Some(preset) = self.preset.filter(|preset| preset.has_tables()) {
            words.push(format!("--preset {}", preset.name()));
        }
        if let Some(dir) = &self.dir {
            words.push(format!("--dir {}", quoted(&dir.to_string_lossy())));
        }
        words.push(format!("--workloads {named}"));
        match self.load_bytes.filter(|_| self.sweep.is_some()) {
            // The numbers of records and operations derive from the load bytes for each value.
            Some(bytes) => {
                words.push(format!("--load-bytes {bytes}"));
                words.extend(self.ops.map(|ops| format!("--ops {ops}")));
            }
            None => words.push(format!("--records {} --ops {}", self.records, self.op_count())),
        }
        words.push(format!("--key-size {} --value-size {}", self.key_size, self.value_size));
        if self.compressible > 0 {
            words.push(format!("--compressible {}", self.compressible));
        }
        words.push(format!("--scan-length {} --multiget {}", self.scan_length, self.multiget));
        words.push(format!("--threads {} --rounds {} --seed {}", self.threads, self.rounds, self.seed));
        // The load runs at full speed.
        if workloads.iter().any(|workload| *workload != Workload::Load) {
            words.extend(self.rate.map(|rate| format!("--rate {rate}")));
            let random = self.arrivals != Arrivals::Even;
            words.extend(random.then(|| format!("--arrivals {}", self.arrivals.name())));
        }
        words.extend(self.room());
        match self.settle {
            Settle::Never => words.push("--settle never".into()),
            Settle::Load => words.push("--settle load".into()),
            Settle::Each => {}
        }
        if workloads.iter().any(|workload| workload.lasts()) {
            words.push(format!("--seconds {}", self.seconds));
        }
        if self.emulate_dax {
            words.push("--emulate-dax".into());
        }
        words.push(format!("--persist-ns {}", self.persist_ns));
        let peers = self.targets().split_off(1);
        let peers = if peers.is_empty() { "none".into() } else { peers.join(",") };
        words.push(format!("--peers {}", quoted(&peers)));
        words.extend(self.set.iter().map(|text| format!("--set {}", quoted(text))));
        words.extend(self.sweep.iter().map(|sweep| format!("--sweep {}", quoted(&sweep.to_string()))));
        if !self.steps.is_empty() {
            words.push(format!("--steps {}", self.steps.iter().map(u64::to_string).collect::<Vec<_>>().join(",")));
        }
        words.push(format!("--latency-every {}", self.latency_every));
        words.push(format!("--warm-up {} --at-least {}", self.warm_up, self.at_least));
        if self.go_on {
            words.push("--go-on".into());
        }
        if self.check == Check::Full {
            words.push("--check full".into());
        }
        if self.in_process {
            words.push("--in-process".into());
        }
        if workloads.is_empty() || (self.reopen && workloads == self.workloads) {
            words.push("--reopen".into());
        }
        words.join(" ")
    }

    /// Returns the words for the resources of stores: space on the medium, durability and memory.
    fn room(&self) -> Vec<String> {
        let mut words = Vec::new();
        match self.reserve {
            Some(percent) => words.push(format!("--reserve {percent}")),
            // A size that derives from the swept parameter differs for each value.
            None if self.sweep.is_some() => words.extend(self.size.map(|size| format!("--size {size}"))),
            None => words.push(format!("--size {}", self.capacity())),
        }
        words.extend(self.durability.map(|durability| format!("--durability {durability}")));
        words.extend(self.load_durability.map(|durability| format!("--load-durability {durability}")));
        words.extend(self.budget.map(|budget| format!("--budget {budget}")));
        words.extend(self.memory.map(|memory| format!("--memory {memory}")));
        words.extend(self.write_buffer.map(|buffer| format!("--write-buffer {buffer}")));
        words
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::args::parsed_words;
    use crate::args::preset::Preset;

    /// Returns the words of a command as a shell reads them.
    fn words(command: &str) -> Vec<String> {
        if !command.contains('\'') {
            return command.split_whitespace().map(String::from).collect();
        }
        let script = format!("printf '%s\\0' {command}");
        let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
        let text = String::from_utf8(output.stdout).expect("text");
        text.split_terminator('\0').map(String::from).collect()
    }

    fn read(command: &str) -> Args {
        let words = words(command);
        assert_eq!(words[..2], ["lodestore-bench", "run"], "{command}");
        parsed_words(words[2..].iter().cloned()).resolved().expect("they can be run")
    }

    /// Returns all effective arguments of a run, with derived numbers resolved.
    fn meant(args: &Args, workloads: &[Workload]) -> String {
        let mut args = args.clone();
        args.workloads = workloads.to_vec();
        args.ops = Some(args.op_count());
        args.size = args.reserve.is_none().then(|| args.capacity());
        args.load_bytes = None;
        if !workloads.iter().any(|workload| workload.lasts()) {
            args.seconds = 0;
        }
        args.peers = Some(args.targets().split_off(1));
        (args.preset, args.peers_of_preset, args.left_out, args.given) = (None, false, Vec::new(), Vec::new());
        format!("{args:?}")
    }

    const LINES: [&str; 6] = [
        "--engine hikv --peers nvht,btreemap --workloads load,get,update,zipfput,get,zipfput,scan --records 500 --rounds 2 --set region=64M --dir",
        "--engine hashkv --peers hashkv:mode=vlog,btreemap --reserve 40 --durability process --load-durability process --write-buffer 8M --budget 32M \
         --memory 64M --workloads load,idle,get --seconds 7 --warm-up 3 --at-least 77 --compressible 7 --seed 9 --key-size 8..40 --value-size facebook --load-bytes 1M --settle load \
         --go-on --check full --steps 100,200 --dir",
        "--engine hikv --emulate-dax --persist-ns 5 --workloads load,get --multiget 3 --scan-length 7 --latency-every 3 --rate 5 --arrivals poisson --ops 9 --threads 3 \
         --in-process --settle never --dir",
        "--engine fluidkv --peers hikv,btreemap --load-bytes 1M --sweep value-size=8,100 --durability interval:20 --dir",
        "--engine hikv --peers nvht:region=1G,nvht,btreemap --sweep region=64M,1G --set wal=on --reopen --workloads load,overload --dir",
        "--engine fluidkv --peers hashkv,btreemap --reserve 30 --sweep records=1000,2000 --dir",
    ];

    #[test]
    fn a_row_is_repeated_by_the_same_arguments_with_its_store_and_its_value_alone() {
        let own = LINES.iter().map(|line| format!("{line} './a dir, of $HOME'\\''s; \"own\"'"));
        let presets = Preset::value_variants().iter().map(|preset| format!("{} --dir .", preset.words()));
        for line in own.chain(presets) {
            let args = read(&format!("lodestore-bench run {line}"));
            for variant in args.variants().expect("variants") {
                let alone = variant.by_itself();
                assert_eq!((alone.targets(), &alone.sweep), (vec![variant.target.clone()], &None));
                for turn in Turn::all(&args.workloads) {
                    let needed = args.needed(turn);
                    let command = alone.command(&needed);
                    let again = read(&command);
                    assert_eq!(meant(&again, &again.workloads), meant(&alone, &needed), "{command}");
                    assert_eq!(again.command(&again.workloads), command);
                    assert!(Turn::all(&again.workloads).contains(&turn), "{command}");
                }
            }
        }
    }

    #[test]
    fn a_run_is_repeated_by_the_same_arguments() {
        let presets = Preset::value_variants().iter().map(|preset| format!("--preset {} --dir", preset.name()));
        for line in LINES.map(String::from).into_iter().chain(presets) {
            let args = read(&format!("lodestore-bench run {line} 'a b'"));
            let command = args.command(&args.workloads);
            let again = read(&command);
            assert_eq!(again.command(&again.workloads), command);
            assert_eq!(again.preset, args.preset.filter(|preset| preset.has_tables()));
            let sweep = args.sweep.as_ref().map(ToString::to_string);
            assert_eq!(
                (again.targets(), again.dir, again.sweep.map(|it| it.to_string())),
                (args.targets(), args.dir, sweep)
            );
        }
    }

    #[test]
    fn the_line_for_one_row_says_how_to_redo_a_reopening() {
        let args = read(&format!("lodestore-bench run {} .", LINES[4]));
        let told = args.row_by_row();
        assert!(told.ends_with("; a reopening takes load --reopen"), "{told}");
        let command = told.lines().nth(1).expect("the line to fill in").trim().replace("STORE", "nvht");
        let again = read(&command.replace("VALUE", "64M").replace("WORKLOADS", "load --reopen"));
        assert!(again.reopen && again.workloads == [Workload::Load] && again.targets() == ["nvht"]);
        let without = Args { reopen: false, ..args };
        assert!(!without.row_by_row().contains("reopening"));
    }

    #[test]
    fn what_changes_a_store_runs_before_a_row_and_what_only_reads_does_not() {
        let args =
            parsed_words("--workloads c,load,get,update,c,zipfput,get,idle,zipfput,d".split(' ').map(String::from));
        let named = |turn: &Turn| format!("{}: {}", turn.name(), names(&args.needed(*turn)));
        let all: Vec<_> = Turn::all(&args.workloads).iter().map(named).collect();
        let should = [
            "c: c",
            "load: load",
            "get: get",
            "update: update",
            "c-2: c,update,c",
            "zipfput: update,zipfput",
            "get-2: get,update,zipfput,get",
            "idle: update,zipfput,idle",
            "zipfput-2: update,zipfput,idle,zipfput",
            "d: update,zipfput,idle,zipfput,d",
        ];
        assert_eq!(all, should);
    }
}

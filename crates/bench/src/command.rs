//! The command that repeats a run.

use crate::args::{Args, Check, Settle};
use crate::pace::Arrivals;
use crate::workload::Workload;

impl Args {
    /// The command that repeats this run for these workloads alone; for none, its reopenings.
    pub(crate) fn command(&self, workloads: &[Workload]) -> String {
        let mut words = vec![format!("lodestore bench --engine {}", self.engine)];
        // All that it stands for is said again, but for the tables that it prints.
        if let Some(preset) = self.preset.filter(|preset| preset.has_tables()) {
            words.push(format!("--preset {}", preset.name()));
        }
        if let Some(dir) = &self.dir {
            words.push(format!("--dir {}", dir.display()));
        }
        let names: Vec<_> = workloads.iter().map(|workload| workload.name()).collect();
        words.push(format!("--workloads {}", if names.is_empty() { "load".into() } else { names.join(",") }));
        match self.load_bytes.filter(|_| self.sweep.is_some()) {
            // The numbers of records and operations follow from it for each value.
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
        words.push(format!("--peers {}", if peers.is_empty() { "none".into() } else { peers.join(",") }));
        words.extend(self.set.iter().map(|text| format!("--set {text}")));
        words.extend(self.sweep.iter().map(|sweep| format!("--sweep {sweep}")));
        if !self.steps.is_empty() {
            words.push(format!("--steps {}", self.steps.iter().map(u64::to_string).collect::<Vec<_>>().join(",")));
        }
        words.push(format!("--latency-every {}", self.latency_every));
        if self.go_on {
            words.push("--go-on".into());
        }
        if self.check == Check::Full {
            words.push("--check full".into());
        }
        if workloads.is_empty() || (self.reopen && workloads == self.workloads) {
            words.push("--reopen".into());
        }
        words.join(" ")
    }

    /// What stores are given: room on the medium, durability and memory.
    fn room(&self) -> Vec<String> {
        let mut words = Vec::new();
        match self.reserve {
            Some(percent) => words.push(format!("--reserve {percent}")),
            // What follows from the parameter that is swept is another for each value.
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

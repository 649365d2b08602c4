//! Refusals before anything runs: values that no store accepts, arguments without effect, files
//! that cannot be written.

use std::fs::{self, OpenOptions};
use std::path::Path;

use lodestore::medium::MediumKind;
use lodestore_contract::{Error, Result};

use crate::args::settings;
use crate::args::{Args, refuse};
use crate::peers;
use crate::workload::Turn;
use crate::workload::open_loop::Arrivals;

impl Args {
    /// Refuses arguments that would fail in the middle of a run, or be silently ignored.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], which describes the accepted values.
    pub(crate) fn check_refused(&self) -> Result<()> {
        self.check_ignored()?;
        for variant in self.variants()? {
            settings::check_options(&variant.args, &variant.target)?;
        }
        self.check_persist()?;
        self.check_order()?;
        match &self.timeline {
            Some(file) if file.extension().is_none_or(|ending| ending != "csv") => {
                Err(refuse("timeline", file.display(), "give a file that ends in .csv"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses files that cannot be written, and a directory in which a store cannot be. Only the
    /// process that writes the files checks this, not its cells.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], which describes the accepted values.
    pub(crate) fn check_places(&self) -> Result<()> {
        if let Some(file) = &self.timeline {
            check_file("timeline", file)?;
        }
        // Without a directory there is no server. A missing directory is reported when the run
        // creates its own in it.
        let Some(dir) = self.dir.as_ref().and_then(|dir| fs::canonicalize(dir).ok()) else { return Ok(()) };
        let cells = self.rounds * self.variants()?.len() * if self.reopen { 3 } else { 1 };
        // The longest names that the run and its cells can have.
        let run = dir.join(format!("lodestore-bench-{}-0", std::process::id()));
        let longest = |name: &String| peers::fits_in(name, &run.join(format!("{name}-{cells}")));
        self.targets().iter().try_for_each(longest)
    }

    /// Refuses arguments without effect.
    fn check_ignored(&self) -> Result<()> {
        let swept = self.sweep.as_ref().map_or("", |sweep| sweep.name.as_str());
        let given = |name: &str| self.given.contains(&name);
        if self.rate.is_none() && swept != "rate" && (given("arrivals") || self.arrivals != Arrivals::Even) {
            return Err(refuse(
                "arrivals",
                self.arrivals.name(),
                "it says when the operations of --rate are due: give one",
            ));
        }
        if given("seconds") && !self.workloads.iter().any(|workload| workload.lasts()) {
            let why = "it says how long overload and idle last: name one of these --workloads, or leave it away";
            return Err(refuse("seconds", self.seconds, why));
        }
        if self.load_bytes == Some(0) {
            return Err(refuse("load-bytes", 0, "no record fits: give the bytes of one at least"));
        }
        if self.peers.as_ref().is_some_and(|peers| peers.len() > 1 && peers.iter().any(|peer| peer == "none")) {
            return Err(refuse("peers", "none", "it stands alone: leave it away, or the others"));
        }
        if swept == "ops" && self.at_least > 0 {
            let why = "beside --sweep ops each workload does so many operations and no more: leave it away";
            return Err(refuse("at-least", self.at_least, why));
        }
        match self.set.first() {
            Some(text) if self.targets().iter().all(|name| peers::is_peer(name)) => {
                Err(refuse("set", text, "no engine is measured, and peers have no options"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses additional persist latency if no persist waits: on a medium that is not DAX, and is
    /// not treated as DAX.
    fn check_persist(&self) -> Result<()> {
        if self.emulate_dax {
            return Ok(());
        }
        let of = |args: &Args, name: &String| match peers::is_peer(name) {
            true => args.persist_ns.to_string(),
            false => settings::settings(args, name).remove("persist-ns").unwrap_or_default(),
        };
        let added = self.variants()?.iter().map(|variant| of(&variant.args, &variant.target)).find(|ns| ns != "0");
        let Some(added) = added else { return Ok(()) };
        let medium =
            self.dir.as_ref().map(|dir| lodestore::medium::doctor(dir).map(|found| found.medium.medium)).transpose()?;
        match medium {
            Some(MediumKind::Dax) => Ok(()),
            _ => Err(refuse("persist-ns", added, "nothing waits on a medium that is no DAX: give --emulate-dax too")),
        }
    }

    /// Refuses a run in which no store does anything.
    fn check_order(&self) -> Result<()> {
        let scans = self.workloads.iter().all(|workload| workload.scans());
        if self.reopen || !scans || self.variants()?.iter().any(|it| settings::keeps_order(&it.args, &it.target)) {
            return Ok(());
        }
        let names: Vec<_> = self.workloads.iter().map(|workload| workload.name()).collect();
        let why =
            format!("{} keeps no order, and these scan: name others, or another store", self.targets().join(", "));
        Err(refuse("workloads", names.join(","), why))
    }

    /// Returns the workloads that stores without order skip, a line for each store whose label is
    /// `among` those requested.
    pub(crate) fn unordered(&self, among: impl Fn(&str) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        for variant in self.variants().unwrap_or_default() {
            if !among(&variant.label()) || settings::keeps_order(&variant.args, &variant.target) {
                continue;
            }
            let turns = Turn::all(&self.workloads).into_iter().filter(|turn| turn.workload.scans());
            let left: Vec<_> = turns.map(|turn| turn.name()).collect();
            if !left.is_empty() {
                lines.push(format!("not run on {}, which keeps no order: {}", variant.label(), left.join(", ")));
            }
        }
        lines
    }
}

/// Refuses a file that cannot be written, and leaves the file unchanged.
fn check_file(name: &str, file: &Path) -> Result<()> {
    let was_there = file.symlink_metadata().is_ok();
    let tried = OpenOptions::new().write(true).create(true).truncate(false).open(file);
    tried.map_err(|source| {
        let why = format!("it cannot be written ({source}): give a file in a directory that is there");
        refuse(name, file.display(), why)
    })?;
    if was_there {
        return Ok(());
    }
    fs::remove_file(file).map_err(|source| Error::io("removing", file, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;
    use lodestore_contract::testing::Scratch;

    /// Returns the refusal of a run with these words, or an empty text.
    fn refusal(words: &str) -> String {
        let args = parsed(words).resolved().expect("they can be read");
        args.check().err().map(|error| crate::translate(&error.to_string())).unwrap_or_default()
    }

    #[test]
    fn values_that_a_store_does_not_take_are_refused_whoever_sets_them() {
        for (words, says) in [
            ("--engine hikv --peers nvht:region=banana", "region=banana: the value must be a size"),
            ("--engine hikv:wal=frob --peers none", "wal=frob"),
            ("--engine hikv --peers none --set region=banana", "region=banana: the value must be a size"),
            ("--engine hikv --peers none --set region=banana --go-on", "region=banana"),
            ("--engine hikv --peers none --set region=1K", "--set region=VALUE"),
            ("--engine hikv --sweep region=64M,banana", "region=banana: the value must be a size"),
            ("--engine hikv --peers nvht --set wal=on", "wal=on: engine nvht has no such option"),
        ] {
            let told = refusal(&format!("{words} --dir ."));
            assert!(told.contains(says) && !told.contains('\n'), "{words}: {told}");
        }
        assert_eq!(refusal("--engine hikv --peers nvht,btreemap --set region=64M --dir ."), "");
    }

    #[test]
    fn what_would_change_nothing_is_refused() {
        for (words, says) in [
            ("--engine btreemap --arrivals poisson", "--rate"),
            ("--engine btreemap --arrivals even", "--rate"),
            ("--engine btreemap --seconds 5", "overload and idle"),
            ("--engine btreemap --seconds 60 --workloads get", "overload and idle"),
            ("--engine btreemap --set nosuch=1", "peers have no options"),
            ("--engine btreemap --sweep ops=100,200 --at-least 500", "--sweep ops"),
            ("--engine btreemap --sweep ops=100,200 --at-least 200", "--sweep ops"),
        ] {
            let told = refusal(words);
            assert!(told.contains(says), "{words}: {told}");
        }
        for words in [
            "--engine btreemap --rate 5 --arrivals poisson --workloads get",
            "--engine btreemap --sweep rate=5,6 --arrivals poisson --workloads get",
            "--engine btreemap --seconds 5 --workloads idle",
            "--engine btreemap --sweep ops=100,200",
            "--engine btreemap --sweep ops=100,200 --at-least 0",
        ] {
            assert_eq!(refusal(words), "", "{words}");
        }
    }

    #[test]
    fn latency_that_is_added_to_persists_takes_a_medium_that_has_them() {
        for words in [
            "--engine hikv --peers none --persist-ns 600",
            "--engine hikv --peers none --set persist-ns=600",
            "--engine hikv --peers nvht:persist-ns=600",
            "--engine hikv --sweep persist-ns=0,600",
            "--engine btreemap --persist-ns 600",
        ] {
            let told = refusal(&format!("{words} --dir ."));
            assert!(told.contains("persist-ns=600") && told.contains("--emulate-dax"), "{words}: {told}");
            assert_eq!(refusal(&format!("{words} --emulate-dax --dir .")), "", "{words}");
        }
    }

    #[test]
    fn a_run_of_scans_takes_a_store_that_keeps_an_order() {
        for words in ["--engine nvht --peers none", "--engine nvht --peers hashmap,mkvs:device-engine=nvht"] {
            let told = refusal(&format!("{words} --workloads scan,e --dir ."));
            assert!(told.contains("workloads=scan,e") && told.contains("keeps no order"), "{words}: {told}");
        }
        let some = "--engine nvht --peers btreemap --workloads scan --dir .";
        assert_eq!(refusal(some), "");
        assert_eq!(parsed(some).unordered(|_| true), ["not run on nvht, which keeps no order: scan"]);
        assert_eq!(refusal("--engine nvht --peers none --workloads load,scan --dir ."), "");
    }

    #[test]
    fn a_timeline_ends_in_csv_and_can_be_written() {
        for name in ["x.txt", "csv", "x.svg"] {
            let told = refusal(&format!("--engine btreemap --timeline {name}"));
            assert!(told.contains("give a file that ends in .csv"), "{told}");
        }
        let scratch = Scratch::on_disk();
        let dir = scratch.path().join("directory.csv");
        fs::create_dir(&dir).expect("a directory");
        let places = |file: &Path| parsed(&format!("--engine btreemap --timeline {}", file.display())).check_places();
        for file in [dir.clone(), dir.join("no/such.csv")] {
            let told = places(&file).expect_err("no file can be there").to_string();
            assert!(told.contains("timeline=") && told.contains("cannot be written"), "{told}");
        }
        let (new, old) = (dir.join("new.csv"), dir.join("old.csv"));
        fs::write(&old, "before").expect("a file");
        places(&new).and_then(|()| places(&old)).expect("both can be written");
        assert!(!new.exists() && fs::read(&old).is_ok_and(|bytes| bytes == b"before"));
    }
}

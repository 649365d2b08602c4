//! Every interleaving of small runs of the group commit, by loom, and faults that the models must
//! detect.

#![expect(clippy::duplicate_mod, reason = "the source of the library, compiled over the model checker's locks")]

macro_rules! group_over {
    ($name:ident, $wakes_all:literal, $one_leader:literal, $done_after_work:literal) => {
        #[path = "../src"]
        #[expect(dead_code, reason = "each mutant needs a part of the library and one model")]
        mod $name {
            pub mod group_sync {
                pub use loom::sync::atomic::{AtomicU64, Ordering};
                pub use loom::sync::{Condvar, Mutex, MutexGuard};
                pub use std::sync::PoisonError;
                pub const WAKES_ALL: bool = $wakes_all;
                pub const ONE_LEADER: bool = $one_leader;
                pub const DONE_AFTER_WORK: bool = $done_after_work;
            }
            #[path = "group.rs"]
            pub mod group;

            use group::{Broken, Group};
            use loom::sync::{Arc, Mutex};
            use loom::thread;

            struct Log {
                group: Group<Vec<u64>>,
                last_number: Mutex<u64>,
                /// The work of the leaders, in their order.
                work: Mutex<Vec<u64>>,
            }

            impl Log {
                fn new() -> Arc<Self> {
                    Arc::new(Self { group: Group::new(0), last_number: Mutex::new(0), work: Mutex::new(Vec::new()) })
                }

                fn write(&self, fails_from: u64) -> (u64, Result<(), Broken>) {
                    let number = {
                        let mut last = self.last_number.lock().unwrap();
                        *last += 1;
                        self.group.join(*last, |gathered| gathered.push(*last));
                        *last
                    };
                    let waited = self.group.wait(number, |gathered, last| {
                        // Lets other threads join.
                        thread::yield_now();
                        if last >= fails_from {
                            return false;
                        }
                        self.work.lock().unwrap().extend(gathered);
                        true
                    });
                    if waited.is_ok() {
                        assert!(self.work.lock().unwrap().contains(&number), "acknowledged before its work");
                        assert!(self.group.done() >= number);
                    }
                    (number, waited)
                }
            }

            pub fn writers() {
                let log = Log::new();
                let others: Vec<_> = (0..2)
                    .map(|_| {
                        let log = Arc::clone(&log);
                        thread::spawn(move || log.write(u64::MAX))
                    })
                    .collect();
                let own = log.write(u64::MAX);
                assert!(own.1.is_ok());
                for other in others {
                    assert!(other.join().unwrap().1.is_ok());
                }
                assert_eq!(*log.work.lock().unwrap(), [1, 2, 3], "each once, in the order of the numbers");
            }

            pub fn a_failure() {
                let log = Log::new();
                let other = {
                    let log = Arc::clone(&log);
                    thread::spawn(move || log.write(2))
                };
                let answers = [log.write(2), other.join().unwrap()];
                for (number, answer) in answers {
                    assert!(number == 1 || answer == Err(Broken), "the second write was in a group that failed");
                }
                assert_eq!(log.work.lock().unwrap().len() as u64, log.group.done());
            }
        }
    };
}

group_over!(unmodified, true, true, true);
group_over!(wakes_one, false, true, true);
group_over!(two_leaders, true, false, true);
group_over!(done_early, true, true, false);

fn model(run: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

#[test]
fn writers_are_grouped_and_all_are_answered() {
    model(unmodified::writers);
}

#[test]
fn a_failure_is_returned_to_every_writer_of_the_group() {
    model(unmodified::a_failure);
}

#[test]
fn every_mutant_fails() {
    for (name, run) in [("two leaders", two_leaders::writers as fn()), ("done early", done_early::writers)] {
        let outcome = std::panic::catch_unwind(|| model(run));
        println!("{name}: {}", if outcome.is_err() { "seen" } else { "NOT SEEN" });
        assert!(outcome.is_err(), "{name} must fail");
    }
}

/// The checker ends the process on a deadlock, so this model runs in its own process.
#[test]
#[ignore = "it must fail: run by a_leader_that_wakes_one_alone_is_a_deadlock"]
fn wakes_one_alone() {
    model(wakes_one::writers);
}

#[test]
fn a_leader_that_wakes_one_alone_is_a_deadlock() {
    let own = std::env::current_exe().expect("this program");
    let ran = std::process::Command::new(own)
        .args(["--ignored", "--exact", "--nocapture", "wakes_one_alone"])
        .output()
        .expect("ran");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && stderr.contains("deadlock"), "{}: {stderr}", ran.status);
}

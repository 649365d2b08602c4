//! Stores that lose their process: killed, or stopped by a signal.

use crate::common::{Sandbox, failed, is_ignored, text};

fn lines(from: u32, to: u32) -> String {
    (from..to).map(|n| format!("key{n:06}\tvalue of {n}\n")).collect()
}

#[test]
fn acknowledged_imports_survive_kill_9() {
    let sandbox = Sandbox::with_store();
    let mut importer = sandbox.importer();
    importer.send(&lines(0, 15_000));
    assert_eq!(importer.acknowledged(15_000), 15_000);
    importer.kill();
    assert_eq!(sandbox.ok(&["get", "store", "key000000"]), "value of 0");
    assert_eq!(sandbox.ok(&["count", "store"]), "15000\n");
    assert_eq!(sandbox.ok(&["scan", "store"]), lines(0, 15_000));
    assert!(sandbox.ok(&["verify", "store"]).ends_with("clean\n"));
}

#[test]
fn rounds_of_kill_9_in_the_middle_lose_nothing_acknowledged() {
    let sandbox = Sandbox::with_store();
    for round in 0..5u32 {
        let mut importer = sandbox.importer();
        let (first, last) = (round * 20_000, round * 20_000 + 20_000);
        importer.send(&lines(first, first + 12_000));
        let acknowledged = importer.acknowledged(10_000);
        importer.send(&lines(first + 12_000, last));
        importer.kill();
        let there = sandbox.ok(&["scan", "store", "--from", &format!("key{first:06}")]);
        let acknowledged = u32::try_from(acknowledged).expect("few");
        assert!(there.starts_with(&lines(first, first + acknowledged)), "round {round}: {acknowledged} acknowledged");
        assert!(lines(first, last).starts_with(&there), "round {round}: a prefix of what was sent, and nothing else");
        sandbox.ok(&["verify", "store"]);
        sandbox.write("round.tsv", lines(first, last));
        sandbox.ok(&["import", "store", "round.tsv"]);
    }
    assert_eq!(sandbox.ok(&["scan", "store"]), lines(0, 100_000));
}

#[test]
fn a_signal_closes_the_store_and_has_its_exit_code() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        if is_ignored(name) {
            continue;
        }
        let sandbox = Sandbox::with_store();
        let mut importer = sandbox.importer();
        importer.send("a\t1\nb\t2\n");
        importer.acknowledged(2);
        let ended = importer.signal(name);
        failed(&ended, code, "after 2 imported records", &["import", name]);
        assert!(text(&ended.stdout).contains("imported 2 records"), "{}", text(&ended.stdout));
        assert_eq!(sandbox.ok(&["scan", "store"]), "a\t1\nb\t2\n");
    }
}

#[test]
fn a_signal_that_the_parent_ignores_does_not_end_an_import() {
    for name in ["HUP", "INT"] {
        let sandbox = Sandbox::with_store();
        let mut importer = sandbox.importer_ignoring(name);
        importer.send("a\t1\n");
        importer.acknowledged(1);
        importer.send_signal(name);
        importer.send("b\t2\n");
        importer.acknowledged(2);
        importer.kill();
        assert_eq!(sandbox.ok(&["scan", "store"]), "a\t1\nb\t2\n", "{name}");
    }
}

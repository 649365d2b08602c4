//! `scan`: bounds, order, limit and forms.

use crate::common::Sandbox;

/// A store with keys a/0 .. a/4, b and c.
fn filled() -> Sandbox {
    let sandbox = Sandbox::with_store();
    sandbox.write("in.tsv", "c\tthree\nb\ttwo\na/4\t4\na/3\t3\na/2\t2\na/1\t1\na/0\t0\n");
    sandbox.ok(&["import", "store", "in.tsv"]);
    sandbox
}

fn keys(sandbox: &Sandbox, args: &[&str]) -> String {
    let args: Vec<_> = ["scan", "store", "--keys-only"].iter().chain(args).copied().collect();
    sandbox.ok(&args).replace('\n', " ").trim_end().to_owned()
}

#[test]
fn keys_come_in_order_with_their_values() {
    let sandbox = filled();
    assert_eq!(sandbox.ok(&["scan", "store"]), "a/0\t0\na/1\t1\na/2\t2\na/3\t3\na/4\t4\nb\ttwo\nc\tthree\n");
}

#[test]
fn bounds_prefix_limit_and_direction_are_kept() {
    let sandbox = filled();
    for (args, found) in [
        (&["--prefix", "a/"][..], "a/0 a/1 a/2 a/3 a/4"),
        (&["--prefix", "a/", "--reverse"], "a/4 a/3 a/2 a/1 a/0"),
        (&["--prefix", "x"], ""),
        (&["--from", "a/3"], "a/3 a/4 b c"),
        (&["--to", "a/2"], "a/0 a/1"),
        (&["--from", "a/1", "--to", "a/3"], "a/1 a/2"),
        (&["--from", "a/3", "--to", "a/1"], ""),
        (&["--prefix", "a/", "--from", "a/3"], "a/3 a/4"),
        (&["--prefix", "a/", "--from", "a"], "a/0 a/1 a/2 a/3 a/4"),
        (&["--prefix", "a/", "--to", "b"], "a/0 a/1 a/2 a/3 a/4"),
        (&["--prefix", "a/", "--from", "b"], ""),
        (&["--prefix", "b", "--to", "a/3"], ""),
        (&["--limit", "2"], "a/0 a/1"),
        (&["--limit", "2", "--reverse"], "c b"),
        (&["--limit", "0"], ""),
        (&["--reverse", "--from", "a/2", "--limit", "3"], "c b a/4"),
    ] {
        assert_eq!(keys(&sandbox, args), found, "{args:?}");
    }
}

#[test]
fn every_output_format_writes_one_line_per_pair() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "--hex", "610a", "ff"]);
    assert_eq!(sandbox.ok(&["scan", "store"]), "a\\n\t\\xff\n");
    assert_eq!(sandbox.ok(&["scan", "store", "--hex"]), "610a\tff\n");
    assert_eq!(sandbox.ok(&["scan", "store", "--base64"]), "YQo=\t/w==\n");
    assert_eq!(sandbox.ok(&["scan", "store", "--json"]), "{\"key\":\"a\\n\",\"value_b64\":\"/w==\"}\n");
    assert_eq!(sandbox.ok(&["scan", "store", "--json", "--keys-only"]), "{\"key\":\"a\\n\"}\n");
    assert_eq!(sandbox.ok(&["scan", "store", "--hex", "--prefix", "61"]), "610a\tff\n");
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let sandbox = Sandbox::with_store();
    let lines: String = (0..20_000).map(|n| format!("key{n:06}\t{}\n", "v".repeat(40))).collect();
    sandbox.write("in.tsv", lines);
    sandbox.ok(&["import", "store", "in.tsv"]);
    for command in ["scan", "export"] {
        let mut child = sandbox
            .command(&[command, "store"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut first = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut first).expect("a line");
        assert!(first.contains("key000000"), "{first}");
        let ended = child.wait_with_output().expect("the program ends");
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]), "{command}");
    }
    assert_eq!(sandbox.ok(&["count", "store"]), "20000\n");
}

#[test]
fn a_scan_of_an_engine_without_order_names_the_command_that_needs_none() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--engine", "nvht", "--size", "64M"]);
    sandbox.fails(&["scan", "store"], 2, "use `export`, which needs no order");
}

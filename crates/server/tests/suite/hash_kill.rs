//! Hashes after `kill -9` of the server.
//!
//! The test starts this program again as the server, so that a real process is killed.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::common::{Client, TestServer, memory_dir, open_store, show};
use super::hashes::fill;
use lodestore::db::Engine;
use lodestore_server::{Config, Server};
use lodestore_wire::Reply;

/// Names the directory of the store to the process that serves.
const DIRECTORY: &str = "LODESTORE_SERVER_TEST_DIRECTORY";

/// Names the engine to the process that serves.
const ENGINE: &str = "LODESTORE_SERVER_TEST_ENGINE";

/// Prefix of the line with the address of the server.
const ADDRESS: &str = "address ";

fn engine_of(name: &str) -> Engine {
    match name {
        "hikv" => Engine::hikv(),
        _ => Engine::fluidkv(),
    }
}

/// Serves until the process is killed. Does nothing in an ordinary run.
#[test]
fn the_process_that_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let db = open_store(Path::new(&directory), &engine_of(&std::env::var(ENGINE).unwrap()), None);
    let config = Config { listen: vec![([127, 0, 0, 1], 0).into()], threads: 2, ..Config::default() };
    let server = Server::start(db, config).expect("a server");
    println!("\n{ADDRESS}{}", server.addresses()[0]);
    server.wait().expect("a clean stop");
}

fn start(directory: &Path, engine: &str) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hash_kill::the_process_that_is_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ENGINE, engine)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    let address = output.lines().map_while(Result::ok).find_map(|line| line.strip_prefix(ADDRESS)?.parse().ok());
    (child, address.expect("an address"))
}

/// Returns the fields of `HGETALL`.
fn all_fields(client: &mut Client, key: &str) -> Vec<(String, String)> {
    client.send(&["HGETALL", key]);
    let Reply::Array(replies) = client.receive() else { panic!("no array") };
    replies.chunks(2).map(|pair| (show(&pair[0]), show(&pair[1]))).collect()
}

/// Writes hashes until the server is killed. Returns the number of acknowledged rounds.
fn write_until_killed(address: SocketAddr, acknowledged: &std::sync::atomic::AtomicUsize) {
    let mut client = Client::connect(address);
    for round in 0.. {
        let number = round.to_string();
        let field = format!("f{round}");
        for command in [
            &["MULTI"][..],
            &["HSET", "grown", &field, &number],
            // The copy replaces a large hash once there are enough fields.
            &["COPY", "base", "copy", "REPLACE"],
            &["HSET", "copy", "round", &number],
            &["EXEC"],
            &["RENAME", "copy", "renamed"],
        ] {
            client.send_or_stop(command);
            let Some(reply) = client.try_receive() else { return };
            let text = show(&reply);
            assert!(!text.contains("ERR"), "{command:?}: {text}");
            if command[0] == "EXEC" {
                acknowledged.store(round + 1, std::sync::atomic::Ordering::SeqCst);
            }
        }
    }
}

fn kill_and_check(engine: &str, rounds: usize) {
    let directory = memory_dir();
    let (mut child, address) = start(directory.path(), engine);
    let mut client = Client::connect(address);
    fill(&mut client, "base", 150);
    let acknowledged = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let writer = {
        let acknowledged = std::sync::Arc::clone(&acknowledged);
        std::thread::spawn(move || write_until_killed(address, &acknowledged))
    };
    while acknowledged.load(std::sync::atomic::Ordering::SeqCst) < rounds {
        assert!(!writer.is_finished(), "the writer failed");
        std::thread::yield_now();
    }
    child.kill().expect("a kill");
    child.wait().expect("an end");
    writer.join().unwrap();
    let acknowledged = acknowledged.load(std::sync::atomic::Ordering::SeqCst);
    let server = TestServer::start_over(directory, engine_of(engine));
    let mut client = server.client();
    // The last transaction may be committed without its reply.
    let count: usize = client.run("HLEN grown")[1..].parse().unwrap();
    assert!((acknowledged..=acknowledged + 1).contains(&count), "{count} fields, {acknowledged} acknowledged");
    let mut grown = all_fields(&mut client, "grown");
    grown.sort_by_key(|(_, value)| value.parse::<usize>().unwrap());
    let expected: Vec<(String, String)> = (0..count).map(|round| (format!("f{round}"), round.to_string())).collect();
    assert_eq!(grown, expected);
    let base = all_fields(&mut client, "base");
    assert_eq!(base.len(), 150);
    // A transaction is whole or absent, so the copy has the round of the last field.
    let mut large = 1 + usize::from(count > 128);
    let mut newest = None;
    for key in ["copy", "renamed"] {
        let fields = all_fields(&mut client, key);
        if !fields.is_empty() {
            large += 1;
            assert_eq!(fields.len(), 151, "{key}");
            let round = &fields.iter().find(|(field, _)| field == "round").expect("a round").1;
            newest = newest.max(Some(round.parse::<usize>().unwrap()));
        }
    }
    assert_eq!(newest, Some(count - 1));
    check_orphans(&server, large);
}

/// Waits until only the collections are left that keys refer to.
fn check_orphans(server: &TestServer, large: usize) {
    let elements = server.db().keyspace("lodestore-server/elements-0").unwrap();
    let mut headers = 0;
    for _ in 0..1000 {
        headers = elements.prefix_keys([0]).unwrap().count();
        if headers == large {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{headers} collections are left, not {large}");
}

#[test]
fn hashes_of_fluidkv_survive_a_kill() {
    [1, 50, 127, 128, 129, 200].into_iter().for_each(|rounds| kill_and_check("fluidkv", rounds));
}

#[test]
fn hashes_of_hikv_survive_a_kill() {
    [1, 129].into_iter().for_each(|rounds| kill_and_check("hikv", rounds));
}

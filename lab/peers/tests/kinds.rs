//! Every peer compared with a model. These tests need the libraries, and so the feature
//! `installed`.

#[cfg(not(feature = "installed"))]
#[test]
fn skipped_without_the_feature_installed() {
    eprintln!(
        "skipped: the peers' libraries may not be here; run scripts/peers.sh, then give --features lodestore-peers/installed"
    );
}

#[cfg(feature = "installed")]
mod common;

#[cfg(feature = "installed")]
mod installed {
    use std::collections::BTreeMap;
    use std::path::Path;

    use lodestore_contract::Error;
    use lodestore_peers::{Asked, Kind, Survives, kinds};

    use crate::common::{get, kind_and_dir, with_each};

    /// A generator of test bytes (xorshift), always with the same sequence.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, most: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % most
        }
    }

    #[test]
    fn each_name_is_one_peer() {
        let mut names: Vec<_> = kinds().iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), kinds().len());
    }

    #[test]
    fn what_was_put_comes_back_at_every_size() {
        with_each(|kind, peer| {
            for size in [0, 1, 63, 64, 255, 256, 257, 5000, 100_000] {
                let (key, value) = (format!("key of {size}"), vec![size as u8; size]);
                assert_eq!(get(peer, key.as_bytes()), None, "{}", kind.name);
                peer.put(key.as_bytes(), &value).expect("put");
                assert_eq!(get(peer, key.as_bytes()).as_deref(), Some(&*value), "{} at {size}", kind.name);
            }
            peer.flush().expect("flushed");
        });
    }

    #[test]
    fn a_peer_does_as_the_model_does() {
        let seed = 0x5EED_0001_u64;
        println!("seed {seed}");
        with_each(|kind, peer| {
            let (mut model, mut dice) = (BTreeMap::new(), Dice(seed));
            for step in 0..4000_u64 {
                let key = format!("{:04}", dice.below(300)).into_bytes();
                match dice.below(4) {
                    0 | 1 => {
                        let value = vec![step as u8; dice.below(600) as usize];
                        peer.put(&key, &value).expect("put");
                        model.insert(key, value);
                    }
                    2 => {
                        let there = peer.delete(&key).expect("delete");
                        assert!(there || !model.contains_key(&key), "{} denies a key, step {step}", kind.name);
                        model.remove(&key);
                    }
                    _ => assert_eq!(get(peer, &key), model.get(&key).cloned(), "{} step {step}", kind.name),
                }
            }
            if kind.ordered {
                let mut seen = Vec::new();
                let count = peer.scan(b"0100", 50, &mut |key, value| seen.push((key.to_vec(), value.to_vec())));
                let should: Vec<_> =
                    model.range(b"0100".to_vec()..).take(50).map(|(k, v)| (k.clone(), v.clone())).collect();
                assert_eq!((count.expect("scan"), seen), (should.len(), should), "{}", kind.name);
                assert_eq!(peer.scan(b"9999", 5, &mut |_, _| panic!("nothing is there")).expect("scan"), 0);
            } else {
                let refused = peer.scan(b"", 1, &mut |_, _| ());
                assert!(matches!(refused, Err(Error::Unsupported { .. })), "{}", kind.name);
            }
        });
    }

    #[test]
    fn several_threads_write_and_read_their_own() {
        with_each(|kind, peer| {
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    scope.spawn(move || {
                        let mut value = Vec::new();
                        for number in 0..500 {
                            let key = format!("{thread}-{number}");
                            peer.put(key.as_bytes(), key.as_bytes()).expect("put");
                            assert!(peer.get(key.as_bytes(), &mut value).expect("get"));
                            assert_eq!(value, key.as_bytes(), "{}", kind.name);
                        }
                    });
                }
            });
            for thread in 0..4 {
                assert!((0..500).all(|number| get(peer, format!("{thread}-{number}").as_bytes()).is_some()));
            }
        });
    }

    #[test]
    fn a_peer_says_its_version_and_what_survives() {
        with_each(|kind, peer| {
            let about = peer.about();
            assert!(about.settings.contains_key("version") && about.settings.contains_key("sync"), "{}", kind.name);
            let synced = kind.name.ends_with("-paper") || kind.name.ends_with("-sync");
            assert_eq!(about.survives == Survives::Medium, synced, "{}", kind.name);
            assert_eq!(about.survives, kind.survives, "{}", kind.name);
        });
    }

    #[test]
    fn each_family_has_its_plain_kind() {
        for kind in kinds() {
            let plain = kinds().iter().find(|plain| plain.name == kind.family).expect("it has the family's name");
            assert!(plain.family == kind.family && kind.name.starts_with(plain.name), "{}", kind.name);
        }
    }

    #[test]
    fn several_keys_in_one_call_are_each_answered_once_and_in_their_place() {
        with_each(|kind, peer| {
            for number in 0..100_u32 {
                peer.put(format!("{number:04}").as_bytes(), &vec![number as u8; number as usize]).expect("put");
            }
            // A duplicate, absent keys, and no order.
            let numbers = [7, 99, 1000, 3, 7, 0, 2000];
            let keys: Vec<_> = numbers.iter().map(|number| format!("{number:04}").into_bytes()).collect();
            let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut seen = vec![None; keys.len()];
            peer.multi_get(&slices, &mut |at, value| {
                assert!(seen[at].is_none(), "{} answers {at} twice", kind.name);
                seen[at] = Some(value.map(<[u8]>::to_vec));
            })
            .expect("an answer");
            let should = |number: &u32| Some((*number < 100).then(|| vec![*number as u8; *number as usize]));
            assert_eq!(seen, numbers.iter().map(should).collect::<Vec<_>>(), "{}", kind.name);
            peer.multi_get(&[], &mut |_, _| panic!("no key was asked for")).expect("nothing to do");
        });
    }

    #[test]
    fn what_one_kind_of_a_family_wrote_another_finds_when_it_is_opened_again() {
        for kind in kinds().iter().filter(|kind| kind.survives != Survives::Nothing) {
            let keeps = |other: &&Kind| other.family == kind.family && other.survives != Survives::Nothing;
            let usual = kinds().iter().find(keeps).expect("a family has its usual kind");
            let dir = lodestore_contract::testing::Scratch::new();
            for (round, (as_kind, there)) in [(usual, false), (kind, true), (usual, true)].into_iter().enumerate() {
                let asked = Asked { there, budget: Some(16 << 20), ..Asked::default() };
                let peer = as_kind.open(dir.path(), &asked).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
                for old in 0..round as u32 * 500 {
                    let found = get(&*peer, &old.to_le_bytes());
                    assert_eq!(found.as_deref(), Some(&[old as u8; 100][..]), "{} {old} in round {round}", kind.name);
                }
                for number in 0..500 {
                    let number = round as u32 * 500 + number;
                    peer.put(&number.to_le_bytes(), &[number as u8; 100]).expect("put");
                }
                peer.flush().expect("flushed");
            }
        }
    }

    /// Returns the bytes of the files with this extension in `dir`.
    fn bytes_of(dir: &Path, ending: &str) -> u64 {
        let files = std::fs::read_dir(dir).expect("the directory is there").flatten();
        let those = files.filter(|file| file.path().extension().is_some_and(|it| it == ending));
        those.map(|file| file.metadata().expect("it is there").len()).sum()
    }

    /// Number of rounds in which the test of blobs puts its records.
    const ROUNDS: u32 = 20;

    #[test]
    fn blobdb_keeps_large_values_apart_and_collects_what_died() {
        let found = |name: &str, value: usize| {
            let kind = kinds().iter().find(|kind| kind.name == name).expect("there is one");
            let dir = lodestore_contract::testing::Scratch::on_disk();
            let asked = Asked { budget: Some(1 << 20), ..Asked::default() };
            let peer = kind.open(dir.path(), &asked).expect("it opens");
            // Every tenth value is never overwritten, so no file dies as a whole.
            for round in 0..ROUNDS {
                for number in 0..2000_u32 {
                    let key = if number % 10 == 0 { number + round * 10_000 } else { number };
                    peer.put(&key.to_le_bytes(), &vec![round as u8; value]).expect("put");
                }
            }
            peer.settle().expect("settled");
            assert_eq!(get(&*peer, &7_u32.to_le_bytes()), Some(vec![ROUNDS as u8 - 1; value]), "{name}");
            (peer.about().settings["blobs"].clone(), bytes_of(dir.path(), "blob"))
        };
        let (blobs, bytes) = found("blobdb", 1000);
        let (all, live) = (u64::from(ROUNDS) * 2_000_000, 1_800_000 + u64::from(ROUNDS) * 200_000);
        assert!(blobs == "true" && (live..all / 2).contains(&bytes), "{bytes} of {all} put, {live} live");
        assert_eq!(found("blobdb", 100).1, 0, "small values stand in tables");
        assert_eq!(found("rocksdb", 1000).1, 0, "without blobs all do");
    }

    #[test]
    fn settling_keeps_every_record_and_leaves_the_buffers_empty() {
        with_each(|kind, peer| {
            let value = [7_u8; 200];
            let synced = kind.survives == Survives::Medium;
            // Small enough for the buffers: nothing leaves them before the end.
            let count: u32 = if synced { 2000 } else { 20_000 };
            for round in 0..2_u32 {
                for number in 0..count {
                    let key = (number * 7919 % count).to_le_bytes();
                    peer.put(&key, &[&value[..], &round.to_le_bytes()[..]].concat()).expect("put");
                }
            }
            let before = peer.account().dram_bytes;
            peer.settle().expect("settled");
            let after = peer.account().dram_bytes;
            assert_eq!(before.is_some(), after.is_some(), "{}", kind.name);
            if let Some((before, after)) = before.zip(after).filter(|_| !synced) {
                assert!(before > 8 << 20 && after < 3 << 20, "{}: {before} then {after}", kind.name);
            }
            let should = [&value[..], &1_u32.to_le_bytes()[..]].concat();
            assert!((0..count).all(|n| get(peer, &n.to_le_bytes()).as_ref() == Some(&should)), "{}", kind.name);
        });
    }

    fn is_there(process: u32) -> bool {
        Path::new(&format!("/proc/{process}")).is_dir()
    }

    #[test]
    fn a_server_is_another_process_that_goes_with_its_peer() {
        for name in ["redis", "redis-aof", "memcached"] {
            let (kind, dir) = kind_and_dir(name);
            let peer = kind.open(dir.path(), &Asked { threads: 3, ..Asked::default() }).expect("it opens");
            let server = peer.server().expect("it is a server");
            assert!(server != std::process::id() && is_there(server), "{name}");
            drop(peer);
            assert!(!is_there(server), "{name}");
            assert!(!dir.path().join("socket").exists(), "{name}");
        }
        let (kind, dir) = kind_and_dir("lmdb");
        assert_eq!(kind.open(dir.path(), &Asked::default()).expect("it opens").server(), None);
    }

    #[test]
    fn what_a_server_acknowledged_survives_its_death_where_it_says_so() {
        for (name, survives) in [("redis", false), ("redis-aof", true), ("redis-sync", true)] {
            let (kind, dir) = kind_and_dir(name);
            let peer = kind.open(dir.path(), &Asked::default()).expect("it opens");
            for number in 0..500_u32 {
                peer.put(&number.to_le_bytes(), &[number as u8; 100]).expect("put");
            }
            let server = peer.server().expect("it is a server").to_string();
            let killed = std::process::Command::new("kill").args(["-9", &server]).status().expect("kill runs");
            assert!(killed.success());
            drop(peer);
            let peer = kind.open(dir.path(), &Asked { there: true, ..Asked::default() }).expect("it opens again");
            let found = (0..500_u32).filter(|number| get(&*peer, &number.to_le_bytes()).is_some()).count();
            assert_eq!(found, if survives { 500 } else { 0 }, "{name}");
        }
    }

    #[test]
    fn what_sled_acknowledged_after_a_sync_is_in_its_files_while_it_is_open() {
        let (kind, dir) = kind_and_dir("sled-sync");
        let peer = kind.open(dir.path(), &Asked::default()).expect("it opens");
        // Several times, because its own thread flushes now and then, whether or not its writes do.
        for round in 1..=5_u32 {
            for number in (round - 1) * 100..round * 100 {
                peer.put(&number.to_le_bytes(), &[number as u8; 100]).expect("put");
            }
            assert!(peer.delete(&(round * 100 - 1).to_le_bytes()).expect("an answer"));
            // A copy of the files, as a kill would leave them.
            let (_, copy) = kind_and_dir("sled-sync");
            let (from, to) = (dir.path().join("peer.sled"), copy.path());
            let copied = std::process::Command::new("cp").arg("-r").arg(from).arg(to).status();
            assert!(copied.expect("cp runs").success());
            let copy = kind.open(copy.path(), &Asked { there: true, ..Asked::default() }).expect("it opens");
            for number in 0..round * 100 {
                let should = (number % 100 != 99).then(|| vec![number as u8; 100]);
                assert_eq!(get(&*copy, &number.to_le_bytes()), should, "{number} in round {round}");
            }
        }
    }

    #[test]
    fn sled_can_be_opened_again_at_once_where_it_was_dropped() {
        let (kind, dir) = kind_and_dir("sled-sync");
        // Many rounds, because its threads are not always late.
        for round in 0..50_u32 {
            let asked = Asked { there: round > 0, ..Asked::default() };
            let peer = kind.open(dir.path(), &asked).unwrap_or_else(|error| panic!("round {round}: {error}"));
            for number in 0..100_u32 {
                peer.put(&number.to_le_bytes(), &round.to_le_bytes()).expect("put");
            }
        }
    }

    #[test]
    fn servers_lmdb_and_sled_look_whether_a_key_is_there() {
        for name in ["redis", "memcached"] {
            let (kind, dir) = kind_and_dir(name);
            let peer = kind.open(dir.path(), &Asked::default()).expect("it opens");
            assert!(!peer.update(b"key", b"first").expect("an answer"), "{name}");
            assert_eq!(get(&*peer, b"key"), None, "{name}");
            peer.put(b"key", b"first").expect("put");
            assert!(peer.update(b"key", b"second").expect("an answer"), "{name}");
            assert_eq!(get(&*peer, b"key").as_deref(), Some(&b"second"[..]), "{name}");
        }
        for name in ["redis", "memcached", "lmdb", "sled"] {
            let (kind, dir) = kind_and_dir(name);
            let peer = kind.open(dir.path(), &Asked::default()).expect("it opens");
            peer.put(b"key", b"value").expect("put");
            assert!(peer.delete(b"key").expect("an answer"), "{name}");
            assert!(!peer.delete(b"key").expect("an answer"), "{name}");
        }
    }

    #[test]
    fn a_directory_whose_socket_would_have_too_long_a_path_is_refused_with_the_reason() {
        let dir = lodestore_contract::testing::Scratch::on_disk();
        let long = dir.path().join("x".repeat(110));
        std::fs::create_dir(&long).expect("a directory");
        for name in ["redis", "memcached"] {
            let kind = kinds().iter().find(|kind| kind.name == name).expect("there is one");
            let refused = kind.open(&long, &Asked::default()).err().expect("it is refused").to_string();
            assert!(refused.contains("give a shorter directory"), "{name}: {refused}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        for kind in kinds() {
            assert!(kind.open(Path::new("/nowhere/at/all"), &Asked::default()).is_err(), "{}", kind.name);
        }
    }
}

//! The shortest use of the engine.
use crate::common::{Scratch, small_dax};
use lodestore_contract::{ScanRange, Store, Visit};
use lodestore_hikv::HiKv;
use lodestore_media::Pool;

#[test]
fn puts_gets_scans_deletes_and_reopens() {
    let scratch = Scratch::new();
    let options = small_dax();
    let path = scratch.store();
    {
        let store = HiKv::create(&path, &options).expect("create");
        for i in 0..20_000u32 {
            store.put(format!("key{i:08}").as_bytes(), format!("value{i}").as_bytes()).expect("put");
        }
        for i in (0..20_000u32).step_by(3) {
            assert!(store.delete(format!("key{i:08}").as_bytes()).expect("delete"));
        }
        check(&store);
    }
    for _ in 0..3 {
        let store = HiKv::open(&path, &options).expect("open after a crash");
        check(&store);
    }
    HiKv::open(&path, &options).expect("open").close().expect("close");
    let store = HiKv::open(&path, &options).expect("open after a clean stop");
    check(&store);
}

fn check(store: &HiKv) {
    for i in 0..20_000u32 {
        let value = store.get(format!("key{i:08}").as_bytes()).expect("get");
        assert_eq!(value, (i % 3 != 0).then(|| format!("value{i}").into_bytes()), "{i}");
    }
    let mut seen = Vec::new();
    store
        .scan_each(&ScanRange::all(), &mut |key, _| {
            seen.push(key.to_vec());
            Visit::More
        })
        .expect("scan");
    let expected: Vec<_> = (0..20_000u32).filter(|i| i % 3 != 0).map(|i| format!("key{i:08}").into_bytes()).collect();
    assert_eq!(seen, expected);
    let report = store.verify(&mut |_| {}).expect("verify");
    assert!(report.is_clean(), "{:?}", &report.findings[..report.findings.len().min(5)]);
}

#[test]
fn concurrent_closes_return_when_the_store_is_closed() {
    let scratch = Scratch::new();
    let mut store = HiKv::create(&scratch.store(), &small_dax()).expect("a new store");
    for round in 0..20u32 {
        for key in 0..200 {
            store.put(format!("{round} {key}").as_bytes(), b"value").expect("room");
        }
        let start = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    start.wait();
                    store.close().expect("closes");
                    assert!(Pool::inspect(&scratch.store()).expect("readable").clean, "round {round}");
                });
            }
        });
        store = HiKv::open(&scratch.store(), &small_dax()).expect("nobody holds it any more");
    }
}

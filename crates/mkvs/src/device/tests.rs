//! Tests of a single device.

use lodestore_media::PoolOptions;
use lodestore_nvht::{Nvht, NvhtOptions};

use super::*;
use crate::layout::MemberState;

#[test]
fn a_failed_device_has_a_reason_during_a_concurrent_recall() {
    let dir = lodestore_contract::testing::Scratch::on_disk();
    let pool = PoolOptions { region_bytes: 4 << 20, ..PoolOptions::default() };
    let options = NvhtOptions { pool, partitions: 1, ..NvhtOptions::default() };
    let store = Arc::new(Nvht::create(&dir.path().join("store"), &options).expect("create"));
    let device = Device::new(0, 1, store, None, false, true);
    for _ in 0..50 {
        device.fail(Failure::late("late".into()));
        let queue = lock(&device.queue);
        std::thread::scope(|scope| {
            let fails = scope.spawn(|| device.fail(Failure::late("late".into())));
            // The thread probably waits for the queue by now, and is recalled before it acquires
            // it.
            std::thread::sleep(Duration::from_millis(2));
            drop(queue);
            device.recall(Duration::ZERO);
            fails.join().expect("a thread that ends");
        });
        assert_eq!(device.state() == MemberState::Failed, device.failure().is_some());
    }
}

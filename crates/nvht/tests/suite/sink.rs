//! Events are reported after the locks of their operation were freed.

use lodestore_inplace::testing::{
    check_sink_may_drop_the_store, check_sink_may_panic_in_recovery, check_sink_may_use_the_store, small_dax_pool,
};
use lodestore_nvht::{Nvht, NvhtOptions};

use crate::common::KIND;

#[test]
fn a_sink_can_use_the_store_in_every_event() {
    let options = NvhtOptions { pool: small_dax_pool(), partitions: 4, sweep_ms: 0, ..NvhtOptions::default() };
    check_sink_may_use_the_store(&KIND, options, Nvht::sweep_expired);
}

#[test]
fn a_sink_that_panics_in_the_recovery_poisons_nothing() {
    for recovery_threads in [0, 1, 3] {
        let options = NvhtOptions { partitions: 4, sweep_ms: 0, recovery_threads, ..NvhtOptions::default() };
        check_sink_may_panic_in_recovery(&KIND, options);
    }
}

#[test]
fn a_sink_on_the_sweeping_thread_may_drop_the_last_handle() {
    let options = NvhtOptions { partitions: 4, sweep_ms: 1, ..NvhtOptions::default() };
    check_sink_may_drop_the_store(&KIND, options);
}

//! Events are told behind the locks of the operation that met them.

use lodestore_hikv::{HiKv, HiKvOptions};
use lodestore_inplace::testing::{Kind, check_sink_may_use_the_store, small_dax_pool};

static KIND: Kind<HiKv, HiKvOptions> =
    Kind { engine: "hikv", create: HiKv::create, open: HiKv::open, pool: |options| &mut options.pool };

#[test]
fn a_sink_may_use_the_store_whatever_the_event() {
    let options = HiKvOptions { pool: small_dax_pool(), partitions: 4, sweep_ms: 0, ..HiKvOptions::default() };
    check_sink_may_use_the_store(&KIND, options, HiKv::sweep_expired);
}

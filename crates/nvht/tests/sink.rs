//! Events are told behind the locks of the operation that met them.

use lodestore_inplace::testing::{Kind, check_sink_may_use_the_store, small_dax_pool};
use lodestore_nvht::{Nvht, NvhtOptions};

static KIND: Kind<Nvht, NvhtOptions> =
    Kind { engine: "nvht", create: Nvht::create, open: Nvht::open, pool: |options| &mut options.pool };

#[test]
fn a_sink_may_use_the_store_whatever_the_event() {
    let options = NvhtOptions { pool: small_dax_pool(), partitions: 4, sweep_ms: 0, ..NvhtOptions::default() };
    check_sink_may_use_the_store(&KIND, options, Nvht::sweep_expired);
}

//! The suite with the reference store, with and without order.

#[expect(dead_code, reason = "these tests use a part of it")]
mod reference;

use reference::Place;

fn ordered() -> Place {
    Place::new(None)
}

fn unordered() -> Place {
    Place { ordered: false, ..Place::new(None) }
}

mod with_order {
    lodestore_contract::conformance!(super::ordered);
}

mod without_order {
    lodestore_contract::conformance!(super::unordered);
}

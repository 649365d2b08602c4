//! Names of stores: an engine or a peer, and its settings after colons.

/// The engines of this workspace.
pub(crate) const ENGINES: [&str; 5] = ["hikv", "nvht", "fluidkv", "hashkv", "mkvs"];
/// The engine without an order of keys.
const UNORDERED: &str = "nvht";

/// Returns the engine or peer at the beginning of a store's name.
pub(crate) fn base(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

/// Returns whether a store is an engine of this workspace, with any settings.
pub(crate) fn is_ours(store: &str) -> bool {
    ENGINES.contains(&base(store))
}

/// Returns whether an engine of this workspace keeps no order, or is a matrix of such engines.
pub(crate) fn keeps_no_order(store: &str) -> bool {
    base(store) == UNORDERED || store.split(':').any(|set| set.split('=').nth(1) == Some(UNORDERED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lodestore_contract::testing::Scratch;

    #[test]
    fn engines_that_keep_no_order_are_those_that_say_so_of_themselves() {
        let scratch = Scratch::on_disk();
        let names: Vec<_> = lodestore::engines().iter().map(|engine| engine.name).collect();
        assert_eq!(names, ENGINES);
        for engine in names {
            let options = lodestore::options::CreateOptions::new().engine(engine).size(256 << 20);
            let store = lodestore::store::create(scratch.path().join(engine), &options).expect("a store");
            assert_eq!(keeps_no_order(engine), !store.capabilities().scan, "{engine}");
        }
        assert!(keeps_no_order("nvht:size=1") && keeps_no_order("mkvs:groups=2:device-engine=nvht"));
        assert!(!keeps_no_order("mkvs:groups=2:device-engine=hikv") && !keeps_no_order("hikv"));
    }
}

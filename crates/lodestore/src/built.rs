//! The engines that exist, and whether each is compiled into this build.
//!
//! Each engine has a cargo feature of its own name.

use lodestore_contract::Error;

/// The name of the engine of matrices, whose stores have their own path of creation and open.
pub(crate) const MKVS: &str = "mkvs";
/// The name of the engine without order.
pub(crate) const NVHT: &str = "nvht";

/// An engine, and whether this build has it.
struct Known {
    name: &'static str,
    is_built: bool,
}

/// All engines that exist.
const KNOWN: [Known; 5] = [
    Known { name: "hikv", is_built: cfg!(feature = "hikv") },
    Known { name: NVHT, is_built: cfg!(feature = "nvht") },
    Known { name: "fluidkv", is_built: cfg!(feature = "fluidkv") },
    Known { name: "hashkv", is_built: cfg!(feature = "hashkv") },
    Known { name: MKVS, is_built: cfg!(feature = "mkvs") },
];

/// The number of engines that are compiled in.
pub(crate) const ENGINE_COUNT: usize = {
    let (mut count, mut index) = (0, 0);
    while index < KNOWN.len() {
        count += KNOWN[index].is_built as usize;
        index += 1;
    }
    count
};

/// Default engines of a new store in memory, best first.
pub(crate) const FOR_MEMORY: [&str; 4] = ["hikv", "fluidkv", "hashkv", NVHT];
/// Default engines of a new store on a file, best first.
pub(crate) const FOR_FILES: [&str; 4] = ["fluidkv", "hashkv", "hikv", NVHT];

/// Returns whether an engine of this name is compiled in.
pub(crate) fn is_built(name: &str) -> bool {
    KNOWN.iter().any(|known| known.name == name && known.is_built)
}

/// Returns the first of `names` that is compiled in, or the first one if none is.
pub(crate) fn first_built<'a>(names: &[&'a str]) -> &'a str {
    names.iter().find(|name| is_built(name)).unwrap_or(&names[0])
}

/// Returns the refusal of an engine that exists and is not compiled in. `None` if there is no such
/// engine, or it is compiled in.
pub(crate) fn refusal(name: &str) -> Option<Error> {
    let known = KNOWN.iter().find(|known| known.name == name && !known.is_built)?;
    Some(Error::EngineNotBuilt { engine: name.into(), feature: known.name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::engines;

    #[test]
    fn the_engines_of_the_build_are_those_of_its_features() {
        let built: Vec<_> = KNOWN.iter().filter(|known| known.is_built).map(|known| known.name).collect();
        let listed: Vec<_> = engines().iter().map(|engine| engine.name).collect();
        assert_eq!(listed, built);
    }

    #[test]
    fn only_an_engine_that_exists_and_is_not_compiled_in_is_refused_by_its_feature() {
        for known in &KNOWN {
            match refusal(known.name) {
                None => assert!(known.is_built, "{}", known.name),
                Some(Error::EngineNotBuilt { engine, feature }) => {
                    assert!(!known.is_built && engine == known.name && feature == known.name);
                }
                Some(other) => panic!("{other}"),
            }
        }
        assert!(refusal("frob").is_none());
    }
}

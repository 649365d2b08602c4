//! Matrices of one group, each part of which fails according to a test's plan.

use std::path::Path;
use std::sync::Arc;

use lodestore_contract::Store;
use lodestore_mkvs::Part;

use super::Matrix;
use super::faulty::{Faulty, Switch};

/// The switches of a matrix: for its devices' stores and logs, by device, and for the host's store.
pub struct Switches {
    pub stores: Vec<Switch>,
    pub logs: Vec<Switch>,
    pub host: Switch,
}

/// Returns a matrix of one group of `devices` devices, with its switches.
pub fn switched(name: &'static str, devices: usize) -> (Matrix, Switches) {
    let new = || (0..devices).map(|_| Switch::new()).collect::<Vec<_>>();
    let switches = Switches { stores: new(), logs: new(), host: Switch::new() };
    let (stores, logs, host) = (switches.stores.clone(), switches.logs.clone(), switches.host.clone());
    let wrap = move |directory: &Path, part: Part, store: Arc<dyn Store>| -> Arc<dyn Store> {
        let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let index = name.strip_prefix("group0.device").and_then(|index| index.parse::<usize>().ok());
        let switch = match (part, index) {
            (Part::Device, Some(index)) => &stores[index],
            (Part::Log, Some(index)) => &logs[index],
            (Part::Host, _) => &host,
            // A device in a directory chosen by the test.
            (_, None) => return store,
        };
        Arc::new(Faulty { store, switch: switch.clone() })
    };
    (Matrix::new(name, 1, devices).on(|places| places.wrap = Some(Arc::new(wrap))), switches)
}

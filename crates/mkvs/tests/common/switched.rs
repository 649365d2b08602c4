//! Matrices of one group, every part of which fails as a test says.

use std::path::Path;
use std::sync::Arc;

use lodestore_contract::Store;
use lodestore_mkvs::Part;

use super::Matrix;
use super::faulty::{Faulty, Switch};

/// The switches of a matrix: those of its devices' stores and of their logs, by device, and the host's.
pub struct Switches {
    pub stores: Vec<Switch>,
    pub logs: Vec<Switch>,
    pub host: Switch,
}

/// A matrix of one group of so many devices, with its switches.
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
            // A device in a directory of the test's own.
            (_, None) => return store,
        };
        Arc::new(Faulty { store, switch: switch.clone() })
    };
    (Matrix::new(name, 1, devices).on(|places| places.wrap = Some(Arc::new(wrap))), switches)
}

//! Each fault names statements that exist, and each engine lists each fault of its crates.

use lodestore_media::PlantedFault;

use super::of;
use crate::allocator::AllocatorEngine;
use crate::fluidkv::FluidEngine;
use crate::hashkv::HashEngine;
use crate::hikv::HiKvEngine;
use crate::mkvs::MkvsEngine;
use crate::nvht::NvhtEngine;
use crate::subject::Engine;
use crate::toy::Toy;

fn all() -> Vec<PlantedFault> {
    let engines: [&dyn Engine; 7] =
        [&HiKvEngine, &NvhtEngine, &FluidEngine, &HashEngine, &MkvsEngine, &AllocatorEngine, &Toy];
    engines.into_iter().flat_map(of).collect()
}

#[test]
fn each_fault_names_statements_that_its_files_have() {
    let lost: Vec<String> = all().into_iter().filter_map(|fault| fault.check_sites().err()).collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn an_engine_lists_each_fault_of_a_crate() {
    let lists: [&[PlantedFault]; 7] = [
        &lodestore_media::planted::ALL,
        &lodestore_inplace::planted::ALL,
        &lodestore_hikv::planted::ALL,
        &lodestore_nvht::planted::ALL,
        &lodestore_fluidkv::planted::ALL,
        &lodestore_hashkv::planted::ALL,
        &lodestore_mkvs::planted::ALL,
    ];
    let listed = all();
    // No crash shows it (`hikv::OF_CRASHES`).
    let unseen = [lodestore_media::planted::HEADER_CHECKSUM_IGNORED];
    let missing: Vec<_> =
        lists.into_iter().flatten().filter(|fault| !listed.contains(fault) && !unseen.contains(fault)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

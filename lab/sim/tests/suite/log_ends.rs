//! Damage of the last acknowledged record after a power failure during the next write.

use lodestore_contract::Error;
use lodestore_media::sim::{LineModel, SimImage, SimSpec, What};
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::op::Op;
use lodestore_sim::shape::Shape;
use lodestore_sim::subject::Engine;

/// Puts that fill several memtables.
const PUTS: u32 = 300;

fn key(index: u32) -> Vec<u8> {
    format!("key/{index:05}").into_bytes()
}

/// Returns a value that is in no other record, too short for the value log.
fn value(index: u32) -> Vec<u8> {
    format!("<value {index:05}> of it").into_bytes()
}

/// Inverts a bit in every copy of these bytes.
fn damage(image: &mut SimImage, bytes: &[u8]) -> usize {
    let mut copies = 0;
    for region in &mut image.regions {
        let places: Vec<usize> =
            region.windows(bytes.len()).enumerate().filter(|(_, at)| *at == bytes).map(|(at, _)| at).collect();
        places.iter().for_each(|at| region[at + 3] ^= 4);
        copies += places.len();
    }
    copies
}

/// After a fence of the next write, something durable says that the record was acknowledged: the
/// next record, or the end mark that the freezing of its memtable made durable.
#[test]
fn a_damaged_record_is_reported_once_the_next_write_has_fenced() {
    let (engine, shape) = (FluidEngine, Shape::default());
    let spec = SimSpec::default();
    let store = engine.create(&spec, &shape).expect("create");
    let mut model = LineModel::new(SimImage { spec, ..SimImage::default() });
    let mut judged = 0;
    for index in 0..PUTS {
        store.recorder().take().events.iter().for_each(|event| model.apply(event));
        store.apply(&Op::Put { key: key(index), value: value(index), expiry: None }).expect("put");
        let Some(before) = index.checked_sub(1) else { continue };
        for event in store.recorder().take().events {
            model.apply(&event);
            if !matches!(event.what, What::Fence { .. }) {
                continue;
            }
            let mut image = model.durable().clone();
            if damage(&mut image, &value(before)) == 0 {
                continue;
            }
            judged += 1;
            let found = engine.open(&image, &shape).and_then(|store| store.get(&key(before)));
            assert!(matches!(found, Err(Error::Corrupt { .. })), "put {before} is cut off or damaged: {found:?}");
        }
    }
    assert!(judged >= PUTS - 1, "{judged} images");
}

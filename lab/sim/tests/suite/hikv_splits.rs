//! A root or directory of HiKV with its older content, after a power failure within the operation
//! that changed it. Regression: the keys of the new segment were absent without an error.

use lodestore_media::sim::{LineModel, Rng, SimImage, SimSpec};
use lodestore_sim::damage::fault::{Fault, LINE_BYTES, Place, bytes_at};
use lodestore_sim::damage::map::map_of;
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::op::Op;
use lodestore_sim::shape::Shape;
use lodestore_sim::subject::Engine;

/// Keys of the store: enough for several splits of each segment.
const KEYS: u32 = 120;
/// Images of each cut of an operation.
const IMAGES: usize = 4;

fn key(index: u32) -> Vec<u8> {
    format!("key {index:04}").into_bytes()
}

fn value(index: u32) -> Vec<u8> {
    format!("value of {index}").into_bytes()
}

/// The answers of a store with an older line.
#[derive(Debug, Default)]
struct Answers {
    /// The open was refused.
    refused: u32,
    /// Every key had its value.
    right: u32,
    /// Some reads were refused.
    reported: u32,
}

impl Answers {
    /// Opens the store, which has the keys before `count`.
    fn add(&mut self, image: &SimImage, shape: &Shape, count: u32) {
        let Ok(store) = HiKvEngine.open(image, shape) else {
            self.refused += 1;
            return;
        };
        let mut is_right = store.wait_recovered().is_ok();
        for index in 0..count {
            match store.get(&key(index)) {
                Ok(Some((found, _))) => assert_eq!(found, value(index)),
                Ok(None) => panic!("key {index} of {count} is absent"),
                Err(_) => is_right = false,
            }
        }
        if is_right { self.right += 1 } else { self.reported += 1 }
    }
}

/// The lines of root and directories that differ from an earlier image.
fn changed_lines(image: &SimImage, before: &SimImage) -> Vec<Place> {
    let parts = map_of(image, HiKvEngine.name());
    let parts =
        parts.iter().filter(|part| ["engine root", "directory", "directory: head"].contains(&part.name.as_str()));
    let lines = parts.flat_map(|part| {
        let at = part.at;
        (at.offset..at.offset + at.len).step_by(LINE_BYTES as usize).map(move |offset| Place {
            offset,
            len: LINE_BYTES,
            ..at
        })
    });
    lines.filter(|line| bytes_at(image, *line) != bytes_at(before, *line)).collect()
}

#[test]
fn an_older_directory_in_a_split_that_a_crash_interrupts_hides_no_key() {
    let (spec, shape) = (SimSpec::default(), Shape::default());
    let mut model = LineModel::new(SimImage { spec: spec.clone(), ..SimImage::default() });
    let store = HiKvEngine.create(&spec, &shape).expect("create");
    store.recorder().take().events.iter().for_each(|event| model.apply(event));
    let (mut answers, mut rng) = (Answers::default(), Rng::new(1));
    for index in 0..KEYS {
        let before = model.newest();
        let put = Op::Put { key: key(index), value: value(index), expiry: None };
        store.apply(&put).expect("put");
        for event in &store.recorder().take().events {
            model.apply(event);
            if changed_lines(&model.newest(), &before).is_empty() {
                continue;
            }
            let set = model.crash_set();
            for choice in set.select(IMAGES, &mut rng) {
                let image = model.with_image(&set, &choice, Clone::clone);
                for at in changed_lines(&image, &before) {
                    let mut damaged = image.clone();
                    Fault::Stale { at, moment: 0 }.apply(&mut damaged, std::slice::from_ref(&before));
                    answers.add(&damaged, &shape, index);
                }
            }
        }
    }
    assert!(answers.refused > 50 && answers.right > 50, "{answers:?}");
}

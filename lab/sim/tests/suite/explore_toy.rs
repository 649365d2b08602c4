//! The explorer tested with a small, fully understood engine: it must pass correct code and see
//! every fault.

use lodestore_contract::{Error, Result};
use lodestore_media::PlantedFault;
use lodestore_media::sim::{SimImage, SimSpec};
use lodestore_sim::config::Config;
use lodestore_sim::explore::{explore, replay};
use lodestore_sim::failure::Saved;
use lodestore_sim::mutation::{Row, heading, lost, planted, try_fault};
use lodestore_sim::oracle::Oracle;
use lodestore_sim::shape::Shape;
use lodestore_sim::subject::{Engine, Subject};
use lodestore_sim::toy::Toy;

fn config() -> Config {
    Config { images: 8_000, ..Config::default() }
}

#[test]
fn the_right_toy_passes_at_every_grain() {
    let process = Config { stores_persist: true, ..config() };
    for config in [config(), Config { grain: 512, ..config() }, process] {
        let report = explore(&Toy, &config);
        println!("seed {}: {}", config.seed, report.counts);
        assert!(report.failure.is_none(), "{}", report.failure.expect("a failure"));
        assert!(report.counts.total() >= config.images);
        let deepest = if config.stores_persist { 1 } else { 3 };
        assert!(report.counts.images[..deepest].iter().all(|count| *count > 0), "crashes in recoveries too");
    }
}

#[test]
fn every_fault_of_the_toy_is_seen() {
    let mut faults = planted(&Toy);
    let sites = explore(&Toy, &config()).sites;
    assert_eq!(sites.len(), 6, "three flushes and three fences in the toy");
    faults.extend(lost(&sites));
    println!("{}", heading());
    for fault in faults {
        let row: Row = try_fault(&Toy, &config(), fault);
        println!("{row}");
        assert!(row.caught.is_some(), "not seen: {row}");
    }
}

#[test]
fn a_recovery_that_is_wrong_the_second_time_is_seen_by_the_second_crash() {
    let fault = planted(&Toy).pop().expect("the toy has faults");
    let row = try_fault(&Toy, &config(), fault);
    let (depth, _) = row.caught.expect("seen");
    assert!(depth >= 2, "crash {depth}");
}

#[test]
fn equal_seeds_explore_equally() {
    let config = Config { threads: 1, images: 3_000, ..Config::default() };
    let (first, second) = (explore(&Toy, &config), explore(&Toy, &config));
    assert_eq!(first.counts, second.counts);
    assert_ne!(first.counts, explore(&Toy, &Config { seed: 2, ..config }).counts);
}

#[test]
fn a_failing_image_is_saved_and_fails_again() {
    let fault = planted(&Toy).swap_remove(0);
    let lodestore_sim::mutation::Fault::Planted(mutant) = fault else { panic!("a planted fault") };
    let report = explore(&Toy, &Config { mutant: Some(mutant), ..config() });
    let failure = report.failure.expect("the fault is seen");
    assert!(failure.wrong.oracle != Oracle::Live && failure.image.is_some());
    let saved = Saved::from_text(&failure.to_text()).expect("own text is read");
    assert_eq!(saved.image.regions, failure.image.as_ref().expect("an image").regions);
    assert_eq!(saved.allowed, failure.allowed);
    assert_eq!(saved.universe, failure.universe);
    let again = replay(&Toy, &saved).expect_err("it fails again");
    assert_eq!(again.oracle, failure.wrong.oracle);
}

#[test]
fn a_saved_image_holds_the_values_file_beside_the_regions() {
    let fault = planted(&Toy).swap_remove(0);
    let lodestore_sim::mutation::Fault::Planted(mutant) = fault else { panic!("a planted fault") };
    let report = explore(&Toy, &Config { mutant: Some(mutant), ..config() });
    let mut failure = report.failure.expect("the fault is seen");
    let image = failure.image.as_mut().expect("an image");
    image.values = (0..8192u32).map(|at| if at < 4096 { 0 } else { (at % 251) as u8 }).collect();
    let image = image.clone();
    let saved = Saved::from_text(&failure.to_text()).expect("own text is read");
    assert_eq!((saved.image.regions, saved.image.values), (image.regions, image.values));
}

/// An engine that refuses every open.
struct Refusing {
    by: fn() -> Error,
}

impl Engine for Refusing {
    fn name(&self) -> &'static str {
        "refusing"
    }

    fn mutants(&self) -> &'static [PlantedFault] {
        &[]
    }

    fn create(&self, _: &SimSpec, _: &Shape) -> Result<Box<dyn Subject>> {
        Err((self.by)())
    }

    fn open(&self, _: &SimImage, _: &Shape) -> Result<Box<dyn Subject>> {
        Err((self.by)())
    }
}

#[test]
fn a_creation_cut_short_may_be_missing_and_nothing_else() {
    let mut saved = Saved::from_text("lodestore crash image 1\nregion 64\nmissing 1\n").expect("a text");
    let missing = Refusing { by: || Error::missing("nowhere") };
    let corrupt = Refusing { by: || Error::corrupt("header", "no copy is valid") };
    replay(&missing, &saved).expect("no store yet");
    assert_eq!(replay(&corrupt, &saved).expect_err("damage is no creation").oracle, Oracle::Open);
    saved.may_be_missing = false;
    assert_eq!(replay(&missing, &saved).expect_err("it was made").oracle, Oracle::Open);
}

#[test]
fn a_text_that_is_no_image_is_refused() {
    assert!(Saved::from_text("").is_err());
    assert!(Saved::from_text("lodestore crash image 1\nregion x\n").is_err());
    assert!(Saved::from_text("lodestore crash image 1\nrow 0 00\n").is_err());
    assert!(Saved::from_text("lodestore crash image 1\nregion 64\nrow 63 0000\n").is_err());
    assert!(Saved::from_text("lodestore crash image 1\nseed 4\n").is_ok());
}

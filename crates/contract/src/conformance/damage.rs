//! Damaged bytes on the medium.
//!
//! The behaviours require: no panic, no hang, and no wrong value. Each missing key is reported, by
//! the open, by a read, or by `verify`. The rule is the same after a clean stop and after a crash,
//! for each kind of damage.

use std::collections::BTreeSet;

use super::check::show;
use super::data::{key, versioned};
use super::{Case, Harness, Pairs, Rng, Stop};
use crate::{Lifetime, ScanRange, Store, Visit};

/// Creates and stops a store of pairs of several sizes, each written once and none deleted.
fn prepare<H: Harness>(case: &Case<H>, rng: &mut Rng, how: Stop) -> Pairs {
    let store = case.create_sized(case.plan.capacity_small);
    let mut pairs = Pairs::new();
    for i in 0..case.plan.keys.min(300) {
        let name = key("damage", i);
        let len = if i % 50 == 0 { rng.below(30_000) } else { rng.below(400) };
        let value = versioned(&name, i as u64, len);
        store.put(&name, &value).expect("put");
        pairs.insert(name, value);
    }
    case.stop(store, how);
    pairs
}

/// A kind of damage.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// Flips this many bits of bytes that are not zero.
    UsedBits(usize),
    /// Flips this many bits anywhere.
    Bits(usize),
    /// Flips a few bits in the first 16 KiB, where headers tend to be.
    HeadBits,
    /// Overwrites 64 bytes with noise.
    Noise,
    /// Overwrites a page with zeros.
    ZeroPage,
    /// Overwrites a page with another used page.
    MisplacedPage,
}

const DAMAGES: [Damage; 11] = [
    Damage::UsedBits(1),
    Damage::UsedBits(1),
    Damage::UsedBits(4),
    Damage::UsedBits(64),
    Damage::UsedBits(1000),
    Damage::Bits(1),
    Damage::Bits(10_000),
    Damage::HeadBits,
    Damage::Noise,
    Damage::ZeroPage,
    Damage::MisplacedPage,
];

/// Bytes that a search for a used byte compares at once.
const SEARCH_BYTES: usize = 4096;

/// Returns the position of the first byte that is not zero. Most of a store's file is zero, so
/// whole blocks of zeros are skipped by one comparison.
fn first_used(bytes: &[u8]) -> Option<usize> {
    let zeros = [0; SEARCH_BYTES];
    let block = bytes.chunks(SEARCH_BYTES).position(|block| *block != zeros[..block.len()])?;
    let from = block * SEARCH_BYTES;
    bytes[from..].iter().position(|byte| *byte != 0).map(|at| from + at)
}

/// Returns a random position whose byte is not zero.
fn used_offset(bytes: &[u8], rng: &mut Rng) -> usize {
    let from = rng.below(bytes.len());
    let after = first_used(&bytes[from..]).map(|at| from + at);
    after.or_else(|| first_used(bytes)).unwrap_or(from)
}

/// Returns the first position of `piece`, which is not all zeros.
fn find_piece(bytes: &[u8], piece: &[u8]) -> Option<usize> {
    (0..bytes.len()).step_by(SEARCH_BYTES).find_map(|from| {
        // The pieces that begin in this block.
        let range = &bytes[from..bytes.len().min(from + SEARCH_BYTES + piece.len() - 1)];
        first_used(range)?;
        range.windows(piece.len()).position(|window| window == piece).map(|at| from + at)
    })
}

/// Returns the range of the 4 KiB page of `at`, clipped to the end of `bytes`.
fn page_range(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let from = at & !4095;
    from..(from + 4096).min(bytes.len())
}

fn damage_bytes(bytes: &mut [u8], damage: Damage, rng: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    match damage {
        Damage::Bits(count) => (0..count).for_each(|_| bytes[rng.below(bytes.len())] ^= 1 << rng.below(8)),
        Damage::HeadBits => (0..3).for_each(|_| bytes[rng.below(bytes.len().min(16 << 10))] ^= 1 << rng.below(8)),
        Damage::UsedBits(count) => (0..count).for_each(|_| {
            let at = used_offset(bytes, rng);
            bytes[at] ^= 1 << rng.below(8);
        }),
        Damage::Noise => {
            let at = used_offset(bytes, rng);
            let end = (at + 64).min(bytes.len());
            bytes[at..end].copy_from_slice(&rng.bytes(end - at));
        }
        Damage::ZeroPage => {
            let at = page_range(bytes, used_offset(bytes, rng));
            bytes[at].fill(0);
        }
        Damage::MisplacedPage => {
            let (from, to) = (page_range(bytes, used_offset(bytes, rng)), page_range(bytes, used_offset(bytes, rng)));
            let len = from.len().min(to.len());
            bytes.copy_within(from.start..from.start + len, to.start);
        }
    }
}

/// Opens a damaged store and reads all of it. Each value must be right, and each missing or refused
/// key must be reported. Then the store must accept or refuse writes without a panic. Returns
/// whether the damage was reported.
fn inspect<H: Harness>(case: &Case<H>, pairs: &Pairs, what: &str) -> bool {
    let store = match case.harness.open() {
        Ok(store) => store,
        Err(_) => return true,
    };
    let recovered = store.wait_recovered().is_ok();
    let mut missing = Vec::new();
    let mut buffer = Vec::new();
    for (name, value) in pairs {
        match store.get_into(name, &mut buffer) {
            Ok(true) => assert!(buffer == *value, "{what}: get {} gives {} for right", show(name), show(&buffer)),
            Ok(false) | Err(_) => missing.push(name),
        }
    }
    let right = |reader: &str, name: &[u8], value: &[u8]| match pairs.get(name) {
        Some(expected) => assert!(expected == value, "{what}: {reader} gives {} for {}", show(value), show(name)),
        None => panic!("{what}: {reader} makes up a key {}", show(name)),
    };
    let mut seen = BTreeSet::new();
    let walked = store.for_each(&mut |name, value| {
        right("for_each", name, value);
        assert!(seen.insert(name.to_vec()), "{what}: for_each gives {} twice", show(name));
        Visit::More
    });
    let mut scan_failed = false;
    if store.capabilities().scan {
        match store.scan(&ScanRange::all()) {
            Ok(scan) => scan.take(pairs.len() * 2).for_each(|entry| match entry {
                Ok(entry) => right("scan", entry.key(), entry.value()),
                Err(_) => scan_failed = true,
            }),
            Err(_) => scan_failed = true,
        }
    }
    let whole = missing.is_empty() && seen.len() == pairs.len();
    let report = store.verify(&mut |_| {});
    let is_reported =
        !recovered || report.as_ref().map_or(true, |report| !report.is_clean()) || store.stats().recovery.corrupt > 0;
    assert!(
        is_reported || (whole && walked.is_ok() && !scan_failed),
        "{what}: {} of {} keys are gone (first {:?}), for_each shows {}, scan failed {scan_failed}, and verify finds nothing wrong",
        missing.len(),
        pairs.len(),
        missing.first().map(|name| show(name)),
        seen.len(),
    );
    write_into_damage(&store, what);
    case.harness.abandon(store);
    is_reported
}

/// Writes to a damaged store. Each write must be readable afterwards, or fail with an error.
fn write_into_damage<S: Store>(store: &S, what: &str) {
    for i in 0..200 {
        let name = key("after", i);
        let value = versioned(&name, 9, i);
        if store.put(&name, &value).is_ok() {
            match store.get(&name) {
                Ok(found) => assert!(found.as_deref() == Some(&value), "{what}: a put afterwards is not read back"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        // Old keys may be missing or refused; only a panic is a failure.
        let _ = (store.update(&key("damage", i), b"new", Lifetime::Forever), store.delete(&key("damage", i + 1)));
    }
}

/// Damages stores in many ways, one store after the other, stopped cleanly and by a crash.
pub fn damaged_bytes_are_never_taken_for_right<H: Harness>(case: &Case<H>) {
    let mut rng = case.rng(14);
    for round in 0..case.plan.damage_rounds {
        let how = if round % 2 == 0 { Stop::Clean } else { Stop::Crash };
        let pairs = prepare(case, &mut rng, how);
        let files = case.harness.files();
        assert!(!files.is_empty(), "a store has files");
        let (file, kind) = (rng.pick(&files).clone(), DAMAGES[round % DAMAGES.len()]);
        case.harness.alter(&file, &mut |bytes| damage_bytes(bytes, kind, &mut rng));
        inspect(case, &pairs, &format!("round {round}, {kind:?} in {file} after a stop ({how:?})"));
        case.harness.clear();
    }
}

/// A bit of a stored value is flipped. The value is not returned, and the open or `verify`
/// reports the damage.
pub fn damaged_values_are_found<H: Harness>(case: &Case<H>) {
    let mut rng = case.rng(15);
    for round in 0..case.plan.damage_rounds.div_ceil(4) {
        let how = if round % 2 == 0 { Stop::Clean } else { Stop::Crash };
        let pairs = prepare(case, &mut rng, how);
        let victims: Vec<_> = pairs.iter().filter(|(_, value)| value.len() >= 64).collect();
        let (name, value) = *rng.pick(&victims);
        let flip = rng.below(value.len());
        let mut copies = 0;
        for file in case.harness.files() {
            case.harness.alter(&file, &mut |bytes| {
                // Also finds a value stored in pieces, if the first 32 bytes after the version are
                // contiguous.
                let mut from = 0;
                while let Some(at) = find_piece(&bytes[from..], &value[8..40]).map(|at| from + at) {
                    let at_flip = (at - 8 + flip).min(bytes.len() - 1);
                    bytes[at_flip] ^= 1 << rng.below(8);
                    copies += 1;
                    from = at + 32;
                }
            });
        }
        let what = format!("round {round}, bit of value {} (byte {flip} of {}, {how:?})", show(name), value.len());
        assert!(copies > 0, "{what}: the value is in no file");
        assert!(inspect(case, &pairs, &what), "{what}: nobody noticed");
        case.harness.clear();
    }
}

/// Files truncated to nothing, a little, or a part: an error or a partial store, never a crash.
pub fn a_truncated_store_is_an_error<H: Harness>(case: &Case<H>) {
    let mut rng = case.rng(16);
    for round in 0..case.plan.damage_rounds.div_ceil(3) {
        let how = if round % 2 == 0 { Stop::Clean } else { Stop::Crash };
        let pairs = prepare(case, &mut rng, how);
        let file = rng.pick(&case.harness.files()).clone();
        let mut left = 0;
        case.harness.alter(&file, &mut |bytes| {
            left = match round % 5 {
                0 => 0,
                1 => rng.below(bytes.len().min(4096) + 1),
                2 => bytes.len() - 1.min(bytes.len()),
                3 => (bytes.len() / 2) & !4095,
                _ => rng.below(bytes.len() + 1),
            };
            bytes.truncate(left);
        });
        inspect(case, &pairs, &format!("round {round}, {file} cut to {left} bytes ({how:?})"));
        case.harness.clear();
    }
}

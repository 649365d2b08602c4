//! Requirements for a recovered store: output equivalence (Witcher, SOSP 2021), a clean `verify`,
//! and agreement with a model afterwards.

use std::fmt;

use lodestore_contract::{Direction, Error};

use crate::op::{Op, Outcome, State};
use crate::panics::caught;
use crate::subject::{Pair, Subject};

/// The kind of a failed judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oracle {
    /// The live run, before any crash, answered wrongly.
    Live,
    /// The store did not open or recover.
    Open,
    /// A key is missing, was restored, or has a value that it never had.
    Contents,
    /// A scan, or the walk over all pairs, contradicts the gets.
    Walk,
    /// The count of keys is wrong.
    Count,
    /// The engine's or the allocator's own verification found something.
    Verify,
    /// A second recovery of the same bytes gives another allocator account: a leak or an overlap.
    Account,
    /// Operations after the recovery contradict the model.
    After,
    /// The engine panicked.
    Panic,
    /// A concurrent history has no linearization.
    History,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "live",
            Self::Open => "open",
            Self::Contents => "contents",
            Self::Walk => "walk",
            Self::Count => "count",
            Self::Verify => "verify",
            Self::Account => "account",
            Self::After => "after",
            Self::Panic => "panic",
            Self::History => "history",
        })
    }
}

/// A judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The oracle.
    pub oracle: Oracle,
    /// The finding.
    pub what: String,
    /// Whether the engine returned that there is no store ([`Error::Missing`]).
    pub missing: bool,
    /// Whether the engine returned that a sync has failed ([`Error::Poisoned`]).
    pub poisoned: bool,
}

impl Wrong {
    /// Returns a judgement of this oracle.
    pub fn new(oracle: Oracle, what: impl Into<String>) -> Self {
        Self { oracle, what: what.into(), missing: false, poisoned: false }
    }

    /// Returns the same judgement by another oracle; a panic stays a panic.
    #[must_use]
    pub fn by(self, oracle: Oracle) -> Self {
        if self.oracle == Oracle::Panic { self } else { Self { oracle, ..self } }
    }
}

/// Runs engine code. Its error becomes a judgement of `oracle`, its panic one of [`Oracle::Panic`].
///
/// # Errors
///
/// The judgement.
pub fn judged<R>(oracle: Oracle, work: impl FnOnce() -> lodestore_contract::Result<R>) -> Result<R, Wrong> {
    match caught(work) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => {
            let missing = matches!(error, Error::Missing { .. });
            let poisoned = matches!(error, Error::Poisoned { .. });
            Err(Wrong { missing, poisoned, ..Wrong::new(oracle, error.to_string()) })
        }
        Err(panic) => Err(Wrong::new(Oracle::Panic, panic)),
    }
}

/// Returns a short printable form of bytes.
pub fn show(bytes: &[u8]) -> String {
    let head: String =
        bytes.iter().take(24).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
    if bytes.len() > 24 { format!("{head}.. ({} bytes)", bytes.len()) } else { head }
}

type Seen = Option<(Vec<u8>, Option<u64>)>;

fn holds(state: &State, key: &[u8], seen: &Seen) -> bool {
    match (state.get(key), seen) {
        (None, None) => true,
        (Some(held), Some((value, expiry))) => held.value == *value && held.expiry == *expiry,
        _ => false,
    }
}

fn show_value(value: &[u8], expiry: Option<u64>) -> String {
    match expiry {
        None => format!("{:?}", show(value)),
        Some(at) => format!("{:?} until {at}", show(value)),
    }
}

fn show_expected(state: &State, key: &[u8]) -> String {
    state.get(key).map_or_else(|| "nothing".into(), |held| show_value(&held.value, held.expiry))
}

fn show_seen(seen: &Seen) -> String {
    seen.as_ref().map_or_else(|| "nothing".into(), |(value, expiry)| show_value(value, *expiry))
}

/// Compares the contents of the store with the allowed states. Returns the index of the matching
/// one.
///
/// # Errors
///
/// [`Oracle::Contents`], [`Oracle::Walk`], [`Oracle::Count`], or a panic.
pub fn contents(store: &dyn Subject, allowed: &[&State], universe: &[Vec<u8>]) -> Result<usize, Wrong> {
    let mut candidates: Vec<usize> = (0..allowed.len()).collect();
    for key in universe {
        let seen = judged(Oracle::Contents, || store.get(key))?;
        let fits = |index: &usize| holds(allowed[*index], key, &seen);
        if !candidates.iter().any(fits) {
            let expected: Vec<String> = candidates.iter().map(|at| show_expected(allowed[*at], key)).collect();
            let what = format!("key {:?} holds {}, not {}", show(key), show_seen(&seen), expected.join(" or "));
            return Err(Wrong::new(Oracle::Contents, what));
        }
        candidates.retain(fits);
    }
    let state = allowed[candidates[0]];
    walks(store, state)?;
    let count = judged(Oracle::Count, || store.len())?;
    let (live, all) = (state.live().count() as u64, state.all().count() as u64);
    if !(live..=all.max(live)).contains(&count) {
        return Err(Wrong::new(Oracle::Count, format!("len is {count} with {live} live keys and {all} not yet swept")));
    }
    Ok(candidates[0])
}

fn walks(store: &dyn Subject, state: &State) -> Result<(), Wrong> {
    let expected: Vec<(&[u8], &[u8])> = state.live().map(|(key, held)| (&key[..], &held.value[..])).collect();
    let mut pairs = judged(Oracle::Walk, || store.pairs())?;
    pairs.sort_unstable();
    same("for_each", &pairs, expected.iter().copied())?;
    if let Some(forward) = judged(Oracle::Walk, || store.scan(Direction::Forward))? {
        same("scan forward", &forward, expected.iter().copied())?;
    }
    if let Some(backward) = judged(Oracle::Walk, || store.scan(Direction::Backward))? {
        same("scan backward", &backward, expected.iter().rev().copied())?;
    }
    Ok(())
}

fn same<'a>(
    walk: &str,
    seen: &[Pair],
    expected: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<(), Wrong> {
    let count = expected.len();
    for (at, (seen, expected)) in seen.iter().zip(expected).enumerate() {
        if (&seen.0[..], &seen.1[..]) != expected {
            let what = format!(
                "{walk} has {:?}={:?} at place {at}, not {:?}={:?}",
                show(&seen.0),
                show(&seen.1),
                show(expected.0),
                show(expected.1)
            );
            return Err(Wrong::new(Oracle::Walk, what));
        }
    }
    if seen.len() == count {
        Ok(())
    } else {
        Err(Wrong::new(Oracle::Walk, format!("{walk} has {} pairs, not {count}", seen.len())))
    }
}

/// Runs the engine's and the allocator's own verification.
///
/// # Errors
///
/// [`Oracle::Verify`] with the findings.
pub fn verified(store: &dyn Subject) -> Result<(), Wrong> {
    let wrong = judged(Oracle::Verify, || store.verify())?;
    if wrong.is_empty() { Ok(()) } else { Err(Wrong::new(Oracle::Verify, wrong.join("; "))) }
}

/// Applies `op` to store and model and compares the answers. A full store changes nothing.
///
/// # Errors
///
/// A judgement of `oracle`.
pub fn step(store: &dyn Subject, state: &mut State, op: &Op, oracle: Oracle) -> Result<(), Wrong> {
    let outcome = judged(oracle, || store.apply(op))?;
    if outcome == Outcome::Full {
        return Ok(());
    }
    let expected = state.apply_answered(op, &outcome);
    if outcome == expected {
        Ok(())
    } else {
        let key = op.key().map(show).unwrap_or_default();
        Err(Wrong::new(oracle, format!("{} {key:?} answered {outcome:?}, not {expected:?}", op.name())))
    }
}

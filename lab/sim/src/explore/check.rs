//! Checks of one image: open, judge, crash again, continue with operations.

use std::collections::BTreeMap;

use lodestore_media::sim::{LineModel, Rng, SimImage, Trace, What};

use crate::config::Config;
use crate::counts::Counts;
use crate::explore::{Shared, Sites};
use crate::op::State;
use crate::oracle::{self, Oracle, Wrong, judged};
use crate::shape::Shape;
use crate::subject::{Engine, Losses, Subject};

/// Largest value of the operations after a recovery.
const VALUE_BYTES_MAX: u64 = 120;

/// Recoveries of one length that are always crashed.
const RARE_RECOVERY_COUNT: u32 = 4;

/// A failed check, with the image that failed, which may be some crashes deeper than the given one.
#[derive(Debug)]
pub struct Failed {
    /// The judgement.
    pub wrong: Wrong,
    /// The image.
    pub image: SimImage,
    /// Number of crashes.
    pub depth: usize,
    /// States that were allowed.
    pub allowed: Vec<State>,
}

/// Judges images of one script.
pub struct Checker<'a> {
    engine: &'a dyn Engine,
    config: &'a Config,
    shared: &'a Shared,
    shape: Shape,
    universe: &'a [Vec<u8>],
    /// Recoveries by their number of steps.
    recoveries: BTreeMap<usize, u32>,
    /// The counts so far.
    pub counts: Counts,
    /// Call sites executed in and after recoveries.
    pub sites: Sites,
}

/// The work on an image, chosen by its hash.
struct Plan {
    crash_rng: Rng,
    ops_rng: Rng,
    nested: bool,
    account: bool,
    ops_after: usize,
}

impl<'a> Checker<'a> {
    /// Returns the checker for images of stores of this shape with the keys `universe`.
    pub fn new(
        engine: &'a dyn Engine,
        config: &'a Config,
        shared: &'a Shared,
        shape: Shape,
        universe: &'a [Vec<u8>],
    ) -> Self {
        Self {
            engine,
            config,
            shared,
            shape,
            universe,
            recoveries: BTreeMap::new(),
            counts: Counts::default(),
            sites: Sites::new(),
        }
    }

    fn plan(&self, hash: u64, depth: usize) -> Plan {
        let config = self.config;
        let mut rng = Rng::part(config.seed ^ hash, depth as u64);
        let (crash_rng, ops_rng) = (Rng::new(rng.next_u64()), Rng::new(rng.next_u64()));
        let nested = depth < config.depth && rng.one_in(config.nested_every);
        let account = rng.one_in(config.leak_every);
        let ops_after = if rng.one_in(config.ops_after_every) { config.ops_after } else { config.ops_after_few };
        Plan { crash_rng, ops_rng, nested, account, ops_after }
    }

    /// Opens `image`, whose hash is `hash`, and judges it. The image must hold one of `allowed`,
    /// or, with `may_be_missing`, may be no store yet.
    ///
    /// # Errors
    ///
    /// The first judgement that fails.
    pub fn check(
        &mut self,
        image: &SimImage,
        hash: u64,
        allowed: &[&State],
        may_be_missing: bool,
        depth: usize,
    ) -> Result<(), Box<Failed>> {
        self.counts.images[depth - 1] += 1;
        self.shared.count_image();
        let failed = |wrong: Wrong| {
            let allowed = allowed.iter().map(|state| (*state).clone()).collect();
            Box::new(Failed { wrong, image: image.clone(), depth, allowed })
        };
        let mut plan = self.plan(hash, depth);
        let opened = judged(Oracle::Open, || self.engine.open(image, &self.shape));
        let store = match opened {
            // Any other refusal, above all for damage, is wrong: an interrupted creation is no
            // store, or a new one.
            Err(wrong) if may_be_missing && wrong.missing => return Ok(()),
            other => other.map_err(failed)?,
        };
        self.counts.losses_borne += u64::from(store.losses() == Losses::Borne);
        self.counts.losses_refused += u64::from(store.losses() == Losses::Refused);
        judged(Oracle::Open, || store.wait_recovered()).map_err(failed)?;
        let recovery = store.recorder().take();
        store.recorder().set_recording(plan.account);
        let found = oracle::contents(&*store, allowed, self.universe).map_err(failed)?;
        oracle::verified(&*store).map_err(failed)?;
        if plan.nested || self.is_rare(&recovery, depth) {
            self.crash_recovery(image, &recovery, allowed, found, &mut plan.crash_rng, depth)?;
        }
        let mut state = allowed[found].clone();
        self.work_on(&*store, &mut state, &mut plan).map_err(failed)?;
        if plan.account {
            self.account(image, store, &recovery, &state).map_err(failed)?;
        }
        Ok(())
    }

    /// Whether a recovery with this number of steps is rare: it does unusual work, and is crashed
    /// as well.
    fn is_rare(&mut self, recovery: &Trace, depth: usize) -> bool {
        let times = self.recoveries.entry(recovery.events.len()).or_default();
        *times += 1;
        self.config.nested_every > 0 && depth < self.config.depth && *times <= RARE_RECOVERY_COUNT
    }

    /// Crashes the recovery recorded in `recovery` at some of its points.
    fn crash_recovery(
        &mut self,
        image: &SimImage,
        recovery: &Trace,
        allowed: &[&State],
        found: usize,
        rng: &mut Rng,
        depth: usize,
    ) -> Result<(), Box<Failed>> {
        let end = recovery.events.len();
        let mut points: Vec<usize> = (0..end)
            .filter(|at| match recovery.events[*at].what {
                What::Fence { .. } | What::Sync { .. } => true,
                What::Word { .. } => rng.one_in(self.config.store_point_every),
                _ => false,
            })
            .collect();
        while points.len() + 1 > self.config.nested_points.max(1) {
            points.swap_remove(rng.index(points.len()));
        }
        points.push(end);
        points.sort_unstable();
        let mut model = LineModel::new(image.clone());
        for at in 0..=end {
            if points.binary_search(&at).is_ok() {
                // State that the finished recovery showed to its readers must remain.
                let shown = [allowed[found]];
                let allowed = if at == end { &shown[..] } else { allowed };
                let set = model.crash_set();
                for choice in set.select(self.config.nested_images, rng) {
                    let hash = set.hash(&choice);
                    model.with_image(&set, &choice, |image| self.check(image, hash, allowed, false, depth + 1))?;
                }
            }
            if at < end {
                model.apply(&recovery.events[at]);
            }
        }
        Ok(())
    }

    /// Applies random operations to store and model, then compares everything once more.
    fn work_on(&mut self, store: &dyn Subject, state: &mut State, plan: &mut Plan) -> Result<(), Wrong> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for _ in 0..8.min(self.universe.len()) {
            keys.push(self.universe[plan.ops_rng.index(self.universe.len())].clone());
        }
        keys.extend((0..4u8).map(|index| vec![b'n', b'e', b'w', index]));
        for _ in 0..plan.ops_after {
            let op = self.engine.random_op(&mut plan.ops_rng, &keys, VALUE_BYTES_MAX);
            oracle::step(store, state, &op, Oracle::After)?;
            self.counts.ops_after += 1;
        }
        if plan.ops_after > 0 {
            oracle::contents(store, &[state], &keys).map_err(|wrong| wrong.by(Oracle::After))?;
        }
        Ok(())
    }

    /// Kills the process and recovers: the running allocator's account and the one rebuilt from
    /// reachable data must be equal.
    fn account(
        &mut self,
        image: &SimImage,
        store: Box<dyn Subject>,
        recovery: &Trace,
        state: &State,
    ) -> Result<(), Wrong> {
        let Some(kept) = store.live_bytes() else { return Ok(()) };
        let checkpoint = store.checkpoint_bytes();
        oracle::verified(&*store).map_err(|wrong| wrong.by(Oracle::After))?;
        let work = store.recorder().take();
        self.add_sites(&*store);
        drop(store);
        let mut model = LineModel::new(image.clone());
        recovery.events.iter().chain(&work.events).for_each(|event| model.apply(event));
        let again = judged(Oracle::Open, || {
            let again = self.engine.open(&model.newest(), &self.shape)?;
            again.wait_recovered()?;
            Ok(again)
        })?;
        oracle::contents(&*again, &[state], self.universe).map_err(|wrong| wrong.by(Oracle::After))?;
        self.counts.leak_checks += 1;
        same_account(kept, checkpoint, &*again)
    }

    /// Adds the call sites that a store's recorder has.
    pub fn add_sites(&mut self, store: &dyn Subject) {
        for (site, count) in store.recorder().sites() {
            *self.sites.entry(site).or_default() += count;
        }
    }
}

/// Compares the live bytes counted by a store with the reachable bytes in `again`, which was
/// recovered from its bytes. A recovery may free `checkpoint` bytes.
///
/// # Errors
///
/// [`Oracle::Account`].
pub fn same_account(kept: u64, checkpoint: u64, again: &dyn Subject) -> Result<(), Wrong> {
    let Some(rebuilt) = again.live_bytes() else { return Ok(()) };
    if rebuilt == kept || rebuilt + checkpoint == kept {
        return Ok(());
    }
    let kind = if kept > rebuilt { "leaked" } else { "handed out twice or forgotten" };
    let what = format!("{} bytes {kind}: {kept} kept, {rebuilt} reachable", kept.abs_diff(rebuilt));
    Err(Wrong::new(Oracle::Account, what))
}

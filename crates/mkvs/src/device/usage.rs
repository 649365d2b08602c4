//! How a device is used: active, behind, failed or filling, and the changes between these states.
//! The invariants are in `device.rs`.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Device;
use crate::layout::MemberState;
use crate::lock;

/// How a device is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The device answers, and its votes count.
    Active,
    /// Unused, because it lacks operations.
    Behind,
    /// Unused for good, or until it answers again.
    Failed,
    /// The device still lacks operations, and already receives the group's new ones.
    Filling,
}

impl Use {
    pub(super) fn of(byte: u8) -> Self {
        [Self::Active, Self::Behind, Self::Filling].into_iter().find(|used| *used as u8 == byte).unwrap_or(Self::Failed)
    }

    pub(super) fn accepts_commands(self) -> bool {
        matches!(self, Self::Active | Self::Filling)
    }
}

/// Why a device failed.
pub(crate) struct Failure {
    why: String,
    /// When the device last failed to answer. `None` if the device itself reported that it cannot
    /// continue.
    late: Option<Instant>,
}

impl Failure {
    /// A failure to answer in time: the device may recover.
    pub(crate) fn late(why: String) -> Self {
        Self { why, late: Some(Instant::now()) }
    }
}

impl<T: Into<String>> From<T> for Failure {
    fn from(why: T) -> Self {
        Self { why: why.into(), late: None }
    }
}

/// Maximum doublings of the wait before a device that failed for being late is used again.
const DOUBLINGS_MAX: u32 = 10;

impl Device {
    pub(super) fn used(&self) -> Use {
        Use::of(self.used.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.used.load(Ordering::Acquire) == Use::Active as u8
    }

    /// Returns whether the device receives operations although it lacks earlier ones.
    pub(crate) fn is_filling(&self) -> bool {
        self.used() == Use::Filling
    }

    pub(crate) fn state(&self) -> MemberState {
        match self.used() {
            Use::Active => MemberState::Active,
            Use::Behind | Use::Filling => MemberState::Behind,
            Use::Failed => MemberState::Failed,
        }
    }

    /// Returns whether the device is in use, or may return without help: after catch-up, or when it
    /// answers again.
    pub(crate) fn may_serve(&self) -> bool {
        self.used() != Use::Failed || lock(&self.failure).as_ref().is_some_and(|failure| failure.late.is_some())
    }

    /// Returns why the device failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        let failure = lock(&self.failure);
        let is_being_replaced = self.is_being_replaced.load(Ordering::Acquire);
        failure
            .as_ref()
            .map(|failure| failure.why.clone())
            .or(is_being_replaced.then(|| "the device is being replaced".into()))
    }

    /// Returns once why the device failed: whether it is only late, and the failure in words.
    pub(crate) fn take_failure_report(&self) -> Option<(bool, String)> {
        let failure = lock(&self.failure).as_ref().map(|failure| (failure.late.is_some(), failure.why.clone()))?;
        (!self.is_failure_reported.swap(true, Ordering::AcqRel)).then_some(failure)
    }

    /// Sets the state when a matrix is created or opened.
    pub(crate) fn set_state(&self, state: MemberState) {
        let to = match state {
            MemberState::Active => Use::Active,
            MemberState::Behind => Use::Behind,
            MemberState::Failed => Use::Failed,
        };
        self.change_use(to, |_| true);
    }

    /// Marks the device as behind until it has caught up. A failed device stays failed.
    pub(crate) fn fall_behind(&self) {
        self.change_use(Use::Behind, Use::accepts_commands);
    }

    /// Starts to accept new operations while earlier ones are still missing. Returns false if the
    /// device is not behind.
    pub(crate) fn begin_filling(&self) -> bool {
        self.change_use(Use::Filling, |used| used == Use::Behind)
    }

    /// Makes the device active after catch-up. Returns false if it fell behind again or failed
    /// meanwhile.
    pub(crate) fn become_active(&self) -> bool {
        self.change_use(Use::Active, |used| used == Use::Filling)
    }

    /// Changes the use if `from` allows the current one, and returns whether it did. Use and queue
    /// change together: all queued commands belong to one period of use.
    fn change_use(&self, to: Use, from: impl FnOnce(Use) -> bool) -> bool {
        let mut queue = lock(&self.queue);
        if !from(self.used()) {
            return false;
        }
        // Before the use: a reader that sees the same count and an active device has seen one
        // period of use.
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.used.store(to as u8, Ordering::Release);
        let dropped = if to.accepts_commands() { VecDeque::new() } else { std::mem::take(&mut *queue) };
        dropped.iter().for_each(|command| self.uncount(command));
        drop(queue);
        dropped.iter().for_each(|command| command.drop_by(self.bit()));
        true
    }

    /// Takes the device out of use and records the reason. The failure is final unless the device
    /// was only late.
    pub(crate) fn fail(&self, why: impl Into<Failure>) {
        let why = why.into();
        let is_late = why.late.is_some();
        let mut kept = lock(&self.failure);
        let failure = kept.get_or_insert(why);
        failure.late = failure.late.filter(|_| is_late);
        // `failure` stays locked: no `recall` can clear the reason before the use changes.
        self.change_use(Use::Failed, |_| true);
    }

    /// Takes the device out of use because a replacement is starting.
    pub(crate) fn begin_replacement(&self) {
        let _failure = lock(&self.failure);
        self.is_being_replaced.store(true, Ordering::Release);
        self.change_use(Use::Failed, |_| true);
    }

    /// Cancels a replacement: the device catches up, unless it had failed.
    pub(crate) fn cancel_replacement(&self) {
        let failure = lock(&self.failure);
        if self.is_being_replaced.swap(false, Ordering::AcqRel) && failure.is_none() {
            self.change_use(Use::Behind, |used| used == Use::Failed);
        }
    }

    /// Lets a device that failed for being late catch up, once its processor is idle. The first
    /// wait is `after`; each repetition doubles it.
    pub(crate) fn recall(&self, after: Duration) {
        let mut failure = lock(&self.failure);
        let Some(late) = failure.as_ref().and_then(|failure| failure.late) else { return };
        let recalls = self.recalls.load(Ordering::Acquire);
        let is_due = !self.is_being_replaced.load(Ordering::Acquire)
            && late.elapsed() >= after.saturating_mul(1 << recalls.min(DOUBLINGS_MAX));
        // A concurrent permanent failure waits for this lock and then takes effect.
        if is_due && self.try_hold(Duration::ZERO).is_some() && self.change_use(Use::Behind, |used| used == Use::Failed)
        {
            *failure = None;
            self.is_failure_reported.store(false, Ordering::Release);
            self.recalls.fetch_add(1, Ordering::AcqRel);
        }
    }
}

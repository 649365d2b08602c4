//! Snapshots: a view and a number. Later writes have a higher number, or are in memtables that the
//! view does not name.

use std::sync::Arc;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Expiry, Pair as Shown, Result, Scan, ScanRange, Snapshot, Visit};

use crate::background::RECLAIM_TIMEOUT;
use crate::background::scheduler::Due;
use crate::db::close::Running;
use crate::db::open_store::Inner;
use crate::db::read::check_key;
use crate::db::scan::{owned, scan};
use crate::space::dram::MEMTABLE_DRAM_MIN;
use crate::space::sizes::MEMTABLES_MAX;
use crate::sst::{Slot, hash};
use crate::version::view::View;

/// The store as of a sequence number. Everything it shows exists while it lives.
pub(crate) struct Moment {
    running: Arc<Running>,
    pub(super) view: Arc<View>,
    pub(super) number: u64,
}

impl Moment {
    pub(crate) fn now(running: &Arc<Running>) -> Self {
        let inner = &running.inner;
        loop {
            let view = inner.view.load_full();
            let number = match inner.group_log() {
                None => inner.order.begin_snapshot(),
                Some(log) => {
                    inner.order.hold_versions();
                    log.snapshot_number()
                }
            };
            // If the view changed in between, its tables might already include a memtable with
            // higher numbers, or it might not name one with lower numbers.
            if Arc::ptr_eq(&view, &inner.view.load()) {
                return Self { running: Arc::clone(running), view, number };
            }
            inner.order.end_snapshot();
        }
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.running.inner
    }

    pub(super) fn scan_pairs(&self, range: &ScanRange, visit: &mut impl FnMut(Shown<'_>) -> Visit) -> Result<usize> {
        scan(self.inner(), &self.view, self.number, range, &mut Err, visit)
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        // A thread that does not exist in a forked process may have held the lock at the fork.
        if self.running.inner.open.is_foreign() {
            return;
        }
        self.running.inner.order.end_snapshot();
    }
}

impl Snapshot for Moment {
    fn get_with_expiry(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
        check_key(key)?;
        let read = || {
            let _guard = self.inner().enter()?;
            let slot = Slot::new();
            let known = self.view.find(key, hash(key), self.number, self.inner().lookup_options(), &slot)?;
            let live = known.map_or(Ok(None), |known| self.inner().value_of(key, known))?;
            Ok(live.map(|(value, expiry)| (value.to_vec(), expiry.map(Expiry::at_millis))))
        };
        read().inspect_err(|error| self.inner().report_corruption(error))
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        drop(self.inner().enter()?);
        self.running.inner.order.add_holder();
        let moment = Moment { running: Arc::clone(&self.running), view: Arc::clone(&self.view), number: self.number };
        Ok(owned(moment, range))
    }
}

impl Inner {
    /// Refuses a snapshot that might keep so much DRAM that no memtable would fit, if a flush
    /// before it does not help.
    ///
    /// # Errors
    /// [`Error::DramBudget`]; [`Error::Poisoned`] and [`Error::Full`] from the flush.
    pub(crate) fn check_snapshot_dram(&self) -> Result<()> {
        let is_scarce = || {
            let publisher = lock(&self.publisher).dram_bytes();
            let (others, in_view) = self.bytes_outside_view(publisher);
            self.dram.remaining(others + in_view, self.background_bytes()) < MEMTABLES_MAX * MEMTABLE_DRAM_MIN
        };
        if !is_scarce() {
            return Ok(());
        }
        self.run_all_due(Due::Needed, RECLAIM_TIMEOUT)?;
        if is_scarce() {
            Err(Error::DramBudget { used: self.dram().0.max(self.dram.budget), budget: self.dram.budget })
        } else {
            Ok(())
        }
    }
}

impl Running {
    pub(crate) fn snapshot(self: &Arc<Self>) -> Result<Box<dyn Snapshot>> {
        drop(self.inner.enter()?);
        self.inner.check_snapshot_dram()?;
        Ok(Box::new(Moment::now(self)))
    }
}

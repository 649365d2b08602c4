//! Walks over all groups: the pages of one member of each group, merged in key order.
//!
//! The cut: every operation numbered in any group before the walk began is visible, because each
//! queried member has applied that much. Beyond the cut, a page shows each pair as the member has
//! it when the page is read. Writers continue, and an unacknowledged write may be shown. If a
//! member cannot show all of a page, other members are queried for it too.
//!
//! A matrix with a single store uses the store's own walk, until a group is added. Then the walk
//! continues over both groups after the last key shown.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use lodestore_contract::{Direction, Entry, Error, Pair as Shown, Result, Scan, ScanRange, Visit};

use crate::group::Group;
use crate::inner::Inner;
use crate::read;
use crate::source::{Source, merge};
use crate::walk::{Page, PageContents, PageLimits, Pair, Shares, StoredValue, key_count};

/// Maximum pairs of a page from each group (`PAGE_PAIRS_MAX`), and of the first page
/// (`FIRST_PAGE_PAIRS_MAX`).
const PAGE_PAIRS_MAX: usize = 256;
const FIRST_PAGE_PAIRS_MAX: usize = 32;
/// A page with at least one pair ends at this many bytes of keys and values.
const PAGE_BYTES: usize = 1 << 20;

/// Restricts a range to the keys after `key`.
fn continue_after(range: &mut ScanRange, key: &[u8]) {
    let bound = Bound::Excluded(key.to_vec());
    match range.direction {
        Direction::Forward => range.from = bound,
        Direction::Backward => range.to = bound,
    }
}

/// A group, with the stores that a walk may query, best first.
pub(crate) type Sources = (Arc<Group>, Vec<Source>);

/// A walk over all groups.
struct Walk {
    inner: Arc<Inner>,
    /// The range that is left.
    range: ScanRange,
    cuts: Vec<u64>,
    page: std::vec::IntoIter<Pair>,
    /// Read errors, reported after the page that they belong to.
    damage: std::vec::IntoIter<Error>,
    size: usize,
    contents: PageContents,
    is_over: bool,
}

impl Walk {
    fn new(inner: &Arc<Inner>, range: &ScanRange, contents: PageContents) -> Self {
        // The counts are read before the groups, and only groups with all their keys are cut: a
        // moving key is in none of them.
        let (count, settled) = inner.shape.counts();
        let groups = inner.shape.groups();
        let cuts = groups.iter().take(count).filter(|_| settled == count).map(|group| group.last()).collect();
        Self {
            inner: Arc::clone(inner),
            range: range.clone(),
            cuts,
            page: Vec::new().into_iter(),
            damage: Vec::new().into_iter(),
            size: FIRST_PAGE_PAIRS_MAX,
            contents,
            is_over: false,
        }
    }

    fn limits(&self) -> PageLimits {
        PageLimits { pairs: self.size, bytes: PAGE_BYTES, contents: self.contents }
    }

    /// Reads the next page. Returns false at the end.
    fn read_page(&mut self) -> Result<bool> {
        if self.is_over || self.range.limit == 0 {
            return Ok(false);
        }
        let page = merge(self.inner.pages(&self.range, &self.cuts, self.limits())?, self.range.direction);
        self.is_over = page.is_last;
        self.size = (self.size * 2).min(PAGE_PAIRS_MAX);
        if let Some((last, _)) = page.pairs.last() {
            continue_after(&mut self.range, last);
        }
        self.page = page.pairs.into_iter();
        self.damage = page.damage.into_iter().map(|(_, error)| error).collect::<Vec<_>>().into_iter();
        Ok(true)
    }

    /// Skips `count` pairs up to this key, which another walk has shown.
    fn skip_to(&mut self, key: &[u8], count: usize) {
        if count != 0 {
            continue_after(&mut self.range, key);
            self.range.limit -= count;
        }
    }

    /// Returns the next pair. The walk continues after damage, and ends after any other error.
    fn pair(&mut self) -> Result<Option<Pair>> {
        loop {
            if self.range.limit == 0 {
                return Ok(None);
            }
            if let Some(pair) = self.page.next() {
                self.range.limit -= 1;
                return Ok(Some(pair));
            }
            if let Some(error) = self.damage.next() {
                return Err(error);
            }
            match self.read_page() {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => {
                    self.is_over = true;
                    self.range.limit = 0;
                    return Err(error);
                }
            }
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let pair = self.pair().transpose()?;
        Some(
            pair.map(|(key, StoredValue { value, expiry })| Entry::of_pair(Shown { key: &key, value: &value, expiry })),
        )
    }
}

/// The walk of the only store, while there is one group.
struct SoleWalk {
    inner: Arc<Inner>,
    /// `None` once the iteration continues with `walk`.
    scan: Option<Scan>,
    /// Pairs shown so far (`shown`), and the key of the last one (`last`).
    shown: usize,
    last: Vec<u8>,
    walk: Walk,
}

impl Iterator for SoleWalk {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let Some(scan) = &mut self.scan else { return self.walk.next() };
        let next = scan.next();
        // With still one group, no key had moved away when this one was found.
        if !self.inner.has_one_group() {
            self.scan = None;
            self.walk.skip_to(&self.last, self.shown);
            return self.walk.next();
        }
        if let Some(Ok(entry)) = &next {
            self.shown += 1;
            self.last.clear();
            self.last.extend_from_slice(entry.key());
        }
        next
    }
}

impl Inner {
    /// Returns for each group the stores that have applied at least `cuts`, best first.
    pub(crate) fn stores(&self, cuts: &[u64]) -> Result<Vec<Sources>> {
        let groups = self.shape.groups();
        // A group added since receives its keys from the others, whose cuts include them.
        let cut = |group: &Group| cuts.get(group.index).copied().unwrap_or_else(|| group.last());
        let stores = |group: Arc<Group>| group.stores_at(cut(&group)).map(|stores| (group, stores));
        groups.into_iter().map(stores).collect()
    }

    /// Returns the best store of each group, with all numbered operations.
    pub(crate) fn stores_now(&self) -> Result<Vec<Source>> {
        Ok(self.stores(&[])?.into_iter().filter_map(|(_, stores)| stores.into_iter().next()).collect())
    }

    /// Returns whether the matrix has a single store.
    fn is_one_store(&self) -> bool {
        matches!(&self.shape.groups()[..], [group] if group.sole().is_some())
    }

    /// Returns whether no key can have moved to an added group.
    fn has_one_group(&self) -> bool {
        self.shape.counts() == (1, 1)
    }

    /// Returns the next pairs of each group. No key moves during the call.
    pub(crate) fn pages(&self, range: &ScanRange, cuts: &[u64], limits: PageLimits) -> Result<Vec<Page>> {
        let _gate = read(&self.shape.gate);
        // Keys that moved meanwhile are numbered after the cut, even if the move has completed.
        let is_as_before = self.shape.counts() == (cuts.len(), cuts.len());
        let stores = self.stores(if is_as_before { cuts } else { &[] })?;
        stores.iter().map(|(group, stores)| group.page_of(stores, range, &limits)).collect()
    }

    /// Returns a walk that owns its state.
    ///
    /// # Errors
    /// Errors of the devices.
    pub(crate) fn scan(inner: &Arc<Self>, range: &ScanRange) -> Result<Scan> {
        if !inner.can_scan() {
            return inner.stores_now()?[0].store.scan(range);
        }
        let mut walk = Walk::new(inner, range, PageContents::Pairs);
        if inner.has_one_group() && inner.is_one_store() {
            let scan = Some(inner.stores_now()?[0].store.scan(range)?);
            return Ok(Box::new(SoleWalk { inner: Arc::clone(inner), scan, shown: 0, last: Vec::new(), walk }));
        }
        // Reads the first page now: the cut is at the caller's call.
        walk.read_page()?;
        Ok(Box::new(walk))
    }

    pub(crate) fn can_scan(&self) -> bool {
        self.shape.groups().iter().all(|group| group.devices().iter().all(|device| device.store().capabilities().scan))
    }

    /// Visits the pairs of a range.
    ///
    /// # Errors
    /// Errors of the devices.
    pub(crate) fn scan_each(
        inner: &Arc<Self>,
        range: &ScanRange,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<usize> {
        if !inner.can_scan() {
            return inner.stores_now()?[0].store.scan_each(range, visit);
        }
        inner.visit(range, visit, &mut Err)
    }

    /// As [`scan_each`](Self::scan_each). `failed` receives damage errors. The walk continues after
    /// each, or ends with the error that `failed` returns.
    fn visit(
        self: &Arc<Self>,
        range: &ScanRange,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<usize> {
        let mut walk = Walk::new(self, range, PageContents::Values);
        let mut visited = 0;
        if self.has_one_group() && self.is_one_store() {
            let (mut is_over, mut is_stopped, mut last) = (true, false, Vec::new());
            let walked = self.stores_now()?[0].store.scan_each(range, &mut |key, value| {
                // With still one group, no key had moved away when this one was found.
                is_over = self.has_one_group();
                if !is_over {
                    return Visit::Stop;
                }
                visited += 1;
                last.clear();
                last.extend_from_slice(key);
                let more = visit(key, value);
                is_stopped = more == Visit::Stop;
                more
            });
            match walked {
                Ok(_) => {}
                Err(error @ Error::Corrupt { .. }) => {
                    failed(error)?;
                    is_over = false;
                }
                Err(error) => return Err(error),
            }
            // A group may have been added after the last key was found.
            if is_stopped || (is_over && self.has_one_group()) {
                return Ok(visited);
            }
            walk.skip_to(&last, visited);
        }
        loop {
            match walk.pair() {
                Ok(None) => return Ok(visited),
                Ok(Some((key, stored))) => {
                    visited += 1;
                    if visit(&key, &stored.value) == Visit::Stop {
                        return Ok(visited);
                    }
                }
                Err(error @ Error::Corrupt { .. }) => failed(error)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Visits all pairs, each once. No lock is held while a pair is visited.
    ///
    /// # Errors
    /// Errors of the devices. Damage is skipped, and reported at the end.
    pub(crate) fn for_each(inner: &Arc<Self>, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        if !inner.can_scan() {
            return Self::for_each_pair(inner, &mut |pair| visit(pair.key, pair.value));
        }
        let (mut damage, mut is_stopped) = (None, false);
        let mut visit = |key: &[u8], value: &[u8]| {
            let more = visit(key, value);
            is_stopped = more == Visit::Stop;
            more
        };
        let mut failed = |error| {
            damage.get_or_insert(error);
            Ok(())
        };
        let visited = inner.visit(&ScanRange::all(), &mut visit, &mut failed)? as u64;
        damage.filter(|_| !is_stopped).map_or(Ok(visited), Err)
    }

    /// Visits all pairs as [`for_each`](Self::for_each) does, with their expiries.
    ///
    /// # Errors
    /// As [`for_each`](Self::for_each).
    pub(crate) fn for_each_pair(inner: &Arc<Self>, visit: &mut dyn FnMut(Shown<'_>) -> Visit) -> Result<u64> {
        let (mut damage, mut visited, mut is_stopped) = (None, 0, false);
        let mut show = |pair: Shown<'_>| {
            visited += 1;
            let more = visit(pair);
            is_stopped = more == Visit::Stop;
            more
        };
        if inner.can_scan() {
            let mut walk = Walk::new(inner, &ScanRange::all(), PageContents::Pairs);
            loop {
                match walk.pair() {
                    Ok(None) => break,
                    Ok(Some((key, StoredValue { value, expiry }))) => {
                        if show(Shown { key: &key, value: &value, expiry }) == Visit::Stop {
                            break;
                        }
                    }
                    Err(error @ Error::Corrupt { .. }) => drop(damage.get_or_insert(error)),
                    Err(error) => return Err(error),
                }
            }
        } else {
            inner.visit_shares(&mut show, &mut damage)?;
        }
        damage.filter(|_| !is_stopped).map_or(Ok(visited), Err)
    }

    /// Visits all pairs of devices without key order, share by share: first the keys, then the
    /// present pair of each.
    fn visit_shares(&self, visit: &mut dyn FnMut(Shown<'_>) -> Visit, damage: &mut Option<Error>) -> Result<()> {
        let keys = self.stores_now()?.iter().map(|source| key_count(&*source.store)).sum();
        let shares = Shares::new(keys);
        for share in 0..shares.count() {
            let mut found = HashSet::new();
            self.add_keys_of_share(shares, share, &mut found, damage)?;
            for key in &found {
                let StoredValue { value, expiry } = match self.read_pair(key) {
                    Ok(Some(stored)) => stored,
                    Ok(None) => continue,
                    Err(error @ Error::Corrupt { .. }) => {
                        damage.get_or_insert(error);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                if visit(Shown { key, value: &value, expiry }) == Visit::Stop {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Adds the keys of one share, of all groups, to `found`.
    pub(crate) fn add_keys_of_share(
        &self,
        shares: Shares,
        share: u64,
        found: &mut HashSet<Vec<u8>>,
        damage: &mut Option<Error>,
    ) -> Result<()> {
        // A key moves only to a later group, possibly one added meanwhile. The key is added there
        // before it is removed here, therefore one of both walks meets it.
        for at in 0.. {
            let Some(group) = self.shape.groups().into_iter().nth(at) else { break };
            *damage = damage.take().or(group.add_keys_of_share(shares, share, found)?);
        }
        Ok(())
    }

    /// Returns the number of pairs that a walk shows.
    ///
    /// # Errors
    /// Errors of the devices.
    fn count_by_walk(inner: &Arc<Self>) -> Result<u64> {
        let mut keys = 0;
        Self::for_each(inner, &mut |_, _| {
            keys += 1;
            Visit::More
        })?;
        Ok(keys)
    }

    /// Returns the number of live keys.
    ///
    /// # Errors
    /// Errors of the devices.
    pub(crate) fn len(inner: &Arc<Self>) -> Result<u64> {
        if inner.shape.is_moving() {
            return Self::count_by_walk(inner);
        }
        let mut keys = 0;
        for (group, sources) in inner.stores(&[])? {
            keys += match sources.iter().find(|source| !source.has_gaps && !source.has_surplus) {
                Some(source) => source.store.len()?,
                None if sources.iter().all(|source| source.has_gaps) => return Err(group.left_out_error()),
                None => return Self::count_by_walk(inner),
            };
        }
        Ok(keys)
    }
}

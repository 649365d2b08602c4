//! Walks over all groups: one member of each, merged in the order of keys, by pages.
//!
//! The cut: what was given a number in any group before the walk began is in it, since each member that is asked has applied that much. Within that a page shows committed
//! pairs as they are when it is read; writers go on.

use std::cmp;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Direction, Entry, Error, Result, Scan, ScanRange, Store, Visit};

use crate::group::Group;
use crate::read;
use crate::store::Inner;

/// Pairs that a page takes of each group at most, and of the first page.
const PAGE: usize = 256;
const FIRST: usize = 32;

impl Group {
    /// The store of a member that has everything up to `cut`.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`].
    pub(crate) fn store_at(&self, cut: u64) -> Result<Arc<dyn Store>> {
        if self.sole().is_some() {
            return Ok(Arc::clone(self.devices()[0].store()));
        }
        let begun = Instant::now();
        loop {
            let active = self.active();
            if let Some(device) = active.iter().find(|device| device.is_active() && device.applied() >= cut) {
                self.teller.store(device.id, Ordering::Relaxed);
                return Ok(Arc::clone(device.store()));
            }
            if active.is_empty() || begun.elapsed() > self.options.timeout {
                return Err(Error::TooFewDevices { group: self.index, live: active.len(), needed: 1 });
            }
            // What is queued is done in a moment, by its processor or by this thread.
            active.iter().for_each(|device| device.kick());
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

impl Group {
    /// The stores of all members that have everything up to `cut`, those first whose recovery found nothing damaged: of one that left a pair out, walks do not show it.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`].
    fn stores_at(&self, cut: u64) -> Result<Vec<Arc<dyn Store>>> {
        let first = self.store_at(cut)?;
        if self.sole().is_some() {
            return Ok(vec![first]);
        }
        let able = self.active().into_iter().filter(|device| device.is_active() && device.applied() >= cut);
        let mut stores: Vec<_> = able.map(|device| Arc::clone(device.store())).collect();
        stores.sort_by_key(|store| store.stats().recovery.corrupt);
        Ok(if stores.is_empty() { vec![first] } else { stores })
    }
}

/// A key with its value, and those of one store.
type Pair = (Vec<u8>, Vec<u8>);
type Pairs = Vec<Pair>;

/// The first pairs of `range` in one store, at most `limit`.
fn first_pairs(store: &dyn Store, range: &ScanRange, limit: usize) -> Result<Pairs> {
    let mut pairs = Vec::new();
    store.scan_each(&ScanRange { limit, ..range.clone() }, &mut |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        Visit::More
    })?;
    Ok(pairs)
}

/// The first pairs of `range`, of the first store that can read them.
fn page_of(stores: &[Arc<dyn Store>], range: &ScanRange, limit: usize) -> Result<Pairs> {
    let mut last = Ok(Vec::new());
    for store in stores {
        last = first_pairs(&**store, range, limit);
        if !matches!(last, Err(Error::Corrupt { .. })) {
            break;
        }
    }
    last
}

/// Merges pages of stores, each of `limit` pairs unless its store ends: as far as all of them reach. Of a key that two have, the later one's counts.
fn merge(pages: Vec<Pairs>, limit: usize, direction: Direction) -> Pairs {
    let order = |a: &[u8], b: &[u8]| if direction == Direction::Forward { a.cmp(b) } else { b.cmp(a) };
    // Beyond the nearest end of a page that is full nobody knows what its store has.
    let ends =
        pages.iter().filter(|page| page.len() == limit).filter_map(|page| page.last().map(|(key, _)| key.clone()));
    let end = ends.min_by(|a, b| order(a, b));
    let mut merged: Vec<(usize, Pair)> =
        pages.into_iter().enumerate().flat_map(|(at, page)| page.into_iter().map(move |pair| (at, pair))).collect();
    if let Some(end) = end {
        merged.retain(|(_, (key, _))| order(key, &end) != cmp::Ordering::Greater);
    }
    merged.sort_by(|(at, (a, _)), (other, (b, _))| order(a, b).then(other.cmp(at)));
    merged.dedup_by(|(_, (later, _)), (_, (first, _))| later == first);
    merged.into_iter().map(|(_, pair)| pair).collect()
}

/// A walk over all groups.
struct Walk {
    inner: Arc<Inner>,
    /// What is left.
    range: ScanRange,
    cuts: Vec<u64>,
    page: std::vec::IntoIter<Pair>,
    size: usize,
    is_over: bool,
}

impl Walk {
    fn new(inner: &Arc<Inner>, range: &ScanRange) -> Self {
        let cuts = inner.shape.groups().iter().map(|group| group.last()).collect();
        Self {
            inner: Arc::clone(inner),
            range: range.clone(),
            cuts,
            page: Vec::new().into_iter(),
            size: FIRST,
            is_over: false,
        }
    }

    /// Reads the next page; false at the end.
    fn turn(&mut self) -> Result<bool> {
        if self.is_over || self.range.limit == 0 {
            return Ok(false);
        }
        let pages = self.inner.pages(&self.range, &self.cuts, self.size)?;
        self.is_over = pages.iter().all(|page| page.len() < self.size);
        let pairs = merge(pages, self.size, self.range.direction);
        self.size = (self.size * 2).min(PAGE);
        if let Some((last, _)) = pairs.last() {
            let behind = Bound::Excluded(last.clone());
            match self.range.direction {
                Direction::Forward => self.range.from = behind,
                Direction::Backward => self.range.to = behind,
            }
        }
        self.page = pairs.into_iter();
        Ok(true)
    }

    fn pair(&mut self) -> Result<Option<Pair>> {
        loop {
            if self.range.limit == 0 {
                return Ok(None);
            }
            if let Some(pair) = self.page.next() {
                self.range.limit -= 1;
                return Ok(Some(pair));
            }
            if !self.turn()? {
                return Ok(None);
            }
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        match self.pair() {
            Ok(pair) => pair.map(|(key, value)| Ok(Entry { key, value })),
            Err(error) => {
                self.is_over = true;
                self.range.limit = 0;
                Some(Err(error))
            }
        }
    }
}

impl Inner {
    /// Of each group the stores that have at least these operations, best first.
    fn stores(&self, cuts: &[u64]) -> Result<Vec<Vec<Arc<dyn Store>>>> {
        let groups = self.shape.groups();
        // A group that was added since has its keys from the others, whose cuts they were in.
        let cut = |group: &Arc<Group>| cuts.get(group.index).copied().unwrap_or_else(|| group.last());
        groups.iter().map(|group| group.stores_at(cut(group))).collect()
    }

    /// The stores of all groups, with everything that has a number.
    fn stores_now(&self) -> Result<Vec<Arc<dyn Store>>> {
        let cuts: Vec<u64> = self.shape.groups().iter().map(|group| group.last()).collect();
        let all = self.stores(&cuts)?;
        Ok(all.into_iter().filter_map(|stores| stores.into_iter().next()).collect())
    }

    /// Whether a walk may ask one store and no other.
    fn is_one_store(&self) -> bool {
        matches!(&self.shape.groups()[..], [group] if group.sole().is_some())
    }

    /// The next pairs of each group, at one moment for keys that move.
    fn pages(&self, range: &ScanRange, cuts: &[u64], size: usize) -> Result<Vec<Pairs>> {
        let _gate = read(&self.shape.gate);
        // Keys that have come meanwhile are numbered behind the cut.
        let stores = if self.shape.is_moving() { self.stores(&[])? } else { self.stores(cuts)? };
        stores.iter().map(|stores| page_of(stores, range, size)).collect()
    }

    /// A walk that owns what it needs.
    ///
    /// # Errors
    /// The devices'.
    pub(crate) fn scan(inner: &Arc<Self>, range: &ScanRange) -> Result<Scan> {
        if !inner.can_scan() {
            return inner.stores_now()?[0].scan(range);
        }
        if inner.is_one_store() {
            return inner.stores_now()?[0].scan(range);
        }
        let mut walk = Walk::new(inner, range);
        // The first page now, so that the cut is the caller's.
        walk.turn()?;
        Ok(Box::new(walk))
    }

    fn can_scan(&self) -> bool {
        self.shape.groups().iter().all(|group| group.devices().iter().all(|device| device.store().capabilities().scan))
    }

    /// Visits the pairs of a range.
    ///
    /// # Errors
    /// The devices'.
    pub(crate) fn scan_each(
        inner: &Arc<Self>,
        range: &ScanRange,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<usize> {
        if inner.is_one_store() {
            return inner.stores_now()?[0].scan_each(range, visit);
        }
        if !inner.can_scan() {
            return inner.stores_now()?[0].scan_each(range, visit);
        }
        let mut walk = Walk::new(inner, range);
        let mut visited = 0;
        while let Some((key, value)) = walk.pair()? {
            visited += 1;
            if visit(&key, &value) == Visit::Stop {
                break;
            }
        }
        Ok(visited)
    }

    /// Visits all pairs, each once.
    ///
    /// # Errors
    /// The devices'. Damage is passed over, and told at the end.
    pub(crate) fn for_each(inner: &Arc<Self>, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        let has_others = inner.shape.groups().iter().any(|group| group.sole().is_none());
        if (inner.shape.is_moving() || has_others) && inner.can_scan() {
            return Self::scan_each(inner, &ScanRange::all(), visit).map(|visited| visited as u64);
        }
        // Without order nothing moves while it is walked over.
        let gate = inner.shape.is_moving().then(|| read(&inner.shape.gate));
        let (mut visited, mut stopped, mut damage) = (0, false, None);
        for store in inner.stores_now()? {
            let walked = store.for_each(&mut |key, value| {
                visited += 1;
                let more = visit(key, value);
                stopped |= more == Visit::Stop;
                more
            });
            match walked {
                Ok(_) => {}
                Err(error @ Error::Corrupt { .. }) => damage = damage.or(Some(error)),
                Err(error) => return Err(error),
            }
            if stopped {
                return Ok(visited);
            }
        }
        drop(gate);
        damage.map_or(Ok(visited), Err)
    }

    /// Live keys.
    ///
    /// # Errors
    /// The devices'.
    pub(crate) fn len(inner: &Arc<Self>) -> Result<u64> {
        if inner.shape.is_moving() {
            let mut keys = 0;
            Self::for_each(inner, &mut |_, _| {
                keys += 1;
                Visit::More
            })?;
            return Ok(keys);
        }
        inner.stores_now()?.iter().map(|store| store.len()).sum()
    }
}

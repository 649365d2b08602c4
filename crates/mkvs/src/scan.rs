//! Walks over all groups: one member of each, merged in the order of keys, by pages.
//!
//! The cut: what was given a number in any group before the walk began is in it, since each member that is asked has applied that much. Behind that a page shows each pair as
//! the member has it when the page is read: writers go on, and a write that is not acknowledged yet may be shown.
//!
//! Where there is one store, it walks over itself, until a group is added: then the walk goes on over both groups from behind the last key that was shown.

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
/// Bytes of keys and values at which a page ends that has a pair.
const PAGE_BYTES: usize = 1 << 20;

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

/// A key with its value.
type Pair = (Vec<u8>, Vec<u8>);

/// The next pairs of one store.
#[derive(Default)]
struct Page {
    pairs: Vec<Pair>,
    /// There is nothing behind them.
    is_last: bool,
}

/// The first pairs of `range` in one store, at most `limit`.
fn first_pairs(store: &dyn Store, range: &ScanRange, limit: usize) -> Result<Page> {
    let (mut pairs, mut bytes) = (Vec::new(), 0);
    let mut is_last = true;
    store.scan_each(&ScanRange { limit, ..range.clone() }, &mut |key, value| {
        bytes += key.len() + value.len();
        pairs.push((key.to_vec(), value.to_vec()));
        is_last = bytes < PAGE_BYTES;
        if is_last { Visit::More } else { Visit::Stop }
    })?;
    is_last &= pairs.len() < limit;
    Ok(Page { pairs, is_last })
}

/// The first pairs of `range`, of the first store that can read them.
fn page_of(stores: &[Arc<dyn Store>], range: &ScanRange, limit: usize) -> Result<Page> {
    let mut last = Ok(Page { is_last: true, ..Page::default() });
    for store in stores {
        last = first_pairs(&**store, range, limit);
        if !matches!(last, Err(Error::Corrupt { .. })) {
            break;
        }
    }
    last
}

/// Merges pages of stores: as far as all of them reach. Of a key that two have, the later one's counts.
fn merge(pages: Vec<Page>, direction: Direction) -> Vec<Pair> {
    let order = |a: &[u8], b: &[u8]| if direction == Direction::Forward { a.cmp(b) } else { b.cmp(a) };
    // Beyond the nearest end of a page that is not its store's last nobody knows what the store has.
    let ends = pages.iter().filter(|page| !page.is_last).filter_map(|page| page.pairs.last());
    let end = ends.map(|(key, _)| key.clone()).min_by(|a, b| order(a, b));
    let numbered = pages.into_iter().enumerate();
    let mut merged: Vec<(usize, Pair)> =
        numbered.flat_map(|(at, page)| page.pairs.into_iter().map(move |pair| (at, pair))).collect();
    if let Some(end) = end {
        merged.retain(|(_, (key, _))| order(key, &end) != cmp::Ordering::Greater);
    }
    merged.sort_by(|(at, (a, _)), (other, (b, _))| order(a, b).then(other.cmp(at)));
    merged.dedup_by(|(_, (later, _)), (_, (first, _))| later == first);
    merged.into_iter().map(|(_, pair)| pair).collect()
}

/// What is left of a range behind `key`.
fn go_on_behind(range: &mut ScanRange, key: &[u8]) {
    let behind = Bound::Excluded(key.to_vec());
    match range.direction {
        Direction::Forward => range.from = behind,
        Direction::Backward => range.to = behind,
    }
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
        self.is_over = pages.iter().all(|page| page.is_last);
        let pairs = merge(pages, self.range.direction);
        self.size = (self.size * 2).min(PAGE);
        if let Some((last, _)) = pairs.last() {
            go_on_behind(&mut self.range, last);
        }
        self.page = pairs.into_iter();
        Ok(true)
    }

    /// So many pairs, up to this key, were shown by somebody else.
    fn pass(&mut self, key: &[u8], count: usize) {
        if count != 0 {
            go_on_behind(&mut self.range, key);
            self.range.limit -= count;
        }
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

/// A walk that one store does by itself, while there is one group.
struct SoleWalk {
    inner: Arc<Inner>,
    /// `None` when it goes on as `walk`.
    scan: Option<Scan>,
    /// Pairs that it has shown, and the key of the last one.
    shown: usize,
    last: Vec<u8>,
    walk: Walk,
}

impl Iterator for SoleWalk {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let Some(scan) = &mut self.scan else { return self.walk.next() };
        let next = scan.next();
        // With one group still, no key had gone when this one was found.
        if !self.inner.has_one_group() {
            self.scan = None;
            self.walk.pass(&self.last, self.shown);
            return self.walk.next();
        }
        if let Some(Ok(entry)) = &next {
            self.shown += 1;
            self.last.clone_from(&entry.key);
        }
        next
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

    /// Whether no key can have gone to a group that was added.
    fn has_one_group(&self) -> bool {
        self.shape.counts() == (1, 1)
    }

    /// The next pairs of each group, at one moment for keys that move.
    fn pages(&self, range: &ScanRange, cuts: &[u64], size: usize) -> Result<Vec<Page>> {
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
        let mut walk = Walk::new(inner, range);
        if inner.has_one_group() && inner.is_one_store() {
            let scan = Some(inner.stores_now()?[0].scan(range)?);
            return Ok(Box::new(SoleWalk { inner: Arc::clone(inner), scan, shown: 0, last: Vec::new(), walk }));
        }
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
        if !inner.can_scan() {
            return inner.stores_now()?[0].scan_each(range, visit);
        }
        let mut walk = Walk::new(inner, range);
        let mut visited = 0;
        if inner.has_one_group() && inner.is_one_store() {
            let (mut is_over, mut is_stopped, mut last) = (true, false, Vec::new());
            inner.stores_now()?[0].scan_each(range, &mut |key, value| {
                // With one group still, no key had gone when this one was found.
                is_over = inner.has_one_group();
                if !is_over {
                    return Visit::Stop;
                }
                visited += 1;
                last.clear();
                last.extend_from_slice(key);
                let more = visit(key, value);
                is_stopped = more == Visit::Stop;
                more
            })?;
            // A group may have been added behind the last key that was found.
            if is_stopped || (is_over && inner.has_one_group()) {
                return Ok(visited);
            }
            walk.pass(&last, visited);
        }
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
        // Without order nothing moves while it is walked over, also by a group that is added meanwhile.
        let gate = read(&inner.shape.gate);
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

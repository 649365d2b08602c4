//! Walks over all groups: the pages of one member of each group, merged in key order.
//!
//! The cut: every operation numbered in any group before the walk began is visible, because each
//! queried member has applied that much. Beyond the cut, a page shows each pair as the member has
//! it when the page is read. Writers continue, and an unacknowledged write may be shown. If a
//! member cannot show all of a page, other members are queried for it too.
//!
//! A matrix with a single store uses the store's own walk, until a group is added. Then the walk
//! continues over both groups after the last key shown.

use std::cmp;
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Direction, Entry, Error, Pair as Shown, Result, Scan, ScanRange, Store, Visit};

use crate::device::Device;
use crate::group::Group;
use crate::read;
use crate::store::Inner;
use crate::walk::{Page, PageContents, PageLimits, Pair, Shares, StoredValue, each_key, key_count, page, shows_all};

/// Maximum pairs of a page from each group (`PAGE_PAIRS_MAX`), and of the first page
/// (`FIRST_PAGE_PAIRS_MAX`).
const PAGE_PAIRS_MAX: usize = 256;
const FIRST_PAGE_PAIRS_MAX: usize = 32;
/// A page with at least one pair ends at this many bytes of keys and values.
const PAGE_BYTES: usize = 1 << 20;

/// A member's store, as a walk uses it.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) store: Arc<dyn Store>,
    /// Whether the store may lack pairs of the group.
    pub(crate) has_gaps: bool,
}

impl Source {
    pub(crate) fn of(device: &Device) -> Self {
        Self { store: Arc::clone(device.store()), has_gaps: device.has_gaps() }
    }

    /// Returns whether a walk shows all of the group's pairs, except pairs that it reports as
    /// damaged.
    pub(crate) fn shows_all(&self) -> bool {
        !self.has_gaps && shows_all(&*self.store)
    }
}

impl Group {
    /// Calls `each` for every key of the first of these stores that shows all keys, and of the
    /// stores before it. A key may come more than once. Returns the error that prevented a complete
    /// list.
    ///
    /// # Errors
    /// Errors of the stores, except damage; errors of `each`.
    pub(crate) fn each_key_of(
        &self,
        sources: &[Source],
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Option<Error>> {
        let mut first = None;
        for source in sources {
            let damage = each_key(&*source.store, each)?;
            if damage.is_none() && source.shows_all() {
                return Ok(None);
            }
            first = first.or(damage).or_else(|| Some(self.left_out_error()));
        }
        Ok(first)
    }

    /// Returns the error of a group in which no device shows all pairs.
    pub(crate) fn left_out_error(&self) -> Error {
        let what = "pairs are missing on all devices: a recovery or a copy could not read them";
        Error::corrupt(format!("group {}", self.index), what)
    }

    /// Adds the keys of one share to `keys`, from members in order until one shows all. Returns the
    /// damage that prevented a complete list.
    fn collect(&self, shares: Shares, share: u64, keys: &mut HashSet<Vec<u8>>) -> Result<Option<Error>> {
        let mut first = None;
        for source in self.stores_at(self.last())? {
            let damage = shares.collect(share, &*source.store, keys)?;
            if damage.is_none() && source.shows_all() {
                return Ok(None);
            }
            first = first.or(damage).or_else(|| source.has_gaps.then(|| self.left_out_error()));
        }
        Ok(first)
    }

    /// Returns a member that has applied everything up to `cut`.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`].
    pub(crate) fn device_at(&self, cut: u64) -> Result<Arc<Device>> {
        if self.sole().is_some() {
            return Ok(Arc::clone(&self.devices()[0]));
        }
        let begun = Instant::now();
        loop {
            let active = self.active();
            if let Some(device) = active.iter().find(|device| device.is_active() && device.applied() >= cut) {
                self.last_walked.store(device.id, Ordering::Relaxed);
                return Ok(Arc::clone(device));
            }
            if active.is_empty() || begun.elapsed() > self.options.timeout {
                return Err(self.too_few_error(active.len(), 1));
            }
            // Queued commands are executed soon, by the device's processor or by this thread.
            active.iter().for_each(|device| device.kick());
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

impl Group {
    /// Returns the stores of all members that have applied everything up to `cut`. Stores without
    /// gaps whose recovery left out the fewest pairs come first: walks do not show missing pairs.
    ///
    /// # Errors
    /// [`Error::TooFewDevices`].
    pub(crate) fn stores_at(&self, cut: u64) -> Result<Vec<Source>> {
        let first = Source::of(&*self.device_at(cut)?);
        if self.sole().is_some() {
            return Ok(vec![first]);
        }
        let able = self.active().into_iter().filter(|device| device.is_active() && device.applied() >= cut);
        let mut sources: Vec<_> = able.map(|device| Source::of(&device)).collect();
        sources.sort_by_cached_key(|source| {
            let recovery = source.store.stats().recovery;
            (source.has_gaps, recovery.left_out, recovery.corrupt)
        });
        Ok(if sources.is_empty() { vec![first] } else { sources })
    }

    /// Returns the first pairs of `range`: from the first of these stores that can read all of
    /// them, or the union of all stores' readable pairs.
    fn page_of(&self, sources: &[Source], range: &ScanRange, limits: &PageLimits) -> Result<Page> {
        let (mut pages, mut failed): (Vec<Page>, _) = (Vec::new(), None);
        let mut is_covered = false;
        for source in sources {
            match page(&*source.store, range, limits) {
                Ok(page) => {
                    is_covered = page.damage.is_empty() && !source.has_gaps;
                    let is_whole = is_covered && (sources.len() == 1 || shows_all(&*source.store));
                    pages.push(page);
                    if is_whole {
                        break;
                    }
                }
                // Another store may succeed.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let mut page = match (pages.len(), failed) {
            (0, Some(error)) => return Err(error),
            (0 | 1, _) => pages.pop().unwrap_or_default(),
            _ => self.combine(pages, range.direction, is_covered),
        };
        if page.is_last && sources.iter().all(|source| source.has_gaps) {
            page.damage.push((None, self.left_out_error()));
        }
        Ok(page)
    }

    /// Combines pages of several members for the same range. Pairs that the first member does not
    /// show are queued for repair. `is_covered`: the last page has all pairs.
    fn combine(&self, mut pages: Vec<Page>, direction: Direction, is_covered: bool) -> Page {
        let first: HashSet<Vec<u8>> = pages[0].pairs.iter().map(|(key, _)| key.clone()).collect();
        let missed = pages[0].damage.len();
        pages[1..].iter_mut().for_each(|page| page.damage.clear());
        let mut page = merge(pages, direction);
        let others: Vec<_> = page.pairs.iter().filter(|(key, _)| !first.contains(key)).collect();
        others.iter().for_each(|(key, _)| self.note_damage(key));
        if is_covered || others.len() >= missed {
            page.damage.clear();
        }
        page
    }
}

/// Merges pages of stores up to the nearest end. If two pages have a key, the later page's pair
/// counts.
pub(crate) fn merge(pages: Vec<Page>, direction: Direction) -> Page {
    let order = |a: &[u8], b: &[u8]| if direction == Direction::Forward { a.cmp(b) } else { b.cmp(a) };
    let is_last = pages.iter().all(|page| page.is_last);
    // Beyond the nearest end of an incomplete page, that store's pairs are unknown.
    let ends = pages.iter().filter(|page| !page.is_last).filter_map(|page| page.pairs.last());
    let end = ends.map(|(key, _)| key.clone()).min_by(|a, b| order(a, b));
    let is_inside = |key: &[u8]| end.as_ref().is_none_or(|end| order(key, end) != cmp::Ordering::Greater);
    let (mut merged, mut damage): (Vec<(usize, Pair)>, Vec<_>) = Default::default();
    for (at, page) in pages.into_iter().enumerate() {
        merged.extend(page.pairs.into_iter().map(|pair| (at, pair)));
        // Damage beyond that end is found again by the next page.
        damage.extend(page.damage.into_iter().filter(|(behind, _)| behind.as_ref().is_none_or(|key| is_inside(key))));
    }
    merged.retain(|(_, (key, _))| is_inside(key));
    merged.sort_by(|(at, (a, _)), (other, (b, _))| order(a, b).then(other.cmp(at)));
    merged.dedup_by(|(_, (later, _)), (_, (first, _))| later == first);
    Page { pairs: merged.into_iter().map(|(_, pair)| pair).collect(), is_last, damage, ..Page::default() }
}

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
            self.collect_share(shares, share, &mut found, damage)?;
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
    pub(crate) fn collect_share(
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
            *damage = damage.take().or(group.collect(shares, share, found)?);
        }
        Ok(())
    }

    /// Returns the number of live keys.
    ///
    /// # Errors
    /// Errors of the devices.
    pub(crate) fn len(inner: &Arc<Self>) -> Result<u64> {
        if inner.shape.is_moving() {
            let mut keys = 0;
            Self::for_each(inner, &mut |_, _| {
                keys += 1;
                Visit::More
            })?;
            return Ok(keys);
        }
        let mut keys = 0;
        for (group, sources) in inner.stores(&[])? {
            let Some(source) = sources.first() else { continue };
            keys += if source.has_gaps { Err(group.left_out_error()) } else { source.store.len() }?;
        }
        Ok(keys)
    }
}

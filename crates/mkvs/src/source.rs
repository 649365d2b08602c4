//! The stores of a group's members, as walks use them: which members show all pairs, and the pages
//! that several members show together.

use std::cmp;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Direction, Error, HiddenKeys, Result, ScanRange, Store};

use crate::device::Device;
use crate::group::Group;
use crate::walk::{Page, PageLimits, Pair, Shares, each_key, page, shows_all};

/// A member's store, as a walk uses it.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) store: Arc<dyn Store>,
    /// Whether the store may lack pairs of the group.
    pub(crate) has_gaps: bool,
    /// Whether the store may have pairs that the group deleted.
    pub(crate) has_surplus: bool,
}

impl Source {
    pub(crate) fn of(device: &Device) -> Self {
        Self { store: Arc::clone(device.store()), has_gaps: device.has_gaps(), has_surplus: device.has_surplus() }
    }

    /// Returns whether a walk shows all of the group's pairs, except pairs that it reports as
    /// damaged.
    pub(crate) fn shows_all(&self) -> bool {
        !self.has_gaps && shows_all(&*self.store)
    }
}

impl Group {
    /// Calls `each` for the keys of the stores in order, up to the first store that shows all keys.
    /// A key may be passed more than once. Returns the error that prevented a complete list.
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
        let what = "all devices lack pairs that a recovery or a copy could not read";
        Error::corrupt(format!("group {}", self.index), what)
    }

    /// Adds the keys of one share to `keys`, from members in order until one shows all. Returns the
    /// damage that prevented a complete list.
    pub(crate) fn add_keys_of_share(
        &self,
        shares: Shares,
        share: u64,
        keys: &mut HashSet<Vec<u8>>,
    ) -> Result<Option<Error>> {
        let mut first = None;
        for source in self.stores_at(self.last())? {
            let damage = shares.add_keys(share, &*source.store, keys)?;
            if damage.is_none() && source.shows_all() {
                return Ok(None);
            }
            first = first.or(damage).or_else(|| Some(self.left_out_error()));
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
    pub(crate) fn page_of(&self, sources: &[Source], range: &ScanRange, limits: &PageLimits) -> Result<Page> {
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
    /// show are queued for repair. The damage of the first page stays, unless the last page has all
    /// pairs (`is_covered`), or as many pairs are found as the first page has damaged ones.
    fn combine(&self, mut pages: Vec<Page>, direction: Direction, is_covered: bool) -> Page {
        let first: HashSet<Vec<u8>> = pages[0].pairs.iter().map(|(key, _)| key.clone()).collect();
        let missed = pages[0].damage.len();
        // Damage of an index can hide any number of keys.
        let is_of_pairs = |(_, error): &(_, Error)| matches!(error, Error::Corrupt { hidden: HiddenKeys::None, .. });
        let are_counted = pages[0].damage.iter().all(is_of_pairs);
        pages[1..].iter_mut().for_each(|page| page.damage.clear());
        let mut page = merge(pages, direction);
        let others: Vec<_> = page.pairs.iter().filter(|(key, _)| !first.contains(key)).collect();
        others.iter().for_each(|(key, _)| self.note_damage(key));
        if is_covered || are_counted && others.len() >= missed {
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

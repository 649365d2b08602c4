//! The operations of the reference store.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use lodestore_contract::copy::CopySink;
use lodestore_contract::limits::{
    KEY_MAX, check_batch, check_conditions, check_key, check_range_conditions, check_value,
};
use lodestore_contract::{
    Batch, BatchOp, Capabilities, Change, ChangeFn, Commit, Condition, Direction, Durability, Entry, Error, Expected,
    Expiry, Lifetime, MediumUse, Pair, Progress, RangeCondition, RecoveryState, Result, Scan, ScanRange, Snapshot,
    Stats, Store, Swap, VerifyReport, Visit,
};

use super::{Flaw, Record, Reference, State, capabilities};

/// Bytes of a pair in addition to its own.
const PAIR_OVERHEAD_BYTES: u64 = 64;
const ENGINE: &str = "reference";

fn pair_bytes(state: &State) -> u64 {
    state.map.iter().map(|(key, record)| (key.len() + record.value.len()) as u64 + PAIR_OVERHEAD_BYTES).sum()
}

impl Reference {
    fn check_key(&self, key: &[u8]) -> Result<()> {
        let excused = (self.has(Flaw::EmptyKeyAccepted) && key.is_empty())
            || (self.has(Flaw::TooLongKeyAccepted) && key.len() == KEY_MAX + 1);
        if self.has(Flaw::LongestKeyRefused) && key.len() == KEY_MAX {
            return Err(Error::KeyLength { len: key.len(), max: KEY_MAX });
        }
        if excused { Ok(()) } else { check_key(key) }
    }

    /// Returns the name under which a key is stored.
    fn stored_name(&self, key: &[u8]) -> Vec<u8> {
        let len = match self.flaw {
            Some(Flaw::KeysEndAtZero) => key.iter().position(|byte| *byte == 0).unwrap_or(key.len()).max(1),
            Some(Flaw::KeysAreCutAt255) => key.len().min(255),
            _ => key.len(),
        };
        key[..len].to_vec()
    }

    fn is_live(&self, record: &Record) -> bool {
        let overflows = |expiry: Expiry| self.has(Flaw::FarExpiryOverflows) && expiry.millis() == u64::MAX;
        let has_expired = record.expiry.is_some_and(|expiry| expiry.is_past() || overflows(expiry));
        let ignored = self.has(Flaw::EmptyValueIsAbsent) && record.value.is_empty();
        !has_expired && !ignored
    }

    /// Returns the record of a key. Expired records are visible only with the flaw `but`.
    fn visible_record<'a>(&self, state: &'a State, key: &[u8], but: Flaw) -> Option<&'a Record> {
        state.map.get(&self.stored_name(key)).filter(|record| self.has(but) || self.is_live(record))
    }

    fn write(&self, state: &mut State, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        let name = self.stored_name(key);
        let mut value = value.to_vec();
        if self.has(Flaw::LargeValuesCut) {
            value.truncate(1 << 20);
        }
        if let (true, Some(old)) = (self.has(Flaw::ShorterPutLeavesTail), state.map.get(&name)) {
            value.extend_from_slice(old.value.get(value.len()..).unwrap_or_default());
        }
        let needed = (key.len() + value.len()) as u64 + PAIR_OVERHEAD_BYTES;
        let used = if self.has(Flaw::SpaceLeaks) { state.bytes_written } else { self.used(state) };
        let old = state.map.get(&name).map_or(0, |old| (key.len() + old.value.len()) as u64 + PAIR_OVERHEAD_BYTES);
        if used + needed > state.capacity + old {
            match self.flaw {
                Some(Flaw::FullEvicts) => drop(state.map.pop_first()),
                Some(Flaw::FullDeletesOld) => drop(state.map.remove(&name)),
                _ => {}
            }
            if !self.has(Flaw::FullEvicts) {
                return Err(Error::Full { needed, capacity: state.capacity });
            }
        }
        state.bytes_written += needed;
        state.used = (used + needed).saturating_sub(old);
        state.puts += 1;
        let record = Record { value, expiry };
        let old = state.map.insert(name.clone(), record);
        state.last_put = Some((name, old));
        Ok(())
    }

    fn used(&self, state: &State) -> u64 {
        if state.used == 0 { pair_bytes(state) } else { state.used }
    }

    fn remove(&self, state: &mut State, key: &[u8]) {
        let name = self.stored_name(key);
        if let Some(old) = state.map.remove(&name) {
            state.used = self.used(state).saturating_sub((key.len() + old.value.len()) as u64 + PAIR_OVERHEAD_BYTES);
            state.last_deleted = Some((name, old));
        }
    }

    /// Lets other threads run between two halves of a step, if this flaw is on.
    fn pause<'a>(&'a self, state: MutexGuard<'a, State>, flaw: Flaw) -> MutexGuard<'a, State> {
        if !self.has(flaw) {
            return state;
        }
        drop(state);
        (0..3).for_each(|_| thread::yield_now());
        self.state()
    }

    fn entries(&self, state: &State, range: &ScanRange) -> Vec<Entry> {
        let mut range = range.clone();
        if let (true, Bound::Included(from)) = (self.has(Flaw::ScanExcludesFrom), &range.from) {
            range.from = Bound::Excluded(from.clone());
        }
        if let (true, Bound::Excluded(to)) = (self.has(Flaw::ScanIncludesTo), &range.to) {
            range.to = Bound::Included(to.clone());
        }
        if let (true, Bound::Included(from), Bound::Included(to)) =
            (self.has(Flaw::ScanPanicsOnInverted), &range.from, &range.to)
        {
            assert!(from <= to, "range start is greater than range end");
        }
        let shows_expired = self.has(Flaw::ScanShowsExpired) || self.has(Flaw::ScanCountsExpired);
        let mut found: Vec<(&Vec<u8>, &Record)> = state
            .map
            .iter()
            .filter(|(key, record)| range.contains(key) && (shows_expired || self.is_live(record)))
            .collect();
        if self.has(Flaw::ScanOrdersSigned) {
            found.sort_by_key(|(key, _)| key.iter().map(|byte| byte.cast_signed()).collect::<Vec<_>>());
        }
        if self.has(Flaw::ScanLagsByOne)
            && let Some((last, None)) = &state.last_put
        {
            found.retain(|(key, _)| *key != last);
        }
        if self.has(Flaw::ScanSkipsLast) {
            found.pop();
        }
        let limit = if self.has(Flaw::ScanLimitZeroIsAll) && range.limit == 0 { usize::MAX } else { range.limit };
        if self.has(Flaw::ScanLimitsBeforeReversing) {
            found.truncate(limit);
        }
        if range.direction == Direction::Backward {
            found.reverse();
        }
        found.truncate(limit);
        if self.has(Flaw::ScanCountsExpired) {
            found.retain(|(_, record)| self.is_live(record));
        }
        let expiries: Vec<_> = found.iter().map(|(_, record)| record.expiry).collect();
        let shown = |index: usize| match self.flaw {
            Some(Flaw::ScanHidesExpiry) => None,
            Some(Flaw::ScanShiftsExpiry) => index.checked_sub(1).and_then(|before| expiries[before]),
            _ => expiries[index],
        };
        let entry = |(index, (key, record)): (usize, (&Vec<u8>, &Record))| {
            Entry::of_pair(Pair { key, value: &record.value, expiry: shown(index) })
        };
        found.into_iter().enumerate().map(entry).collect()
    }

    fn unordered(&self, what: &str) -> Error {
        Error::Unsupported { engine: ENGINE, what: what.into(), instead: "engine hikv has it" }
    }

    /// Returns the first condition that is not met.
    fn first_unmet(&self, state: &State, conditions: &[Condition]) -> Option<usize> {
        let is_met = |condition: &Condition| {
            let record = state.map.get(&condition.key).filter(|record| self.is_live(record));
            let expiry = record.and_then(|record| record.expiry);
            let value = record.map(|record| record.value.as_slice());
            match &condition.expected {
                Expected::Present if self.has(Flaw::ConditionSeesExpired) => state.map.contains_key(&condition.key),
                Expected::Entry(expected, _) if self.has(Flaw::ConditionIgnoresExpiry) => value == Some(expected),
                Expected::Value(expected) if self.has(Flaw::ConditionComparesLength) => {
                    value.is_some_and(|value| value.len() == expected.len())
                }
                _ => condition.is_met(value, expiry),
            }
        };
        let unmet = match self.flaw {
            Some(Flaw::ConditionNamesLast) => conditions.iter().rposition(|condition| !is_met(condition)),
            Some(Flaw::ConditionsAfterFirst) => conditions.iter().take(1).position(|condition| !is_met(condition)),
            _ => conditions.iter().position(|condition| !is_met(condition)),
        };
        unmet.filter(|_| !self.has(Flaw::ConditionIgnored))
    }

    /// Returns the first range condition that is not met, counted after the conditions on keys.
    fn first_unmet_range(&self, state: &State, keys: usize, ranges: &[RangeCondition]) -> Option<usize> {
        let is_met = |condition: &RangeCondition| {
            let mut range = condition.scan_range();
            if self.has(Flaw::RangeConditionEndIncluded)
                && let Bound::Excluded(to) = range.to
            {
                range.to = Bound::Included(to);
            }
            let is_shown = |record: &Record| self.is_live(record) || self.has(Flaw::RangeConditionSeesExpired);
            let present = state.map.iter().filter(|(key, record)| range.contains(key) && is_shown(record));
            let present: Vec<&Vec<u8>> = present.map(|(key, _)| key).collect();
            match self.flaw {
                // An added key of the range is not detected.
                Some(Flaw::RangeConditionMissesPhantoms) => condition.keys.iter().all(|key| present.contains(&key)),
                Some(Flaw::RangeConditionMissesDeletes) => present.iter().all(|key| condition.keys.contains(key)),
                Some(Flaw::RangeConditionCountsOnly) => present.len() == condition.keys.len(),
                _ => present.into_iter().eq(&condition.keys),
            }
        };
        let unmet = ranges.iter().position(|condition| !is_met(condition))?;
        Some(if self.has(Flaw::RangeConditionCountedFromZero) { unmet } else { keys + unmet })
    }

    /// Writes a batch if its conditions are met.
    fn apply_batch_if(&self, conditions: &[Condition], ranges: &[RangeCondition], batch: &Batch) -> Result<Commit> {
        if !self.has(Flaw::ConditionUncounted) {
            check_conditions(conditions)?;
            if !self.has(Flaw::RangeKeysUncounted) {
                check_range_conditions(conditions, ranges)?;
            }
        }
        // A batch of nothing is checked too, unless this flaw is on.
        if batch.ops.is_empty() && self.has(Flaw::ConditionOfNothingMet) {
            return Ok(Commit::Done);
        }
        let state = self.open_state()?;
        let unmet = self.first_unmet(&state, conditions);
        let unmet = unmet.or_else(|| self.first_unmet_range(&state, conditions.len(), ranges));
        if let Some(index) = unmet {
            drop(state);
            match self.flaw {
                Some(Flaw::UnmetBatchWritten) => self.apply_batch(batch, None)?,
                // Behaves as if the space were reserved before the conditions are checked.
                Some(Flaw::UnmetBatchNeedsSpace) => {
                    let state = self.state();
                    let needed = batch.ops.len() as u64 * PAIR_OVERHEAD_BYTES;
                    if pair_bytes(&state) + needed > state.capacity {
                        return Err(Error::Full { needed, capacity: state.capacity });
                    }
                }
                _ => {}
            }
            return Ok(Commit::Unmet(index));
        }
        let state = if self.has(Flaw::ConditionCheckedEarly) {
            drop(state);
            (0..3).for_each(|_| thread::yield_now());
            None
        } else {
            Some(state)
        };
        self.apply_batch(batch, state).map(|()| Commit::Done)
    }

    /// Writes a batch, with the lock of `locked` if the caller holds it.
    fn apply_batch(&self, batch: &Batch, locked: Option<MutexGuard<'_, State>>) -> Result<()> {
        if let Err(refused) = check_batch(batch)
            && !matches!(refused, Error::BatchLength { .. } if self.has(Flaw::BatchUncounted))
            && !self.has(Flaw::BatchHalfWritten)
        {
            return Err(refused);
        }
        let mut ops: Vec<&BatchOp> = batch.ops.iter().collect();
        match self.flaw {
            Some(Flaw::BatchReorders) => ops.sort_by_key(|op| matches!(op, BatchOp::Put { .. })),
            Some(Flaw::BatchFirstWins) => ops.reverse(),
            _ => {}
        }
        let mut state = locked.map_or_else(|| self.open_state(), Ok)?;
        let before = state.map.clone();
        for op in ops {
            if let Err(refused) = self.apply_op(&mut state, op) {
                let keeps = match self.flaw {
                    Some(Flaw::BatchHalfWritten) => !matches!(refused, Error::Full { .. }),
                    Some(Flaw::BatchFullKeepsWhatFitted) => matches!(refused, Error::Full { .. }),
                    _ => false,
                };
                if !keeps {
                    state.map = before;
                    state.used = pair_bytes(&state);
                }
                return Err(refused);
            }
            state = self.pause(state, Flaw::BatchTorn);
        }
        self.end_batch(&mut state, batch);
        Ok(())
    }

    fn apply_op(&self, state: &mut State, op: &BatchOp) -> Result<()> {
        match op {
            BatchOp::Put { key, value, expiry } => {
                self.check_key(key)?;
                check_value(value)?;
                self.write(state, key, value, expiry.filter(|_| !self.has(Flaw::BatchDropsExpiry)))
            }
            BatchOp::Delete { key } => {
                self.check_key(key)?;
                if self.has(Flaw::BatchMindsAbsentKeys) && !state.map.contains_key(key) {
                    return Err(Error::missing("a key"));
                }
                self.remove(state, key);
                Ok(())
            }
        }
    }

    fn end_batch(&self, state: &mut State, batch: &Batch) {
        if self.has(Flaw::BatchOfNothingUndoes)
            && batch.ops.is_empty()
            && let Some((key, _)) = state.last_put.take()
        {
            self.remove(state, &key);
        }
        state.batch_end = batch.ops.iter().rev().find_map(|op| match op {
            BatchOp::Put { key, .. } => Some(self.stored_name(key)),
            BatchOp::Delete { .. } => None,
        });
    }
}

/// A copy of the map, with a flaw of snapshots if one is on.
struct View {
    store: Reference,
    /// The state of the copied store.
    now: Arc<Mutex<State>>,
}

impl Snapshot for View {
    fn get_with_expiry(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
        let Some(value) = self.store.get(key)? else { return Ok(None) };
        let expiry = match self.store.flaw {
            Some(Flaw::SnapshotGetHidesExpiry) => None,
            Some(Flaw::SnapshotExpiryFollows) => {
                let now = self.now.lock().expect("no panic under the lock");
                now.map.get(key).and_then(|record| record.expiry)
            }
            _ => self.store.expiry(key)?.flatten(),
        };
        Ok(Some((value, expiry)))
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        self.store.scan(range)
    }
}

impl Store for Reference {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(self.ordered)
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.check_key(key)?;
        let state = self.open_state()?;
        let found = self.visible_record(&state, key, Flaw::GetShowsExpired);
        if self.has(Flaw::GetIntoAllocates) {
            *value = Vec::new();
        }
        let keeps = self.has(Flaw::GetIntoAppends) || (self.has(Flaw::GetIntoKeepsOnMiss) && found.is_none());
        if !keeps {
            value.clear();
        }
        value.extend_from_slice(found.map_or(&[], |record| &record.value));
        Ok(found.is_some())
    }

    fn get_with(&self, key: &[u8], with: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut value = Vec::new();
        let is_present = self.get_into(key, &mut value)?;
        if is_present || self.has(Flaw::GetWithShowsMiss) {
            with(&value);
        }
        if is_present && self.has(Flaw::GetWithTwice) {
            with(&value);
        }
        Ok(is_present)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.check_key(key)?;
        let state = self.open_state()?;
        if self.has(Flaw::ContainsGuesses) {
            return Ok(state.map.keys().any(|name| name.first() == key.first()));
        }
        Ok(self.visible_record(&state, key, Flaw::ContainsShowsExpired).is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        match self.flaw {
            Some(Flaw::MultiGetSorts) => order.sort_by_key(|at| keys[*at]),
            Some(Flaw::MultiGetDropsDuplicates) => order.dedup_by_key(|at| keys[*at]),
            Some(Flaw::MultiGetStopsAt64) => order.truncate(64),
            _ => {}
        }
        let ahead = !self.has(Flaw::MultiGetSkipsRefused) && !self.has(Flaw::MultiGetRefusesLate);
        keys.iter().filter(|_| ahead).try_for_each(|key| self.check_key(key))?;
        for at in order {
            match self.check_key(keys[at]) {
                Err(_) if self.has(Flaw::MultiGetSkipsRefused) => continue,
                checked => checked?,
            }
            let state = self.open_state()?;
            let found =
                self.visible_record(&state, keys[at], Flaw::MultiGetShowsExpired).map(|record| record.value.as_slice());
            if found.is_some() || !self.has(Flaw::MultiGetSkipsMisses) {
                each(at, found);
            }
        }
        Ok(())
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.check_key(key)?;
        let state = self.open_state()?;
        Ok(self.visible_record(&state, key, Flaw::ExpiryShowsExpired).map(|record| record.expiry))
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        self.check_key(key)?;
        let mut state = self.open_state()?;
        if self.has(Flaw::RefusedValueDeletes) && check_value(value).is_err() {
            self.remove(&mut state, key);
        }
        check_value(value)?;
        let kept = state.map.get(key).and_then(|old| old.expiry).filter(|_| self.has(Flaw::PutKeepsExpiry));
        if self.has(Flaw::TornPut) && state.puts % 4 == 3 {
            self.write(&mut state, key, &value[..value.len() / 2], expiry)?;
            state = self.pause(state, Flaw::TornPut);
        }
        self.write(&mut state, key, value, expiry.or(kept))
    }

    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.check_key(key)?;
        check_value(value)?;
        let state = self.open_state()?;
        let is_present =
            self.visible_record(&state, key, Flaw::InsertSeesExpired).is_some() && !self.has(Flaw::InsertOverwrites);
        let mut state = self.pause(state, Flaw::InsertNotAtomic);
        if !is_present {
            let expired = state.map.get(&self.stored_name(key)).and_then(|old| old.expiry);
            let present = expired.filter(|_| self.has(Flaw::InsertKeepsExpired));
            let given = lifetime.resolve(present).filter(|_| !self.has(Flaw::InsertDropsExpiry));
            self.write(&mut state, key, value, given)?;
        }
        Ok(!is_present)
    }

    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.check_key(key)?;
        check_value(value)?;
        let state = self.open_state()?;
        let found = self.visible_record(&state, key, Flaw::UpdateSeesExpired);
        let present = found.and_then(|record| record.expiry);
        let is_present = found.is_some();
        let lifetime = match lifetime {
            Lifetime::Forever if self.has(Flaw::UpdateKeepsExpiry) => Lifetime::Keep,
            Lifetime::Keep if self.has(Flaw::UpdateForgetsKept) => Lifetime::Forever,
            Lifetime::Until(_) if self.has(Flaw::UpdateDropsExpiry) => Lifetime::Forever,
            lifetime => lifetime,
        };
        let expiry = lifetime.resolve(present);
        let mut state = self.pause(state, Flaw::UpdateKeepNotAtomic);
        if is_present || self.has(Flaw::UpdateInserts) {
            self.write(&mut state, key, value, expiry)?;
        }
        Ok(is_present)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.check_key(key)?;
        let state = self.open_state()?;
        if self.has(Flaw::FullRefusesDeletes) && self.used(&state) + 200 > state.capacity {
            return Err(Error::Full { needed: PAIR_OVERHEAD_BYTES, capacity: state.capacity });
        }
        let is_present = self.visible_record(&state, key, Flaw::DeleteSeesExpired).is_some();
        let mut state = self.pause(state, Flaw::DeleteNotAtomic);
        match self.flaw {
            Some(Flaw::DeleteKeeps) => {}
            Some(Flaw::DeleteRemovesPrefix) => {
                let doomed: Vec<_> = state.map.keys().filter(|name| name.starts_with(key)).cloned().collect();
                doomed.iter().for_each(|name| self.remove(&mut state, name));
            }
            _ => self.remove(&mut state, key),
        }
        Ok(is_present || self.has(Flaw::DeleteAlwaysTrue))
    }

    fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        self.check_key(key)?;
        check_value(new.unwrap_or_default())?;
        let state = self.open_state()?;
        let found = self.visible_record(&state, key, Flaw::SwapSeesExpired).cloned();
        let now = found.as_ref().map(|record| record.value.as_slice());
        let same = if self.has(Flaw::SwapComparesLengths) {
            now.map(<[u8]>::len) == expected.map(<[u8]>::len)
        } else {
            now == expected
        };
        if !same {
            let told = if self.has(Flaw::SwapTellsExpected) { expected } else { now };
            return Ok(Swap::Differs(told.map(<[u8]>::to_vec)));
        }
        let mut state = self.pause(state, Flaw::SwapNotAtomic);
        let lifetime = match lifetime {
            Lifetime::Forever if self.has(Flaw::SwapKeepsExpiry) => Lifetime::Keep,
            Lifetime::Keep if self.has(Flaw::SwapForgetsKept) => Lifetime::Forever,
            Lifetime::Until(_) if self.has(Flaw::SwapDropsExpiry) => Lifetime::Forever,
            lifetime => lifetime,
        };
        let expiry = lifetime.resolve(found.and_then(|record| record.expiry));
        match new {
            Some(value) => self.write(&mut state, key, value, expiry)?,
            None if self.has(Flaw::SwapNeverDeletes) => {}
            None => self.remove(&mut state, key),
        }
        Ok(Swap::Done)
    }

    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        self.check_key(key)?;
        let state = self.open_state()?;
        let found = self.visible_record(&state, key, Flaw::UpdateWithSeesExpired).cloned();
        let (value, expiry) = found.map_or((None, None), |record| (Some(record.value), record.expiry));
        let shown = expiry.filter(|_| !self.has(Flaw::UpdateWithHidesExpiry));
        if self.has(Flaw::UpdateWithRunsTwice) {
            change(value.as_deref(), shown);
        }
        let wanted = change(value.as_deref(), shown);
        let mut state = self.pause(state, Flaw::UpdateWithNotAtomic);
        match wanted {
            Change::Keep if self.has(Flaw::UpdateWithKeepDeletes) => self.remove(&mut state, key),
            Change::Keep => {}
            Change::Put(value, lifetime) => {
                check_value(&value)?;
                let lifetime = match lifetime {
                    Lifetime::Until(_) if self.has(Flaw::UpdateWithDropsExpiry) => Lifetime::Forever,
                    Lifetime::Keep if self.has(Flaw::UpdateWithForgetsKept) => Lifetime::Forever,
                    lifetime => lifetime,
                };
                self.write(&mut state, key, &value, lifetime.resolve(expiry))?;
            }
            Change::Delete => self.remove(&mut state, key),
        }
        Ok(())
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        let mut visited = 0;
        for entry in self.scan(range)? {
            let entry = entry?;
            visited += 1;
            if visit(entry.key(), entry.value()) == Visit::Stop {
                return Ok(visited - usize::from(self.has(Flaw::ScanEachCountsShort)));
            }
        }
        Ok(visited)
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        if !self.ordered {
            return Err(self.unordered("ordered scan"));
        }
        let state = self.open_state()?;
        let entries = self.entries(&state, range);
        if !self.has(Flaw::ScanWalksByPosition) {
            return Ok(Box::new(entries.into_iter().map(Ok)));
        }
        drop(state);
        let (state, range, mut at) = (Arc::clone(&self.state), range.clone(), 0);
        Ok(Box::new(std::iter::from_fn(move || {
            let state = state.lock().expect("no panic under the lock");
            let mut inside: Vec<_> =
                state.map.iter().filter(|(key, _)| range.contains(key)).take(range.limit).collect();
            if range.direction == Direction::Backward {
                inside.reverse();
            }
            let (key, record) = inside.get(at)?;
            at += 1;
            Some(Ok(Entry::of_pair(Pair { key, value: &record.value, expiry: record.expiry })))
        })))
    }

    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        let state = self.open_state()?;
        let live = state.map.iter().filter(|(_, record)| self.has(Flaw::ForEachShowsExpired) || self.is_live(record));
        let mut pairs: Vec<_> = live.map(|(key, record)| (key.clone(), record.clone())).collect();
        drop(state);
        match self.flaw {
            Some(Flaw::ForEachTwice) => pairs.extend(pairs.first().cloned()),
            Some(Flaw::ForEachMissesLast) => drop(pairs.pop()),
            _ => {}
        }
        let mut visited = 0;
        for (key, record) in pairs {
            visited += 1;
            let expiry = match self.flaw {
                Some(Flaw::ForEachHidesExpiry) => None,
                Some(Flaw::ForEachReadsExpiryLate) => {
                    thread::yield_now();
                    self.expiry(&key)?.flatten()
                }
                _ => record.expiry,
            };
            if visit(Pair { key: &key, value: &record.value, expiry }) == Visit::Stop
                && !self.has(Flaw::ForEachNeverStops)
            {
                break;
            }
        }
        Ok(visited)
    }

    fn write_if(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        self.apply_batch_if(conditions, &[], batch)
    }

    fn write_if_ranges(&self, conditions: &[Condition], ranges: &[RangeCondition], batch: &Batch) -> Result<Commit> {
        if !ranges.is_empty() && !self.ordered {
            return Err(self.unordered("conditions on ranges"));
        }
        self.apply_batch_if(conditions, ranges, batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        if !self.ordered {
            return Err(self.unordered("snapshot"));
        }
        let state = self.open_state()?;
        let map = state.map.clone();
        let copy = State { map, capacity: state.capacity, ..State::default() };
        let of_snapshots = [Flaw::SnapshotFollows, Flaw::SnapshotGetHidesExpiry, Flaw::SnapshotExpiryFollows];
        let flaw = self.flaw.filter(|flaw| of_snapshots.contains(flaw));
        let store = Reference { state: Arc::new(copy.into()), disk: Arc::default(), flaw, ordered: true };
        if self.has(Flaw::SnapshotFollows) {
            // Simulates a view that shows a later delete.
            store.state().map.pop_last();
        }
        Ok(Box::new(View { store, now: Arc::clone(&self.state) }))
    }

    fn copy_all(&self, sink: &mut dyn CopySink) -> Result<()> {
        let live = |state: &State| -> BTreeMap<Vec<u8>, Record> {
            let shown = |record: &Record| self.has(Flaw::CopyHasExpired) || self.is_live(record);
            state
                .map
                .iter()
                .filter(|(_, record)| shown(record))
                .map(|(key, record)| (key.clone(), record.clone()))
                .collect()
        };
        let mut pairs = live(&*self.open_state()?);
        match self.flaw {
            Some(Flaw::CopyMissesLast) => drop(pairs.pop_last()),
            Some(Flaw::CopyTorn) => {
                thread::sleep(std::time::Duration::from_millis(1));
                let is_early = |key: &[u8]| key.last().is_some_and(|last| last % 2 == 0);
                let late = live(&*self.open_state()?);
                pairs.retain(|key, _| is_early(key));
                pairs.extend(late.into_iter().filter(|(key, _)| !is_early(key)));
            }
            Some(Flaw::CopyMissesDeletes) => {
                thread::sleep(std::time::Duration::from_millis(1));
                pairs.extend(live(&*self.open_state()?));
            }
            _ => {}
        }
        for (key, record) in &pairs {
            let expiry = record.expiry.filter(|_| !self.has(Flaw::CopyForgetsExpiry));
            let added = sink.add(Pair { key, value: &record.value, expiry });
            if !self.has(Flaw::CopyIgnoresSink) {
                added?;
            }
        }
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let state = self.open_state()?;
        let overwrites = state.puts.saturating_sub(state.map.len() as u64).min(1);
        let extra = if self.has(Flaw::LenCountsOverwrites) { overwrites } else { 0 };
        Ok(state.map.len() as u64 + extra)
    }

    fn stats(&self) -> Stats {
        let state = self.state();
        let live = pair_bytes(&state).min(state.capacity);
        let free = if self.has(Flaw::StatsSpace) { state.capacity } else { state.capacity - live };
        let done = !self.has(Flaw::StatsNeverRecovered);
        Stats {
            engine: ENGINE,
            medium: "memory".into(),
            durability: if self.has(Flaw::StatsDurability) { Durability::Power } else { Durability::Process },
            keys: state.map.len() as u64,
            dram_bytes: 4096 + live,
            dram_fixed_bytes: 4096,
            space: MediumUse { size: state.capacity, capacity: state.capacity, live, dead: 0, free },
            bytes_written: state.bytes_written,
            recovery: RecoveryState {
                done,
                share: 1.0,
                corrupt: state.findings.len() as u64,
                ..RecoveryState::default()
            },
            ..Stats::default()
        }
    }

    fn sync(&self) -> Result<()> {
        drop(self.open_state()?);
        let (asked, medium, instead) = (Durability::Power, "memory".into(), "use a file".into());
        Err(Error::DurabilityRefused { asked, medium, instead })
    }

    fn wait_recovered(&self) -> Result<()> {
        self.open_state().map(drop)
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        let state = self.open_state()?;
        let records = state.map.len() as u64 - u64::from(self.has(Flaw::VerifyCountsShort) && !state.map.is_empty());
        if !self.has(Flaw::VerifySilent) {
            progress(Progress { done: records, total: records });
        }
        Ok(VerifyReport { records, bytes: pair_bytes(&state), findings: state.findings.clone() })
    }

    fn close(&self) -> Result<()> {
        if self.has(Flaw::CloseTwiceFails) && self.state().closed {
            return Err(Error::Closed);
        }
        self.stop(true);
        Ok(())
    }
}

//! From opening to a whole store, while gets and puts are served.
//!
//! Before `open` returns, whatever the size: armed batch logs are redone (`media`), roots are checked against the headers of their tables,
//! and what a cut-off step of growing left is cleared (`resize.rs`). What is volatile and must be made anew after a crash is the
//! allocator's occupancy, and the count of keys. Behind: each stripe's part is walked with the stripe held; its lines are made durable
//! where a killed process may have left them unflushed; each record is checked and marked; what is wrong is reported, and kept where it
//! is. Then the allocator frees what was not marked. Idempotent: a crash in it changes nothing for the next open.
//!
//! After a clean stop the allocator reads its occupancy back and the roots have the counts: nothing is walked.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result};
use lodestore_inplace::share_out;
use lodestore_media::{Mutant, NvPtr, Quiet};

use crate::inner::Inner;
use crate::layout::{CURSOR_END, LINE_SLOTS, Root, Slot, reach_is_whole, reach_word};
use crate::record::{OWN, Record};
use crate::stripe::{STRIPES, fractions_of};
use crate::table::{AHEAD, READ_AHEAD, Table};
use crate::walk::Found;

/// Makes occupancy and counts anew. `counted`: the roots had the counts of keys.
///
/// # Errors
/// What keeps it from its end.
pub(crate) fn rebuild(inner: &Inner, counted: bool) -> Result<()> {
    let allocator = inner.pool.allocator();
    let trusted = counted && (!allocator.is_recovering() || inner.pool.mutant(Mutant::StaleCheckpointTrusted));
    if !trusted {
        // Where the counts were believed and the occupancy could not be read, the walk counts anew.
        inner.partitions.iter().for_each(|part| part.keys_before.store(-1, Ordering::Release));
        walk_all(inner)?;
    } else {
        inner.recovery.set_keys(inner.keys());
        // Whether there are some only a sweep can tell.
        inner.expiring.store(true, Ordering::Relaxed);
    }
    // Where an extent of the tables could not be marked, nothing of the old is freed: the store grows instead.
    if allocator.is_recovering() && !inner.recovery.is_unsure() {
        allocator.finish_recovery(&inner.pool);
    }
    Ok(())
}

/// Walks all partitions, with as many threads as the options say.
fn walk_all(inner: &Inner) -> Result<()> {
    let shares = share_out(
        inner.partitions.len(),
        inner.options.recovery_threads,
        |partition, damaged: &mut Vec<NvPtr>| walk_partition(inner, partition, damaged),
        |_| {},
    )?;
    // Every line was flushed and fenced by the thread that walked it. Where a sync failed, readers go on to make durable what they answer from.
    if inner.pool.check().is_ok() {
        inner.unsettled.store(false, Ordering::Release);
    }
    for record in shares.iter().flatten() {
        inner.recovery.count_left_out(1);
        inner.keep_damaged::<OWN>(*record);
    }
    Ok(())
}

fn walk_partition(inner: &Inner, partition: usize, damaged: &mut Vec<NvPtr>) -> Result<()> {
    let part = &inner.partitions[partition];
    for stripe in 0..STRIPES {
        inner.recovery.check_wanted()?;
        let _quiet = Quiet::begin();
        let _guard = inner.pool.epochs().pin();
        let (from, to) = fractions_of(stripe);
        let mut held = inner.stripes.lock(partition, stripe);
        let mut keys = 0;
        for (table, from, to) in Inner::tables_of(part, from, to) {
            if inner.is_unsettled() {
                inner.settle_part(table, from, to);
            }
            mend_lines(inner, table, from, to);
            let mut found = inner.collect(table, from, to, |_| true);
            // What may be of several stripes, being damaged, is counted where its line begins.
            let range = from..to;
            found.retain(|found| found.fraction.is_some() || range.contains(&table.first_fraction(found.line)));
            keys += found.len() as u64;
            take_all(inner, table, &found, damaged);
        }
        held.set_keys(keys);
        drop(held);
        inner.recovery.count_part();
    }
    part.keys_before.store(0, Ordering::Release);
    Ok(())
}

/// Checks and marks the records of a part.
fn take_all(inner: &Inner, table: Table, found: &[Found], damaged: &mut Vec<NvPtr>) {
    for (index, slot) in found.iter().enumerate() {
        if let Some(next) = found.get(index + AHEAD) {
            inner.pool.prefetch(next.slot.record(), READ_AHEAD);
        }
        if let Err(error) = take(inner, table, slot) {
            inner.recovery.count_corrupt();
            inner.corrupt(&error);
            damaged.push(slot.slot.record());
        }
        inner.recovery.count_key();
    }
}

/// Checks the record that a slot names, mends the slot where the record shows what it was, and marks the record.
fn take(inner: &Inner, table: Table, found: &Found) -> Result<()> {
    let (pool, at) = (&inner.pool, found.slot.record());
    let record = Record::read(pool, at)?;
    record.check(at)?;
    let hashed = inner.hasher.hash(record.key());
    if found.fraction != Some(hashed.fraction) {
        return Err(Error::corrupt(format!("slot of record {at:?}"), "it names the record of another key"));
    }
    let right = Slot::new(hashed.tag, at, record.expiry().is_some());
    if found.slot != right {
        inner.recovery.count_corrupt();
        let error = Error::corrupt(format!("slot of record {at:?}"), "its tag or expiry bit is not that of its record");
        inner.corrupt(&error);
        // The stripe is held. Where another slot names the key, this one is a stray.
        let other = table.find(pool, inner.finding(), hashed, record.key());
        if !other.is_ok_and(|other| other.is_none_or(|other| other.at == found.at)) {
            return Err(error);
        }
        // A writer of another stripe may have changed it meanwhile; then there is nothing to mend.
        if pool.cas_u64(found.at, found.slot.0, right.0).is_err() {
            return Ok(());
        }
        pool.flush(found.at, 8);
        pool.fence();
    }
    if right.expires() {
        inner.expiring.store(true, Ordering::Relaxed);
    }
    if pool.allocator().is_recovering() && !pool.mutant(Mutant::RecordNotMarked) {
        pool.allocator().mark(pool, at, record.len())?;
    }
    Ok(())
}

/// Frees slots that batches of other opens reserved, which a crash cut off, and makes damaged reaches the longest there are, so that nothing is missed.
fn mend_lines(inner: &Inner, table: Table, from: u64, to: u64) {
    let pool = &inner.pool;
    // The lines behind the last home line are looked at with the last part.
    let last = if to == CURSOR_END { table.all_lines() - 1 } else { table.home((to - 1) as u32) };
    let mut mended = false;
    for line in table.home(from as u32)..=last {
        let words = table.load(pool, line);
        if !reach_is_whole(words[0]) {
            inner.recovery.count_corrupt();
            inner.corrupt(&Error::corrupt(format!("line {:?}", table.line(line)), "its reach was changed"));
            if pool.cas_u64(table.line(line), words[0], reach_word(table.probe - 1)).is_ok() {
                pool.flush(table.line(line), 8);
                mended = true;
            }
        }
        for index in 0..LINE_SLOTS {
            let word = words[1 + index];
            let is_left = word != Slot::FREE && word != inner.reserved && !Slot(word).names_record();
            if is_left && pool.cas_u64(table.slot(line, index), word, Slot::FREE).is_ok() {
                pool.flush(table.slot(line, index), 8);
                mended = true;
            }
        }
    }
    if mended {
        pool.fence();
    }
}

impl Inner {
    /// Stores the counts of keys for the next open. Nothing works any more.
    pub(crate) fn save_counts(&self) {
        for partition in 0..self.partitions.len() {
            let root = Root::of(&self.pool, partition);
            // A count that came from damage may be no count any more: the next open counts again.
            let keys = self.keys_of(partition).filter(|keys| *keys < Root::NUMBER_MAX);
            let word = keys.map_or(0, |keys| root.sealed(keys + 1));
            self.pool.publish_u64(root.keys(), word);
            self.pool.flush(root.keys(), 8);
        }
        self.pool.fence();
    }
}

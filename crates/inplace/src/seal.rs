//! The seal of a clean stop: a checksum for each block of the index.
//!
//! A clean stop stores the seal and the next open checks the whole index against it before it
//! serves anything. The head, and not the pool's clean flag, says whether the seal is in force: an
//! open that is killed before it has compared everything leaves the seal to the next open.
//!
//! ```text
//! head, the last line of the root area
//! 0          8       16               24         32           40       48        56
//! | LODESEAL | state | first position | body len | body crc   | extents | head crc | 0       |
//!
//! an extent of the seal
//! 0          8      16      24
//! | LODESEA1 | next | bytes | part of the body ...
//!
//! body, for each extent of the index and for the root area
//! 0          8       16     20  24
//! | position | bytes | kind | 0 | crc32c of each block of 4096 bytes: 4 bytes each, filled up to 8 |
//! ```
//! Each checksum starts from a seed of the pool's identity and its block's position. `state` is 1
//! (no seal: the store was too full for one), 2 (sealed) or 3 (in use: an open has compared the
//! seal). All other fields of a head in use are 0. A head that is not valid, or in use, is damage
//! after a clean stop. After an unclean one it says that no seal is in force.
//!
//! A salvage open marks the store as damaged when the seal does not fit, before it serves anything
//! (`Pool::mark_damaged`). So no later open takes the index for whole.
//!
//! Persist order of a stop: the extents; fence; the head; flush; fence; then the pool's clean flag.
//! Persist order of an open: the comparison; the head in use; flush; fence; then the first store to
//! the index. So a valid head with state 2 is of an index that nothing has changed since, whatever
//! the clean flag says. A head that a crash tears is not valid: its checksum is of all fields.

use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_contract::{Durability, Error, Event, FoundBy, Result};
use lodestore_media::{ExtentKind, Mutant, NvPtr, OpenReport, Pool, crc32c_seeded, u32_at, u64_at};

use crate::recovery::share_out;

/// Offset of the head in the root area.
const HEAD_AT: u64 = Pool::ROOT_BYTES - 64;
const HEAD_BYTES: usize = 56;
const HEAD_CRC_AT: usize = 48;
const HEAD_MAGIC: [u8; 8] = *b"LODESEAL";
const EXTENT_MAGIC: [u8; 8] = *b"LODESEA1";
const EXTENT_HEADER: usize = 24;
/// Most bytes of one extent of the seal.
const EXTENT_BYTES_MAX: usize = 1 << 20;
const STATE_NONE: u64 = 1;
const STATE_SEALED: u64 = 2;
const STATE_IN_USE: u64 = 3;
/// Bytes under one checksum.
const BLOCK_BYTES: u64 = 4096;
/// Blocks that one thread checks together.
const JOB_BLOCKS: u64 = 256;
const ITEM_HEADER: usize = 24;
/// Kind of the root area in the body.
const KIND_ROOT: ExtentKind = ExtentKind::FREE;

/// An extent of the index that a seal covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedExtent {
    /// Its start.
    pub at: NvPtr,
    /// Its bytes that the index uses.
    pub bytes: u64,
    /// Its kind.
    pub kind: ExtentKind,
}

/// What an open knows of the index before it reads the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealCheck {
    /// A seal is in force and the whole index is as it says. Also the answer for a new store.
    Whole,
    /// No seal is in force: after a crash, or a clean stop of a store that was too full for a
    /// seal.
    Absent,
    /// Parts of the index are damaged. Only a salvage open gets this answer.
    Damaged,
}

/// Stores and checks the seal of one engine.
#[derive(Debug, Clone, Copy)]
pub struct Seal {
    /// Kind of the seal's own extents.
    pub kind: ExtentKind,
    /// Names a kind of extent in error messages.
    pub name: fn(ExtentKind) -> &'static str,
}

/// A run of blocks that one thread checks.
struct Job {
    extent: SealedExtent,
    /// First block, counted from the extent's start.
    first: u64,
    /// Offset of the first block's checksum in the body.
    sums_at: usize,
    blocks: u64,
}

impl Seal {
    /// Bytes of the root area that an engine can use; the seal's head is after them.
    pub const ROOT_BYTES: u64 = HEAD_AT;

    /// Checks the index against the seal of the last clean stop, with at most `threads` threads,
    /// marks the seal's head as in use, and frees the seal's extents. To be called before anything
    /// of the index is used or changed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the seal does not fit or an earlier salvage found damage, unless
    /// the open is a salvage. The store is left as it was found. [`Error::Poisoned`] where the head
    /// cannot be made durable.
    pub fn check(&self, pool: &Pool, report: &OpenReport, threads: usize) -> Result<SealCheck> {
        if report.created {
            return Ok(SealCheck::Whole);
        }
        let outcome = if report.is_marked_damaged {
            Err(refused("the store's index", "an earlier salvage open found damage"))
        } else {
            self.compare_in_force(pool, report, threads)
        };
        match outcome {
            Err(error) if pool.options().salvage => {
                tell_corrupt(pool, &error);
                pool.mark_damaged()?;
                self.free_extents(pool);
                Ok(SealCheck::Damaged)
            }
            Err(error) => {
                // The index was not changed: the next open checks it against the same seal.
                if report.clean {
                    let _ = pool.close(true);
                }
                Err(error)
            }
            Ok(found) => {
                set_in_use(pool, report)?;
                self.free_extents(pool);
                Ok(found)
            }
        }
    }

    /// Compares the index with the seal, if one is in force.
    fn compare_in_force(&self, pool: &Pool, report: &OpenReport, threads: usize) -> Result<SealCheck> {
        if pool.mutant(Mutant::SealIgnored) || !report.clean && !is_ordered(pool, report) {
            return Ok(SealCheck::Absent);
        }
        let place = "the seal of the last clean stop";
        match HeadState::load(pool) {
            HeadState::Sealed => self.compare(pool, threads),
            HeadState::NoSeal => Ok(SealCheck::Absent),
            HeadState::InUse | HeadState::Invalid if !report.clean => Ok(SealCheck::Absent),
            HeadState::InUse => Err(refused(place, "its head is older than the stop")),
            HeadState::Invalid => Err(refused(place, "its head is not valid")),
        }
    }

    fn free_extents(&self, pool: &Pool) {
        // While the allocator recovers it frees what nothing marks.
        if !pool.allocator().is_recovering() {
            pool.allocator().free_kind(pool, self.kind);
        }
    }

    /// Stores the seal of these extents and of the root area. Nothing may change them until the
    /// pool is closed. A store without free space for the seal gets a head that says so.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Io`]; the caller must not stop cleanly then.
    pub fn save(&self, pool: &Pool, extents: &[SealedExtent]) -> Result<()> {
        let root = SealedExtent { at: pool.root(), bytes: HEAD_AT, kind: KIND_ROOT };
        let mut body = Vec::new();
        for extent in [root].iter().chain(extents) {
            append_item(pool, *extent, &mut body)?;
        }
        let stored = match self.store_body(pool, &body) {
            Ok(first) => Some(first),
            Err(Error::Full { .. }) => None,
            Err(error) => return Err(error),
        };
        pool.fence_checked()?;
        let mut head = new_head(if stored.is_some() { STATE_SEALED } else { STATE_NONE });
        if let Some(first) = stored {
            head[16..24].copy_from_slice(&first.raw().to_le_bytes());
            head[24..32].copy_from_slice(&(body.len() as u64).to_le_bytes());
            head[32..40].copy_from_slice(&u64::from(sum(pool, first, &body)).to_le_bytes());
            head[40..48].copy_from_slice(&(extents.len() as u64).to_le_bytes());
        }
        store_head(pool, head)
    }

    /// Stores the body in extents and returns the position of the first.
    fn store_body(&self, pool: &Pool, body: &[u8]) -> Result<NvPtr> {
        let room =
            EXTENT_BYTES_MAX.min(pool.options().region_bytes as usize / 8).max(BLOCK_BYTES as usize) - EXTENT_HEADER;
        let mut next = NvPtr::NULL;
        for part in body.chunks(room).rev() {
            let bytes = (EXTENT_HEADER + part.len()) as u64;
            let at = match pool.allocator().alloc_extent(pool, bytes, self.kind) {
                Ok(at) => at,
                Err(error) => {
                    pool.allocator().free_kind(pool, self.kind);
                    return Err(error);
                }
            };
            let header = [EXTENT_MAGIC, next.raw().to_le_bytes(), (part.len() as u64).to_le_bytes()].concat();
            pool.store_durable(at, &[&header, part]);
            next = at;
        }
        Ok(next)
    }

    /// Reads the seal and compares each block with its checksum.
    fn compare(&self, pool: &Pool, threads: usize) -> Result<SealCheck> {
        let body = read_body(pool)?;
        let jobs = jobs_of(&body).ok_or_else(|| refused("the seal of the last clean stop", "its body is not valid"))?;
        let (body, found) = (&body, AtomicU64::new(0));
        let work = |index: usize, damage: &mut Vec<Error>| {
            if let Err(error) = self.check_job(pool, &jobs[index], body)
                && found.fetch_add(1, Ordering::Relaxed) < 64
            {
                damage.push(error);
            }
            Ok(())
        };
        let shares = share_out(jobs.len(), threads, work, |_: &mut Vec<Error>| ())?;
        let mut damage = shares.into_iter().flatten();
        match damage.next() {
            None => Ok(SealCheck::Whole),
            Some(first) => {
                damage.for_each(|error| tell_corrupt(pool, &error));
                Err(first)
            }
        }
    }

    fn check_job(&self, pool: &Pool, job: &Job, body: &[u8]) -> Result<()> {
        let SealedExtent { at, bytes, kind } = job.extent;
        let name = || format!("{} at {at:?}", if kind == KIND_ROOT { "root area" } else { (self.name)(kind) });
        for index in 0..job.blocks {
            let offset = (job.first + index) * BLOCK_BYTES;
            let block = at.add(offset);
            let Some(found) = pool.bytes(block, (bytes - offset).min(BLOCK_BYTES) as usize) else {
                return Err(refused(&name(), "it is not inside the pool"));
            };
            if sum(pool, block, found) != u32_at(body, job.sums_at + index as usize * 4) {
                return Err(refused(
                    &name(),
                    &format!("the block at offset {offset} is not as the last clean stop left it"),
                ));
            }
        }
        Ok(())
    }
}

/// What the head says of the seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadState {
    Sealed,
    /// The store was too full for a seal.
    NoSeal,
    /// An open has compared the seal, and may have changed the index since.
    InUse,
    /// There is none, or a crash or damage changed it.
    Invalid,
}

impl HeadState {
    fn load(pool: &Pool) -> Self {
        let at = pool.root().add(HEAD_AT);
        let Some(head) = pool.bytes(at, HEAD_BYTES) else { return Self::Invalid };
        let crc = u64::from(sum(pool, at, &head[..HEAD_CRC_AT]));
        if head[..8] != HEAD_MAGIC || u64_at(head, HEAD_CRC_AT) != crc {
            return Self::Invalid;
        }
        match u64_at(head, 8) {
            STATE_NONE => Self::NoSeal,
            STATE_SEALED => Self::Sealed,
            STATE_IN_USE => Self::InUse,
            _ => Self::Invalid,
        }
    }
}

/// A head in this state without its checksum, all other fields 0.
fn new_head(state: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&HEAD_MAGIC);
    head[8..16].copy_from_slice(&state.to_le_bytes());
    head
}

/// Stores the head with its checksum, durably.
fn store_head(pool: &Pool, mut head: [u8; HEAD_BYTES]) -> Result<()> {
    let at = pool.root().add(HEAD_AT);
    let crc = u64::from(sum(pool, at, &head[..HEAD_CRC_AT]));
    head[HEAD_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    pool.store(at, &head);
    pool.flush(at, HEAD_BYTES);
    pool.fence_checked()
}

/// Makes the head say, durably, that the index may differ from its seal.
fn set_in_use(pool: &Pool, report: &OpenReport) -> Result<()> {
    if pool.mutant(Mutant::SealHeadKept) {
        return Ok(());
    }
    if HeadState::load(pool) != HeadState::InUse {
        return store_head(pool, new_head(STATE_IN_USE));
    }
    if report.settled {
        return Ok(());
    }
    // A process that was killed may have stored the head and not flushed it.
    pool.flush(pool.root().add(HEAD_AT), HEAD_BYTES);
    pool.fence_checked()
}

/// Whether what an unclean stop left kept the order of its stores. A store of durability `process`
/// after a restart of the machine did not: the index may be newer than the head.
fn is_ordered(pool: &Pool, report: &OpenReport) -> bool {
    report.same_boot || pool.durability() != Durability::Process && !pool.options().emulate_dax
}

/// Appends an extent and the checksums of its blocks to the body.
fn append_item(pool: &Pool, extent: SealedExtent, body: &mut Vec<u8>) -> Result<()> {
    let SealedExtent { at, bytes, kind } = extent;
    body.extend_from_slice(&at.raw().to_le_bytes());
    body.extend_from_slice(&bytes.to_le_bytes());
    body.extend_from_slice(&u64::from(kind.0).to_le_bytes());
    for offset in (0..bytes).step_by(BLOCK_BYTES as usize) {
        let block = at.add(offset);
        let Some(found) = pool.bytes(block, (bytes - offset).min(BLOCK_BYTES) as usize) else {
            return Err(Error::corrupt(format!("extent {at:?} of the index"), "it is not inside the pool"));
        };
        body.extend_from_slice(&sum(pool, block, found).to_le_bytes());
    }
    body.resize(body.len().next_multiple_of(8), 0);
    Ok(())
}

/// Reads the body that a valid head names.
fn read_body(pool: &Pool) -> Result<Vec<u8>> {
    let place = "the seal of the last clean stop";
    let at = pool.root().add(HEAD_AT);
    let Some(head) = pool.bytes(at, HEAD_BYTES) else { return Err(refused(place, "no root area")) };
    let (first, len) = (NvPtr::from_raw(u64_at(head, 16)), u64_at(head, 24));
    let mut body = Vec::new();
    let mut next = first;
    while (body.len() as u64) < len {
        let part = read_extent(pool, next).ok_or_else(|| refused(place, "an extent of the seal is not valid"))?;
        next = part.next;
        body.extend_from_slice(part.bytes);
    }
    if body.len() as u64 != len || u64::from(sum(pool, first, &body)) != u64_at(head, 32) {
        return Err(refused(place, "its checksum differs"));
    }
    Ok(body)
}

/// One extent of a seal.
struct SealPart<'a> {
    next: NvPtr,
    bytes: &'a [u8],
}

fn read_extent(pool: &Pool, at: NvPtr) -> Option<SealPart<'_>> {
    let header = pool.bytes(at, EXTENT_HEADER)?;
    let len = usize::try_from(u64_at(header, 16)).ok()?;
    let is_valid = header[..8] == EXTENT_MAGIC && (1..=EXTENT_BYTES_MAX).contains(&len);
    let bytes = pool.bytes(at, EXTENT_HEADER + len).filter(|_| is_valid)?;
    Some(SealPart { next: NvPtr::from_raw(u64_at(header, 8)), bytes: &bytes[EXTENT_HEADER..] })
}

/// Splits the body into jobs. `None` where the body is not one that `save` writes.
fn jobs_of(body: &[u8]) -> Option<Vec<Job>> {
    let mut jobs = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let header = body.get(at..at + ITEM_HEADER)?;
        let extent = SealedExtent {
            at: NvPtr::from_raw(u64_at(header, 0)),
            bytes: u64_at(header, 8),
            kind: ExtentKind(u8::try_from(u64_at(header, 16)).ok()?),
        };
        let blocks = extent.bytes.div_ceil(BLOCK_BYTES);
        let sums_at = at + ITEM_HEADER;
        at = sums_at + usize::try_from(blocks).ok()?.checked_mul(4)?.next_multiple_of(8);
        body.get(sums_at..at)?;
        for first in (0..blocks).step_by(JOB_BLOCKS as usize) {
            let blocks = (blocks - first).min(JOB_BLOCKS);
            jobs.push(Job { extent, first, sums_at: sums_at + first as usize * 4, blocks });
        }
    }
    (!jobs.is_empty()).then_some(jobs)
}

/// The checksum of bytes at a position of this pool.
fn sum(pool: &Pool, at: NvPtr, bytes: &[u8]) -> u32 {
    crc32c_seeded(pool.position_seed(at), &[bytes])
}

/// Reports damage to the owner's event sink.
#[cold]
fn tell_corrupt(pool: &Pool, error: &Error) {
    if let Error::Corrupt { place, what, .. } = error {
        pool.tell(&Event::Corruption { found_by: FoundBy::Open, place: place.clone(), what: what.clone() });
    }
}

/// The refusal of a store whose index is damaged.
#[cold]
fn refused(place: &str, what: &str) -> Error {
    Error::corrupt(
        place,
        format!(
            "{what}: restore the store from a backup, or open it with salvage and export what is left (`Builder::salvage(true)`, `Db::for_each`)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use lodestore_media::PoolOptions;

    use super::*;
    use crate::testing::Scratch;

    const SEAL: Seal = Seal { kind: ExtentKind(40), name: |_| "table" };
    const TABLE: ExtentKind = ExtentKind(41);
    const TABLE_BYTES: u64 = 3 * 4096 + 100;
    /// Offset of the head in the file of region 0.
    const HEAD_IN_FILE: usize = 8192 + HEAD_AT as usize;

    fn options(salvage: bool) -> PoolOptions {
        PoolOptions { capacity: 8 << 20, region_bytes: 8 << 20, salvage, ..PoolOptions::default() }
    }

    fn open(dir: &Path, salvage: bool) -> (Arc<Pool>, OpenReport) {
        Pool::open(dir, "test", 1, options(salvage)).expect("open")
    }

    /// A sealed store with one table; the table's offset in the file of region 0.
    fn sealed(dir: &Path) -> usize {
        let (pool, _) = Pool::create(dir, "test", 1, options(false)).expect("create");
        pool.store(pool.root(), &[3; 64]);
        let at = pool.allocator().alloc_extent(&pool, TABLE_BYTES, TABLE).expect("space");
        pool.store(at, &[7; TABLE_BYTES as usize]);
        SEAL.save(&pool, &[SealedExtent { at, bytes: TABLE_BYTES, kind: TABLE }]).expect("save");
        pool.close(true).expect("close");
        at.offset() as usize
    }

    fn edit(dir: &Path, change: impl FnOnce(&mut [u8])) {
        let file = dir.join("pool.0000");
        let mut bytes = std::fs::read(&file).expect("readable");
        change(&mut bytes);
        std::fs::write(&file, bytes).expect("writable");
    }

    fn check(dir: &Path, salvage: bool) -> Result<SealCheck> {
        let (pool, report) = open(dir, salvage);
        let outcome = SEAL.check(&pool, &report, 2);
        drop(pool);
        outcome
    }

    #[test]
    fn an_unchanged_store_is_whole_and_an_unclean_one_has_no_seal() {
        let scratch = Scratch::new();
        let dir = scratch.store();
        sealed(&dir);
        assert_eq!(check(&dir, false).expect("unchanged"), SealCheck::Whole);
        // The pool was dropped without a close.
        assert_eq!(check(&dir, false).expect("after a kill"), SealCheck::Absent);
    }

    #[test]
    fn each_changed_block_of_root_area_and_table_refuses_each_strict_open() {
        let root = 8192;
        for offset in [0, 40, 4000, 4096 * 2] {
            let scratch = Scratch::new();
            let dir = scratch.store();
            let table = sealed(&dir);
            for at in [root + offset % 4032, table + offset, table + TABLE_BYTES as usize - 1] {
                edit(&dir, |bytes| bytes[at] ^= 0x10);
                for _again in 0..2 {
                    let error = check(&dir, false).expect_err("a changed block");
                    assert!(error.to_string().contains("backup"), "{error}");
                }
                edit(&dir, |bytes| bytes[at] ^= 0x10);
            }
            // Nothing was changed by the refusals.
            assert_eq!(check(&dir, false).expect("whole again"), SealCheck::Whole);
        }
    }

    #[test]
    fn a_lost_or_older_head_is_damage_and_no_missing_seal() {
        let scratch = Scratch::new();
        let dir = scratch.store();
        sealed(&dir);
        let head = HEAD_IN_FILE;
        let mut kept = Vec::new();
        edit(&dir, |bytes| {
            kept = bytes[head..head + 64].to_vec();
            bytes[head..head + 64].fill(0);
        });
        assert!(matches!(check(&dir, false), Err(Error::Corrupt { .. })));
        edit(&dir, |bytes| bytes[head..head + 64].copy_from_slice(&kept));
        let (pool, report) = open(&dir, false);
        assert_eq!(SEAL.check(&pool, &report, 1).expect("whole"), SealCheck::Whole);
        pool.store(pool.root(), &[4; 64]);
        SEAL.save(&pool, &[]).expect("save");
        pool.close(true).expect("close");
        drop(pool);
        edit(&dir, |bytes| bytes[head..head + 64].copy_from_slice(&kept));
        assert!(matches!(check(&dir, false), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn a_salvage_goes_on_and_its_damage_is_not_forgotten() {
        let scratch = Scratch::new();
        let dir = scratch.store();
        let table = sealed(&dir);
        edit(&dir, |bytes| bytes[table + 5000] = 0);
        assert_eq!(check(&dir, true).expect("salvage"), SealCheck::Damaged);
        let refused = Pool::open(&dir, "test", 1, options(false)).map(|_| ());
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "after an unclean stop: {refused:?}");
        assert_eq!(check(&dir, true).expect("salvage"), SealCheck::Damaged);
    }

    #[test]
    fn a_store_without_free_space_stops_cleanly_without_a_seal() {
        let scratch = Scratch::new();
        let dir = scratch.store();
        let (pool, _) = Pool::create(&dir, "test", 1, options(false)).expect("create");
        while pool.allocator().alloc_extent(&pool, 4096, TABLE).is_ok() {}
        SEAL.save(&pool, &[]).expect("save");
        pool.close(true).expect("close");
        drop(pool);
        assert_eq!(check(&dir, false).expect("open"), SealCheck::Absent);
    }

    /// The bytes of the head's line.
    fn head_line(dir: &Path) -> Vec<u8> {
        let mut line = Vec::new();
        edit(dir, |bytes| line = bytes[HEAD_IN_FILE..HEAD_IN_FILE + 64].to_vec());
        line
    }

    #[test]
    fn a_seal_stays_in_force_when_an_open_is_killed_before_it_has_compared_all() {
        let scratch = Scratch::new();
        let dir = scratch.store();
        let table = sealed(&dir);
        for _again in 0..3 {
            drop(open(&dir, false));
        }
        edit(&dir, |bytes| bytes[table + 5000] = 0);
        for _again in 0..2 {
            assert!(matches!(check(&dir, false), Err(Error::Corrupt { .. })), "a changed block");
        }
        edit(&dir, |bytes| bytes[table + 5000] = 7);
        assert_eq!(check(&dir, false).expect("whole again"), SealCheck::Whole);
        edit(&dir, |bytes| bytes[table + 5000] = 0);
        assert_eq!(check(&dir, false).expect("changed in use"), SealCheck::Absent);
    }

    #[test]
    fn a_kill_between_seal_and_clean_flag_leaves_the_seal_in_force() {
        let scratch = Scratch::new();
        let dir = scratch.store();
        sealed(&dir);
        let (pool, report) = open(&dir, false);
        assert_eq!(SEAL.check(&pool, &report, 1).expect("whole"), SealCheck::Whole);
        pool.store(pool.root(), &[5; 64]);
        SEAL.save(&pool, &[]).expect("save");
        drop(pool);
        assert_eq!(check(&dir, false).expect("unclean"), SealCheck::Whole);
    }

    /// A head that a crash tears is not the head of any seal: neither of the new one, whose first
    /// words are there, nor of an older one.
    #[test]
    fn no_torn_head_refuses_a_store() {
        let scratch = Scratch::new();
        let dir = scratch.store();
        let table = sealed(&dir);
        let before = head_line(&dir);
        assert_eq!(check(&dir, false).expect("whole"), SealCheck::Whole);
        let in_use = head_line(&dir);
        // The index has changed.
        edit(&dir, |bytes| bytes[table] = 9);
        for words in 0u32..1 << 7 {
            let is_new = |word: usize| words >> word & 1 == 1;
            for (old, new) in [(&before, &in_use), (&in_use, &before)] {
                edit(&dir, |bytes| {
                    for word in 0..HEAD_BYTES / 8 {
                        let from = if is_new(word) { new } else { old };
                        bytes[HEAD_IN_FILE + word * 8..][..8].copy_from_slice(&from[word * 8..][..8]);
                    }
                });
                let torn = head_line(&dir);
                if torn[..HEAD_BYTES] != before[..HEAD_BYTES] {
                    assert_eq!(check(&dir, false).expect("torn"), SealCheck::Absent, "{words:#b}");
                    assert_eq!(head_line(&dir)[..HEAD_BYTES], in_use[..HEAD_BYTES]);
                }
            }
        }
    }

    #[test]
    fn no_zeroed_line_hides_a_salvage() {
        let scratch = Scratch::new();
        let dir = scratch.store();
        let table = sealed(&dir);
        edit(&dir, |bytes| bytes[table + 5000] = 0);
        assert_eq!(check(&dir, true).expect("salvage"), SealCheck::Damaged);
        for line in (0..HEAD_IN_FILE + 64).step_by(64) {
            let mut kept = Vec::new();
            edit(&dir, |bytes| {
                kept = bytes[line..line + 64].to_vec();
                bytes[line..line + 64].fill(0);
            });
            let refused = Pool::open(&dir, "test", 1, options(false)).map(|_| ());
            assert!(matches!(refused, Err(Error::Corrupt { .. })), "line at {line}: {refused:?}");
            edit(&dir, |bytes| bytes[line..line + 64].copy_from_slice(&kept));
        }
    }
}

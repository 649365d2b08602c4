//! A bounded queue of many producers, whose consumer's side any thread can take.
//!
//! HiKV (ATC 2017) hands tree updates from serving threads to backend threads through such queues. Two things are
//! added to the array queue with a sequence number in each slot (D. Vyukov's): the consumer's side is behind a
//! try-lock, so that a thread that finds the queue full, or a scan that needs it drained, can *help* instead of
//! waiting; and three counters that only grow make *tickets*: whoever notes [`Ring::tail`] and sees
//! [`Ring::completed`] reach the note knows that every push that had returned by then has been worked off.
//!
//! # Invariants
//! Let `capacity` be C, a power of two. Counters never wrap in practice (2^64 pushes).
//! * **Order.** Values leave in the order in which their pushes claimed [`Ring::tail`]; so the pushes of one
//!   thread, or under one lock, leave in the order in which they were made.
//! * **Counters.** `completed <= popped <= tail`, and each only grows. `popped` moves at the end of a batch, whose
//!   slots are given back one by one before it; so `tail <= popped + C` between batches, and up to a lap more in one.
//! * **Slot** (Inv 41). Slot `i` holds `sequence`, and it tells who may touch the value: `sequence == p`, where
//!   `p mod C == i`: empty, owned by the producer that claims position `p`; `sequence == p + 1`: full, owned by the
//!   consumer. The owner hands the slot on by storing the next number with release order, and the next owner reads
//!   it with acquire order.
//! * **Consumer** (Inv 42). `head` and every full slot are touched only by the holder of the consumer's lock.
//! * **Completion** (Inv 43). `completed` is stored with release order after the work is done, by the holder of the
//!   lock.
//!
//! # Progress
//! [`Ring::try_push`] never waits. A producer that is stopped between its claim and its hand-over holds up the
//! values behind it, and nothing else: later pushes still succeed, until the queue is full.
//!
//! # Who may call what
//! Any thread: everything on [`Ring`]. The thread that holds a [`Consumer`]: its methods.

use std::fmt;
use std::mem::MaybeUninit;

use super::queue_sync::order::{self, Ordering};
use super::queue_sync::{AtomicBool, AtomicU64, Cell, prefetch_write};

/// Largest capacity, in values.
pub const CAPACITY_MAX: usize = 1 << 20;

/// How many slots ahead a producer asks for: its next visits to this queue.
const PREFETCH_SLOTS: u64 = 2;

/// One line of its own, and its neighbour that the processor fetches with it.
#[repr(align(128))]
struct Padded<T>(T);

/// With a value of 56 bytes, exactly one cache line.
#[repr(align(64))]
struct Slot<T> {
    sequence: AtomicU64,
    value: Cell<MaybeUninit<T>>,
}

/// What the consumer's side writes.
struct ConsumerSide {
    locked: AtomicBool,
    head: AtomicU64,
    completed: AtomicU64,
}

/// The queue; see the module.
pub struct Ring<T> {
    tail: Padded<AtomicU64>,
    consumer: Padded<ConsumerSide>,
    mask: u64,
    slots: Box<[Slot<T>]>,
}

// SAFETY: a value is moved in by one thread and out by one other, handed over by release and acquire of the slot's
// sequence (Inv 41); no two threads ever refer to one value (Inv 41, Inv 42).
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: the ring owns its values, and each is read once (Inv 41); sending it sends them.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// A queue of at least `capacity` values: rounded up to a power of two, 2 to [`CAPACITY_MAX`].
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.clamp(2, CAPACITY_MAX).next_power_of_two();
        let slots = (0..capacity as u64)
            .map(|position| Slot { sequence: AtomicU64::new(position), value: Cell::new(MaybeUninit::uninit()) })
            .collect();
        Self {
            tail: Padded(AtomicU64::new(0)),
            consumer: Padded(ConsumerSide {
                locked: AtomicBool::new(false),
                head: AtomicU64::new(0),
                completed: AtomicU64::new(0),
            }),
            mask: capacity as u64 - 1,
            slots,
        }
    }

    /// Most values it holds.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of DRAM it takes.
    pub fn dram_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val::<[Slot<T>]>(&self.slots)
    }

    #[inline]
    fn slot(&self, position: u64) -> &Slot<T> {
        &self.slots[(position & self.mask) as usize]
    }

    /// Appends `value`, and gives its ticket: it has been worked off once [`Ring::completed`] is at least that.
    ///
    /// # Errors
    /// Gives `value` back where the queue is full.
    #[inline]
    pub fn try_push(&self, value: T) -> Result<u64, T> {
        let mut position = self.tail.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(position);
            let sequence = slot.sequence.load(Ordering::Acquire);
            if sequence == position {
                // SeqCst: whoever goes to sleep after saying so reads `tail` in the same order (see `Ring::tail`).
                match self.tail.0.compare_exchange_weak(position, position + 1, Ordering::SeqCst, Ordering::Relaxed) {
                    Ok(_) => {
                        slot.value.with_mut(|place| {
                            // SAFETY: the claim of `position` made this thread the slot's owner (Inv 41).
                            unsafe { (*place).write(value) };
                        });
                        slot.sequence.store(position + 1, order::FILLED);
                        prefetch_write(self.slot(position + PREFETCH_SLOTS));
                        return Ok(position + 1);
                    }
                    Err(now) => position = now,
                }
            } else if sequence < position {
                // Not emptied since the last lap.
                return Err(value);
            } else {
                position = self.tail.0.load(Ordering::Relaxed);
            }
        }
    }

    /// Pushes claimed so far: the ticket of the newest. Sequentially consistent with the claim in [`Ring::try_push`],
    /// so of a thread that says "I sleep" and then reads this, and a thread that pushes and then reads whether
    /// anybody sleeps, at least one sees the other.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::SeqCst)
    }

    /// Values taken out so far.
    #[inline]
    pub fn popped(&self) -> u64 {
        self.consumer.0.head.load(Ordering::Acquire)
    }

    /// Values worked off so far. What their work did is visible to whoever reads this.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.consumer.0.completed.load(Ordering::Acquire)
    }

    /// Values claimed and not taken out.
    #[inline]
    pub fn len(&self) -> usize {
        let popped = self.popped();
        self.tail.0.load(Ordering::Relaxed).saturating_sub(popped) as usize
    }

    /// Whether nothing waits to be taken out.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the consumer's side, unless another thread has it. Never waits.
    #[inline]
    pub fn try_consume(&self) -> Option<Consumer<'_, T>> {
        let side = &self.consumer.0;
        if side.locked.load(Ordering::Relaxed) {
            return None;
        }
        let taken = side.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Consumer { ring: self })
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let mut rest = Vec::with_capacity(self.len());
        if let Some(mut consumer) = self.try_consume() {
            consumer.pop_batch(&mut rest, usize::MAX);
        }
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("capacity", &self.capacity())
            .field("tail", &self.tail())
            .field("popped", &self.popped())
            .field("completed", &self.completed())
            .finish()
    }
}

/// The consumer's side of a [`Ring`], held by one thread at a time; given back on drop.
pub struct Consumer<'a, T> {
    ring: &'a Ring<T>,
}

impl<T> Consumer<'_, T> {
    /// Appends to `out` up to `max` values, in order, and says how many. Stops early at a push that has claimed
    /// its place and not filled it yet.
    pub fn pop_batch(&mut self, out: &mut Vec<T>, max: usize) -> usize {
        let side = &self.ring.consumer.0;
        let first = side.head.load(Ordering::Relaxed);
        let waiting = self.ring.tail.0.load(Ordering::Relaxed).saturating_sub(first);
        let most = waiting.min(max as u64);
        // All allocation is before the first value is moved, so a panic in it loses nothing.
        out.reserve(most as usize);
        let mut position = first;
        while position < first + most {
            let slot = self.ring.slot(position);
            if slot.sequence.load(Ordering::Acquire) != position + 1 {
                break;
            }
            // SAFETY: sequence `position + 1` means full and ours, as we hold the lock (Inv 41, Inv 42).
            out.push(slot.value.with_mut(|place| unsafe { (*place).assume_init_read() }));
            slot.sequence.store(position + self.ring.mask + 1, order::EMPTIED);
            position += 1;
        }
        if position != first {
            side.head.store(position, Ordering::Release);
        }
        (position - first) as usize
    }

    /// Says that the work of the `count` values popped first, of those not yet completed, is done.
    ///
    /// # Panics
    /// Where that is more than was popped.
    pub fn complete(&mut self, count: usize) {
        let side = &self.ring.consumer.0;
        let completed = side.completed.load(Ordering::Relaxed) + count as u64;
        assert!(completed <= side.head.load(Ordering::Relaxed), "completed more than was popped");
        side.completed.store(completed, order::COMPLETED);
    }

    /// Values taken out so far, over all consumers.
    pub fn popped(&self) -> u64 {
        self.ring.consumer.0.head.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Consumer<'_, T> {
    fn drop(&mut self) {
        self.ring.consumer.0.locked.store(false, order::UNLOCK);
    }
}

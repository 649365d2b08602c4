//! A bounded multi-producer queue. Any thread can acquire the consumer side.
//!
//! HiKV (ATC 2017) passes tree updates from serving threads to backend threads through such queues.
//! This queue extends the array queue with per-slot sequence numbers (D. Vyukov) in two ways:
//! * A try-lock guards the consumer side. A thread that finds the queue full, or a scan that needs
//!   it drained, can *help* instead of waiting.
//! * Three monotonic counters provide *tickets*. A thread reads [`Ring::tail`]; when
//!   [`Ring::completed`] reaches that number, every push that had returned before the read is done.
//!
//! # Invariants
//! Let `capacity` be C, a power of two. Counters never wrap in practice (2^64 pushes).
//! * **Order.** Values leave in the order in which their pushes claimed [`Ring::tail`]. The pushes
//!   of one thread, or under one lock, therefore leave in the order in which they were made.
//! * **Counters.** `completed <= popped <= tail`, and each only grows. `popped` advances at the end
//!   of a batch, whose slots are released one by one before that. Hence `tail <= popped + C`
//!   between batches, and up to a lap more during a batch.
//! * **Slot** (Inv 41). The `sequence` of slot `i` defines which thread may access the value.
//!   `sequence == p`, where `p mod C == i`: empty, owned by the producer that claims position `p`.
//!   `sequence == p + 1`: full, owned by the consumer. The owner transfers the slot by storing the
//!   next number with release order, and the next owner reads it with acquire order.
//! * **Consumer** (Inv 42). Only the holder of the consumer lock accesses `head` and full slots.
//! * **Completion** (Inv 43). The holder of the lock stores `completed` with release order after
//!   the work is done.
//!
//! # Progress
//! [`Ring::try_push`] never waits. A producer that stops between its claim and its transfer delays
//! only the values after its own. Later pushes still succeed until the queue is full.
//!
//! # Threads
//! Any thread may call the methods of [`Ring`]. The thread that holds a [`Consumer`] calls its
//! methods.

use std::fmt;
use std::mem::MaybeUninit;

use super::queue_sync::order::{self, Ordering};
use super::queue_sync::{AtomicBool, AtomicU64, Cell, prefetch_write};

/// Maximum capacity, in values.
pub const CAPACITY_MAX: usize = 1 << 20;

/// Number of slots ahead that a producer prefetches for its next pushes to this queue.
const PREFETCH_SLOTS: u64 = 2;

/// Occupies its own cache line and the adjacent line, which the processor fetches together.
#[repr(align(128))]
struct Padded<T>(T);

/// With a value of 56 bytes, exactly one cache line.
#[repr(align(64))]
struct Slot<T> {
    sequence: AtomicU64,
    value: Cell<MaybeUninit<T>>,
}

/// Fields that the consumer side writes.
struct ConsumerSide {
    locked: AtomicBool,
    head: AtomicU64,
    completed: AtomicU64,
}

/// The queue; see the module documentation.
pub struct Ring<T> {
    tail: Padded<AtomicU64>,
    consumer: Padded<ConsumerSide>,
    mask: u64,
    slots: Box<[Slot<T>]>,
}

// SAFETY: one thread moves a value in and one other thread moves it out. The release and acquire of
// the slot's sequence transfer the value (Inv 41). No two threads ever refer to one value (Inv 41,
// Inv 42).
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: the ring owns its values, and each is read once (Inv 41). Sending the ring sends them.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// Creates a queue of at least `capacity` values, rounded up to a power of two, 2 to
    /// [`CAPACITY_MAX`].
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

    /// Returns the maximum number of values.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the bytes of DRAM that the queue uses.
    pub fn dram_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val::<[Slot<T>]>(&self.slots)
    }

    #[inline]
    fn slot(&self, position: u64) -> &Slot<T> {
        &self.slots[(position & self.mask) as usize]
    }

    /// Appends `value` and returns its ticket. The value's work is done once [`Ring::completed`] is
    /// at least the ticket.
    ///
    /// # Errors
    /// Returns `value` if the queue is full.
    #[inline]
    pub fn try_push(&self, value: T) -> Result<u64, T> {
        let mut position = self.tail.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(position);
            let sequence = slot.sequence.load(Ordering::Acquire);
            if sequence == position {
                // SeqCst: a thread that announces its sleep reads `tail` in the same order (see
                // `Ring::tail`).
                match self.tail.0.compare_exchange_weak(position, position + 1, Ordering::SeqCst, Ordering::Relaxed) {
                    Ok(_) => {
                        slot.value.with_mut(|cell| {
                            // SAFETY: the claim of `position` made this thread the slot's owner
                            // (Inv 41).
                            unsafe { (*cell).write(value) };
                        });
                        slot.sequence.store(position + 1, order::FILLED);
                        prefetch_write(self.slot(position + PREFETCH_SLOTS));
                        return Ok(position + 1);
                    }
                    Err(now) => position = now,
                }
            } else if sequence < position {
                // The slot has not been emptied since the last lap.
                return Err(value);
            } else {
                position = self.tail.0.load(Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of claimed pushes: the ticket of the newest push.
    ///
    /// The load is sequentially consistent with the claim in [`Ring::try_push`]. A consumer
    /// announces its sleep and then calls `tail`; a producer pushes and then checks for sleepers.
    /// At least one of them sees the other.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::SeqCst)
    }

    /// Returns the number of values popped.
    #[inline]
    pub fn popped(&self) -> u64 {
        self.consumer.0.head.load(Ordering::Acquire)
    }

    /// Returns the number of values whose work is done. The effects of that work are visible to the
    /// caller.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.consumer.0.completed.load(Ordering::Acquire)
    }

    /// Returns the number of values claimed and not popped.
    #[inline]
    pub fn len(&self) -> usize {
        let popped = self.popped();
        self.tail.0.load(Ordering::Relaxed).saturating_sub(popped) as usize
    }

    /// Returns whether no value is waiting.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Acquires the consumer side, or returns `None` if another thread holds it. Never waits.
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

/// The consumer side of a [`Ring`], held by one thread at a time and released on drop.
pub struct Consumer<'a, T> {
    ring: &'a Ring<T>,
}

impl<T> Consumer<'_, T> {
    /// Appends up to `max` values to `out`, in order, and returns their number. Stops early at a
    /// slot that a push has claimed but not filled.
    pub fn pop_batch(&mut self, out: &mut Vec<T>, max: usize) -> usize {
        let side = &self.ring.consumer.0;
        let first = side.head.load(Ordering::Relaxed);
        let waiting = self.ring.tail.0.load(Ordering::Relaxed).saturating_sub(first);
        let pop_count = waiting.min(max as u64);
        // All memory is allocated before the first value is moved, so a panic loses nothing.
        out.reserve(pop_count as usize);
        let mut position = first;
        while position < first + pop_count {
            let slot = self.ring.slot(position);
            if slot.sequence.load(Ordering::Acquire) != position + 1 {
                break;
            }
            // SAFETY: sequence `position + 1` means full. This thread holds the lock and so owns
            // the slot (Inv 41, Inv 42).
            out.push(slot.value.with_mut(|cell| unsafe { (*cell).assume_init_read() }));
            slot.sequence.store(position + self.ring.mask + 1, order::EMPTIED);
            position += 1;
        }
        if position != first {
            side.head.store(position, Ordering::Release);
        }
        (position - first) as usize
    }

    /// Marks the work of the `count` oldest popped and not yet completed values as done.
    ///
    /// # Panics
    /// If `count` is more than was popped.
    pub fn complete(&mut self, count: usize) {
        let side = &self.ring.consumer.0;
        let completed = side.completed.load(Ordering::Relaxed) + count as u64;
        assert!(completed <= side.head.load(Ordering::Relaxed), "completed more than was popped");
        side.completed.store(completed, order::COMPLETED);
    }

    /// Returns the number of values popped, by all consumers.
    pub fn popped(&self) -> u64 {
        self.ring.consumer.0.head.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Consumer<'_, T> {
    fn drop(&mut self) {
        self.ring.consumer.0.locked.store(false, order::UNLOCK);
    }
}

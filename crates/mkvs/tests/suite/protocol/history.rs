//! The values that a key may hold according to the clients' answers: every linearization that is
//! still possible.
//!
//! A write is identified by its number, a bit of a set. Its value is its number, or [`ABSENT`] for
//! a delete. A read is identified by its client. A read value is therefore the last acknowledged
//! one or one of a concurrent write, and reads never go back in time.

/// The value of an absent key.
pub const ABSENT: u8 = 0;
/// The client reads nothing.
const NONE: u8 = u8::MAX;
/// The client's read has not taken effect.
const OPEN: u8 = u8::MAX - 1;
/// Number of clients of a model.
pub const CLIENTS: usize = 2;

/// A possible order of effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Order {
    value: u8,
    /// Writes in progress or in doubt, without effect so far.
    open: u16,
    /// The value that each client's read has seen, or that it has seen none yet.
    seen: [u8; CLIENTS],
}

/// The history of one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct History {
    orders: Vec<Order>,
    deletes: u16,
}

/// An answer that no order of effects explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A value that was overwritten, was lost, or was never acknowledged.
    Stale,
    /// A value of a deleted key, if no other result is possible.
    CameBack,
}

impl History {
    pub fn new() -> Self {
        Self { orders: vec![Order { value: ABSENT, open: 0, seen: [NONE; CLIENTS] }], deletes: 0 }
    }

    /// Adds every order in which one more pending operation takes effect.
    fn close(&mut self) {
        let mut at = 0;
        while at < self.orders.len() {
            let order = self.orders[at];
            let mut found = Vec::new();
            for write in (0..16).filter(|write| order.open & (1 << write) != 0) {
                let value = if self.deletes & (1 << write) == 0 { write as u8 } else { ABSENT };
                found.push(Order { value, open: order.open & !(1 << write), ..order });
            }
            for client in (0..CLIENTS).filter(|client| order.seen[*client] == OPEN) {
                let mut next = order;
                next.seen[client] = order.value;
                found.push(next);
            }
            for next in found {
                if !self.orders.contains(&next) {
                    self.orders.push(next);
                }
            }
            at += 1;
        }
        self.orders.sort_unstable();
        self.orders.dedup();
    }

    /// A write begins.
    pub fn write(&mut self, write: u8, is_delete: bool) {
        if is_delete {
            self.deletes |= 1 << write;
        }
        self.orders.iter_mut().for_each(|order| order.open |= 1 << write);
        self.close();
    }

    /// A write is acknowledged.
    pub fn acknowledge(&mut self, write: u8) {
        self.orders.retain(|order| order.open & (1 << write) == 0);
    }

    /// A write is refused: it never takes effect.
    pub fn refuse(&mut self, write: u8) -> Result<(), Fault> {
        self.keep(|order| order.open & (1 << write) != 0, ABSENT)?;
        self.orders.iter_mut().for_each(|order| order.open &= !(1 << write));
        Ok(())
    }

    /// A client's read begins.
    pub fn read(&mut self, client: usize) {
        self.orders.iter_mut().for_each(|order| order.seen[client] = OPEN);
        self.close();
    }

    /// A client's read ends without an answer.
    pub fn forget(&mut self, client: usize) {
        self.orders.iter_mut().for_each(|order| order.seen[client] = NONE);
        self.close();
    }

    /// A client's read returns this value.
    pub fn answer(&mut self, client: usize, value: u8) -> Result<(), Fault> {
        self.keep(|order| order.seen[client] == value, value)?;
        self.forget(client);
        Ok(())
    }

    /// The host stops: pending operations have taken effect, or never will.
    pub fn crash(&mut self) {
        self.orders.iter_mut().for_each(|order| (order.open, order.seen) = (0, [NONE; CLIENTS]));
        self.close();
    }

    /// The group is open again and the key has this value.
    pub fn recover(&mut self, value: u8) -> Result<(), Fault> {
        self.keep(|order| order.value == value, value)
    }

    fn keep(&mut self, is_kept: impl Fn(&Order) -> bool, value: u8) -> Result<(), Fault> {
        let was_deleted = self.orders.iter().all(|order| order.value == ABSENT) && self.deletes != 0;
        self.orders.retain(is_kept);
        match self.orders.is_empty() {
            false => Ok(()),
            true if was_deleted && value != ABSENT => Err(Fault::CameBack),
            true => Err(Fault::Stale),
        }
    }
}

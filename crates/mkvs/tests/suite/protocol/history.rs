//! What a key may hold by what clients were told: every linearization that is still possible.
//!
//! A write is known by its number, a bit of a set. Its value is its number, or [`ABSENT`] where it deletes. A read is known by its client.
//! So a value that is read is the last acknowledged one or of a write beside it, and reads never go back.

/// The value of a key that is not there.
pub const ABSENT: u8 = 0;
/// The client reads nothing.
const NONE: u8 = u8::MAX;
/// The client's read has not taken effect.
const OPEN: u8 = u8::MAX - 1;
/// Clients of a model.
pub const CLIENTS: usize = 2;

/// One order of effects that is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Order {
    value: u8,
    /// Writes under way, or whose end is not known, without effect so far.
    open: u16,
    /// What each client's read has seen, or that it has seen nothing yet.
    seen: [u8; CLIENTS],
}

/// The history of one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct History {
    orders: Vec<Order>,
    deletes: u16,
}

/// What no order of effects explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A value that was overwritten, was lost, or was never acknowledged.
    Stale,
    /// A value where the key was deleted, and nothing else is possible.
    CameBack,
}

impl History {
    pub fn new() -> Self {
        Self { orders: vec![Order { value: ABSENT, open: 0, seen: [NONE; CLIENTS] }], deletes: 0 }
    }

    /// Adds every order in which one more of what is under way has its effect.
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

    /// A write is refused: it has no effect, ever.
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

    /// A client is told that the key has this value.
    pub fn answer(&mut self, client: usize, value: u8) -> Result<(), Fault> {
        self.keep(|order| order.seen[client] == value, value)?;
        self.forget(client);
        Ok(())
    }

    /// The host stops: what is under way has had its effect, or never will.
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
